//! `oracle`: knows every replica's true state at this instant. No real policy can; it shows how
//! much is left to gain. Greedy per request and without hedges, so not a strict lower bound.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use evenkeel_core::request::select::{Candidates, Choice, Selector};
use evenkeel_core::{Fleet, Instant, ReplicaId, Rng};

/// The true state of every replica, kept by the world. Nobody shares it between threads; its parts
/// are atomic because policies may be sent to one, and relaxed ones cost no more than others.
#[derive(Debug)]
pub struct TrueState {
    replicas: Vec<TrueReplica>,
}

#[derive(Debug, Default)]
struct TrueReplica {
    concurrency: f64,
    /// Requests in service, waiting, or on their way to the replica.
    load: AtomicU32,
    /// Those of them that have arrived.
    present: AtomicU32,
    /// The bits of a number.
    mean_ms: AtomicU64,
    /// Nanoseconds since the run began.
    paused_until: AtomicU64,
    alive: AtomicBool,
}

impl TrueReplica {
    fn mean_ms(&self) -> f64 {
        f64::from_bits(self.mean_ms.load(Relaxed))
    }

    fn paused_until(&self) -> Instant {
        Instant::from_nanos(self.paused_until.load(Relaxed))
    }
}

impl TrueState {
    /// Replicas of which nothing is known yet but how many requests each serves at once.
    pub fn new(concurrency: &[u32]) -> Arc<Self> {
        let replica = |&concurrency: &u32| TrueReplica {
            concurrency: f64::from(concurrency),
            ..TrueReplica::default()
        };
        Arc::new(Self { replicas: concurrency.iter().map(replica).collect() })
    }

    /// A request was sent to the replica (+1) or left it (−1).
    #[inline]
    pub fn moved(&self, replica: usize, change: i32) {
        let load = &self.replicas[replica].load;
        load.store(load.load(Relaxed).saturating_add_signed(change), Relaxed);
    }

    /// A request arrived at the replica (+1) or left it (−1).
    #[inline]
    pub fn arrived(&self, replica: usize, change: i32) {
        let present = &self.replicas[replica].present;
        present.store(present.load(Relaxed).saturating_add_signed(change), Relaxed);
    }

    /// The replica lost everything it had.
    pub fn emptied(&self, replica: usize) {
        let state = &self.replicas[replica];
        let on_their_way = state.load.load(Relaxed).saturating_sub(state.present.load(Relaxed));
        state.load.store(on_their_way, Relaxed);
        state.present.store(0, Relaxed);
    }

    /// The replica's speed, pause or life changed.
    pub fn changed(&self, replica: usize, mean_ms: f64, paused_until: Instant, alive: bool) {
        let state = &self.replicas[replica];
        state.mean_ms.store(mean_ms.to_bits(), Relaxed);
        state.paused_until.store(paused_until.as_nanos(), Relaxed);
        state.alive.store(alive, Relaxed);
    }

    /// The delay a request sent now must expect: the rounds until a slot is free, then its own.
    fn expected_delay_ms(&self, now: Instant, id: ReplicaId) -> f64 {
        let state = &self.replicas[id.index()];
        if !state.alive.load(Relaxed) {
            return f64::INFINITY;
        }
        let ahead = (f64::from(state.load.load(Relaxed)) - state.concurrency + 1.0).max(0.0);
        let rounds = 1.0 + ahead / state.concurrency;
        state.paused_until().millis_since(now) + rounds * state.mean_ms()
    }

    /// The oracle of the C3 authors' simulator: (1 + present) × mean, ignoring the
    /// slots and what is on its way.
    fn absim_delay_ms(&self, id: ReplicaId) -> f64 {
        let state = &self.replicas[id.index()];
        f64::from(1 + state.present.load(Relaxed)) * state.mean_ms()
    }
}

/// Chooses the replica with the least true expected delay.
#[derive(Clone, Debug)]
pub struct Oracle {
    state: Arc<TrueState>,
    as_absim: bool,
}

impl Oracle {
    /// The names of the two oracles.
    pub const NAMES: [&str; 2] = ["oracle", "oracle-absim"];

    /// The oracle of this name over this state; `None` when it is neither of [`Oracle::NAMES`].
    pub fn named(name: &str, state: &Arc<TrueState>) -> Option<Self> {
        let place = Self::NAMES.iter().position(|known| *known == name)?;
        Some(Self { state: Arc::clone(state), as_absim: place == 1 })
    }
}

impl Selector for Oracle {
    fn name(&self) -> &'static str {
        Self::NAMES[usize::from(self.as_absim)]
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        let delay_ms = |id: ReplicaId| {
            if self.as_absim {
                self.state.absim_delay_ms(id)
            } else {
                self.state.expected_delay_ms(now, id)
            }
        };
        let mut best = (f64::INFINITY, candidates.ids[0]);
        let start = rng.below(candidates.ids.len()); // ties go to a random one
        for &id in candidates.ids[start..].iter().chain(&candidates.ids[..start]) {
            let delay_ms = delay_ms(id);
            if delay_ms < best.0 {
                best = (delay_ms, id);
            }
        }
        Choice::Send(best.1)
    }

    fn cost(&self, now: Instant, _fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        Some(self.state.expected_delay_ms(now, replica))
    }
}
