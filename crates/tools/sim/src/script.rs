//! A world that was recorded: requests, work and what befell the replicas happen again as they did.

use std::sync::Arc;

use evenkeel_core::{Duration, Instant};

use crate::fault::What;

/// A request as it arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Arrival {
    /// The client it arrives at.
    pub client: u32,
    /// The replica group that can answer it.
    pub group: u32,
    /// Whether it goes to every replica of the group: a write, or a read with read repair.
    pub everywhere: bool,
    /// Seed of the work its copies are.
    pub work_seed: u64,
    /// Where the work of its first copy stands among all, where that was recorded.
    pub score: f32,
    /// Whether another policy than the run's decides.
    pub explores: bool,
}

/// Something that befalls a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Strike {
    /// When, from the start of the run.
    pub at: Instant,
    /// The replica.
    pub server: usize,
    /// What.
    pub effect: Effect,
}

/// What befalls it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// From now on it is this many times as fast as at base speed.
    Speed(f64),
    /// Everything on it stops for this long.
    Pause(Duration),
    /// As [`What`] says, where nothing more is drawn.
    Fault(What),
}

/// What happens, in place of what a scenario draws.
#[derive(Clone, Debug)]
pub struct Script {
    /// The requests and when they arrive, in that order.
    pub requests: Vec<(Instant, Arrival)>,
    /// Speeds and pauses, in the order of time.
    pub strikes: Vec<Strike>,
    /// Works of normal scores in equal steps from -`SCORE_MAX` to
    /// [`SCORE_MAX`](evenkeel_twin::works::SCORE_MAX), as multiples of what speeds relate to. Not
    /// empty.
    pub works: Arc<[f32]>,
    /// The same of works with content left out; empty where none is.
    pub lean: Arc<[f32]>,
    /// Correlation of the normal scores of two copies of a request: 0 to 1.
    pub correlation: f64,
}

impl Script {
    pub(crate) fn arrives(&self, number: usize) -> Option<Instant> {
        self.requests.get(number).map(|(at, _)| *at)
    }

    pub(crate) fn arrival(&self, number: usize) -> Arrival {
        self.requests.get(number).map(|(_, arrival)| *arrival).unwrap_or_default()
    }
}
