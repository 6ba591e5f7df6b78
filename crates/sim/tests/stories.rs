//! Stories: a world, a timed plan of what befalls it, and what a person would then expect to see.
//!
//! Every story is run twice and must be the same to the last digit. That every job comes home and
//! nothing stays in flight is asserted by the world itself at the end of each run.

use std::path::{Path, PathBuf};

use evenkeel_settings::Node;
use evenkeel_sim::sampler::WindowReport;
use evenkeel_sim::{RunReport, Scenario};

/// Five replicas of four slots at half load: 2 500 requests a second for six seconds.
const CALM: &str = "
[run]
warmup = 0
window = '250ms'
load_every = '10ms'
[cluster]
servers = 5
service_mean = '4ms'
[workload]
clients = 4
utilisation = 0.5
requests = 15_000
";

/// Runs one policy in a world that is described by `sets` on top of `text`.
fn run(text: &str, sets: &[&str], policy: &str, seed: u64) -> RunReport {
    let story = Node::parse(text, "story.toml");
    let mut node = story.unwrap_or_else(|problems| panic!("{problems}"));
    for set in sets {
        node.set(set).unwrap_or_else(|problem| panic!("{problem}"));
    }
    let scenario = Scenario::read(&node).unwrap_or_else(|problems| panic!("{problems}"));
    twice(&scenario, policy, seed)
}

fn twice(scenario: &Scenario, policy: &str, seed: u64) -> RunReport {
    let first = evenkeel_sim::run(scenario, policy, seed);
    let second = evenkeel_sim::run(scenario, policy, seed);
    assert_eq!(first.digest, second.digest, "{policy} took another course the second time");
    assert_eq!(first, second, "{policy} told another story the second time");
    first
}

/// The windows that lie within a time, in seconds.
fn between(run: &RunReport, from_s: f64, to_s: f64) -> impl Iterator<Item = &WindowReport> {
    run.windows.iter().filter(move |w| from_s + 0.2 < w.until_s && w.until_s <= to_s)
}

fn worst_p99_ms(run: &RunReport, from_s: f64, to_s: f64) -> f64 {
    between(run, from_s, to_s).map(|window| window.p99_ms).fold(0.0, f64::max)
}

fn loads(run: &RunReport) -> &[f64] {
    &run.load.as_ref().expect("the world samples loads").means
}

/// Mean time in an M/M/c system by Erlang's formula C, milliseconds.
fn erlang_mean_ms(slots: u32, service_ms: f64, utilisation: f64) -> f64 {
    let offered = utilisation * f64::from(slots);
    let term = |n: u32| (1..=n).fold(1.0, |product, k| product * offered / f64::from(k));
    let all_busy = term(slots) / (1.0 - utilisation);
    let waits = all_busy / ((0..slots).map(term).sum::<f64>() + all_busy);
    service_ms + waits * service_ms / (f64::from(slots) * (1.0 - utilisation))
}

#[test]
fn when_nothing_happens_latency_is_what_queueing_theory_says() {
    for utilisation in [0.3, 0.8] {
        let load = format!("workload.utilisation={utilisation}");
        let sets = [
            &load,
            "cluster.servers=1",
            "cluster.replication_factor=1",
            "network.one_way=0ms",
            "workload.requests=60_000",
            "run.warmup=0.05",
        ];
        let means = [1, 2, 3].map(|seed| run(CALM, &sets, "random", seed).mean_ms);
        let mean_ms = means.iter().sum::<f64>() / 3.0;
        let theory_ms = erlang_mean_ms(4, 4.0, utilisation);
        assert!((mean_ms / theory_ms - 1.0).abs() < 0.03, "{mean_ms} ms, theory {theory_ms} ms");
    }
}

#[test]
fn a_pause_is_felt_while_it_lasts_and_those_who_look_avoid_it() {
    let sets = ["faults=[{at = '2s', pause = 0, for = '400ms'}]"];
    let blind = run(CALM, &sets, "round-robin", 1);
    let before_ms = worst_p99_ms(&blind, 0.5, 2.0);
    assert!(before_ms < 60.0, "before the pause: {before_ms} ms");
    let during_ms = worst_p99_ms(&blind, 2.0, 2.75);
    assert!(
        during_ms > 300.0,
        "those caught by a pause of 400 ms wait for most of it: {during_ms}"
    );
    let after_ms = worst_p99_ms(&blind, 3.5, 5.5);
    assert!(after_ms < 60.0, "and then all is well again: {after_ms} ms");
    let late = |run: &RunReport| run.mean_ms;
    for policy in ["least-outstanding", "c3", "oracle"] {
        let run = run(CALM, &sets, policy, 1);
        assert!(late(&run) < late(&blind), "{policy} sends less to a replica that stands still");
    }
}

#[test]
fn a_crash_costs_retries_but_no_answers_and_a_restored_replica_works_again() {
    let crash = "{at = '1s', crash = 2}";
    let gone = format!("faults=[{crash}]");
    let back = format!("faults=[{crash}, {{at = '2s', restore = 2}}]");
    for policy in ["c3", "least-outstanding", "round-robin"] {
        let gone = run(CALM, &[&gone], policy, 1);
        assert_eq!((gone.failed, gone.served), (0, 15_000), "{policy}: every request is answered");
        assert!(gone.retries > 0, "{policy}: what was on the replica is sent elsewhere");
        let back = run(CALM, &[&back], policy, 1);
        assert_eq!((back.failed, back.served), (0, 15_000), "{policy}: so it is with a return");
        // Gone: loaded for one second of six; back: for about five.
        let (gone, back) = (loads(&gone)[2], loads(&back)[2]);
        assert!(back > 2.0 * gone, "{policy}: mean load {back} after its return, {gone} without");
    }
}

#[test]
fn without_retries_a_crash_fails_what_it_must_and_no_more() {
    let sets = ["run.retries_max=0", "faults=[{at = '1s', crash = 2}]"];
    let run = run(CALM, &sets, "least-outstanding", 1);
    assert_eq!(run.served + run.failed, 15_000, "every request ends one way or the other");
    // Those on the replica when it died (about 2 in each of 4 slots' worth), and the few that
    // found it dead before it was set aside.
    assert!((1..=150).contains(&run.failed), "{} failed", run.failed);
}

#[test]
fn a_slow_replica_is_spared_by_those_who_look_until_it_recovers() {
    let sets = ["faults=[{at = '2s', slow = 0, factor = 8}, {at = '4s', slow = 0, factor = 1}]"];
    let blind = run(CALM, &sets, "round-robin", 1);
    let slowed_ms = worst_p99_ms(&blind, 2.0, 4.0);
    // A fifth of the requests meets a service time of 32 ms and an ever growing queue before it.
    assert!(slowed_ms > 500.0, "round-robin keeps feeding it: {slowed_ms} ms");
    for policy in ["least-outstanding", "c3", "peak-ewma", "oracle"] {
        let run = run(CALM, &sets, policy, 1);
        let spared_ms = worst_p99_ms(&run, 2.0, 4.0);
        assert!(spared_ms < slowed_ms / 2.0, "{policy}: {spared_ms} ms of {slowed_ms} ms");
        let after_ms = worst_p99_ms(&run, 4.75, 6.0);
        assert!(after_ms < 60.0, "{policy}: after its recovery {after_ms} ms");
    }
}

#[test]
fn a_replica_that_fails_fast_attracts_requests_only_where_nobody_minds() {
    let fails = "faults=[{at = '1s', fail = 1, share = 1.0}]";
    let bare = ["run.safeguards=false", "run.retries_max=0", fails];
    let attracted = run(CALM, &bare, "least-outstanding", 1);
    // Five of six seconds remain, and a fair share of them is a fifth: 2 500 requests.
    assert!(attracted.failed > 3_000, "it looks idle, so it draws {} requests", attracted.failed);
    let spared = run(CALM, &["run.retries_max=0", fails], "least-outstanding", 1);
    assert!(spared.failed < 400, "safeguards set it aside: {} failed", spared.failed);
    let saved = run(CALM, &[fails], "least-outstanding", 1);
    assert!(saved.failed == 0 && saved.retries > 0, "a retry answers those: {}", saved.failed);
}

#[test]
fn a_caller_that_gives_up_counts_as_a_timeout_and_leaves_nothing_behind() {
    let sets = ["workload.timeout=100ms", "faults=[{at = '2s', pause = 'each', for = '300ms'}]"];
    let run = run(CALM, &sets, "round-robin", 1);
    assert_eq!(run.served + run.failed + run.timeouts, 15_000);
    // All stand still from 2.0 s to 2.3 s: who comes in the first 200 ms (500 requests) gives up,
    // and so does who waits behind them afterwards.
    assert!(run.timeouts >= 400, "{} timeouts", run.timeouts);
    assert!(run.max_ms <= 100.0 + 1e-6, "nobody is answered after giving up: {}", run.max_ms);
}

#[test]
fn a_caller_may_give_up_on_one_copy_after_another_has_failed() {
    let sets = [
        "run.safeguards=false",
        "workload.timeout=100ms",
        "faults=[{at = '1s', pause = 0, for = '400ms'}, {at = '1s', fail = 1, share = 1.0}]",
    ];
    let run = run(CALM, &sets, "round-robin+hedge", 1);
    assert_eq!(run.served + run.failed + run.timeouts, 15_000);
    assert!(run.hedges > 0 && run.timeouts > 0, "{run:?}");
}

#[test]
fn every_policy_meets_the_same_failures_and_every_seed_others() {
    let sets = [
        "run.safeguards=false",
        "run.retries_max=0",
        "faults=[{at = '0s', fail = 'each', share = 0.3}]",
    ];
    let failed = |policy, seed| run(CALM, &sets, policy, seed).failed;
    let blind = failed("round-robin", 1);
    // Binomial: 4 500, standard deviation 56; five of them.
    assert!((4_220..=4_780).contains(&blind), "{blind} failed");
    for policy in ["least-outstanding", "c3", "random"] {
        assert_eq!(failed(policy, 1), blind, "{policy}");
    }
    assert_ne!(failed("round-robin", 2), blind, "another seed, other luck");
}

#[test]
fn faults_that_repeat_strike_again_and_again() {
    let sets =
        ["faults=[{at = '0s', every = '500ms', pause = 'random', for = '5ms', for_max = '20ms'}]"];
    let calm = run(CALM, &[], "round-robin", 1);
    let struck = run(CALM, &sets, "round-robin", 1);
    assert!(struck.p99_ms > calm.p99_ms && struck.failed == 0, "pauses delay, they do not fail");
    assert_ne!(struck.digest, calm.digest);
}

/// Watching a run changes neither its course for the requests nor what it reports about them.
#[test]
fn a_run_that_is_watched_is_the_same_run() {
    let watched = run(CALM, &[], "c3", 3);
    let alone = run(CALM, &["run.window=0s", "run.load_every=0s"], "c3", 3);
    assert!(!watched.windows.is_empty() && alone.windows.is_empty() && alone.load.is_none());
    let quantiles = |run: &RunReport| (run.p50_ms, run.p99_ms, run.max_ms, run.mean_ms);
    assert_eq!(quantiles(&watched), quantiles(&alone));
    let served: u64 = watched.windows.iter().map(|window| window.served).sum();
    assert!((14_000..=15_000).contains(&served), "all but the last window: {served}");
    // Little's law: what is inside is what comes per second times how long it stays; the network
    // holds a request for half a millisecond more than the replicas do.
    let inside: f64 = loads(&watched).iter().sum();
    let expected = 2.5 * (watched.mean_ms - 0.5);
    assert!((inside / expected - 1.0).abs() < 0.05, "{inside} inside, Little: {expected}");
}

/// The files of a folder of the workspace that describe scenarios.
fn scenarios(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "toml"))
        .filter(|file| !file.ends_with("claims.toml"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no scenario", folder.display());
    files
}

#[test]
fn every_shipped_scenario_runs_the_same_twice() {
    for file in scenarios("scenarios").into_iter().chain(scenarios("papers/c3")) {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let mut node = Node::load(&file).unwrap_or_else(|problems| panic!("{problems}"));
        if name == "c3-dynamic" {
            node.set("workload.phases.0.at=20ms").unwrap(); // within the few requests of a test
        }
        let mut scenario = Scenario::read(&node).unwrap_or_else(|problems| panic!("{problems}"));
        scenario.workload.requests = 1_500;
        for policy in &scenario.run.policies {
            let run = twice(&scenario, policy, 7);
            assert!(run.events > 1_500 && run.requests > 0, "{name} with {policy}: {run:?}");
        }
    }
}

/// The order of the paper's figure at T = 500 ms on a fifth of its cluster, three paired seeds.
#[test]
fn the_order_of_the_paper_holds_when_speeds_change_slowly() {
    let policies = ["oracle", "c3", "least-outstanding", "round-robin"];
    let sets = [
        "cluster.servers=10",
        "workload.clients=30",
        "workload.utilisation=0.7",
        "workload.requests=25_000",
        "workload.read_repair=0.1",
        "fluctuation={interval = '500ms', range = 3}",
        "run={safeguards = false, warmup = 0.1}",
    ];
    let mut node = Node::parse(CALM, "story.toml").unwrap();
    sets.iter().for_each(|set| node.set(set).unwrap());
    let scenario = Scenario::read(&node).unwrap_or_else(|problems| panic!("{problems}"));
    let p99_ms = policies.map(|policy| {
        let seeds = 1..=3;
        let product = seeds.map(|seed| evenkeel_sim::run(&scenario, policy, seed).p99_ms.ln());
        (product.sum::<f64>() / 3.0).exp()
    });
    for (pair, names) in p99_ms.windows(2).zip(policies.windows(2)) {
        assert!(pair[0] * 1.05 < pair[1], "{names:?} have p99 {pair:?} ms");
    }
}
