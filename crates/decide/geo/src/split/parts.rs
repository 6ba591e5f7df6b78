//! Several proxies enforce one plan, and what became of it.
//!
//! Ratios need no sharing: every proxy sends the same shares of what it gets. Caps do: each proxy
//! has its part of the cap, by its part of the measured demand, and the parts are one together.
//! **When it misleads**: demand that moves from one proxy to another within an epoch is over the
//! cap at the one and under it at the other: by more than the slack it stays local, and
//! [`Enforced::over_cap`] says how much. A proxy without requests so far gets a little all the
//! same, for it may get some.

use super::super::epoch::SiteId;
use super::{PlanRow, SplitWindow};
use evenkeel_core::time::Duration;
use evenkeel_core::units::Probability;

/// Part of the cap that is divided evenly, whatever the demand was.
const EVEN: f64 = 0.05;

/// The part of the caps each proxy gets, from the requests each got lately (one or two epochs): a
/// list as long, whose sum is 1.
pub fn parts(arrived: &[u64]) -> Vec<Probability> {
    let even = 1.0 / arrived.len().max(1) as f64;
    let sum: f64 = arrived.iter().map(|count| *count as f64).sum();
    let part = |count: &u64| {
        let measured = if sum > 0.0 { *count as f64 / sum } else { even };
        Probability::clamped(EVEN.mul_add(even - measured, measured))
    };
    arrived.iter().map(part).collect()
}

/// What became of the plan for one destination, over all proxies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Enforced {
    /// The destination.
    pub to: SiteId,
    /// Requests the plan foresaw for this time.
    pub planned: f64,
    /// Requests that its share of the real demand is.
    pub due: f64,
    /// Requests that were sent.
    pub sent: u64,
    /// Requests kept local because a proxy had used up its part of the cap.
    pub over_cap: u64,
    /// Requests kept local because the destination had no healthy replica.
    pub unhealthy: u64,
    /// Requests sent beside: home, which was to serve them, had no replica.
    pub failed_over: u64,
    /// Of `over_cap`, the ones for which the cap of all proxies together had room: the price of
    /// dividing it.
    pub divided: f64,
}

impl Enforced {
    /// Requests sent beyond (below: fewer than) what was due, those kept back not counted: the
    /// error of the choice itself.
    pub fn error(&self) -> f64 {
        (self.sent + self.over_cap + self.unhealthy) as f64 - self.due
    }
}

/// Compares what all proxies of an origin did `over` this time with the plan that was in force, for
/// each destination beside the origin. `slack` is that of the splitters.
pub fn enforced(
    plan: &PlanRow,
    slack: Probability,
    over: Duration,
    window: &SplitWindow,
) -> Vec<Enforced> {
    let by_site = window.by_site.iter().zip(&plan.rates_per_1000_s).enumerate();
    let by_site = by_site.map(|(index, counts)| (SiteId::new(index), counts));
    let planned_for = window.arrived;
    let planned_for =
        planned_for.saturating_sub(window.no_plan + window.stale + window.writes_kept);
    let enforced = |(to, (counts, rate)): (SiteId, (&super::DestinationCounts, &u64))| {
        let planned = *rate as f64 * 1e-3 * over.as_secs_f64();
        let room = planned * (1.0 + slack.value()) - (counts.sent + counts.failed_over) as f64;
        Enforced {
            to,
            planned,
            due: plan.share(to).value() * planned_for as f64,
            sent: counts.sent,
            over_cap: counts.over_cap,
            unhealthy: counts.unhealthy,
            failed_over: counts.failed_over,
            divided: room.clamp(0.0, counts.over_cap as f64),
        }
    };
    by_site.filter(|(to, _)| *to != plan.origin).map(enforced).collect()
}
