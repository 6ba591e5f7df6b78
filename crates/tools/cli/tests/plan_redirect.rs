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
