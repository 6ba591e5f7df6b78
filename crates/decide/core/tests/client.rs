//! A client with timers and retries of its own, which asks the dispatcher for one replica after
//! the other.

use evenkeel_core::fleet::{Fleet, GroupId, ReplicaId};
use evenkeel_core::request::call::ATTEMPTS_MAX;
use evenkeel_core::request::redundancy::{Hedge, HedgeConfig};
use evenkeel_core::request::select::Policy;
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Failure, Kind, Outcome, Replay,
    Request, Step,
};
use evenkeel_core::time::{Duration, Instant};

const ALL: GroupId = GroupId::new(0);
const MS: Duration = Duration::from_millis(1);

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn open(dispatcher: &mut Dispatcher, now: Instant, id: u64) -> (Call, Attempt) {
    let request = Request::new(ALL, Replay::Always);
    let mut call = dispatcher.open(now, CallId(id), request);
    match dispatcher.step(now, &mut call) {
        Step::Send(attempt) => (call, attempt),
        step => panic!("it is sent at once, not {step:?}"),
    }
}

fn end(
    dispatcher: &mut Dispatcher,
    now: Instant,
    call: &mut Call,
    mut attempt: Attempt,
    outcome: Outcome,
) {
    call.settle(dispatcher.learn(now, &mut attempt, &outcome));
    dispatcher.finish(now, attempt, BodyEnd::Complete);
}

/// Ten seconds of answers after 2 ms have passed.
fn dispatcher() -> Dispatcher {
    let policy = "least-outstanding".parse::<Policy>().expect("a policy of the registry");
    let mut dispatcher =
        Dispatcher::new(Fleet::single_group(3), policy.make(1), DispatcherConfig::default())
            .with_redundancy(Box::new(Hedge::new(HedgeConfig::default())));
    serve(&mut dispatcher, 0..1_000, 2);
    dispatcher
}

/// A call every 10 ms, answered after `latency_ms`.
fn serve(dispatcher: &mut Dispatcher, tens: std::ops::Range<u64>, latency_ms: u64) {
    for n in tens {
        let (mut call, attempt) = open(dispatcher, at(10 * n), n);
        let now = at(10 * n + latency_ms);
        end(dispatcher, now, &mut call, attempt, Outcome::Replied(None));
        dispatcher.close(now, call);
    }
}

fn is_about_2_ms(delay: Option<Duration>) -> bool {
    delay.is_some_and(|delay| (1_900..2_200).contains(&delay.as_micros()))
}

#[test]
fn the_client_is_told_after_how_long_a_copy_is_due_and_none_while_most_are_late() {
    let mut dispatcher = dispatcher();
    assert!(is_about_2_ms(dispatcher.copy_due(1)), "{:?}", dispatcher.copy_due(1));
    assert_eq!(dispatcher.copy_due(2), None, "one copy for a call");
    serve(&mut dispatcher, 1_000..1_060, 100);
    assert_eq!(dispatcher.copy_due(1), None, "copies would double the load");
}

#[test]
fn a_copy_leaves_when_the_client_says_so_and_once() {
    let mut dispatcher = dispatcher();
    let (mut call, first) = open(&mut dispatcher, at(10_000), 1);
    let copy = dispatcher.copy(at(10_001), &mut call).expect("there is a budget");
    assert_eq!((copy.kind(), copy.replica() == first.replica()), (Kind::Hedge, false));
    assert!(dispatcher.copy(at(10_005), &mut call).is_none());
    end(&mut dispatcher, at(10_006), &mut call, copy, Outcome::Replied(None));
    end(&mut dispatcher, at(10_006), &mut call, first, Outcome::Cancelled);
    dispatcher.close(at(10_006), call);
    let window = dispatcher.window();
    assert_eq!((window.hedges, window.hedges_won), (1, 1));
}

#[test]
fn a_copy_that_is_kept_back_never_leaves() {
    let mut dispatcher = dispatcher();
    let mut calls = Vec::new();
    let mut left = 0;
    for n in 0..100 {
        let (mut call, first) = open(&mut dispatcher, at(10_000), n);
        let copy = dispatcher.copy(at(10_003), &mut call);
        left += u32::from(copy.is_some());
        assert!(dispatcher.copy(at(10_003), &mut call).is_none());
        calls.push((call, first, copy));
    }
    // A burst of ten, and one for each twenty calls.
    assert_eq!(left, 14);
    assert_eq!(dispatcher.window().hedges_denied, 86);
    for (call, first, copy) in calls {
        [Some(first), copy]
            .into_iter()
            .flatten()
            .for_each(|it| dispatcher.finish(at(10_009), it, BodyEnd::Complete));
        dispatcher.close(at(10_009), call);
    }
}

#[test]
fn a_retry_leaves_although_a_copy_is_on_its_way_and_tries_what_was_not_tried() {
    let mut dispatcher = dispatcher();
    let (mut call, first) = open(&mut dispatcher, at(10_000), 1);
    let copy = dispatcher.copy(at(10_003), &mut call).expect("there is a budget");
    let tried = [first.replica(), copy.replica()];
    let broken = Outcome::Failed(Failure::Broken);
    end(&mut dispatcher, at(10_004), &mut call, first, broken);
    let retry = dispatcher.retry(at(10_004), &mut call).expect("one is left");
    assert_eq!((retry.kind(), tried.contains(&retry.replica())), (Kind::Retry, false));
    end(&mut dispatcher, at(10_005), &mut call, copy, broken);
    assert!(dispatcher.retry(at(10_005), &mut call).is_none(), "none is left");
    dispatcher.finish(at(10_006), retry, BodyEnd::Complete);
    dispatcher.close(at(10_006), call);
}

#[test]
fn a_retry_goes_to_one_of_those_that_are_left_to_it() {
    let mut dispatcher = dispatcher();
    let only = |id: ReplicaId| vec![id];
    let plan = evenkeel_core::plan::RoutePlan {
        version: 1,
        health: vec![evenkeel_core::Health::Up; 3],
        generations: Vec::new(),
        groups: [
            vec![(0..3).map(ReplicaId::new).collect()],
            (0..3).map(|n| only(ReplicaId::new(n))).collect(),
        ]
        .concat(),
    };
    dispatcher.adopt(at(10_000), &plan);
    let (mut call, first) = open(&mut dispatcher, at(10_000), 1);
    let last = ReplicaId::new((first.replica().index() + 2) % 3);
    end(&mut dispatcher, at(10_001), &mut call, first, Outcome::Failed(Failure::Broken));
    call.regroup(GroupId::new(1 + last.index()));
    let retry = dispatcher.retry(at(10_001), &mut call).expect("it is left");
    assert_eq!(retry.replica(), last);
    dispatcher.finish(at(10_002), retry, BodyEnd::Complete);
    dispatcher.close(at(10_002), call);
}

#[test]
fn what_is_forgotten_teaches_nothing() {
    let mut dispatcher = dispatcher();
    for n in 0..200 {
        let (mut call, mut first) = open(&mut dispatcher, at(10_000), n);
        let now = at(10_000) + 5_000 * MS;
        call.settle(dispatcher.forget(now, &mut first));
        let replica = first.replica();
        dispatcher.finish(now, first, BodyEnd::Complete);
        dispatcher.close(now, call);
        assert_eq!(dispatcher.fleet().replica(replica).burden(now), 0.0);
    }
    assert!(is_about_2_ms(dispatcher.copy_due(1)), "{:?}", dispatcher.copy_due(1));
}

#[test]
fn a_call_makes_as_many_attempts_as_it_has_room_for() {
    let policy = "least-outstanding".parse::<Policy>().expect("a policy of the registry");
    let fleet = Fleet::single_group(ATTEMPTS_MAX + 1);
    let mut dispatcher = Dispatcher::new(fleet, policy.make(1), DispatcherConfig::default());
    let (mut call, first) = open(&mut dispatcher, at(1), 1);
    let mut attempts = vec![first];
    while let Some(retry) = dispatcher.retry(at(1), &mut call) {
        attempts.push(retry);
    }
    assert_eq!(attempts.len(), ATTEMPTS_MAX);
    attempts.into_iter().for_each(|attempt| dispatcher.finish(at(2), attempt, BodyEnd::Complete));
    dispatcher.close(at(2), call);
}
