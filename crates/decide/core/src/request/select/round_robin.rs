//! `round-robin`: the candidates of each group in turn, from a random start (so that many clients
//! do not march in step). Blind to latency, queues and failures.

use crate::fleet::Fleet;
use crate::request::select::{Candidates, Choice, Selector, same_kind};
use crate::rng::Rng;
use crate::time::Instant;

/// Takes turns per group.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    /// Per group, how many turns were taken; `None` before the first.
    turns: Vec<Option<usize>>,
}

impl Selector for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn select(&mut self, _now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        let count = candidates.ids.len();
        let turn = &mut self.turns[candidates.group.index()];
        let place = turn.map_or_else(|| rng.below(count), |taken| taken.wrapping_add(1));
        *turn = Some(place);
        Choice::Send(candidates.ids[place % count])
    }

    fn inherit(&mut self, _now: Instant, before: &mut dyn Selector) {
        if let Some(before) = same_kind::<Self>(before) {
            self.turns = core::mem::take(&mut before.turns);
        }
    }

    fn on_membership(&mut self, _now: Instant, fleet: &Fleet) {
        self.turns.resize(fleet.groups(), None);
    }
}
