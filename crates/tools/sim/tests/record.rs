//! What is recorded of a run agrees with what the run shows.

use evenkeel_core::Instant;
use evenkeel_settings::Node;
use evenkeel_sim::Scenario;
use evenkeel_sim::world::{RecordConfig, record, record_parts};
use evenkeel_twin::rows::{Day, End, Why, percentile};

const WORLD: &str = "\
    [run]\nhedge = { quantile = 0.9, budget = '10%' }\n\
    [cluster]\nservers = 5\nconcurrency = 4\nservice_mean = '6ms'\nreplication_factor = 5\n\
    [workload]\nrequests = 20_000\nclients = 5\nutilisation = 0.5\ncancel = true\n\
    [[faults]]\nat = '0s'\nevery = '2s'\npause = 'each'\nfor = '50ms'\nfor_max = '100ms'\n";

fn scenario(extra: &str) -> Scenario {
    let node = Node::parse(&format!("{WORLD}{extra}"), "scenario.toml").expect("TOML");
    Scenario::read(&node).expect("a scenario")
}

fn recorded(policy: &str, config: RecordConfig) -> Day {
    record(&scenario(""), policy, 1, config)
}

#[test]
fn a_record_shows_the_latencies_that_the_report_shows() {
    for policy in ["least-outstanding", "c3+hedge"] {
        let report = evenkeel_sim::run(&scenario(""), policy, 1);
        let day = recorded(policy, RecordConfig::default());
        assert_eq!(day.rows.len() as u64, report.attempts, "{policy}: a row for each copy");
        let latencies = day.latencies(0);
        assert_eq!(latencies.len() as u64, report.served, "{policy}");
        for (share, shown_ms) in [(0.5, report.p50_ms), (0.99, report.p99_ms)] {
            let recorded_ms = percentile(&latencies, share).unwrap() as f64 / 1e6;
            assert!((recorded_ms / shown_ms - 1.0).abs() < 0.005, "{recorded_ms} {shown_ms}");
        }
        let hedges = day.rows.iter().filter(|row| row.why == Why::Hedge).count();
        assert_eq!(hedges as u64, report.hedges, "{policy}");
    }
}

#[test]
fn parts_are_the_whole_and_no_request_is_in_two_of_them() {
    let config = || RecordConfig { pairs: 0.05, ..RecordConfig::default() };
    // At this load there are times without any request.
    let mut node = Node::parse(WORLD, "scenario.toml").expect("TOML");
    node.set("workload.utilisation=0.1").expect("a load");
    let world = Scenario::read(&node).expect("a scenario");
    let whole = record(&world, "c3+hedge", 1, config());
    let (mut rows, mut requests, mut parts, mut last_ns) = (Vec::new(), Vec::new(), 0, 0);
    record_parts(&world, "c3+hedge", 1, config(), 500, |part| {
        // Somebody is there for so long only while replicas pause.
        assert!(part.rows.len() < 3_000, "{}", part.rows.len());
        requests.append(&mut part.requests());
        if let Some(first) = part.rows.first_mut() {
            first.gap_ns -= last_ns;
            last_ns += part.rows.iter().map(|row| row.gap_ns).sum::<u64>();
        }
        rows.append(&mut part.rows);
        parts += 1;
    });
    assert!(parts > 10, "{parts}");
    assert_eq!(requests, whole.requests());
    assert_eq!(rows, whole.rows);
}

#[test]
fn an_answer_takes_its_wait_its_service_and_two_ways() {
    let day = recorded("least-outstanding+hedge", RecordConfig::default());
    let mut cancelled = 0;
    for row in &day.rows {
        let Some(served) = row.served else {
            // Given up on its way.
            assert!(row.end == End::Cancelled && row.latency_ns <= 250_000, "{row:?}");
            continue;
        };
        let there = served.wait_ns + served.service_ns;
        match row.end {
            End::Answered => assert_eq!(row.latency_ns, there + 500_000, "{row:?}"),
            End::Cancelled => {
                cancelled += 1;
                assert!(there + 250_000 <= row.latency_ns, "{row:?}");
            }
            End::Failed => panic!("nothing fails here: {row:?}"),
        }
    }
    assert!(cancelled > 100, "{cancelled}");
}

#[test]
fn whom_nobody_records_only_the_agents_see() {
    let config = RecordConfig { clients: 3, ..RecordConfig::default() };
    let day = recorded("least-outstanding", config);
    // Two clients of five, of 20,000 requests: four standard deviations are 0.014.
    assert!((day.unseen() - 0.4).abs() < 0.014, "{}", day.unseen());
    assert!(day.rows.iter().all(|row| row.client < 3));
}

#[test]
fn windows_explore_another_policy_and_pairs_go_to_two_replicas() {
    let window = (Instant::from_millis(1_000), Instant::from_millis(2_000));
    let explore = Some(("round-robin".to_owned(), vec![window]));
    let config = RecordConfig { explore, pairs: 0.05, ..RecordConfig::default() };
    let day = recorded("least-outstanding", config);
    for seen in day.requests() {
        let at = Instant::from_nanos(seen.at_ns);
        assert_eq!(seen.policy == 1, (window.0..window.1).contains(&at), "{seen:?}");
    }
    let pairs: Vec<_> = day.rows.iter().filter(|row| row.why == Why::Pair).collect();
    // 5 % of 20,000: four standard deviations are 123.
    assert!(pairs.len().abs_diff(1_000) < 123, "{}", pairs.len());
    for pair in pairs {
        let same = |row: &&evenkeel_twin::rows::Row| row.request == pair.request;
        let first = day.rows.iter().filter(same).find(|row| row.why == Why::First).unwrap();
        assert_ne!(first.replica, pair.replica);
        assert_eq!((pair.end, pair.gap_ns), (End::Answered, 0));
    }
}

#[test]
fn copies_have_as_much_work_in_common_as_was_asked() {
    let extra = "[cluster]\nwork_shared = 0.5\n";
    let node = Node::parse(extra, "scenario.toml").unwrap();
    let error = Scenario::read(&node).unwrap_err().to_string();
    assert!(error.contains("work_shared"), "{error}");
    let node = Node::parse("[cluster]\nwork_shared = 0.5\nservice_cv = 1.31", "x.toml").unwrap();
    let cluster = Scenario::read(&node).unwrap().cluster;
    let log = |seed: u64, copy| evenkeel_sim::workload::work_in_slot(&cluster, seed, copy).ln();
    let pairs: Vec<_> = (0..40_000_u64)
        .map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .map(|seed| [log(seed, 0), log(seed, 1)])
        .collect();
    let mean = |of: &dyn Fn(&[f64; 2]) -> f64| pairs.iter().map(of).sum::<f64>() / 40_000.0;
    let (a, b) = (mean(&|pair| pair[0]), mean(&|pair| pair[1]));
    let covariance = mean(&|pair| (pair[0] - a) * (pair[1] - b));
    let variance = mean(&|pair| (pair[0] - a) * (pair[0] - a));
    // Standard error of a correlation of 0.5 over 40,000 pairs: 0.004.
    assert!((covariance / variance - 0.5).abs() < 0.016, "{}", covariance / variance);
}
