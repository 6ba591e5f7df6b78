//! Requests at replicas that say nothing: another is asked beside them.

use evenkeel_core::fleet::{Fleet, GroupId, Health, ReplicaId};
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::Budget;
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Kind, Outcome, Replay, Request,
    Step,
};
use evenkeel_core::time::{Duration, Instant, Why};

use crate::policies;
use crate::watched::HedgeAfter;

const REPLIED: Outcome = Outcome::Replied(None);

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn dispatcher(config: DispatcherConfig) -> Dispatcher {
    Dispatcher::new(Fleet::single_group(3), policies::make("round-robin"), config)
}

fn begin(dispatcher: &mut Dispatcher, now: Instant, replay: Replay) -> (Call, Attempt) {
    let request = Request::new(GroupId::new(0), replay);
    let mut call = dispatcher.open(now, CallId(now.as_nanos()), request);
    match dispatcher.step(now, &mut call) {
        Step::Send(attempt) => (call, attempt),
        other => panic!("{other:?}"),
    }
}

fn answer(dispatcher: &mut Dispatcher, now: Instant, (mut call, mut attempt): (Call, Attempt)) {
    call.settle(dispatcher.learn(now, &mut attempt, &REPLIED));
    dispatcher.close(now, call);
    dispatcher.finish(now, attempt, BodyEnd::Complete);
}

/// A request every 5 ms, each answered after 4 ms, but for those at silent replicas, which are
/// given back.
fn serve(
    dispatcher: &mut Dispatcher,
    span: core::ops::Range<u64>,
    silent: &[usize],
) -> Vec<(Call, Attempt)> {
    let mut waiting = Vec::new();
    for ms in span.step_by(5) {
        let (call, attempt) = begin(dispatcher, at(ms), Replay::Always);
        if silent.contains(&attempt.replica().index()) {
            waiting.push((call, attempt));
        } else {
            answer(dispatcher, at(ms + 4), (call, attempt));
        }
    }
    waiting
}

fn wait_of(dispatcher: &mut Dispatcher, now: Instant, call: &mut Call) -> Option<Instant> {
    match dispatcher.step(now, call) {
        Step::Wait { until } => until.map(|due| {
            assert_eq!(due.why, Why::Silence);
            due.at
        }),
        other => panic!("{other:?}"),
    }
}

fn end(dispatcher: &mut Dispatcher, now: Instant, call: Call, attempts: Vec<Attempt>) {
    dispatcher.close(now, call);
    attempts.into_iter().for_each(|it| dispatcher.finish(now, it, BodyEnd::ClientGone));
}

#[test]
fn what_waits_at_a_silent_replica_is_asked_of_another_and_may_still_be_answered() {
    for silent_answers_first in [true, false] {
        let mut dispatcher = dispatcher(DispatcherConfig::default());
        serve(&mut dispatcher, 0..1_000, &[]);
        let waiting = serve(&mut dispatcher, 1_000..1_090, &[0]);
        let owes_since = waiting[0].1.sent_at();
        let rescued_at = owes_since + Duration::from_millis(100);
        for (mut call, mut first) in waiting {
            let due = wait_of(&mut dispatcher, at(1_090), &mut call);
            assert_eq!(due, Some(rescued_at), "also what was sent to it later");
            // The others go on meanwhile.
            let Step::Send(mut second) = dispatcher.step(rescued_at, &mut call) else { panic!() };
            assert_eq!(second.kind(), Kind::Retry);
            assert_ne!(second.replica(), first.replica());
            assert!(matches!(dispatcher.step(rescued_at, &mut call), Step::Wait { until: None }));
            let winner = if silent_answers_first { &mut first } else { &mut second };
            call.settle(dispatcher.learn(rescued_at, winner, &REPLIED));
            let (won, lost) = (winner.copy(), 1 - winner.copy());
            let step = dispatcher.step(rescued_at, &mut call);
            assert!(matches!(step, Step::Cancel(copy) if copy == lost), "{step:?}");
            let step = dispatcher.step(rescued_at, &mut call);
            assert!(matches!(step, Step::Answered(copy) if copy == won), "{step:?}");
            end(&mut dispatcher, rescued_at, call, vec![first, second]);
            if silent_answers_first {
                assert!(!dispatcher.fleet().replica(ReplicaId::new(0)).is_silent());
                break; // who says something is not silent
            }
        }
        let window = dispatcher.window();
        assert!(window.rescues >= 1 && window.rescues == window.retries);
        assert_eq!((window.retries_denied, window.hedges), (0, 0));
    }
}

/// A request that takes long where others are answered meanwhile is slow by nature.
#[test]
fn a_slow_request_at_a_replica_that_answers_others_is_not_sent_twice() {
    let mut dispatcher = dispatcher(DispatcherConfig::default());
    serve(&mut dispatcher, 0..1_000, &[]);
    let (mut call, attempt) = begin(&mut dispatcher, at(1_000), Replay::Always);
    let mut due = wait_of(&mut dispatcher, at(1_000), &mut call);
    assert_eq!(due, Some(at(1_100)));
    let mut looks = 0;
    for ms in (1_001..3_000).step_by(5) {
        serve(&mut dispatcher, ms..ms + 5, &[]);
        if due.is_some_and(|due| due <= at(ms)) {
            due = wait_of(&mut dispatcher, at(ms), &mut call);
            looks += 1;
        }
    }
    assert!((15..=25).contains(&looks), "{looks} looks in two seconds");
    assert_eq!(dispatcher.window().rescues, 0);
    end(&mut dispatcher, at(3_000), call, vec![attempt]);
}

#[test]
fn what_may_not_be_sent_twice_waits() {
    for (replay, retries_max) in
        [(Replay::IfUnsent, 1), (Replay::AfterFailure, 1), (Replay::Always, 0)]
    {
        let config = DispatcherConfig { retries_max, ..DispatcherConfig::default() };
        let mut dispatcher = dispatcher(config);
        serve(&mut dispatcher, 0..1_000, &[]);
        let (mut call, attempt) = begin(&mut dispatcher, at(1_000), replay);
        for ms in [1_000, 1_100, 9_000] {
            assert_eq!(wait_of(&mut dispatcher, at(ms), &mut call), None, "{replay:?}");
        }
        end(&mut dispatcher, at(9_000), call, vec![attempt]);
    }
}

/// Two of three stand still; the third bears what the budget allows, and more as it fills.
#[test]
fn rescues_stay_within_the_budget_and_go_on_as_it_fills() {
    let retry_budget = Budget::share(0.1, 5.0);
    let mut dispatcher = dispatcher(DispatcherConfig { retry_budget, ..Default::default() });
    serve(&mut dispatcher, 0..1_000, &[]);
    let waiting = serve(&mut dispatcher, 1_000..1_090, &[0, 1]);
    let (many, mut now) = (waiting.len(), 1_200);
    assert!(many > 10, "{many}");
    let mut waiting: Vec<_> = waiting.into_iter().map(|(call, it)| (call, vec![it])).collect();
    let mut rescued = Vec::new();
    while rescued.len() < many {
        for (call, attempts) in waiting.iter_mut().filter(|(_, attempts)| attempts.len() == 1) {
            if let Step::Send(second) = dispatcher.step(at(now), call) {
                assert_eq!(second.replica().index(), 2);
                attempts.push(second);
                rescued.push(now);
            }
        }
        serve(&mut dispatcher, now + 5..now + 100, &[]);
        now += 105;
        assert!(now < 9_000, "{rescued:?} of {many}");
    }
    assert_eq!(rescued.iter().filter(|&&ms| ms == 1_200).count(), 5, "{rescued:?}");
    let window = dispatcher.window();
    assert_eq!(window.rescues, many as u64);
    assert!(window.retries_denied <= many as u64, "each is denied once: {window:?}");
    for (call, attempts) in waiting {
        end(&mut dispatcher, at(now), call, attempts);
    }
    assert_eq!(dispatcher.fleet().in_flight(), 0);
}

/// Its first request waits longer than others would: it may be cold. Where nobody ever replied
/// nobody knows.
#[test]
fn one_that_never_replied_is_measured_by_the_others() {
    let mut dispatcher = dispatcher(DispatcherConfig::default());
    let (mut lonely, first) = begin(&mut dispatcher, at(0), Replay::Always);
    for ms in [100, 1_000, 9_000] {
        let due = wait_of(&mut dispatcher, at(ms), &mut lonely);
        assert_eq!(due, Some(at(ms + 100)), "it looks again");
    }
    let waiting = serve(&mut dispatcher, 10_000..10_100, &[first.replica().index()]);
    let Step::Send(second) = dispatcher.step(at(10_100), &mut lonely) else { panic!() };
    assert_ne!(second.replica(), first.replica());
    end(&mut dispatcher, at(10_100), lonely, vec![first, second]);
    let (mut call, attempt) = waiting.into_iter().next().unwrap();
    assert!(wait_of(&mut dispatcher, at(10_100), &mut call).is_some());
    end(&mut dispatcher, at(10_100), call, vec![attempt]);
}

/// A hedge would win, and the test be given up before it tells anything: the replica would be left
/// alone for a second, two and four although it is well again.
#[test]
fn a_request_on_trial_is_not_hedged() {
    let mut dispatcher = dispatcher(DispatcherConfig::default());
    serve(&mut dispatcher, 0..1_000, &[]);
    for (call, attempt) in serve(&mut dispatcher, 1_000..1_200, &[0]) {
        end(&mut dispatcher, at(1_200), call, vec![attempt]);
    }
    assert!(dispatcher.fleet().replica(ReplicaId::new(0)).is_silent());
    let hedge = HedgeAfter(Duration::from_millis(2), Budget::share(1.0, 10.0));
    let mut dispatcher = dispatcher.with_redundancy(Box::new(hedge));
    let mut ms = 1_200;
    let (mut call, attempt) = loop {
        let (call, attempt) = begin(&mut dispatcher, at(ms), Replay::Always);
        if attempt.replica().index() == 0 {
            break (call, attempt);
        }
        end(&mut dispatcher, at(ms), call, vec![attempt]);
        ms += 1;
    };
    let patience = Duration::from_millis(100);
    assert_eq!(wait_of(&mut dispatcher, at(ms), &mut call), Some(attempt.sent_at() + patience));
    end(&mut dispatcher, at(ms), call, vec![attempt]);
}

/// Fewer leave at once than were asked for, as one is down; once it is back it is asked, too.
#[test]
fn copies_that_left_at_once_are_rescued_as_one_would_be() {
    let plan = |version, last| RoutePlan {
        version,
        health: vec![Health::Up, Health::Up, last],
        ..RoutePlan::single_group(3)
    };
    for among in [None, Some((0..3).collect())] {
        let mut dispatcher = dispatcher(DispatcherConfig::default());
        serve(&mut dispatcher, 0..1_000, &[]);
        dispatcher.adopt(at(1_000), &plan(1, Health::Down));
        let now = at(20_000); // after the slow start
        let request = Request::new(GroupId::new(0), Replay::Always);
        let mut call = dispatcher.open(now, CallId(1), Request { among, copies: 3, ..request });
        let mut attempts = Vec::new();
        let due = loop {
            match dispatcher.step(now, &mut call) {
                Step::Send(attempt) => attempts.push(attempt),
                Step::Wait { until } => break until.unwrap(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((attempts.len(), due.why), (2, Why::Silence));
        assert_eq!(due.at, at(20_100));
        dispatcher.adopt(due.at, &plan(2, Health::Up));
        let Step::Send(rescue) = dispatcher.step(due.at, &mut call) else { panic!() };
        assert_eq!((rescue.kind(), rescue.replica().index()), (Kind::Retry, 2));
        attempts.push(rescue);
        end(&mut dispatcher, due.at, call, attempts);
    }
}
