//! Hedging: a second copy to another replica when the first takes longer than most.
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

use crate::distribution::RollingRecorder;
use crate::request::redundancy::{Budget, Redundancy};
use crate::time::{Duration, Instant};
use crate::units::Probability;

/// When and how often to hedge.
#[derive(Clone, Debug, PartialEq)]
pub struct HedgeConfig {
    /// The quantile of latency after which a copy leaves: 0.95.
    pub quantile: Probability,
    /// Copies as a share of requests: 0.05.
    pub budget_share: f64,
    /// Copies in one burst: 10.
    pub burst_max: f64,
    /// Copies beyond the first that one request may have: 1.
    pub copies_max: usize,
    /// No hedging while more than this share of requests would hedge: 0.5.
    pub late_share_max: f64,
    /// The shortest delay, whatever the quantile says: 0.
    pub delay_min: Duration,
    /// How far back latencies count: 10 s.
    pub window: Duration,
}

impl Default for HedgeConfig {
    fn default() -> Self {
        Self {
            quantile: Probability::clamped(0.95),
            budget_share: 0.05,
            burst_max: 10.0,
            copies_max: 1,
            late_share_max: 0.5,
            delay_min: Duration::ZERO,
            window: Duration::from_secs(10),
        }
    }
}

/// Hedges after a learnt quantile, within a budget and a gate.
#[derive(Debug)]
pub struct Hedge {
    config: HedgeConfig,
    latency: RollingRecorder,
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
    #[must_use]
    pub fn new(config: HedgeConfig) -> Self {
        let window = config.window.max(Self::WINDOW_MIN);
        let latency = RollingRecorder::new(window, Self::SAMPLES_MIN);
        Self {
            latency: latency.expect("the window is above zero"),
            budget: Budget::share(config.budget_share, config.burst_max),
            delay: None,
            late_share: 0.0,
            config,
        }
    }

    /// The delay in force, once it is learnt.
    #[must_use]
    pub const fn delay(&self) -> Option<Duration> {
        self.delay
    }

    /// True while so many requests are late that copies would only add load.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        self.late_share > self.config.late_share_max
    }
}

impl Redundancy for Hedge {
    fn on_open(&mut self, _now: Instant) {
        self.budget.deposit();
    }

    fn on_latency(&mut self, now: Instant, latency: Duration) {
        if let Some(delay) = self.delay {
            let late = if latency > delay { 1.0 } else { 0.0 };
            self.late_share += (late - self.late_share) / Self::GATE_MEMORY;
        }
        self.latency.record(now, latency);
        let quantile = self.config.quantile;
        let learnt = self.latency.quantile_cached(now, quantile);
        self.delay = learnt.map(|delay| delay.max(self.config.delay_min));
    }

    fn copy_due(&mut self, copies_sent: usize) -> Option<Duration> {
        if copies_sent > self.config.copies_max { None } else { self.delay }
    }

    fn permits_copy(&mut self, _now: Instant) -> bool {
        !self.is_gated() && self.budget.withdraw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taught(latency_ms: impl Fn(u64) -> u64) -> Hedge {
        let mut hedge = Hedge::new(HedgeConfig::default());
        for n in 0..1_000 {
            hedge.on_open(Instant::from_millis(n * 10));
            hedge.on_latency(Instant::from_millis(n * 10), Duration::from_millis(latency_ms(n)));
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
        hedge.on_latency(Instant::ZERO, Duration::from_millis(1));
        assert_eq!(hedge.copy_due(1), None);
    }

    #[test]
    fn the_gate_closes_when_most_requests_are_late_and_opens_again() {
        let mut hedge = taught(|n| 5 + n % 10);
        let late = |hedge: &mut Hedge, at_ms: u64, latency_ms: u64, n: u64| {
            for i in 0..n {
                let now = Instant::from_millis(at_ms + i / 20);
                hedge.on_latency(now, Duration::from_millis(latency_ms));
            }
        };
        late(&mut hedge, 10_100, 500, 100);
        assert!(hedge.is_gated() && !hedge.permits_copy(Instant::from_millis(10_200)));
        late(&mut hedge, 10_300, 6, 200);
        assert!(!hedge.is_gated() && hedge.permits_copy(Instant::from_millis(10_400)));
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
