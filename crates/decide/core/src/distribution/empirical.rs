//! Exactly the latencies that were seen: a step function over samples or weighted points.

use super::counts::Bucket;
use super::{Distribution, rounded};
use crate::time::{Duration, nanos};
use crate::units::{OutOfRange, Probability, Weight};

/// A distribution over finitely many latencies, with 16 bytes for each different one.
#[derive(Clone, Debug)]
pub struct Empirical {
    /// Ascending latencies, each with the share of all at or below it; the last share is 1.
    steps: Vec<(Duration, f64)>,
    mean: Duration,
}

impl Empirical {
    /// The distribution of these samples, each as likely as another, in any order.
    ///
    /// # Errors
    /// When there is no sample.
    pub fn from_samples(mut samples: Vec<Duration>) -> Result<Self, OutOfRange> {
        samples.sort_unstable();
        Self::from_buckets(samples.into_iter().map(|upper| Bucket { upper, count: 1 }))
    }

    /// The distribution in which every recording is as long as its bucket's upper end, to ask a
    /// recorder many questions: a cdf takes a binary search here, a walk there.
    ///
    /// # Errors
    /// When the buckets hold no recording.
    pub fn from_buckets(buckets: impl IntoIterator<Item = Bucket>) -> Result<Self, OutOfRange> {
        let mut buckets: Vec<Bucket> = buckets.into_iter().collect();
        buckets.sort_unstable_by_key(|bucket| bucket.upper);
        let total: u128 = buckets.iter().map(|bucket| u128::from(bucket.count)).sum();
        let mut below = 0_u128;
        let shares = buckets.iter().filter(|bucket| bucket.count > 0).map(|bucket| {
            below += u128::from(bucket.count);
            (bucket.upper, below as f64 / total as f64)
        });
        Self::from_shares(shares.collect())
    }

    /// The distribution in which each latency is as likely as its weight among all weights.
    ///
    /// # Errors
    /// When there is no point.
    pub fn weighted(mut points: Vec<(Duration, Weight)>) -> Result<Self, OutOfRange> {
        points.sort_unstable_by_key(|&(latency, _)| latency);
        // Relative to the heaviest, so that no sum of finite weights overflows.
        let heaviest = points.iter().map(|(_, weight)| weight.value()).fold(0.0, f64::max);
        let total: f64 = points.iter().map(|(_, weight)| weight.value() / heaviest).sum();
        let mut below = 0.0;
        let shares = points.iter().map(|&(latency, weight)| {
            below += weight.value() / heaviest;
            (latency, (below / total).min(1.0))
        });
        Self::from_shares(shares.collect())
    }

    /// Takes ascending latencies with rising shares, keeping the last share of equal latencies.
    fn from_shares(mut steps: Vec<(Duration, f64)>) -> Result<Self, OutOfRange> {
        steps.dedup_by(|later, kept| {
            let equal = later.0 == kept.0;
            if equal {
                kept.1 = later.1;
            }
            equal
        });
        let expected = "at least one sample";
        steps.last_mut().ok_or(OutOfRange { came: 0.0, expected })?.1 = 1.0;
        let mut below = 0.0;
        let mean = steps.iter().fold(0.0, |mean, &(latency, share)| {
            let mass = share - core::mem::replace(&mut below, share);
            mean + mass * nanos(latency) as f64
        });
        Ok(Self { steps, mean: rounded(mean) })
    }
}

impl Distribution for Empirical {
    fn cdf(&self, at: Duration) -> Probability {
        let steps = self.steps.partition_point(|&(latency, _)| latency <= at);
        Probability::clamped(steps.checked_sub(1).map_or(0.0, |last| self.steps[last].1))
    }

    fn quantile(&self, p: Probability) -> Duration {
        let index = self.steps.partition_point(|&(_, share)| share < p.value());
        self.steps[index].0
    }

    fn mean(&self) -> Duration {
        self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn is_the_exact_step_function() {
        let samples = [5, 1, 3, 3].map(millis).to_vec();
        let empirical = Empirical::from_samples(samples).unwrap();
        let cdf = |at| empirical.cdf(at).value();
        assert_eq!(cdf(Duration::from_nanos(999_999)), 0.0);
        assert_eq!([cdf(millis(1)), cdf(millis(3)), cdf(millis(4))], [0.25, 0.75, 0.75]);
        assert_eq!(cdf(millis(5)), 1.0);
        let quantile = |p| empirical.quantile(Probability::new(p).unwrap());
        assert_eq!([quantile(0.0), quantile(0.25), quantile(0.26)], [1, 1, 3].map(millis));
        assert_eq!([quantile(0.75), quantile(0.76), quantile(1.0)], [3, 5, 5].map(millis));
        assert_eq!(empirical.mean(), millis(3));
    }

    #[test]
    fn weights_are_relative_and_may_be_huge() {
        let weight = |value| Weight::new(value).unwrap();
        let points = vec![(millis(2), weight(f64::MAX)), (millis(1), weight(f64::MAX))];
        let empirical = Empirical::weighted(points).unwrap();
        assert_eq!(empirical.cdf(millis(1)).value(), 0.5);
        assert_eq!(empirical.mean(), Duration::from_micros(1_500));
        let tiny = vec![(millis(2), weight(f64::MAX)), (Duration::MAX, weight(1e-300))];
        assert_eq!(Empirical::weighted(tiny).unwrap().cdf(millis(2)).value(), 1.0);
    }

    #[test]
    fn nothing_is_refused() {
        assert!(Empirical::from_samples(Vec::new()).is_err());
        assert!(Empirical::weighted(Vec::new()).is_err());
        let void = Bucket { upper: millis(1), count: 0 };
        assert_eq!(Empirical::from_buckets([void]).unwrap_err().expected, "at least one sample");
    }
}
