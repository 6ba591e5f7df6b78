//! What a decision costs: the whole life of a call, for each policy.
//!
//! `cargo bench -p evenkeel-core` prints nanoseconds per item. Time is counted up instead of read,
//! so clock reads are not part of it. The bar: 60 ns for `c3`.

#[path = "../tests/common/policies.rs"]
mod policies;

use std::cell::RefCell;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use evenkeel_core::fleet::{Feedback, Fleet, GroupId};
use evenkeel_core::request::redundancy::{Hedge, HedgeConfig, ObjectiveConfig};
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Outcome, Replay, Request, Step,
};
use evenkeel_core::time::{Duration, Instant};

const REQUEST: Request = Request::new(GroupId::new(0), Replay::Always);
const GAP: Duration = Duration::from_micros(100);
/// Requests on their way at any moment.
const WINDOW: usize = 4;
/// Cycles per measured call of the closure: divan's own call costs nothing beside them.
const CYCLES: usize = 1_000;

fn main() {
    divan::main();
}

/// A dispatcher in the middle of its work: `WINDOW` requests are always on their way.
struct Work {
    dispatcher: Dispatcher,
    now: Instant,
    calls: [Option<Call>; WINDOW],
    attempts: [Option<Attempt>; WINDOW],
    opened: usize,
}

impl Work {
    fn new(dispatcher: Dispatcher) -> Self {
        let (calls, attempts) = ([const { None }; WINDOW], [const { None }; WINDOW]);
        let mut work = Self { dispatcher, now: Instant::ZERO, calls, attempts, opened: 0 };
        (0..10_000).for_each(|_| work.cycle());
        work
    }

    /// The oldest request is answered with a report, and a new one is sent: pick among three,
    /// sent, learnt, finished, closed.
    #[inline]
    fn cycle(&mut self) {
        self.now += GAP;
        let place = self.opened % WINDOW;
        if let (Some(call), Some(mut attempt)) =
            (&mut self.calls[place], self.attempts[place].take())
        {
            let busy = (self.opened % 7) as u32;
            let service = Duration::from_micros(300 + (self.opened % 13) as u64);
            let report = Feedback::measured(busy, 1, service);
            let outcome = black_box(Outcome::Replied(Some(report)));
            call.settle(self.dispatcher.learn(self.now, &mut attempt, &outcome));
            self.dispatcher.finish(self.now, attempt, BodyEnd::Complete);
            assert!(matches!(self.dispatcher.step(self.now, call), Step::Answered(_)));
        }
        if let Some(call) = self.calls[place].take() {
            self.dispatcher.close(self.now, call);
        }
        let id = CallId(self.opened as u64);
        let call = self.calls[place].insert(self.dispatcher.open(self.now, id, REQUEST));
        match self.dispatcher.step(self.now, call) {
            Step::Send(attempt) => self.attempts[place] = Some(attempt),
            _ => {
                let held = self.calls[place].take().expect("it was opened");
                self.dispatcher.close(self.now, held);
            }
        }
        while let Some(probe) = self.dispatcher.probe(self.now) {
            let report = Feedback::measured((self.opened % 5) as u32, 1, GAP);
            self.dispatcher.learn_probe(self.now, &probe, Some(&report));
        }
        self.opened += 1;
    }
}

fn dispatcher(policy: &str, replicas: usize) -> Dispatcher {
    let fleet = Fleet::single_group(replicas);
    Dispatcher::new(fleet, policies::make(policy), DispatcherConfig::default())
}

fn measure(bencher: Bencher<'_, '_>, dispatcher: Dispatcher) {
    let work = RefCell::new(Work::new(dispatcher));
    bencher.counter(ItemsCount::new(CYCLES)).bench_local(|| {
        let mut work = work.borrow_mut();
        (0..CYCLES).for_each(|_| work.cycle());
    });
}

/// One whole cycle with three replicas; the printed time is for a thousand.
#[divan::bench(args = policies::all())]
fn thousand_cycles_of_3(bencher: Bencher<'_, '_>, policy: &str) {
    measure(bencher, dispatcher(policy, 3));
}

/// The same with a hedge that learns its delay from every answer.
#[divan::bench(args = ["c3", "c3:rate_control=on"])]
fn thousand_hedged_cycles_of_3(bencher: Bencher<'_, '_>, policy: &str) {
    let hedge = Hedge::new(HedgeConfig::default());
    measure(bencher, dispatcher(policy, 3).with_redundancy(Box::new(hedge)));
}

/// The same toward an objective; the choice of the delay, 1.6 times a second here, is part of it.
#[divan::bench(args = ["c3", "c3:rate_control=on"])]
fn thousand_cycles_of_3_with_an_objective(bencher: Bencher<'_, '_>, policy: &str) {
    let objective = Some(ObjectiveConfig::new(Duration::from_micros(500)));
    let hedge = Hedge::new(HedgeConfig { objective, ..HedgeConfig::default() });
    measure(bencher, dispatcher(policy, 3).with_redundancy(Box::new(hedge)));
}

/// How the cost of a choice grows with the group.
#[divan::bench(args = [3, 10, 50])]
fn thousand_cycles_of_c3(bencher: Bencher<'_, '_>, replicas: usize) {
    measure(bencher, dispatcher("c3", replicas));
}
