//! What passes between plans and the traffic they direct: which sites, what to enforce, what was
//! done.

use std::time::Duration;

use super::epoch::{SiteId, SiteSet};
use super::split::{PlanRow, SplitWindow};
use evenkeel_core::dimmer::Inflow;
use evenkeel_core::time::Instant;
use evenkeel_core::units::Probability;

/// The sites between which an upstream's requests are split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitSetup {
    /// The site of this process.
    pub home: SiteId,
    /// All sites, in the order of [`SiteId`].
    pub names: Vec<String>,
    /// A request whose answer begins later than this after its arrival missed the objective.
    pub objective: Duration,
    /// Whether requests that change something stay here whatever the plan.
    pub writes_stay: bool,
    /// Whether requests that are bound stay: writes that stay, or what no other site may serve.
    pub bound_stay: bool,
}

impl SplitSetup {
    /// The name of the site of this process.
    pub fn home_name(&self) -> &str {
        &self.names[self.home.index()]
    }
}

/// What the workers of an upstream shall enforce until the next one comes.
#[derive(Clone, Debug, PartialEq)]
pub struct Directive {
    /// The plan for this origin.
    pub row: PlanRow,
    /// By worker, its part of the caps; a worker without one has none, and keeps all at home.
    pub parts: Vec<Probability>,
    /// Until when the plan is believed, on the process's clock.
    pub good_until: Instant,
    /// By site, requests per 1,000 s that it could serve beyond the plan: where requests go that
    /// home has no replica for. May be empty.
    pub spare_per_1000_s: Vec<u64>,
    /// The sites at which requests may be hedged while the plan is believed: all of them, unless a
    /// plan by price says that copies cost more there than they save.
    pub hedges: SiteSet,
    /// What the plan brings this site beyond the one before it, for its replicas; `None` where that
    /// is next to nothing, or nobody knows.
    pub inflow: Option<Inflow>,
}

/// What was done under a plan that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The epoch of the plan.
    pub epoch: u64,
    /// How long it was in force.
    pub over: Duration,
    /// What all workers of a process counted under it.
    pub window: SplitWindow,
}
