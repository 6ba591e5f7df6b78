//! The per-request decision path allocates nothing once it is warm.
#![expect(unsafe_code, reason = "counting allocations takes a global allocator of our own")]

#[path = "common/policies.rs"]
mod policies;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use evenkeel_core::fleet::{Feedback, Fleet, GroupId};
use evenkeel_core::request::redundancy::{Hedge, HedgeConfig, ObjectiveConfig};
use evenkeel_core::request::ring::{self, LayoutInputs, Node, Replication, Ring, murmur};
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Failure, Outcome, Replay,
    Request, Step,
};
use evenkeel_core::time::{Duration, Instant, Why};
use evenkeel_core::units::Dimmer;

thread_local! {
    /// Allocations of this thread: the test harness has threads of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises about the layout are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, that is, from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MS: Duration = Duration::from_millis(1);
const WARM_UP: u64 = 2_000;
const MEASURED: u64 = 200;

/// What happened to the requests, to show that the path was the interesting one.
#[derive(Default, Debug)]
struct Tally {
    /// The time of the latest event.
    now: Instant,
    sent: u64,
    held: u64,
    cancelled: u64,
}

/// One request a millisecond; every twentieth fails first, every 25th is slow enough for a hedge.
fn request(dispatcher: &mut Dispatcher, n: u64, tally: &mut Tally) {
    let mut now = tally.now + Duration::from_millis(1);
    let among = n.is_multiple_of(3).then(|| (0..64).collect());
    let group = GroupId::new(n as usize % 2);
    let call = Request { among, ..Request::new(group, Replay::Always) };
    let mut call = dispatcher.open(now, CallId(n), call);
    let mut flying: [Option<Attempt>; 8] = Default::default();
    let mut is_told = !n.is_multiple_of(7);
    loop {
        match dispatcher.step(now, &mut call) {
            Step::Send(attempt) => {
                tally.sent += 1;
                let copy = attempt.copy();
                flying[copy] = Some(attempt);
            }
            Step::Cancel(copy) => {
                tally.cancelled += 1;
                learn(dispatcher, now, &mut call, flying[copy].take(), &Outcome::Cancelled);
            }
            Step::Wait { .. } if !core::mem::replace(&mut is_told, true) => {
                let report = Feedback { queue_length: 400, ..report(n) };
                if let Some(attempt) = flying.iter().flatten().next() {
                    dispatcher.hear_queued(now, &mut call, attempt, &report);
                }
            }
            Step::Wait { until } => {
                let hedge = until.filter(|due| n.is_multiple_of(25) && due.why == Why::Hedge);
                if let Some(due) = hedge {
                    now = due.at;
                } else if let Some(copy) = flying.iter().position(Option::is_some) {
                    now += Duration::from_micros(300);
                    let outcome = outcome(n, copy);
                    learn(dispatcher, now, &mut call, flying[copy].take(), &outcome);
                } else {
                    tally.held += 1;
                    now = dispatcher.deadline().expect("it is held").at;
                    dispatcher.wake(now);
                    while dispatcher.resumed().is_some() {}
                }
            }
            Step::Answered(_) | Step::Refused(_) => break,
        }
        while let Some(probe) = dispatcher.probe(now) {
            dispatcher.learn_probe(now, &probe, Some(&report(n)));
        }
    }
    dispatcher.close(now, call);
    tally.now = now;
}

fn report(n: u64) -> Feedback {
    Feedback {
        dimmer: Some(Dimmer::clamped((n % 8) as f64 / 8.0)),
        ..Feedback::measured(n as u32 % 5, 1, Duration::from_micros(200 + n % 100))
    }
}

fn outcome(n: u64, copy: usize) -> Outcome {
    if n.is_multiple_of(20) && copy == 0 {
        Outcome::Failed(Failure::Broken)
    } else {
        Outcome::Replied(Some(report(n)))
    }
}

fn learn(
    dispatcher: &mut Dispatcher,
    now: Instant,
    call: &mut Call,
    attempt: Option<Attempt>,
    outcome: &Outcome,
) {
    let mut attempt = attempt.expect("it is flying");
    call.settle(dispatcher.learn(now, &mut attempt, outcome));
    dispatcher.finish(now, attempt, BodyEnd::Complete);
}

#[test]
fn the_decision_path_allocates_nothing() {
    // A rate that cannot follow: calls are held all the time.
    let throttled = "c3:rate_control=on,rate_initial=1,step_max=0.000001";
    for policy in policies::all().into_iter().chain([throttled]) {
        let group = |slots: [usize; 3]| slots.map(evenkeel_core::ReplicaId::new).to_vec();
        let fleet = Fleet::new(5, vec![group([0, 1, 2]), group([2, 3, 4])]);
        let config = DispatcherConfig { record_latency: true, ..DispatcherConfig::default() };
        let hedge = Hedge::new(HedgeConfig { budget_share: 0.3, ..HedgeConfig::default() });
        let mut dispatcher =
            Dispatcher::new(fleet, policies::make(policy), config).with_redundancy(Box::new(hedge));
        let mut tally = Tally::default();
        (0..WARM_UP).for_each(|n| request(&mut dispatcher, n, &mut tally));
        let _ = dispatcher.window();
        tally = Tally { now: tally.now, ..Tally::default() };
        let before = ALLOCATIONS.get();
        (WARM_UP..WARM_UP + MEASURED).for_each(|n| request(&mut dispatcher, n, &mut tally));
        let allocations = ALLOCATIONS.get() - before;
        assert_eq!(allocations, 0, "{policy}: {tally:?}");
        let window = dispatcher.window();
        // Where rates are closed, hedges are held back too.
        if policy == throttled {
            assert!(tally.held > 100, "{policy}: {tally:?}");
            continue;
        }
        let (retries, hedges) = (window.retries, window.hedges);
        assert!(retries > 5 && hedges > 2, "{policy}: {retries} retries, {hedges} hedges");
        assert!(tally.sent > 210 && tally.cancelled > 2, "{policy}: {tally:?}");
    }
}

#[test]
fn neither_does_a_hedge_toward_an_objective() {
    let objective = ObjectiveConfig { worth_min: 0.0, ..ObjectiveConfig::new(10 * MS) };
    let hedge = HedgeConfig {
        objective: Some(objective),
        budget_share: 1.0,
        // The delay is chosen every sixteenth of it, so many times while it is measured.
        window: 160 * MS,
        ..HedgeConfig::default()
    };
    let fleet = Fleet::single_group(3);
    let hedge = Box::new(Hedge::new(hedge));
    let policy = policies::make("least-outstanding");
    let mut dispatcher =
        Dispatcher::new(fleet, policy, DispatcherConfig::default()).with_redundancy(hedge);
    let mut now = Instant::ZERO;
    let mut before = 0;
    for n in 0..WARM_UP + MEASURED {
        if n == WARM_UP {
            let _ = dispatcher.window();
            before = ALLOCATIONS.get();
        }
        now += MS;
        let call = Request::new(GroupId::new(0), Replay::Always);
        let mut call = dispatcher.open(now, CallId(n), call);
        let Step::Send(mut first) = dispatcher.step(now, &mut call) else { panic!("sent at once") };
        let due = match dispatcher.step(now, &mut call) {
            Step::Wait { until } => until.filter(|_| n % 25 == 0).map(|deadline| deadline.at),
            other => panic!("{other:?}"),
        };
        let copy = due.and_then(|due| match dispatcher.step(due, &mut call) {
            Step::Send(copy) => Some(copy),
            _ => None,
        });
        let late = if n % 25 == 0 { 30 * MS } else { MS / 4 };
        let end = now + if copy.is_some() { 5 * MS } else { late };
        let replied = Outcome::Replied(Some(report(n)));
        if let Some(mut copy) = copy {
            call.settle(dispatcher.learn(end, &mut copy, &replied));
            call.settle(dispatcher.learn(end, &mut first, &Outcome::Cancelled));
            dispatcher.finish(end, copy, BodyEnd::Complete);
        } else {
            call.settle(dispatcher.learn(end, &mut first, &replied));
        }
        dispatcher.finish(end, first, BodyEnd::Complete);
        dispatcher.close(end, call);
        now = end;
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    let hedges = dispatcher.window().hedges;
    assert!(hedges > 2, "{hedges} hedges");
}

#[test]
fn neither_does_a_request_that_moves() {
    let config = DispatcherConfig { can_ask: true, ..DispatcherConfig::default() };
    let policy = policies::make("adaptive");
    let mut dispatcher = Dispatcher::new(Fleet::single_group(3), policy, config);
    let mut before = 0;
    for n in 0..WARM_UP + MEASURED {
        if n == WARM_UP {
            let _ = dispatcher.window();
            before = ALLOCATIONS.get();
        }
        let (asked_at, now) = (Instant::from_millis(n * 10), Instant::from_millis(n * 10 + 1));
        let call = Request::new(GroupId::new(0), Replay::Always);
        let mut call = dispatcher.open(asked_at, CallId(n), call);
        let mut step = dispatcher.step(asked_at, &mut call);
        while let Some(probe) = dispatcher.probe(asked_at) {
            dispatcher.learn_probe(now, &probe, Some(&report(n)));
        }
        while dispatcher.resumed().is_some() {}
        if matches!(step, Step::Wait { .. }) {
            step = dispatcher.step(now, &mut call);
        }
        let Step::Send(mut attempt) = step else { panic!("{step:?}") };
        let queued = Feedback { queue_length: 400, ..report(n) };
        dispatcher.hear_queued(now, &mut call, &attempt, &queued);
        if let Step::Send(next) = dispatcher.step(now, &mut call) {
            assert!(matches!(dispatcher.step(now, &mut call), Step::Cancel(0)));
            call.settle(dispatcher.give_up(now, &mut attempt));
            let left = core::mem::replace(&mut attempt, next);
            dispatcher.finish(now, left, BodyEnd::ClientGone);
        }
        let replied = Outcome::Replied(Some(report(n)));
        learn(&mut dispatcher, now + MS, &mut call, Some(attempt), &replied);
        dispatcher.close(now + MS, call);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    let moves = dispatcher.window().moves;
    assert!(moves > 5, "{moves} moves");
}

#[test]
fn neither_does_finding_the_group_of_a_key() {
    let node = |number: u8| Node {
        datacenter: "a".to_owned(),
        rack: (number % 3).to_string(),
        tokens: (0..16).map(|each| murmur::token(&[number, each])).collect(),
    };
    let nodes = Ring::new(&(0..6).map(node).collect::<Vec<_>>());
    let replication = Replication::NetworkTopology([("a".to_owned(), 3)].into());
    let keyspaces = [("orders".to_owned(), replication)].into();
    let slots: Vec<_> = (0..6).map(Some).collect();
    let inputs =
        LayoutInputs { ring: &nodes, keyspaces: &keyspaces, slots: &slots, groups_max: 99 };
    let layout = ring::Layout::new(&inputs);
    let before = ALLOCATIONS.get();
    let mut found = [false; 99];
    for n in 0..MEASURED {
        let token = murmur::token(&n.to_be_bytes());
        found[layout.group("orders", Some(token)).index()] = true;
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
    assert!(found.iter().filter(|found| **found).count() > 4, "several groups were found");
}

#[test]
fn an_allocation_is_noticed() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
