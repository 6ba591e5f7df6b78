//! The life of a call: open → step* → learn → finish → close. Read from top to bottom.
//!
//! The proxy and the simulator drive the same lines:
//!
//! ```text
//! let mut call = dispatcher.open(now, id, request);
//! loop {
//!     match dispatcher.step(now, &mut call) {
//!         Step::Send(attempt)    => send a copy to attempt.replica()
//!         Step::Cancel(copy)     => give_up that attempt, and finish it
//!         Step::Wait { until }   => wait for an outcome, for `until`, or to be resumed
//!         Step::Answered(copy)   => hand that attempt's answer to the caller; close
//!         Step::Refused(refusal) => tell the caller why; close
//!     }
//! }
//! // whenever an attempt has an outcome, also after its call was closed:
//! let settled = dispatcher.learn(now, &mut attempt, &outcome);
//! call.settle(settled);
//! dispatcher.finish(now, attempt, end);   // when its last byte has passed, or none will come
//! ```

mod by_client;
mod deciding;
mod further;
mod lasting;
mod listening;
mod moving;
mod pinging;
mod probing;
mod recording;

use lasting::{is_censored, lasted, tells_latency};
use pinging::OldAge;
pub use probing::Probe;
use probing::Questions;

use crate::distribution::Recorder;
use crate::fleet::{Feedback, Fleet, GroupId, Replica, ReplicaId};
use crate::plan::RoutePlan;
use crate::request::backlog::Backlog;
use crate::request::call::{
    Attempt, BodyEnd, Call, CallId, CopyRecord, CopyState, End, Failure, Kind, Learnt, Listening,
    MIRROR, Origin, Outcome, Phase, Queued, Refusal, Request, Settled, Step,
};
use crate::request::copies::Recording;
use crate::request::decision::{Decisions, Verdict};
use crate::request::redundancy::{Budget, HedgeStats, Redundancy, Single};
use crate::request::safeguards::{Distrust, Safeguards, untried};
use crate::request::select::exploring::Exploring;
use crate::request::select::{Candidates, Choice, Selector, cheapest};
use crate::request::siblings::Seat;
use crate::rng::Rng;
use crate::time::{Deadline, Duration, Instant, Why};
use crate::units::Dimmer;
use crate::window::{ReplicaWindow, RequestWindow};

/// How a dispatcher behaves, apart from its policy.
#[derive(Clone, Debug)]
pub struct DispatcherConfig {
    /// Protection from failing, dead and new replicas.
    pub safeguards: Safeguards,
    /// Retries one call may make: 0 to 6.
    pub retries_max: u8,
    /// Retries as a share of calls: a failing fleet must not be loaded twice (a retry storm).
    pub retry_budget: Budget,
    /// Calls of one group that may be held; further ones are refused.
    pub backlog_calls_max: usize,
    /// Whether the driver asks replicas for their state ([`Dispatcher::probe`]). Where it does not,
    /// no request waits for answers.
    pub can_ask: bool,
    /// Whether to record the latency of every answered call into the window.
    pub record_latency: bool,
    /// Seed of the policy's randomness.
    pub seed: u64,
}

impl Default for DispatcherConfig {
    fn default() -> Self {
        Self {
            safeguards: Safeguards::default(),
            retries_max: 1,
            retry_budget: Budget::of_retries(0.2),
            backlog_calls_max: 1_024,
            can_ask: false,
            record_latency: false,
            seed: 0,
        }
    }
}

/// Decides, for one worker thread, what happens to every request.
#[derive(Debug)]
pub struct Dispatcher {
    config: DispatcherConfig,
    fleet: Fleet,
    selector: Box<dyn Selector>,
    redundancy: Box<dyn Redundancy>,
    backlog: Backlog,
    window: RequestWindow,
    rng: Rng,
    plan_version: u64,
    /// Whether the policy ever wants to hear something before it chooses.
    asks: bool,
    /// Where other workers have the same replicas.
    seat: Option<Box<Seat>>,
    questions: Questions,
    old_age: OldAge,
    moves: Budget,
    /// The attempt that is to be given up as its call moved elsewhere.
    moved: Option<(CallId, u8)>,
    /// First copies in flight, for the hedge: copies are no load.
    firsts: u32,
    /// Room for narrowed candidates, kept so that no request allocates.
    room: Vec<ReplicaId>,
    /// What the last step decided and why; `None` where nobody asks.
    decisions: Option<Box<Decisions>>,
    /// Calls that were opened since it began.
    opened: u64,
    recording: Option<Box<Recording>>,
}

impl Dispatcher {
    /// A dispatcher over a fleet, with a policy and without redundancy.
    pub fn new(fleet: Fleet, selector: Box<dyn Selector>, config: DispatcherConfig) -> Self {
        let room = Vec::with_capacity(fleet.len());
        let backlog = Backlog::new(config.backlog_calls_max);
        let rng = Rng::stream(config.seed, "dispatcher");
        let asks = config.can_ask && selector.asks();
        let mut dispatcher = Self {
            config,
            fleet,
            asks,
            seat: None,
            questions: Questions::default(),
            old_age: OldAge::default(),
            moves: moving::budget(),
            moved: None,
            selector,
            redundancy: Box::new(Single),
            backlog,
            window: RequestWindow::default(),
            rng,
            plan_version: 0,
            firsts: 0,
            room,
            decisions: None,
            opened: 0,
            recording: None,
        };
        dispatcher.selector.on_membership(Instant::ZERO, &dispatcher.fleet);
        dispatcher.window = dispatcher.empty_window();
        dispatcher
    }

    /// The same dispatcher with another redundancy.
    #[must_use]
    pub fn with_redundancy(mut self, redundancy: Box<dyn Redundancy>) -> Self {
        self.redundancy = redundancy;
        self
    }

    /// Takes a place among its siblings, if it has any: before its first call.
    pub fn take_seat(&mut self, seat: Option<Seat>) {
        self.seat = seat.map(Box::new);
    }

    /// Looks what siblings have in flight and heard, if it is time to. That is done before a
    /// choice; where nothing is asked, what is known of them grows old.
    #[inline]
    pub fn look_at_siblings(&mut self, now: Instant) {
        if let Some(seat) = &mut self.seat
            && seat.is_due(now)
        {
            seat.look(now, &mut self.fleet, &mut *self.selector);
        }
    }

    /// Begins the life of a call. `id` is the driver's name for it, unique among its open calls.
    #[inline]
    pub fn open(&mut self, now: Instant, id: CallId, request: Request) -> Call {
        self.window.opened += 1;
        self.config.retry_budget.deposit(now);
        self.moves.deposit(now);
        self.redundancy.on_open(now);
        self.opened += 1;
        Call::new(now, (id, self.opened), request)
    }

    /// What to do next. Call it again until it says `Wait`, `Answered` or `Refused`, and once more
    /// after every [`Call::settle`], resumption and deadline; further calls change nothing.
    #[inline]
    pub fn step(&mut self, now: Instant, call: &mut Call) -> Step {
        self.forget_decisions();
        match call.phase {
            Phase::Choosing(kind) => self.send_or_hold(now, call, kind),
            Phase::Flying if call.flying == 0 => self.retry_or_refuse(now, call),
            Phase::Flying if call.queued != Queued::No => self.move_or_wait(now, call),
            Phase::Flying if call.at_once > 0 => self.send_at_once(now, call),
            Phase::Flying => self.further_or_wait(now, call),
            Phase::Answered(copy) => {
                call.next_loser().map_or(Step::Answered(usize::from(copy)), Step::Cancel)
            }
            Phase::Refused(refusal) => {
                call.next_loser().map_or(Step::Refused(refusal), Step::Cancel)
            }
        }
    }

    /// Learns what became of an attempt: once, also for attempts whose call is closed (the replies
    /// of copies that lost say most about slow replicas).
    ///
    /// # Panics
    /// When this attempt was learnt from before.
    #[inline]
    pub fn learn(&mut self, now: Instant, attempt: &mut Attempt, outcome: &Outcome) -> Settled {
        assert!(!attempt.is_learnt(), "an attempt is learnt from once");
        attempt.learnt = Learnt::NoReply;
        let is_current = self.is_current(attempt);
        if is_current {
            match outcome {
                Outcome::Replied(feedback) => self.learn_reply(now, attempt, feedback.as_ref()),
                Outcome::Failed(failure) => self.learn_failure(now, attempt.replica, *failure),
                Outcome::Cancelled => {
                    self.fleet.replica_mut(attempt.replica).silence.given_up();
                    self.window.replicas[attempt.replica.index()].cancelled += 1;
                }
            }
            if is_censored(outcome) {
                let counts = &mut self.window.replicas[attempt.replica.index()];
                counts.censored += 1;
                counts.censored_us_sum += now.nanos_since(attempt.sent_at) / 1_000;
            }
        }
        if attempt.kind != Kind::Mirror && tells_latency(outcome) {
            self.redundancy.on_end(now, &lasted(now, attempt, outcome));
        }
        if is_current {
            self.selector.on_outcome(now, attempt, outcome, &self.fleet);
        }
        self.note_copy(now, attempt, outcome);
        Settled { call: attempt.call, copy: attempt.copy, end: End::of(outcome) }
    }

    /// Whether the slot of an attempt is still its replica's. A reply that comes later is an
    /// answer to its call, and nothing is learnt from it about the slot's new replica.
    #[inline]
    fn is_current(&self, attempt: &Attempt) -> bool {
        self.fleet.is_current(attempt.replica, attempt.generation)
    }

    /// Gives a copy up because another won ([`Step::Cancel`]), and learns that. Its replica may be
    /// busy with it for a while: that is what is different from [`Outcome::Cancelled`], which says
    /// nothing of the replica.
    ///
    /// # Panics
    /// When this attempt was learnt from before.
    #[inline]
    pub fn give_up(&mut self, now: Instant, attempt: &mut Attempt) -> Settled {
        if self.moved.take_if(|it| *it == (attempt.call, attempt.copy)).is_some() {
            return self.forget(now, attempt); // how long it waited is the next one's to tell
        }
        let waited_ns = now.nanos_since(attempt.sent_at);
        if !self.is_current(attempt) {
            return self.learn(now, attempt, &Outcome::Cancelled);
        }
        let replica = self.fleet.replica_mut(attempt.replica);
        replica.given_up.add(now, waited_ns);
        if let Some(seat) = &self.seat {
            seat.note_given_up(attempt.replica, replica);
        }
        self.learn(now, attempt, &Outcome::Cancelled)
    }

    /// Hears the dimmer that came on an attempt's answer outside the replica's report. Call it
    /// before [`Dispatcher::learn`]: the policy learns from an answer whose facts are known.
    #[inline]
    pub fn receive_dimmer(&mut self, now: Instant, of: &Attempt, dimmer: Dimmer) {
        if self.is_current(of) {
            self.fleet.note_dimmer(now, of.replica, dimmer);
        }
    }

    /// Ends an attempt: its last byte has passed, or it was given up. An attempt that nobody
    /// learnt from counts as cancelled.
    ///
    /// Latency, hedging and the policy learnt from the head; what is counted of an answer, and
    /// whether its replica keeps failing, depends on how its body ended. So every attempt has one
    /// outcome in the window: an answer with a broken body is a failure and no success.
    #[inline]
    pub fn finish(&mut self, now: Instant, mut attempt: Attempt, end: BodyEnd) {
        if !attempt.is_learnt() {
            let _ = self.learn(now, &mut attempt, &Outcome::Cancelled);
        }
        if self.is_current(&attempt) {
            if let Learnt::Reply { latency_us } = attempt.learnt {
                self.end_reply(now, attempt.replica, latency_us, end);
            }
            let replica = self.fleet.replica_mut(attempt.replica);
            assert!(replica.in_flight > 0, "finished more often than sent");
            replica.in_flight -= 1;
            if let Some(seat) = &self.seat {
                seat.note_in_flight(attempt.replica, replica);
            }
        }
        self.firsts -= u32::from(attempt.kind.is_alone());
    }

    /// Ends a call, answered or not. Attempts still on their way live on: cancel, then learn from
    /// and finish each.
    #[inline]
    pub fn close(&mut self, now: Instant, mut call: Call) {
        if matches!(call.listening, Listening::Until(_)) {
            self.stop_listening(&mut call);
        }
        if call.held {
            self.backlog.leave(call.request.group, call.id);
        }
        match call.phase {
            Phase::Answered(copy) => {
                self.window.answered += 1;
                if call.copies[usize::from(copy)].kind == Kind::Hedge {
                    self.window.hedges_won += 1;
                }
                self.record_latency(now.since(call.opened_at));
            }
            Phase::Refused(refusal) => {
                self.window.refused += 1;
                // It lasted at least this long; other refusals are quick, and no latencies.
                if refusal == Refusal::Failed(Failure::TimedOut) {
                    self.record_latency(now.since(call.opened_at));
                }
            }
            Phase::Choosing(_) | Phase::Flying => self.window.abandoned += 1,
        }
    }

    fn record_latency(&mut self, latency: Duration) {
        if let Some(latencies) = &mut self.window.latency {
            latencies.record(latency);
        }
    }

    /// Sends a copy where the application wants one, whatever the policy thinks of it: a write
    /// that must reach every replica, or a read repair. It does not answer the call.
    #[inline]
    pub fn mirror(&mut self, now: Instant, call: CallId, replica: ReplicaId) -> Attempt {
        let origin = Origin { call, number: call.0, opened_at: now, group: GroupId::new(0) };
        self.start((now, now), origin, replica, Kind::Mirror, MIRROR)
    }

    #[inline]
    fn send_or_hold(&mut self, now: Instant, call: &mut Call, kind: Kind) -> Step {
        let group = call.request.group;
        if !self.backlog.is_empty() && !self.backlog.is_turn(group, call.id) {
            return self.hold(call, Instant::FAR);
        }
        if let Some(at) = self.listens(now, call) {
            return Step::Wait { until: Some(Deadline { at, why: Why::Probes }) };
        }
        match self.choose(now, call) {
            Choice::Send(replica) => {
                if call.held {
                    call.held = false;
                    self.backlog.leave(group, call.id);
                }
                Step::Send(self.send(now, call, replica, kind))
            }
            Choice::Hold { until } => {
                self.note_choice(now, call, None, Verdict::Hold);
                self.hold(call, until.min(self.held_until(call)))
            }
            Choice::Refuse => {
                let refusal = call.last_failure.map_or(Refusal::NoReplica, Refusal::Failed);
                self.note_choice(now, call, None, Verdict::Refuse(refusal));
                call.give_up(refusal)
            }
        }
    }

    /// Until when the policy may hold a call back.
    fn held_until(&self, call: &Call) -> Instant {
        call.opened_at + self.config.safeguards.hold_max
    }

    fn hold(&mut self, call: &mut Call, until: Instant) -> Step {
        let group = call.request.group;
        if call.held && !self.backlog.is_turn(group, call.id) {
            return Step::Wait { until: None }; // it keeps its place behind the head
        }
        if !self.backlog.hold(group, call.id, until) {
            return call.give_up(Refusal::BacklogFull);
        }
        if !call.held {
            call.held = true;
            self.window.held += 1;
        }
        Step::Wait { until: None }
    }

    fn retry_or_refuse(&mut self, now: Instant, call: &mut Call) -> Step {
        let failure = call.last_failure.unwrap_or(Failure::Broken);
        let safe = call.request.replay.is_allowed_after(failure);
        // It cost no replica anything, and with a fallback there may be many who can be reached.
        let is_free = failure == Failure::Unsent && call.request.fallback.is_some();
        let room = is_free || call.retries < self.config.retries_max;
        if safe && room && !call.copies.is_full() {
            if is_free || self.config.retry_budget.withdraw() {
                call.retries += u8::from(!is_free);
                call.phase = Phase::Choosing(Kind::Retry);
                return self.send_or_hold(now, call, Kind::Retry);
            }
            self.window.retries_denied += 1;
            self.note_retry_denied();
        }
        call.give_up(Refusal::Failed(failure))
    }

    fn choose(&mut self, now: Instant, call: &mut Call) -> Choice {
        let group = call.request.group;
        self.look_at_siblings(now);
        if call.at_once > 0 && call.copies.is_empty() {
            self.config.safeguards.listen(now, &mut self.fleet);
            if let Some(replica) = self.next_of_all(now, call, call.at_once + 1) {
                return Choice::Send(replica);
            }
        }
        let narrowed = self.narrow(now, call);
        let ids = narrowed.ids(&self.fleet, group, &self.room);
        if ids.is_empty()
            && let Some(fallback) = call.request.fallback
            && fallback != group
        {
            return self.fall_back(now, call, fallback);
        }
        let at_once = if call.at_once > 0 { call.at_once + 1 } else { 0 };
        let choice = self.choose_among(now, group, narrowed, at_once);
        if !matches!(choice, Choice::Hold { .. }) || now < self.held_until(call) {
            return choice;
        }
        let ids = narrowed.ids(&self.fleet, group, &self.room);
        let cost = |id| self.selector.cost(now, &self.fleet, id).unwrap_or_default();
        Choice::Send(cheapest(ids, &mut self.rng, cost))
    }

    /// Finds who may be sent a call.
    #[inline]
    fn narrow(&mut self, now: Instant, call: &Call) -> Narrowed {
        let safeguards = &self.config.safeguards;
        safeguards.listen(now, &mut self.fleet);
        let from = (&self.fleet, &call.request);
        if call.copies.is_empty() && safeguards.nothing_to_examine(now, &self.fleet) {
            if call.request.among.is_none() {
                return Narrowed::WholeGroup;
            }
            self.room.clear();
            self.room.extend(untried(from, &[]));
        } else {
            safeguards.narrow(now, from, &call.copies, &mut self.rng, &mut self.room);
        }
        Narrowed::Room
    }

    /// Goes on with another group, as nobody of a call's own is left.
    #[cold]
    fn fall_back(&mut self, now: Instant, call: &mut Call, fallback: GroupId) -> Choice {
        if core::mem::take(&mut call.held) {
            self.backlog.leave(call.request.group, call.id);
        }
        call.request.group = fallback;
        match self.backlog.is_empty() || self.backlog.is_turn(fallback, call.id) {
            true => self.choose(now, call),
            false => Choice::Hold { until: Instant::FAR },
        }
    }

    #[inline]
    fn choose_among(
        &mut self,
        now: Instant,
        group: GroupId,
        narrowed: Narrowed,
        at_once: u8,
    ) -> Choice {
        let ids = narrowed.ids(&self.fleet, group, &self.room);
        if ids.is_empty() {
            return Choice::Refuse;
        }
        if ids.len() <= usize::from(at_once) && !self.selector.holds() {
            return Choice::Send(ids[0]); // all of them get it now
        }
        let candidates = Candidates { fleet: &self.fleet, group, ids };
        let choice = self.selector.select(now, candidates, &mut self.rng);
        debug_assert!(!matches!(choice, Choice::Send(id) if !ids.contains(&id)));
        choice
    }

    #[inline]
    fn send(&mut self, now: Instant, call: &mut Call, replica: ReplicaId, kind: Kind) -> Attempt {
        self.note_choice(now, call, Some(replica), Verdict::Send(kind));
        let copy = call.copies.len() as u8;
        if copy == 0 {
            call.first_sent_at = now;
        }
        call.copies.push(CopyRecord { replica, kind, state: CopyState::Flying });
        call.flying += 1;
        call.phase = Phase::Flying;
        match kind {
            Kind::Retry => self.window.retries += 1,
            Kind::Hedge => {
                call.hedges += 1;
                self.window.hedges += 1;
            }
            Kind::Moved => self.window.moves += 1,
            Kind::First | Kind::Mirror => {}
        }
        let may_hedge = call.request.may_hedge && call.request.replay.is_allowed_in_haste();
        let delay = may_hedge.then(|| self.redundancy.copy_due(1 + usize::from(call.hedges)));
        call.hedge_due = delay.flatten().map(|delay| now + delay);
        let patience = self.put_to_test(now, replica);
        if patience.is_some() {
            call.hedge_due = None; // it would be given up before it tells anything
        }
        self.note_hedge(now, call, kind, patience.is_some());
        let attempt = self.start((call.first_sent_at, now), call.origin(), replica, kind, copy);
        // Of copies that leave at once the last one counts.
        let counts = call.at_once == 0 || patience.is_some();
        call.ping = self.ping_due(now, call);
        call.rescue_due = counts.then(|| self.rescue_due(now, call, replica, patience)).flatten();
        attempt
    }

    #[inline]
    fn start(
        &mut self,
        (first_sent_at, sent_at): (Instant, Instant),
        origin: Origin,
        replica: ReplicaId,
        kind: Kind,
        copy: u8,
    ) -> Attempt {
        let facts = self.fleet.replica_mut(replica);
        facts.in_flight += 1;
        facts.silence.sent(sent_at);
        let generation = facts.generation;
        if let Some(seat) = &self.seat {
            seat.note_in_flight(replica, facts);
        }
        self.window.replicas[replica.index()].sent += 1;
        self.selector.on_send(sent_at, replica, kind, &self.fleet);
        self.firsts += u32::from(kind.is_alone());
        let firsts = self.firsts;
        let (call, learnt, is_explored) = (origin.call, Learnt::Nothing, self.is_exploring());
        Attempt {
            call,
            replica,
            generation,
            kind,
            copy,
            sent_at,
            first_sent_at,
            firsts,
            learnt,
            origin,
            is_explored,
            size: 0,
        }
    }

    #[inline]
    fn learn_reply(&mut self, now: Instant, of: &mut Attempt, feedback: Option<&Feedback>) {
        let latency_ns = now.nanos_since(of.sent_at);
        self.fleet.heard(now, of.replica, Some(latency_ns));
        self.fleet.note_answer(now, of.replica, feedback);
        self.fleet.succeeded(now, of.replica);
        self.old_age.add(latency_ns);
        if let Some(seat) = &self.seat {
            let replica = (of.replica, self.fleet.replica(of.replica));
            seat.note_answer(replica, latency_ns, feedback);
        }
        of.learnt = Learnt::Reply { latency_us: latency_ns / 1_000 };
    }

    #[inline]
    fn end_reply(&mut self, now: Instant, replica: ReplicaId, latency_us: u64, end: BodyEnd) {
        let counts = &mut self.window.replicas[replica.index()];
        if !end.is_failure() {
            counts.succeeded += 1;
            counts.latency_us_sum += latency_us;
            counts.latencies.add(latency_us);
            if end == BodyEnd::Complete {
                self.fleet.completed(replica);
            }
            return;
        }
        counts.failed += 1;
        counts.broken_bodies += 1;
        self.fleet.body_broke(now, replica);
        self.eject_if_failing(now, replica);
    }

    fn eject_if_failing(&mut self, now: Instant, replica: ReplicaId) {
        if self.config.safeguards.eject_if_failing(now, &mut self.fleet, replica) {
            self.window.replicas[replica.index()].ejections += 1;
        }
    }

    fn learn_failure(&mut self, now: Instant, replica: ReplicaId, failure: Failure) {
        match failure {
            Failure::TimedOut | Failure::Unsent => {
                self.fleet.replica_mut(replica).silence.given_up();
            }
            Failure::Broken | Failure::ErrorReply | Failure::Unavailable => {
                self.fleet.heard(now, replica, None);
            }
        }
        self.fleet.failed(now, replica);
        self.window.replicas[replica.index()].failed += 1;
        self.eject_if_failing(now, replica);
    }
}

/// Where the candidates of one choice are.
#[derive(Clone, Copy)]
enum Narrowed {
    /// The group as it stands.
    WholeGroup,
    /// [`Dispatcher::room`].
    Room,
}

impl Narrowed {
    #[inline]
    fn ids<'a>(self, fleet: &'a Fleet, group: GroupId, room: &'a [ReplicaId]) -> &'a [ReplicaId] {
        match self {
            Self::WholeGroup => fleet.group(group),
            Self::Room => room,
        }
    }
}

/// Waking up, probing, and the arrows to the slow loops.
impl Dispatcher {
    /// When [`Dispatcher::wake`] should be called next.
    #[inline]
    pub fn deadline(&self) -> Option<Deadline> {
        if self.backlog.is_empty() { None } else { self.backlog.deadline() }
    }

    /// Notes that a deadline has passed; then drain [`Dispatcher::resumed`].
    pub fn wake(&mut self, now: Instant) {
        self.backlog.wake(now);
    }

    /// A held call that should be stepped again. Drain it after every [`Dispatcher::wake`],
    /// `step` and `close`.
    #[inline]
    pub fn resumed(&mut self) -> Option<CallId> {
        self.backlog.resumed()
    }

    /// Takes over a plan from the slow loops, if it is newer than the one it has.
    ///
    /// # Panics
    /// When the plan has fewer slots than the fleet, a slot of an earlier generation, or a group
    /// that names a slot twice or one that does not exist.
    pub fn adopt(&mut self, now: Instant, plan: &RoutePlan) {
        if plan.version <= self.plan_version {
            return;
        }
        assert!(plan.health.len() >= self.fleet.len(), "a plan never removes a seat");
        self.plan_version = plan.version;
        let slow_start_ends = now + self.config.safeguards.slow_start;
        self.reassign(now, &plan.generations);
        while self.fleet.len() < plan.health.len() {
            let id = self.fleet.add(Some(now));
            let generation = plan.generations.get(id.index()).copied().unwrap_or_default();
            self.fleet.replica_mut(id).generation = generation;
            self.window.replicas.push(ReplicaWindow { generation, ..ReplicaWindow::default() });
            self.fleet.examine(slow_start_ends);
        }
        for (slot, &health) in plan.health.iter().enumerate() {
            let id = ReplicaId::new(slot);
            if self.fleet.replica(id).health() != health {
                self.fleet.set_health(now, id, health);
                self.fleet.examine(slow_start_ends);
            }
        }
        self.fleet.regroup(plan.groups.clone());
        self.room.reserve(self.fleet.len());
        assert_eq!(self.window.replicas.len(), self.fleet.len(), "counts for every seat");
        self.selector.on_membership(now, &self.fleet);
        self.backlog.wake_all();
    }

    /// Gives the slots of a later generation to their new replicas.
    fn reassign(&mut self, now: Instant, generations: &[u32]) {
        let slow_start_ends = now + self.config.safeguards.slow_start;
        for (slot, &generation) in generations.iter().enumerate().take(self.fleet.len()) {
            let id = ReplicaId::new(slot);
            if self.fleet.is_current(id, generation) {
                continue;
            }
            self.fleet.reassign(now, id, generation);
            self.fleet.examine(slow_start_ends);
            self.window.replicas[slot] = ReplicaWindow { generation, ..ReplicaWindow::default() };
            self.selector.on_reassigned(now, id, &self.fleet);
        }
    }

    /// Goes on with another policy, redundancy and behaviour. What is known of the replicas, what
    /// is in flight, held and counted stays; what the policy and the redundancy have learnt stays
    /// as far as they are of the same kind ([`Selector::inherit`], [`Redundancy::inherit`]); the
    /// budget of retries goes on where it stands. `seed` and `record_latency` stay as they were.
    ///
    /// A copy that was foreseen leaves at its time if the new redundancy permits it. Held calls
    /// ask again: drain [`Dispatcher::resumed`].
    pub fn reconfigure(
        &mut self,
        now: Instant,
        selector: Box<dyn Selector>,
        mut redundancy: Box<dyn Redundancy>,
        config: DispatcherConfig,
    ) {
        let DispatcherConfig { safeguards, retries_max, mut retry_budget, .. } = config;
        retry_budget.inherit(&self.config.retry_budget);
        Exploring::change_usual(now, &mut self.selector, selector);
        self.selector.on_membership(now, &self.fleet);
        redundancy.inherit(&mut *self.redundancy);
        // Suspicion lasts as long as the new safeguards say, at the longest.
        self.fleet.examine(now + safeguards.slow_start.max(Replica::TRIAL_WITHIN));
        self.backlog.set_calls_max(config.backlog_calls_max);
        self.asks = config.can_ask && self.selector.asks();
        self.redundancy = redundancy;
        self.config = DispatcherConfig {
            safeguards,
            retries_max,
            retry_budget,
            backlog_calls_max: config.backlog_calls_max,
            can_ask: config.can_ask,
            record_latency: self.config.record_latency,
            seed: self.config.seed,
        };
        self.backlog.wake_all();
    }

    /// Takes what was counted since the last time.
    pub fn window(&mut self) -> RequestWindow {
        let empty = self.empty_window();
        core::mem::replace(&mut self.window, empty)
    }

    /// What speaks against a replica, the health checks aside.
    pub fn distrust(&self, now: Instant, replica: ReplicaId) -> Option<Distrust> {
        self.config.safeguards.distrust(now, self.fleet.replica(replica))
    }

    /// The facts about the replicas.
    pub const fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The policy's name.
    pub fn policy(&self) -> &'static str {
        self.selector.name()
    }

    /// How the hedge stands; `None` where there is none.
    pub fn hedge(&self) -> Option<HedgeStats> {
        self.redundancy.stats()
    }

    /// What the policy thinks a request to this replica would cost, in its own unit.
    pub fn cost(&self, now: Instant, replica: ReplicaId) -> Option<f64> {
        self.selector.cost(now, &self.fleet, replica)
    }

    /// Calls held at the moment.
    pub fn held(&self) -> usize {
        self.backlog.len()
    }

    fn empty_window(&self) -> RequestWindow {
        let of = |generation| ReplicaWindow { generation, ..ReplicaWindow::default() };
        RequestWindow {
            replicas: self.fleet.generations().map(of).collect(),
            latency: self.config.record_latency.then(Recorder::default),
            ..RequestWindow::default()
        }
    }
}
