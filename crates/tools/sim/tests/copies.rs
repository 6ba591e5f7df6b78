//! Stories of what copies and probes cost: in a world so idle that everything follows by hand, and
//! in one where requests wait.

use evenkeel_settings::Node;
use evenkeel_sim::{RunReport, Scenario};

/// Nobody waits: a hundred replicas in one group, at a hundredth of what they can serve.
const IDLE: &str = "
[run]
safeguards = false
hedge = { budget = '5%' }
[cluster]
servers = 100
replication_factor = 100
same_work = true
[network]
one_way = '0s'
[workload]
clients = 1
utilisation = 0.01
requests = 20_000
";

/// Speeds change every 100 ms, in groups of three, and some wait for long.
const BUSY: &str = "
[run]
safeguards = false
[cluster]
servers = 20
same_work = true
[fluctuation]
interval = '100ms'
[workload]
clients = 60
requests = 40_000
";

fn run(sets: &[&str], policy: &str) -> RunReport {
    run_in(IDLE, sets, policy)
}

fn run_in(world: &str, sets: &[&str], policy: &str) -> RunReport {
    let mut node = Node::parse(world, "world.toml").unwrap_or_else(|error| panic!("{error}"));
    for set in sets {
        node.set(set).unwrap_or_else(|problem| panic!("{problem}"));
    }
    let scenario = Scenario::read(&node).unwrap_or_else(|problems| panic!("{problems}"));
    evenkeel_sim::run(&scenario, policy, 1)
}

fn latencies(run: &RunReport) -> [f64; 4] {
    [run.p50_ms, run.p99_ms, run.p999_ms, run.max_ms]
}

#[test]
fn a_copy_of_the_same_work_is_never_first_where_nobody_waits() {
    let (alone, hedged) = (run(&[], "random"), run(&[], "random+hedge"));
    assert!(hedged.hedges > 250, "{}", hedged.hedges);
    assert_eq!(latencies(&alone), latencies(&hedged));
    let own = run(&["cluster.same_work=false"], "random+hedge");
    assert!(own.p999_ms < 0.8 * alone.p999_ms, "{} of {}", own.p999_ms, alone.p999_ms);
}

#[test]
fn extra_work_is_what_the_slots_did_for_nobody() {
    let none = run(&[], "random");
    assert_eq!(none.extra_work_ratio, Some(0.0));
    // Exponential work of mean 1 has no memory: what is left of it when its copy starts has mean 1
    // again, and that long both work; then the copy is taken off.
    let taken_off = run(&["workload.cancel=true"], "random+hedge");
    let share = taken_off.hedges as f64 / taken_off.arrived as f64;
    let extra = taken_off.extra_work_ratio.expect("slots tell it");
    let deviation = 1.0 / (taken_off.hedges as f64).sqrt();
    assert!((extra / share - 1.0).abs() < 4.0 * deviation, "{extra} for {share} of the requests");
    // Not taken off, it does all of the work again: what was done before it started, too.
    let finished = run(&[], "random+hedge");
    let extra = finished.extra_work_ratio.expect("slots tell it");
    let share = finished.hedges as f64 / finished.arrived as f64;
    // Of a share s of the longest the mean is 1 - ln s.
    assert!((extra / share / (1.0 - share.ln()) - 1.0).abs() < 0.1, "{extra} for {share}");
}

#[test]
fn probes_are_counted() {
    assert_eq!(run(&[], "random").probes, 0);
    let probed = run(&[], "prequal:probes=2");
    let each = probed.probes as f64 / probed.arrived as f64;
    assert!((1.9..=2.0).contains(&each), "{each}");
    assert_eq!(probed.arrived, 20_000);
}

#[test]
fn what_has_started_is_finished_whoever_gave_it_up() {
    // Nobody waits, so there is nothing that could be taken back.
    let (kept, told) = (run(&[], "random+hedge"), run(&["cluster.withdraws=true"], "random+hedge"));
    assert_eq!(kept.extra_work_ratio, told.extra_work_ratio);
    assert_eq!(latencies(&kept), latencies(&told));
}

#[test]
fn hedges_harm_less_where_what_waits_is_taken_back() {
    let [kept, taken_back, at_once] =
        [&[][..], &["cluster.withdraws=true"], &["workload.cancel=true"]]
            .map(|sets| run_in(BUSY, sets, "c3+hedge"));
    let extra = |run: &RunReport| run.extra_work_ratio.expect("slots tell it");
    let all = format!("{kept:?} {taken_back:?} {at_once:?}");
    assert!(extra(&taken_back) < 0.8 * extra(&kept), "{all}");
    assert!(extra(&at_once) < 0.8 * extra(&taken_back), "what has started is work: {all}");
    assert!(taken_back.p99_ms < 0.9 * kept.p99_ms, "{all}");
}

#[test]
fn over_a_long_way_requests_that_must_wait_move() {
    let far = "network.one_way=5ms";
    let (notices, withdraws) = ("cluster.notices=true", "cluster.withdraws=true");
    let [plain, deaf, copied, moved] =
        [&[far][..], &[far, withdraws], &[far, notices], &[far, notices, withdraws]]
            .map(|sets| run_in(BUSY, sets, "adaptive"));
    let extra = |run: &RunReport| run.extra_work_ratio.expect("slots tell it");
    assert_eq!((plain.moves, deaf.moves), (0, 0));
    assert!(moved.moves > 400, "{}", moved.moves);
    assert!(moved.p99_ms < 0.9 * deaf.p99_ms, "{} of {}", moved.p99_ms, deaf.p99_ms);
    assert!(extra(&moved) < 0.02, "{}", extra(&moved));
    assert!(extra(&copied) > 2.0 * extra(&moved), "nobody takes it back: {}", extra(&copied));
}
