//! `evenkeel plan duplicates` as a person runs it.

mod common;

use std::path::{Path, PathBuf};
use std::process::Output;

use common::{evenkeel, text};
use evenkeel_testkit::folder::Folder;
use serde_json::Value;

fn shipped(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../plans").join(name)
}

fn plan(input: &Path, options: &[&str]) -> Output {
    evenkeel(&[&["plan", "duplicates", input.to_str().expect("a path in UTF-8")], options].concat())
}

fn answer(input: &Path, options: &[&str]) -> Value {
    let output = plan(input, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn named(policy: &Value) -> String {
    format!("{}p/{}d", policy["partitions"], policy["duplicates"])
}

/// Short simulations: these tests ask what is said, not how sure it is.
const QUICK: [&str; 4] = ["--set", "accesses=20000", "--set", "accesses_max=20000"];

#[test]
fn table_4_comes_out_as_the_paper_prints_it() {
    for (rate, policy) in [("236", "2p/2d"), ("286", "2p/3d"), ("408", "3p/2d"), ("528", "4p/2d")] {
        let set = format!("rate={rate}");
        let json = answer(&shipped("duplicates-table-4.toml"), &["--set", &set]);
        assert_eq!(named(&json["best"]), policy, "{rate}");
        assert_eq!(json["model"], "paper");
    }
    // The misprint: single duplicates miss 98 % even when nobody asks much.
    let json = answer(&shipped("duplicates-table-4.toml"), &["--set", "rate=0.6"]);
    let policies = json["policies"].as_array().unwrap();
    let four = policies.iter().find(|policy| named(policy) == "4p/1d").unwrap();
    assert!(four["service_level"].as_f64().unwrap() < 0.95 && four["meets"] == false);
}

#[test]
fn the_papers_model_promises_what_queues_do_not_keep() {
    let input = shipped("duplicates-store.toml");
    let json = answer(&input, &[&["--model", "both"], &QUICK[..]].concat());
    let [ours, papers] = [&json["policies"], &json["beside"]["policies"]];
    let late = |policies: &Value, name: &str| {
        let policies = policies.as_array().unwrap();
        let policy = policies.iter().find(|policy| named(policy) == name).unwrap();
        policy["violations"].as_f64().unwrap()
    };
    // At ρ = 0.17 for each: the simulated M/G/1 of the research is 6 times as late for two
    // duplicates at 7 ms and ρ = 0.2.
    let off = late(ours, "4p/2d") / late(papers, "4p/2d");
    assert!(off > 2.0, "{off}");
    // Single duplicates have no dependence: there the paper's model is right within a factor of
    // two.
    let single = late(ours, "8p/1d") / late(papers, "8p/1d");
    assert!((0.5..2.0).contains(&single), "{single}");
    assert_eq!(json["cost_per_s"], 3600.0);
    assert!(json["sweep"].as_array().unwrap().len() > 3);
}

#[test]
fn outliers_that_coincide_are_reported() {
    let output = plan(&shipped("duplicates-outliers.toml"), &QUICK);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let words = text(&output.stdout);
    assert!(words.contains("Duplicates do not help here: outliers coincide"), "{words}");
    assert!(words.contains("No policy of at most 4 nodes keeps 99 % within 10ms"), "{words}");
    // The paper's model multiplies, and promises it.
    let both = [&["--model", "paper"], &QUICK[..]].concat();
    let json = answer(&shipped("duplicates-outliers.toml"), &both);
    assert_eq!(json["best"]["duplicates"], 2);
}

#[test]
fn a_page_stands_alone() {
    let folder = Folder::new("plan-duplicates-page");
    let page = folder.file("plan.html");
    let options = [&["--model", "both", "--html", page.to_str().unwrap()], &QUICK[..]].concat();
    let output = plan(&shipped("duplicates-store.toml"), &options);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let words = text(&output.stdout);
    assert!(words.contains("at night") && words.contains("today: "), "{words}");
    let page = std::fs::read_to_string(&page).unwrap();
    for part in ["What each policy keeps", "What load does", "At night", "sparing", "class=ring"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script") && !page.contains("http") && !page.contains("NaN"));
}

#[test]
fn the_same_file_has_the_same_answer() {
    let input = shipped("duplicates-store.toml");
    assert_eq!(answer(&input, &QUICK), answer(&input, &QUICK));
}

#[test]
fn what_is_wrong_in_samples_is_told_with_its_row() {
    let folder = Folder::new("plan-duplicates-wrong");
    let input = folder.file("plan.toml");
    let toml = "target = 0.98\nbound = '10ms'\nrate = 5\nservice = 's.csv'\nnodes_max = 2\n";
    std::fs::write(&input, toml).unwrap();
    let reported = |samples: Option<&str>| {
        if let Some(samples) = samples {
            std::fs::write(folder.file("s.csv"), samples).unwrap();
        }
        let output = plan(&input, &[]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
        assert!(output.stdout.is_empty());
        text(&output.stderr)
    };
    assert!(reported(None).contains("s.csv: got no readable file"));
    let words = reported(Some("3\n4\noops\n"));
    assert!(words.contains("s.csv:3:1: got \"oops\" in row 3, expected a time"), "{words}");
    assert!(reported(Some("# nothing\n")).contains("got no row"));
    std::fs::write(folder.file("s.csv"), "3\n4\n").unwrap();
    assert!(plan(&input, &QUICK).status.success());
    let output = plan(&input, &["--set", "nodes_max=0"]);
    assert_eq!(output.status.code(), Some(2));
    let words = text(&output.stderr);
    assert!(words.contains("nodes_max: got 0, expected a whole number from 1"), "{words}");
}
