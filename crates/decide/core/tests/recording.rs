//! What a dispatcher tells of copies, the pairs it sends, and the windows of another policy.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::{Arc, Mutex};

use evenkeel_core::request::copies::{CopyEnd, CopyRecord, CopySink, WINDOW, Windows};
use evenkeel_core::request::redundancy::{
    Hedge, HedgeConfig, Lasted, ObjectiveConfig, Redundancy, Single,
};
use evenkeel_core::request::select::{Policy, Selector};
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Failure, Kind, Outcome, Replay,
    Request, Step,
};
use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::Probability;
use evenkeel_core::{Feedback, Fleet, GroupId, Instant, ReplicaId};

/// Keeps what it is told.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<CopyRecord>>>);

impl CopySink for Kept {
    fn copy_ended(&mut self, copy: &CopyRecord) {
        self.0.lock().unwrap().push(*copy);
    }
}

impl Kept {
    fn all(&self) -> Vec<CopyRecord> {
        self.0.lock().unwrap().clone()
    }
}

const fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn share(value: f64) -> Probability {
    Probability::clamped(value)
}

fn policy(name: &str) -> Box<dyn Selector> {
    name.parse::<Policy>().unwrap().make(1)
}

fn dispatcher(selector: Box<dyn Selector>, pairs: f64) -> (Dispatcher, Kept) {
    let config = DispatcherConfig { seed: 7, ..DispatcherConfig::default() };
    let mut dispatcher = Dispatcher::new(Fleet::single_group(3), selector, config);
    let kept = Kept::default();
    dispatcher.record(Box::new(kept.clone()), share(pairs));
    (dispatcher, kept)
}

const SAFE: Request = Request::new(GroupId::new(0), Replay::Always);

/// Opens a call that the driver gives this name, and gives its first copy.
fn send(dispatcher: &mut Dispatcher, now: Instant, id: u64, request: Request) -> (Call, Attempt) {
    let mut call = dispatcher.open(now, CallId(id), request);
    match dispatcher.step(now, &mut call) {
        Step::Send(attempt) => (call, attempt),
        other => panic!("{other:?}"),
    }
}

fn end(dispatcher: &mut Dispatcher, now: Instant, mut attempt: Attempt, outcome: &Outcome) {
    let _ = dispatcher.learn(now, &mut attempt, outcome);
    dispatcher.finish(now, attempt, BodyEnd::Complete);
}

#[test]
fn each_copy_is_told_of_once_with_its_request_its_times_and_how_it_ended() {
    let (mut dispatcher, kept) = dispatcher(policy("round-robin"), 0.0);
    // The driver gives both calls one name, as it may: the first is over when the second comes.
    let (mut call, mut first) = send(&mut dispatcher, at(10), 5, SAFE);
    let failed = Outcome::Failed(Failure::Broken);
    let settled = dispatcher.learn(at(14), &mut first, &failed);
    call.settle(settled);
    let Step::Send(retry) = dispatcher.step(at(14), &mut call) else { panic!("it is sent again") };
    let replicas = (first.replica(), retry.replica());
    dispatcher.finish(at(14), first, BodyEnd::ClientGone);
    end(&mut dispatcher, at(20), retry, &Outcome::Replied(None));
    dispatcher.close(at(20), call);
    let (call, left) = send(&mut dispatcher, at(30), 5, SAFE);
    dispatcher.finish(at(33), left, BodyEnd::ClientGone); // nobody learnt from it
    dispatcher.close(at(33), call);
    let told = kept.all();
    let of = |one: &CopyRecord| (one.request, one.kind, one.end, one.after_ns, one.latency_ns);
    let told_of: Vec<_> = told.iter().map(of).collect();
    let ms = 1_000_000;
    assert_eq!(
        told_of,
        [
            (1, Kind::First, CopyEnd::Failed, 0, 4 * ms),
            (1, Kind::Retry, CopyEnd::Answered, 4 * ms, 6 * ms),
            (2, Kind::First, CopyEnd::Cancelled, 0, 3 * ms),
        ]
    );
    assert_eq!((told[0].replica, told[1].replica), replicas);
    assert_eq!(told.iter().map(|one| one.sent_at).collect::<Vec<_>>(), [at(10), at(14), at(30)]);
}

/// How many of so many calls were sent to a second replica, which is another one.
fn pairs(dispatcher: &mut Dispatcher, calls: u64, request: Request) -> usize {
    let mut pairs = 0;
    for id in 0..calls {
        let (call, attempt) = send(dispatcher, at(id), id, request);
        if let Some(pair) = dispatcher.pair(at(id), &call) {
            assert_ne!(pair.replica(), attempt.replica());
            assert_eq!((pair.kind(), pair.call()), (Kind::Mirror, call.id()));
            end(dispatcher, at(id), pair, &Outcome::Replied(None));
            pairs += 1;
        }
        end(dispatcher, at(id), attempt, &Outcome::Replied(None));
        dispatcher.close(at(id), call);
    }
    pairs
}

#[test]
fn pairs_are_the_share_of_the_requests_that_may_be_sent_twice_and_of_no_others() {
    let (mut dispatcher, kept) = dispatcher(policy("c3"), 0.01);
    let sent = pairs(&mut dispatcher, 100_000, SAFE);
    // Binomial(100,000, 0.01): standard deviation 31; five of them.
    assert!(sent.abs_diff(1_000) < 157, "{sent}");
    let told = kept.all();
    assert_eq!(told.iter().filter(|one| one.kind == Kind::Mirror).count(), sent);
    for unsafe_one in [
        Request::new(GroupId::new(0), Replay::IfUnsent),
        Request::new(GroupId::new(0), Replay::AfterFailure),
        Request { may_hedge: false, ..SAFE },
    ] {
        assert_eq!(pairs(&mut dispatcher, 10_000, unsafe_one), 0);
    }
    dispatcher.stop_recording();
    assert_eq!(pairs(&mut dispatcher, 10_000, SAFE), 0, "off by one key");
}

#[test]
fn pairs_are_within_the_budget_of_the_hedge_where_there_is_one() {
    let hedge = HedgeConfig { budget_share: 0.002, burst_max: 1.0, ..HedgeConfig::default() };
    let (dispatcher, _kept) = dispatcher(policy("c3"), 0.5);
    let mut dispatcher = dispatcher.with_redundancy(Box::new(Hedge::new(hedge)));
    let sent = pairs(&mut dispatcher, 10_000, SAFE);
    assert!((15..=21).contains(&sent), "0.2 % of 10,000, and one: {sent}");
}

#[test]
fn the_hedge_that_is_closed_for_load_sends_no_pairs() {
    #[derive(Debug)]
    struct Closed;
    impl Redundancy for Closed {
        fn copy_due(&mut self, _: usize) -> Option<Duration> {
            None
        }
        fn permits_copy(&mut self, _: Instant) -> bool {
            false
        }
        fn permits_pair(&mut self, _: Instant) -> bool {
            false
        }
    }
    let (dispatcher, _kept) = dispatcher(policy("c3"), 1.0);
    let mut dispatcher = dispatcher.with_redundancy(Box::new(Closed));
    assert_eq!(pairs(&mut dispatcher, 100, SAFE), 0);
}

/// A hedge by this rule that has heard from replicas of four slots, so many of them busy.
fn loaded(objective: Option<ObjectiveConfig>, busy: u32) -> Hedge {
    let config =
        HedgeConfig { objective, budget_share: 1.0, burst_max: 1_000.0, ..HedgeConfig::default() };
    let mut hedge = Hedge::new(config);
    let report =
        Feedback { concurrency: Some(4), ..Feedback::measured(0, busy, Duration::from_millis(1)) };
    for id in 0..2_000 {
        hedge.on_open(at(id));
        let copy = Lasted {
            kind: Kind::First,
            latency: Duration::from_millis(5),
            is_answered: true,
            behind: Duration::ZERO,
            in_flight: 1,
            report: Some(&report),
        };
        hedge.on_end(at(id), &copy);
    }
    hedge
}

#[test]
fn a_hedge_by_a_quantile_or_an_objective_that_is_closed_for_load_sends_no_pairs() {
    for objective in [None, Some(ObjectiveConfig::new(Duration::from_millis(20)))] {
        for (busy, expected) in [(1, 100), (4, 0)] {
            let hedge = loaded(objective, busy);
            let utilisation = hedge.stats().unwrap().utilisation.unwrap();
            assert!((utilisation - f64::from(busy) / 4.0).abs() < 1e-9, "{utilisation}");
            let (dispatcher, _kept) = dispatcher(policy("c3"), 1.0);
            let mut dispatcher = dispatcher.with_redundancy(Box::new(hedge));
            assert_eq!(pairs(&mut dispatcher, 100, SAFE), expected, "{objective:?} {busy}");
        }
    }
}

#[test]
fn so_many_windows_are_explored_and_equal_seeds_explore_equal_ones() {
    let windows = |seed| Windows { share: share(0.05), seed };
    let looks = |seed, number: u64| {
        let middle = Instant::from_nanos(nanos(WINDOW) * number + nanos(WINDOW) / 3);
        let (is_explored, until) = windows(seed).look(middle);
        assert_eq!(until, Instant::from_nanos(nanos(WINDOW) * (number + 1)));
        is_explored
    };
    let of = |seed| (0..20_000).map(|number| looks(seed, number)).collect::<Vec<bool>>();
    let explored = of(1);
    let count = explored.iter().filter(|is| **is).count();
    // Binomial(20,000, 0.05): standard deviation 31; five of them.
    assert!(count.abs_diff(1_000) < 155, "{count}");
    assert_eq!(explored, of(1));
    assert_ne!(explored, of(2));
}

/// The copies of a run of one call in 10 ms, and who decided.
fn explored(seed: u64, minutes: u64) -> Vec<CopyRecord> {
    let (mut dispatcher, kept) = dispatcher(policy("round-robin"), 0.0);
    let windows = Windows { share: share(0.3), seed };
    dispatcher.explore(at(0), Some((policy("random"), windows)));
    for id in 0..minutes * 6_000 {
        let now = at(id * 10);
        let (call, attempt) = send(&mut dispatcher, now, id, SAFE);
        end(&mut dispatcher, now, attempt, &Outcome::Replied(None));
        dispatcher.close(now, call);
    }
    kept.all()
}

#[test]
fn in_its_windows_the_other_policy_decides_and_the_rows_say_so() {
    let rows = explored(3, 60);
    let minutes: Vec<&[CopyRecord]> = rows.chunks(6_000).collect();
    let explored = minutes.iter().filter(|rows| rows[0].is_explored).count();
    assert!((5..40).contains(&explored), "30 % of 60: {explored}");
    for rows in minutes {
        assert!(rows.iter().all(|row| row.is_explored == rows[0].is_explored), "whole windows");
        // Round-robin never chooses a replica twice in a row; random does, a third of the time.
        let twice = rows.windows(2).filter(|pair| pair[0].replica == pair[1].replica).count();
        match rows[0].is_explored {
            false => assert_eq!(twice, 0),
            true => assert!((1_800..2_200).contains(&twice), "{twice}"),
        }
    }
}

#[test]
fn the_exploration_outlives_a_reload_and_when_it_ends_what_was_learnt_stays() {
    let (mut dispatcher, kept) = dispatcher(policy("peak-ewma"), 0.0);
    let windows = Windows { share: share(1.0), seed: 1 };
    dispatcher.explore(at(0), Some((policy("random"), windows)));
    for id in 0..10 {
        let (call, attempt) = send(&mut dispatcher, at(id), id, SAFE);
        end(&mut dispatcher, at(id + 50), attempt, &Outcome::Replied(None));
        dispatcher.close(at(id + 50), call);
    }
    assert!(kept.all().iter().all(|row| row.is_explored));
    let config = DispatcherConfig::default();
    dispatcher.reconfigure(at(100), policy("peak-ewma"), Box::new(Single), config);
    let (call, attempt) = send(&mut dispatcher, at(100), 10, SAFE);
    end(&mut dispatcher, at(100), attempt, &Outcome::Replied(None));
    dispatcher.close(at(100), call);
    assert_eq!(dispatcher.policy(), "random");
    dispatcher.explore(at(100), None);
    assert_eq!(dispatcher.policy(), "peak-ewma");
    let cost_of = |slot| dispatcher.cost(at(100), ReplicaId::new(slot)).unwrap();
    assert!((0..3).any(|slot| cost_of(slot) > 1.0), "it heard of answers all along");
}
