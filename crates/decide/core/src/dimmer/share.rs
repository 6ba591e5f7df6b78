//! How much work requests are, measured from outside.
//!
//! **Signal**: when requests enter and leave service, and how many cores serve them. While more
//! requests are in service than there are cores, each gets its share; [`ShareClock`] runs at that
//! share, so the difference of two readings is the core time one request was given, however
//! crowded the service was. That is exact for processor sharing and for a queue kept in front of
//! the cores; when requests wait in line *inside* the application, the mean over all is still
//! right and the difference between full and lean requests is understated.
//! **Statistic**: [`WorkModel`], least squares of work over the share of optional content, with
//! forgetting by count: its memory is some five hundred requests, since one request in a heavy
//! tail weighs as much as fifty others. **When it misleads**: an application that waits for others
//! is not working; with `cores` set too low its waiting counts as work.

use crate::time::Instant;

/// A clock that runs at the share of a core which each request in service is given.
#[derive(Clone, Debug)]
pub(super) struct ShareClock {
    cores: f64,
    in_service: u32,
    read_at: Instant,
    /// Core time one request would have been given so far, milliseconds.
    given_ms: f64,
}

impl ShareClock {
    pub(super) fn new(cores: f64, now: Instant) -> Self {
        Self { cores, in_service: 0, read_at: now, given_ms: 0.0 }
    }

    /// The core time given until now.
    #[inline]
    pub(super) fn read(&mut self, now: Instant) -> f64 {
        if self.in_service > 0 {
            let share = (self.cores / f64::from(self.in_service)).min(1.0);
            self.given_ms += share * now.millis_since(self.read_at);
        }
        self.read_at = self.read_at.max(now);
        self.given_ms
    }

    pub(super) fn enter(&mut self, now: Instant) -> f64 {
        let given = self.read(now);
        self.in_service += 1;
        given
    }

    pub(super) fn leave(&mut self, now: Instant) -> f64 {
        let given = self.read(now);
        self.in_service = self.in_service.saturating_sub(1);
        given
    }
}

/// Mean work of a request as a function of the share of optional content it was served.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkModel {
    weight: f64,
    work: f64,
    share: f64,
    share_squared: f64,
    share_work: f64,
    /// Lean over full work, once both were seen.
    lean_ratio: Option<f64>,
}

/// Weight of a new request against those before it.
const GAIN: f64 = 1.0 / 500.0;
/// Requests that must have been measured before the model is believed.
const SAMPLES_MIN: f64 = 20.0;
/// Variance of the shares seen below which they say nothing about their effect.
const VARIANCE_MIN: f64 = 0.01;
/// A page whose optional content costs less than this share of it gains nothing from dimming.
const LEAN_RATIO_MAX: f64 = 0.95;

impl WorkModel {
    pub(super) fn add(&mut self, share: f64, work_ms: f64) {
        let keep = 1.0 - GAIN;
        self.weight = self.weight.mul_add(keep, 1.0);
        self.work = self.work.mul_add(keep, work_ms);
        self.share = self.share.mul_add(keep, share);
        self.share_squared = self.share_squared.mul_add(keep, share * share);
        self.share_work = self.share_work.mul_add(keep, share * work_ms);
        self.learn_ratio();
    }

    fn learn_ratio(&mut self) {
        let (work, share) = (self.work / self.weight, self.share / self.weight);
        let variance = self.share_squared / self.weight - share * share;
        if self.weight < SAMPLES_MIN || variance < VARIANCE_MIN {
            return;
        }
        let slope = (self.share_work / self.weight - share * work) / variance;
        let lean = slope.mul_add(-share, work);
        let full = lean + slope;
        if full > 0.0 {
            self.lean_ratio = Some((lean / full).clamp(0.0, LEAN_RATIO_MAX));
        }
    }

    /// Mean work of a full request, milliseconds of core time; `None` before enough was seen.
    pub(super) fn full_ms(&self) -> Option<f64> {
        if self.weight < SAMPLES_MIN {
            return None;
        }
        let (work, share) = (self.work / self.weight, self.share / self.weight);
        let ratio = self.lean_ratio();
        let full = work / (1.0 - ratio).mul_add(share, ratio);
        (full > 0.0 && full.is_finite()).then_some(full)
    }

    /// Lean over full work. Until a lean request was seen, optional content is taken for all of
    /// the work: the first dimming is then too timid, and what it measures corrects it.
    pub(super) fn lean_ratio(&self) -> f64 {
        self.lean_ratio.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_clock_gives_each_request_its_share() {
        let at = Instant::from_millis;
        let mut clock = ShareClock::new(2.0, at(0));
        let first = clock.enter(at(0));
        let _ = clock.enter(at(10)); // alone for 10 ms: a whole core
        let _ = clock.enter(at(20)); // two on two cores: a whole core each
        let _ = clock.enter(at(20));
        let given = clock.leave(at(40)) - first; // four on two cores for 20 ms: half a core
        assert!((given - 30.0).abs() < 1e-9, "{given}");
        assert_eq!(clock.in_service, 3);
    }

    #[test]
    fn time_that_runs_backwards_is_not_work() {
        let mut clock = ShareClock::new(1.0, Instant::from_millis(5));
        let entered = clock.enter(Instant::from_millis(10));
        assert_eq!(clock.leave(Instant::from_millis(7)), entered);
    }

    #[test]
    fn the_model_finds_both_means_from_any_mixture() {
        let mut rng = Rng::seeded(3);
        let mut model = WorkModel::default();
        for _ in 0..5_000 {
            let share = [0.0, 0.5, 1.0][rng.below(3)];
            model.add(share, (6.0 + 54.0 * share) * rng.exponential());
        }
        let full = model.full_ms().unwrap();
        // Memory of 500 samples of standard deviation equal to the mean.
        assert!((full - 60.0).abs() < 12.0, "{full}");
        assert!((model.lean_ratio() - 0.1).abs() < 0.1, "{}", model.lean_ratio());
    }

    #[test]
    fn without_a_lean_request_the_full_work_is_the_mean() {
        let mut model = WorkModel::default();
        assert_eq!(model.full_ms(), None);
        for _ in 0..100 {
            model.add(1.0, 7.0);
        }
        assert!((model.full_ms().unwrap() - 7.0).abs() < 1e-9);
        assert_eq!(model.lean_ratio(), 0.0);
    }
}
