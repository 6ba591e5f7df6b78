//! The few promises of the protocol that deserve a sentence of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use evenkeel_core::fleet::{Fleet, GroupId, Health, ReplicaId};
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Budget, Redundancy};
use evenkeel_core::request::{
    Attempt, Call, CallId, Dispatcher, DispatcherConfig, Failure, Outcome, Refusal, Replay,
    Request, Step,
};
use evenkeel_core::time::{Duration, Instant};

use crate::policies;
use crate::watched::HedgeAfter;

const NOW: Instant = Instant::from_millis(5);
const REPLIED: Outcome = Outcome::Replied(None);

fn dispatcher(policy: &str) -> Dispatcher {
    let hedge = HedgeAfter(Duration::from_millis(2), Budget::share(1.0, 10.0));
    let config = DispatcherConfig { backlog_calls_max: 2, ..DispatcherConfig::default() };
    Dispatcher::new(Fleet::single_group(3), policies::make(policy), config)
        .with_redundancy(Box::new(hedge))
}

fn open(dispatcher: &mut Dispatcher, id: u64) -> Call {
    let request = Request { group: GroupId::new(0), replay: Replay::Always };
    dispatcher.open(NOW, CallId(id), request)
}

fn sent(step: Step) -> Attempt {
    match step {
        Step::Send(attempt) => attempt,
        other => panic!("{other:?}"),
    }
}

#[test]
#[should_panic(expected = "an attempt is learnt from once")]
fn an_attempt_is_learnt_from_once() {
    let mut dispatcher = dispatcher("c3");
    let mut call = open(&mut dispatcher, 1);
    let mut attempt = sent(dispatcher.step(NOW, &mut call));
    let _ = dispatcher.learn(NOW, &mut attempt, &REPLIED);
    let _ = dispatcher.learn(NOW, &mut attempt, &REPLIED);
}

#[test]
fn a_good_answer_is_preferred_to_an_error_that_came_first() {
    for good_answer_comes in [true, false] {
        let mut dispatcher = dispatcher("c3");
        let mut call = open(&mut dispatcher, 1);
        let mut first = sent(dispatcher.step(NOW, &mut call));
        let mut hedge = sent(dispatcher.step(NOW + Duration::from_millis(3), &mut call));
        let error = Outcome::Failed(Failure::ErrorReply);
        call.settle(dispatcher.learn(NOW, &mut hedge, &error));
        assert!(matches!(dispatcher.step(NOW, &mut call), Step::Wait { .. }));
        let then = if good_answer_comes { REPLIED } else { Outcome::Failed(Failure::Broken) };
        call.settle(dispatcher.learn(NOW, &mut first, &then));
        let answer = if good_answer_comes { first.copy() } else { hedge.copy() };
        let step = dispatcher.step(NOW, &mut call);
        assert!(matches!(step, Step::Answered(copy) if copy == answer), "{step:?}");
        dispatcher.close(NOW, call);
        dispatcher.finish(NOW, first);
        dispatcher.finish(NOW, hedge);
    }
}

#[test]
fn what_hinders_itself_has_no_copy_in_haste_and_one_after_a_failure() {
    let mut dispatcher = dispatcher("c3");
    let request = Request { group: GroupId::new(0), replay: Replay::AfterFailure };
    let mut call = dispatcher.open(NOW, CallId(1), request);
    let mut first = sent(dispatcher.step(NOW, &mut call));
    let late = NOW + Duration::from_millis(100);
    assert!(matches!(dispatcher.step(late, &mut call), Step::Wait { until: None }));
    call.settle(dispatcher.learn(late, &mut first, &Outcome::Failed(Failure::TimedOut)));
    let second = sent(dispatcher.step(late, &mut call));
    assert_ne!(second.replica(), first.replica());
    dispatcher.close(late, call);
    dispatcher.finish(late, first);
    dispatcher.finish(late, second);
}

/// A request that must not be sent twice may have left with an attempt that was given up.
#[test]
fn an_attempt_given_up_forbids_what_an_unsent_one_before_it_allowed() {
    let config = DispatcherConfig { retries_max: 6, ..DispatcherConfig::default() };
    let mut dispatcher =
        Dispatcher::new(Fleet::single_group(3), policies::make("round-robin"), config);
    let request = Request { group: GroupId::new(0), replay: Replay::IfUnsent };
    let mut call = dispatcher.open(NOW, CallId(1), request);
    for outcome in [Outcome::Failed(Failure::Unsent), Outcome::Cancelled] {
        let mut attempt = sent(dispatcher.step(NOW, &mut call));
        call.settle(dispatcher.learn(NOW, &mut attempt, &outcome));
        dispatcher.finish(NOW, attempt);
    }
    let step = dispatcher.step(NOW, &mut call);
    assert!(matches!(step, Step::Refused(Refusal::Failed(Failure::Broken))), "{step:?}");
    dispatcher.close(NOW, call);
}

#[test]
fn a_held_call_that_asks_too_often_keeps_its_one_place() {
    // No tokens at the beginning: all calls are held, and two fill the queue.
    let mut dispatcher = dispatcher("c3-absim");
    let now = Instant::ZERO;
    let mut calls: Vec<_> = (1..=2).map(|id| open(&mut dispatcher, id)).collect();
    for _ in 0..3 {
        for call in &mut calls {
            let step = dispatcher.step(now, call);
            assert!(matches!(step, Step::Wait { until: None }), "{step:?}");
        }
        assert_eq!(dispatcher.held(), 2);
    }
    for call in calls {
        dispatcher.close(now, call);
    }
    assert_eq!((dispatcher.held(), dispatcher.deadline()), (0, None));
}

#[test]
fn a_held_call_asks_again_soon_because_rates_change() {
    // The first token comes in 200 s.
    let mut dispatcher = dispatcher("c3:rate_control=on,rate_initial=0.0001");
    let mut call = open(&mut dispatcher, 1);
    assert!(matches!(dispatcher.step(NOW, &mut call), Step::Wait { .. }));
    let asks_at = dispatcher.deadline().expect("it is held").at;
    assert!(asks_at <= NOW + Duration::from_millis(100), "{asks_at:?}");
    // Meanwhile answers to mirrors show that there is room.
    for millis in 0..50 {
        let at = NOW + Duration::from_millis(millis);
        let mut mirror = dispatcher.mirror(at, CallId(9), ReplicaId::new(0));
        let _ = dispatcher.learn(at, &mut mirror, &REPLIED);
        dispatcher.finish(at, mirror);
    }
    dispatcher.wake(asks_at);
    assert_eq!(dispatcher.resumed(), Some(CallId(1)));
    let attempt = sent(dispatcher.step(asks_at, &mut call));
    dispatcher.finish(asks_at, attempt);
    dispatcher.close(asks_at, call);
}

#[test]
fn a_new_plan_wakes_held_calls() {
    let mut dispatcher = dispatcher("c3-absim");
    let mut call = open(&mut dispatcher, 1);
    assert!(matches!(dispatcher.step(Instant::ZERO, &mut call), Step::Wait { .. }));
    let health = vec![Health::Draining; 3];
    let plan = RoutePlan { version: 1, health, ..RoutePlan::single_group(3) };
    dispatcher.adopt(Instant::ZERO, &plan);
    assert_eq!(dispatcher.resumed(), Some(CallId(1)));
    let step = dispatcher.step(Instant::ZERO, &mut call);
    assert!(matches!(step, Step::Refused(Refusal::NoReplica)), "{step:?}");
    dispatcher.close(Instant::ZERO, call);
}

#[test]
fn a_mirror_changes_nothing_about_its_call() {
    let mut dispatcher = dispatcher("c3");
    let mut call = open(&mut dispatcher, 1);
    let mut first = sent(dispatcher.step(NOW, &mut call));
    let mut mirror = dispatcher.mirror(NOW, CallId(1), ReplicaId::new(0));
    call.settle(dispatcher.learn(NOW, &mut mirror, &REPLIED));
    assert!(matches!(dispatcher.step(NOW, &mut call), Step::Wait { .. }));
    call.settle(dispatcher.learn(NOW, &mut first, &REPLIED));
    assert!(matches!(dispatcher.step(NOW, &mut call), Step::Answered(0)));
    dispatcher.close(NOW, call);
    dispatcher.finish(NOW, mirror);
    dispatcher.finish(NOW, first);
    assert_eq!(dispatcher.fleet().in_flight(), 0);
}

#[test]
fn fast_failures_do_not_teach_the_hedge_that_answers_are_fast() {
    use evenkeel_core::request::redundancy::{Hedge, HedgeConfig, Lasted};
    #[derive(Debug)]
    struct Noted(Hedge, Arc<AtomicU32>);
    impl Redundancy for Noted {
        fn on_end(&mut self, now: Instant, copy: &Lasted) {
            self.1.fetch_add(1, Relaxed);
            self.0.on_end(now, copy);
        }
        fn copy_due(&mut self, copies_sent: usize) -> Option<Duration> {
            self.0.copy_due(copies_sent)
        }
        fn permits_copy(&mut self, now: Instant) -> bool {
            self.0.permits_copy(now)
        }
    }
    let noted = Arc::new(AtomicU32::new(0));
    let hedge = Noted(Hedge::new(HedgeConfig::default()), Arc::clone(&noted));
    let mut dispatcher = dispatcher("random").with_redundancy(Box::new(hedge));
    for (failure, expected) in [
        (Failure::Unsent, 0),
        (Failure::Broken, 0),
        (Failure::Unavailable, 0),
        (Failure::ErrorReply, 0),
        (Failure::TimedOut, 1),
    ] {
        let mut call = open(&mut dispatcher, 1);
        let mut attempt = sent(dispatcher.step(NOW, &mut call));
        call.settle(dispatcher.learn(NOW, &mut attempt, &Outcome::Failed(failure)));
        dispatcher.finish(NOW, attempt);
        dispatcher.close(NOW, call);
        assert_eq!(noted.load(Relaxed), expected, "{failure:?}");
    }
}
