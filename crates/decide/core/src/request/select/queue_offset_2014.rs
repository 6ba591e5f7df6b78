//! `pibh-2014-03`, `pibh-2014-07`, `pibh-printed` and `epbh-2014`: the queue offsets as published.
//!
//! For reproducing the paper and for comparison, not for service: this is what its load balancer
//! (lighttpd with `brownout-diff` and `brownout-equal`) does, with the defects that the users of
//! [`queue_offset`] are spared.
//!
//! | | as published | in `pibh` and `epbh` |
//! |---|---|---|
//! | comparison | whole requests: q − u cut off towards 0 | exact |
//! | ties | the first of the group | at random |
//! | ΔΘ | between the last two answers, times the elapsed time: nothing | its sum: γp·(Θ − mean) |
//! | replica that told nothing | dimmer 0: driven into starvation | takes no part |
//! | replica that is down | its last dimmer counts on | takes no part |
//! | membership | offsets are kept: who comes back is starved | begin anew |
//! | offsets | drift without bound (`epbh`), or follow q | bounded, forgotten |
//! | empty replicas | `epbh`: a random one first | the same |
//!
//! | constant | `pibh-2014-03` | `pibh-2014-07` | `pibh-printed` | `epbh-2014` |
//! |---|---|---|---|---|
//! | γp | 0.5 | 1 | 0.5 | – |
//! | γi or γe, per s | 0.1 (Kp/Ti, Ti = 5 s) | 0.5 (Ti = 2 s) | 5 (sec. III-A) | 0.1 |
//! | γ, per s | 0.01 | 0.01 | 0.01 | – |
//!
//! 2014-03 is the code when the paper was submitted, 2014-07 the last before it appeared. All
//! gains are scaled by the time since the last decision, at most a second; eq. (4) without that
//! collapses. One clock counts for all replicas, and all are updated at each decision. The code is
//! in single precision, which is not imitated: its smallest steps get lost above some hundred
//! thousand requests per second.
//!
//! [`queue_offset`]: crate::request::select::queue_offset

use crate::fleet::{Fleet, ReplicaId};
use crate::request::call::{Attempt, Outcome};
use crate::request::select::queue_offset::{idle, moved};
use crate::request::select::{Candidates, Choice, Selector, same_kind};
use crate::rng::Rng;
use crate::time::Instant;
use crate::units::Dimmer;

/// The constants; see the table above.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueOffset2014Config {
    /// The name users chose.
    pub name: &'static str,
    /// γp: requests per second per change of the dimmer by 1.
    pub kp: f64,
    /// γi or γe: requests per second per dimmer of 1.
    pub ki: f64,
    /// γ: with which part per second an offset follows the requests in flight.
    pub leak: f64,
    /// The longest time one step stands for, in seconds.
    pub step_max_s: f64,
    /// Eq. (5) instead of (4): the mean dimmer is subtracted, and empty replicas come first.
    pub equality: bool,
}

impl QueueOffset2014Config {
    /// The PI-based heuristic when the paper was submitted.
    pub const fn pibh_2014_03() -> Self {
        let (kp, ki, leak) = (0.5, 0.1, 0.01);
        Self { name: "pibh-2014-03", kp, ki, leak, step_max_s: 1.0, equality: false }
    }

    /// The PI-based heuristic as it was left.
    pub const fn pibh_2014_07() -> Self {
        Self { name: "pibh-2014-07", kp: 1.0, ki: 0.5, ..Self::pibh_2014_03() }
    }

    /// The PI-based heuristic with the gains that the paper prints.
    pub const fn pibh_printed() -> Self {
        Self { name: "pibh-printed", ki: 5.0, ..Self::pibh_2014_03() }
    }

    /// The equality-principle-based heuristic.
    pub const fn epbh_2014() -> Self {
        let base = Self::pibh_2014_03();
        Self { name: "epbh-2014", kp: 0.0, leak: 0.0, equality: true, ..base }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    offset: f64,
    /// The dimmer on the last answer that told one, and the one before it; zero at first.
    dimmer: f64,
    dimmer_before: f64,
    /// That dimmer and when it was told: an answer without one is no news.
    reported: Option<(Dimmer, Instant)>,
}

/// Offsets for queues, moved by dimmers, as published.
#[derive(Clone, Debug)]
pub struct QueueOffset2014 {
    config: QueueOffset2014Config,
    slots: Vec<Slot>,
    decided_at: Option<Instant>,
}

impl QueueOffset2014 {
    /// With these constants.
    pub const fn new(config: QueueOffset2014Config) -> Self {
        Self { config, slots: Vec::new(), decided_at: None }
    }

    /// The time a decision stands for; the very first stands for the longest.
    fn seconds_passed(&mut self, now: Instant) -> f64 {
        let before = self.decided_at;
        self.decided_at = before.max(Some(now)); // a clock that steps back pays nothing twice
        let longest = self.config.step_max_s;
        before.map_or(longest, |before| (now.nanos_since(before) as f64 * 1e-9).min(longest))
    }

    fn step(&mut self, fleet: &Fleet, seconds: f64) {
        let config = &self.config;
        let mean = if config.equality {
            self.slots.iter().map(|slot| slot.dimmer).sum::<f64>() / self.slots.len() as f64
        } else {
            0.0
        };
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let change = slot.dimmer - slot.dimmer_before;
            let push = (config.kp * change + config.ki * (slot.dimmer - mean)) * seconds;
            let in_flight = f64::from(fleet.replica(ReplicaId::new(index)).in_flight());
            slot.offset = moved(slot.offset, in_flight, push, config.leak, seconds);
        }
    }
}

impl Selector for QueueOffset2014 {
    fn name(&self) -> &'static str {
        self.config.name
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        let seconds = self.seconds_passed(now);
        self.step(candidates.fleet, seconds);
        if self.config.equality
            && let Some(id) = idle(candidates, rng)
        {
            return Choice::Send(id);
        }
        let effective = |id: ReplicaId| {
            let in_flight = f64::from(candidates.fleet.replica(id).in_flight());
            (in_flight - self.slots[id.index()].offset).trunc()
        };
        let mut best = (candidates.ids[0], effective(candidates.ids[0]));
        for &id in &candidates.ids[1..] {
            let cost = effective(id);
            if cost < best.1 {
                best = (id, cost);
            }
        }
        Choice::Send(best.0)
    }

    /// q − u, counted from the highest u, so that it is never negative; before it is cut off.
    fn cost(&self, _now: Instant, fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        let highest = self.slots.iter().map(|slot| slot.offset).fold(f64::MIN, f64::max);
        let below = highest - self.slots[replica.index()].offset;
        Some(f64::from(fleet.replica(replica).in_flight()) + below)
    }

    fn on_outcome(&mut self, _now: Instant, of: &Attempt, _outcome: &Outcome, fleet: &Fleet) {
        let slot = &mut self.slots[of.replica().index()];
        let reported = fleet.replica(of.replica()).dimmer();
        if let Some((dimmer, _)) = reported.filter(|_| reported != slot.reported) {
            slot.reported = reported;
            slot.dimmer_before = slot.dimmer;
            slot.dimmer = dimmer.value();
        }
    }

    fn on_reassigned(&mut self, _now: Instant, replica: ReplicaId, _fleet: &Fleet) {
        self.slots[replica.index()] = Slot::default();
    }

    fn inherit(&mut self, _now: Instant, before: &mut dyn Selector) {
        if let Some(before) = same_kind::<Self>(before) {
            self.slots = core::mem::take(&mut before.slots);
            self.decided_at = before.decided_at;
        }
    }

    fn on_membership(&mut self, _now: Instant, fleet: &Fleet) {
        self.slots.resize(fleet.len(), Slot::default());
    }
}
