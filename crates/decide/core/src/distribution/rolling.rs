//! A recording of the last one to two periods, for quantiles that follow the present.
//!
//! Signal: the latencies of one replica or group. Statistic: the quantile over two halves, the
//! running period and the one before, because a hedge delay must forget an incident within two
//! periods, yet never be learnt from the first few samples of a fresh window. A decaying average
//! of a quantile would do neither: it has no sample count and mixes regimes.
//!
//! **Cold start.** Below the minimum sample count there is no quantile, only `None`.
//! **When it misleads.** With few samples a high quantile is the maximum: for a quantile `p` the
//! minimum count should be several times `1 / (1 - p)`.
//! **Cost.** A record is a few nanoseconds; a quantile walks the buckets (some microseconds), which
//! is why it is cached for a sixteenth of the period.

use super::counts::{self, Bucket, Counts};
use super::{Distribution, positive};
use crate::time::{Duration, Instant, nanos};
use crate::units::{OutOfRange, Probability};

const RECOMPUTATIONS_PER_PERIOD: u32 = 16;

/// Latencies of the last one to two periods, to 2 significant digits.
///
/// Memory is fixed at creation: two halves of less than 16 KiB.
#[derive(Clone, Debug)]
pub struct RollingRecorder {
    running: Counts<u32>,
    previous: Counts<u32>,
    period: Duration,
    started_at: Instant,
    samples_min: u64,
    cached: Option<Cached>,
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    p: Probability,
    computed_at: Instant,
    latency: Duration,
}

impl RollingRecorder {
    /// An empty recorder whose quantiles need at least `samples_min` recordings (at least one).
    ///
    /// # Errors
    /// When the period is zero.
    pub fn new(period: Duration, samples_min: u64) -> Result<Self, OutOfRange> {
        positive(period, "a period above zero")?;
        Ok(Self {
            running: Counts::new(2)?,
            previous: Counts::new(2)?,
            period,
            started_at: Instant::ZERO,
            samples_min: samples_min.max(1),
            cached: None,
        })
    }

    /// Records one latency that became known at `now`.
    ///
    /// A `now` before an earlier one counts into the running period.
    #[inline]
    pub fn record(&mut self, now: Instant, latency: Duration) {
        self.rotate(now);
        self.running.record(latency);
    }

    /// The quantile `p` of the last one to two periods, at most a sixteenth of a period old;
    /// `None` with fewer recordings than the minimum.
    ///
    /// One value is cached: asking for several `p` in turn computes each time.
    pub fn quantile_cached(&mut self, now: Instant, p: Probability) -> Option<Duration> {
        if let Some(cached) = self.cached
            && cached.p == p
            && now.since(cached.computed_at) < self.period / RECOMPUTATIONS_PER_PERIOD
        {
            return Some(cached.latency);
        }
        self.rotate(now);
        self.cached = (self.count() >= self.samples_min).then(|| Cached {
            p,
            computed_at: now,
            latency: self.quantile(p),
        });
        self.cached.map(|cached| cached.latency)
    }

    /// Forgets what has become too old at `now`. Recording and the cached quantile do this
    /// themselves; a reader of the [`Distribution`] of an idle recorder calls it first.
    #[inline]
    pub fn rotate(&mut self, now: Instant) {
        let age = now.since(self.started_at);
        if age >= self.period {
            self.turn(now, age);
        }
    }

    #[cold]
    fn turn(&mut self, now: Instant, age: Duration) {
        core::mem::swap(&mut self.running, &mut self.previous);
        self.running.clear();
        let (age, period) = (nanos(age), nanos(self.period));
        if age / period >= 2 {
            self.previous.clear();
        }
        // Halves begin at whole periods, however late the first event of a half comes.
        self.started_at = Instant::from_nanos(now.as_nanos() - age % period);
    }

    /// How many recordings the two halves hold.
    pub fn count(&self) -> u64 {
        self.running.count() + self.previous.count()
    }

    /// The longest latency held, exactly; zero when empty.
    pub fn max(&self) -> Duration {
        self.running.max().max(self.previous.max())
    }

    /// The buckets of both halves together, from the shortest latency to the longest.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        counts::side_by_side(self.running.buckets(), self.previous.buckets())
            .map(|(upper, running, previous)| Bucket { upper, count: running + previous })
    }

    /// Bytes held, fixed at creation.
    pub fn bytes(&self) -> usize {
        self.running.bytes() + self.previous.bytes()
    }
}

/// As of the last rotation, without the minimum count; like an empty `Recorder`, an empty one
/// answers as if everything took no time.
impl Distribution for RollingRecorder {
    fn cdf(&self, at: Duration) -> Probability {
        if at >= self.max() {
            return Probability::ONE;
        }
        let within = counts::count_within(self.buckets(), at);
        Probability::clamped(within as f64 / self.count() as f64)
    }

    fn quantile(&self, p: Probability) -> Duration {
        counts::quantile(self.buckets(), self.count(), p).min(self.max())
    }

    fn mean(&self) -> Duration {
        counts::mean(self.running.sum_nanos() + self.previous.sum_nanos(), self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MEDIAN: f64 = 0.5;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    proptest! {
        /// The model keeps every event and recounts those since the start of the previous period.
        #[test]
        fn covers_exactly_the_running_and_the_previous_period(
            gaps in prop::collection::vec(0..1_500_u64, 1..60),
        ) {
            let mut rolling = RollingRecorder::new(millis(1_000), 1).unwrap();
            let mut events: Vec<(u64, u64)> = Vec::new();
            let mut now = 0;
            for (index, gap) in gaps.iter().enumerate() {
                now += gap;
                let latency = 1 + index as u64;
                rolling.record(Instant::from_millis(now), millis(latency));
                events.push((now, latency));
                let from = (now / 1_000).saturating_sub(1) * 1_000;
                let kept: Vec<u64> =
                    events.iter().filter(|&&(at, _)| at >= from).map(|&(_, l)| l).collect();
                prop_assert_eq!(rolling.count(), kept.len() as u64);
                prop_assert_eq!(rolling.max(), millis(*kept.iter().max().unwrap()));
                let mean = kept.iter().sum::<u64>() as f64 / kept.len() as f64;
                prop_assert!((crate::time::millis(rolling.mean()) - mean).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn a_quantile_needs_the_minimum_count_and_is_cached_for_a_sixteenth() {
        let p = Probability::new(MEDIAN).unwrap();
        let mut rolling = RollingRecorder::new(millis(1_600), 3).unwrap();
        let at = Instant::from_millis;
        rolling.record(at(0), millis(10));
        rolling.record(at(1), millis(10));
        assert_eq!(rolling.quantile_cached(at(2), p), None, "two of three");
        rolling.record(at(3), millis(10));
        assert_eq!(rolling.quantile_cached(at(10), p), Some(millis(10)));
        for _ in 0..10 {
            rolling.record(at(11), millis(50));
        }
        assert_eq!(rolling.quantile_cached(at(109), p), Some(millis(10)), "still cached");
        assert_eq!(rolling.quantile_cached(at(110), p), Some(millis(50)), "recomputed");
        assert_eq!(rolling.quantile_cached(at(110), Probability::ONE), Some(millis(50)));
        assert_eq!(rolling.quantile_cached(at(5_000), p), None, "all forgotten");
    }

    #[test]
    fn time_running_backwards_and_far_ahead_is_harmless() {
        let mut rolling = RollingRecorder::new(Duration::MAX, 0).unwrap();
        rolling.record(Instant::FAR, Duration::MAX);
        rolling.record(Instant::ZERO, Duration::ZERO);
        assert!(rolling.count() >= 1);
        assert!(RollingRecorder::new(Duration::ZERO, 1).is_err());
        let mut fine = RollingRecorder::new(Duration::from_nanos(1), 0).unwrap();
        fine.record(Instant::FAR, millis(1));
        assert_eq!(fine.quantile_cached(Instant::FAR, Probability::ONE), Some(millis(1)));
    }

    #[test]
    fn each_half_fits_in_16_kib() {
        let bytes = RollingRecorder::new(millis(1), 1).unwrap().bytes();
        assert!(bytes <= 2 * (16 << 10), "{bytes}");
    }
}
