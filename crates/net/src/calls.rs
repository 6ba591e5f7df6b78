//! The calls of one upstream as one worker sees them, whatever the protocol: its dispatchers, its
//! held calls, the split between data centres.
//!
//! There is one dispatcher for each data centre (most upstreams have one). What it learns, how late
//! a hedge leaves and how many retries there may be, is then of one place: requests that travel
//! 20 ms more would otherwise each be late by the measure of those that stay.
//!
//! A protocol's own route (`http/route.rs`, `cassandra/route.rs`) has the connections and knows
//! what its messages say; [`guards`] keeps the dispatcher's promises whatever happens to a
//! request's future, [`flights`] are the copies of one request on their way.

pub(crate) mod flights;
mod guards;

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Hedge, HedgeStanding};
use evenkeel_core::request::{
    CallId, Dispatcher, DispatcherConfig, Failure, Probe, Refusal, Replay, Request,
};
use evenkeel_core::window::RequestWindow;
use evenkeel_core::{
    Deadline, Feedback, Fleet, GroupId, Health, Instant, Replica as Facts, ReplicaId,
};

use crate::board::{BrownoutSeen, Directive, Observation, ReplicaState};
use crate::clock::Clock;
use crate::config::UpstreamConfig;
use crate::split::{Bonds, Journey, Split};
use crate::timer::{Timer, Wait};

pub(crate) use guards::{Next, OpenAttempt, OpenCall};

/// The group of all replicas of a data centre.
pub(crate) const WHOLE: GroupId = GroupId::new(0);

/// The data centre of this process, among those of an upstream.
pub(crate) const HOME: usize = 0;

/// How long a dimmer is shown after it was told: it moves in seconds.
const DIMMER_SHOWN_FOR: Duration = Duration::from_secs(10);

/// The calls of one upstream as one worker sees them.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) clock: Clock,
    pub(crate) timer: Timer,
    /// By data centre, home first.
    dispatchers: Vec<RefCell<Dispatcher>>,
    /// `None` where all requests stay at home.
    split: Option<Split>,
    held: RefCell<BTreeMap<CallId, Waker>>,
    calls: Cell<u64>,
    /// The time as it was last read; see [`Calls::tick`].
    read_at: Cell<Instant>,
    /// Reads and writes of our own users.
    operations: Cell<[u64; 2]>,
    /// Failures in a row that eject a replica; 0 for never.
    ejection_failures: u32,
    /// Wakes the task that waits for the dispatchers' deadlines; see [`Calls::keep_time`].
    timekeeper: RefCell<Option<Waker>>,
}

/// What distinguishes the dispatchers of an upstream: each worker has its own.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    /// The number of dispatchers that share the replicas: C3's number of clients.
    pub clients: u32,
    /// Seed of the policy's randomness; workers must differ, or they would choose alike.
    pub seed: u64,
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

impl Calls {
    /// The calls of an upstream that has so many replicas in each data centre, home first. Must be
    /// made on the worker's thread.
    ///
    /// # Errors
    /// When the operating system refuses a timer.
    pub(crate) fn new(
        config: &UpstreamConfig,
        replicas: &[usize],
        clock: Clock,
        seat: Seat,
    ) -> std::io::Result<Rc<Self>> {
        let dispatcher = |&replicas: &usize| RefCell::new(dispatcher(config, replicas, seat));
        Ok(Rc::new(Self {
            dispatchers: replicas.iter().map(dispatcher).collect(),
            split: config.split.as_ref().map(|setup| Split::new(setup, config, seat.seed)),
            clock,
            timer: Timer::new()?,
            held: RefCell::default(),
            calls: Cell::new(0),
            read_at: Cell::new(clock.now()),
            operations: Cell::default(),
            ejection_failures: config.safeguards.ejection_failures,
            timekeeper: RefCell::default(),
        }))
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

    /// Waits for a deadline of core's.
    pub(crate) fn wait_for(&self, due: Deadline) -> Wait {
        self.timer.at(self.clock.std_instant(due.at))
    }

    /// Begins a call at the replicas of a group in a data centre; the guard closes it.
    pub(crate) fn open(
        self: &Rc<Self>,
        datacenter: usize,
        group: GroupId,
        replay: Replay,
    ) -> OpenCall {
        let id = CallId(self.calls.get());
        self.calls.set(id.0 + 1);
        let call = self.dispatcher(datacenter).open(self.tick(), id, Request { group, replay });
        OpenCall::new(Rc::clone(self), datacenter, call)
    }

    /// Chooses the data centre for a request of our own users and counts it, where requests are
    /// split.
    pub(crate) fn depart(self: &Rc<Self>, bonds: Bonds) -> Option<Journey> {
        let split = self.split.as_ref()?;
        let now = self.tick();
        self.look_up_usable(split, now);
        Some(Journey::begin(Rc::clone(self), split.choose(now, bonds), now))
    }

    /// Looks up again, where it is due, which data centres have a replica to send to.
    pub(crate) fn look_up_usable(&self, split: &Split, now: Instant) {
        if split.is_due(now) {
            split.set_usable(|datacenter| self.usability(now, datacenter));
        }
    }

    /// Whether a data centre has a replica that is up and not ejected, and until when that stands
    /// unless something fails. After its ejection a replica that has not succeeded yet is good for
    /// one request at a time: all that the plan sends there would come back with it.
    fn usability(&self, now: Instant, datacenter: usize) -> (bool, Instant) {
        let dispatcher = self.dispatchers[datacenter].borrow();
        let fleet = dispatcher.fleet();
        let limit = self.ejection_failures;
        let up = fleet.group(WHOLE).iter().map(|&id| fleet.replica(id));
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

    pub(crate) fn dispatcher(&self, datacenter: usize) -> RefMut<'_, Dispatcher> {
        self.dispatchers[datacenter].borrow_mut()
    }

    /// Takes over which replicas of a data centre may be used, and the groups they form.
    pub(crate) fn adopt(&self, datacenter: usize, plan: &RoutePlan) {
        let now = self.tick();
        self.dispatcher(datacenter).adopt(now, plan);
        self.resume_held(datacenter);
        if let Some(split) = &self.split {
            split.look_again();
        }
    }

    /// Takes over where the requests of our own users go. `worker` says whose part of the caps this
    /// is.
    pub(crate) fn direct(&self, worker: usize, directive: &Directive) {
        if let Some(split) = &self.split {
            split.direct(self.tick(), worker, directive);
        }
    }

    /// How the replica of a data centre stands, with so many connections open to it.
    pub(crate) fn replica(
        &self,
        datacenter: usize,
        replica: usize,
        connections: usize,
    ) -> ReplicaState {
        let now = self.read_at.get();
        let dispatcher = self.dispatchers[datacenter].borrow();
        let id = ReplicaId::new(replica);
        let facts = dispatcher.fleet().replica(id);
        ReplicaState {
            in_flight: facts.in_flight(),
            connections,
            failure_share: facts.failure_share(now),
            is_ejected: facts.ejected_until() > now,
            cost: dispatcher.cost(now, id),
            queue_length: facts.feedback().map(|feedback| feedback.queue_length),
            service_time: facts.feedback().map(|feedback| feedback.service_time),
            dimmer: facts.dimmer().filter(|told| now.since(told.1) < DIMMER_SHOWN_FOR),
        }
    }

    /// Takes what was counted since the last time. `replicas` is how they stand now, by seat.
    pub(crate) fn observe(&self, replicas: Vec<ReplicaState>) -> Observation {
        let now = self.tick();
        let held = self.dispatchers.iter().map(|dispatcher| dispatcher.borrow().held()).sum();
        let hedges = self.dispatchers.iter().filter_map(|dispatcher| dispatcher.borrow().hedge());
        Observation {
            replicas,
            held,
            hedge: hedges.reduce(HedgeStanding::merged),
            window: self.window(),
            seen: BrownoutSeen::default(),
            operations: self.operations.take(),
            split: self.split.as_ref().map(|split| split.observe(now, held as u64)),
            cluster: None,
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

    /// Wakes the calls that a dispatcher has made ready.
    pub(crate) fn resume_held(&self, datacenter: usize) {
        loop {
            let Some(id) = self.dispatcher(datacenter).resumed() else { return };
            if let Some(waker) = self.held.borrow_mut().remove(&id) {
                waker.wake();
            }
        }
    }

    /// Runs for the life of the worker: wakes held calls when their rate opens. One task for all,
    /// because only the head of the queue may ask again.
    pub(crate) async fn keep_time(self: Rc<Self>) {
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
    pub(crate) fn probe(&self, datacenter: usize) -> Option<Probe> {
        let now = self.read_at.get();
        self.dispatcher(datacenter).probe(now)
    }

    /// Learns the answer to a question; `None` when there was none.
    pub(crate) fn learn_probe(&self, datacenter: usize, probe: &Probe, told: Option<&Feedback>) {
        let now = self.tick();
        self.dispatcher(datacenter).learn_probe(now, probe, told);
    }
}

/// Whether what ended with a refusal or (`None`) an answer of "unavailable" may be sent once more,
/// to another data centre.
pub(crate) fn may_begin_again(refusal: Option<Refusal>, replay: Replay) -> bool {
    match refusal {
        Some(Refusal::NoReplica | Refusal::BacklogFull) => true,
        Some(Refusal::Failed(failure)) => replay.is_allowed_after(failure),
        None => replay.is_allowed_after(Failure::Unavailable),
    }
}
