//! `evenkeel plan redirect` as a person runs it.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::PROGRAM;
use evenkeel_testkit::folder::Folder;
use serde_json::Value;

fn scenario() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../plans/three-sites.toml")
}

fn plan(input: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["plan", "redirect"]).arg(input).args(options).output().expect("it starts")
}

fn answer(input: &Path, options: &[&str]) -> Value {
    let output = plan(input, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn the_example_helps_london_and_costs_no_more_than_it_must() {
    let fewest = answer(&scenario(), &[]);
    assert_eq!(fewest["status"], "optimal");
    let late = |document: &Value| document["violation_fraction"].as_f64().unwrap();
    assert!(late(&fewest) < fewest["all_local_violation_fraction"].as_f64().unwrap() / 3.0);
    // Of all plans that keep the target, the cheapest redirects no more than the best does.
    let cheapest = answer(&scenario(), &["--objective", "cost"]);
    assert_eq!(cheapest["status"], "optimal");
    assert!(cheapest["redirected"].as_u64() < fewest["redirected"].as_u64());
    assert!((late(&fewest)..=0.05).contains(&late(&cheapest)));
}

/// Together they have just less than enough: filled to saturation, all sites would be late.
#[test]
fn a_plan_in_overload_is_better_than_none_and_says_what_is_proven() {
    let folder = Folder::new("plan-overload");
    let text = std::fs::read_to_string(scenario()).unwrap();
    let late = |document: &Value| document["violation_fraction"].as_f64().unwrap();
    let overloads =
        [("demand = \"2600/s\"", "demand = \"4750/s\""), ("servers = 6", "servers = 1")];
    for (was, is) in overloads {
        let input = folder.file("overload.toml");
        std::fs::write(&input, text.replace(was, is)).unwrap();
        let capped = answer(&input, &[]);
        assert!(late(&capped) < 0.6 * capped["all_local_violation_fraction"].as_f64().unwrap());
        assert!(late(&capped) <= late(&answer(&input, &["--overload-price", "10000"])));
        let words = String::from_utf8(plan(&input, &[]).stdout).unwrap();
        assert!(words.contains("no allocation that sends no site beyond its saturation has fewer"));
    }
}

#[test]
fn a_page_stands_alone_and_says_who_sends_what_to_whom() {
    let folder = Folder::new("plan-page");
    let page = folder.file("plan.html");
    let output = plan(&scenario(), &["--html", page.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("London sends") && text.contains("saturation is better"));
    assert!(!text.contains("<script") && !text.contains("http") && !text.contains("epoch"));
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_line() {
    let folder = Folder::new("plan-wrong");
    let input = folder.file("wrong.toml");
    let text = std::fs::read_to_string(scenario()).unwrap();
    std::fs::write(&input, text.replace("servers = 6", "severs = 6")).unwrap();
    let output = plan(&input, &[]);
    assert!(!output.status.success());
    let words = String::from_utf8_lossy(&output.stderr);
    let line = 1 + text.lines().position(|line| line == "servers = 6").unwrap();
    assert!(words.contains(&format!("wrong.toml:{line}")), "{words}");
    assert!(words.contains("severs"), "{words}");
}

const PRICE: &str = "optional=0.1,wan=0.015,node=0.35";

/// Paris has work for 1.3 of its capacity, London for half; a request is ten times dearer full.
const TWO: &str = r#"
objective = "80ms"
round_trips = [["0ms", "14ms"], ["14ms", "0ms"]]
[[site]]
name = "Paris"
demand = "2080/s"
servers = 16
service = "10ms"
lean = "1ms"
[[site]]
name = "London"
demand = "800/s"
servers = 16
service = "10ms"
lean = "1ms"
"#;

#[test]
fn a_priced_plan_sends_away_what_is_cheaper_there_and_dims_the_rest() {
    let folder = Folder::new("plan-priced");
    let input = folder.file("two.toml");
    std::fs::write(&input, TWO).unwrap();
    let words = String::from_utf8(plan(&input, &["--price", PRICE]).stdout).unwrap();
    assert!(words.contains(" % to London: one more request costs 0."), "{words}");
    let priced = answer(&input, &["--price", PRICE]);
    let of = |key: &str, site: usize| priced[key][site].as_f64().unwrap();
    let sums = priced["shares"].as_array().unwrap().iter().map(|row| {
        row.as_array().unwrap().iter().map(|share| share.as_f64().unwrap()).sum::<f64>()
    });
    assert!(sums.into_iter().all(|sum| (sum - 1.0).abs() < 1e-9), "{priced}");
    // What is asked of both is 0.9 of what both can do: neither sends nor dims everything.
    assert!((0.1..0.4).contains(&priced["shares"][0][1].as_f64().unwrap()), "{priced}");
    assert!(of("dimmer", 0) > 0.8 && of("dimmer", 1) > 0.8, "{priced}");
    assert!(of("utilisation", 0) < 1.0 && of("utilisation", 1) < 1.0, "{priced}");
    assert_eq!(priced["hash"], answer(&input, &["--price", PRICE])["hash"]);
    // A way that costs more than content: all stays, and Paris dims to what it can do (study, R2:
    // one more request only dims more).
    let stays = answer(&input, &["--price", "optional=0.1,wan=5,node=0.35"]);
    assert_eq!(stays["redirected"], 0, "{stays}");
    let dimmer = stays["dimmer"][0].as_f64().unwrap();
    let work = 1.3 * (dimmer + (1.0 - dimmer) * 0.1);
    assert!((0.75..1.0).contains(&work), "{stays}");
    let price = stays["price"][0].as_f64().unwrap();
    assert!((0.11..0.2).contains(&price), "c_o y / (y - n) is 0.111: {stays}");
    assert_ne!(stays["hash"], priced["hash"]);
}

/// Late requests as a power of the load, half as many with hedges while there is room.
#[test]
fn curves_in_a_file_are_priced_with_their_hedges() {
    let late = |load: u32| (1e6 * (f64::from(load) / 100.0).powi(12)).min(1e6) as u32;
    let plain: Vec<u32> = (0..300).map(late).collect();
    let hedged: Vec<u32> = (0..300)
        .map(|load| if load < 70 { late(load) / 2 } else { late(load * 11 / 10) })
        .collect();
    let of = |curve: &Vec<u32>| serde_json::json!([[curve, curve], [curve, curve]]);
    let document = |work: Value| {
        serde_json::json!({
            "demand": [65, 95], "curves_ppm": of(&plain), "hedged_curves_ppm": of(&hedged),
            "saturation": [100, 100], "work_ms": work, "names": ["Paris", "London"],
        })
    };
    let folder = Folder::new("plan-priced-curves");
    let input = folder.file("curves.json");
    let wan = "optional=0.1,wan=5,node=0";
    std::fs::write(&input, document(serde_json::json!([[10, 1], [10, 10]])).to_string()).unwrap();
    let priced = answer(&input, &["--price", wan]);
    // Paris has room and hedges; London has nothing to leave out, and at its load copies harm.
    assert_eq!(priced["hedged"], serde_json::json!([true, false]), "{priced}");
    assert_eq!(priced["dimmer"], serde_json::json!([1.0, 1.0]), "{priced}");
    std::fs::write(&input, document(serde_json::json!([[10, 1], [10, 11]])).to_string()).unwrap();
    let error = String::from_utf8(plan(&input, &["--price", wan]).stderr).unwrap();
    assert!(error.contains("service 1") && error.contains("curves.json"), "{error}");
}

#[test]
fn a_price_that_is_none_is_told_with_what_is() {
    for (price, words) in [
        ("optional", "optional, expected NAME=PRICE"),
        ("wan=-1", "wan=-1, expected NAME=PRICE, a price from 0 to 10"),
        ("wan=11", "wan=11, expected NAME=PRICE, a price from 0 to 10"),
        ("latency=1", "latency, expected one of optional, wan, node"),
        ("wan=1,wan=2", "wan twice"),
        ("", "nothing"),
    ] {
        let output = plan(&scenario(), &["--price", price]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(words), "{price}: {error}");
    }
    let folder = Folder::new("plan-priced-wrong");
    let input = folder.file("wrong.toml");
    std::fs::write(&input, TWO.replacen("lean = \"1ms\"", "lean = \"11ms\"", 1)).unwrap();
    let output = plan(&input, &["--price", PRICE]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("wrong.toml:9"), "{error}");
}
