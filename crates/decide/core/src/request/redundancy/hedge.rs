//! Hedging: a second copy to another replica when the first takes longer than most.
//!
//! Two rules say after which delay: a quantile, described here, or an objective
//! ([`super::objective`]). What follows them is one: the gate on late requests, the gate on load
//! ([`super::load`]: where copies cost more than they save, which no plan need say) and the bucket.
//!
//! **Signal**: latency of first copies over the last periods, those that were given up included
//! with the time they had taken (leaving them out would teach that answers are faster than they
//! are). **Why a quantile**: the delay then follows the service instead of a constant somebody set
//! once; at quantile q about 1 − q of requests come to the delay. **When it misleads**: when
//! everything slows down, a delay learnt in good times is exceeded by most requests and copies
//! would double the load at the worst moment. The gate sees that share and stops hedging until the
//! quantile has caught up. A quantile alone is no budget (joint study, finding 7), so a token
//! bucket bounds the copies always. **Cold start**: no copy until enough latencies were seen.
//! **Source**: Dean and Barroso, "The Tail at Scale", CACM 2013; budget and gate from the joint
//! study, sections 0.7 and 4 (F6, F7).

use core::any::Any;

use crate::distribution::RollingRecorder;
use crate::request::call::Kind;
use crate::request::redundancy::load::{Load, TICKS_PER_WINDOW, UTILISATION_MAX};
use crate::request::redundancy::objective::{Aim, Kept, ObjectiveConfig, Plan};
use crate::request::redundancy::{Budget, Lasted, Redundancy};
use crate::time::{Duration, Instant};
use crate::units::Probability;

/// When and how often to hedge.
#[derive(Clone, Debug, PartialEq)]
pub struct HedgeConfig {
    /// The quantile of latency after which a copy leaves: 0.95. Not asked where there is an
    /// objective.
    pub quantile: Probability,
    /// What to hedge for, in place of the quantile: nothing.
    pub objective: Option<ObjectiveConfig>,
    /// Copies as a share of requests: 0.05.
    pub budget_share: f64,
    /// Copies in one burst: 10.
    pub burst_max: f64,
    /// Copies beyond the first that one request may have: 1.
    pub copies_max: usize,
    /// No hedging while more than this share of requests would hedge: 0.5.
    pub late_share_max: f64,
    /// By the quantile, the utilisation by first copies around which copies begin to hurt: 0.78.
    /// At 1 there is no such gate. An objective has its own.
    pub utilisation_max: f64,
    /// The shortest delay, whatever the quantile says: 0.
    pub delay_min: Duration,
    /// How far back latencies count: 10 s.
    pub window: Duration,
}

impl Default for HedgeConfig {
    fn default() -> Self {
        Self {
            quantile: Probability::clamped(0.95),
            objective: None,
            budget_share: 0.05,
            burst_max: 10.0,
            copies_max: 1,
            late_share_max: 0.5,
            utilisation_max: UTILISATION_MAX,
            delay_min: Duration::ZERO,
            window: Duration::from_secs(10),
        }
    }
}

/// What says after which delay a copy leaves.
#[derive(Debug)]
enum Rule {
    Quantile(Box<Quantile>),
    Objective(Box<Aim>),
}

/// The rule of a quantile.
#[derive(Debug)]
struct Quantile {
    latency: RollingRecorder,
    load: Load,
    period: Duration,
    next_tick: Instant,
    kept: Kept,
}

impl Quantile {
    fn new(window: Duration, utilisation_max: f64) -> Self {
        let latency = RollingRecorder::new(window, Hedge::SAMPLES_MIN);
        Self {
            latency: latency.expect("the window is above zero"),
            load: Load::new(utilisation_max),
            period: window / TICKS_PER_WINDOW,
            next_tick: Instant::ZERO,
            kept: Kept::default(),
        }
    }

    /// A copy ended; the latency at the quantile by now, if it was a first one.
    fn note(
        &mut self,
        now: Instant,
        copy: &Lasted<'_>,
        (quantile, delay): (Probability, Option<Duration>),
    ) -> Option<Duration> {
        self.load.note(copy, delay.unwrap_or(copy.latency));
        if now >= self.next_tick {
            self.next_tick = now + self.period;
            self.load.tick();
        }
        if copy.kind != Kind::First {
            return delay;
        }
        self.latency.record(now, copy.latency);
        self.latency.quantile_cached(now, quantile)
    }

    fn permits(&mut self, budget: &mut Budget) -> bool {
        if self.load.is_closed() {
            self.kept.by_load += 1;
            return false;
        }
        budget.withdraw()
    }
}

/// How a hedge stands, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HedgeStats {
    /// The delay in force, once it is learnt and worth it.
    pub delay: Option<Duration>,
    /// Whether copies are kept back because of load, or because most requests are late.
    pub is_gated: bool,
    /// Whether copies are kept back because they are as late as the requests they should save.
    pub is_futile: bool,
    /// Utilisation by first copies, or the share of them that wait for others; `None` while it is
    /// not known.
    pub utilisation: Option<f64>,
    /// Violations that a copy is foretold to avoid: 0 to 1; `None` under a quantile.
    pub worth: Option<f64>,
    /// The share of slowness that copies certainly have in common with their first: 0 to 1.
    pub shared: f64,
    /// Copies that were due and kept back, by reason.
    pub kept: Kept,
}

impl HedgeStats {
    /// Both together: the longest delay, the highest load, the least worth; what either does.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let all = |a: Option<f64>, b: Option<f64>, of: fn(f64, f64) -> f64| {
            a.into_iter().chain(b).reduce(of)
        };
        Self {
            delay: self.delay.max(other.delay),
            is_gated: self.is_gated || other.is_gated,
            is_futile: self.is_futile || other.is_futile,
            utilisation: all(self.utilisation, other.utilisation, f64::max),
            worth: all(self.worth, other.worth, f64::min),
            shared: self.shared.max(other.shared),
            kept: self.kept.plus(other.kept),
        }
    }
}

/// Hedges after a learnt delay, within a budget and a gate.
#[derive(Debug)]
pub struct Hedge {
    config: HedgeConfig,
    rule: Rule,
    budget: Budget,
    delay: Option<Duration>,
    /// Share of first copies that outlived the delay, over about the last [`Self::GATE_MEMORY`].
    late_share: f64,
}

impl Hedge {
    /// Latencies needed before the first hedge: below it a quantile is a guess.
    const SAMPLES_MIN: u64 = 100;
    /// A quantile of less time than this would be noise at any rate.
    const WINDOW_MIN: Duration = Duration::from_millis(10);
    /// The gate must react faster than the quantile: it remembers about this many requests.
    const GATE_MEMORY: f64 = 64.0;

    /// A hedge that has learnt nothing yet.
    pub fn new(config: HedgeConfig) -> Self {
        let window = config.window.max(Self::WINDOW_MIN);
        let rule = match config.objective {
            Some(objective) => {
                let (share, delay_min) = (config.budget_share, config.delay_min);
                Rule::Objective(Box::new(Aim::new(objective, share, delay_min, window)))
            }
            None => Rule::Quantile(Box::new(Quantile::new(window, config.utilisation_max))),
        };
        Self {
            rule,
            budget: Budget::share(config.budget_share, config.burst_max),
            delay: None,
            late_share: 0.0,
            config,
        }
    }

    /// The delay in force, once it is learnt.
    pub const fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// True while so many requests are late that copies would only add load.
    pub fn is_gated(&self) -> bool {
        self.late_share > self.config.late_share_max
    }
}

impl Redundancy for Hedge {
    fn on_open(&mut self, now: Instant) {
        self.budget.deposit(now);
    }

    fn on_end(&mut self, now: Instant, copy: &Lasted<'_>) {
        if copy.kind == Kind::First
            && let Some(delay) = self.delay
        {
            let late = if copy.latency > delay { 1.0 } else { 0.0 };
            self.late_share += (late - self.late_share) / Self::GATE_MEMORY;
        }
        match &mut self.rule {
            Rule::Quantile(rule) => {
                let learnt = rule.note(now, copy, (self.config.quantile, self.delay));
                self.delay = learnt.map(|delay| delay.max(self.config.delay_min));
            }
            Rule::Objective(aim) => {
                aim.note(now, copy);
                self.delay = aim.delay();
            }
        }
    }

    fn copy_due(&mut self, copies_sent: usize) -> Option<Duration> {
        if copies_sent > self.config.copies_max { None } else { self.delay }
    }

    fn permits_copy(&mut self, _now: Instant) -> bool {
        if self.is_gated() {
            return false;
        }
        match &mut self.rule {
            Rule::Quantile(rule) => rule.permits(&mut self.budget),
            Rule::Objective(aim) => aim.permits(&mut self.budget),
        }
    }

    fn permits_pair(&mut self, _now: Instant) -> bool {
        let load = match &self.rule {
            Rule::Quantile(rule) => &rule.load,
            Rule::Objective(aim) => aim.load(),
        };
        !self.is_gated() && !load.is_closed() && self.budget.withdraw()
    }

    fn inherit(&mut self, before: &mut dyn Redundancy) {
        let before: &mut dyn Any = before;
        let Some(before) = before.downcast_mut::<Self>() else { return };
        self.budget.inherit(&before.budget);
        let same_window = self.config.window == before.config.window;
        match (&mut self.rule, &mut before.rule) {
            (Rule::Quantile(mine), Rule::Quantile(theirs)) if same_window => {
                core::mem::swap(&mut mine.latency, &mut theirs.latency);
                mine.kept = theirs.kept;
                if self.config.utilisation_max == before.config.utilisation_max {
                    core::mem::swap(&mut mine.load, &mut theirs.load);
                }
                // Until the next answer says what the quantile is now.
                self.delay = before.delay.map(|delay| delay.max(self.config.delay_min));
                self.late_share = before.late_share;
            }
            (Rule::Objective(mine), Rule::Objective(theirs)) => {
                mine.inherit(theirs, same_window);
                self.delay = mine.delay();
            }
            (Rule::Quantile(_) | Rule::Objective(_), _) => {}
        }
    }

    fn quantile(&self) -> Option<f64> {
        matches!(self.rule, Rule::Quantile(_)).then(|| self.config.quantile.value())
    }

    fn stats(&self) -> Option<HedgeStats> {
        let stats =
            HedgeStats { delay: self.delay, is_gated: self.is_gated(), ..HedgeStats::default() };
        let aim = match &self.rule {
            Rule::Objective(aim) => aim,
            Rule::Quantile(rule) => {
                return Some(HedgeStats {
                    is_gated: stats.is_gated || rule.load.is_closed(),
                    utilisation: rule.load.utilisation(),
                    kept: rule.kept,
                    ..stats
                });
            }
        };
        Some(HedgeStats {
            is_gated: stats.is_gated || aim.load().is_closed(),
            is_futile: aim.is_futile(),
            utilisation: aim.load().utilisation(),
            worth: Some(aim.plan().map_or(0.0, Plan::worth)),
            shared: aim.shared(),
            kept: aim.kept(),
            ..stats
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(latency_ms: u64) -> Lasted<'static> {
        Lasted {
            kind: Kind::First,
            latency: Duration::from_millis(latency_ms),
            is_answered: true,
            behind: Duration::ZERO,
            in_flight: 1,
            report: None,
        }
    }

    fn taught(latency_ms: impl Fn(u64) -> u64) -> Hedge {
        let mut hedge = Hedge::new(HedgeConfig::default());
        for n in 0..1_000 {
            hedge.on_open(Instant::from_millis(n * 10));
            hedge.on_end(Instant::from_millis(n * 10), &first(latency_ms(n)));
        }
        hedge
    }

    #[test]
    fn the_delay_is_the_quantile_and_copies_are_bounded() {
        let mut hedge = taught(|n| if n % 100 < 90 { 5 } else { 50 });
        let delay = hedge.copy_due(1).expect("learnt");
        assert!((49..=51).contains(&delay.as_millis()), "{delay:?}");
        assert_eq!(hedge.copy_due(2), None);
    }

    #[test]
    fn nothing_is_hedged_before_enough_was_learnt() {
        let mut hedge = Hedge::new(HedgeConfig::default());
        hedge.on_end(Instant::ZERO, &first(1));
        assert_eq!(hedge.copy_due(1), None);
    }

    #[test]
    fn the_gate_closes_when_most_requests_are_late_and_opens_again() {
        let mut hedge = taught(|n| 5 + n % 10);
        let late = |hedge: &mut Hedge, at_ms: u64, latency_ms: u64, n: u64| {
            for i in 0..n {
                let now = Instant::from_millis(at_ms + i / 20);
                hedge.on_end(now, &first(latency_ms));
            }
        };
        late(&mut hedge, 10_100, 500, 100);
        assert!(hedge.is_gated() && !hedge.permits_copy(Instant::from_millis(10_200)));
        late(&mut hedge, 10_300, 6, 200);
        assert!(!hedge.is_gated() && hedge.permits_copy(Instant::from_millis(10_400)));
    }

    #[test]
    fn of_several_the_worst_is_told_and_counts_are_added() {
        let kept = |by_load| Kept { by_load, ..Kept::default() };
        let one = HedgeStats {
            delay: Some(Duration::from_millis(5)),
            utilisation: Some(0.4),
            worth: Some(0.2),
            kept: kept(3),
            ..HedgeStats::default()
        };
        let other = HedgeStats {
            is_futile: true,
            worth: Some(0.1),
            kept: kept(4),
            ..HedgeStats::default()
        };
        let both = one.merged(other);
        assert!(both.is_futile && both.kept == kept(7), "{both:?}");
        assert_eq!((both.delay, both.utilisation), (one.delay, one.utilisation));
        assert_eq!((both.worth, both.is_gated), (Some(0.1), false));
    }

    #[test]
    fn what_was_learnt_survives_a_change_of_the_budget_and_no_burst_is_given_twice() {
        let mut before = taught(|n| 5 + n % 10);
        let delay = before.delay();
        while before.permits_copy(Instant::ZERO) {}
        let mut after = Hedge::new(HedgeConfig { budget_share: 0.1, ..HedgeConfig::default() });
        after.inherit(&mut before);
        assert!(delay.is_some() && after.delay() == delay);
        assert!(!after.permits_copy(Instant::ZERO), "the bucket is as empty as it was");
        let granted = (0..1_000).filter(|_| {
            after.on_open(Instant::ZERO);
            after.permits_copy(Instant::ZERO)
        });
        assert!((99..=101).contains(&granted.count()), "a tenth from now on");
    }

    #[test]
    fn an_objective_keeps_its_latencies_and_counts_when_it_changes() {
        let of = |ms| HedgeConfig {
            objective: Some(ObjectiveConfig::new(Duration::from_millis(ms))),
            ..HedgeConfig::default()
        };
        let mut before = Hedge::new(of(20));
        for n in 0..4_000 {
            before.on_open(Instant::from_millis(n * 10));
            let latency_ms = if n % 50 == 0 { 60 } else { 5 };
            before.on_end(Instant::from_millis(n * 10), &first(latency_ms));
        }
        assert!(before.delay().is_some());
        let mut same = Hedge::new(HedgeConfig { burst_max: 20.0, ..of(20) });
        let delay = before.delay();
        same.inherit(&mut before);
        assert_eq!(same.delay(), delay);
        let mut other = Hedge::new(of(30));
        other.inherit(&mut same);
        assert_eq!(other.delay(), None, "another objective is another question");
        other.on_end(Instant::from_millis(40_001), &first(5));
        assert!(other.delay().is_some(), "which what is known answers at once");
    }

    #[test]
    fn copies_stay_within_the_budget() {
        let mut hedge = taught(|n| 5 + n % 10);
        let granted = (0..10_000).filter(|_| {
            hedge.on_open(Instant::ZERO);
            hedge.permits_copy(Instant::ZERO)
        });
        assert!((500..=510).contains(&granted.count()));
    }
}
