//! Stories of what copies and probes cost, in a world so idle that everything follows by hand.

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

fn run(sets: &[&str], policy: &str) -> RunReport {
    let mut node = Node::parse(IDLE, "idle.toml").unwrap_or_else(|error| panic!("{error}"));
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
