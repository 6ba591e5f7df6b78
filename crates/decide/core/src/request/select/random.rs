//! `random`: any candidate with equal probability. The baseline that knows nothing and herds never.

use crate::request::select::{Candidates, Choice, Selector};
use crate::rng::Rng;
use crate::time::Instant;

/// Chooses at random.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random;

impl Selector for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn select(&mut self, _now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        Choice::Send(candidates.ids[rng.below(candidates.ids.len())])
    }
}
