//! Who is asked when nobody of a request's group can be.

use evenkeel_core::fleet::{Fleet, GroupId, Health, ReplicaId};
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Budget, Single};
use evenkeel_core::request::{
    BodyEnd, CallId, Dispatcher, DispatcherConfig, Failure, Outcome, Refusal, Replay, Request, Step,
};
use evenkeel_core::time::Instant;

use crate::policies;

const NOW: Instant = Instant::from_millis(5);
const NODES: usize = 6;
/// All, and the replicas of a key.
const GROUPS: [&[usize]; 2] = [&[0, 1, 2, 3, 4, 5], &[1, 2]];

fn dispatcher(policy: &str, health: [Health; NODES]) -> Dispatcher {
    let groups = GROUPS.map(|slots| slots.iter().copied().map(ReplicaId::new).collect()).to_vec();
    let config = DispatcherConfig {
        retry_budget: Budget::share(0.0, 1.0), // a single retry in all
        ..DispatcherConfig::default()
    };
    let fleet = Fleet::new(NODES, groups.clone());
    let mut dispatcher = Dispatcher::new(fleet, policies::make(policy), config);
    let health = health.to_vec();
    let plan = RoutePlan { version: 1, health, groups, ..RoutePlan::single_group(NODES) };
    dispatcher.adopt(NOW, &plan);
    dispatcher
}

/// Policies that hold no request back.
const POLICIES: [&str; 4] = ["c3", "least-outstanding", "round-robin", "dynamic-snitch"];

/// Who is asked, one after the other, when these fail like this and everybody else answers.
fn asked(
    dispatcher: &mut Dispatcher,
    replay: Replay,
    fails: impl Fn(usize) -> Option<Failure>,
) -> (Vec<usize>, Option<Refusal>) {
    let fallback = Some(GroupId::new(0));
    let request = Request { fallback, ..Request::new(GroupId::new(1), replay) };
    let mut call = dispatcher.open(NOW, CallId(1), request);
    let mut asked = Vec::new();
    let refusal = loop {
        match dispatcher.step(NOW, &mut call) {
            Step::Send(mut attempt) => {
                let slot = attempt.replica().index();
                let outcome = fails(slot).map_or(Outcome::Replied(None), Outcome::Failed);
                asked.push(slot);
                call.settle(dispatcher.learn(NOW, &mut attempt, &outcome));
                dispatcher.finish(NOW, attempt, BodyEnd::Complete);
            }
            Step::Answered(_) => break None,
            Step::Refused(refusal) => break Some(refusal),
            other => panic!("{other:?}"),
        }
    };
    dispatcher.close(NOW, call);
    assert_eq!(dispatcher.fleet().in_flight(), 0);
    (asked, refusal)
}

#[test]
fn a_group_that_is_down_is_not_asked_while_others_are_up() {
    for policy in POLICIES {
        let mut health = [Health::Up; NODES];
        (health[1], health[2]) = (Health::Down, Health::Down);
        let mut dispatcher = dispatcher(policy, health);
        let (asked, refusal) = asked(&mut dispatcher, Replay::IfUnsent, |_| None);
        assert!(refusal.is_none() && asked.len() == 1, "{policy}: {asked:?}");
        assert!(!GROUPS[1].contains(&asked[0]), "{policy}: {asked:?}");
    }
}

#[test]
fn who_cannot_be_reached_is_passed_over_until_somebody_can_be() {
    for policy in POLICIES {
        let mut dispatcher = dispatcher(policy, [Health::Up; NODES]);
        let unsent = |slot| (slot != 4).then_some(Failure::Unsent);
        // No budget of retries ends it: two requests in a row.
        for _ in 0..2 {
            let (mut asked, refusal) = asked(&mut dispatcher, Replay::IfUnsent, unsent);
            assert_eq!((refusal, asked.last()), (None, Some(&4)), "{policy}: {asked:?}");
            assert!(asked.len() < 3 || GROUPS[1].iter().all(|slot| asked[..2].contains(slot)));
            asked.sort_unstable();
            asked.dedup();
            assert!(asked.len() <= NODES, "{policy}: nobody twice");
        }
        let (asked, refusal) = asked(&mut dispatcher, Replay::IfUnsent, |_| Some(Failure::Unsent));
        assert_eq!((asked.len(), refusal), (NODES, Some(Refusal::Failed(Failure::Unsent))));
    }
}

#[test]
fn what_was_sent_goes_to_the_fallback_only_if_it_may_be_sent_again() {
    let broken = |slot: usize| GROUPS[1].contains(&slot).then_some(Failure::Broken);
    let mut health = [Health::Up; NODES];
    health[2] = Health::Down;
    let mut dispatcher = dispatcher("c3", health);
    dispatcher.reconfigure(
        NOW,
        policies::make("c3"),
        Box::new(Single),
        DispatcherConfig::default(),
    );
    let once = asked(&mut dispatcher, Replay::IfUnsent, broken);
    assert_eq!(once, (vec![1], Some(Refusal::Failed(Failure::Broken))));
    let (asked, refusal) = asked(&mut dispatcher, Replay::Always, broken);
    assert_eq!((asked[0], refusal), (1, None));
    assert!(asked.len() == 2 && !GROUPS[1].contains(&asked[1]), "{asked:?}");
}
