//! The feed-forward law: the dimmer that makes the work of the next moment fit the cores.
//!
//! **Signal**: arrivals, the backlog, and what full and lean requests cost. With arrivals A per
//! second, full work y, lean work n, m cores and a backlog of B seconds,
//!
//! ```text
//! u = min(1.1, 1 + (tolerated − B) / setpoint)
//! θ = clip( [ m·u / (A·y) − n/y ] / (1 − n/y), 0, 1 )
//! ```
//!
//! is the largest share of optional content at which the backlog returns to what is tolerated
//! within one setpoint. **Why**: a percentile tells of overload after the harm, and an integrator
//! stays low after relief; arrivals tell at once, both ways. **Source**: joint study, section 5,
//! with one change. There u is 0.85 less the backlog; but the load at which a percentile meets its
//! setpoint depends on the spread of the work and is not known, and 0.85 gives away a tenth of the
//! optional content when the setpoint is long. So the *backlog* is regulated: a little more than
//! the cores can do is admitted until it stands where it is tolerated. **The tolerated backlog**
//! begins at a quarter of the setpoint and is trimmed slowly, by how many are late, while the
//! replica dims (the authors' own later, cascaded controller trims a queue length so). That is no
//! integrator of θ: when arrivals fall θ rises in the same step. **When it misleads**: with heavy
//! tails the means y and n lag behind a replica that slows down; the backlog says so first. And a
//! balancer that looks at queues alone takes a weak replica, kept quick by dimming, for a strong
//! one: beside this law use one that looks at dimmers (`pibh`).

use crate::time::Duration;
use crate::units::Dimmer;

/// State of the law: the backlog it tolerates.
#[derive(Clone, Debug)]
pub(super) struct FeedForward {
    /// In setpoints.
    tolerated: f64,
    setpoint_s: f64,
}

/// What a control step goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Cores it would take to serve every request full.
    pub(super) full_cores: f64,
    /// Cores there are.
    pub(super) cores: f64,
    /// Lean over full work.
    pub(super) lean_ratio: f64,
    /// Seconds of work that waits, per core.
    pub(super) backlog_s: f64,
}

/// Utilisation admitted at most: a backlog of nothing may grow to what is tolerated, but a burst
/// that is over before the next step must not be taken in whole.
const UTILISATION_MAX: f64 = 1.1;
/// Tolerated backlog at the start, in setpoints.
const TOLERATED_START: f64 = 0.25;
/// Below, the percentile is not the backlog's doing; above, it would have said so.
const TOLERATED: core::ops::RangeInclusive<f64> = 0.05..=2.0;
/// Change of it per second, in setpoints, while nobody is late.
const TRIM_PER_S: f64 = 0.02;

impl FeedForward {
    pub(super) fn new(setpoint: Duration) -> Self {
        Self { tolerated: TOLERATED_START, setpoint_s: setpoint.as_secs_f64() }
    }

    /// The backlog it tolerates, in seconds of work per core.
    pub(super) fn tolerated_s(&self) -> f64 {
        self.tolerated * self.setpoint_s
    }

    /// The dimmer for the next period.
    pub(super) fn dimmer(&self, demand: Demand) -> Dimmer {
        let Demand { full_cores, cores, lean_ratio, backlog_s } = demand;
        if full_cores <= 0.0 {
            return Dimmer::FULL;
        }
        let room = (self.tolerated_s() - backlog_s) / self.setpoint_s;
        let affordable = cores * (1.0 + room).min(UTILISATION_MAX) / full_cores;
        Dimmer::clamped((affordable - lean_ratio) / (1.0 - lean_ratio))
    }

    /// Learns how many of those who ended in this time were late, while the dimmer was at `dimmer`.
    ///
    /// Both are shares of all; as many as `allowed` may be late, which is what a percentile says.
    /// Shares add up over time and percentiles do not: steered by the percentiles of short times,
    /// half of those times may be late altogether.
    pub(super) fn trim(&mut self, over: Duration, late: f64, allowed: f64, dimmer: Dimmer) {
        let error = (allowed - late) / allowed;
        // At full content nothing is regulated, and that nobody is late says nothing.
        if dimmer == Dimmer::FULL && error > 0.0 {
            return;
        }
        let tolerated = TRIM_PER_S.mul_add(error * over.as_secs_f64(), self.tolerated);
        self.tolerated = tolerated.clamp(*TOLERATED.start(), *TOLERATED.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cores' worth of work for four, with as much waiting as is tolerated.
    const CALM: Demand = Demand { full_cores: 2.0, cores: 4.0, lean_ratio: 0.1, backlog_s: 0.25 };

    fn law() -> FeedForward {
        FeedForward::new(Duration::from_secs(1))
    }

    fn served_cores(demand: Demand) -> f64 {
        demand.full_cores * (law().dimmer(demand).value() * 0.9 + 0.1)
    }

    #[test]
    fn work_that_fits_is_served_full_and_work_that_does_not_is_made_to_fit() {
        assert_eq!(law().dimmer(CALM), Dimmer::FULL);
        for full_cores in [4.1, 5.2, 12.0, 30.0] {
            let served = served_cores(Demand { full_cores, ..CALM });
            assert!((served - 4.0).abs() < 1e-9, "{served} cores at {full_cores}");
        }
        assert_eq!(law().dimmer(Demand { full_cores: 40.0, ..CALM }), Dimmer::LEAN);
        assert_eq!(law().dimmer(Demand { full_cores: 0.0, ..CALM }), Dimmer::FULL);
    }

    #[test]
    fn the_backlog_returns_to_what_is_tolerated_within_a_setpoint() {
        // 0.2 s too many per core: in a second a fifth of the cores works them off.
        let served = served_cores(Demand { full_cores: 5.0, backlog_s: 0.45, ..CALM });
        assert!((served - 4.0 * 0.8).abs() < 1e-9, "{served}");
        // Nothing waits: somewhat more is taken in, but not as much as there is room for.
        let served = served_cores(Demand { full_cores: 8.0, backlog_s: 0.0, ..CALM });
        assert!((served - 4.0 * 1.1).abs() < 1e-9, "{served}");
        assert_eq!(law().dimmer(Demand { backlog_s: 60.0, ..CALM }), Dimmer::LEAN);
    }

    #[test]
    fn what_is_tolerated_is_trimmed_by_those_who_are_late_only_while_it_matters() {
        let second = Duration::from_secs(1);
        let mut law = law();
        law.trim(second, 0.0, 0.05, Dimmer::FULL);
        assert_eq!(law.tolerated, TOLERATED_START, "nothing is dimmed");
        (0..40).for_each(|_| law.trim(second, 0.0, 0.05, Dimmer::clamped(0.5)));
        assert!(law.tolerated > 2.0 * TOLERATED_START, "from where it can fall");
        // One second in twenty with everybody late is as good as one in twenty late all the time.
        let before = law.tolerated;
        for n in 0..20 {
            law.trim(second, if n == 0 { 1.0 } else { 0.0 }, 0.05, Dimmer::clamped(0.5));
        }
        assert!(law.tolerated <= before + 1e-9, "{} after {before}", law.tolerated);
        for _ in 0..1_000 {
            law.trim(second, 0.5, 0.05, Dimmer::FULL);
        }
        assert_eq!(law.tolerated, *TOLERATED.start());
    }
}
