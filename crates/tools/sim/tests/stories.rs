//! Stories: a world, a timed plan of what befalls it, and what a person would then expect to see.
//!
//! Every story is run twice and must be the same to the last digit. That every job comes home and
//! nothing stays in flight is asserted by the world itself at the end of each run.

use std::path::{Path, PathBuf};

use evenkeel_settings::{Node, Problems};
use evenkeel_sim::duplicates::DuplicatesScenario;
use evenkeel_sim::placement::input::DayScenario;

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
    twice(&scenario(Node::parse(text, "story.toml"), sets), policy, seed)
}

fn scenario(node: Result<Node, Problems>, sets: &[&str]) -> Scenario {
    let mut node = node.unwrap_or_else(|problems| panic!("{problems}"));
    for set in sets {
        node.set(set).unwrap_or_else(|problem| panic!("{problem}"));
    }
    Scenario::read(&node).unwrap_or_else(|problems| panic!("{problems}"))
}

fn shipped(name: &str) -> Result<Node, Problems> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
    Node::load(&folder.join(name))
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
    let blind = run(CALM, &["run.safeguards=false", sets[0]], "round-robin", 1);
    let before_ms = worst_p99_ms(&blind, 0.5, 2.0);
    assert!(before_ms < 60.0, "before the pause: {before_ms} ms");
    let during_ms = worst_p99_ms(&blind, 2.0, 2.75);
    assert!(
        during_ms > 300.0,
        "those caught by a pause of 400 ms wait for most of it: {during_ms}"
    );
    let after_ms = worst_p99_ms(&blind, 3.5, 5.5);
    assert!(after_ms < 60.0, "and then all is well again: {after_ms} ms");
    let rescued = worst_p99_ms(&run(CALM, &sets, "round-robin", 1), 2.0, 2.75);
    assert!(rescued < 150.0, "others are asked beside it after 100 ms: {rescued}");
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

/// Many slow requests are in flight at once, and the crash fails all of its replica's together.
#[test]
fn a_replica_that_dies_with_hundreds_in_flight_fails_none_of_them() {
    let sets = [
        "workload.clients=1",
        "cluster.concurrency=400",
        "cluster.service_mean=400ms",
        "workload.utilisation=0.5",
        "faults=[{at = '3s', crash = 2}]",
    ];
    for policy in ["c3", "least-outstanding"] {
        let run = run(CALM, &sets, policy, 1);
        assert!(run.retries > 150, "{policy}: {} were in flight", run.retries);
        assert_eq!((run.failed, run.served), (0, 15_000), "{policy}: every request is answered");
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

/// The default policy and safeguards, and neither hedges nor health checks.
#[test]
fn a_replica_that_hangs_holds_nobody_up_for_long() {
    let hangs = "faults=[{at = '2s', hang = 0}]";
    let run = run(CALM, &[hangs], "c3", 1);
    assert_eq!((run.failed, run.served), (0, 15_000));
    assert!(run.retries > 10, "what waits there is asked of another: {}", run.retries);
    assert!(run.max_ms < 500.0, "also what was sent there first: {} ms", run.max_ms);
    let late_ms = worst_p99_ms(&run, 3.0, 6.0);
    assert!(late_ms < 60.0, "and a second later it is avoided: {late_ms} ms");
    let waiting = crate::run(CALM, &["run.safeguards=false", hangs], "c3", 1);
    assert!(waiting.max_ms > 15_000.0, "without safeguards: {} ms", waiting.max_ms);
}

/// Only requests whose answers had begun are lost, and soon there are none of them.
#[test]
fn a_replica_that_breaks_or_stalls_bodies_is_avoided() {
    for (kind, lost) in [("break", 250), ("stall", 1_500)] {
        let ill = format!("faults=[{{at = '2s', {kind} = 0, share = 0.5}}]");
        let run = run(CALM, &[&ill], "c3", 1);
        let blind = crate::run(CALM, &["run.safeguards=false", &ill], "c3", 1);
        assert_eq!(run.served + run.failed, 15_000);
        println!("{kind}: {} lost, {} without safeguards", run.failed, blind.failed);
        assert!((1..=lost).contains(&run.failed), "{kind}: {}", run.failed);
        assert!(kind == "stall" || run.failed < blind.failed / 4, "{kind}: {}", blind.failed);
    }
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(folder);
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
        if DayScenario::is_meant(&node) || DuplicatesScenario::is_meant(&node) {
            continue; // worlds of their own, with tests of their own; CI runs them twice too
        }
        // What befalls them must do so within the few requests of a test.
        let sooner: &[&str] = match name.as_str() {
            "c3-dynamic" => &["workload.phases.0.at=20ms"],
            "brownout-crash" => &["faults.0.at=1s", "faults.1.at=2s", "faults.7.at=4s"],
            "brownout-step" => &["workload.phases.1.at=300ms", "workload.phases.2.at=600ms"],
            _ if name.starts_with("joint-") => &["redirect.profile_requests=2000"],
            _ => &[],
        };
        sooner.iter().for_each(|set| node.set(set).unwrap());
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

/// Eight workers before the replicas of the demo, which pause: p99 of those that read what their
/// siblings learn over that of those that do not, five paired seeds.
#[test]
fn workers_that_read_what_their_siblings_learn_have_the_shorter_tail() {
    let p99_ms = |workers: &str, policy: &str| {
        let sets = ["workload.clients=8", workers];
        let scenario = scenario(shipped("demo.toml"), &sets);
        let ln = (1..=5).map(|seed| evenkeel_sim::run(&scenario, policy, seed).p99_ms.ln());
        (ln.sum::<f64>() / 5.0).exp()
    };
    let ratio =
        |policy| p99_ms("workload.workers=8", policy) / p99_ms("workload.workers=1", policy);
    for (policy, at_most) in [("least-outstanding", 0.75), ("c3", 0.95), ("c3+hedge", 1.05)] {
        assert!(ratio(policy) < at_most, "{policy}: {}", ratio(policy));
    }
}

/// One replica of shared cores without a dimmer, at 70 % of what it can serve.
const SHARED: &str = "
replicas = [4]
[run]
policies = ['random']
warmup = 0.1
[work]
optional = '10ms'
mandatory = '1ms'
[network]
one_way = '0ms'
[workload]
clients = 1
utilisation = 0.7
requests = 40_000
";

/// Mean time over five seeds of a world with shared cores.
fn shared_mean_ms(sets: &[&str]) -> f64 {
    let scenario = scenario(Node::parse(SHARED, "story.toml"), sets);
    let means = (1..=5).map(|seed| evenkeel_sim::run(&scenario, "random", seed).mean_ms);
    means.sum::<f64>() / 5.0
}

/// Processor sharing does not care how the work varies: x/(1 − ρ) on one core, Erlang's formula on
/// more. (First come, first served would take 2.6 times as long at cv 2.)
#[test]
fn on_shared_cores_the_mean_is_what_queueing_theory_says_whatever_the_variation() {
    for cv in ["0", "0.5", "2"] {
        let cv = format!("work.cv={cv}");
        let one_ms = shared_mean_ms(&[&cv, "replicas=[1]"]);
        assert!((one_ms / (10.0 / 0.3) - 1.0).abs() < 0.05, "{one_ms} ms on one core, {cv}");
        let four_ms = shared_mean_ms(&[&cv]);
        let theory_ms = erlang_mean_ms(4, 10.0, 0.7);
        assert!((four_ms / theory_ms - 1.0).abs() < 0.04, "{four_ms} ms, theory {theory_ms} ms");
    }
}

#[test]
fn cores_that_always_have_work_lose_none_of_their_time() {
    // 3 000 requests of 10 ms within ten seconds, on two cores at half speed: 30 s of work.
    let sets = ["work.cv=0", "replicas=[{cores = 2, speed = 0.5}]", "workload.utilisation=3"];
    let busy = run(SHARED, &[&sets[..], &["workload.requests=3_000"]].concat(), "random", 1);
    assert!((busy.virtual_s - 30.0).abs() < 0.05, "{} s", busy.virtual_s);
    let (pause, slow) = ("{at = '2s', pause = 0, for = '5s'}", "slow = 0, factor =");
    let faults = format!("faults=[{pause}, {{at = '10s', {slow} 2}}, {{at = '14s', {slow} 1}}]");
    let more = ["workload.requests=3_000", &faults];
    let struck = run(SHARED, &[&sets[..], &more].concat(), "random", 1);
    assert!((struck.virtual_s - 37.0).abs() < 0.05, "5 s and 2 s later: {} s", struck.virtual_s);
}

#[test]
fn a_crash_of_shared_cores_costs_retries_but_no_answers() {
    let five = "replicas=[4, 4, 4, 4, 4]";
    let crash = "faults=[{at = '2s', crash = 2}, {at = '4s', restore = 2}]";
    let sets = [five, crash, "workload.utilisation=0.4", "workload.requests=6_000", "run.warmup=0"];
    for policy in ["c3+full", "least-outstanding+feed-forward", "round-robin+published+hedge"] {
        let run = run(SHARED, &sets, policy, 1);
        assert_eq!((run.failed, run.served), (0, 6_000), "{policy}");
        assert!(run.retries > 0, "{policy}");
    }
}

#[test]
fn work_that_is_taken_back_makes_room_for_others() {
    let overload = [
        "replicas=[1]",
        "workload.utilisation=1.5",
        "workload.timeout=200ms",
        "run.load_every=50ms",
    ];
    let load = |more: &[&str]| {
        let run = run(SHARED, &[&overload[..], more].concat(), "random", 1);
        assert_eq!(run.served + run.timeouts, run.requests);
        (loads(&run)[0], run.served_ratio)
    };
    // 150 a second come and leave after 200 ms at the latest: 30 are there at most.
    let (kept, served) = load(&["workload.cancel=true"]);
    assert!(kept < 33.0 && served > 0.3, "{kept} there, {served} served");
    for noticed in ["workload.noticed=true", "workload.noticed=false"] {
        let (rotten, served) = load(&[noticed]);
        assert!(rotten > 1_000.0 && served < 0.05, "{rotten} there, {served} served");
    }
}

#[test]
fn a_peer_refuses_what_is_too_much_and_a_dimmer_serves_it_lean() {
    let sets = [
        "workload.utilisation=2",
        "workload.timeout=1s",
        "run.retries_max=0",
        "dimmer.setpoint=200ms",
    ];
    let run = |policy: &str| run(SHARED, &sets, policy, 1);
    let full = run("random+full");
    assert_eq!(full.optional, full.served);
    for peer in ["random+gradient", "random+admission", "random+shed"] {
        let run = run(peer);
        assert_eq!(run.served + run.failed + run.timeouts, run.requests, "{peer}");
        assert_eq!(run.optional, run.served, "{peer} serves in full or not at all");
        assert!(run.failed > 0 && run.served > full.served, "{peer}: {run:?}");
        // Half of what comes is what the cores can do.
        assert!(run.served_ratio < 0.52, "{peer}: {}", run.served_ratio);
    }
    // The published laws act after the harm is done, and this one begins with twice the load.
    for (law, least) in [("feed-forward", 0.99), ("published", 0.94), ("published-exact", 0.94)] {
        let run = run(&format!("random+{law}"));
        assert!(run.served_ratio > least, "{law} serves {}", run.served_ratio);
        // All cores busy: 4 = 8·θ + 0.8·(1 − θ).
        let most = 3.2 / 7.2;
        let optional = run.optional_ratio;
        assert!((0.5 * most..1.03 * most).contains(&optional), "{law}: {optional} of {most}");
    }
}

/// The paper's figure 2, four times as fast.
#[test]
fn replicas_that_die_take_a_service_without_a_dimmer_with_them() {
    let faults: Vec<_> = (0..8).map(|n| format!("faults.{n}.at={}s", 25 * (n + 1))).collect();
    let run = |sets: &[&str], policy: &str| {
        let mut all = vec!["workload.duration=250s", "run.window=5s"];
        all.extend(faults.iter().map(String::as_str));
        all.extend(sets);
        let scenario = scenario(shipped("brownout-crash.toml"), &all);
        evenkeel_sim::run(&scenario, policy, 1)
    };
    let served = |run: &RunReport, from_s: f64, to_s: f64| {
        let windows = || between(run, from_s, to_s);
        let served = windows().map(|window| window.served).sum::<u64>() as f64;
        served / windows().map(|w| w.served + w.timeouts + w.failed).sum::<u64>() as f64
    };
    let full = run(&[], "least-outstanding+full");
    assert!(served(&full, 0.0, 75.0) > 0.98, "two of five are not missed");
    assert!(served(&full, 80.0, 175.0) < 0.2, "with three gone it collapses");
    let back = served(&full, 200.0, 225.0);
    assert!(back < 0.2, "with all of them back it serves {back}");
    let cancelled =
        run(&["workload.cancel=true", "workload.noticed=true"], "least-outstanding+full");
    let back = served(&cancelled, 180.0, 225.0);
    assert!(back > 0.95 && cancelled.served_ratio > full.served_ratio + 0.2, "{cancelled:?}");
    for (law, least) in [("feed-forward", 0.99), ("published-exact", 0.97)] {
        let dimmed = run(&[], &format!("least-outstanding+{law}"));
        assert!(dimmed.served_ratio > least, "{law} serves {}", dimmed.served_ratio);
        let lean = between(&dimmed, 105.0, 125.0);
        let (served, optional) =
            lean.fold((0, 0), |(s, o), window| (s + window.served, o + window.optional));
        assert!(optional * 4 < served, "{law}: one of five has no time for optional content");
        assert!(between(&dimmed, 225.0, 250.0).all(|window| window.optional == window.served));
    }
}

#[test]
fn a_step_is_felt_by_those_who_wait_for_the_percentile() {
    let sets = ["workload.phases.1.at=20s", "workload.phases.2.at=30s", "workload.duration=50s"];
    let scenario = scenario(shipped("brownout-step.toml"), &sets);
    // 30 s and 20 s at 0.6 and 10 s at 1.3 of 1 600 a second.
    assert_eq!(scenario.workload.requests, (1_600.0_f64 * (40.0 * 0.6 + 10.0 * 1.3)) as u64);
    let run = |policy| evenkeel_sim::run(&scenario, policy, 1);
    let (full, published, forward) =
        (run("random+full"), run("random+published"), run("random+feed-forward"));
    let first = |run: &RunReport| {
        let window = run.windows.iter().find(|window| window.until_s > 21.0).unwrap();
        window.violations as f64 / (window.served + window.timeouts + window.failed) as f64
    };
    assert!(first(&full) > 0.6, "{}", first(&full));
    assert!(first(&forward) < 0.2 && first(&forward) < first(&published), "{}", first(&forward));
    let full_again = between(&forward, 40.0, 50.0).all(|window| window.optional == window.served);
    assert!(full_again, "ten seconds after the relief everything is served");
    assert!(forward.violations.unwrap() < published.violations.unwrap());
}

/// Two steps of the shipped scenario, cores known and not: what the first overload costs where the
/// capacity must be learnt, and what it does not cost afterwards.
#[test]
fn a_step_is_felt_at_once_although_nobody_told_the_cores() {
    let phase = |at: u32, factor: f64| format!("{{at = '{at}s', rate_factor = {factor}}}");
    let phases = [phase(0, 0.6), phase(10, 1.3), phase(20, 0.6), phase(30, 1.3)].join(", ");
    let phases = format!("workload.phases=[{phases}]");
    let run = |cores: &str, policy: &str, seed: u64| {
        let sets = [&*phases, "workload.duration=40s", cores];
        evenkeel_sim::run(&scenario(shipped("brownout-step.toml"), &sets), policy, seed)
    };
    let late = |run: &RunReport, from_s: f64, until_s: f64| {
        let windows: Vec<_> = between(run, from_s, until_s).collect();
        let violations: u64 = windows.iter().map(|window| window.violations).sum();
        let all: u64 = windows.iter().map(|it| it.served + it.timeouts + it.failed).sum();
        violations as f64 / all as f64
    };
    for seed in 1..=3 {
        let [told, learnt] = ["known", "unknown"]
            .map(|cores| run(&format!("dimmer.cores='{cores}'"), "random+feed-forward", seed));
        let published = run("dimmer.cores='unknown'", "random+published", seed);
        let first = [&told, &learnt, &published].map(|run| late(run, 10.0, 12.5));
        assert!(first[1] < 0.02 && first[1] < 0.1 * first[2], "first step: {first:?}");
        let second = [&told, &learnt, &published].map(|run| late(run, 30.0, 32.5));
        assert!(second[1] < 0.02, "second step: {second:?}");
        for (from_s, until_s) in [(0.0, 10.0), (12.5, 20.0), (22.5, 30.0)] {
            let steady = [&told, &learnt].map(|run| late(run, from_s, until_s));
            assert!(steady[1] < steady[0] + 0.02, "from {from_s} s on: {steady:?}");
        }
        assert!(between(&learnt, 22.5, 30.0).all(|window| window.optional == window.served));
    }
}

#[test]
fn what_a_scenario_cannot_mean_is_told() {
    let reported = |sets: &[&str]| {
        let mut node = Node::parse(SHARED, "story.toml").unwrap();
        sets.iter().for_each(|set| node.set(set).unwrap());
        Scenario::read(&node).unwrap_err().to_string()
    };
    for (sets, expected) in [
        (&["replicas=[]"][..], "one replica or more"),
        (&["replicas=[0]"], "from 1 to 100000"),
        (&["replicas=[{cores = 4, speed = 0}]"], "from 0.01 to 100"),
        (&["cluster.servers=3"], "servers beside replicas"),
        (&["work.mandatory=1s"], "at most work.optional"),
        (&["workload.rate=5"], "rate beside utilisation"),
        (&["workload.duration=5s"], "duration beside requests"),
        (&["workload.cancel=true", "workload.noticed=false"], "noticed = true"),
        (&["cluster.withdraws=true"], "withdraws beside replicas"),
        (&["run.policies=['random+brownout']"], "+feed-forward"),
        (&["dimmer.law='on'"], "feed-forward, published"),
        (&["workload={duration = '24h', rate = 1e9}"], "at most 10000000000"),
    ] {
        let reported = reported(sets);
        assert!(reported.contains(expected), "{sets:?}: {reported}");
    }
    for (text, expected) in [
        ("cluster = {notices = true, agents = false}", "agents = true"),
        ("cluster = {withdraws = true}\nworkload = {cancel = true}", "one of the two"),
    ] {
        let reported = Scenario::read(&Node::parse(text, "x.toml").unwrap()).unwrap_err();
        assert!(reported.to_string().contains(expected), "{reported}");
    }
    for text in ["work = {optional = '1s', mandatory = '1s'}", "dimmer = {law = 'off'}"] {
        let reported =
            Scenario::read(&Node::parse(text, "x.toml").unwrap()).unwrap_err().to_string();
        assert!(reported.contains("replicas too"), "{reported}");
    }
    let text = "run = {policies = ['random+full']}";
    let reported = Scenario::read(&Node::parse(text, "x.toml").unwrap()).unwrap_err().to_string();
    assert!(reported.contains("replicas too"), "{reported}");
}
