//! Days of simulated worlds, replayed: what is foretold, and what is refused.

use evenkeel_replay::answer::{Answer, Refusal, Setup, WHOLE_MAX, predict, tests};
use evenkeel_replay::bars::WORLDS;
use evenkeel_replay::observed::Observed;
use evenkeel_replay::world::{Change, scenario};
use evenkeel_settings::Node;
use evenkeel_sim::Scenario;
use evenkeel_sim::world::{RecordConfig, record, windows};
use evenkeel_twin::Twin;
use evenkeel_twin::rows::percentile;

const RECORDED: &str = "least-outstanding";

fn demo(requests: u64) -> Scenario {
    WORLDS[0].scenario(requests).expect("a sound world")
}

fn setup(like: &Scenario) -> Setup<'_> {
    let explored = Some("two-choices");
    Setup { like, recorded: RECORDED, explored, pairs: 0.0, whole_max: WHOLE_MAX }
}

fn recorded(like: &Scenario, config: RecordConfig) -> (Observed, Twin) {
    let day = record(like, RECORDED, 1, config);
    let twin = Twin::rebuild(&day, 1).expect("a day that is long enough");
    (Observed::new(&twin, None), twin)
}

#[test]
fn every_world_of_the_study_is_a_scenario() {
    for world in &WORLDS {
        let scenario = world.scenario(10_000).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(scenario.workload.requests, 10_000, "{}", world.name);
    }
}

#[test]
fn a_policy_that_the_day_never_saw_is_foretold() {
    let like = demo(12_000);
    let (day, twin) = recorded(&like, RecordConfig::default());
    let answer = predict(&twin, &setup(&like), &day, &Change::policy("c3"), &[0.99]).unwrap();
    let truth = record(&like, "c3", 1, RecordConfig::default()).latencies(0);
    let truth_ns = percentile(&truth, 0.99).unwrap() as f64;
    let day_ns = percentile(&day.latencies[0], 0.99).unwrap() as f64;
    // 120 answers are above it: coins alone decide about a tenth. Who says that nothing changes is
    // further off.
    assert!((answer.percentiles[0].value_ns / truth_ns).ln().abs() < 0.12, "{answer:?} {truth_ns}");
    assert!((day_ns / truth_ns).ln().abs() > 0.2, "c3 must matter here: {day_ns} {truth_ns}");
    let [low, high] = answer.percentiles[0].interval_ns;
    assert!(low < answer.percentiles[0].value_ns && answer.percentiles[0].value_ns < high);
    let again = predict(&twin, &setup(&like), &day, &Change::policy("c3"), &[0.99]).unwrap();
    assert_eq!(answer, again, "the same day gives the same answer");
}

/// A long day is dealt among the worlds; here a short one is, as if it were long.
#[test]
fn a_day_that_is_dealt_among_the_worlds_has_the_answer_of_one_played_as_a_whole() {
    let like = demo(24_000);
    let (day, twin) = recorded(&like, RecordConfig::default());
    let c3 = Change::policy("c3");
    let whole = predict(&twin, &setup(&like), &day, &c3, &[0.5, 0.99]).unwrap();
    let dealt = Setup { whole_max: 10_000, ..setup(&like) };
    let shares = predict(&twin, &dealt, &day, &c3, &[0.5, 0.99]).unwrap();
    for (one, other) in shares.percentiles.iter().zip(&whole.percentiles) {
        let off = (one.value_ns / other.value_ns).ln();
        // 240 answers are above p99, of one day and of eight.
        assert!(off.abs() < if one.share > 0.9 { 0.15 } else { 0.02 }, "{one:?} {other:?}");
        assert!(one.interval_ns[0] < other.value_ns && other.value_ns < one.interval_ns[1]);
    }
    assert!((shares.busy / whole.busy - 1.0).abs() < 0.1, "{} {}", shares.busy, whole.busy);
    let told = |answer: &Answer| answer.parts.iter().flatten().count();
    assert_eq!(told(&shares), told(&whole));
    let again = predict(&twin, &dealt, &day, &c3, &[0.5, 0.99]).unwrap();
    assert_eq!(shares, again, "the same day gives the same answer");
}

/// Rare and long pauses: which windows meet them decides what is above p99 there.
const RARE: &str = "\
[run]
policies = ['c3']
[cluster]
servers = 5
concurrency = 4
service_mean = '6ms'
replication_factor = 5
[network]
one_way = '100us'
jitter = '20us'
[workload]
clients = 1
cancel = true
requests = 44000
utilisation = 0.4
[[faults]]
at = '0s'
every = '14s'
pause = 'each'
for = '1s'
for_max = '2s'
[fluctuation]
interval = '2s'
range = 4
";

#[test]
fn slices_whose_luck_is_too_large_prove_nothing_and_say_how_many_it_takes() {
    let like = Scenario::read(&Node::parse(RARE, "world").unwrap()).unwrap();
    let explored = windows(44_000.0 / like.rate(), 0.05, 2);
    let explore = Some(("two-choices".to_owned(), explored));
    let (day, twin) = recorded(&like, RecordConfig { explore, ..RecordConfig::default() });
    let tested = tests(&twin, &setup(&like), &day);
    let Err(Refusal::Luck(answers, percent, needed)) = tested else {
        panic!("{tested:?}");
    };
    assert!(percent > 10.0 && needed > answers, "{answers} {percent} {needed}");
    let said = Refusal::Luck(answers, percent, needed).to_string();
    assert!(said.contains(&needed.to_string()) && said.contains("explore more"), "{said}");
}

#[test]
fn nothing_of_the_true_world_is_in_its_twin() {
    let like = demo(3_000);
    let (_, twin) = recorded(&like, RecordConfig::default());
    let world = scenario(&twin, &like, &Change::policy("c3"), 0, false);
    assert!(world.faults.is_empty() && world.fluctuation.interval.is_zero());
    assert_eq!(world.cluster.service_law, None);
    assert_ne!(world.cluster.service_mean, like.cluster.service_mean);
}

#[test]
fn fewer_replicas_and_another_load_change_what_they_say() {
    let like = demo(3_000);
    let (_, twin) = recorded(&like, RecordConfig::default());
    let change = |fewer, load| Change { fewer, load, ..Change::policy(RECORDED) };
    let of = |change: &Change| scenario(&twin, &like, change, 1, false);
    assert_eq!(of(&change(1, 1.0)).cluster.servers, 4);
    assert_eq!(of(&change(9, 1.0)).cluster.servers, 1, "one is left");
    for (load, expected) in [(1.0, 3_000_u64), (1.3, 3_900), (0.5, 1_500), (2.0, 6_000)] {
        let world = of(&change(0, load));
        // Four standard deviations of a fair coin for each request.
        assert!(world.workload.requests.abs_diff(expected) <= 110, "{load}");
        let requests = &world.script.as_ref().unwrap().requests;
        assert!(requests.is_sorted_by_key(|(at, _)| *at), "{load}");
    }
}

#[test]
fn what_cannot_be_known_is_refused_with_its_reason() {
    let like = demo(3_000);
    let (day, twin) = recorded(&like, RecordConfig::default());
    let setup = setup(&like);
    let refused = |change: &dyn Fn(&mut Twin)| {
        let mut twin = twin.clone();
        change(&mut twin);
        tests(&twin, &setup, &day).unwrap_err()
    };
    assert_eq!(refused(&|twin| twin.unseen = 0.03), Refusal::Unseen(0.03));
    assert_eq!(refused(&|twin| twin.dropped = 0.06), Refusal::Dropped(0.06));
    assert_eq!(refused(&|twin| twin.crowding.value = 0.4), Refusal::Crowding(0.4));
    let blind = Setup { explored: None, ..setup.clone() };
    assert_eq!(tests(&twin, &blind, &day), Err(Refusal::NoSlice));
    assert!(matches!(tests(&twin, &setup, &day), Err(Refusal::TooFew(_))));
    let few = predict(&twin, &setup, &day, &Change::policy("c3"), &[0.999]);
    assert!(matches!(few, Err(Refusal::TooFew(_))), "{few:?}");
    let said = Refusal::Unseen(0.4).to_string();
    assert!(said.contains("40.0 %") && said.contains("do all proxies record?"), "{said}");
}

#[test]
fn hedging_without_pairs_and_saturation_have_no_answer() {
    let like = demo(11_000);
    let (day, twin) = recorded(&like, RecordConfig::default());
    let hedged = Change::policy("c3+hedge");
    let answer = predict(&twin, &setup(&like), &day, &hedged, &[0.99]).unwrap();
    assert_eq!(answer.is_sure(&twin, &hedged), Err(Refusal::NoPairs));
    let full = Change { load: 2.4, ..Change::policy(RECORDED) };
    let answer = predict(&twin, &setup(&like), &day, &full, &[0.99]).unwrap();
    assert!(matches!(answer.is_sure(&twin, &full), Err(Refusal::Busy(_))), "{}", answer.busy);
}

#[test]
fn a_twin_that_does_not_do_what_the_day_did_is_refused() {
    let like = demo(11_000);
    let (day, mut twin) = recorded(&like, RecordConfig::default());
    for log in twin.speeds.logs.iter_mut().flatten() {
        *log += 0.3;
    }
    let tested = tests(&twin, &setup(&like), &day);
    assert!(matches!(tested, Err(Refusal::Backtest(test)) if test.off > 0.2), "{tested:?}");
}
