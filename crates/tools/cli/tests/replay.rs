//! Days are recorded, imported and replayed by the program; its exit codes.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::process::{Command, Output};

use common::PROGRAM;
use evenkeel_core::Rng;
use evenkeel_testkit::folder::Folder;
use serde_json::Value;

const WORLD: &str = "\
[run]
policies = ['least-outstanding']
[cluster]
service_mean = '6ms'
replication_factor = 5
[workload]
clients = 1
requests = 12000
utilisation = 0.4
cancel = true
";

fn evenkeel(folder: &Folder, words: &str) -> Output {
    let words = words.split_whitespace();
    Command::new(PROGRAM).args(words).current_dir(folder.path()).output().unwrap()
}

fn told(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_day_of_the_simulator_is_replayed_refused_and_simulated_again() {
    let folder = Folder::new("replay");
    std::fs::write(folder.file("world.toml"), WORLD).unwrap();
    let recorded = evenkeel(&folder, "sim world.toml --record day --set workload.utilisation=0.45");
    assert_eq!(recorded.status.code(), Some(0), "{}", told(&recorded).1);
    let (code, refused) = told(&evenkeel(&folder, "replay day --set policy=c3"));
    assert_eq!(code, Some(3), "{refused}");
    assert!(refused.contains("no slice of the day ran under another policy"), "{refused}");
    let refused = evenkeel(&folder, "replay day --set dimmer.setpoint=90ms --json");
    let document: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert!(document["refused"].as_str().unwrap().contains("dimmer"), "{document}");
    let words = "replay day --unproven --set load=+10% --json --html page.html";
    let (first, again) = (evenkeel(&folder, words), evenkeel(&folder, words));
    assert_eq!(first.status.code(), Some(0), "{}", told(&first).1);
    assert!(first.stdout == again.stdout, "the same day has the same answer");
    let document: Value = serde_json::from_slice(&first.stdout).unwrap();
    let off = document["backtest"]["off_ratio"].as_f64().unwrap();
    assert!(off.abs() <= 0.1, "{document}");
    assert_eq!(document["percentiles"][3]["predicted_ms"], Value::Null);
    assert!(document["percentiles"][3]["interval_ms"][0].as_f64().unwrap() > 1.0, "{document}");
    let page = std::fs::read_to_string(folder.file("page.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("load 1.1"), "{page}");
    let (code, again) = told(&evenkeel(&folder, "sim day --set run.policies=[c3,random] --twice"));
    assert!(code == Some(0) && again.contains("identical: 2 runs"), "{again}");
    let (code, wrong) = told(&evenkeel(&folder, "replay day --set speed=2"));
    assert!(code == Some(2) && wrong.contains("--set speed=2: expected policy"), "{wrong}");
    let (code, wrong) = told(&evenkeel(&folder, "replay nowhere"));
    assert!(code == Some(2) && wrong.contains("is this the directory"), "{wrong}");
    let (code, wrong) = told(&evenkeel(&folder, "sim world.toml --record day"));
    assert!(code == Some(2) && wrong.contains("a directory without a day"), "{wrong}");
}

#[test]
fn a_log_of_nginx_becomes_a_day_and_a_slow_log_does_not() {
    let folder = Folder::new("import");
    // Five replicas in turn, 100 requests per second, and nobody waits: 20 ms on average.
    let mut rng = Rng::stream(1, "a log");
    let mut arrived_ms = 1_000_000.0;
    let mut line = |number: u64| {
        arrived_ms += rng.exponential() * 10.0;
        let took = 10 + (rng.exponential() * 10.0) as u64;
        let ended = arrived_ms as u64 + took;
        format!(
            "msec={}.{:03} request_time=0.{took:03} upstream_addr=\"10.9.8.{}:80\" \
             upstream_response_time=\"0.{took:03}\" upstream_status=\"200\"\n",
            ended / 1_000,
            ended % 1_000,
            number % 5,
        )
    };
    let log: String = (0..12_000).map(&mut line).collect();
    std::fs::write(folder.file("access.log"), log).unwrap();
    let (code, told_) =
        told(&evenkeel(&folder, "import nginx access.log day --policy round-robin"));
    assert_eq!(code, Some(0), "{told_}");
    assert!(told_.starts_with("12000 copies to 5 replicas, of 12000 lines"), "{told_}");
    assert!(told_.contains("suffices for: policies and load"), "{told_}");
    for entry in std::fs::read_dir(folder.file("day")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|part| part == b"10.9.8"), "no address is kept");
    }
    let (code, told_) =
        told(&evenkeel(&folder, "replay day --unproven --set policy=least-outstanding"));
    assert_eq!(code, Some(0), "{told_}");
    assert!(told_.contains("a range"), "{told_}");
    let (code, refused) = told(&evenkeel(&folder, "import redis-slowlog access.log other"));
    assert!(code == Some(3) && refused.contains("only what was slow"), "{refused}");
    let (code, wrong) = told(&evenkeel(&folder, "import haproxy access.log other"));
    assert!(code == Some(2) && wrong.contains("line 1: got"), "{wrong}");
    let words = "import nginx access.log other --policy fastest";
    let (code, wrong) = told(&evenkeel(&folder, words));
    assert!(code == Some(2) && wrong.contains("fastest"), "{wrong}");
}
