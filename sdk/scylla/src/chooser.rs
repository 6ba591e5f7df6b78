//! Core's dispatcher, told what a driver tells.
//!
//! A driver has its own retries, its own timers and its own ways to forget a request: it asks for
//! one target after the other and does not say why. So a request is a call of the dispatcher's, and
//! what a further target is for is told from what came before ([`Chooser::asks_for_copy`]). What
//! the driver does not tell (see the crate's first lines) is bounded by age and by number, so that
//! nothing is in flight for ever and no memory is lost.

use std::collections::BTreeMap;
use std::fmt;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::call::ATTEMPTS_MAX;
use evenkeel_core::request::redundancy::{Hedge, HedgeConfig, HedgeStats};
use evenkeel_core::request::select::Policy;
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Failure, Kind, Outcome, Replay,
    Request, Step,
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
    /// Targets that are kept in the books: 65,536. Beyond it the oldest are given up.
    pub targets_max: usize,
    /// Sets of candidates that are kept: 1,024. Beyond it all are forgotten, and met anew.
    pub groups_max: usize,
    /// Seed of the policy's randomness; processes should differ in it.
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { untold: Duration::from_secs(60), targets_max: 65_536, groups_max: 1_024, seed: 0 }
    }
}

/// A driver that retries does so at once.
const RETRIED_WITHIN: Duration = Duration::from_micros(250);

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
    /// Of those chosen, copies of requests that took long.
    pub copies: u64,
    /// Copies that answered first.
    pub won: u64,
    /// Copies that were due and kept back.
    pub denied: u64,
    /// Given up because another copy of the request answered.
    pub lost: u64,
    /// Given up because the caller left, as far as it was noticed.
    pub abandoned: u64,
    /// Never heard of again within [`Limits::untold`], or beyond [`Limits::targets_max`].
    pub untold: u64,
    /// Told of, but not known to be sent: retries on the same node, mostly.
    pub unexpected: u64,
}

/// A target the driver took.
struct Target {
    slot: ReplicaId,
    sent_at: Instant,
    /// `None` once the driver told of its end: it is kept for what the request has tried.
    attempt: Option<Attempt>,
    /// It failed, and the driver took no other since.
    may_be_retried: bool,
}

/// How a target ended.
enum End {
    /// As the driver told.
    Told(Outcome),
    /// Another copy of its request answered.
    Lost,
    /// Nobody knows, nor when; or it was never sent to.
    Unknown,
}

/// Whom to ask, and what is in flight where.
pub struct Chooser {
    limits: Limits,
    dispatcher: Dispatcher,
    plan: RoutePlan,
    /// The nodes by slot, and their slots.
    nodes: Vec<NodeId>,
    slots: BTreeMap<NodeId, ReplicaId>,
    /// The groups by their members, ascending.
    groups: BTreeMap<Box<[ReplicaId]>, GroupId>,
    /// The requests that live, unless all their targets were the driver's choice.
    calls: BTreeMap<RequestId, Call>,
    /// Numbers rise with time.
    targets: BTreeMap<(RequestId, u64), Target>,
    by_age: BTreeMap<u64, RequestId>,
    number: u64,
    /// Whether it says when copies leave; otherwise they are the driver's affair.
    hedges: bool,
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
            plan: RoutePlan {
                version: 0,
                health: Vec::new(),
                generations: Vec::new(),
                groups: Vec::new(),
            },
            nodes: Vec::new(),
            slots: BTreeMap::new(),
            groups: BTreeMap::new(),
            calls: BTreeMap::new(),
            targets: BTreeMap::new(),
            by_age: BTreeMap::new(),
            number: 0,
            hedges: false,
            counts: Counts::default(),
            room: Vec::new(),
        }
    }

    /// The same one, but it says when copies leave, and whether.
    #[must_use]
    pub fn with_hedge(mut self, config: HedgeConfig) -> Self {
        self.dispatcher = self.dispatcher.with_redundancy(Box::new(Hedge::new(config)));
        self.hedges = true;
        self
    }

    /// Copies that a request which begins now may have beside its first: none while nothing is
    /// learnt, or copies would only add load.
    pub fn copies_max(&mut self) -> usize {
        let is_foreseen = |sent: &usize| self.dispatcher.copy_due(*sent).is_some();
        (1..ATTEMPTS_MAX).take_while(is_foreseen).count()
    }

    /// After how long a request that begins now is given a copy.
    pub fn copy_due(&mut self) -> Option<Duration> {
        self.dispatcher.copy_due(1)
    }

    /// A request begins. What is left of an earlier one of its number is over: its caller left.
    ///
    /// Unless it failed a moment ago at a node that nobody was asked for: later pages of a result
    /// go to the node of the first, and only their retries come here. That node was tried.
    pub fn begin(&mut self, now: Instant, request: RequestId) {
        self.sweep(now);
        let is_fresh = |target: &Target| now < target.sent_at + RETRIED_WITHIN;
        let is_retry = !self.calls.contains_key(&request)
            && self.of(request).all(|(_, target)| target.attempt.is_none())
            && self.of(request).any(|(_, target)| target.may_be_retried && is_fresh(target));
        if !is_retry {
            self.end(now, request, false);
        }
    }

    /// Chooses one of the candidates, by its place, and counts it as sent to: the first of its
    /// request, or the next because one failed. `None` when there are none.
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
        let attempt = match self.calls.get_mut(&request) {
            Some(call) => {
                call.regroup(group);
                self.dispatcher.retry(now, call)
            }
            None => self.open(now, request, group),
        };
        // A plan cannot wait. What a policy would hold back goes where least is in flight.
        let attempt = attempt.unwrap_or_else(|| {
            let slot = self.idlest(group);
            self.mirror(now, slot)
        });
        self.counts.chosen += 1;
        self.keep(now, request, attempt, candidates)
    }

    /// Whether a driver that asks for another target of a request wants a copy of it, as far as can
    /// be told: something of it is in flight, and nothing failed since a target was taken last.
    ///
    /// A target that the driver took last and that has no connection is `lost`: nothing was sent
    /// there, or nothing will come back, and the driver goes on with what it was about.
    pub fn asks_for_copy(
        &mut self,
        now: Instant,
        request: RequestId,
        lost: Option<NodeId>,
    ) -> bool {
        let (mut is_in_flight, mut last) = (false, None);
        for (number, target) in self.of(request) {
            if target.may_be_retried {
                return false;
            }
            is_in_flight |= target.attempt.is_some();
            last = Some((number, target));
        }
        let Some((number, last)) = last.filter(|_| self.hedges && is_in_flight) else {
            return false;
        };
        if lost == Some(self.nodes[last.slot.index()]) {
            self.pass_over(now, request, number);
        }
        lost.is_none()
    }

    /// Chooses one of the candidates for a copy of a request that takes long, by its place. `None`
    /// when the budget, the gate or the policy keep it back: the request will have none.
    pub fn copy(
        &mut self,
        now: Instant,
        request: RequestId,
        candidates: &[NodeId],
    ) -> Option<usize> {
        let group = if candidates.is_empty() { None } else { Some(self.group(now, candidates)) };
        let attempt = group.and_then(|group| {
            let call = self.calls.get_mut(&request)?;
            call.regroup(group);
            self.dispatcher.copy(now, call)
        });
        let Some(attempt) = attempt else {
            self.counts.denied += 1;
            return None;
        };
        self.counts.chosen += 1;
        self.counts.copies += 1;
        self.keep(now, request, attempt, candidates)
    }

    /// Counts a node as sent to that was not chosen here.
    pub fn sent(&mut self, now: Instant, request: RequestId, node: NodeId) {
        let slot = self.slot(now, node);
        let attempt = self.mirror(now, slot);
        self.counts.others += 1;
        self.keep(now, request, attempt, &[]);
    }

    /// The nodes that a request was sent to so far.
    pub fn tried(&self, request: RequestId) -> impl Iterator<Item = NodeId> + '_ {
        self.of(request).map(|(_, target)| self.nodes[target.slot.index()])
    }

    /// A node answered a request after `latency`: the request is over, and its other copies lost.
    pub fn answered(&mut self, now: Instant, request: RequestId, node: NodeId, latency: Duration) {
        let attempt = self.take(now, request, node, latency);
        self.counts.won += u64::from(attempt.kind() == Kind::Hedge);
        self.conclude(now, request, attempt, &End::Told(Outcome::Replied(None)));
        self.counts.answered += 1;
        self.end(now, request, true);
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
        let attempt = self.take(now, request, node, latency);
        let slot = attempt.replica();
        let outcome = failure.map_or(Outcome::Cancelled, Outcome::Failed);
        self.conclude(now, request, attempt, &End::Told(outcome));
        self.counts.failed += 1;
        let known = self.of(request).find(|(_, target)| target.slot == slot);
        let number = match known.map(|(number, _)| number) {
            Some(number) => number,
            None => self.write_down(now, request, slot, None),
        };
        if let Some(target) = self.targets.get_mut(&(request, number)) {
            target.may_be_retried = true;
        }
    }

    /// Targets in flight at a node, as far as is known.
    #[must_use]
    pub fn in_flight(&self, node: NodeId) -> u32 {
        let slot = self.slots.get(&node);
        slot.map_or(0, |&slot| self.dispatcher.fleet().replica(slot).in_flight())
    }

    /// What became of all targets so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// How the hedge stands; `None` when copies are the driver's affair.
    #[must_use]
    pub fn hedge(&self) -> Option<HedgeStats> {
        self.dispatcher.hedge()
    }

    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.dispatcher.policy()
    }

    /// Gives up what is too old.
    fn sweep(&mut self, now: Instant) {
        let Limits { untold, targets_max, .. } = self.limits;
        while let Some((&number, &request)) = self.by_age.first_key_value()
            && (self.by_age.len() > targets_max
                || self.targets[&(request, number)].sent_at + untold <= now)
        {
            let target = self.remove((request, number));
            if let Some(attempt) = target.and_then(|target| target.attempt) {
                self.conclude(now, request, attempt, &End::Unknown);
                self.counts.untold += 1;
            }
            if self.first(request).is_none() {
                self.close(now, request);
            }
        }
    }

    /// The first target of a request; `None` when the policy would hold it back.
    fn open(&mut self, now: Instant, request: RequestId, group: GroupId) -> Option<Attempt> {
        self.number += 1;
        // The driver knows what may be sent twice: it asks for no copy of anything else.
        let asked = Request::new(group, Replay::Always);
        let mut call = self.dispatcher.open(now, CallId(self.number), asked);
        let step = self.dispatcher.step(now, &mut call);
        if let Step::Send(attempt) = step {
            self.calls.insert(request, call);
            return Some(attempt);
        }
        self.dispatcher.close(now, call);
        while self.dispatcher.resumed().is_some() {} // nothing is held longer than this
        None
    }

    fn pass_over(&mut self, now: Instant, request: RequestId, number: u64) {
        let target = self.targets.get_mut(&(request, number));
        if let Some(attempt) = target.and_then(|target| target.attempt.take()) {
            self.conclude(now, request, attempt, &End::Unknown);
        }
    }

    fn close(&mut self, now: Instant, request: RequestId) {
        if let Some(call) = self.calls.remove(&request) {
            self.dispatcher.close(now, call);
        }
    }

    /// An attempt that is no call's.
    fn mirror(&mut self, now: Instant, slot: ReplicaId) -> Attempt {
        self.number += 1;
        self.dispatcher.mirror(now, CallId(self.number), slot)
    }

    /// Writes down what a request was sent to; the candidates' place of it.
    fn keep(
        &mut self,
        now: Instant,
        request: RequestId,
        attempt: Attempt,
        candidates: &[NodeId],
    ) -> Option<usize> {
        for (_, target) in self.targets.range_mut((request, 0)..=(request, u64::MAX)) {
            target.may_be_retried = false; // this is it
        }
        while let Some(probe) = self.dispatcher.probe(now) {
            self.dispatcher.learn_probe(now, &probe, None); // there is nobody to ask
        }
        let slot = attempt.replica();
        self.write_down(now, request, slot, Some(attempt));
        let chosen = self.nodes[slot.index()];
        candidates.iter().position(|&node| node == chosen)
    }

    fn write_down(
        &mut self,
        now: Instant,
        request: RequestId,
        slot: ReplicaId,
        attempt: Option<Attempt>,
    ) -> u64 {
        self.number += 1;
        let target = Target { slot, sent_at: now, attempt, may_be_retried: false };
        self.targets.insert((request, self.number), target);
        self.by_age.insert(self.number, request);
        self.number
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

    /// The attempt at a node that the driver tells of; one made up when there is none, so that what
    /// is told is learnt from.
    fn take(
        &mut self,
        now: Instant,
        request: RequestId,
        node: NodeId,
        latency: Duration,
    ) -> Attempt {
        let slot = self.slot(now, node);
        let is_it = |target: &Target| target.slot == slot && target.attempt.is_some();
        let number = self.of(request).find(|(_, target)| is_it(target)).map(|(number, _)| number);
        let target = number.and_then(|number| self.targets.get_mut(&(request, number)));
        target.and_then(|target| target.attempt.take()).unwrap_or_else(|| {
            self.counts.unexpected += 1;
            let sent_ns = now.as_nanos().saturating_sub(latency.as_nanos() as u64);
            self.mirror(Instant::from_nanos(sent_ns), slot)
        })
    }

    /// A request is over: answered, or its caller left. Whatever of it nobody told of is nobody's.
    fn end(&mut self, now: Instant, request: RequestId, is_answered: bool) {
        while let Some(number) = self.first(request) {
            let target = self.remove((request, number));
            let Some(attempt) = target.and_then(|target| target.attempt) else { continue };
            if is_answered {
                self.counts.lost += 1;
                self.conclude(now, request, attempt, &End::Lost);
            } else {
                self.counts.abandoned += 1;
                self.conclude(now, request, attempt, &End::Unknown);
            }
        }
        self.close(now, request);
    }

    fn conclude(&mut self, now: Instant, request: RequestId, mut attempt: Attempt, end: &End) {
        let settled = match end {
            End::Told(outcome) => self.dispatcher.learn(now, &mut attempt, outcome),
            End::Lost => self.dispatcher.give_up(now, &mut attempt),
            End::Unknown => self.dispatcher.forget(now, &mut attempt),
        };
        if let Some(call) = self.calls.get_mut(&request)
            && call.id() == attempt.call()
        {
            call.settle(settled);
        }
        self.dispatcher.finish(now, attempt, BodyEnd::Complete);
    }

    fn idlest(&self, group: GroupId) -> ReplicaId {
        let fleet = self.dispatcher.fleet();
        let least = fleet.group(group).iter().min_by_key(|&&slot| fleet.replica(slot).in_flight());
        *least.expect("no group is empty")
    }

    fn slot(&mut self, now: Instant, node: NodeId) -> ReplicaId {
        if let Some(&slot) = self.slots.get(&node) {
            return slot;
        }
        let slot = ReplicaId::new(self.nodes.len());
        self.nodes.push(node);
        self.slots.insert(node, slot);
        self.plan.health.push(Health::Up);
        self.adopt(now);
        slot
    }

    /// The group of these nodes; made when it is met for the first time.
    fn group(&mut self, now: Instant, candidates: &[NodeId]) -> GroupId {
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        room.extend(candidates.iter().map(|&node| self.slot(now, node)));
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
