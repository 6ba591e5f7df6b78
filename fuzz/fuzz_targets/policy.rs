//! Any text as a policy; what is accepted dispatches a few calls.
//!
//! Promise: a policy or an error that says why, never a panic; within its documented ranges no
//! parameter makes a policy refuse a replica that is up, wait without progress or cost NaN.

#![no_main]

use evenkeel_core::fleet::{Feedback, Fleet, GroupId, ReplicaId};
use evenkeel_core::request::select::{Candidates, Choice, Policy, Selector, registry};
use evenkeel_core::request::{BodyEnd, CallId, Dispatcher, Outcome, Replay, Request, Step};
use evenkeel_core::{Duration, Instant, Rng};
use libfuzzer_sys::fuzz_target;

const GROUP: GroupId = GroupId::new(0);
const REQUEST: Request = Request::new(GROUP, Replay::Always);

fuzz_target!(|data: &[u8]| {
    let text = &*String::from_utf8_lossy(data);
    let (seed, clients) = (text.len() as u64, text.bytes().fold(1, |sum, b| sum + u32::from(b)));
    let named = registry::NAMES.map(|name| format!("{name}:{text}"));
    for text in named.iter().map(String::as_str).chain([text]) {
        match text.parse::<Policy>() {
            Ok(policy) => [select, dispatch].iter().for_each(|run| run(policy.make(clients), seed)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});

fn select(mut policy: Box<dyn Selector>, seed: u64) {
    let (fleet, ids) = (Fleet::single_group(3), [0, 1, 2].map(ReplicaId::new));
    let (mut now, mut rng) = (Instant::ZERO, Rng::seeded(seed));
    policy.on_membership(now, &fleet);
    for number in 0..6 {
        let from = Candidates { fleet: &fleet, group: GROUP, ids: &ids[number % 3..] };
        match policy.select(now, from, &mut rng) {
            Choice::Send(id) => assert!(from.ids.contains(&id), "{id:?} of {:?}", from.ids),
            Choice::Hold { until } => assert!(until > now, "a wait must make progress"),
            Choice::Refuse => panic!("there were candidates"),
        }
        now += Duration::from_nanos(rng.bits() >> (12 + number * 8));
    }
}

fn dispatch(policy: Box<dyn Selector>, seed: u64) {
    let (mut now, mut rng) = (Instant::ZERO, Rng::seeded(seed));
    let mut dispatcher = Dispatcher::new(Fleet::single_group(3), policy, Default::default());
    for id in 0..8 {
        let mut call = dispatcher.open(now, CallId(id), REQUEST);
        if let Step::Send(mut attempt) = dispatcher.step(now, &mut call) {
            now += Duration::from_nanos(rng.bits() >> (24 + id));
            let report = Feedback::measured(rng.bits() as u32, 1, Duration::from_nanos(id));
            call.settle(dispatcher.learn(now, &mut attempt, &Outcome::Replied(Some(report))));
            dispatcher.finish(now, attempt, BodyEnd::Complete);
        }
        assert!(dispatcher.cost(now, ReplicaId::new(0)).is_none_or(|cost| cost >= 0.0));
        dispatcher.close(now, call);
    }
    assert_eq!((dispatcher.fleet().in_flight(), dispatcher.held()), (0, 0));
}
