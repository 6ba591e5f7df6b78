//! The calls of one upstream as one worker sees them, whatever the protocol: its dispatchers, its
//! held calls, the split between data centres.
//!
//! There is one dispatcher for each data centre (most upstreams have one). What it learns, how late
//! a hedge leaves and how many retries there may be, is then of one place: requests that travel
//! 20 ms more would otherwise each be late by the measure of those that stay.
//!
//! A protocol's own route (`http/route.rs`, `cassandra/route.rs`) has the connections and knows
//! what its messages say. [`exchange`] is the life of one request, whatever its protocol;
//! `attempts` are its copies on their way, `guards` keeps the dispatcher's promises whatever
//! happens to its future, and an [`observer`] may watch it.

mod attempts;
pub mod exchange;
mod guards;
mod notice;
pub mod observer;

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::copies::{CopySink, Windows};
use evenkeel_core::request::redundancy::{Hedge, HedgeStats, Redundancy, Single};
use evenkeel_core::request::select::Selector;
use evenkeel_core::request::siblings::Siblings;
use evenkeel_core::request::{CallId, Dispatcher, DispatcherConfig, Probe, Request};
use evenkeel_core::units::Probability;
use evenkeel_core::window::RequestWindow;
use evenkeel_core::{Deadline, Feedback, Fleet, GroupId, Health, Instant, ReplicaId};

use crate::config::UpstreamConfig;
use crate::requests::log::Writer;
use crate::requests::recorder::{Recorder, Sinks};
use crate::site_router::SiteRouter;
use crate::site_setup::HOME;
use crate::upstream_state::{BrownoutSeen, ProbeCounts, ReplicaState, WorkerReport};
use evenkeel_geo::traffic::Directive;
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::timer::{Timer, Wait};

pub use guards::{Next, OpenAttempt, OpenCall};
pub use notice::Notice;

/// The group of all replicas of a data centre.
pub const WHOLE: GroupId = GroupId::new(0);

/// How long a dimmer is shown after it was told: it moves in seconds.
const DIMMER_SHOWN_FOR: Duration = Duration::from_secs(10);

/// The calls of one upstream as one worker sees them.
#[derive(Debug)]
pub struct Calls {
    /// The process's clock: what the dispatchers are told as now.
    pub clock: Clock,
    /// Wakes calls at their deadlines.
    pub timer: Timer,
    /// By data centre, home first.
    dispatchers: Vec<RefCell<Dispatcher>>,
    /// `None` where all requests stay at home.
    split: Option<SiteRouter>,
    held: RefCell<BTreeMap<CallId, Waker>>,
    calls: Cell<u64>,
    /// The time as it was last read; see [`Calls::tick`].
    read_at: Cell<Instant>,
    /// Reads and writes of our own users.
    operations: Cell<[u64; 2]>,
    /// Responses to clients by class of status, 1xx first.
    responses: Cell<[u64; 5]>,
    /// Copies of other upstreams' requests: sent, and left out.
    mirrored: Cell<[u64; 2]>,
    /// Failures in a row that eject a replica; 0 for never.
    ejection_failures: Cell<u32>,
    /// Wakes the task that waits for the dispatchers' deadlines; see [`Calls::keep_time`].
    timekeeper: RefCell<Option<Waker>>,
    /// Keeps what becomes of each request; `None` where nobody asks.
    recorder: RefCell<Option<Rc<Recorder>>>,
}

/// What distinguishes the dispatchers of an upstream: each worker has its own.
#[derive(Clone, Copy, Debug)]
pub struct DispatcherSeed {
    /// The number of processes that share the replicas: C3's number of clients.
    pub clients: u32,
    /// Seed of the policy's randomness; workers must differ, or they would choose alike.
    pub seed: u64,
    /// Whether replicas are asked for their state: whoever drives them sends the questions.
    pub can_ask: bool,
}

/// Who is told of copies, and what is done for the sake of that.
#[derive(Debug)]
pub struct CopyRecording {
    /// Who.
    pub sink: Box<dyn CopySink>,
    /// Share of the requests that are sent to a second replica, too.
    pub pairs: Probability,
    /// Another policy, and the windows in which it decides.
    pub explore: Option<(Box<dyn Selector>, Windows)>,
}

fn dispatcher(config: &UpstreamConfig, replicas: usize, seed: DispatcherSeed) -> Dispatcher {
    let fleet = Fleet::single_group(replicas);
    let behaviour = behaviour(config, seed);
    let dispatcher = Dispatcher::new(fleet, config.policy.make(seed.clients), behaviour);
    dispatcher.with_redundancy(redundancy(config))
}

fn behaviour(config: &UpstreamConfig, seed: DispatcherSeed) -> DispatcherConfig {
    DispatcherConfig {
        safeguards: config.safeguards.clone(),
        retries_max: config.retries_max,
        retry_budget: config.retry_budget.clone(),
        backlog_calls_max: config.held_max,
        can_ask: seed.can_ask,
        record_latency: true,
        seed: seed.seed,
    }
}

fn redundancy(config: &UpstreamConfig) -> Box<dyn Redundancy> {
    match &config.hedge {
        Some(hedge) => Box::new(Hedge::new(hedge.clone())),
        None => Box::new(Single),
    }
}

/// What requests should keep to: that of the hedge, or of the split between data centres.
fn objective(config: &UpstreamConfig) -> Option<Duration> {
    let of_hedge = config.hedge.as_ref().and_then(|hedge| hedge.objective.as_ref());
    let of_split = config.split.as_ref().map(|split| split.sites.objective);
    of_hedge.map(|it| it.objective).or(of_split)
}

impl Calls {
    /// The calls of an upstream that has so many replicas in each data centre, home first. Must be
    /// made on the worker's thread.
    ///
    /// # Errors
    /// When the operating system refuses a timer.
    pub fn new(
        config: &UpstreamConfig,
        replicas: &[usize],
        clock: Clock,
        seed: DispatcherSeed,
    ) -> std::io::Result<Rc<Self>> {
        Ok(Self::with_timer(config, replicas, (clock, Timer::of(&clock)?), seed))
    }

    /// The same, with a timer that others use too.
    pub fn with_timer(
        config: &UpstreamConfig,
        replicas: &[usize],
        (clock, timer): (Clock, Timer),
        seed: DispatcherSeed,
    ) -> Rc<Self> {
        let dispatcher = |&replicas: &usize| RefCell::new(dispatcher(config, replicas, seed));
        Rc::new(Self {
            dispatchers: replicas.iter().map(dispatcher).collect(),
            split: config.split.as_ref().map(|setup| SiteRouter::new(setup, seed.seed)),
            clock,
            timer,
            held: RefCell::default(),
            calls: Cell::new(0),
            read_at: Cell::new(clock.now()),
            operations: Cell::default(),
            responses: Cell::default(),
            mirrored: Cell::default(),
            ejection_failures: Cell::new(config.safeguards.ejection_failures),
            timekeeper: RefCell::default(),
            recorder: RefCell::default(),
        })
    }

    /// How many data centres it has dispatchers for.
    pub fn datacenters(&self) -> usize {
        self.dispatchers.len()
    }

    /// Takes the place of this worker among all of the process; by data centre.
    pub fn join(&self, siblings: &[Arc<Siblings>], worker: usize) {
        for (dispatcher, siblings) in self.dispatchers.iter().zip(siblings) {
            dispatcher.borrow_mut().take_seat(siblings.seat(worker));
        }
    }

    /// Goes on with another policy, hedge and limits; what was learnt and what is in flight stays.
    pub fn reconfigure(&self, config: &UpstreamConfig, seed: DispatcherSeed) {
        let now = self.tick();
        self.ejection_failures.set(config.safeguards.ejection_failures);
        for datacenter in 0..self.dispatchers.len() {
            let (policy, redundancy) = (config.policy.make(seed.clients), redundancy(config));
            let behaviour = behaviour(config, seed);
            self.dispatcher(datacenter).reconfigure(now, policy, redundancy, behaviour);
            self.resume_held(datacenter);
        }
        self.split.iter().for_each(SiteRouter::look_again);
        self.recorder.borrow().iter().for_each(|it| it.set_objective(objective(config)));
    }

    /// Keeps from now on what becomes of each request: all of this upstream in this place.
    pub fn record(
        &self,
        place: usize,
        config: &UpstreamConfig,
        into: (Rc<RefCell<Writer>>, Sinks),
    ) {
        let recorder = Recorder::new(self.clock, place, objective(config), into);
        self.recorder.replace(Some(recorder));
        self.dispatchers.iter().for_each(|it| it.borrow_mut().keep_decisions());
    }

    /// Tells this one from now on what becomes of each copy at home; nobody with `None`. What is
    /// done for the sake of that begins, and ends, with it.
    pub fn record_copies(&self, recording: Option<CopyRecording>) {
        let now = self.tick();
        let mut dispatcher = self.dispatcher(HOME);
        let Some(CopyRecording { sink, pairs, explore }) = recording else {
            dispatcher.stop_recording();
            return dispatcher.explore(now, None);
        };
        dispatcher.record(sink, pairs);
        dispatcher.explore(now, explore);
    }

    /// Who keeps what becomes of each request, where somebody does.
    pub fn recorder(&self) -> Option<Rc<Recorder>> {
        self.recorder.borrow().clone()
    }

    /// Reads the clock. A request reads it when something happened to it (it came, an answer
    /// came, a deadline passed); what follows in the same breath happens at the same instant.
    pub fn tick(&self) -> Instant {
        let now = self.clock.now();
        self.read_at.set(now);
        now
    }

    /// The time as it was last read.
    pub const fn read_at(&self) -> Instant {
        self.read_at.get()
    }

    /// Waits for a moment.
    pub fn wait_until(&self, at: Instant) -> Wait {
        self.timer.at(self.clock.std_instant(at))
    }

    /// Begins a call at the replicas of a group in a data centre; the guard closes it. It comes at
    /// the time that was last read: see [`Calls::tick`].
    pub fn open(self: &Rc<Self>, datacenter: usize, request: Request) -> OpenCall {
        let now = self.read_at.get();
        let by_plan = self.split.as_ref().is_none_or(|split| split.may_hedge(now, datacenter));
        let request = Request { may_hedge: request.may_hedge && by_plan, ..request };
        let id = CallId(self.calls.get());
        self.calls.set(id.0 + 1);
        let call = self.dispatcher(datacenter).open(now, id, request);
        OpenCall::new(Rc::clone(self), datacenter, call)
    }

    /// Looks up again, where it is due, which data centres have a replica to send to.
    pub fn look_up_usable(&self, split: &SiteRouter, now: Instant) {
        if split.is_due(now) {
            split.set_usable(|datacenter| self.usability(now, datacenter));
        }
    }

    /// Whether a data centre has a replica that is up, not ejected and not silent, and until when
    /// that stands unless something fails. After its ejection, or while it is silent, a replica is
    /// good for one request at a time: all that the plan sends there would come back with it.
    fn usability(&self, now: Instant, datacenter: usize) -> (bool, Instant) {
        let mut dispatcher = self.dispatcher(datacenter);
        let limit = self.ejection_failures.get();
        let members = dispatcher.fleet().group(WHOLE).len();
        let of_one = |member: usize| {
            let id = dispatcher.fleet().group(WHOLE)[member];
            let replica = dispatcher.fleet().replica(id);
            match replica.ejected_until() {
                _ if replica.health() != Health::Up => (false, Instant::FAR),
                at if at > now => (false, at),
                _ if replica.needs_trial(now, limit) => (replica.in_flight() == 0, now),
                _ => dispatcher.hears(now, id),
            }
        };
        let first = |one: (bool, Instant), other: (bool, Instant)| match (one.0, other.0) {
            (true, false) => one,
            (false, true) => other,
            (true, true) => (true, one.1.max(other.1)),
            (false, false) => (false, one.1.min(other.1)),
        };
        (0..members).map(of_one).reduce(first).unwrap_or((false, Instant::FAR))
    }

    /// How requests are divided among sites; `None` where all stay at home.
    pub const fn split(&self) -> Option<&SiteRouter> {
        self.split.as_ref()
    }

    /// The dispatcher of a data centre, home being 0.
    ///
    /// # Panics
    /// When there is no such data centre, or while its dispatcher is borrowed already.
    pub fn dispatcher(&self, datacenter: usize) -> RefMut<'_, Dispatcher> {
        self.dispatchers[datacenter].borrow_mut()
    }

    /// Takes over which replicas of a data centre may be used, and the groups they form.
    pub fn adopt(&self, datacenter: usize, plan: &RoutePlan) {
        let now = self.tick();
        self.dispatcher(datacenter).adopt(now, plan);
        self.resume_held(datacenter);
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

    /// How the replica of a data centre stands, with so many connections open to it.
    pub fn replica(&self, datacenter: usize, replica: usize, connections: usize) -> ReplicaState {
        let now = self.tick();
        let mut dispatcher = self.dispatchers[datacenter].borrow_mut();
        dispatcher.look_at_siblings(now); // nobody may have asked anything since
        replica_state(&dispatcher, now, ReplicaId::new(replica), connections)
    }

    /// Takes what was counted since the last time. `replicas` is how they stand now, by slot.
    pub fn observe(&self, replicas: Vec<ReplicaState>) -> WorkerReport {
        let now = self.tick();
        let held = self.dispatchers.iter().map(|dispatcher| dispatcher.borrow().held()).sum();
        let hedges = self.dispatchers.iter().filter_map(|dispatcher| dispatcher.borrow().hedge());
        WorkerReport {
            replicas,
            held,
            hedge: hedges.reduce(HedgeStats::merged),
            window: self.window(),
            seen: BrownoutSeen::default(),
            probes: ProbeCounts::default(),
            operations: self.operations.take(),
            responses: self.responses.take(),
            mirrored: self.mirrored.take(),
            split: self.split.as_ref().map(|split| split.observe(now, held as u64)),
        }
    }

    /// What all dispatchers counted. A request that was refused elsewhere and came back home is one
    /// request, not two.
    fn window(&self) -> RequestWindow {
        let mut sum = self.dispatcher(HOME).window();
        for dispatcher in &self.dispatchers[HOME + 1..] {
            let mut window = dispatcher.borrow_mut().window();
            let replicas = std::mem::take(&mut window.replicas);
            sum.merge(&window);
            sum.replicas.extend(replicas);
        }
        if let Some(split) = &self.split {
            let returns = split.take_returns();
            sum.opened -= returns.refused + returns.answered + returns.waiting;
            sum.abandoned -= returns.waiting;
            sum.refused -= returns.refused;
            sum.answered -= returns.answered;
        }
        sum
    }

    /// Counts a request of our own users: those of another site's are counted there.
    pub fn note_operation(&self, is_write: bool) {
        let mut counts = self.operations.get();
        counts[usize::from(is_write)] += 1;
        self.operations.set(counts);
    }

    /// Counts a response with this status, whoever made it.
    pub fn note_response(&self, status: u16) {
        let mut counts = self.responses.get();
        let class = (usize::from(status) / 100).clamp(1, counts.len());
        counts[class - 1] += 1;
        self.responses.set(counts);
    }

    /// Counts a request of another upstream that was to be copied for this one.
    pub fn note_mirrored(&self, is_sent: bool) {
        let mut counts = self.mirrored.get();
        counts[usize::from(!is_sent)] += 1;
        self.mirrored.set(counts);
    }

    /// Wakes the calls that a dispatcher has made ready.
    pub fn resume_held(&self, datacenter: usize) {
        loop {
            let Some(id) = self.dispatcher(datacenter).resumed() else { return };
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
            let mut timer = deadline.map(|due| self.wait_until(due.at));
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
            for datacenter in 0..self.dispatchers.len() {
                self.dispatcher(datacenter).wake(now);
                self.resume_held(datacenter);
            }
        }
    }

    /// The first deadline of all dispatchers.
    fn deadline(&self) -> Option<Deadline> {
        let deadlines = self.dispatchers.iter().map(|dispatcher| dispatcher.borrow().deadline());
        deadlines.fold(None, Deadline::earlier)
    }

    fn tell_timekeeper(&self) {
        if let Some(waker) = self.timekeeper.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// The next question that the policy wants asked in a data centre.
    pub fn probe(&self, datacenter: usize) -> Option<Probe> {
        let now = self.read_at.get();
        self.dispatcher(datacenter).probe(now)
    }

    /// Learns the answer to a question; `None` when there was none.
    pub fn learn_probe(&self, datacenter: usize, probe: &Probe, reported: Option<&Feedback>) {
        let now = self.tick();
        self.dispatcher(datacenter).learn_probe(now, probe, reported);
        self.resume_held(datacenter); // a request may have waited for it
    }

    /// The replica knows no questions.
    pub fn probe_is_unknown(&self, datacenter: usize, probe: &Probe) {
        let now = self.read_at.get();
        self.dispatcher(datacenter).probe_is_unknown(now, probe);
        self.resume_held(datacenter);
    }
}

/// How a replica of a dispatcher stands, with so many connections open to it.
pub fn replica_state(
    dispatcher: &Dispatcher,
    now: Instant,
    id: ReplicaId,
    connections: usize,
) -> ReplicaState {
    let facts = dispatcher.fleet().replica(id);
    ReplicaState {
        in_flight: facts.in_flight(),
        connections,
        failure_share: facts.failure_share(now),
        is_ejected: facts.ejected_until() > now,
        distrust: dispatcher.distrust(now, id),
        cost: dispatcher.cost(now, id),
        queue_length: facts.feedback().map(|feedback| feedback.queue_length),
        service_time: facts.feedback().and_then(|feedback| feedback.service_time),
        dimmer: facts.dimmer().filter(|reported| now.since(reported.1) < DIMMER_SHOWN_FOR),
    }
}
