//! What is in flight where, through random lives of a driver, beside a slow and obvious model.

use evenkeel_core::request::Failure;
use evenkeel_core::request::redundancy::HedgeConfig;
use evenkeel_core::time::{Duration, Instant};
use evenkeel_scylla::Policy;
use evenkeel_scylla::chooser::{Chooser, Limits, NodeId, RequestId};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

const NODES: usize = 4;
const REQUESTS: usize = 5;
const MS: Duration = Duration::from_millis(1);

fn chooser(policy: &str, limits: Limits) -> Chooser {
    Chooser::new(&policy.parse::<Policy>().expect("a policy of the registry"), 1, limits)
}

fn node(number: usize) -> NodeId {
    NodeId(number as u128 + 1)
}

fn nodes(numbers: &[usize]) -> Vec<NodeId> {
    numbers.iter().map(|&number| node(number)).collect()
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

const FIRST: RequestId = RequestId(100);
const SECOND: RequestId = RequestId(200);

#[test]
fn a_target_counts_from_its_choice_to_its_end() {
    let mut chooser = chooser("c3", Limits::default());
    chooser.begin(at(1), FIRST);
    assert_eq!(chooser.choose(at(1), FIRST, &nodes(&[2])), Some(0));
    assert_eq!((chooser.in_flight(node(2)), chooser.in_flight(node(1))), (1, 0));
    chooser.answered(at(3), FIRST, node(2), 2 * MS);
    assert_eq!(chooser.in_flight(node(2)), 0);
    let counts = chooser.counts();
    assert_eq!((counts.chosen, counts.answered, counts.unexpected), (1, 1, 0));
    assert_eq!(chooser.choose(at(4), FIRST, &[]), None);
}

#[test]
fn what_is_in_flight_is_avoided() {
    let mut chooser = chooser("least-outstanding", Limits::default());
    let mut seen = Vec::new();
    for request in 0..3 {
        let candidates = nodes(&[0, 1, 2]);
        chooser.begin(at(1), RequestId(request));
        seen.push(chooser.choose(at(1), RequestId(request), &candidates).unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
}

#[test]
fn a_node_that_failed_a_request_is_known_to_have_been_tried() {
    let mut chooser = chooser("c3", Limits::default());
    chooser.begin(at(1), FIRST);
    chooser.sent(at(1), FIRST, node(0));
    chooser.failed(at(2), FIRST, node(0), MS, Some(Failure::Broken));
    assert_eq!((chooser.in_flight(node(0)), chooser.tried(FIRST).count()), (0, 1));
    assert_eq!(chooser.choose(at(2), FIRST, &nodes(&[1])), Some(0));
    assert_eq!(chooser.tried(FIRST).collect::<Vec<_>>(), nodes(&[0, 1]));
    chooser.answered(at(3), FIRST, node(1), MS);
    assert_eq!(chooser.tried(FIRST).count(), 0, "it is over");
}

#[test]
fn an_answer_ends_all_that_its_request_was_sent_to() {
    let mut chooser = chooser("c3", Limits::default());
    chooser.begin(at(1), FIRST);
    chooser.sent(at(1), FIRST, node(0));
    chooser.sent(at(5), FIRST, node(1));
    chooser.begin(at(6), SECOND);
    chooser.sent(at(6), SECOND, node(0));
    assert_eq!((chooser.in_flight(node(0)), chooser.in_flight(node(1))), (2, 1));
    chooser.answered(at(7), FIRST, node(1), 2 * MS);
    assert_eq!((chooser.in_flight(node(0)), chooser.in_flight(node(1))), (1, 0));
    assert_eq!((chooser.counts().lost, chooser.counts().abandoned), (1, 0));
}

#[test]
fn a_caller_that_left_is_noticed_when_its_place_is_taken() {
    let mut chooser = chooser("c3", Limits::default());
    chooser.begin(at(1), FIRST);
    chooser.sent(at(1), FIRST, node(0));
    chooser.begin(at(50), FIRST);
    assert_eq!((chooser.in_flight(node(0)), chooser.counts().abandoned), (0, 1));
    assert_eq!(chooser.tried(FIRST).count(), 0, "that was another request");
}

#[test]
fn what_is_never_told_is_given_up_by_its_age_and_by_its_number() {
    let limits = Limits { targets_max: 3, ..Limits::default() };
    let mut chooser = chooser("c3", limits);
    for request in 0..5 {
        chooser.begin(at(1), RequestId(request));
        chooser.sent(at(1), RequestId(request), node(0));
    }
    chooser.begin(at(2), FIRST);
    assert_eq!((chooser.in_flight(node(0)), chooser.counts().untold), (3, 2));
    chooser.begin(at(60_000), FIRST);
    assert_eq!(chooser.in_flight(node(0)), 3);
    chooser.begin(at(60_001), FIRST);
    assert_eq!((chooser.in_flight(node(0)), chooser.counts().untold), (0, 5));
}

#[test]
fn a_retry_on_the_same_node_is_learnt_from_when_it_ends() {
    let mut chooser = chooser("c3", Limits::default());
    chooser.begin(at(1), FIRST);
    chooser.sent(at(1), FIRST, node(0));
    chooser.failed(at(2), FIRST, node(0), MS, None);
    chooser.answered(at(9), FIRST, node(0), 7 * MS);
    assert_eq!((chooser.in_flight(node(0)), chooser.counts().unexpected), (0, 1));
}

#[test]
fn a_slow_node_is_avoided_and_visited_again_when_that_is_forgotten() {
    let mut chooser = chooser("c3", Limits::default());
    let mut visits = |from_ms: u64, slow_ms: u32| {
        let mut visits = 0;
        for n in 0..200 {
            let now = at(from_ms + 10 * n);
            let candidates = nodes(&[0, 1, 2]);
            // Three at once: with one in flight, C3 takes a node for eight times as slow.
            let chosen = [0, 1, 2].map(RequestId).map(|request| {
                chooser.begin(now, request);
                (request, chooser.choose(now, request, &candidates).unwrap())
            });
            for (request, place) in chosen {
                let latency = if place == 0 { slow_ms } else { 1 } * MS;
                visits += u64::from(place == 0);
                chooser.answered(now + latency, request, candidates[place], latency);
            }
        }
        visits
    };
    assert!(visits(1, 9) < 10, "it is nine times as slow");
    assert!(visits(60_001, 1) > 150, "a minute later it is not");
}

#[test]
fn a_policy_that_would_hold_sends_where_least_is_in_flight() {
    let policy = "c3:rate_control=on,rate_initial=0.001,tokens_initial=0,tokens_max=1";
    let mut chooser = chooser(policy, Limits::default());
    for request in 0..6 {
        chooser.begin(at(1), RequestId(request));
        assert!(chooser.choose(at(1), RequestId(request), &nodes(&[0, 1, 2])).is_some());
    }
    assert_eq!([0, 1, 2].map(|number| chooser.in_flight(node(number))), [2, 2, 2]);
}

/// What a driver may do.
#[derive(Clone, Debug)]
enum Deed {
    Begin(usize),
    Choose { request: usize, nodes: usize },
    Copy { request: usize, nodes: usize },
    Send { request: usize, node: usize },
    Succeed(usize),
    Fail { target: usize, tells: bool },
    Pass(u64),
}

fn deeds() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => (0..REQUESTS).prop_map(Deed::Begin),
        4 => (0..REQUESTS, 1..1_usize << NODES)
            .prop_map(|(request, nodes)| Deed::Choose { request, nodes }),
        2 => (0..REQUESTS, 1..1_usize << NODES)
            .prop_map(|(request, nodes)| Deed::Copy { request, nodes }),
        2 => (0..REQUESTS, 0..NODES).prop_map(|(request, node)| Deed::Send { request, node }),
        4 => (0..64_usize).prop_map(Deed::Succeed),
        2 => (0..64_usize, proptest::bool::ANY)
            .prop_map(|(target, tells)| Deed::Fail { target, tells }),
        2 => (0..400_u64).prop_map(Deed::Pass),
        1 => Just(Deed::Pass(70_000)),
    ]
}

/// One target in the model's books.
#[derive(Clone, Copy, Debug)]
struct Sent {
    request: usize,
    node: usize,
    number: u64,
    at_ms: u64,
}

#[derive(Default)]
struct Model {
    now_ms: u64,
    number: u64,
    sent: Vec<Sent>,
}

impl Model {
    fn send(&mut self, request: usize, node: usize) {
        self.number += 1;
        let (number, at_ms) = (self.number, self.now_ms);
        self.sent.push(Sent { request, node, number, at_ms });
    }

    fn begin(&mut self, request: usize) {
        let now = self.now_ms;
        self.sent.retain(|sent| sent.request != request && now < sent.at_ms + 60_000);
    }

    /// The n-th that somebody waits for, first of its request at its node.
    fn waited_for(&self, n: usize) -> Option<Sent> {
        let one = *self.sent.get(n % self.sent.len().max(1))?;
        let same = |sent: &&Sent| sent.request == one.request && sent.node == one.node;
        self.sent.iter().find(same).copied()
    }

    fn fail(&mut self, of: Sent) {
        self.sent.retain(|sent| sent.number != of.number);
    }

    fn succeed(&mut self, of: Sent) {
        self.sent.retain(|sent| sent.request != of.request);
    }

    fn in_flight(&self, node: usize) -> u32 {
        self.sent.iter().filter(|sent| sent.node == node).count() as u32
    }
}

/// One that has learnt when copies leave, in ten seconds.
fn taught(policy: &str) -> Chooser {
    let limits = Limits { groups_max: 3, ..Limits::default() };
    let mut chooser = chooser(policy, limits).with_hedge(HedgeConfig::default());
    for n in 0..1_000 {
        chooser.begin(at(10 * n), FIRST);
        let place =
            chooser.choose(at(10 * n), FIRST, &nodes(&[0, 1, 2, 3])).expect("there are candidates");
        chooser.answered(at(10 * n + 2), FIRST, node(place), 2 * MS);
    }
    assert_eq!(chooser.copies_max(), 1);
    chooser
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn in_flight_is_what_the_model_says(
        deeds in proptest::collection::vec(deeds(), 1..120),
        policy in proptest::sample::select(vec!["c3", "c3-paper", "two-choices", "prequal"]),
    ) {
        let mut chooser = taught(policy);
        let mut model = Model { now_ms: 10_000, ..Model::default() };
        for deed in deeds {
            let now = at(model.now_ms);
            match deed {
                Deed::Begin(request) => {
                    chooser.begin(now, RequestId(request));
                    model.begin(request);
                }
                Deed::Choose { request, nodes: set } => {
                    let numbers: Vec<_> = (0..NODES).filter(|n| set >> n & 1 == 1).collect();
                    let place = chooser.choose(now, RequestId(request), &nodes(&numbers));
                    prop_assert!(place.is_some_and(|place| place < numbers.len()));
                    model.send(request, numbers[place.unwrap()]);
                }
                Deed::Copy { request, nodes: set } => {
                    let numbers: Vec<_> = (0..NODES).filter(|n| set >> n & 1 == 1).collect();
                    let place = chooser.copy(now, RequestId(request), &nodes(&numbers));
                    if let Some(place) = place {
                        model.send(request, numbers[place]);
                    }
                }
                Deed::Send { request, node: number } => {
                    chooser.sent(now, RequestId(request), node(number));
                    model.send(request, number);
                }
                Deed::Succeed(target) => {
                    let Some(of) = model.waited_for(target) else { continue };
                    let latency = (model.now_ms - of.at_ms) as u32 * MS;
                    chooser.answered(now, RequestId(of.request), node(of.node), latency);
                    model.succeed(of);
                }
                Deed::Fail { target, tells } => {
                    let Some(of) = model.waited_for(target) else { continue };
                    let failure = tells.then_some(Failure::Unavailable);
                    chooser.failed(now, RequestId(of.request), node(of.node), MS, failure);
                    model.fail(of);
                }
                Deed::Pass(ms) => model.now_ms += ms,
            }
            for number in 0..NODES {
                prop_assert_eq!(chooser.in_flight(node(number)), model.in_flight(number));
            }
        }
    }
}
