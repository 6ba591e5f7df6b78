//! Copies of requests that take long: when a driver is told to come for one, what it gets then, and
//! how a copy is told from a retry.

use evenkeel_core::request::Failure;
use evenkeel_core::request::redundancy::{HedgeConfig, ObjectiveConfig};
use evenkeel_core::time::{Duration, Instant};
use evenkeel_scylla::Policy;
use evenkeel_scylla::chooser::{Chooser, Limits, NodeId, RequestId};

const MS: Duration = Duration::from_millis(1);
const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];
const NOWHERE: NodeId = NodeId(9);
const ONE: RequestId = RequestId(1_000_000);

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn hedging(config: HedgeConfig) -> Chooser {
    let policy = "least-outstanding".parse::<Policy>().expect("a policy of the registry");
    Chooser::new(&policy, 1, Limits::default()).with_hedge(config)
}

fn first(chooser: &mut Chooser, now: Instant, request: RequestId) -> NodeId {
    chooser.begin(now, request);
    NODES[chooser.choose(now, request, &NODES).expect("there are candidates")]
}

/// The candidates that a driver's plan has left.
fn untried(chooser: &Chooser, request: RequestId) -> Vec<NodeId> {
    let tried: Vec<_> = chooser.tried(request).collect();
    NODES.into_iter().filter(|node| !tried.contains(node)).collect()
}

fn next(chooser: &mut Chooser, now: Instant, request: RequestId) -> NodeId {
    let left = untried(chooser, request);
    left[chooser.choose(now, request, &left).expect("there are candidates")]
}

fn copy(chooser: &mut Chooser, now: Instant, request: RequestId) -> Option<NodeId> {
    let left = untried(chooser, request);
    Some(left[chooser.copy(now, request, &left)?])
}

/// Answers to a request every 10 ms from then on.
fn serve(chooser: &mut Chooser, from_ms: u64, count: u64, latency: Duration) {
    for n in 0..count {
        let now = at(from_ms + 10 * n);
        let node = first(chooser, now, RequestId(1));
        chooser.answered(now + latency, RequestId(1), node, latency);
    }
}

/// Ten seconds of answers after 2 ms have passed.
fn taught(config: HedgeConfig) -> Chooser {
    let mut chooser = hedging(config);
    serve(&mut chooser, 0, 1_000, 2 * MS);
    chooser
}

fn is_about_2_ms(delay: Option<Duration>) -> bool {
    delay.is_some_and(|delay| (1_900..2_200).contains(&delay.as_micros()))
}

fn in_flight(chooser: &Chooser) -> [u32; 3] {
    NODES.map(|node| chooser.in_flight(node))
}

#[test]
fn a_driver_is_told_to_come_for_copies_when_enough_was_learnt() {
    let mut chooser = hedging(HedgeConfig { copies_max: 2, ..HedgeConfig::default() });
    assert_eq!((chooser.copies_max(), chooser.copy_due()), (0, None));
    serve(&mut chooser, 0, 1_000, 2 * MS);
    assert_eq!(chooser.copies_max(), 2);
    assert!(is_about_2_ms(chooser.copy_due()), "{:?}", chooser.copy_due());
}

#[test]
fn an_objective_says_when_to_come_just_as_well() {
    let objective = Some(ObjectiveConfig::new(20 * MS));
    let mut chooser = hedging(HedgeConfig { objective, ..HedgeConfig::default() });
    for n in 0..2_000 {
        let latency = if n % 50 == 0 { 60 * MS } else { 2 * MS };
        serve(&mut chooser, 100 * n, 1, latency);
    }
    let due = chooser.copy_due().expect("one in fifty is late, and a copy would not be");
    assert!(due >= 2 * MS && due < 20 * MS, "{due:?}");
}

#[test]
fn a_driver_is_not_told_to_come_while_most_requests_are_late() {
    let mut chooser = taught(HedgeConfig::default());
    serve(&mut chooser, 10_000, 60, 200 * MS);
    assert_eq!((chooser.copies_max(), chooser.copy_due()), (0, None));
    serve(&mut chooser, 10_600, 200, 2 * MS);
    assert_eq!(chooser.copies_max(), 1);
}

#[test]
fn a_request_that_takes_long_is_given_a_copy_elsewhere() {
    let mut chooser = taught(HedgeConfig::default());
    let slow = first(&mut chooser, at(10_000), ONE);
    assert!(chooser.asks_for_copy(at(10_003), ONE, None));
    let quick = copy(&mut chooser, at(10_003), ONE).expect("there is a budget");
    assert_ne!(slow, quick);
    assert_eq!((chooser.in_flight(slow), chooser.in_flight(quick)), (1, 1));
    chooser.answered(at(10_004), ONE, quick, MS);
    assert_eq!(in_flight(&chooser), [0; 3]);
    let counts = chooser.counts();
    assert_eq!((counts.copies, counts.won, counts.denied, counts.lost), (1, 1, 0, 1));
}

#[test]
fn copies_and_retries_go_where_the_driver_has_a_connection_then() {
    let mut chooser = taught(HedgeConfig::default());
    for other in NODES.repeat(3) {
        let slow = first(&mut chooser, at(10_000), ONE);
        if slow != other {
            assert_eq!(chooser.copy(at(10_003), ONE, &[other]), Some(0));
        }
        let left = NODES.into_iter().find(|node| chooser.tried(ONE).all(|tried| tried != *node));
        chooser.failed(at(10_004), ONE, slow, 4 * MS, None);
        assert_eq!(chooser.choose(at(10_004), ONE, &[left.unwrap()]), Some(0));
    }
}

#[test]
fn copies_stay_within_their_budget_and_the_request_goes_on_without() {
    let mut chooser = taught(HedgeConfig::default());
    for n in 0..400 {
        first(&mut chooser, at(10_000), RequestId(2 + n));
    }
    for n in 0..400 {
        let request = RequestId(2 + n);
        assert!(chooser.asks_for_copy(at(10_003), request, None));
        copy(&mut chooser, at(10_003), request);
    }
    // One burst: the bucket was full when they came.
    let counts = chooser.counts();
    assert_eq!((counts.copies, counts.denied), (10, 390));
    let without = RequestId(401);
    assert_eq!(chooser.tried(without).count(), 1);
    let node = chooser.tried(without).next().unwrap();
    chooser.failed(at(10_004), without, node, 4 * MS, Some(Failure::Broken));
    assert!(!chooser.asks_for_copy(at(10_004), without, None), "it is for a retry");
    assert_ne!(next(&mut chooser, at(10_004), without), node);
}

#[test]
fn without_a_hedge_every_target_is_the_drivers_affair() {
    let policy = "least-outstanding".parse::<Policy>().unwrap();
    let mut chooser = Chooser::new(&policy, 1, Limits::default());
    serve(&mut chooser, 0, 1_000, 2 * MS);
    assert_eq!((chooser.copies_max(), chooser.hedge()), (0, None));
    first(&mut chooser, at(10_000), ONE);
    assert!(!chooser.asks_for_copy(at(10_003), ONE, None));
    let node = next(&mut chooser, at(10_003), ONE);
    assert_eq!((chooser.in_flight(node), chooser.counts().chosen), (1, 1_002));
}

#[test]
fn a_failure_buys_one_retry_although_a_copy_is_on_its_way() {
    let mut chooser = taught(HedgeConfig { copies_max: 2, ..HedgeConfig::default() });
    let slow = first(&mut chooser, at(10_000), ONE);
    let other = copy(&mut chooser, at(10_003), ONE).expect("there is a budget");
    chooser.failed(at(10_004), ONE, slow, 4 * MS, Some(Failure::Broken));
    assert!(!chooser.asks_for_copy(at(10_004), ONE, None));
    let retry = next(&mut chooser, at(10_004), ONE);
    assert!(retry != slow && retry != other);
    assert!(chooser.asks_for_copy(at(10_006), ONE, None), "nothing failed since");
    assert_eq!(copy(&mut chooser, at(10_006), ONE), None, "and no node is left");
    chooser.failed(at(10_007), ONE, other, 4 * MS, None);
    chooser.failed(at(10_007), ONE, retry, 3 * MS, None);
    assert!(!chooser.asks_for_copy(at(10_009), ONE, None), "nothing is on its way");
}

#[test]
fn a_failure_at_a_node_that_was_not_chosen_here_buys_a_retry_too() {
    let mut chooser = taught(HedgeConfig::default());
    first(&mut chooser, at(10_000), ONE);
    chooser.failed(at(10_004), ONE, NOWHERE, 9 * MS, Some(Failure::Broken));
    assert!(!chooser.asks_for_copy(at(10_004), ONE, None));
    assert!(chooser.tried(ONE).any(|node| node == NOWHERE));
}

#[test]
fn a_retry_of_a_later_page_knows_where_that_failed_and_the_next_request_does_not() {
    let mut chooser = taught(HedgeConfig::default());
    let (now, soon) = (at(10_000), at(10_000) + MS / 10);
    chooser.failed(now, ONE, NODES[0], 4 * MS, Some(Failure::Broken));
    chooser.begin(soon, ONE);
    assert_eq!(chooser.tried(ONE).collect::<Vec<_>>(), [NODES[0]]);
    assert_ne!(next(&mut chooser, soon, ONE), NODES[0]);
    assert!(chooser.asks_for_copy(soon, ONE, None), "nothing failed since");
    chooser.begin(soon, ONE);
    assert_eq!((chooser.tried(ONE).count(), in_flight(&chooser)), (0, [0; 3]));
    chooser.failed(now, ONE, NODES[0], 4 * MS, Some(Failure::Broken));
    chooser.begin(now + MS, ONE);
    assert_eq!(chooser.tried(ONE).count(), 0);
    let chosen = first(&mut chooser, now, ONE);
    chooser.failed(soon, ONE, chosen, MS / 10, None);
    chooser.begin(soon, ONE);
    assert_eq!(chooser.tried(ONE).count(), 0, "its retries do not begin anew");
}

#[test]
fn a_target_without_a_connection_was_not_sent_however_late_that_is_found() {
    let mut chooser = taught(HedgeConfig::default());
    let node = first(&mut chooser, at(10_000), ONE);
    assert!(!chooser.asks_for_copy(at(10_003), ONE, Some(NOWHERE)), "that was taken later");
    assert_eq!(chooser.in_flight(node), 1);
    assert!(!chooser.asks_for_copy(at(10_003), ONE, Some(node)));
    assert_eq!(in_flight(&chooser), [0; 3]);
    assert!(!chooser.asks_for_copy(at(10_004), ONE, None), "of nothing there is no copy");
}

#[test]
fn a_request_that_was_never_heard_of_again_has_no_copies() {
    let mut chooser = taught(HedgeConfig::default());
    first(&mut chooser, at(10_000), ONE);
    chooser.begin(at(70_001), RequestId(2));
    assert_eq!(chooser.counts().untold, 1);
    chooser.sent(at(70_001), ONE, NODES[0]);
    assert_eq!(copy(&mut chooser, at(70_004), ONE), None);
}

#[test]
fn a_retry_avoids_a_node_that_stands_still() {
    let mut chooser = taught(HedgeConfig::default());
    let [stopped, quick, failing] = NODES;
    chooser.begin(at(10_000), ONE);
    assert_eq!(chooser.choose(at(10_000), ONE, &[stopped]), Some(0));
    assert_eq!(chooser.copy(at(10_003), ONE, &[quick]), Some(0));
    chooser.answered(at(10_004), ONE, quick, MS);
    chooser.begin(at(10_004), ONE);
    assert_eq!(chooser.choose(at(10_004), ONE, &[failing]), Some(0));
    chooser.failed(at(10_004), ONE, failing, Duration::ZERO, Some(Failure::Broken));
    assert_eq!(chooser.choose(at(10_004), ONE, &[stopped, quick]), Some(1));
}

#[test]
fn what_the_driver_chose_itself_has_no_copies() {
    let mut chooser = taught(HedgeConfig::default());
    chooser.begin(at(10_000), ONE);
    chooser.sent(at(10_000), ONE, NODES[0]);
    assert!(chooser.asks_for_copy(at(10_003), ONE, None));
    assert_eq!(copy(&mut chooser, at(10_003), ONE), None);
}

/// How many of twenty requests, one after the other, go to this node.
fn visits(chooser: &mut Chooser, now: Instant, node: NodeId) -> usize {
    let mut visits = 0;
    for n in 0..20 {
        let request = RequestId(10 + n);
        let chosen = first(chooser, now, request);
        visits += usize::from(chosen == node);
        chooser.failed(now, request, chosen, Duration::ZERO, None);
    }
    visits
}

#[test]
fn a_copy_that_lost_counts_on_where_it_was_sent_to() {
    let mut chooser = taught(HedgeConfig::default());
    let stopped = first(&mut chooser, at(10_000), ONE);
    let quick = copy(&mut chooser, at(10_003), ONE).expect("there is a budget");
    chooser.answered(at(10_004), ONE, quick, MS);
    assert_eq!(visits(&mut chooser, at(10_004), stopped), 0, "it stands still");
    chooser.begin(at(10_010), ONE);
    chooser.sent(at(10_010), ONE, stopped);
    chooser.answered(at(10_012), ONE, stopped, 2 * MS);
    assert!(visits(&mut chooser, at(10_012), stopped) > 0, "it answers again");
}

#[test]
fn a_caller_that_left_says_nothing_of_the_node() {
    let mut chooser = taught(HedgeConfig::default());
    let node = first(&mut chooser, at(10_000), ONE);
    chooser.begin(at(10_004), ONE);
    assert_eq!((chooser.counts().abandoned, chooser.counts().lost), (1, 0));
    assert!(visits(&mut chooser, at(10_004), node) > 0);
}

#[test]
fn what_nobody_tells_the_end_of_teaches_no_delay() {
    let mut chooser = taught(HedgeConfig::default());
    for n in 0..300 {
        first(&mut chooser, at(10_000 + n), RequestId(2));
        // The caller left at some time in these five seconds.
        chooser.begin(at(15_000 + n), RequestId(2));
    }
    assert_eq!(chooser.counts().abandoned, 300);
    serve(&mut chooser, 15_300, 110, 2 * MS);
    assert!(is_about_2_ms(chooser.copy_due()), "{:?}", chooser.copy_due());
}
