//! `two-choices` (P2C): of two random candidates the one with fewer own requests in flight.
//!
//! Nearly as good as looking at all, and many clients do not all run to the same replica
//! (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001). Copies given up
//! that the replica may still be busy with count as in flight.

use crate::fleet::{Fleet, ReplicaId};
use crate::request::select::{Candidates, Choice, Selector, cheapest, two_of};
use crate::rng::Rng;
use crate::time::Instant;

/// Chooses the better of two at random.
#[derive(Clone, Copy, Debug, Default)]
pub struct TwoChoices;

impl Selector for TwoChoices {
    fn name(&self) -> &'static str {
        "two-choices"
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        let (one, other) = two_of(candidates.ids, rng);
        let fleet = candidates.fleet;
        let burden = |id| fleet.replica(id).load(now);
        Choice::Send(cheapest(&[one, other], rng, burden))
    }

    fn cost(&self, now: Instant, fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        Some(fleet.replica(replica).load(now))
    }
}
