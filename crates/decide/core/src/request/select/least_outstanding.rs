//! `least-outstanding` (LOR, SQF, "least connections"): the fewest requests in flight from here.
//!
//! **Signal**: own requests in flight, the one fact that is never stale, those of sibling workers,
//! and copies given up that the replica may still be busy with. **When it misleads**: with
//! many clients each sees few of its own requests, and none of the others'; and a replica that
//! fails fast looks idle. **Tie-break**: random; with many idle replicas a fixed order would load
//! the first one.

use crate::fleet::{Fleet, ReplicaId};
use crate::request::select::{Candidates, Choice, Selector, cheapest};
use crate::rng::Rng;
use crate::time::Instant;

/// Chooses the replica with the fewest own requests in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastOutstanding;

impl Selector for LeastOutstanding {
    fn name(&self) -> &'static str {
        "least-outstanding"
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        let fleet = candidates.fleet;
        let burden = |id| fleet.replica(id).load(now);
        Choice::Send(cheapest(candidates.ids, rng, burden))
    }

    fn cost(&self, now: Instant, fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        Some(fleet.replica(replica).load(now))
    }
}
