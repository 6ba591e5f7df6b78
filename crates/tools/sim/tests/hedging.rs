//! Stories of second copies toward an objective: when they help, when they are of no use, and when
//! they would harm.

use std::path::Path;

use evenkeel_settings::Node;
use evenkeel_sim::{RunReport, Scenario};

const BY_OBJECTIVE: &str = "two-choices+hedge";
const BY_QUANTILE: &str = "two-choices+quantile-hedge";
const ALONE: &str = "two-choices";

fn shipped(sets: &[&str]) -> Scenario {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
    let mut node = Node::load(&scenarios.join("hedge-objective.toml"))
        .unwrap_or_else(|problems| panic!("{problems}"));
    for set in sets {
        node.set(set).unwrap_or_else(|problem| panic!("{problem}"));
    }
    Scenario::read(&node).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Violations and copies of three seeds, as shares of the requests.
fn shares(scenario: &Scenario, policy: &str) -> (f64, f64) {
    let runs = [1, 2, 3].map(|seed| evenkeel_sim::run(scenario, policy, seed));
    let requests: u64 = runs.iter().map(|run| run.requests).sum();
    let all = scenario.workload.requests * runs.len() as u64;
    let late = |run: &RunReport| run.violations.expect("the scenario sets an objective");
    let late: u64 = runs.iter().map(late).sum();
    let copies: u64 = runs.iter().map(|run| run.hedges).sum();
    (late as f64 / requests as f64, copies as f64 / all as f64)
}

/// The chance that a standard normal variable is above z, by Simpson's rule.
fn above(z: f64) -> f64 {
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let steps = 2_000;
    let h = (z + 10.0) / f64::from(steps);
    let weight = |n: i32| if n == 0 || n == steps { 1.0 } else { f64::from(2 + n % 2 * 2) };
    let sum: f64 = (0..=steps).map(|n| weight(n) * density(-10.0 + f64::from(n) * h)).sum();
    1.0 - sum * h / 3.0
}

/// The chance that a lognormal time of mean 4 ms and coefficient of variation 2 lasts longer.
fn lasts_longer(ms: f64) -> f64 {
    let variance = (1.0_f64 + 2.0 * 2.0).ln();
    let location = 4.0_f64.ln() - variance / 2.0;
    if ms <= 0.0 { 1.0 } else { above((ms.ln() - location) / variance.sqrt()) }
}

/// What the model foretells of the best delay, tried in steps of 0.05 ms: violations, copies.
fn predicted(objective_ms: f64, budget: f64, price: f64) -> (f64, f64) {
    let late = lasts_longer(objective_ms);
    let of_delay = |n: u32| {
        let delay_ms = f64::from(n) * 0.05;
        (late * lasts_longer(objective_ms - delay_ms), lasts_longer(delay_ms))
    };
    let cost = |of: &(f64, f64)| of.0 + price * of.1;
    let delays = (1..600).map(of_delay).filter(|&(_, copies)| copies <= budget);
    delays.min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("a delay is within the budget")
}

#[test]
fn where_replicas_stumble_independently_violations_fall_as_foretold() {
    // Hardly any load: how long a request lasts is its own lognormal draw, a copy's another.
    let sets = [
        "faults=[]",
        "cluster.service_cv=2",
        "network.one_way=0ms",
        "workload.utilisation=0.05",
        "workload.requests=60_000",
        "run.hedge.budget=10%",
        "run.hedge.burst_max=100",
    ];
    let scenario = shipped(&sets);
    let ((alone, _), (late, copies)) = (shares(&scenario, ALONE), shares(&scenario, BY_OBJECTIVE));
    let expected = lasts_longer(30.0);
    assert!((alone / expected - 1.0).abs() < 0.1, "{alone} without copies, law {expected}");
    let (least, worthwhile) = predicted(30.0, 0.1, 0.01);
    // One in 64 that come due gets no copy, for comparison.
    let factor = expected / (least + (expected - least) / 64.0);
    assert!(factor > 10.0, "there is something to foretell: {factor}");
    assert!(alone / late > 0.75 * factor, "a factor of {}, foretold {factor}", alone / late);
    assert!((copies / worthwhile - 1.0).abs() < 0.3, "{copies} copies, foretold {worthwhile}");
}

#[test]
fn where_replicas_stall_copies_are_kept_for_when_they_are_worth_most() {
    let scenario = shipped(&["workload.requests=50_000"]);
    let [(alone, _), (by_quantile, many), (by_objective, few)] =
        [ALONE, BY_QUANTILE, BY_OBJECTIVE].map(|policy| shares(&scenario, policy));
    assert!(by_quantile < 0.7 * alone, "{by_quantile} by quantile, {alone} without");
    assert!(by_objective < 0.7 * by_quantile, "{by_objective}, by quantile {by_quantile}");
    assert!(few < 0.7 * many && many <= 0.0505, "{few} copies, by quantile {many}");
}

#[test]
fn where_all_stumble_at_once_copies_stop() {
    let stall = |second: u32| {
        format!("{{at = '{second}s', pause = 'each', for = '60ms', for_max = '100ms'}}")
    };
    let stalls: Vec<String> = (1..40).map(stall).collect();
    let faults = format!("faults=[{}]", stalls.join(", "));
    let scenario = shipped(&[&faults]);
    let [(alone, _), (by_quantile, many), (by_objective, few)] =
        [ALONE, BY_QUANTILE, BY_OBJECTIVE].map(|policy| shares(&scenario, policy));
    assert!(few < many / 3.0, "{few} copies, by quantile {many}");
    assert!(by_objective <= by_quantile, "{by_objective}, by quantile {by_quantile}");
    assert!(by_objective < 1.03 * alone, "{by_objective}, without copies {alone}");
}

#[test]
fn at_high_load_the_gate_closes() {
    let scenario = shipped(&["workload.utilisation=0.88", "workload.requests=80_000"]);
    let [(alone, _), (by_quantile, many), (by_objective, few)] =
        [ALONE, BY_QUANTILE, BY_OBJECTIVE].map(|policy| shares(&scenario, policy));
    assert!(few < 0.003 && many > 5.0 * few, "{few} copies, by quantile {many}");
    assert!(by_objective < 1.1 * alone, "{by_objective}, without copies {alone}");
    assert!(by_quantile > by_objective, "{by_quantile} by quantile, {by_objective}");
}

/// The study's data centre: sixteen servers of one request each, at 0.92 of what they can do.
const KNEE: [&str; 8] = [
    "cluster.servers=16",
    "cluster.concurrency=1",
    "cluster.replication_factor=16",
    "cluster.service_mean='10ms'",
    "workload.utilisation=0.92",
    "workload.objective='80ms'",
    "workload.requests=80_000",
    "faults=[]",
];

/// The joint study's F7: at the knee copies by a quantile only add load, though a bucket bounds
/// them. Without the gate there is `utilisation_max = 1`.
#[test]
fn at_the_knee_copies_by_a_quantile_are_held_back_by_the_gate_and_harm_without_it() {
    let of = |gate: &str| {
        let hedge = format!("run.hedge={{budget = 0.05{gate}}}");
        shares(&shipped(&[&[hedge.as_str()][..], &KNEE].concat()), BY_OBJECTIVE)
    };
    let (alone, _) = shares(&shipped(&KNEE), ALONE);
    let [(gated, few), (ungated, many)] = ["", ", utilisation_max = 1"].map(of);
    assert!(ungated > 1.5 * alone && many > 0.01, "{ungated} of {alone}, {many} copies");
    assert!(gated < 1.15 * alone && few < 0.2 * many, "{gated} of {alone}, {few} copies");
}

#[test]
fn the_two_kinds_of_hedge_can_be_compared_in_one_scenario() {
    let sets = ["workload.requests=20_000"];
    let quantile = shipped(&["run.hedge={budget = 0.05, utilisation_max = 1}", sets[0]]);
    let plain = evenkeel_sim::run(&quantile, BY_OBJECTIVE, 1);
    let named = evenkeel_sim::run(&shipped(&sets), BY_QUANTILE, 1);
    assert_eq!(plain.digest, named.digest, "the objective is not looked at");
    let again = [1, 1].map(|seed| evenkeel_sim::run(&shipped(&sets), BY_OBJECTIVE, seed));
    assert_eq!(again[0], again[1], "the same seed gives the same run");
    assert_ne!(again[0].digest, named.digest);
}
