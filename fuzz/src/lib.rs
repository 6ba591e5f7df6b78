//! A driver that obeys the dispatcher's protocol and keeps the simplest book there is: the list of
//! what is in flight. `crates/decide/core/tests/histories.rs` keeps all the others.

use evenkeel_core::fleet::{Feedback, Fleet, GroupId, Health, ReplicaId};
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::Redundancy;
use evenkeel_core::request::select::Selector;
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Failure, Outcome, Replay,
    Request, Step,
};
use evenkeel_core::{Duration, Instant};

const FAILURES: [Failure; 5] = [
    Failure::Unsent,
    Failure::Broken,
    Failure::TimedOut,
    Failure::Unavailable,
    Failure::ErrorReply,
];
const HEALTHS: [Health; 3] = [Health::Up, Health::Down, Health::Draining];

/// A dispatcher over four replicas in two groups, its driver, and what is in flight.
#[derive(Debug)]
pub struct Life {
    dispatcher: Dispatcher,
    now: Instant,
    plan: RoutePlan,
    opened: u64,
    calls: Vec<Call>,
    in_flight: Vec<Attempt>,
}

/// Two further copies, each a millisecond after the one before it.
#[derive(Debug)]
struct Eager;

impl Redundancy for Eager {
    fn copy_due(&mut self, copies_sent: usize) -> Option<Duration> {
        (copies_sent <= 2).then_some(Duration::from_millis(1))
    }

    fn permits_copy(&mut self, _now: Instant) -> bool {
        true
    }
}

impl Life {
    /// A life that has not begun.
    #[must_use]
    pub fn new(policy: Box<dyn Selector>, seed: u64) -> Self {
        let groups = [[0, 1, 2], [1, 2, 3]].map(|ids| ids.map(ReplicaId::new).to_vec()).to_vec();
        let config = DispatcherConfig { backlog_calls_max: 4, seed, ..DispatcherConfig::default() };
        let dispatcher = Dispatcher::new(Fleet::new(4, groups.clone()), policy, config);
        Self {
            dispatcher: dispatcher.with_redundancy(Box::new(Eager)),
            now: Instant::from_millis(1),
            plan: RoutePlan { groups, ..RoutePlan::single_group(4) },
            opened: 0,
            calls: Vec::new(),
            in_flight: Vec::new(),
        }
    }

    /// One operation: `what` it is, `which` call, attempt or replica, and `how` it goes.
    ///
    /// # Panics
    /// When the dispatcher breaks a promise.
    pub fn live(&mut self, [what, which, how]: [u8; 3]) {
        let which = usize::from(which);
        match what % 12 {
            0..=2 => self.open(which, how),
            3..=4 => self.end(which, &replied(how)),
            5 => self.end(which, &Outcome::Failed(FAILURES[usize::from(how) % 5])),
            6 => self.end(which, &Outcome::Cancelled),
            7 if !self.calls.is_empty() => self.close(which % self.calls.len()),
            8 => self.mirror(which),
            9 => self.now += Duration::from_nanos(1 << (how % 36)),
            10 => self.wake(),
            11 => self.change_health(which, HEALTHS[usize::from(how) % 3]),
            _ => {}
        }
        self.resume();
        while let Some(probe) = self.dispatcher.probe(self.now) {
            let answer = Feedback::measured(how.into(), 1, Duration::from_millis(3));
            self.dispatcher.learn_probe(self.now, &probe, how.is_multiple_of(2).then_some(&answer));
        }
        self.check();
    }

    /// Every caller leaves and every attempt ends; then nothing may be left.
    ///
    /// # Panics
    /// When something is left.
    pub fn end_all(mut self) {
        while !self.calls.is_empty() {
            self.close(0);
        }
        for attempt in self.in_flight.drain(..) {
            self.dispatcher.finish(self.now, attempt, BodyEnd::Complete);
        }
        self.resume();
        assert_eq!((self.dispatcher.fleet().in_flight(), self.dispatcher.held()), (0, 0));
        assert_eq!(self.dispatcher.deadline(), None, "nobody is left to wake");
        let window = self.dispatcher.window();
        let ended = window.answered + window.refused + window.abandoned;
        assert_eq!((window.opened, ended), (self.opened, self.opened));
    }

    fn open(&mut self, group: usize, how: u8) {
        self.opened += 1;
        let replay = if how.is_multiple_of(4) { Replay::IfUnsent } else { Replay::Always };
        let request = Request::new(GroupId::new(group % 3), replay);
        self.calls.push(self.dispatcher.open(self.now, CallId(self.opened), request));
        self.step(self.calls.len() - 1);
    }

    /// Steps a call until it rests or ends.
    fn step(&mut self, place: usize) {
        for _ in 0..20 {
            match self.dispatcher.step(self.now, &mut self.calls[place]) {
                Step::Send(attempt) => self.in_flight.push(attempt),
                Step::Cancel(copy) => self.cancel(place, copy),
                Step::Wait { .. } => return,
                Step::Answered(_) | Step::Refused(_) => return self.close(place),
            }
        }
        panic!("a call steps for ever");
    }

    fn cancel(&mut self, place: usize, copy: usize) {
        let (call, now) = (&mut self.calls[place], self.now);
        let is_it = |it: &Attempt| (it.call(), it.copy()) == (call.id(), copy);
        let found = self.in_flight.iter().position(is_it).expect("the loser is in flight");
        let mut attempt = self.in_flight.swap_remove(found);
        call.settle(self.dispatcher.learn(now, &mut attempt, &Outcome::Cancelled));
        self.dispatcher.finish(now, attempt, BodyEnd::Complete);
    }

    fn end(&mut self, which: usize, outcome: &Outcome) {
        if self.in_flight.is_empty() {
            return;
        }
        let mut attempt = self.in_flight.swap_remove(which % self.in_flight.len());
        let settled = self.dispatcher.learn(self.now, &mut attempt, outcome);
        let call = attempt.call();
        self.dispatcher.finish(self.now, attempt, BodyEnd::Complete);
        if let Some(place) = self.place(call) {
            self.calls[place].settle(settled);
            self.step(place);
        }
    }

    fn mirror(&mut self, which: usize) {
        let call = CallId(which as u64);
        let replica = ReplicaId::new(which % self.plan.health.len());
        self.in_flight.push(self.dispatcher.mirror(self.now, call, replica));
    }

    fn wake(&mut self) {
        if let Some(deadline) = self.dispatcher.deadline() {
            self.now = self.now.max(deadline.at);
            self.dispatcher.wake(self.now);
        }
        // Hedges that are due.
        (0..self.calls.len()).rev().for_each(|place| self.step(place));
    }

    fn change_health(&mut self, which: usize, health: Health) {
        let slot = which % self.plan.health.len();
        self.plan.health[slot] = health;
        self.plan.version += 1;
        self.dispatcher.adopt(self.now, &self.plan);
    }

    fn resume(&mut self) {
        for _ in 0..1_000 {
            let Some(id) = self.dispatcher.resumed() else { return };
            if let Some(place) = self.place(id) {
                self.step(place);
            }
        }
        panic!("calls are resumed for ever");
    }

    fn close(&mut self, place: usize) {
        let call = self.calls.swap_remove(place);
        self.dispatcher.close(self.now, call);
    }

    fn place(&self, id: CallId) -> Option<usize> {
        self.calls.iter().position(|call| call.id() == id)
    }

    fn check(&self) {
        let fleet = self.dispatcher.fleet();
        assert_eq!(fleet.in_flight(), self.in_flight.len() as u64);
        for slot in 0..fleet.len() {
            let id = ReplicaId::new(slot);
            let its = self.in_flight.iter().filter(|attempt| attempt.replica() == id).count();
            assert_eq!(fleet.replica(id).in_flight() as usize, its, "replica {slot}");
        }
        assert!(self.dispatcher.held() <= self.calls.len());
    }
}

fn replied(how: u8) -> Outcome {
    let service = Duration::from_nanos(1 << (how % 32));
    let report = Feedback::measured(how.into(), 1, service);
    Outcome::Replied((!how.is_multiple_of(3)).then_some(report))
}
