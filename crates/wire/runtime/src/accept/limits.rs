//! How long each phase may take, in ticks of the sweep.

use std::time::Duration;

use tokio::time::Instant;

use super::AcceptConfig;
use super::link::{Link, Phase};

/// The limits of one listener.
#[derive(Debug)]
pub(super) struct Limits {
    /// The time between two looks: often enough for the shortest limit.
    pub(super) tick: Duration,
    handshake: u32,
    first: u32,
    idle: u32,
    write: u32,
    age: Duration,
}

impl Limits {
    pub(super) fn new(config: &AcceptConfig) -> Self {
        let AcceptConfig { handshake, first, idle, write, age, .. } = *config;
        let shortest = handshake.min(first).min(idle).min(write).min(age);
        let tick = (shortest / 8).clamp(Duration::from_millis(1), Duration::from_secs(1));
        let ticks = |limit: Duration| {
            let ticks = limit.as_nanos().div_ceil(tick.as_nanos());
            u32::try_from(ticks).unwrap_or(u32::MAX) // is never reached
        };
        let (handshake, first) = (ticks(handshake), ticks(first));
        Self { tick, handshake, first, idle: ticks(idle), write: ticks(write), age }
    }

    /// Whether a connection is as old as it may become: three quarters of the limit, and a share of
    /// the last one by chance.
    pub(super) fn is_old(&self, now: Instant, link: &Link, chance: f64) -> bool {
        self.age != Duration::MAX && now - link.born() >= self.age.mul_f64(0.75 + 0.25 * chance)
    }

    /// Whether a connection has stayed in its phase, or taken nothing, for longer than it may.
    pub(super) fn is_overdue(&self, link: &Link) -> bool {
        let limit = match link.phase() {
            Phase::Handshake => self.handshake.min(self.first),
            Phase::New | Phase::Reading => self.first,
            Phase::Leaving => self.handshake,
            Phase::Idle => self.idle,
            Phase::Serving => u32::MAX,
        };
        link.age() > limit || link.blocked_age().is_some_and(|age| age > self.write)
    }
}
