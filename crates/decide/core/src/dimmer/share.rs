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
//! is not working. **With `cores` wrong** work would depend on how many are in service: where there
//! are fewer cores than told it grows with them, where there are more it falls. [`CoresCheck`]
//! compares how long requests take that have little company with others, and what it sees is used.

use crate::time::Instant;

/// A clock that runs at the share of a core which each request in service is given.
#[derive(Clone, Debug)]
pub(super) struct ShareClock {
    cores: f64,
    in_service: u32,
    read_at: Instant,
    /// Core time one request would have been given so far, milliseconds.
    given_ms: f64,
    /// Sum over time of those in service, milliseconds.
    present_ms: f64,
}

/// A request enters service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    at: Instant,
    given_ms: f64,
    present_ms: f64,
    in_service: u32,
}

/// What a request was given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// Core time, milliseconds.
    pub(super) work_ms: f64,
    /// From entry to end, milliseconds.
    time_ms: f64,
    /// How many were in service when it entered, and on average: itself included.
    at_entry: u32,
    in_service: f64,
}

impl ShareClock {
    pub(super) fn new(cores: f64, now: Instant) -> Self {
        Self { cores, in_service: 0, read_at: now, given_ms: 0.0, present_ms: 0.0 }
    }

    /// From now on so many cores serve.
    pub(super) fn set_cores(&mut self, now: Instant, cores: f64) {
        self.read(now);
        self.cores = cores;
    }

    #[inline]
    fn read(&mut self, now: Instant) {
        if self.in_service > 0 {
            let (passed_ms, present) = (now.millis_since(self.read_at), f64::from(self.in_service));
            self.given_ms += (self.cores / present).min(1.0) * passed_ms;
            self.present_ms += present * passed_ms;
        }
        self.read_at = self.read_at.max(now);
    }

    #[inline]
    pub(super) fn enter(&mut self, now: Instant) -> Entry {
        self.read(now);
        self.in_service += 1;
        let Self { given_ms, present_ms, in_service, .. } = *self;
        Entry { at: now, given_ms, present_ms, in_service }
    }

    #[inline]
    pub(super) fn leave(&mut self, now: Instant, entry: &Entry) -> Served {
        self.read(now);
        self.in_service = self.in_service.saturating_sub(1);
        let time_ms = now.millis_since(entry.at);
        let in_service = (self.present_ms - entry.present_ms) / time_ms;
        Served {
            work_ms: self.given_ms - entry.given_ms,
            time_ms,
            at_entry: entry.in_service,
            in_service: if in_service.is_finite() { in_service } else { 1.0 },
        }
    }
}

/// How many cores there are, by how much requests in service slow each other down.
///
/// Requests are told apart by how many were there when they entered, which does not depend on how
/// long they take themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct CoresCheck {
    /// Of requests with little company, and of those with much.
    alone: Company,
    crowded: Company,
    is_doubted: bool,
}

/// What is known of requests with about as much company: sums that fade.
#[derive(Clone, Copy, Debug, Default)]
struct Company {
    weight: f64,
    in_service: f64,
    time: f64,
}

impl Company {
    /// Memory in requests: their spread leaves an error of some 7 %.
    const GAIN: f64 = 1.0 / 300.0;
    const ENOUGH: f64 = 100.0;

    fn add(&mut self, in_service: f64, time: f64) {
        let keep = 1.0 - Self::GAIN;
        self.weight = self.weight.mul_add(keep, 1.0);
        self.in_service = self.in_service.mul_add(keep, in_service);
        self.time = self.time.mul_add(keep, time);
    }

    /// Mean number in service, and mean time.
    fn means(&self) -> Option<(f64, f64)> {
        let is_enough = self.weight >= Self::ENOUGH && self.time > 0.0;
        is_enough.then(|| (self.in_service / self.weight, self.time / self.weight))
    }
}

impl CoresCheck {
    /// What was told is off by this factor.
    const DOUBTED: f64 = 1.6;
    /// Within this it is believed again, and requests that slow each other by no more do not.
    const BELIEVED: f64 = 1.3;

    /// A request took this time, relative to its content.
    pub(super) fn add(&mut self, told: f64, served: &Served, content: f64) {
        let (in_service, time) = (served.in_service, served.time_ms / content);
        if f64::from(served.at_entry) <= (told / 4.0).max(1.0) {
            self.alone.add(in_service, time);
        } else if f64::from(served.at_entry) >= (told / 2.0).max(2.0) {
            self.crowded.add(in_service, time);
        }
        let limit = if self.is_doubted { Self::BELIEVED } else { Self::DOUBTED };
        self.is_doubted = self.estimate().is_some_and(|(seen, slowed)| {
            seen > told * limit || seen < told / limit && slowed > Self::BELIEVED
        });
    }

    /// Cores there seem to be, at least where requests do not slow each other; and by how much they
    /// do.
    fn estimate(&self) -> Option<(f64, f64)> {
        let ((_, alone), (in_service, crowded)) = (self.alone.means()?, self.crowded.means()?);
        let slowed = crowded / alone;
        Some((in_service / slowed.max(1.0), slowed))
    }

    /// How many cores there seem to be, where so many as was told cannot be.
    pub(super) fn seen(&self) -> Option<f64> {
        self.estimate().filter(|_| self.is_doubted).map(|(seen, _)| seen)
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
        let served = clock.leave(at(40), &first); // four on two cores for 20 ms: half a core
        assert!((served.work_ms - 30.0).abs() < 1e-9, "{served:?}");
        // One and two for 10 ms each, four for 20 ms.
        assert!((served.in_service - 2.75).abs() < 1e-9, "{served:?}");
        assert_eq!(clock.in_service, 3);
    }

    #[test]
    fn time_that_runs_backwards_is_not_work() {
        let mut clock = ShareClock::new(1.0, Instant::from_millis(5));
        let entered = clock.enter(Instant::from_millis(10));
        let served = clock.leave(Instant::from_millis(7), &entered);
        assert_eq!((served.work_ms, served.in_service), (0.0, 1.0));
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
