//! A recording of latencies in bounded memory and with bounded relative error.
//!
//! Signal: every latency, as it happens. Statistic: a histogram whose buckets grow with the
//! latency (HdrHistogram), because a tail spans three decades and a report about p99.9 needs the
//! same relative precision as one about the median. Means and standard deviations alone would
//! hide the tail; sampling reservoirs lose exactly the rare requests that matter.
//!
//! **Error.** A quantile is never below the true one and at most `10^-digits` above it, relatively,
//! plus [`RESOLUTION`](super::RESOLUTION): a recording promises nothing that did not happen.
//! Sum, mean and maximum are exact. Latencies above [`RECORDED_MAX`](super::RECORDED_MAX) count as
//! that long, and [`Recorder::clamped`] says how many there were.
//!
//! **When it misleads.** It knows only what was recorded: requests that were never sent because
//! the client waited (coordinated omission) must be recorded from their intended start.

use super::Distribution;
use super::counts::{self, Bucket, Counts};
use crate::time::Duration;
use crate::units::{OutOfRange, Probability};

/// Latencies recorded since the start or the last [`clear`](Self::clear).
///
/// Memory is fixed at creation: 30 KiB with 2 significant digits, 216 KiB with 3.
#[derive(Clone, Debug)]
pub struct Recorder {
    counts: Counts<u64>,
    significant_digits: u8,
}

impl Default for Recorder {
    /// A recorder of 2 significant digits: quantiles within 1 %.
    fn default() -> Self {
        Self::new(2).expect("2 significant digits are supported")
    }
}

impl Recorder {
    /// An empty recorder whose quantiles are within `10^-significant_digits` of the truth.
    ///
    /// # Errors
    /// When `significant_digits` is not 1 to 4.
    pub fn new(significant_digits: u8) -> Result<Self, OutOfRange> {
        Ok(Self { counts: Counts::new(significant_digits)?, significant_digits })
    }

    /// Records one latency.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        self.counts.record(latency);
    }

    /// Adds everything that `other` recorded.
    ///
    /// # Errors
    /// When `other` has another number of significant digits: the sum would keep the promise of
    /// neither.
    pub fn merge(&mut self, other: &Self) -> Result<(), OutOfRange> {
        if self.significant_digits != other.significant_digits {
            let came = f64::from(other.significant_digits);
            let expected = "a recorder of the same number of significant digits";
            return Err(OutOfRange { came, expected });
        }
        self.counts.merge(&other.counts);
        Ok(())
    }

    /// Forgets everything recorded.
    pub fn clear(&mut self) {
        self.counts.clear();
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.counts.count()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// How many of them were longer than [`RECORDED_MAX`](super::RECORDED_MAX) and recorded as it.
    pub fn clamped(&self) -> u64 {
        self.counts.clamped()
    }

    /// The longest recorded latency, exactly; zero when empty.
    pub fn max(&self) -> Duration {
        self.counts.max()
    }

    /// The sum of all recorded latencies, exactly, for `_sum` metrics.
    pub fn sum(&self) -> Duration {
        let sum_nanos = self.counts.sum_nanos();
        // An hour in each of 2^64 recordings is 2^76 s; 2^64 s are out of reach in practice.
        let seconds = u64::try_from(sum_nanos / 1_000_000_000).unwrap_or(u64::MAX);
        Duration::new(seconds, (sum_nanos % 1_000_000_000) as u32)
    }

    /// The buckets that hold recordings, from the shortest latency to the longest.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.counts.buckets()
    }

    /// How many recordings lie in buckets that end at or before `at`, for `_bucket{le=…}` metrics.
    pub fn count_within(&self, at: Duration) -> u64 {
        if at >= self.max() {
            return self.count();
        }
        counts::count_within(self.buckets(), at)
    }

    /// Bytes held, fixed at creation.
    pub fn bytes(&self) -> usize {
        self.counts.bytes()
    }
}

/// Every recording counts as the upper end of its bucket (at most the maximum). An empty recorder
/// answers as if everything took no time: ask [`Recorder::is_empty`] first.
impl Distribution for Recorder {
    fn cdf(&self, at: Duration) -> Probability {
        if at >= self.max() {
            return Probability::ONE;
        }
        Probability::clamped(self.count_within(at) as f64 / self.count() as f64)
    }

    fn quantile(&self, p: Probability) -> Duration {
        counts::quantile(self.buckets(), self.count(), p).min(self.max())
    }

    fn mean(&self) -> Duration {
        counts::mean(self.counts.sum_nanos(), self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::nanos;
    use proptest::prelude::*;

    fn recorded(digits: u8, samples: &[u64]) -> Recorder {
        let mut recorder = Recorder::new(digits).unwrap();
        samples.iter().for_each(|&sample| recorder.record(Duration::from_nanos(sample)));
        recorder
    }

    proptest! {
        #[test]
        fn quantiles_are_within_the_stated_error(
            exponents in prop::collection::vec(0.0..27.0_f64, 1..200),
            digits in 1..=3_u8,
            p in 0.0..=1.0_f64,
        ) {
            let mut samples: Vec<u64> = exponents.iter().map(|e| e.exp() as u64).collect();
            let recorder = recorded(digits, &samples);
            samples.sort_unstable();
            let rank = samples.iter().enumerate()
                .position(|(i, _)| (i + 1) as f64 / samples.len() as f64 >= p).unwrap();
            let truth = samples[rank] as f64;
            let reported = nanos(recorder.quantile(Probability::new(p).unwrap())) as f64;
            prop_assert!(reported >= truth, "{reported} below {truth}");
            let bound = truth * (1.0 + 0.1_f64.powi(i32::from(digits))) + 64.0;
            prop_assert!(reported <= bound, "{reported} above {bound}");
        }

        #[test]
        fn merging_is_recording_both(
            a in prop::collection::vec(0..u64::MAX, 0..50),
            b in prop::collection::vec(0..10_000_000_000_000_u64, 0..50),
        ) {
            let mut merged = recorded(2, &a);
            merged.merge(&recorded(2, &b)).unwrap();
            let both = recorded(2, &[a, b].concat());
            prop_assert_eq!(merged.count(), both.count());
            prop_assert_eq!(merged.clamped(), both.clamped());
            prop_assert_eq!((merged.max(), merged.mean()), (both.max(), both.mean()));
            prop_assert!(merged.buckets().eq(both.buckets()));
        }
    }

    #[test]
    fn mean_and_max_are_exact() {
        let recorder = recorded(2, &[1_000_000, 2_000_000, 6_000_003]);
        assert_eq!(recorder.mean(), Duration::from_nanos(3_000_001));
        assert_eq!(recorder.max(), Duration::from_nanos(6_000_003));
        assert_eq!(recorder.sum(), Duration::from_nanos(9_000_003));
        assert_eq!(recorder.quantile(Probability::ONE), recorder.max());
    }

    #[test]
    fn extremes_are_clamped_and_counted_and_emptiness_is_quiet() {
        let mut recorder = Recorder::default();
        assert_eq!(recorder.quantile(Probability::ONE), Duration::ZERO);
        assert_eq!(recorder.mean(), Duration::ZERO);
        assert_eq!(recorder.cdf(Duration::ZERO), Probability::ONE);
        recorder.record(Duration::MAX);
        recorder.record(Duration::ZERO);
        assert_eq!((recorder.count(), recorder.clamped()), (2, 1));
        assert_eq!(recorder.max(), Duration::from_secs(3_600));
        recorder.clear();
        assert!(recorder.is_empty() && recorder.clamped() == 0 && recorder.max().is_zero());
    }

    #[test]
    fn unequal_precision_is_refused() {
        let error = Recorder::default().merge(&Recorder::new(3).unwrap()).unwrap_err();
        assert_eq!(error.came, 3.0);
        assert!(Recorder::new(0).is_err() && Recorder::new(5).is_err());
    }

    #[test]
    fn memory_is_as_documented() {
        let kib = |digits: u8| Recorder::new(digits).unwrap().bytes() >> 10;
        // Counters of 8 bytes, 128 or 1024 for each doubling of 64 ns * that, up to an hour.
        assert_eq!((kib(2), kib(3)), ((28 + 2) * 128 * 8 / 1024, (25 + 2) * 1024 * 8 / 1024));
    }
}
