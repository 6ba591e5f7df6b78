//! The state of a running load: what is due, what waits, what is in flight.
//!
//! Requests wait for a connection in the order they were due, and connections are reused last in,
//! first out, so that a load uses no more of them than it needs. Deadlines follow the same order
//! (one timeout for all), so the oldest request is always the next to time out and no timer per
//! request is needed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::Instant;

use super::arrivals::Agenda;
use super::pacer::Pacer;
use super::slot::{Job, Slot};
use super::tally::{Reply, Tally};
use super::target::KeyDraw;
use super::{Load, LoadError};
use evenkeel_runtime::clock::Clock;

/// The most requests taken from the agenda before connections get a turn.
const BATCH: usize = 256;

/// How often a request may meet a new connection that is closed before it is sent.
const UNSENT_MAX: u8 = 3;

/// Everything the tasks of a load share.
pub(super) struct World {
    pub(super) load: Load,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) pacer: Pacer,
    pub(super) clock: Clock,
    /// Opens a connection that reports here.
    open: fn(&Rc<World>),
    cancelled: Cell<bool>,
    state: RefCell<State>,
}

/// What the driver does next.
pub(super) enum Next {
    /// Let the connections run, then look again: there is more to do.
    Again,
    /// Sleep until then.
    At(Instant),
    /// All requests have been decided, or the load was cancelled.
    Done,
}

struct State {
    agenda: Agenda,
    keys: KeyDraw,
    /// Requests that became due so far.
    due: u64,
    /// Those of them that do not count.
    due_warm_up: u64,
    /// Requests due from here on count.
    counted_from: Instant,
    waiting: VecDeque<Job>,
    /// Connections without a request; the last one was used last.
    idle: Vec<Rc<Slot>>,
    /// By sequence number, which is also the order of deadlines.
    in_flight: BTreeMap<u64, (Instant, Rc<Slot>)>,
    /// Connections open or being opened.
    connections: usize,
    opening: usize,
    tally: Tally,
    /// What became of those that do not count; nobody looks at it.
    tally_warm_up: Tally,
}

/// A look at the counts of a running load.
pub(super) struct Counts {
    pub(super) due: u64,
    pub(super) due_warm_up: u64,
    pub(super) in_flight: usize,
    pub(super) waiting: usize,
    pub(super) connections: usize,
}

impl World {
    pub(super) fn new(
        load: Load,
        addresses: Vec<SocketAddr>,
        pacer: Pacer,
        open: fn(&Rc<World>),
    ) -> Result<Self, LoadError> {
        let state = State {
            agenda: load.plan.agenda(),
            keys: KeyDraw::new(load.target.keys, load.plan.seed)?,
            due: 0,
            due_warm_up: 0,
            counted_from: load.plan.counted_from(),
            waiting: VecDeque::new(),
            idle: Vec::new(),
            in_flight: BTreeMap::new(),
            connections: 0,
            opening: 0,
            tally: load.plan.tally(),
            tally_warm_up: Tally::default(),
        };
        let (clock, cancelled) = (Clock::start(), Cell::new(false));
        let state = RefCell::new(state);
        Ok(Self { load, addresses, pacer, clock, open, cancelled, state })
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Does everything that is due by `now`.
    pub(super) fn pump(self: &Rc<Self>, now: Instant) -> Next {
        if self.cancelled.get() {
            return Next::Done;
        }
        let mut state = self.state.borrow_mut();
        state.expire(now, self.load.plan.timeout);
        for _ in 0..BATCH {
            let Some(due) = state.agenda.take(now) else { break };
            state.admit(due, now, self.load.queue_max);
        }
        for _ in 0..state.connections_wanted(self.load.connections_max) {
            state.connections += 1;
            state.opening += 1;
            (self.open)(self);
        }
        match state.next_event(self.load.plan.timeout) {
            None => Next::Done,
            Some(at) if at <= now => Next::Again,
            Some(at) => Next::At(at),
        }
    }

    /// Ends the load; what is in flight stays undecided.
    pub(super) fn cancel(&self) {
        self.cancelled.set(true);
        self.pacer.wake();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }

    /// The request that has waited longest; without one, the connection is idle from here on.
    pub(super) fn waiting_job_or_idle(&self, slot: &Rc<Slot>) -> Option<Job> {
        let mut state = self.state.borrow_mut();
        let Some(job) = state.waiting.pop_front() else {
            state.idle.push(Rc::clone(slot));
            return None;
        };
        Some(state.start(job, slot, self.now()))
    }

    /// A request leaves; the generator's share of its delay is noted.
    pub(super) fn sent(&self, job: &Job) -> Instant {
        let sent = self.now();
        let lag = job.noticed.since(job.due) + sent.since(job.assigned);
        self.state.borrow_mut().tally_of(job.due).send_lag.record(lag);
        sent
    }

    pub(super) fn answered(self: &Rc<Self>, job: &Job, sent: Instant, reply: Reply) {
        let now = self.now();
        let (latency, service) = (now.since(job.due), now.since(sent));
        self.decide(job, now, |tally| tally.answered(latency, service, reply));
    }

    /// The request may have reached the server, and no whole response came.
    pub(super) fn broken(self: &Rc<Self>, job: &Job, message: &str) {
        self.decide(job, self.now(), |tally| tally.failed_because(message));
    }

    /// The request did not leave: it is the next to be sent, on another connection. A server may
    /// close idle connections whenever it wants, many at once too, so only new ones count.
    pub(super) fn unsent(self: &Rc<Self>, mut job: Job, is_new: bool) {
        job.unsent += u8::from(is_new);
        if job.unsent > UNSENT_MAX {
            return self.broken(&job, "the server closes connections before a request is sent");
        }
        let mut state = self.state.borrow_mut();
        if state.in_flight.remove(&job.number).is_some() {
            state.waiting.push_front(job);
        }
    }

    pub(super) fn connection_opened(&self) {
        let mut state = self.state.borrow_mut();
        state.opening -= 1;
        state.tally.connections_opened += 1;
    }

    pub(super) fn connection_closed(self: &Rc<Self>, slot: &Rc<Slot>) {
        let mut state = self.state.borrow_mut();
        state.connections -= 1;
        state.idle.retain(|idle| !Rc::ptr_eq(idle, slot));
        drop(state);
        self.go_on(self.now());
    }

    /// The request that has waited longest shares the fate of the connection opened for it.
    pub(super) fn connect_failed(self: &Rc<Self>, message: &str) {
        let mut state = self.state.borrow_mut();
        state.connections -= 1;
        state.opening -= 1;
        match state.waiting.pop_front() {
            Some(job) => state.tally_of(job.due).failed_because(message),
            None => state.tally.problem(message),
        }
        drop(state);
        self.go_on(self.now());
    }

    /// Looks at the counts; `look` may clear what it has seen of the recent latencies.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Counts, &mut Tally) -> T) -> T {
        let mut state = self.state.borrow_mut();
        let counts = Counts {
            due: state.due,
            due_warm_up: state.due_warm_up,
            in_flight: state.in_flight.len(),
            waiting: state.waiting.len(),
            connections: state.connections,
        };
        look(&counts, &mut state.tally)
    }

    fn decide(self: &Rc<Self>, job: &Job, now: Instant, note: impl FnOnce(&mut Tally)) {
        let mut state = self.state.borrow_mut();
        // Absent: it timed out, and has been counted.
        if state.in_flight.remove(&job.number).is_some() {
            note(state.tally_of(job.due));
        }
        drop(state);
        self.go_on(now);
    }

    /// Uses an answer as an occasion to send what is due: under load the timer alone is late.
    fn go_on(self: &Rc<Self>, now: Instant) {
        if matches!(self.pump(now), Next::Done) {
            self.pacer.wake();
        }
    }
}

impl State {
    /// Counts out every request whose time is over.
    fn expire(&mut self, now: Instant, timeout: Duration) {
        while let Some(flight) = self.in_flight.first_entry() {
            if flight.get().0 + timeout > now {
                break;
            }
            let (due, slot) = flight.remove();
            slot.abort();
            self.connections -= 1;
            self.tally_of(due).timed_out(timeout);
        }
        while let Some(job) = self.waiting.front().filter(|job| job.due + timeout <= now) {
            let due = job.due;
            self.waiting.pop_front();
            self.tally_of(due).timed_out(timeout);
        }
    }

    fn admit(&mut self, due: Instant, now: Instant, queue_max: usize) {
        let (number, key) = (self.due, self.keys.next());
        self.due += 1;
        self.due_warm_up += u64::from(due < self.counted_from);
        let job = Job { number, key, due, noticed: now, assigned: now, unsent: 0 };
        if let Some(slot) = self.idle.pop() {
            // One that met a closed connection may wait for another although some are idle.
            self.waiting.push_back(job);
            let first = self.waiting.pop_front().unwrap_or(job);
            let job = self.start(first, &slot, now);
            slot.assign(job);
        } else if self.waiting.len() < queue_max {
            self.waiting.push_back(job);
        } else {
            self.tally_of(due).dropped();
        }
    }

    /// Where to note what becomes of a request.
    fn tally_of(&mut self, due: Instant) -> &mut Tally {
        if due < self.counted_from { &mut self.tally_warm_up } else { &mut self.tally }
    }

    fn start(&mut self, job: Job, slot: &Rc<Slot>, now: Instant) -> Job {
        self.in_flight.insert(job.number, (job.due, Rc::clone(slot)));
        Job { assigned: now, ..job }
    }

    fn connections_wanted(&self, connections_max: usize) -> usize {
        let unserved = self.waiting.len().saturating_sub(self.opening);
        unserved.min(connections_max - self.connections)
    }

    /// When something happens by itself; `None` when nothing will and nothing is open.
    fn next_event(&mut self, timeout: Duration) -> Option<Instant> {
        let oldest = self.in_flight.first_key_value().map(|(_, (due, _))| *due);
        let first = self.waiting.front().map(|job| job.due);
        let deadline = [oldest, first].into_iter().flatten().min().map(|due| due + timeout);
        [self.agenda.due(), deadline].into_iter().flatten().min()
    }
}
