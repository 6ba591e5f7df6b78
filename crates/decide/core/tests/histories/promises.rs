//! The few promises of the protocol that deserve a sentence of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use evenkeel_core::fleet::{Feedback, Fleet, GroupId, Health, ReplicaId};
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Budget, Redundancy, Single};
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Failure, Kind, Outcome, Refusal,
    Replay, Request, Step,
};
use evenkeel_core::time::{Duration, Instant};
use evenkeel_core::units::Dimmer;
use evenkeel_core::window::{ReplicaWindow, RequestWindow};

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
    open_at(dispatcher, NOW, id)
}

fn open_at(dispatcher: &mut Dispatcher, now: Instant, id: u64) -> Call {
    let request = Request::new(GroupId::new(0), Replay::Always);
    dispatcher.open(now, CallId(id), request)
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
        dispatcher.finish(NOW, first, BodyEnd::Complete);
        dispatcher.finish(NOW, hedge, BodyEnd::Complete);
    }
}

#[test]
fn what_hinders_itself_has_no_copy_in_haste_and_one_after_a_failure() {
    let mut dispatcher = dispatcher("c3");
    let request = Request::new(GroupId::new(0), Replay::AfterFailure);
    let mut call = dispatcher.open(NOW, CallId(1), request);
    let mut first = sent(dispatcher.step(NOW, &mut call));
    let late = NOW + Duration::from_millis(100);
    assert!(matches!(dispatcher.step(late, &mut call), Step::Wait { until: None }));
    call.settle(dispatcher.learn(late, &mut first, &Outcome::Failed(Failure::TimedOut)));
    let second = sent(dispatcher.step(late, &mut call));
    assert_ne!(second.replica(), first.replica());
    dispatcher.close(late, call);
    dispatcher.finish(late, first, BodyEnd::Complete);
    dispatcher.finish(late, second, BodyEnd::Complete);
}

/// A request that must not be sent twice may have left with an attempt that was given up.
#[test]
fn an_attempt_given_up_forbids_what_an_unsent_one_before_it_allowed() {
    let config = DispatcherConfig { retries_max: 6, ..DispatcherConfig::default() };
    let mut dispatcher =
        Dispatcher::new(Fleet::single_group(3), policies::make("round-robin"), config);
    let request = Request::new(GroupId::new(0), Replay::IfUnsent);
    let mut call = dispatcher.open(NOW, CallId(1), request);
    for outcome in [Outcome::Failed(Failure::Unsent), Outcome::Cancelled] {
        let mut attempt = sent(dispatcher.step(NOW, &mut call));
        call.settle(dispatcher.learn(NOW, &mut attempt, &outcome));
        dispatcher.finish(NOW, attempt, BodyEnd::Complete);
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
        dispatcher.finish(at, mirror, BodyEnd::Complete);
    }
    dispatcher.wake(asks_at);
    assert_eq!(dispatcher.resumed(), Some(CallId(1)));
    let attempt = sent(dispatcher.step(asks_at, &mut call));
    dispatcher.finish(asks_at, attempt, BodyEnd::Complete);
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

/// Answers one request; its body ends like this.
fn answer(dispatcher: &mut Dispatcher, now: Instant, id: u64, end: BodyEnd) {
    let mut call = dispatcher.open(now, CallId(id), request_of_one());
    let mut attempt = sent(dispatcher.step(now, &mut call));
    call.settle(dispatcher.learn(now, &mut attempt, &REPLIED));
    dispatcher.close(now, call);
    dispatcher.finish(now, attempt, end);
}

const fn request_of_one() -> Request {
    Request::new(GroupId::new(0), Replay::Always)
}

fn one_replica() -> Dispatcher {
    let fleet = Fleet::single_group(1);
    Dispatcher::new(fleet, policies::make("round-robin"), DispatcherConfig::default())
}

#[test]
fn broken_bodies_in_a_row_eject_their_replica_for_longer_and_longer() {
    for end in [BodyEnd::UpstreamBroke, BodyEnd::TimedOut] {
        let (mut dispatcher, one) = (one_replica(), ReplicaId::new(0));
        (1..=4).for_each(|id| answer(&mut dispatcher, NOW, id, end));
        assert!(dispatcher.fleet().replica(one).ejected_until() <= NOW, "four are not enough");
        let (mut now, mut lengths) = (NOW, Vec::new());
        for id in 5..9 {
            answer(&mut dispatcher, now, id, end);
            let until = dispatcher.fleet().replica(one).ejected_until();
            lengths.push(until.since(now).as_secs());
            now = until;
        }
        assert_eq!(lengths, [1, 2, 4, 8], "an answer's head is no success");
        let counted = dispatcher.window().replicas[0];
        let outcomes = [counted.sent, counted.succeeded, counted.failed, counted.broken_bodies];
        assert_eq!(outcomes, [8, 0, 8, 8], "one outcome each");
        assert!(dispatcher.fleet().replica(one).needs_trial(now, 5));
        answer(&mut dispatcher, now, 9, BodyEnd::Complete);
        let replica = dispatcher.fleet().replica(one);
        assert!(!replica.needs_trial(now, 5) && replica.consecutive_failures() == 0);
    }
}

#[test]
fn a_client_that_leaves_an_answer_says_nothing_of_its_replica() {
    let (mut dispatcher, one) = (one_replica(), ReplicaId::new(0));
    (1..=4).for_each(|id| answer(&mut dispatcher, NOW, id, BodyEnd::UpstreamBroke));
    (5..=9).for_each(|id| answer(&mut dispatcher, NOW, id, BodyEnd::ClientGone));
    let replica = dispatcher.fleet().replica(one);
    assert!(replica.ejected_until() <= NOW && replica.consecutive_failures() == 4);
    answer(&mut dispatcher, NOW, 10, BodyEnd::UpstreamBroke);
    assert!(dispatcher.fleet().replica(one).ejected_until() > NOW, "that was the fifth");
    let counted = dispatcher.window().replicas[0];
    assert_eq!([counted.succeeded, counted.failed, counted.cancelled], [5, 5, 0]);
}

#[test]
fn broken_bodies_and_attempts_without_an_answer_add_up() {
    let (mut dispatcher, one) = (one_replica(), ReplicaId::new(0));
    (1..=3).for_each(|id| answer(&mut dispatcher, NOW, id, BodyEnd::UpstreamBroke));
    for id in 4..=5 {
        assert!(dispatcher.fleet().replica(one).ejected_until() <= NOW, "before {id}");
        let mut call = dispatcher.open(NOW, CallId(id), request_of_one());
        let mut attempt = sent(dispatcher.step(NOW, &mut call));
        call.settle(dispatcher.learn(NOW, &mut attempt, &Outcome::Failed(Failure::Broken)));
        dispatcher.finish(NOW, attempt, BodyEnd::Complete); // of a failed attempt it says nothing
        dispatcher.close(NOW, call);
    }
    assert!(dispatcher.fleet().replica(one).ejected_until() > NOW);
    assert_eq!(dispatcher.window().replicas[0].broken_bodies, 3);
}

#[test]
fn who_has_only_endless_bodies_is_on_trial_for_a_while_and_no_longer() {
    let (mut dispatcher, one) = (one_replica(), ReplicaId::new(0));
    (1..=5).for_each(|id| answer(&mut dispatcher, NOW, id, BodyEnd::UpstreamBroke));
    let until = dispatcher.fleet().replica(one).ejected_until();
    let mut call = dispatcher.open(until, CallId(6), request_of_one());
    let mut endless = sent(dispatcher.step(until, &mut call));
    call.settle(dispatcher.learn(until, &mut endless, &REPLIED));
    let replica = dispatcher.fleet().replica(one);
    assert!(replica.needs_trial(until + Duration::from_secs(14), 5), "its body is on the way");
    assert!(!replica.needs_trial(until + Duration::from_secs(15), 5));
    dispatcher.close(until, call);
    dispatcher.finish(until, endless, BodyEnd::ClientGone);
}

/// Opens a call every 6 ms; all reply after 5 ms but for the first replica, which owes its replies
/// from the first second on.
fn stand_still(dispatcher: &mut Dispatcher, until_ms: u64) -> Vec<(Call, Attempt)> {
    let mut owed = Vec::new();
    for ms in (0..until_ms).step_by(6) {
        let now = Instant::from_millis(ms);
        let mut call = dispatcher.open(now, CallId(ms), request_of_one());
        let mut attempt = sent(dispatcher.step(now, &mut call));
        if ms >= 1_000 && attempt.replica().index() == 0 {
            owed.push((call, attempt));
            continue;
        }
        let now = Instant::from_millis(ms + 5);
        call.settle(dispatcher.learn(now, &mut attempt, &REPLIED));
        dispatcher.close(now, call);
        dispatcher.finish(now, attempt, BodyEnd::Complete);
    }
    owed
}

fn three_replicas(policy: &str) -> Dispatcher {
    let fleet = Fleet::single_group(3);
    Dispatcher::new(fleet, policies::make(policy), DispatcherConfig::default())
}

#[test]
fn a_timeout_is_a_refusal_and_its_time_a_latency() {
    let config = DispatcherConfig { record_latency: true, ..DispatcherConfig::default() };
    let mut dispatcher = Dispatcher::new(Fleet::single_group(2), policies::make("c3"), config);
    let mut call = open(&mut dispatcher, 1);
    let attempt = sent(dispatcher.step(NOW, &mut call));
    let late = NOW + Duration::from_millis(250);
    call.expire();
    assert!(matches!(dispatcher.step(late, &mut call), Step::Cancel(0)));
    dispatcher.finish(late, attempt, BodyEnd::ClientGone);
    dispatcher.close(late, call);
    let window = dispatcher.window();
    assert_eq!((window.refused, window.abandoned), (1, 0));
    let latency = window.latency.unwrap();
    assert_eq!((latency.count(), latency.max() >= Duration::from_millis(250)), (1, true));
}

#[test]
fn a_silent_replica_gets_nothing_until_it_says_something() {
    for policy in ["c3", "round-robin", "least-outstanding", "two-choices", "random"] {
        let mut dispatcher = three_replicas(policy);
        let owed = stand_still(&mut dispatcher, 9_000);
        let last = owed.last().map(|(_, attempt)| attempt.sent_at()).unwrap();
        assert!(last <= Instant::from_millis(1_220), "{policy}: the last at {last:?}");
        assert!(dispatcher.fleet().replica(ReplicaId::new(0)).is_silent());
        let now = Instant::from_millis(9_000);
        for (mut call, mut attempt) in owed {
            let failure = Outcome::Failed(Failure::ErrorReply); // an error is a word as well
            call.settle(dispatcher.learn(now, &mut attempt, &failure));
            dispatcher.finish(now, attempt, BodyEnd::Complete);
            dispatcher.close(now, call);
            assert!(!dispatcher.fleet().replica(ReplicaId::new(0)).is_silent());
        }
    }
}

/// Nothing is owed any more, so one request finds out; it is not the one that pays for it.
#[test]
fn a_request_on_trial_at_a_silent_replica_is_answered_by_another() {
    let mut dispatcher = three_replicas("random");
    for (call, attempt) in stand_still(&mut dispatcher, 2_000) {
        let now = Instant::from_millis(2_000);
        dispatcher.close(now, call);
        dispatcher.finish(now, attempt, BodyEnd::ClientGone);
    }
    let mut trials = Vec::new();
    for ms in (2_000..12_000).step_by(6) {
        let now = Instant::from_millis(ms);
        let mut call = dispatcher.open(now, CallId(ms), request_of_one());
        let mut attempt = sent(dispatcher.step(now, &mut call));
        if attempt.replica().index() == 0 {
            let Step::Wait { until: Some(due) } = dispatcher.step(now, &mut call) else {
                panic!("somebody else is asked in time")
            };
            assert_eq!(due.at, now + Duration::from_millis(100));
            let mut beside = sent(dispatcher.step(due.at, &mut call));
            assert_eq!(beside.kind(), Kind::Retry);
            assert_ne!(beside.replica(), attempt.replica());
            call.settle(dispatcher.learn(due.at, &mut beside, &REPLIED));
            assert!(matches!(dispatcher.step(due.at, &mut call), Step::Cancel(0)));
            call.settle(dispatcher.give_up(due.at, &mut attempt));
            dispatcher.finish(due.at, beside, BodyEnd::Complete);
            trials.push(ms);
        } else {
            call.settle(dispatcher.learn(now, &mut attempt, &REPLIED));
        }
        dispatcher.close(now, call);
        dispatcher.finish(now, attempt, BodyEnd::Complete);
    }
    let apart: Vec<_> = trials.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000).collect();
    assert_eq!(apart, [1, 2, 4], "ever rarer: {trials:?}");
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
    dispatcher.finish(NOW, mirror, BodyEnd::Complete);
    dispatcher.finish(NOW, first, BodyEnd::Complete);
    assert_eq!(dispatcher.fleet().in_flight(), 0);
}

#[test]
fn fast_failures_do_not_teach_the_hedge_that_answers_are_fast() {
    use evenkeel_core::request::redundancy::{Hedge, HedgeConfig, Lasted};
    #[derive(Debug)]
    struct Noted(Hedge, Arc<AtomicU32>);
    impl Redundancy for Noted {
        fn on_end(&mut self, now: Instant, copy: &Lasted<'_>) {
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
        dispatcher.finish(NOW, attempt, BodyEnd::Complete);
        dispatcher.close(NOW, call);
        assert_eq!(noted.load(Relaxed), expected, "{failure:?}");
    }
}

fn limited(among: &[usize], copies: u8) -> Request {
    let among = Some(among.iter().copied().collect());
    Request { among, copies, ..Request::new(GroupId::new(0), Replay::Always) }
}

/// Who is outside the set would answer wrongly: that is worse than no answer.
#[test]
fn nobody_outside_the_set_is_asked_however_bad_those_inside_are() {
    for health in [Health::Up, Health::Down] {
        let mut dispatcher = dispatcher("least-outstanding");
        for n in 0..5 {
            let mut mirror = dispatcher.mirror(NOW, CallId(n), ReplicaId::new(1));
            let _ = dispatcher.learn(NOW, &mut mirror, &Outcome::Failed(Failure::Broken));
            dispatcher.finish(NOW, mirror, BodyEnd::Complete);
        }
        assert!(dispatcher.fleet().replica(ReplicaId::new(1)).ejected_until() > NOW);
        let mut plan = RoutePlan { version: 1, ..RoutePlan::single_group(3) };
        plan.health[1] = health;
        dispatcher.adopt(NOW, &plan);
        let mut call = dispatcher.open(NOW, CallId(9), limited(&[1], 3));
        let mut attempt = sent(dispatcher.step(NOW, &mut call));
        assert_eq!(attempt.replica().index(), 1);
        let late = NOW + Duration::from_millis(100);
        assert!(matches!(dispatcher.step(late, &mut call), Step::Wait { .. }), "nobody else");
        let broken = Outcome::Failed(Failure::Broken);
        call.settle(dispatcher.learn(late, &mut attempt, &broken));
        let step = dispatcher.step(late, &mut call);
        assert!(matches!(step, Step::Refused(Refusal::Failed(Failure::Broken))), "{step:?}");
        dispatcher.finish(late, attempt, BodyEnd::Complete);
        dispatcher.close(late, call);
        assert_eq!(dispatcher.fleet().in_flight(), 0);
    }
}

#[test]
fn a_set_without_a_usable_replica_is_refused() {
    let mut dispatcher = dispatcher("least-outstanding");
    let mut plan = RoutePlan { version: 1, ..RoutePlan::single_group(3) };
    plan.health[2] = Health::Draining;
    dispatcher.adopt(NOW, &plan);
    for among in [&[][..], &[2], &[7, 63]] {
        let mut call = dispatcher.open(NOW, CallId(1), limited(among, 2));
        let step = dispatcher.step(NOW, &mut call);
        assert!(matches!(step, Step::Refused(Refusal::NoReplica)), "{among:?}: {step:?}");
        dispatcher.close(NOW, call);
    }
}

#[test]
fn copies_leave_at_once_to_different_replicas_and_the_first_answer_counts() {
    for (wanted, expected) in [(2, 2), (3, 3), (u8::MAX, 3)] {
        let mut dispatcher = dispatcher("least-outstanding");
        let request = Request { copies: wanted, ..Request::new(GroupId::new(0), Replay::Always) };
        let mut call = dispatcher.open(NOW, CallId(1), request);
        let mut attempts = Vec::new();
        let hedge_due = loop {
            match dispatcher.step(NOW, &mut call) {
                Step::Send(attempt) => attempts.push(attempt),
                Step::Wait { until } => break until,
                other => panic!("{other:?}"),
            }
        };
        assert!(attempts.iter().all(|attempt| attempt.kind() == Kind::First));
        let mut asked: Vec<_> = attempts.iter().map(Attempt::replica).collect();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!((asked.len(), attempts.len()), (expected, expected), "each another");
        assert!(hedge_due.is_some(), "a hedge follows when all of them are late");
        let mut last = attempts.pop().expect("some were sent");
        call.settle(dispatcher.learn(NOW, &mut last, &REPLIED));
        let mut losers = 0;
        while let Step::Cancel(_) = dispatcher.step(NOW, &mut call) {
            losers += 1;
        }
        assert_eq!(losers, expected - 1);
        let answered = dispatcher.step(NOW, &mut call);
        assert!(matches!(answered, Step::Answered(copy) if copy == last.copy()));
        dispatcher.close(NOW, call);
        attempts
            .into_iter()
            .chain([last])
            .for_each(|it| dispatcher.finish(NOW, it, BodyEnd::Complete));
        assert_eq!(dispatcher.fleet().in_flight(), 0);
        let window = dispatcher.window();
        assert_eq!((window.opened, window.answered, window.hedges), (1, 1, 0));
    }
}

/// What may answer changes while a request waits: a duplicate that was dropped is not asked again.
#[test]
fn a_copy_that_leaves_later_goes_by_the_newest_set() {
    let mut dispatcher = dispatcher("least-outstanding");
    let mut call = dispatcher.open(NOW, CallId(1), limited(&[0], 1));
    let mut first = sent(dispatcher.step(NOW, &mut call));
    call.limit([0, 2].into_iter().collect());
    let mut hedge = sent(dispatcher.step(NOW + Duration::from_millis(3), &mut call));
    assert_eq!((hedge.kind(), hedge.replica().index()), (Kind::Hedge, 2));
    call.limit([1].into_iter().collect());
    for attempt in [&mut first, &mut hedge] {
        call.settle(dispatcher.learn(NOW, attempt, &Outcome::Failed(Failure::Broken)));
    }
    let retry = sent(dispatcher.step(NOW, &mut call));
    assert_eq!((retry.kind(), retry.replica().index()), (Kind::Retry, 1));
    dispatcher.close(NOW, call);
    [first, hedge, retry].into_iter().for_each(|it| dispatcher.finish(NOW, it, BodyEnd::Complete));
}

/// Serves one request at every slot, the later the slot the slower.
fn serve_all(dispatcher: &mut Dispatcher, at: Instant, slots: usize) {
    for slot in 0..slots {
        let mut mirror = dispatcher.mirror(at, CallId(9), ReplicaId::new(slot));
        let later = at + Duration::from_millis(5 * (slot as u64 + 1));
        let report = Feedback::measured(slot as u32, 1, Duration::from_millis(2));
        let report = Feedback { dimmer: Some(Dimmer::clamped(0.3 * slot as f64)), ..report };
        let _ = dispatcher.learn(later, &mut mirror, &Outcome::Replied(Some(report)));
        dispatcher.finish(later, mirror, BodyEnd::Complete);
    }
}

fn costs(dispatcher: &Dispatcher, now: Instant) -> Vec<Option<f64>> {
    (0..3).map(|slot| dispatcher.cost(now, ReplicaId::new(slot))).collect()
}

fn taught(policy: &str) -> (Dispatcher, Instant) {
    let mut dispatcher =
        Dispatcher::new(Fleet::single_group(3), policies::make(policy), Default::default());
    for round in 0..30 {
        serve_all(&mut dispatcher, Instant::from_millis(1_000 + 50 * round), 3);
        let request = Request::new(GroupId::new(0), Replay::Always);
        let now = Instant::from_millis(1_030 + 50 * round);
        let mut call = dispatcher.open(now, CallId(round), request);
        if let Step::Send(mut attempt) = dispatcher.step(now, &mut call) {
            call.settle(dispatcher.learn(now, &mut attempt, &REPLIED));
            dispatcher.finish(now, attempt, BodyEnd::Complete);
        }
        dispatcher.close(now, call);
    }
    (dispatcher, Instant::from_millis(2_500))
}

#[test]
fn estimates_survive_where_the_policy_stays_of_the_same_kind() {
    let mut ranking = 0;
    for policy in policies::all() {
        let (mut dispatcher, now) = taught(policy);
        let before = costs(&dispatcher, now);
        let (facts, window) = (dispatcher.fleet().clone(), dispatcher.window());
        let again = (policies::make(policy), Box::new(Single));
        dispatcher.reconfigure(now, again.0, again.1, DispatcherConfig::default());
        assert_eq!(costs(&dispatcher, now), before, "{policy}");
        let known = |fleet: &Fleet| {
            let of = |slot| (*fleet.replica(ReplicaId::new(slot))).feedback().copied();
            (0..3).map(of).collect::<Vec<_>>()
        };
        assert_eq!(known(dispatcher.fleet()), known(&facts), "{policy}: facts are nobody's");
        assert!(window.replicas.iter().all(|replica| replica.succeeded >= 30), "{policy}");
        ranking += usize::from(before.iter().all(Option::is_some) && before[0] != before[2]);
    }
    assert!(ranking >= 10, "{ranking} policies have told one replica from another");
}

#[test]
fn another_kind_begins_anew_and_other_parameters_do_not() {
    let (mut dispatcher, now) = taught("c3");
    let fresh = {
        let policy = policies::make("peak-ewma");
        let never = Dispatcher::new(Fleet::single_group(3), policy, Default::default());
        costs(&never, now)
    };
    let slow = |costs: &[Option<f64>]| costs[2] > costs[0];
    let mut turn = |policy: &str| {
        let policy = policies::make(policy);
        dispatcher.reconfigure(now, policy, Box::new(Single), Default::default());
        costs(&dispatcher, now)
    };
    assert!(slow(&turn("c3:weight=7")), "C3 with another weight knows them");
    let peak = turn("peak-ewma");
    assert!(peak[0] == peak[1] && peak[0] >= fresh[0], "it has heard of none of them: {peak:?}");
    assert!(!slow(&turn("c3")), "what C3 knew went with it");
}

#[test]
fn a_replica_that_was_taken_out_and_put_back_has_its_record_and_a_slow_start() {
    let (mut dispatcher, now) = taught("c3");
    let before = costs(&dispatcher, now);
    let mut plan = RoutePlan::single_group(3);
    let mut adopt = |health: [Health; 3], members: &[usize], now| {
        plan.version += 1;
        plan.health = health.to_vec();
        plan.groups = vec![members.iter().copied().map(ReplicaId::new).collect()];
        dispatcher.adopt(now, &plan);
    };
    adopt([Health::Up, Health::Up, Health::Draining], &[0, 1], now);
    adopt([Health::Up; 3], &[0, 1, 2], now);
    assert_eq!(costs(&dispatcher, now), before);
    assert!(dispatcher.fleet().replica(ReplicaId::new(2)).feedback().is_some());
    assert!(dispatcher.window().replicas[2].succeeded >= 30, "and its counts");
    // It has a twentieth of its share at first: 5 % of a third of 1,000 is 17, σ is 4.
    let mut to_it = 0;
    let policy = policies::make("random");
    dispatcher.reconfigure(now, policy, Box::new(Single), Default::default());
    for id in 0..1_000 {
        let mut call = open_at(&mut dispatcher, now, id);
        let mut attempt = sent(dispatcher.step(now, &mut call));
        to_it += u32::from(attempt.replica() == ReplicaId::new(2));
        call.settle(dispatcher.learn(now, &mut attempt, &REPLIED));
        dispatcher.finish(now, attempt, BodyEnd::Complete);
        dispatcher.close(now, call);
    }
    assert!((1..=40).contains(&to_it), "{to_it}");
}

#[test]
fn a_late_reply_of_the_replica_before_is_an_answer_and_teaches_nothing_of_the_next() {
    let mut dispatcher = dispatcher("c3");
    let mut call = open(&mut dispatcher, 1);
    let mut attempt = sent(dispatcher.step(NOW, &mut call));
    let slot = attempt.replica();
    let mut plan = RoutePlan::single_group(3);
    plan.version = 1;
    plan.generations = vec![0; 3];
    plan.generations[slot.index()] = 1;
    dispatcher.adopt(NOW, &plan);
    let report = Feedback::measured(9, 9, Duration::from_millis(9));
    call.settle(dispatcher.learn(NOW, &mut attempt, &Outcome::Replied(Some(report))));
    assert!(matches!(dispatcher.step(NOW, &mut call), Step::Answered(0)));
    dispatcher.close(NOW, call);
    dispatcher.finish(NOW, attempt, BodyEnd::Complete);
    let facts = dispatcher.fleet().replica(slot);
    assert_eq!((facts.generation(), facts.in_flight(), facts.feedback()), (1, 0, None));
    let window = dispatcher.window();
    let counted = window.replicas[slot.index()];
    assert_eq!((counted.generation, counted.sent, counted.succeeded), (1, 0, 0));
    assert_eq!((window.opened, window.answered), (1, 1), "the call counts");
}

#[test]
#[should_panic(expected = "a seat's generation only grows")]
fn a_plan_does_not_give_a_slot_back_to_an_earlier_replica() {
    let mut dispatcher = dispatcher("c3");
    let plan = |version, generation| RoutePlan {
        version,
        generations: vec![generation; 3],
        ..RoutePlan::single_group(3)
    };
    dispatcher.adopt(NOW, &plan(1, 2));
    dispatcher.adopt(NOW, &plan(2, 1));
}

#[test]
fn the_counts_of_two_replicas_of_one_slot_are_not_added_up() {
    let of = |generation, sent| RequestWindow {
        replicas: vec![ReplicaWindow { generation, sent, ..ReplicaWindow::default() }],
        ..RequestWindow::default()
    };
    // Two workers hand up their counts; one of them has adopted the newer plan first.
    let mut total = of(0, 100);
    [of(1, 3), of(0, 5), of(1, 4)].iter().for_each(|window| total.merge(window));
    assert_eq!((total.replicas[0].generation, total.replicas[0].sent), (1, 7));
}

#[test]
fn a_reload_gives_no_second_burst_of_retries() {
    let config =
        || DispatcherConfig { retry_budget: Budget::of_retries(0.1), ..Default::default() };
    let policy = || policies::make("round-robin");
    let mut dispatcher = Dispatcher::new(Fleet::single_group(3), policy(), config());
    for id in 0..400 {
        dispatcher.reconfigure(NOW, policy(), Box::new(Single), config());
        let mut call = open(&mut dispatcher, id);
        while let Step::Send(mut attempt) = dispatcher.step(NOW, &mut call) {
            call.settle(dispatcher.learn(NOW, &mut attempt, &Outcome::Failed(Failure::Unsent)));
            dispatcher.finish(NOW, attempt, BodyEnd::Complete);
        }
        dispatcher.close(NOW, call);
    }
    let retries = dispatcher.window().retries;
    assert!((50..=60).contains(&retries), "20 at once and a tenth of 400: {retries}");
}

#[test]
fn calls_that_are_held_go_on_under_a_policy_that_holds_none() {
    let mut dispatcher = dispatcher("c3-absim");
    let now = Instant::ZERO;
    let mut calls: Vec<_> = (1..=2).map(|id| open(&mut dispatcher, id)).collect();
    for call in &mut calls {
        assert!(matches!(dispatcher.step(now, call), Step::Wait { .. }));
    }
    let policy = policies::make("least-outstanding");
    dispatcher.reconfigure(now, policy, Box::new(Single), Default::default());
    for mut call in calls {
        assert_eq!(dispatcher.resumed(), Some(call.id()), "in their order");
        let mut attempt = sent(dispatcher.step(now, &mut call));
        call.settle(dispatcher.learn(now, &mut attempt, &REPLIED));
        dispatcher.finish(now, attempt, BodyEnd::Complete);
        dispatcher.close(now, call);
    }
    assert_eq!(dispatcher.held(), 0);
}
