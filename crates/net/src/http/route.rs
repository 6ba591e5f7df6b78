//! One upstream as one worker sees it: its dispatchers, its replicas' connections, its held calls.
//!
//! There is one dispatcher for each data centre (most upstreams have one). What it learns, how late
//! a hedge leaves and how many retries there may be, is then of one place: requests that travel
//! 20 ms more would otherwise each be late by the measure of those that stay.
//!
//! The guards here make the promises of the dispatcher hold whatever happens to a request's
//! future: an attempt is finished and a call is closed even when the client goes away in the
//! middle, which drops the future where it stands.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Hedge, HedgeStanding};
use evenkeel_core::request::{
    Attempt, Call, CallId, Dispatcher, DispatcherConfig, Outcome, Probe, Request, Settled, Step,
};
use evenkeel_core::units::Dimmer;
use evenkeel_core::window::RequestWindow;
use evenkeel_core::{
    Deadline, Feedback, Fleet, GroupId, Health, Instant, Replica as Facts, ReplicaId,
};
use http::header::HOST;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::board::{Directive, SplitObservation};
use crate::clock::Clock;
use crate::config::{Edge, ListenConfig, UpstreamConfig};
use crate::http::engine::head::Forwarding;
use crate::http::engine::{Body, Upstream};
use crate::http::orca;
use crate::http::redirected::{Journey, Split};
use crate::replica::PROBE_PATH;
use crate::timer::Timer;

/// All replicas of a dispatcher form one group.
const GROUP: GroupId = GroupId::new(0);

/// The data centre of this process, among those of an upstream.
pub(crate) const HOME: usize = 0;

/// How long a dimmer is shown after it was told: it moves in seconds.
const DIMMER_SHOWN_FOR: Duration = Duration::from_secs(10);

/// One upstream as one worker sees it.
#[derive(Debug)]
pub struct Route {
    pub(crate) config: UpstreamConfig,
    pub(crate) clock: Clock,
    pub(crate) timer: Timer,
    /// By data centre, home first.
    groups: Vec<Group>,
    /// By seat.
    replicas: Vec<Replica>,
    /// `None` where all requests stay at home.
    split: Option<Split>,
    held: RefCell<BTreeMap<CallId, Waker>>,
    calls: Cell<u64>,
    /// The time as it was last read; see [`Route::tick`].
    read_at: Cell<Instant>,
    seen: Cell<BrownoutSeen>,
    /// Reads and writes of our own users.
    operations: Cell<[u64; 2]>,
    /// Wakes the task that waits for the dispatchers' deadlines; see [`Route::keep_time`].
    timekeeper: RefCell<Option<Waker>>,
}

/// The replicas of one data centre.
#[derive(Debug)]
struct Group {
    dispatcher: RefCell<Dispatcher>,
    seats: Range<usize>,
}

#[derive(Debug)]
struct Replica {
    upstream: Upstream,
    /// False once a probe was answered as by a server that knows no probes.
    answers_probes: Cell<bool>,
    probing: Cell<bool>,
}

/// What distinguishes the dispatchers of an upstream: each worker has its own.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// The number of dispatchers that share the replicas: C3's number of clients.
    pub clients: u32,
    /// Seed of the policy's randomness; workers must differ, or they would choose alike.
    pub seed: u64,
}

/// How requests that come in at an address are passed on.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// What changes in their heads.
    pub forwarding: Forwarding,
    /// Whether their decisions about optional content are passed on.
    pub brownout: Edge,
    /// Whether they are believed to come from another data centre when they say so.
    pub redirected: Edge,
}

fn dispatcher(config: &UpstreamConfig, replicas: usize, seat: Seat) -> Dispatcher {
    let behaviour = DispatcherConfig {
        safeguards: config.safeguards.clone(),
        retries_max: config.retries_max,
        retry_budget: config.retry_budget.clone(),
        backlog_calls_max: config.held_max,
        record_latency: true,
        seed: seat.seed,
    };
    let fleet = Fleet::single_group(replicas);
    let dispatcher = Dispatcher::new(fleet, config.policy.make(seat.clients), behaviour);
    match &config.hedge {
        Some(hedge) => dispatcher.with_redundancy(Box::new(Hedge::new(hedge.clone()))),
        None => dispatcher,
    }
}

impl Group {
    /// Each replica: its place in the group, and its seat.
    fn seats(&self) -> impl Iterator<Item = (&Self, usize, usize)> {
        self.seats.clone().enumerate().map(move |(local, seat)| (self, local, seat))
    }
}

impl Route {
    /// A route without connections yet. Must be made on the worker's thread.
    ///
    /// # Errors
    /// When the operating system refuses a timer.
    pub fn new(config: &UpstreamConfig, clock: Clock, seat: Seat) -> std::io::Result<Rc<Self>> {
        let replica = |(number, address)| Replica {
            upstream: Upstream::new(address, config.limits),
            // What another site's proxy would pass on to one of its replicas says nothing of all.
            answers_probes: Cell::new(number < config.replicas.len()),
            probing: Cell::new(false),
        };
        let group = |seats: Range<usize>| {
            let dispatcher = RefCell::new(dispatcher(config, seats.len(), seat));
            Group { dispatcher, seats }
        };
        Ok(Rc::new(Self {
            groups: config.groups().into_iter().map(group).collect(),
            replicas: config.seats().enumerate().map(replica).collect(),
            split: config.split.as_ref().map(|setup| Split::new(setup, config, seat.seed)),
            config: config.clone(),
            clock,
            timer: Timer::new()?,
            held: RefCell::default(),
            calls: Cell::new(0),
            read_at: Cell::new(clock.now()),
            seen: Cell::default(),
            operations: Cell::default(),
            timekeeper: RefCell::default(),
        }))
    }

    /// How requests that come in at an address are passed on.
    #[must_use]
    pub fn entrance(&self, listen: &ListenConfig) -> Entrance {
        let host = HeaderValue::try_from(self.config.name.as_str());
        let forwarding = Forwarding {
            append_forwarded_for: listen.forwarded_for,
            host_default: host.unwrap_or(HeaderValue::from_static("upstream")),
        };
        Entrance { forwarding, brownout: listen.brownout, redirected: listen.redirected }
    }

    /// Reads the clock. A request reads it when something happened to it (it came, an answer
    /// came, a deadline passed); what follows in the same breath happens at the same instant.
    pub(crate) fn tick(&self) -> Instant {
        let now = self.clock.now();
        self.read_at.set(now);
        now
    }

    /// The time as it was last read.
    pub(crate) const fn read_at(&self) -> Instant {
        self.read_at.get()
    }

    /// The moment on the machine's clock this much after the clock was last read.
    pub(crate) fn after(&self, delay: Duration) -> std::time::Instant {
        self.clock.std_instant(self.read_at.get() + delay)
    }

    /// Begins a call in a data centre; the guard closes it.
    pub(crate) fn open(
        self: &Rc<Self>,
        group: usize,
        replay: evenkeel_core::request::Replay,
    ) -> OpenCall {
        let id = CallId(self.calls.get());
        self.calls.set(id.0 + 1);
        let request = Request { group: GROUP, replay };
        let call = self.dispatcher(group).open(self.tick(), id, request);
        OpenCall { route: Rc::clone(self), group, call: Some(call) }
    }

    /// Chooses the data centre for a request and counts it, where requests are split. Those that
    /// another site sent here (guests) stay and are no demand of ours. `is_write` says whether it
    /// may change something.
    pub(crate) fn depart(
        self: &Rc<Self>,
        headers: &mut HeaderMap,
        is_guest: bool,
        is_write: bool,
    ) -> Option<Journey> {
        let split = self.split.as_ref()?;
        if is_guest {
            split.welcome(headers);
            return None;
        }
        let now = self.tick();
        self.look_up_usable(split, now);
        Some(Journey::begin(Rc::clone(self), split.choose(now, is_write), now, headers))
    }

    /// Looks up again, where it is due, which data centres have a replica to send to.
    pub(crate) fn look_up_usable(&self, split: &Split, now: Instant) {
        if split.is_due(now) {
            split.set_usable(|group| self.usability(now, group));
        }
    }

    /// Whether a data centre has a replica that is up and not ejected, and until when that stands
    /// unless something fails. After its ejection a replica that has not succeeded yet is good for
    /// one request at a time: all that the plan sends there would come back with it.
    fn usability(&self, now: Instant, group: usize) -> (bool, Instant) {
        let dispatcher = self.groups[group].dispatcher.borrow();
        let fleet = dispatcher.fleet();
        let limit = self.config.safeguards.ejection_failures;
        let up = fleet.group(GROUP).iter().map(|&id| fleet.replica(id));
        let up = up.filter(|replica| replica.health() == Health::Up);
        let of_one = |replica: &Facts| match replica.ejected_until() {
            at if at > now => (false, at),
            _ if limit == 0 || replica.consecutive_failures() < limit => (true, Instant::FAR),
            _ => (replica.in_flight() == 0, now),
        };
        let first = |one: (bool, Instant), other: (bool, Instant)| match (one.0, other.0) {
            (true, false) => one,
            (false, true) => other,
            (true, true) => (true, one.1.max(other.1)),
            (false, false) => (false, one.1.min(other.1)),
        };
        up.map(of_one).reduce(first).unwrap_or((false, Instant::FAR))
    }

    pub(crate) const fn split(&self) -> Option<&Split> {
        self.split.as_ref()
    }

    fn dispatcher(&self, group: usize) -> RefMut<'_, Dispatcher> {
        self.groups[group].dispatcher.borrow_mut()
    }

    pub(crate) fn replica(&self, attempt: &OpenAttempt) -> Upstream {
        self.replicas[attempt.seat()].upstream.clone()
    }

    /// Takes over which replicas may be used.
    pub fn adopt(&self, plan: &Arc<RoutePlan>) {
        let now = self.tick();
        for (number, group) in self.groups.iter().enumerate() {
            let members = (0..group.seats.len()).map(ReplicaId::new).collect();
            let part = RoutePlan {
                version: plan.version,
                health: plan.health[group.seats.clone()].to_vec(),
                groups: vec![members],
            };
            group.dispatcher.borrow_mut().adopt(now, &part);
            self.resume_held(number);
        }
        if let Some(split) = &self.split {
            split.look_again();
        }
    }

    /// Takes over where the requests of our own users go. `worker` says whose part of the caps this
    /// is.
    pub fn direct(&self, worker: usize, directive: &Directive) {
        if let Some(split) = &self.split {
            split.direct(self.tick(), worker, directive);
        }
    }

    /// Takes what was counted since the last time, and how things stand.
    pub fn observe(&self) -> Observation {
        let now = self.tick();
        let state = |(group, local, seat): (&Group, usize, usize)| {
            let dispatcher = group.dispatcher.borrow();
            let id = ReplicaId::new(local);
            let replica = dispatcher.fleet().replica(id);
            ReplicaState {
                in_flight: replica.in_flight(),
                connections: self.replicas[seat].upstream.connections(),
                failure_share: replica.failure_share(now),
                is_ejected: replica.ejected_until() > now,
                cost: dispatcher.cost(now, id),
                queue_length: replica.feedback().map(|feedback| feedback.queue_length),
                service_time: replica.feedback().map(|feedback| feedback.service_time),
                dimmer: replica.dimmer().filter(|told| now.since(told.1) < DIMMER_SHOWN_FOR),
            }
        };
        let seats = |group| Group::seats(group).map(state);
        let held = self.groups.iter().map(|group| group.dispatcher.borrow().held()).sum();
        let hedges = self.groups.iter().filter_map(|group| group.dispatcher.borrow().hedge());
        Observation {
            replicas: self.groups.iter().flat_map(seats).collect(),
            held,
            hedge: hedges.reduce(HedgeStanding::merged),
            window: self.window(),
            seen: self.seen.take(),
            operations: self.operations.take(),
            split: self.split.as_ref().map(|split| split.observe(now, held as u64)),
        }
    }

    /// What all dispatchers counted. A request that was refused elsewhere and came back home is one
    /// request, not two.
    fn window(&self) -> RequestWindow {
        let mut sum = self.dispatcher(HOME).window();
        for group in &self.groups[HOME + 1..] {
            let mut window = group.dispatcher.borrow_mut().window();
            let replicas = std::mem::take(&mut window.replicas);
            sum.merge(&window);
            sum.replicas.extend(replicas);
        }
        if let Some(split) = &self.split {
            let returns = split.take_returns();
            sum.opened -= returns.refused + returns.answered;
            sum.refused -= returns.refused;
            sum.answered -= returns.answered;
        }
        sum
    }

    /// Counts a request of our own users: those of another site's are counted there.
    pub(crate) fn note_operation(&self, is_write: bool) {
        let mut counts = self.operations.get();
        counts[usize::from(is_write)] += 1;
        self.operations.set(counts);
    }

    /// Notes what an answer said of brownout.
    pub(crate) fn note_seen(&self, seen: &BrownoutSeen) {
        let mut sum = self.seen.get();
        sum.merge(seen);
        self.seen.set(sum);
    }

    /// Wakes the calls that a dispatcher has made ready.
    pub(crate) fn resume_held(&self, group: usize) {
        loop {
            let Some(id) = self.dispatcher(group).resumed() else { return };
            if let Some(waker) = self.held.borrow_mut().remove(&id) {
                waker.wake();
            }
        }
    }

    /// Runs for the life of the worker: wakes held calls when their rate opens. One task for all,
    /// because only the head of the queue may ask again.
    pub async fn keep_time(self: Rc<Self>) {
        loop {
            let deadline = self.deadline();
            let mut timer = deadline.map(|due| self.timer.at(self.clock.std_instant(due.at)));
            std::future::poll_fn(|context| {
                *self.timekeeper.borrow_mut() = Some(context.waker().clone());
                if self.deadline() != deadline {
                    return Poll::Ready(()); // an earlier one, or the first
                }
                let Some(timer) = &mut timer else { return Poll::Pending };
                std::pin::Pin::new(timer).poll(context)
            })
            .await;
            let now = self.tick();
            for group in 0..self.groups.len() {
                self.dispatcher(group).wake(now);
                self.resume_held(group);
            }
        }
    }

    /// The first deadline of all dispatchers.
    fn deadline(&self) -> Option<Deadline> {
        let deadlines = self.groups.iter().map(|group| group.dispatcher.borrow().deadline());
        deadlines.fold(None, Deadline::earlier)
    }

    fn tell_timekeeper(&self) {
        if let Some(waker) = self.timekeeper.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Sends the questions that the policy wants asked in a data centre.
    pub(crate) fn ask_probes(self: &Rc<Self>, group: usize) {
        loop {
            let now = self.read_at.get();
            let Some(probe) = self.dispatcher(group).probe(now) else { return };
            let replica = &self.replicas[self.seat(group, probe.replica())];
            // One question at a time: a replica too slow to answer is not asked more and more.
            if replica.answers_probes.get() && !replica.probing.replace(true) {
                tokio::task::spawn_local(Rc::clone(self).ask(group, probe));
            }
        }
    }

    fn seat(&self, group: usize, replica: ReplicaId) -> usize {
        self.groups[group].seats.start + replica.index()
    }

    /// Takes the replica's report out of the headers of its answer.
    pub(crate) fn feedback_of(&self, headers: &mut HeaderMap) -> Option<Feedback> {
        orca::take_feedback(headers).unwrap_or_else(|error| {
            let dimmers_invalid = u64::from(error.is_of_dimmer());
            self.note_seen(&BrownoutSeen { dimmers_invalid, ..BrownoutSeen::default() });
            None
        })
    }

    async fn ask(self: Rc<Self>, group: usize, probe: Probe) {
        let replica = &self.replicas[self.seat(group, probe.replica())];
        let mut request = http::Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static(PROBE_PATH);
        let host = replica.upstream.address().to_string();
        if let Ok(host) = HeaderValue::try_from(host) {
            request.headers_mut().insert(HOST, host);
        }
        let limit = self.config.timeouts.attempt;
        let answer = tokio::time::timeout(limit, replica.upstream.send(request)).await;
        replica.probing.set(false);
        let feedback = match answer {
            Ok(Ok(mut response)) if response.status() == StatusCode::NO_CONTENT => {
                self.feedback_of(response.headers_mut())
            }
            // No agent there: do not ask again. An error of the moment says nothing of that.
            Ok(Ok(response)) if !response.status().is_server_error() => {
                replica.answers_probes.set(false);
                None
            }
            Ok(_) | Err(_) => None,
        };
        let now = self.tick();
        self.dispatcher(group).learn_probe(now, &probe, feedback.as_ref());
    }
}

/// How one upstream stands with one worker.
#[derive(Debug)]
pub struct Observation {
    /// What was counted since the last observation.
    pub window: RequestWindow,
    /// Each replica, by seat.
    pub replicas: Vec<ReplicaState>,
    /// Calls held for a sending rate.
    pub held: usize,
    /// How its hedges stand; `None` where there are none.
    pub hedge: Option<HedgeStanding>,
    /// What answers said of brownout since the last observation.
    pub seen: BrownoutSeen,
    /// Reads and writes of our own users that came since the last observation.
    pub operations: [u64; 2],
    /// What became of the requests of our own users; `None` where all of them stay at home.
    pub split: Option<SplitObservation>,
}

/// What the answers of an upstream's replicas said of brownout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BrownoutSeen {
    /// Answers that said they had all their optional content.
    pub full: u64,
    /// Answers that said something was left out.
    pub reduced: u64,
    /// Answers and probes with a dimmer that must not be believed.
    pub dimmers_invalid: u64,
}

impl BrownoutSeen {
    /// Adds what was seen elsewhere or later.
    pub const fn merge(&mut self, other: &Self) {
        self.full += other.full;
        self.reduced += other.reduced;
        self.dimmers_invalid += other.dimmers_invalid;
    }
}

/// How one replica stands with one worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaState {
    /// Attempts in flight.
    pub in_flight: u32,
    /// Connections open.
    pub connections: usize,
    /// Share of recent failures.
    pub failure_share: f64,
    /// Whether it is ejected for failing.
    pub is_ejected: bool,
    /// What the policy thinks it costs, in the policy's unit; lower is better.
    pub cost: Option<f64>,
    /// Its own last report: requests waiting there.
    pub queue_length: Option<u32>,
    /// Its own last report: service time.
    pub service_time: Option<Duration>,
    /// The dimmer it told, and when; `None` when that is too long ago to be true.
    pub dimmer: Option<(Dimmer, Instant)>,
}

/// A call that is closed when it goes out of scope.
#[derive(Debug)]
pub(crate) struct OpenCall {
    route: Rc<Route>,
    /// The data centre it is for.
    group: usize,
    /// `None` only while being dropped.
    call: Option<Call>,
}

impl OpenCall {
    const OPEN: &str = "a call is there until it is dropped";

    /// What to do next.
    pub(crate) fn step(&mut self) -> Next {
        let now = self.route.read_at.get();
        let call = self.call.as_mut().expect(Self::OPEN);
        let step = self.route.dispatcher(self.group).step(now, call);
        self.route.resume_held(self.group); // a step may make the next held call the head
        match step {
            Step::Send(attempt) => {
                let route = Rc::clone(&self.route);
                Next::Send(OpenAttempt { route, group: self.group, attempt: Some(attempt) })
            }
            Step::Cancel(copy) => Next::Cancel(copy),
            Step::Wait { until } => {
                if until.is_none() && self.route.dispatcher(self.group).deadline().is_some() {
                    self.route.tell_timekeeper(); // it may be earlier than the one it knows
                }
                Next::Wait(until)
            }
            Step::Answered(copy) => Next::Answered(copy),
            Step::Refused(refusal) => Next::Refused(refusal),
        }
    }

    pub(crate) fn settle(&mut self, settled: Settled) {
        self.call.as_mut().expect(Self::OPEN).settle(settled);
    }

    fn id(&self) -> CallId {
        self.call.as_ref().expect(Self::OPEN).id()
    }

    /// Waits to be resumed, if the call is held: see [`OpenCall::was_resumed`].
    pub(crate) fn hold(&self, waker: &Waker) {
        self.route.held.borrow_mut().insert(self.id(), waker.clone());
    }

    /// True when the call waited and its turn has come.
    pub(crate) fn was_resumed(&self) -> bool {
        !self.route.held.borrow().contains_key(&self.id())
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        self.route.held.borrow_mut().remove(&call.id());
        let now = self.route.read_at.get();
        self.route.dispatcher(self.group).close(now, call);
        self.route.resume_held(self.group);
    }
}

/// What [`OpenCall::step`] says: core's `Step`, with the attempt under guard.
#[derive(Debug)]
pub(crate) enum Next {
    Send(OpenAttempt),
    Cancel(usize),
    Wait(Option<Deadline>),
    Answered(usize),
    Refused(evenkeel_core::request::Refusal),
}

/// An attempt that is finished when it goes out of scope; cancelled, if nobody learnt from it.
#[derive(Debug)]
pub(crate) struct OpenAttempt {
    route: Rc<Route>,
    /// The data centre it goes to.
    group: usize,
    /// `None` only while being dropped.
    attempt: Option<Attempt>,
}

impl OpenAttempt {
    const OPEN: &str = "an attempt is there until it is dropped";

    pub(crate) fn seat(&self) -> usize {
        self.route.seat(self.group, self.attempt.as_ref().expect(Self::OPEN).replica())
    }

    pub(crate) const fn group(&self) -> usize {
        self.group
    }

    /// Hears the replica's dimmer; before its answer is learnt.
    pub(crate) fn hear_dimmer(&self, dimmer: Dimmer) {
        let now = self.route.read_at.get();
        let attempt = self.attempt.as_ref().expect(Self::OPEN);
        self.route.dispatcher(self.group).hear_dimmer(now, attempt, dimmer);
    }

    /// Learns the outcome; hand the answer to [`OpenCall::settle`].
    pub(crate) fn learn(&mut self, outcome: &Outcome) -> Settled {
        let now = self.route.read_at.get();
        let attempt = self.attempt.as_mut().expect(Self::OPEN);
        if matches!(outcome, Outcome::Failed(_)) {
            self.route.split.iter().for_each(Split::look_again); // it may have been ejected for it
        }
        self.route.dispatcher(self.group).learn(now, attempt, outcome)
    }
}

impl Drop for OpenAttempt {
    fn drop(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        let route = &self.route;
        // Given up in mid-air: whenever that is. Otherwise its end follows its answer.
        let now = if attempt.is_learnt() { route.read_at.get() } else { route.tick() };
        route.dispatcher(self.group).finish(now, attempt);
    }
}
