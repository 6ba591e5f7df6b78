//! Core's dispatcher, told what a driver tells.
//!
//! A driver has its own retries, its own speculative copies and its own ways to forget a request;
//! here every target that it sends to is a call of its own, with one attempt. What the driver does
//! not tell (see the crate's first lines) is bounded by age and by number, so that nothing is in
//! flight for ever and no memory is lost.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::select::Policy;
use evenkeel_core::request::{
    Attempt, CallId, Dispatcher, DispatcherConfig, Failure, Outcome, Replay, Request, Step,
};
use evenkeel_core::time::{Duration, Instant};
use evenkeel_core::{Fleet, GroupId, Health, ReplicaId};

/// A node, by its host id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u128);

/// A request of the driver while it lives. A request that ended may leave its number to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub usize);

/// What bounds the books.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A target whose end was not told of is given up after this time: 60 s. Longer than any
    /// request of the application takes.
    pub untold: Duration,
    /// What was given up counts as in flight for this long at most: 1 s.
    pub abandoned: Duration,
    /// Targets that are kept in the books: 65,536. Beyond it the oldest are given up.
    pub targets_max: usize,
    /// Sets of candidates that are kept: 1,024. Beyond it all are forgotten, and met anew.
    pub groups_max: usize,
    /// Seed of the policy's randomness; processes should differ in it.
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            untold: Duration::from_secs(60),
            abandoned: Duration::from_secs(1),
            targets_max: 65_536,
            groups_max: 1_024,
            seed: 0,
        }
    }
}

/// What became of all targets so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Sent to, by choice of the policy.
    pub chosen: u64,
    /// Sent to by choice of the driver.
    pub others: u64,
    /// Answered.
    pub answered: u64,
    /// Failed.
    pub failed: u64,
    /// Given up, as far as it was noticed: another copy won, or the caller left.
    pub abandoned: u64,
    /// Never heard of again within [`Limits::untold`], or beyond [`Limits::targets_max`].
    pub untold: u64,
    /// Told of, but not known to be sent: retries on the same node, mostly.
    pub unexpected: u64,
}

/// A target the driver took.
struct Target {
    seat: ReplicaId,
    sent_at: Instant,
    /// `None` once the driver told of its end: it is kept for what the request has tried.
    attempt: Option<Attempt>,
}

/// An attempt nobody waits for any more.
struct Abandoned {
    /// When it ceases to count.
    until: Instant,
    number: u64,
    attempt: Attempt,
}

/// Whom to ask, and what is in flight where.
pub struct Chooser {
    limits: Limits,
    dispatcher: Dispatcher,
    plan: RoutePlan,
    /// The nodes by seat, and their seats.
    nodes: Vec<NodeId>,
    seats: BTreeMap<NodeId, ReplicaId>,
    /// The groups by their members, ascending.
    groups: BTreeMap<Box<[ReplicaId]>, GroupId>,
    /// Numbers rise with time.
    targets: BTreeMap<(RequestId, u64), Target>,
    by_age: BTreeMap<u64, RequestId>,
    /// By `until`.
    abandoned: VecDeque<Abandoned>,
    number: u64,
    counts: Counts,
    room: Vec<ReplicaId>,
}

impl fmt::Debug for Chooser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = formatter.debug_struct("Chooser");
        all.field("policy", &self.dispatcher.policy()).field("nodes", &self.nodes);
        all.field("in_flight", &self.dispatcher.fleet().in_flight());
        all.field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Chooser {
    /// With a policy, for one of `clients` processes that use the same nodes (C3 weights its own
    /// requests in flight by it).
    #[must_use]
    pub fn new(policy: &Policy, clients: u32, limits: Limits) -> Self {
        let config =
            DispatcherConfig { retries_max: 0, seed: limits.seed, ..DispatcherConfig::default() };
        let fleet = Fleet::new(0, Vec::new());
        Self {
            limits,
            dispatcher: Dispatcher::new(fleet, policy.make(clients), config),
            plan: RoutePlan { version: 0, health: Vec::new(), groups: Vec::new() },
            nodes: Vec::new(),
            seats: BTreeMap::new(),
            groups: BTreeMap::new(),
            targets: BTreeMap::new(),
            by_age: BTreeMap::new(),
            abandoned: VecDeque::new(),
            number: 0,
            counts: Counts::default(),
            room: Vec::new(),
        }
    }

    /// A request begins. What is left of an earlier one of its number is over: its caller left.
    pub fn begin(&mut self, now: Instant, request: RequestId) {
        self.sweep(now);
        self.end(now, request);
    }

    /// Chooses one of the candidates, by its place, and counts it as sent to. `None` when there
    /// are none.
    pub fn choose(
        &mut self,
        now: Instant,
        request: RequestId,
        candidates: &[NodeId],
    ) -> Option<usize> {
        if candidates.is_empty() {
            return None;
        }
        let group = self.group(now, candidates);
        self.number += 1;
        let id = CallId(self.number);
        let mut call = self.dispatcher.open(now, id, Request { group, replay: Replay::IfUnsent });
        let attempt = match self.dispatcher.step(now, &mut call) {
            Step::Send(attempt) => attempt,
            // A plan cannot wait. What a policy would hold back goes where least is in flight.
            _ => {
                let seat = self.idlest(group);
                self.dispatcher.mirror(now, id, seat)
            }
        };
        self.dispatcher.close(now, call);
        while self.dispatcher.resumed().is_some() {} // no call outlives its choice
        while let Some(probe) = self.dispatcher.probe(now) {
            self.dispatcher.learn_probe(now, &probe, None); // there is nobody to ask
        }
        self.counts.chosen += 1;
        let chosen = self.nodes[attempt.replica().index()];
        self.keep(now, request, attempt);
        candidates.iter().position(|&node| node == chosen)
    }

    /// Counts a node as sent to that was not chosen here.
    pub fn sent(&mut self, now: Instant, request: RequestId, node: NodeId) {
        let seat = self.seat(now, node);
        self.number += 1;
        let attempt = self.dispatcher.mirror(now, CallId(self.number), seat);
        self.counts.others += 1;
        self.keep(now, request, attempt);
    }

    /// The nodes that a request was sent to so far.
    pub fn tried(&self, request: RequestId) -> impl Iterator<Item = NodeId> + '_ {
        self.of(request).map(|(_, target)| self.nodes[target.seat.index()])
    }

    /// A node answered a request after `latency`: the request is over, and so are its other copies.
    pub fn answered(&mut self, now: Instant, request: RequestId, node: NodeId, latency: Duration) {
        let (number, attempt) = self.take(now, request, node, latency);
        let seat = attempt.replica();
        self.finish(now, attempt, &Outcome::Replied(None));
        self.counts.answered += 1;
        self.end(now, request);
        if let Some(number) = number {
            self.answers_again(now, seat, number);
        }
    }

    /// A node failed a request after `latency`. `None` as the failure says nothing about the node
    /// (it answered that the request is wrong).
    pub fn failed(
        &mut self,
        now: Instant,
        request: RequestId,
        node: NodeId,
        latency: Duration,
        failure: Option<Failure>,
    ) {
        let (_, attempt) = self.take(now, request, node, latency);
        self.finish(now, attempt, &failure.map_or(Outcome::Cancelled, Outcome::Failed));
        self.counts.failed += 1;
    }

    /// Targets in flight at a node, as far as is known.
    #[must_use]
    pub fn in_flight(&self, node: NodeId) -> u32 {
        let seat = self.seats.get(&node);
        seat.map_or(0, |&seat| self.dispatcher.fleet().replica(seat).in_flight())
    }

    /// What became of all targets so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.dispatcher.policy()
    }

    /// Gives up what is too old.
    fn sweep(&mut self, now: Instant) {
        while self.abandoned.front().is_some_and(|oldest| oldest.until <= now) {
            self.end_abandoned(now, 0);
        }
        let Limits { untold, targets_max, .. } = self.limits;
        while let Some((&number, &request)) = self.by_age.first_key_value()
            && (self.by_age.len() > targets_max
                || self.targets[&(request, number)].sent_at + untold <= now)
        {
            let Some(target) = self.remove((request, number)) else { continue };
            let Some(attempt) = target.attempt else { continue };
            self.finish(now, attempt, &Outcome::Cancelled);
            self.counts.untold += 1;
        }
    }

    fn keep(&mut self, now: Instant, request: RequestId, attempt: Attempt) {
        let target = Target { seat: attempt.replica(), sent_at: now, attempt: Some(attempt) };
        self.targets.insert((request, self.number), target);
        self.by_age.insert(self.number, request);
    }

    fn of(&self, request: RequestId) -> impl Iterator<Item = (u64, &Target)> + '_ {
        let all = self.targets.range((request, 0)..=(request, u64::MAX));
        all.map(|(&(_, number), target)| (number, target))
    }

    fn first(&self, request: RequestId) -> Option<u64> {
        self.of(request).map(|(number, _)| number).next()
    }

    fn remove(&mut self, key: (RequestId, u64)) -> Option<Target> {
        self.by_age.remove(&key.1);
        self.targets.remove(&key)
    }

    /// The attempt at a node that the driver tells of, and its number; one made up when there is
    /// none, so that what is told is learnt from.
    fn take(
        &mut self,
        now: Instant,
        request: RequestId,
        node: NodeId,
        latency: Duration,
    ) -> (Option<u64>, Attempt) {
        let seat = self.seat(now, node);
        let is_it = |target: &Target| target.seat == seat && target.attempt.is_some();
        let number = self.of(request).find(|(_, target)| is_it(target)).map(|(number, _)| number);
        let target = number.and_then(|number| self.targets.get_mut(&(request, number)));
        if let Some(attempt) = target.and_then(|target| target.attempt.take()) {
            return (number, attempt);
        }
        self.counts.unexpected += 1;
        self.number += 1;
        let sent_at = Instant::from_nanos(now.as_nanos().saturating_sub(latency.as_nanos() as u64));
        (None, self.dispatcher.mirror(sent_at, CallId(self.number), seat))
    }

    /// A request is over: whatever of it nobody told of is nobody's.
    fn end(&mut self, now: Instant, request: RequestId) {
        while let Some(number) = self.first(request) {
            let target = self.remove((request, number));
            let Some(attempt) = target.and_then(|target| target.attempt) else { continue };
            self.counts.abandoned += 1;
            let until = now + self.limits.abandoned;
            if self.abandoned.len() >= self.limits.targets_max {
                self.end_abandoned(now, 0);
            }
            self.abandoned.push_back(Abandoned { until, number, attempt });
        }
    }

    /// A node answered what was sent to it with this number: it has been through what came before.
    fn answers_again(&mut self, now: Instant, seat: ReplicaId, number: u64) {
        let mut place = 0;
        while let Some(other) = self.abandoned.get(place) {
            if other.attempt.replica() == seat && other.number < number {
                self.end_abandoned(now, place);
            } else {
                place += 1;
            }
        }
    }

    fn end_abandoned(&mut self, now: Instant, place: usize) {
        if let Some(over) = self.abandoned.remove(place) {
            self.finish(now, over.attempt, &Outcome::Cancelled);
        }
    }

    fn finish(&mut self, now: Instant, mut attempt: Attempt, outcome: &Outcome) {
        let _ = self.dispatcher.learn(now, &mut attempt, outcome);
        self.dispatcher.finish(now, attempt);
    }

    fn idlest(&self, group: GroupId) -> ReplicaId {
        let fleet = self.dispatcher.fleet();
        let least = fleet.group(group).iter().min_by_key(|&&seat| fleet.replica(seat).in_flight());
        *least.expect("no group is empty")
    }

    fn seat(&mut self, now: Instant, node: NodeId) -> ReplicaId {
        if let Some(&seat) = self.seats.get(&node) {
            return seat;
        }
        let seat = ReplicaId::new(self.nodes.len());
        self.nodes.push(node);
        self.seats.insert(node, seat);
        self.plan.health.push(Health::Up);
        self.adopt(now);
        seat
    }

    /// The group of these nodes; made when it is met for the first time.
    fn group(&mut self, now: Instant, candidates: &[NodeId]) -> GroupId {
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        room.extend(candidates.iter().map(|&node| self.seat(now, node)));
        room.sort_unstable();
        room.dedup();
        let known = self.groups.get(room.as_slice()).copied();
        let group = known.unwrap_or_else(|| {
            if self.plan.groups.len() >= self.limits.groups_max {
                self.groups.clear(); // no call is open that knows one by its number
                self.plan.groups.clear();
            }
            let group = GroupId::new(self.plan.groups.len());
            self.groups.insert(room.as_slice().into(), group);
            self.plan.groups.push(room.clone());
            self.adopt(now);
            group
        });
        self.room = room;
        group
    }

    fn adopt(&mut self, now: Instant) {
        self.plan.version += 1;
        self.dispatcher.adopt(now, &self.plan);
    }
}
