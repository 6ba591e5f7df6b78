//! What stands in for the dispatcher's parts: a policy that is watched, and a hedge that is not
//! waited for.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use evenkeel_core::Rng;
use evenkeel_core::fleet::{Feedback, Fleet, ReplicaId};
use evenkeel_core::request::redundancy::{Budget, Redundancy};
use evenkeel_core::request::select::{Asked, Candidates, Choice, Policy, Selector};
use evenkeel_core::request::{Attempt, Kind, Outcome};
use evenkeel_core::time::{Duration, Instant};

/// Hedges after a fixed time: the real one needs a hundred answers before its first copy.
#[derive(Debug)]
pub(crate) struct HedgeAfter(pub(crate) Duration, pub(crate) Budget);

impl Redundancy for HedgeAfter {
    fn on_open(&mut self, now: Instant) {
        self.1.deposit(now);
    }

    fn copy_due(&mut self, copies_sent: usize) -> Option<Duration> {
        (copies_sent <= 2).then_some(self.0)
    }

    fn permits_copy(&mut self, _now: Instant) -> bool {
        self.1.withdraw()
    }

    fn inherit(&mut self, before: &mut dyn Redundancy) {
        let before: &mut dyn Any = before;
        let before = before.downcast_mut::<Self>().expect("tests hedge with nothing else");
        self.1.inherit(&before.1);
    }
}

/// How many sends and outcomes a policy was told of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<(u64, u64)>>);

impl Told {
    pub(crate) fn get(&self) -> (u64, u64) {
        *self.0.lock().expect("nobody panics while holding it")
    }

    fn add(&self, sends: u64, outcomes: u64) {
        let mut reported = self.0.lock().expect("nobody panics while holding it");
        *reported = (reported.0 + sends, reported.1 + outcomes);
    }
}

/// A policy that is watched: what it is asked and told.
#[derive(Debug)]
pub(crate) struct Watched {
    policy: Box<dyn Selector>,
    fresh: Policy,
    reported: Told,
}

impl Watched {
    pub(crate) fn new(policy: &str, reported: Told) -> Self {
        let fresh: Policy = policy.parse().expect("a policy of the registry");
        Self { policy: fresh.make(1), fresh, reported }
    }

    /// Whether its cost of a replica never heard from is of that replica alone: C3's is that of a
    /// typical one, and offsets of queues are counted from the highest.
    fn forgets_wholly(&self) -> bool {
        let typical = ["adaptive", "c3", "driver-default"].contains(&self.name());
        !typical && !self.name().starts_with("pibh") && !self.name().starts_with("epbh")
    }
}

impl Selector for Watched {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn holds(&self) -> bool {
        self.policy.holds()
    }

    fn select(&mut self, now: Instant, from: Candidates<'_>, rng: &mut Rng) -> Choice {
        let different: BTreeSet<_> = from.ids.iter().collect();
        assert!(!from.ids.is_empty() && different.len() == from.ids.len(), "{:?}", from.ids);
        for &id in from.ids {
            if let Some(cost) = self.policy.cost(now, from.fleet, id) {
                assert!(cost >= 0.0, "cost {cost}");
            }
        }
        let choice = self.policy.select(now, from, rng);
        match choice {
            Choice::Send(id) => assert!(from.ids.contains(&id), "{id:?} of {:?}", from.ids),
            Choice::Hold { until } => assert!(until > now, "a wait must make progress"),
            Choice::Refuse => panic!("there were candidates"),
        }
        choice
    }

    fn cost(&self, now: Instant, fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        self.policy.cost(now, fleet, replica)
    }

    fn moves(&self) -> bool {
        self.policy.moves()
    }

    fn quickest(&self, now: Instant, from: Candidates<'_>) -> Option<(ReplicaId, f64)> {
        let found = self.policy.quickest(now, from);
        assert!(found.is_none_or(|(id, ms)| from.ids.contains(&id) && ms >= 0.0), "{found:?}");
        found
    }

    fn on_send(&mut self, now: Instant, replica: ReplicaId, kind: Kind, fleet: &Fleet) {
        self.reported.add(1, 0);
        self.policy.on_send(now, replica, kind, fleet);
    }

    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, fleet: &Fleet) {
        self.reported.add(0, 1);
        assert!(fleet.replica(of.replica()).in_flight() > 0, "it still counts as in flight");
        self.policy.on_outcome(now, of, outcome, fleet);
    }

    fn on_membership(&mut self, now: Instant, fleet: &Fleet) {
        self.policy.on_membership(now, fleet);
    }

    fn on_reassigned(&mut self, now: Instant, replica: ReplicaId, fleet: &Fleet) {
        self.policy.on_reassigned(now, replica, fleet);
        let newcomer = self.policy.cost(now, fleet, replica);
        let mut fresh = self.fresh.make(1);
        fresh.on_membership(now, fleet);
        if self.forgets_wholly() {
            assert_eq!(newcomer, fresh.cost(now, fleet, replica), "it knows nothing of it");
        }
    }

    fn inherit(&mut self, now: Instant, before: &mut dyn Selector) {
        let before: &mut dyn Any = before;
        let before = before.downcast_mut::<Self>().expect("tests watch every policy");
        self.policy.inherit(now, &mut *before.policy);
    }

    fn asks(&self) -> bool {
        self.policy.asks()
    }

    fn ask(
        &mut self,
        now: Instant,
        from: Candidates<'_>,
        rng: &mut Rng,
        whom: &mut Asked,
    ) -> Option<Instant> {
        let until = self.policy.ask(now, from, rng, whom);
        assert!(whom.iter().all(|id| from.ids.contains(id)), "{whom:?} of {:?}", from.ids);
        let different: BTreeSet<_> = whom.iter().collect();
        assert_eq!(different.len(), whom.len(), "nobody is asked twice for one request");
        assert!(until.is_none_or(|until| until >= now), "a wait ends");
        until
    }

    fn next_probe(&mut self) -> Option<ReplicaId> {
        self.policy.next_probe()
    }

    fn on_probe(&mut self, now: Instant, replica: ReplicaId, answer: Option<&Feedback>) {
        self.policy.on_probe(now, replica, answer);
    }
}
