//! `pibh` and `epbh`: the fewest requests in flight, less an offset that the dimmers move (Klein et
//! al., *Improving Cloud Service Resilience using Brownout-Aware Load-Balancing*, SRDS 2014).
//!
//! A replica that must leave content out tells a dimmer below 1. Both policies send to the replica
//! with the lowest q − u: q is what is in flight there, and the offset u grows while its dimmer is
//! above that of the others, so that load moves to where there is room for optional content.
//!
//! - `pibh`, from eq. (4): u ← (1 − γ)·\[u + γp·ΔΘ + γi·Θ\].
//! - `epbh`, eq. (5): u ← u + γe·(Θ − mean Θ): the same without γ and γp, and idle replicas first.
//!
//! **Signal**: the dimmer, which came with the last answer and is as old as that, and own requests
//! in flight, which are never stale. **Why an offset, not a weight**: the queue stays the fast
//! signal, so a replica that stalls is spared within milliseconds; the slow offset only shifts the
//! point of balance. Only differences of offsets count: after each step their mean is subtracted,
//! which makes (4) and (5) two settings of one law and leaves a replica at 0 that is like the
//! others. γp·ΔΘ is not gathered but added as γp·(Θ − mean Θ), its sum: at half a request between
//! lean and full it breaks ties.
//! **Units**: u is in requests; γ and γi are per second, scaled by the time since the last step, at
//! most `step_max_s`: after a silence the first request must not move everything.
//!
//! **Not known is not zero**: a replica without brownout, one not heard from yet, one that failed
//! several times in a row, and one whose last word is older than `stale_s` (it hangs, or is sent
//! nothing) has no dimmer. It takes no part in the control, and its offset is 0, the mean of those
//! that do. Let d be their offsets, which add up to 0. A replica without is chosen only while its
//! q ≤ min (q − d) ≤ the mean of their q: it never has more than one request above the average of
//! the others (not flooded), and it is chosen as soon as the others are busy beyond their offsets,
//! which are bounded (not starved). With no dimmer told, or one alone that can be compared with
//! nothing, all offsets are 0: least-outstanding, exactly. So brownout can come replica by replica.
//!
//! **Windup**: |u| is at most `bound` · (1 + mean q). At balance q − u is equal everywhere, so an
//! idle replica has u = −mean q: what is far below that is memory without effect, and what is far
//! above is a queue several times as long as the others'. The bound is a multiple, since replicas
//! twice as large have queues twice as long, and when the load falls it takes the offsets with it.
//! A replica that is sent nothing is not heard from for `stale_s` and so stands at the mean again:
//! starvation ends by itself.
//! **Forgetting**: `leak` pulls u to the mean. In (4) it pulls to q, but at balance u − mean u *is*
//! q − mean q, so that forgets nothing, and a queue that was long for a while is later held for
//! what is due (`track=on`; it costs p95 where there is no overload).
//! **Recovery**: offsets are about a certain fleet; when replicas join, leave or change health all
//! of them begin anew. (As published, a replica that comes back is starved for minutes by what the
//! others gathered meanwhile.) **When it misleads**: dimmers differ only under overload, and only
//! between unlike replicas; else this is least-outstanding. Each dispatcher sees only its own
//! requests in flight; with n of them, an offset of u is n·u requests at the replica.
//!
//! | constant | `pibh` | `epbh` | why |
//! |---|---|---|---|
//! | `kp` γp | 0.5 | (0) | the paper's |
//! | `ki` γi, `gain` γe, per s | 0.3 | 0.1 | below; paper (its γi = 5.0 is Ti = 5 s, γp/Ti) |
//! | `leak` γ, per s | 0.01 | 0 | the paper's |
//! | `step_max_s` | 1 | 1 | the paper's code |
//! | `bound` | 1.5 | 1.5 | below |
//! | `stale_s` | 5 | 5 | ten periods of the replica's controller |
//! | `empty_first` | off | on | below; paper |
//!
//! `ki` says how fast offsets grow, the bound how far, and so how much p95 is given for content.
//! In a model of the paper's fleet of three replicas of 1 core and two of 8 (processor sharing,
//! lognormal work with cv 1.5, setpoint 1 s, ten seeds of 300 s) least-outstanding serves 61.6 % of
//! the content at a p95 of 0.62 s. Bounds of 1, 1.5 and 2 serve 2, 6 and 7 % more than that, at
//! 0.70, 0.76 and 0.83 s; at 1.5, gains of 0.2, 0.3 and 0.5 serve 6, 6 and 7 % more, at 0.73, 0.76
//! and 0.82 s. Without a bound and with 0.5 it is 7 %, and after twenty minutes p95 is at the
//! setpoint. `empty_first` takes `pibh` nearly all of its gain: small replicas that serve lean are
//! often idle.
//!
//! As published, with all that is left out here: [`queue_offset_2014`].
//!
//! [`queue_offset_2014`]: crate::request::select::queue_offset_2014

use crate::fleet::{Fleet, Health, Replica, ReplicaId};
use crate::request::call::{Attempt, Outcome};
use crate::request::select::{Candidates, Choice, Selector, cheapest, same_kind};
use crate::rng::Rng;
use crate::time::Instant;

/// The constants; see the table above.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueOffsetConfig {
    /// The name users chose.
    pub name: &'static str,
    /// γp: requests per difference of 1 between dimmers.
    pub kp: f64,
    /// γi or γe: requests per second per difference of 1 between dimmers.
    pub ki: f64,
    /// γ: the part of an offset that is forgotten per second.
    pub leak: f64,
    /// Whether offsets are forgotten towards the requests in flight, as in eq. (4), instead of
    /// towards the mean.
    pub track: bool,
    /// The longest time one step stands for, in seconds.
    pub step_max_s: f64,
    /// How far an offset (without γp's part) may be from the mean, in multiples of 1 + the mean in
    /// flight.
    pub bound: f64,
    /// Age from which a dimmer is not known any more, in seconds.
    pub stale_s: f64,
    /// Whether offsets begin anew when replicas join, leave, change health or fail in a row.
    pub reset: bool,
    /// Whether a random idle replica is taken before any other.
    pub empty_first: bool,
}

impl QueueOffsetConfig {
    /// The PI-based heuristic.
    pub const fn pibh() -> Self {
        Self {
            name: "pibh",
            kp: 0.5,
            ki: 0.3,
            leak: 0.01,
            track: false,
            step_max_s: 1.0,
            bound: 1.5,
            stale_s: 5.0,
            reset: true,
            empty_first: false,
        }
    }

    /// The equality-principle-based heuristic.
    pub const fn epbh() -> Self {
        Self { name: "epbh", kp: 0.0, ki: 0.1, leak: 0.0, empty_first: true, ..Self::pibh() }
    }
}

/// SRDS'14 eq. (4), for a step of `seconds`: it moves towards q, there.
#[inline]
pub(crate) fn moved(offset: f64, towards: f64, push: f64, leak: f64, seconds: f64) -> f64 {
    let pushed = offset + push;
    pushed - leak * seconds * (pushed - towards)
}

/// One of the idle candidates at random, if there are any.
#[inline]
pub(crate) fn idle(candidates: Candidates<'_>, rng: &mut Rng) -> Option<ReplicaId> {
    let is_idle = |id: &&ReplicaId| candidates.fleet.replica(**id).in_flight() == 0;
    let count = candidates.ids.iter().filter(is_idle).count();
    if count == 0 {
        return None;
    }
    candidates.ids.iter().filter(is_idle).nth(rng.below(count)).copied()
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// u, the sum of what the integral part and forgetting did; zero while there is no dimmer.
    gathered: f64,
    /// u with the proportional part: what the queue is compared with.
    offset: f64,
    /// The dimmer at the last step; `None` while it is not known.
    dimmer: Option<f64>,
    health: Health,
    /// It failed several times in a row and has not answered since.
    failed: bool,
}

impl Slot {
    const fn new(health: Health) -> Self {
        Self { gathered: 0.0, offset: 0.0, dimmer: None, health, failed: false }
    }

    /// Stands at the mean of the others, which is 0.
    const fn stand_aside(&mut self) {
        (self.gathered, self.offset, self.dimmer) = (0.0, 0.0, None);
    }
}

/// Sums over the replicas whose dimmers are known, and how many they are.
#[derive(Clone, Copy, Default)]
struct Known {
    count: u32,
    gathered: f64,
    dimmers: f64,
    in_flight: f64,
}

/// Offsets for queues, moved by dimmers.
#[derive(Clone, Debug)]
pub struct QueueOffset {
    config: QueueOffsetConfig,
    stale_nanos: u64,
    slots: Vec<Slot>,
    stepped_at: Instant,
}

impl QueueOffset {
    /// Steps closer together than this are made together: dimmers change every half second, and
    /// a large fleet under a high rate should not be gone through for every request.
    const STEP_MIN_NANOS: u64 = 1_000_000;
    /// So many failures in a row are no accident of overload: the replica went away.
    const FAILURES_IN_A_ROW: u32 = 3;

    /// With these constants.
    pub fn new(config: QueueOffsetConfig) -> Self {
        let stale_nanos = (config.stale_s * 1e9) as u64; // an infinite age saturates
        Self { config, stale_nanos, slots: Vec::new(), stepped_at: Instant::ZERO }
    }

    #[inline]
    fn step_if_due(&mut self, now: Instant, fleet: &Fleet) {
        let passed = now.nanos_since(self.stepped_at);
        if passed >= Self::STEP_MIN_NANOS {
            self.stepped_at = now;
            self.step(now, fleet, (passed as f64 * 1e-9).min(self.config.step_max_s));
        }
    }

    fn step(&mut self, now: Instant, fleet: &Fleet, seconds: f64) {
        let mut known = Known::default();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let replica = fleet.replica(ReplicaId::new(index));
            let reported = if slot.failed { None } else { dimmer(now, replica, self.stale_nanos) };
            let Some(dimmer) = reported else {
                slot.stand_aside();
                continue;
            };
            let in_flight = f64::from(replica.in_flight());
            // The mean of what was gathered is 0.
            let towards = if self.config.track { in_flight } else { 0.0 };
            let push = self.config.ki * dimmer * seconds;
            slot.gathered = moved(slot.gathered, towards, push, self.config.leak, seconds);
            slot.dimmer = Some(dimmer);
            known.count += 1;
            known.gathered += slot.gathered;
            known.dimmers += dimmer;
            known.in_flight += in_flight;
        }
        self.centre(&known);
    }

    /// Makes the mean of the known offsets 0, and all of them lie within the bound.
    fn centre(&mut self, known: &Known) {
        let share = 1.0 / f64::from(known.count.max(1));
        let (mean, mean_dimmer) = (known.gathered * share, known.dimmers * share);
        let bound = self.config.bound * (1.0 + known.in_flight * share);
        for slot in &mut self.slots {
            let Some(dimmer) = slot.dimmer else { continue };
            slot.gathered = (slot.gathered - mean).clamp(-bound, bound);
            slot.offset = slot.gathered + self.config.kp * (dimmer - mean_dimmer);
        }
    }
}

/// The dimmer of a replica that can be compared with those of the others.
#[inline]
fn dimmer(now: Instant, replica: &Replica, stale_nanos: u64) -> Option<f64> {
    let (dimmer, told_at) = replica.dimmer()?;
    let counts = replica.health() == Health::Up && now.nanos_since(told_at) <= stale_nanos;
    counts.then_some(dimmer.value())
}

impl Selector for QueueOffset {
    fn name(&self) -> &'static str {
        self.config.name
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        let fleet = candidates.fleet;
        self.step_if_due(now, fleet);
        if self.config.empty_first
            && let Some(id) = idle(candidates, rng)
        {
            return Choice::Send(id);
        }
        let effective = |id: ReplicaId| {
            f64::from(fleet.replica(id).in_flight()) - self.slots[id.index()].offset
        };
        Choice::Send(cheapest(candidates.ids, rng, effective))
    }

    /// q − u, counted from the highest u, so that it is never negative.
    fn cost(&self, _now: Instant, fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        let highest = self.slots.iter().map(|slot| slot.offset).fold(0.0, f64::max);
        let below = highest - self.slots[replica.index()].offset;
        Some(f64::from(fleet.replica(replica).in_flight()) + below)
    }

    fn on_outcome(&mut self, _now: Instant, of: &Attempt, outcome: &Outcome, fleet: &Fleet) {
        let slot = &mut self.slots[of.replica().index()];
        match outcome {
            Outcome::Replied(_) => slot.failed = false,
            Outcome::Failed(_) if self.config.reset => {
                let in_a_row = fleet.replica(of.replica()).consecutive_failures;
                if in_a_row >= Self::FAILURES_IN_A_ROW {
                    slot.stand_aside();
                    slot.failed = true;
                }
            }
            Outcome::Failed(_) | Outcome::Cancelled => {}
        }
    }

    fn on_reassigned(&mut self, _now: Instant, replica: ReplicaId, fleet: &Fleet) {
        self.slots[replica.index()] = Slot::new(fleet.replica(replica).health());
        if self.config.reset {
            self.slots.iter_mut().for_each(Slot::stand_aside);
        }
    }

    fn inherit(&mut self, _now: Instant, before: &mut dyn Selector) {
        if let Some(before) = same_kind::<Self>(before) {
            self.slots = core::mem::take(&mut before.slots);
            self.stepped_at = before.stepped_at;
        }
    }

    fn on_membership(&mut self, _now: Instant, fleet: &Fleet) {
        let mut changed = self.slots.len() != fleet.len();
        self.slots.resize(fleet.len(), Slot::new(Health::Up));
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let health = fleet.replica(ReplicaId::new(index)).health();
            changed |= slot.health != health;
            slot.health = health;
        }
        if changed && self.config.reset {
            self.slots.iter_mut().for_each(Slot::stand_aside);
        }
    }
}
