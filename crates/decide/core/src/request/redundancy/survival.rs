//! How long requests would last if no copy of them had ever left.
//!
//! **Signal**: first copies that were answered, and those that were given up, each with the time it
//! had lasted. **Why this statistic**: where copies work, nearly every slow first copy is given up
//! the moment its copy wins, so its time is only a lower bound. Taken for the whole time it says
//! that nothing is ever late and copies are not needed; the hedge stops, everything is late, it
//! starts again. Left out it says the same. Kaplan and Meier's product-limit estimator takes each
//! at its word: it lasted at least this long. **When it misleads**: it takes giving up to be
//! unrelated to how long the rest would have lasted. A copy that shares the trouble of its first
//! breaks that ([`super::trial`] watches for it). Beyond the longest request that was seen to its
//! end the curve stays where it was, which overstates the tail; hence a few requests that were due
//! for a copy get none. **Cold start**: the caller waits for enough samples. **Source**: Kaplan and
//! Meier, "Nonparametric Estimation from Incomplete Observations", JASA 53 (1958), section 2.

use crate::distribution::RollingRecorder;
use crate::time::{Duration, nanos};

/// Into how many steps the time up to the objective is divided.
pub const STEPS: usize = 256;

/// The share of requests that last longer than each step of the way to an objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Survival {
    /// By step; the last one is the objective.
    beyond: [f64; STEPS + 1],
}

impl Default for Survival {
    /// Nothing ever ends: no copy pays.
    fn default() -> Self {
        Self { beyond: [1.0; STEPS + 1] }
    }
}

/// When a step begins.
pub fn step_at(objective: Duration, step: usize) -> Duration {
    let at = u128::from(nanos(objective)) * step as u128 / STEPS as u128;
    Duration::from_nanos(u64::try_from(at).unwrap_or(u64::MAX))
}

impl Survival {
    /// The shares from a function of the step, 0 to [`STEPS`]; each is clamped between 0 and the
    /// one before.
    pub fn from_fn(mut share: impl FnMut(usize) -> f64) -> Self {
        let mut least = 1.0_f64;
        let beyond = core::array::from_fn(|step| {
            least = share(step).clamp(0.0, least);
            least
        });
        Self { beyond }
    }

    /// The product-limit estimate from the requests whose end was seen and those that were given
    /// up. What is given up in the same bucket counts as given up after.
    pub fn estimate(
        objective: Duration,
        ended: &RollingRecorder,
        given_up: &RollingRecorder,
    ) -> Self {
        let mut at_risk = ended.count() + given_up.count();
        let mut share = 1.0;
        let mut beyond = [0.0; STEPS + 1];
        let mut reached = 0;
        let (mut ended, mut given_up) = (ended.buckets().peekable(), given_up.buckets().peekable());
        loop {
            let upper = match (ended.peek(), given_up.peek()) {
                (Some(a), Some(b)) => a.upper.min(b.upper),
                (Some(one), None) | (None, Some(one)) => one.upper,
                (None, None) => break,
            };
            while reached <= STEPS && step_at(objective, reached) < upper {
                beyond[reached] = share;
                reached += 1;
            }
            if reached > STEPS {
                break;
            }
            let deaths = ended.next_if(|bucket| bucket.upper == upper).map_or(0, |of| of.count);
            let lost = given_up.next_if(|bucket| bucket.upper == upper).map_or(0, |of| of.count);
            share *= 1.0 - deaths as f64 / at_risk as f64;
            at_risk -= deaths + lost;
        }
        beyond[reached.min(STEPS + 1)..].fill(share);
        Self { beyond }
    }

    /// The share of requests that last longer than a step; the one before the first lasts for ever.
    ///
    /// # Panics
    /// When the step is beyond [`STEPS`].
    #[inline]
    pub const fn beyond(&self, step: usize) -> f64 {
        self.beyond[step]
    }

    /// The share of requests that miss the objective.
    pub const fn late(&self) -> f64 {
        self.beyond[STEPS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;
    use proptest::prelude::*;

    const OBJECTIVE: Duration = Duration::from_millis(256);

    fn recorder(latencies_ms: &[u64]) -> RollingRecorder {
        let mut recorder = RollingRecorder::new(Duration::from_secs(1), 1).unwrap();
        for &ms in latencies_ms {
            recorder.record(Instant::ZERO, Duration::from_millis(ms));
        }
        recorder
    }

    /// Kaplan and Meier's own example: deaths at 0.8, 3.1, 5.4, 9.2 months, losses at 1.0, 2.7,
    /// 7.0, 12.1 (section 1.1; their estimates 7/8, 7/10, 21/40, 21/80 follow in section 2).
    #[test]
    fn the_papers_example() {
        let (deaths, losses) = (recorder(&[8, 31, 54, 92]), recorder(&[10, 27, 70, 121]));
        let survival = Survival::estimate(OBJECTIVE, &deaths, &losses);
        for (at_ms, expected) in
            [(7, 1.0), (9, 7.0 / 8.0), (33, 7.0 / 10.0), (56, 21.0 / 40.0), (94, 21.0 / 80.0)]
        {
            assert!((survival.beyond(at_ms) - expected).abs() < 1e-12, "{at_ms} ms: {survival:?}");
        }
        assert_eq!(survival.late(), 21.0 / 80.0, "the curve stays where nothing more is known");
    }

    proptest! {
        /// With nothing given up it is the plain share that lasts longer, up to a bucket's width.
        #[test]
        fn without_losses_it_is_the_share_that_lasts_longer(
            latencies in prop::collection::vec(1..400_u64, 1..80),
        ) {
            let survival = Survival::estimate(OBJECTIVE, &recorder(&latencies), &recorder(&[]));
            for step in 0..=STEPS {
                let longer = |than: f64| {
                    let count = latencies.iter().filter(|&&ms| ms as f64 > than).count();
                    count as f64 / latencies.len() as f64
                };
                let at = step as f64;
                let share = survival.beyond(step);
                prop_assert!(longer(at) - 1e-9 <= share, "step {step}: {share}");
                prop_assert!(share <= longer(at * 0.98 - 0.01) + 1e-9, "step {step}: {share}");
            }
        }

        /// What is given up never makes requests look faster than if it had been left out at the
        /// end of its time, nor slower than if it had lasted for ever.
        #[test]
        fn losses_are_bounded_by_the_two_extremes(
            ended in prop::collection::vec(1..400_u64, 1..60),
            lost in prop::collection::vec(1..400_u64, 0..60),
        ) {
            let given = Survival::estimate(OBJECTIVE, &recorder(&ended), &recorder(&lost));
            let all: Vec<u64> = ended.iter().chain(&lost).copied().collect();
            let soonest = Survival::estimate(OBJECTIVE, &recorder(&all), &recorder(&[]));
            let never: Vec<u64> = ended.iter().copied().chain(lost.iter().map(|_| 9_999)).collect();
            let latest = Survival::estimate(OBJECTIVE, &recorder(&never), &recorder(&[]));
            for step in 0..=STEPS {
                prop_assert!(soonest.beyond(step) <= given.beyond(step) + 1e-9);
                prop_assert!(given.beyond(step) <= latest.beyond(step) + 1e-9);
                prop_assert!(step == 0 || given.beyond(step) <= given.beyond(step - 1));
            }
        }
    }

    #[test]
    fn nothing_known_is_nothing_late_and_steps_reach_the_objective() {
        let empty = Survival::estimate(OBJECTIVE, &recorder(&[]), &recorder(&[]));
        assert_eq!(empty.late(), 1.0);
        assert_eq!(step_at(OBJECTIVE, STEPS), OBJECTIVE);
        assert_eq!(step_at(Duration::MAX, STEPS), Duration::from_nanos(u64::MAX));
    }
}
