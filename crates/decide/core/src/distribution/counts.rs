//! Logarithmic buckets of latencies, shared by the two recorders.

use hdrhistogram::{Counter, Histogram};

use super::rounded;
use crate::time::{Duration, nanos};
use crate::units::{OutOfRange, Probability};

/// The longest latency that is recorded as it came; longer ones are recorded as this and counted.
pub const RECORDED_MAX: Duration = Duration::from_secs(3_600);

/// The width of the narrowest bucket: no latency is resolved finer than this.
pub const RESOLUTION: Duration = Duration::from_nanos(64);

/// The recordings that fell between the previous bucket's upper end and this one's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// The longest latency of the bucket. Equal in every recording of equal precision.
    pub upper: Duration,
    /// How many recordings fell into it; never zero.
    pub count: u64,
}

/// A bucketed count of latencies plus the exact sum and maximum.
#[derive(Clone, Debug)]
pub(super) struct Counts<C: Counter> {
    histogram: Histogram<C>,
    sum_nanos: u128,
    max_nanos: u64,
    clamped: u64,
}

impl<C: Counter> Counts<C> {
    pub(super) fn new(significant_digits: u8) -> Result<Self, OutOfRange> {
        let expected = "1 to 4 significant digits";
        let out_of_range = OutOfRange { came: f64::from(significant_digits), expected };
        if !(1..=4).contains(&significant_digits) {
            return Err(out_of_range);
        }
        let (low, high) = (nanos(RESOLUTION), nanos(RECORDED_MAX));
        let histogram =
            Histogram::new_with_bounds(low, high, significant_digits).map_err(|_| out_of_range)?;
        Ok(Self { histogram, sum_nanos: 0, max_nanos: 0, clamped: 0 })
    }

    #[inline]
    pub(super) fn record(&mut self, latency: Duration) {
        let mut latency_nanos = nanos(latency);
        if latency_nanos > nanos(RECORDED_MAX) {
            latency_nanos = nanos(RECORDED_MAX);
            self.clamped += 1;
        }
        self.histogram.saturating_record(latency_nanos);
        self.sum_nanos += u128::from(latency_nanos);
        self.max_nanos = self.max_nanos.max(latency_nanos);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("every recording has the same range");
        self.sum_nanos += other.sum_nanos;
        self.max_nanos = self.max_nanos.max(other.max_nanos);
        self.clamped += other.clamped;
    }

    pub(super) fn clear(&mut self) {
        self.histogram.reset();
        (self.sum_nanos, self.max_nanos, self.clamped) = (0, 0, 0);
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub(super) fn clamped(&self) -> u64 {
        self.clamped
    }

    pub(super) fn max(&self) -> Duration {
        Duration::from_nanos(self.max_nanos)
    }

    pub(super) fn sum_nanos(&self) -> u128 {
        self.sum_nanos
    }

    pub(super) fn bytes(&self) -> usize {
        self.histogram.distinct_values() * size_of::<C>() + size_of::<Self>()
    }

    pub(super) fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.histogram.iter_recorded().map(|step| Bucket {
            upper: Duration::from_nanos(step.value_iterated_to()),
            count: step.count_at_value().as_u64(),
        })
    }
}

/// The first bucket's upper end up to which the share `p` of `count` recordings lies.
pub(super) fn quantile(
    buckets: impl Iterator<Item = Bucket>,
    count: u64,
    p: Probability,
) -> Duration {
    let rank = rank(p, count);
    let mut seen = 0;
    let mut upper = Duration::ZERO;
    for bucket in buckets {
        seen += bucket.count;
        upper = bucket.upper;
        if seen >= rank {
            break;
        }
    }
    upper
}

/// How many recordings lie in buckets that end at or before `at`.
pub(super) fn count_within(buckets: impl Iterator<Item = Bucket>, at: Duration) -> u64 {
    buckets.take_while(|bucket| bucket.upper <= at).map(|bucket| bucket.count).sum()
}

/// The smallest rank from 1 with `rank / count >= p`, as the division in a cdf rounds it.
pub(super) fn rank(p: Probability, count: u64) -> u64 {
    let share = |rank: u64| rank as f64 / count as f64;
    let near = (p.value() * count as f64).ceil() as u64;
    // The product may be off by one rank either way; the quotient decides (0.07 of 100 is 7).
    let candidates = near.saturating_sub(1)..=near.saturating_add(1);
    candidates.into_iter().find(|&rank| share(rank) >= p.value()).unwrap_or(count).max(1)
}

/// The mean of `count` latencies that sum to `sum_nanos`; zero for none.
pub(super) fn mean(sum_nanos: u128, count: u64) -> Duration {
    if count == 0 {
        return Duration::ZERO;
    }
    rounded(sum_nanos as f64 / count as f64)
}

/// Walks two recordings side by side: upper end, count in the first, count in the second.
pub(super) fn side_by_side(
    first: impl Iterator<Item = Bucket>,
    second: impl Iterator<Item = Bucket>,
) -> impl Iterator<Item = (Duration, u64, u64)> {
    let (mut first, mut second) = (first.peekable(), second.peekable());
    core::iter::from_fn(move || {
        let upper = match (first.peek(), second.peek()) {
            (Some(a), Some(b)) => a.upper.min(b.upper),
            (one, other) => one.or(other)?.upper,
        };
        let a = first.next_if(|bucket| bucket.upper == upper).map_or(0, |bucket| bucket.count);
        let b = second.next_if(|bucket| bucket.upper == upper).map_or(0, |bucket| bucket.count);
        Some((upper, a, b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_agree_with_the_quotient() {
        let p = |value| Probability::new(value).unwrap();
        assert_eq!(rank(p(0.07), 100), 7, "the product is 7.000000000000001");
        assert_eq!((rank(p(0.0), 5), rank(p(1.0), 5), rank(p(0.5), 0)), (1, 5, 1));
    }
}
