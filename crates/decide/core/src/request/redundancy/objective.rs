//! Hedging toward an objective: the delay at which copies avoid most violations.
//!
//! **The model.** T is how long a request lasts, o the objective. With a copy after d, a request is
//! late when it and its copy are: P(T > o) · P(T' > o − d) if copies are independent. If a share s
//! of slowness is common to both, the second factor is s + (1 − s) · P(T > o − d). A share P(T > d)
//! of requests comes due; of those the budget allows all, or its own share of requests. An earlier
//! copy has more time left and so never avoids less, but leaves more often: what is minimised is
//! violations plus `worth_min` × copies. So no delay is chosen at which the next copies would avoid
//! less than that each, and none at all where copies together do. Without the price the answer
//! would nearly always be the quantile of the budget; most of those copies go to requests that
//! would have been in time. A delay at which more come due than the budget allows is chosen only
//! where nothing later is as good, above all where more are late than may have a copy: a copy that
//! leaves when the objective is nearly over helps nobody.
//!
//! **Signal**: latencies of the last one to two windows ([`super::survival`]), what became of
//! requests with and without copies ([`super::trial`]), utilisation ([`super::load`]). **Why whole
//! steps**: the objective in 256 parts puts d and o − d on one grid, so a choice is one walk over
//! 257 numbers without memory of its own; a step is finer than the recorder where it matters.
//! **When it misleads**: copies go to the best of the other replicas, which may be better than
//! any (then fewer are late than foretold) or worse. Times count from the sending of the first
//! copy: what a request waited for a sending rate before is not in T. Where the tail grows with
//! load, copies make it longer for all; the gate and the bucket bound that, the model does not
//! know it. Stumbles of whole replicas make many requests due at once: the bucket then refuses what
//! the model counted on (see `Scarcity`), and fewer are saved than foretold. **Cold start**: no
//! copy until 100 requests ended. **Cost**: everything but the recording is done sixteen times in a
//! window. **Source**: Zoolander (ICAC 2013), section 2, for
//! P(all are late) of duplicates; delays and a price for copies are ours, as the joint study,
//! section 1 (c_n), prices them. Budget and gate: joint study, section 4 (F6, F7).

use crate::distribution::RollingRecorder;
use crate::request::call::Kind;
use crate::request::redundancy::load::{Load, TICKS_PER_WINDOW, UTILISATION_MAX};
use crate::request::redundancy::survival::{STEPS, Survival, step_at};
use crate::request::redundancy::trial::Trial;
use crate::request::redundancy::{Budget, Lasted};
use crate::time::{Duration, Instant};

/// Requests that must have ended before the first choice.
const SAMPLES_MIN: u64 = 100;

/// What to hedge for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectiveConfig {
    /// Requests that last longer are violations.
    pub objective: Duration,
    /// Violations that a copy must avoid to be worth sending: 0.01, one for a hundred copies.
    pub worth_min: f64,
    /// The utilisation by first copies around which copies begin to hurt: 0.78.
    pub utilisation_max: f64,
}

impl ObjectiveConfig {
    /// This objective, and the defaults.
    pub const fn new(objective: Duration) -> Self {
        Self { objective, worth_min: 0.01, utilisation_max: UTILISATION_MAX }
    }
}

/// What a choice must respect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Copies as a share of requests, at most.
    pub budget_share: f64,
    /// Violations that a copy must avoid.
    pub worth_min: f64,
    /// The share of slowness that copies have in common with their first: 0 = independent.
    pub shared: f64,
    /// The first step at which a copy may leave.
    pub step_min: usize,
}

/// A delay, and what it is foretold to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The delay, in steps of the objective.
    pub step: usize,
    /// Copies as a share of requests.
    pub copies: f64,
    /// The share of requests that would be late without copies.
    pub late: f64,
    /// The share that is late with them.
    pub violations: f64,
    /// The chance that a copy is too late, were it independent of its first.
    pub copy_late: f64,
}

impl Plan {
    /// What copies after this many steps are foretold to do.
    pub fn at(survival: &Survival, step: usize, terms: &Terms) -> Self {
        let (late, copy_late) = (survival.late(), survival.beyond(STEPS - step));
        let due = survival.beyond(step);
        let copies = due.min(terms.budget_share);
        let granted = if due > 0.0 { copies / due } else { 1.0 };
        let avoided = granted * late * (1.0 - terms.shared) * (1.0 - copy_late);
        Self { step, copies, late, violations: late - avoided, copy_late }
    }

    /// Violations avoided for each copy.
    pub fn worth(&self) -> f64 {
        if self.copies > 0.0 { (self.late - self.violations) / self.copies } else { 0.0 }
    }
}

/// The delay with the fewest violations plus price of copies within the budget; the latest of
/// equals. `None` when no copies are better.
#[must_use]
pub fn choose(survival: &Survival, terms: &Terms) -> Option<Plan> {
    let mut best = None;
    let mut least = survival.late();
    for step in (terms.step_min..STEPS).rev() {
        let plan = Plan::at(survival, step, terms);
        let cost = plan.violations + terms.worth_min * plan.copies;
        if cost < least {
            (best, least) = (Some(plan), cost);
        }
    }
    best
}

/// Why a copy that was due did not leave, counted since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The load was too high.
    pub by_load: u64,
    /// Copies are as late as the requests they should save.
    pub as_futile: u64,
    /// To be compared with those that got one.
    pub for_comparison: u64,
}

impl Kept {
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            by_load: self.by_load + other.by_load,
            as_futile: self.as_futile + other.as_futile,
            for_comparison: self.for_comparison + other.for_comparison,
        }
    }
}

/// How badly copies are missed that the budget refused.
///
/// Requests come due in bursts, and a copy spent on one that would have been in time is missing
/// when a replica stumbles; the mean over a window knows nothing of that. So the price of a copy is
/// raised, towards a share of what the best copies are worth, while the bucket refuses, and lowered
/// more slowly while it does not: what economists call the shadow price of the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Scarcity {
    granted: u32,
    refused: u32,
    /// The share of the best copies' worth that every copy must have: 0 to [`Self::LEVEL_MAX`].
    level: f64,
}

impl Scarcity {
    const LEVEL_MAX: f64 = 0.5;
    /// Up when more than one in this many is refused.
    const REFUSED_ONE_IN: u32 = 20;
    const UP: f64 = 1.0 / 16.0;
    const DOWN: f64 = 1.0 / 128.0;

    #[inline]
    const fn note(&mut self, granted: bool) {
        if granted {
            self.granted += 1;
        } else {
            self.refused += 1;
        }
    }

    fn tick(&mut self) {
        let is_scarce = self.refused * Self::REFUSED_ONE_IN > self.granted + self.refused;
        let by = if is_scarce { Self::UP } else { -Self::DOWN };
        let level = (self.level + by).clamp(0.0, Self::LEVEL_MAX);
        *self = Self { level, ..Self::default() };
    }
}

/// Learns the delay for an objective.
#[derive(Debug)]
pub struct Aim {
    config: ObjectiveConfig,
    budget_share: f64,
    step_min: usize,
    period: Duration,
    next_tick: Instant,
    ended: RollingRecorder,
    given_up: RollingRecorder,
    plan: Option<Plan>,
    delay: Option<Duration>,
    trial: Trial,
    load: Load,
    scarcity: Scarcity,
    kept: Kept,
    /// A copy is worth sending only if it is independent of its first, which it seems not to be.
    is_doubtful: bool,
    /// Requests that were due, and late, less those of them that had a copy.
    alone: (i64, i64),
}

impl Aim {
    /// Nothing is learnt yet. `window` is how far back latencies count (above zero).
    ///
    /// # Panics
    /// When the window is zero.
    pub fn new(
        config: ObjectiveConfig,
        budget_share: f64,
        delay_min: Duration,
        window: Duration,
    ) -> Self {
        let recorder = || RollingRecorder::new(window, 1).expect("the window is above zero");
        let step_min = (0..STEPS).find(|&step| step_at(config.objective, step) >= delay_min);
        Self {
            budget_share,
            step_min: step_min.unwrap_or(STEPS),
            period: window / TICKS_PER_WINDOW,
            next_tick: Instant::ZERO,
            ended: recorder(),
            given_up: recorder(),
            plan: None,
            delay: None,
            trial: Trial::default(),
            load: Load::new(config.utilisation_max),
            scarcity: Scarcity::default(),
            kept: Kept::default(),
            is_doubtful: false,
            alone: (0, 0),
            config,
        }
    }

    /// Takes over what another has learnt: all of it where the question is the same, else what
    /// has an answer to any question. `same_window`: both look back as far.
    pub(super) fn inherit(&mut self, before: &mut Self, same_window: bool) {
        self.kept = before.kept;
        if !same_window {
            return;
        }
        if (self.config, self.step_min) == (before.config, before.step_min) {
            let budget_share = self.budget_share;
            core::mem::swap(self, before);
            self.budget_share = budget_share;
            return;
        }
        core::mem::swap(&mut self.ended, &mut before.ended);
        core::mem::swap(&mut self.given_up, &mut before.given_up);
        if self.config.utilisation_max == before.config.utilisation_max {
            core::mem::swap(&mut self.load, &mut before.load);
        }
    }

    /// The delay in force.
    #[inline]
    pub const fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// What the delay in force is foretold to do.
    #[must_use]
    pub const fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// What is known of the load.
    pub const fn load(&self) -> &Load {
        &self.load
    }

    /// The share of slowness that copies have in common with their first, by its lower bound.
    pub const fn shared(&self) -> f64 {
        if self.trial.is_futile() { 1.0 } else { self.trial.shared() }
    }

    /// Whether copies are so late that only a few leave, to find out when that ends.
    pub const fn is_futile(&self) -> bool {
        self.trial.is_futile() || self.is_doubtful
    }

    /// Copies that were kept back.
    pub const fn kept(&self) -> Kept {
        self.kept
    }

    /// A copy ended.
    #[inline]
    pub fn note(&mut self, now: Instant, copy: &Lasted<'_>) {
        let objective = self.config.objective;
        self.load.note(copy, self.delay.unwrap_or(objective));
        match copy.kind {
            Kind::First => {
                let of = if copy.is_answered { &mut self.ended } else { &mut self.given_up };
                of.record(now, copy.latency);
                if self.delay.is_some_and(|delay| copy.latency >= delay) {
                    self.alone.0 += 1;
                    self.alone.1 += i64::from(copy.latency > objective);
                }
            }
            Kind::Hedge => {
                // Whoever won, the call ended with this copy.
                let late = copy.behind + copy.latency > objective;
                self.trial.note_hedged(late);
                self.alone.0 -= 1;
                self.alone.1 -= i64::from(late);
            }
            Kind::Retry | Kind::Moved | Kind::Mirror => {}
        }
        if now >= self.next_tick {
            self.tick(now);
        }
    }

    /// A copy is due: may it leave?
    #[inline]
    #[must_use]
    pub fn permits(&mut self, budget: &mut Budget) -> bool {
        if self.load.is_closed() {
            self.kept.by_load += 1;
            return false;
        }
        let withheld = self.trial.withholds(self.is_doubtful);
        if withheld && self.is_futile() {
            self.kept.as_futile += 1;
        } else if withheld {
            self.kept.for_comparison += 1;
        }
        if withheld {
            return false;
        }
        let granted = budget.withdraw();
        self.scarcity.note(granted);
        granted
    }

    #[cold]
    fn tick(&mut self, now: Instant) {
        self.next_tick = now + self.period;
        self.load.tick();
        self.scarcity.tick();
        if let (due @ 1.., late) = self.alone {
            let late = late.clamp(0, due);
            self.trial.note_alone(due.unsigned_abs(), late.unsigned_abs());
            self.alone = (0, 0);
        }
        if let Some(plan) = self.plan {
            self.trial.judge(plan.copy_late);
        }
        self.ended.rotate(now);
        self.given_up.rotate(now);
        let seen = self.ended.count() + self.given_up.count();
        self.plan = if seen < SAMPLES_MIN { None } else { self.choose() };
        self.delay = self.plan.map(|plan| step_at(self.config.objective, plan.step));
    }

    fn choose(&mut self) -> Option<Plan> {
        let survival = Survival::estimate(self.config.objective, &self.ended, &self.given_up);
        let terms = Terms {
            budget_share: self.budget_share,
            worth_min: self.config.worth_min,
            shared: self.trial.shared(),
            step_min: self.step_min,
        };
        let plan = choose(&survival, &terms);
        self.is_doubtful = false;
        if let Some(plan) = plan {
            let price = self.scarcity.level * plan.worth();
            let dearer = Terms { worth_min: terms.worth_min.max(price), ..terms };
            return choose(&survival, &dearer).or(Some(plan));
        }
        if terms.shared == 0.0 {
            return None;
        }
        // Without probes nobody would notice that copies have become independent again.
        let plan = choose(&survival, &Terms { shared: 0.0, ..terms });
        self.is_doubtful = plan.is_some();
        plan
    }
}

#[cfg(test)]
mod tests;
