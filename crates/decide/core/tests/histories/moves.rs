//! Requests whose replica says that they must wait for a slot: they move where that pays.

use std::sync::{Arc, Mutex};

use evenkeel_core::fleet::{Feedback, Fleet, GroupId, Health, ReplicaId};
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Lasted, Redundancy};
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Kind, Outcome, Replay, Request,
    Step,
};
use evenkeel_core::time::{Duration, Instant, from_millis_f64};

use crate::policies;

const REPLIED: Outcome = Outcome::Replied(None);
const SLOTS: u32 = 4;
const SERVICE_MS: f64 = 8.0;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Four slots that are taken, 8 ms each, and so many that wait.
fn report(waiting: u32, in_service: u32) -> Feedback {
    let load = f64::from(waiting + in_service) / f64::from(SLOTS);
    Feedback {
        concurrency: Some(SLOTS),
        latency: Some(from_millis_f64(SERVICE_MS * (1.0 + load))),
        ..Feedback::measured(waiting, in_service, from_millis_f64(SERVICE_MS))
    }
}

fn queued(waiting: u32) -> Feedback {
    report(waiting, SLOTS)
}

/// Three replicas that are idle, and have said so within a millisecond.
fn dispatcher() -> Dispatcher {
    dispatcher_of("adaptive")
}

fn dispatcher_of(policy: &str) -> Dispatcher {
    let config = DispatcherConfig { can_ask: true, ..DispatcherConfig::default() };
    let mut dispatcher = Dispatcher::new(Fleet::single_group(3), policies::make(policy), config);
    let request = Request::new(GroupId::new(0), Replay::Always);
    let mut call = dispatcher.open(at(1), CallId(0), request);
    assert!(matches!(dispatcher.step(at(1), &mut call), Step::Wait { .. }), "it asks first");
    let questions: Vec<_> = std::iter::from_fn(|| dispatcher.probe(at(1))).collect();
    assert_eq!(questions.len(), 3);
    questions.iter().for_each(|it| dispatcher.learn_probe(at(2), it, Some(&report(0, 0))));
    dispatcher.close(at(2), call);
    dispatcher
}

fn begin(dispatcher: &mut Dispatcher, id: u64, replay: Replay) -> (Call, Attempt) {
    let mut call = dispatcher.open(at(2), CallId(id), Request::new(GroupId::new(0), replay));
    match dispatcher.step(at(2), &mut call) {
        Step::Send(attempt) => (call, attempt),
        other => panic!("{other:?}"),
    }
}

fn moved(dispatcher: &mut Dispatcher, call: &mut Call) -> Option<Attempt> {
    match dispatcher.step(at(3), call) {
        Step::Send(attempt) => {
            assert_eq!(attempt.kind(), Kind::Moved);
            Some(attempt)
        }
        Step::Wait { .. } => None,
        other => panic!("{other:?}"),
    }
}

fn end(dispatcher: &mut Dispatcher, call: Call, attempts: impl IntoIterator<Item = Attempt>) {
    dispatcher.close(at(9), call);
    attempts.into_iter().for_each(|it| dispatcher.finish(at(9), it, BodyEnd::ClientGone));
    assert_eq!(dispatcher.fleet().in_flight(), 0);
}

#[test]
fn a_request_moves_where_the_others_save_a_service_time_and_the_way() {
    // It is served after 8 ms × (1 + waiting / 4). Elsewhere that takes 8 ms; another 8 ms must be
    // saved, and 1.5 round trips of 1 ms: 17.5 ms.
    for (waiting, pays) in [(0, false), (4, false), (5, true), (400, true)] {
        let mut dispatcher = dispatcher();
        let (mut call, mut first) = begin(&mut dispatcher, 1, Replay::Always);
        dispatcher.hear_queued(at(3), &mut call, &first, &queued(waiting));
        let second = moved(&mut dispatcher, &mut call);
        assert_eq!(second.is_some(), pays, "{waiting} wait");
        if let Some(mut second) = second {
            assert_ne!(second.replica(), first.replica());
            let step = dispatcher.step(at(3), &mut call);
            assert!(matches!(step, Step::Cancel(0)), "{step:?}");
            let left = first.replica();
            call.settle(dispatcher.give_up(at(3), &mut first));
            dispatcher.finish(at(3), first, BodyEnd::ClientGone);
            let burden = dispatcher.fleet().replica(left).burden(at(3));
            assert!(burden == 0.0, "it has nothing to do with it: {burden}");
            assert!(matches!(dispatcher.step(at(3), &mut call), Step::Wait { .. }));
            call.settle(dispatcher.learn(at(9), &mut second, &REPLIED));
            assert!(matches!(dispatcher.step(at(9), &mut call), Step::Answered(1)));
            end(&mut dispatcher, call, [second]);
        } else {
            end(&mut dispatcher, call, [first]);
        }
        let window = dispatcher.window();
        assert_eq!((window.moves, window.retries, window.hedges), (u64::from(pays), 0, 0));
    }
}

#[test]
fn who_is_just_as_busy_is_no_place_to_go() {
    let mut dispatcher = dispatcher();
    let (mut call, first) = begin(&mut dispatcher, 1, Replay::Always);
    let (mut others, mut busy) = (Vec::new(), Vec::new());
    for id in 2..40 {
        let (mut call, attempt) = begin(&mut dispatcher, id, Replay::IfUnsent);
        dispatcher.hear_queued(at(3), &mut call, &attempt, &queued(100));
        busy.push(attempt.replica());
        others.push((call, attempt));
    }
    assert!((0..3).all(|slot| busy.contains(&ReplicaId::new(slot))));
    dispatcher.hear_queued(at(3), &mut call, &first, &queued(100));
    assert!(moved(&mut dispatcher, &mut call).is_none());
    dispatcher.close(at(9), call);
    let (calls, attempts): (Vec<_>, Vec<_>) = others.into_iter().unzip();
    calls.into_iter().for_each(|call| dispatcher.close(at(9), call));
    let all = attempts.into_iter().chain([first]);
    all.for_each(|it| dispatcher.finish(at(9), it, BodyEnd::ClientGone));
}

#[test]
fn only_what_may_be_sent_twice_at_once_moves_and_only_what_is_on_its_way() {
    let mut dispatcher = dispatcher();
    for (id, replay) in [(1, Replay::IfUnsent), (2, Replay::AfterFailure)] {
        let (mut call, first) = begin(&mut dispatcher, id, replay);
        dispatcher.hear_queued(at(3), &mut call, &first, &queued(400));
        assert!(moved(&mut dispatcher, &mut call).is_none(), "{replay:?}");
        end(&mut dispatcher, call, [first]);
    }
    let (mut call, mut first) = begin(&mut dispatcher, 3, Replay::Always);
    call.settle(dispatcher.learn(at(3), &mut first, &REPLIED));
    dispatcher.hear_queued(at(3), &mut call, &first, &queued(400));
    assert!(matches!(dispatcher.step(at(3), &mut call), Step::Answered(0)), "it was overtaken");
    end(&mut dispatcher, call, [first]);
}

#[test]
fn replicas_are_to_tell_only_where_a_request_could_move() {
    let mut dispatcher = dispatcher();
    let replays =
        [(Replay::Always, true), (Replay::AfterFailure, false), (Replay::IfUnsent, false)];
    for (id, (replay, is_wanted)) in (1..).zip(replays) {
        let (call, attempt) = begin(&mut dispatcher, id, replay);
        assert_eq!(dispatcher.wants_notices(&call), is_wanted, "{replay:?}");
        end(&mut dispatcher, call, [attempt]);
    }
    let mut off = dispatcher_of("adaptive:moves=off");
    let (mut call, attempt) = begin(&mut off, 1, Replay::Always);
    assert!(!off.wants_notices(&call));
    off.hear_queued(at(3), &mut call, &attempt, &queued(400));
    assert!(moved(&mut off, &mut call).is_none(), "whoever tells it all the same");
    end(&mut off, call, [attempt]);
    let c3 = policies::make("c3");
    let mut c3 = Dispatcher::new(Fleet::single_group(3), c3, DispatcherConfig::default());
    let (call, attempt) = begin(&mut c3, 1, Replay::Always);
    assert!(!c3.wants_notices(&call));
    end(&mut c3, call, [attempt]);
}

#[test]
fn what_a_replica_told_that_has_left_its_slot_is_of_nobody() {
    let mut dispatcher = dispatcher();
    let (mut call, first) = begin(&mut dispatcher, 1, Replay::Always);
    let slot = first.replica();
    let mut generations = vec![0; 3];
    generations[slot.index()] = 1;
    let plan = RoutePlan {
        version: 1,
        health: vec![Health::Up; 3],
        generations,
        groups: vec![(0..3).map(ReplicaId::new).collect()],
    };
    dispatcher.adopt(at(3), &plan);
    dispatcher.hear_queued(at(3), &mut call, &first, &queued(400));
    assert!(moved(&mut dispatcher, &mut call).is_none());
    assert!(dispatcher.fleet().replica(slot).feedback().is_none(), "nothing is known of the new");
    end(&mut dispatcher, call, [first]);
}

#[test]
fn what_started_all_the_same_may_still_answer() {
    let mut dispatcher = dispatcher();
    let (mut call, mut first) = begin(&mut dispatcher, 1, Replay::Always);
    dispatcher.hear_queued(at(3), &mut call, &first, &queued(400));
    dispatcher.hear_queued(at(3), &mut call, &first, &queued(400));
    let second = moved(&mut dispatcher, &mut call).expect("it pays");
    assert!(matches!(dispatcher.step(at(3), &mut call), Step::Cancel(0)));
    // Both are on their way: the driver learns of an answer before it has cancelled anything.
    dispatcher.hear_queued(at(3), &mut call, &first, &queued(400));
    dispatcher.hear_queued(at(3), &mut call, &second, &queued(400));
    assert!(moved(&mut dispatcher, &mut call).is_none(), "it has moved, and so far is everywhere");
    call.settle(dispatcher.learn(at(4), &mut first, &REPLIED));
    assert!(matches!(dispatcher.step(at(4), &mut call), Step::Cancel(1)));
    assert!(matches!(dispatcher.step(at(4), &mut call), Step::Answered(0)));
    end(&mut dispatcher, call, [first, second]);
}

#[test]
fn replicas_that_say_of_all_that_they_wait_move_a_tenth_of_the_calls() {
    let mut dispatcher = dispatcher();
    for id in 1..=1_000 {
        let (mut call, mut attempt) = begin(&mut dispatcher, id, Replay::Always);
        let mut moves = 0;
        loop {
            dispatcher.hear_queued(at(3), &mut call, &attempt, &queued(u32::MAX - SLOTS));
            let Some(next) = moved(&mut dispatcher, &mut call) else { break };
            assert!(matches!(dispatcher.step(at(3), &mut call), Step::Cancel(_)));
            call.settle(dispatcher.give_up(at(3), &mut attempt));
            dispatcher.finish(at(3), std::mem::replace(&mut attempt, next), BodyEnd::ClientGone);
            moves += 1;
        }
        assert!(moves <= 2);
        call.settle(dispatcher.learn(at(3), &mut attempt, &REPLIED));
        end(&mut dispatcher, call, [attempt]);
        // Next to what they say of each request, they say that they are idle.
        for slot in (0..3).map(ReplicaId::new) {
            let mut mirror = dispatcher.mirror(at(3), CallId(0), slot);
            let idle = Outcome::Replied(Some(report(0, 0)));
            let _ = dispatcher.learn(at(3), &mut mirror, &idle);
            dispatcher.finish(at(3), mirror, BodyEnd::Complete);
        }
    }
    let moves = dispatcher.window().moves;
    assert!((100..=110).contains(&moves), "ten at once and a tenth: {moves}");
}

/// Notes what a hedge is told.
#[derive(Debug, Default)]
struct Notes(Arc<Mutex<Vec<(Kind, Duration)>>>);

impl Redundancy for Notes {
    fn on_end(&mut self, _now: Instant, copy: &Lasted<'_>) {
        self.0.lock().expect("nobody panicked").push((copy.kind, copy.latency));
    }

    fn copy_due(&mut self, _copies_sent: usize) -> Option<Duration> {
        None
    }

    fn permits_copy(&mut self, _now: Instant) -> bool {
        false
    }
}

#[test]
fn a_hedge_learns_how_long_the_whole_of_it_took() {
    let notes = Notes::default();
    let told = Arc::clone(&notes.0);
    let mut dispatcher = dispatcher().with_redundancy(Box::new(notes));
    let (mut call, mut first) = begin(&mut dispatcher, 1, Replay::Always);
    dispatcher.hear_queued(at(3), &mut call, &first, &queued(400));
    let mut second = moved(&mut dispatcher, &mut call).expect("it pays");
    assert!(matches!(dispatcher.step(at(3), &mut call), Step::Cancel(0)));
    call.settle(dispatcher.give_up(at(3), &mut first));
    call.settle(dispatcher.learn(at(9), &mut second, &REPLIED));
    let of_all = (Kind::First, Duration::from_millis(7));
    assert_eq!(*told.lock().unwrap(), [of_all], "from 2 ms to 9 ms, as one request");
    end(&mut dispatcher, call, [first, second]);
}
