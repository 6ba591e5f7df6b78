//! Pauses of a store: when it answers nobody.

use std::time::{Duration, Instant};

use evenkeel_core::Rng;

/// Pauses of a store, for demonstrations and tests: within one it answers nobody, as a server that
/// compacts, collects garbage or is moved to another machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pauses {
    /// Mean time between the end of one and the beginning of the next; they come at random
    /// (exponential gaps), else those of several stores would fall together or never.
    pub every: Duration,
    /// How long each takes.
    pub length: Duration,
    /// What the randomness is made from; another for every store.
    pub seed: u64,
}

/// The pauses of one store as they come.
#[derive(Debug)]
pub(super) struct Pausing {
    pauses: Pauses,
    rng: Rng,
    begins: Instant,
}

impl Pausing {
    pub(super) fn new(pauses: Pauses, now: Instant) -> Self {
        let mut pausing = Self { pauses, rng: Rng::seeded(pauses.seed), begins: now };
        pausing.next(now);
        pausing
    }

    fn next(&mut self, from: Instant) {
        let gap = -(1.0 - self.rng.unit()).ln() * self.pauses.every.as_secs_f64();
        self.begins = from + Duration::from_secs_f64(gap);
    }

    /// Until when a pause lasts that has begun.
    pub(super) fn until(&mut self, now: Instant) -> Option<Instant> {
        loop {
            let ends = self.begins + self.pauses.length;
            if now < self.begins {
                return None;
            }
            if now < ends {
                return Some(ends);
            }
            self.next(ends);
        }
    }
}
