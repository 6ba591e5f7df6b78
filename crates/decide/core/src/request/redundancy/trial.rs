//! Whether copies help: a small experiment that never ends.
//!
//! **Signal**: of the requests that were due for a copy, how many of those that got one missed the
//! objective, and how many of those that did not. Some get none to be compared with: one in
//! [`KEPT_NORMALLY`], all that the budget refuses, and more when there is reason for doubt.
//! **Why this statistic**: the model says that the copy fails as often as any request lasts longer
//! than what is left of the objective (a share q), whatever befell the first. When both are slow
//! for the same reason (a stall of what all replicas share, a request that is slow everywhere) it
//! fails as often as the first. The ratio of the two shares of misses says where between q and 1
//! the truth lies; its logarithm is nearly normal, so a bound with confidence is a few operations.
//! Reading it as a mixture, ratio = shared + (1 − shared)·q, gives the share of slowness that is
//! shared. The *lower* bound of it discounts what copies are worth: they have the benefit of the
//! doubt, so a hedge that has seen little acts as if replicas stumble independently.
//! **The verdict**: copies are futile once the lower bound is above [`SHARED_MAX`]; from then on
//! one in [`PROBED`] of those due leaves, to find out when that ends (the upper bound is below it).
//! Both verdicts forget what led to them. **When it misleads**: requests that may not be sent twice
//! count among those without a copy; if they are slow by nature copies look better than they are.
//! The bounds are looked at again and again, which makes a wrong verdict likelier than their level
//! says: the level is strict for that reason. At low rates a verdict takes minutes. Copies are
//! compared with requests of the same moment, so the load that they add is not seen: that is
//! [`super::load`]'s part. **Cold start**: no verdict. **Source**: the ratio and its error, Katz
//! et al., "Obtaining Confidence Intervals for the Risk Ratio in Cohort Studies", Biometrics 34
//! (1978), method C, with half a case added to each count; the question: Zoolander (ICAC 2013),
//! section 2, which shows independence for one store (Fig. 2b) and builds on it.

/// One in so many requests that are due for a copy is kept without one for comparison.
pub const KEPT_NORMALLY: u32 = 64;
/// The same while copies are later than independence allows even if every first copy were late.
pub const KEPT_IN_DOUBT: u32 = 4;
/// One in so many gets a copy although copies are futile.
pub const PROBED: u32 = 64;
/// Copies are futile when more than this share of slowness is shared.
pub const SHARED_MAX: f64 = 0.5;

/// With fewer requests of either kind nothing is said.
const SEEN_MIN: f64 = 20.0;
/// Quantiles of the normal distribution for a one-sided 99 % and 95 %. To stop is to give up what
/// copies may be worth, to begin again costs no more than the budget: so this takes less.
const CONFIDENCE_TO_STOP: f64 = 2.326;
const CONFIDENCE_TO_RESUME: f64 = 1.645;
/// What is remembered of either kind, and of copies while they are futile: beyond so many requests,
/// or so many late ones, both numbers are halved. Few probes leave, and where few requests are late
/// it takes many to tell.
const REMEMBERED_SENDING: Arm = Arm { requests: 256.0, late: 64.0 };
const REMEMBERED_PROBING: Arm = Arm { requests: 2_048.0, late: 8.0 };

/// Requests of one kind, and how many of them missed the objective.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Arm {
    requests: f64,
    late: f64,
}

impl Arm {
    fn add(&mut self, requests: f64, late: f64, most: Self) {
        self.requests += requests;
        self.late = (self.late + late).min(self.requests);
        while self.requests > most.requests || self.late > most.late {
            (self.requests, self.late) = (self.requests / 2.0, self.late / 2.0);
        }
    }

    /// The share that was late; half a case keeps it from being nothing.
    fn share(self) -> f64 {
        (self.late + 0.5) / (self.requests + 1.0)
    }

    /// The variance of the logarithm of the share.
    fn variance(self) -> f64 {
        1.0 / (self.late + 0.5) - 1.0 / (self.requests + 1.0)
    }
}

/// The experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    hedged: Arm,
    alone: Arm,
    /// Requests that came due since one was treated otherwise.
    due: u32,
    is_futile: bool,
    is_in_doubt: bool,
    shared: f64,
}

impl Trial {
    /// A request that got a copy ended; `late` when it missed the objective.
    #[inline]
    pub fn note_hedged(&mut self, late: bool) {
        let most = if self.is_futile { REMEMBERED_PROBING } else { REMEMBERED_SENDING };
        self.hedged.add(1.0, f64::from(u8::from(late)), most);
    }

    /// So many requests that were due and got no copy ended, so many of them late.
    pub fn note_alone(&mut self, requests: u64, late: u64) {
        self.alone.add(requests as f64, late as f64, REMEMBERED_SENDING);
    }

    /// A request is due for a copy: shall it get none, for the sake of the experiment? `only_probe`
    /// says that copies do not pay for another reason than the verdict.
    #[inline]
    #[must_use]
    pub const fn withholds(&mut self, only_probe: bool) -> bool {
        self.due += 1;
        let probes = self.is_futile || only_probe;
        let every = match (probes, self.is_in_doubt) {
            (true, _) => PROBED,
            (false, true) => KEPT_IN_DOUBT,
            (false, false) => KEPT_NORMALLY,
        };
        let is_turn = self.due >= every;
        if is_turn {
            self.due = 0;
        }
        is_turn != probes
    }

    /// Weighs what was seen. `copy_late` is q: the chance that a copy is too late, were it
    /// independent of its first. Once in a while, not for each request.
    pub fn judge(&mut self, copy_late: f64) {
        let q = copy_late.clamp(0.0, 1.0);
        if q == 1.0 || self.hedged.requests < SEEN_MIN {
            return; // no copy could be in time, whatever it has in common with its first
        }
        let margin = CONFIDENCE_TO_STOP * self.hedged.variance().sqrt();
        self.is_in_doubt = self.hedged.share() * (-margin).exp() > q;
        if self.alone.requests < SEEN_MIN {
            return;
        }
        let futile_from = q + (1.0 - q) * SHARED_MAX;
        let ratio = self.hedged.share() / self.alone.share();
        let deviation = (self.hedged.variance() + self.alone.variance()).sqrt();
        let least = ratio * (-CONFIDENCE_TO_STOP * deviation).exp();
        let most = ratio * (CONFIDENCE_TO_RESUME * deviation).exp();
        self.shared = ((least - q) / (1.0 - q)).clamp(0.0, 1.0);
        let turns = if self.is_futile { most < futile_from } else { least > futile_from };
        if turns {
            *self = Self { is_futile: !self.is_futile, ..Self::default() };
        }
    }

    /// Whether copies are as late as the requests they should save.
    pub const fn is_futile(&self) -> bool {
        self.is_futile
    }

    /// The share of slowness that a request's copies certainly have in common: 0 to 1.
    pub const fn shared(&self) -> f64 {
        self.shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Requests that are due: late without a copy with chance 0.4; the copy is late with chance q,
    /// or, with chance `shared`, exactly when the first is.
    fn play(trial: &mut Trial, rng: &mut Rng, shared: f64, q: f64, due: usize) -> (usize, usize) {
        let (mut copies, mut ticks_futile) = (0, 0);
        for n in 0..due {
            let first_late = rng.unit() < 0.4;
            let copy_late = rng.unit() < shared || rng.unit() < q;
            if trial.withholds(false) {
                trial.note_alone(1, u64::from(first_late));
            } else {
                copies += 1;
                trial.note_hedged(first_late && copy_late);
            }
            if n % 20 == 0 {
                trial.judge(q);
                ticks_futile += usize::from(trial.is_futile());
            }
        }
        (copies, ticks_futile)
    }

    #[test]
    fn independent_copies_are_hardly_ever_judged_futile() {
        let (mut futile, mut copies) = (0, 0);
        for seed in 0..50 {
            let (sent, ticks) =
                play(&mut Trial::default(), &mut Rng::seeded(seed), 0.0, 0.05, 4_000);
            (futile, copies) = (futile + ticks, copies + sent);
        }
        assert!(futile <= 100, "{futile} of 10 000 looks, at a level of 1 %");
        let share = copies as f64 / 200_000.0;
        assert!((share - 63.0 / 64.0).abs() < 0.005, "{share}");
    }

    #[test]
    fn shared_slowness_is_found_and_its_end_too() {
        for seed in 0..20 {
            let (mut trial, mut rng) = (Trial::default(), Rng::seeded(seed));
            play(&mut trial, &mut rng, 0.0, 0.05, 2_000);
            assert!(!trial.is_futile());
            play(&mut trial, &mut rng, 1.0, 0.05, 1_500);
            assert!(trial.is_futile(), "seed {seed}: {trial:?}");
            let (probes, _) = play(&mut trial, &mut rng, 1.0, 0.05, 6_400);
            assert!(probes <= 110, "seed {seed}: {probes} of 6 400 although futile");
            play(&mut trial, &mut rng, 0.0, 0.05, 8_000);
            assert!(!trial.is_futile(), "seed {seed}: {trial:?}");
        }
    }

    #[test]
    fn the_share_that_is_shared_is_never_overstated_by_much() {
        let mut above = 0;
        for seed in 0..100 {
            let mut trial = Trial::default();
            play(&mut trial, &mut Rng::seeded(seed), 0.3, 0.05, 1_000);
            above += usize::from(trial.shared() > 0.3);
        }
        assert!(above <= 5, "{above} of 100 lower bounds at 99 % are above the truth");
    }

    #[test]
    fn nothing_seen_is_no_verdict() {
        let mut trial = Trial::default();
        trial.judge(0.1);
        assert!(!trial.is_futile() && trial.shared() == 0.0);
        trial.judge(1.0);
        assert!(!trial.is_futile() && trial.shared() == 0.0);
    }
}
