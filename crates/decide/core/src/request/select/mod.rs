//! Loop 1, *who*: one file per policy.
//!
//! A policy ranks the candidates it is given; everything else (failing and new replicas, retries,
//! hedges, order of held calls) is done around it. Each file has a pure cost function with the
//! equation it comes from, and a small state machine around it. The table of all policies, with
//! names and parameters, is [`registry`].

pub mod adaptive;
pub mod c3;
pub mod cubic;
pub mod driver_default;
pub mod dynamic_snitch;
pub mod exploring;
pub mod least_outstanding;
pub mod peak_ewma;
pub mod prequal;
pub mod queue_offset;
pub mod queue_offset_2014;
pub mod random;
pub mod registry;
pub mod round_robin;
pub mod two_choices;
pub mod weighted_dimmer;

use core::any::Any;
use core::fmt::Debug;

use arrayvec::ArrayVec;

use crate::fleet::{Feedback, Fleet, GroupId, ReplicaId};
use crate::request::call::{Attempt, Kind, Outcome};
use crate::request::decision::Candidate;
use crate::rng::Rng;
use crate::time::Instant;

pub use registry::{Policy, PolicyError};

/// The replicas a request may go to: never empty.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// The facts about all replicas.
    pub fleet: &'a Fleet,
    /// The group they are of.
    pub group: GroupId,
    /// The candidates.
    pub ids: &'a [ReplicaId],
}

/// Replicas that are asked for their state for the sake of one request, at the most.
pub const ASKED_MAX: usize = 8;

/// Whose answers a request waits for.
pub type Asked = ArrayVec<ReplicaId, ASKED_MAX>;

/// What a policy chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Send to this candidate.
    Send(ReplicaId),
    /// Send to none of them now; ask again at this time.
    Hold {
        /// When a sending rate opens.
        until: Instant,
    },
    /// There is nobody to send to.
    Refuse,
}

/// What siblings heard from a replica since the last look.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Told {
    /// Answers.
    pub answers: u32,
    /// Their mean latency, milliseconds.
    pub latency_ms: f64,
    /// The mean service time that they reported, milliseconds; the latency of those that did not.
    pub service_ms: f64,
    /// The mean queue that they reported.
    pub queue: f64,
}

/// Loop 1, *who*.
pub trait Selector: Any + Debug + Send {
    /// The name users know it by.
    fn name(&self) -> &'static str;

    /// Whether it is another policy's turn now; `None` where there is one policy. See
    /// [`exploring`].
    fn is_exploring(&self) -> Option<bool> {
        None
    }

    /// Chooses the replica for one copy of one request.
    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice;

    /// Whether it ever holds a request back. Where all candidates get a copy, others are not asked.
    fn holds(&self) -> bool {
        false
    }

    /// What a request to this replica would cost now, in the policy's own unit; lower is better.
    /// `None` when the policy does not rank.
    ///
    /// Monotone: with everything else equal, a slower service or a longer queue never costs less.
    fn cost(&self, _now: Instant, _fleet: &Fleet, _replica: ReplicaId) -> Option<f64> {
        None
    }

    /// Whether requests that must wait at their replica may go elsewhere: see
    /// [`Selector::quickest`].
    fn moves(&self) -> bool {
        false
    }

    /// Which candidate would answer a request first that waits elsewhere now, and how long its wait
    /// there must be, in milliseconds and the way aside, that moving pays; `None` where nobody is
    /// known.
    fn quickest(&self, _now: Instant, _from: Candidates<'_>) -> Option<(ReplicaId, f64)> {
        None
    }

    /// Writes down for people what candidates cost, and how long answers take where the policy has
    /// an estimate of that.
    fn rate(&self, now: Instant, fleet: &Fleet, candidates: &mut [Candidate]) {
        for one in candidates {
            one.cost = self.cost(now, fleet, one.replica()).map_or(f32::NAN, |cost| cost as f32);
        }
    }

    /// The same right after this policy has chosen among them: it may use again what it computed
    /// for that.
    fn rate_chosen_among(&self, now: Instant, fleet: &Fleet, candidates: &mut [Candidate]) {
        self.rate(now, fleet, candidates);
    }

    /// A copy was sent, by this policy's choice or (mirrors) without asking it.
    fn on_send(&mut self, _now: Instant, _replica: ReplicaId, _kind: Kind, _fleet: &Fleet) {}

    /// Learns what became of an attempt. Called exactly once per attempt, after the fleet's facts
    /// were updated and while the attempt still counts as in flight.
    fn on_outcome(&mut self, _now: Instant, _of: &Attempt, _outcome: &Outcome, _fleet: &Fleet) {}

    /// What siblings heard from a replica: see `siblings.rs`.
    fn on_siblings(&mut self, _now: Instant, _replica: ReplicaId, _told: &Told) {}

    /// Replicas joined, left, or changed health.
    fn on_membership(&mut self, _now: Instant, _fleet: &Fleet) {}

    /// A slot was given to another replica: what is known of the one before is not about it. A
    /// policy that keeps anything by slot forgets it; [`Selector::on_membership`] follows.
    fn on_reassigned(&mut self, _now: Instant, _replica: ReplicaId, _fleet: &Fleet) {}

    /// Takes over what a policy of the same kind has learnt, which this one replaces with other
    /// parameters. Of another kind nothing is taken: its estimates mean something else.
    /// [`Selector::on_membership`] follows.
    fn inherit(&mut self, _now: Instant, _before: &mut dyn Selector) {}

    /// Whether it ever wants a request to wait for answers: see [`Selector::ask`].
    fn asks(&self) -> bool {
        false
    }

    /// Whose state it wants to hear before it chooses for a request, and until when that is waited
    /// for; `None` to choose at once. Asked once for a request, before its first copy. Those who
    /// are being asked already need not be asked again, and nobody is who knows no questions.
    fn ask(
        &mut self,
        _now: Instant,
        _candidates: Candidates<'_>,
        _rng: &mut Rng,
        _whom: &mut Asked,
    ) -> Option<Instant> {
        None
    }

    /// A replica to ask for its state, if the policy wants to know.
    fn next_probe(&mut self) -> Option<ReplicaId> {
        None
    }

    /// The answer to a probe, or `None` when it went unanswered.
    fn on_probe(&mut self, _now: Instant, _replica: ReplicaId, _answer: Option<&Feedback>) {}
}

/// The policy before, if it is of this kind.
pub(crate) fn same_kind<T: Selector>(before: &mut dyn Selector) -> Option<&mut T> {
    let before: &mut dyn Any = before;
    before.downcast_mut()
}

/// The candidate with the lowest cost, ties broken at random (always the first of equals would
/// send the herd there). NaN counts as infinite.
#[inline]
pub(crate) fn cheapest(
    ids: &[ReplicaId],
    rng: &mut Rng,
    mut cost: impl FnMut(ReplicaId) -> f64,
) -> ReplicaId {
    let mut best = ids[0];
    let mut best_cost = f64::INFINITY;
    let mut equals = 0_usize;
    for &id in ids {
        // f64::min drops a NaN: it counts as infinite.
        let cost = cost(id).min(f64::INFINITY);
        if cost < best_cost {
            (best, best_cost, equals) = (id, cost, 1);
        } else if cost == best_cost {
            // Reservoir of one: each of the k equals stays with probability 1/k.
            equals += 1;
            if rng.below(equals) == 0 {
                best = id;
            }
        }
    }
    best
}

/// Two different candidates at random, or the same twice when there is only one.
#[inline]
pub(crate) fn two_of(ids: &[ReplicaId], rng: &mut Rng) -> (ReplicaId, ReplicaId) {
    let first = rng.below(ids.len());
    if ids.len() == 1 {
        return (ids[0], ids[0]);
    }
    let other = rng.below(ids.len() - 1);
    let second = if other >= first { other + 1 } else { other };
    (ids[first], ids[second])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_that_are_no_numbers_neither_win_nor_herd() {
        let ids: Vec<_> = (0..3).map(ReplicaId::new).collect();
        let mut rng = Rng::seeded(1);
        let mut chosen = |costs: [f64; 3]| {
            let mut counts = [0_u32; 3];
            for _ in 0..3_000 {
                counts[cheapest(&ids, &mut rng, |id| costs[id.index()]).index()] += 1;
            }
            counts
        };
        assert_eq!(chosen([f64::NAN, 5.0, f64::INFINITY]), [0, 3_000, 0]);
        // Binomial(3000, 1/3): standard deviation 26; five of them.
        for costs in [[f64::NAN; 3], [f64::INFINITY; 3], [f64::NAN, f64::INFINITY, f64::NAN]] {
            assert!(chosen(costs).iter().all(|n| n.abs_diff(1_000) < 130), "{costs:?}");
        }
    }
}
