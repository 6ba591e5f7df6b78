//! Stories of requests that ask several partitions, of tiers behind them, and of racks that are
//! struck as one.

use std::collections::BTreeMap;
use std::path::Path;

use evenkeel_core::Instant;
use evenkeel_settings::Node;
use evenkeel_sim::weather::{Effect, Strike, Weather};
use evenkeel_sim::{RunReport, Scenario};

/// Exponential parts of mean 4 ms that never wait for each other: a thousand slots each.
const NO_QUEUES: &str = "
run = { warmup = 0 }
cluster = { concurrency = 1_000, service_mean = '4ms', replication_factor = 1 }
network = { one_way = '0ms' }
workload = { clients = 2, rate = 50.0, requests = 20_000 }
";

fn scenario(text: &str, sets: &[&str]) -> Scenario {
    read(Node::parse(text, "parts.toml").unwrap_or_else(|problems| panic!("{problems}")), sets)
}

fn shipped(sets: &[&str]) -> Scenario {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios/fan-out.toml");
    read(Node::load(&file).unwrap_or_else(|problems| panic!("{problems}")), sets)
}

fn read(mut node: Node, sets: &[&str]) -> Scenario {
    for set in sets {
        node.set(set).unwrap_or_else(|problem| panic!("{problem}"));
    }
    Scenario::read(&node).unwrap_or_else(|problems| panic!("{problems}"))
}

fn twice(scenario: &Scenario, policy: &str) -> RunReport {
    let first = evenkeel_sim::run(scenario, policy, 1);
    assert_eq!(first, evenkeel_sim::run(scenario, policy, 1), "{policy} told another story");
    first
}

fn near(came: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((came / expected - 1.0).abs() < tolerance, "{what}: {came}, expected {expected}");
}

/// The quantile of the slowest of `parts` exponential times: all are below t with the chance
/// (1 − exp(−t / mean)) ^ parts.
fn slowest_ms(parts: f64, quantile: f64) -> f64 {
    -4.0 * (1.0 - quantile.powf(1.0 / parts)).ln()
}

/// The sum of two exponential times: 1 − exp(−t / mean) (1 + t / mean), by bisection.
fn sum_of_two_ms(quantile: f64) -> f64 {
    let (mut low, mut high) = (0.0, 400.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        let chance = 1.0 - (-middle / 4.0_f64).exp() * (1.0 + middle / 4.0);
        if chance < quantile { low = middle } else { high = middle }
    }
    low
}

#[test]
fn without_queues_a_request_is_the_slowest_of_its_parts_by_formula() {
    for parts in [1_u32, 5, 20] {
        let tiers = format!("tiers=[{{ parts = {parts}, servers = 20 }}]");
        let run = evenkeel_sim::run(&scenario(NO_QUEUES, &[&tiers]), "random", 1);
        assert_eq!((run.requests, run.served), (20_000, 20_000));
        assert_eq!(run.attempts, 20_000 * u64::from(parts));
        assert_eq!(run.tiers[0].served, run.attempts);
        let parts = f64::from(parts);
        for (quantile, came) in [(0.5, run.p50_ms), (0.99, run.p99_ms), (0.999, run.p999_ms)] {
            // Of 20 000 the 99.9th percentile has a standard error of 3 %, the 99th of 1 to 2.
            let tolerance = if quantile > 0.995 { 0.1 } else { 0.05 };
            let what = format!("{parts} parts, quantile {quantile}");
            near(came, slowest_ms(parts, quantile), tolerance, &what);
        }
        near(run.tiers[0].p99_ms, slowest_ms(1.0, 0.99), 0.06, "one part by itself");
    }
}

#[test]
fn a_tier_behind_a_part_adds_its_own_time_to_it() {
    let tiers = "tiers=[{ parts = 1, servers = 4 }, { parts = 1, servers = 4 }]";
    let run = twice(&scenario(NO_QUEUES, &[tiers]), "random");
    assert_eq!(run.attempts, 40_000, "each part of the first tier calls on once");
    near(run.mean_ms, 8.0, 0.02, "mean");
    near(run.p50_ms, sum_of_two_ms(0.5), 0.03, "p50");
    near(run.p99_ms, sum_of_two_ms(0.99), 0.05, "p99");
    near(run.tiers[1].p99_ms, slowest_ms(1.0, 0.99), 0.06, "the second tier by itself");
}

#[test]
fn parts_that_cannot_be_answered_fail_the_request_and_dead_servers_only_cost_retries() {
    let tiers = "tiers=[{ parts = 2, servers = 4 }, { parts = 2, servers = 4 }]";
    let few = "workload.requests=2_000";
    // Every server of the second tier fails at once.
    let fails = (4..8).map(|server| format!("{{ at = '0s', fail = {server} }}"));
    let faults = format!("faults=[{}]", fails.collect::<Vec<_>>().join(", "));
    let run = twice(&scenario(NO_QUEUES, &[tiers, few, &faults]), "least-outstanding");
    assert_eq!((run.served, run.failed), (0, 2_000));
    // One server of each tier dies; the others of its groups answer, also what it had called for.
    let faults = "faults=[{ at = '10s', crash = 0 }, { at = '15s', crash = 5 }]";
    let sets = [tiers, few, faults, "cluster.replication_factor=3", "run.retries_max=2"];
    for cancel in ["workload.cancel=true", "workload.cancel=false"] {
        let sets = [&sets[..], &[cancel]].concat();
        let run = twice(&scenario(NO_QUEUES, &sets), "c3+hedge");
        assert_eq!((run.served, run.failed), (2_000, 0), "{cancel}");
        assert!(run.retries > 0 && run.hedges > 0, "{run:?}");
    }
    // Users who give up in 1 ms get nothing of what takes 4 ms at two tiers on average.
    let sets = [tiers, few, "workload.timeout='1ms'", "workload.cancel=true"];
    let run = twice(&scenario(NO_QUEUES, &sets), "c3");
    assert_eq!(run.served + run.timeouts, 2_000);
    assert!(run.timeouts > 1_900, "{}", run.timeouts);
}

/// Strikes by their moment: the servers they hit, and the effects they had.
fn storms(scenario: &Scenario) -> BTreeMap<Instant, Vec<Strike>> {
    let mut storms: BTreeMap<_, Vec<Strike>> = BTreeMap::new();
    for strike in Weather::new(scenario, 1).take(4_000) {
        storms.entry(strike.at).or_default().push(strike);
    }
    storms.pop_last(); // perhaps cut
    storms
}

#[test]
fn a_rack_is_struck_as_one() {
    let racks = "cluster={ servers = 10, racks = 4 }";
    for target in ["'random rack'", "'each rack'", "'rack 1'"] {
        let faults = format!(
            "faults=[{{ at = '1s', every = '1s', pause = {target}, for = '1ms', for_max = '9s' }}]"
        );
        let storms = storms(&scenario("", &[racks, &faults]));
        let mut seen = std::collections::BTreeSet::new();
        for storm in storms.values() {
            let rack = storm[0].server % 4;
            seen.insert(rack);
            let servers: Vec<_> = storm.iter().map(|strike| strike.server).collect();
            let expected: Vec<_> = (0..10).filter(|server| server % 4 == rack).collect();
            assert_eq!(servers, expected, "{target}");
            assert!(storm.iter().all(|it| it.effect == storm[0].effect), "one length for all");
        }
        assert_eq!(seen.len(), if target == "'rack 1'" { 1 } else { 4 }, "{target}");
    }
    let speeds = "fluctuation={ interval = '1s', range = 3, by_rack = true }";
    for storm in storms(&scenario("", &[racks, speeds])).values() {
        let by_rack = |rack| storm.iter().filter(move |it| it.server % 4 == rack);
        for rack in 0..4 {
            let first = by_rack(rack).next().expect("every rack draws").effect;
            assert!(
                matches!(first, Effect::Speed(_)) && by_rack(rack).all(|it| it.effect == first)
            );
        }
        assert_eq!(storm.len(), 10);
    }
}

#[test]
fn racks_that_are_not_there_are_refused() {
    for (sets, said) in [
        (&["faults=[{ at = '0s', pause = 'random rack', for = '1s' }]"][..], "cluster.racks = 0"),
        (&["cluster.racks=2", "faults=[{ at = '0s', crash = 'rack 2' }]"], "cluster.racks = 2"),
        (&["faults=[{ at = '0s', crash = 'shelf 2' }]"], "rack NUMBER, random rack or each rack"),
        (&["fluctuation={ interval = '1s', by_rack = true }"], "by_rack without racks"),
        (&["cluster.racks=6"], "6 racks for 5 servers"),
    ] {
        let mut node = Node::parse("", "x.toml").unwrap();
        sets.iter().for_each(|set| node.set(set).unwrap());
        let problems = Scenario::read(&node).expect_err(said).to_string();
        assert!(problems.contains(said), "{said}:\n{problems}");
    }
}

/// The whole's tail lies far beyond a part's, and what shortens the parts' tail shortens it.
#[test]
fn in_the_shipped_scenario_hedges_shorten_the_tail_of_the_whole() {
    let shipped = shipped(&["workload.requests=2_000"]);
    let [alone, hedged] = ["c3", "c3+hedge"].map(|policy| twice(&shipped, policy));
    assert!(alone.p50_ms > 2.0 * alone.tiers[0].p50_ms, "{alone:?}");
    assert!(hedged.p99_ms < alone.p99_ms, "{} and {}", hedged.p99_ms, alone.p99_ms);
}
