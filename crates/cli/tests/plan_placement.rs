//! `evenkeel plan placement` as a person runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_evenkeel");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn example() -> PathBuf {
    root().join("plans/placement-follow-the-sun.toml")
}

fn plan(input: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["plan", "placement"]).arg(input).args(options).output().expect("it starts")
}

fn answer(input: &Path, options: &[&str]) -> Value {
    let output = plan(input, &[options, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("evenkeel-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    folder
}

/// Where the instances are, beside the project; none, with a line, when they are not.
fn instances() -> Vec<PathBuf> {
    let folder = root().join("../shared/data/placement-instances");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: no placement instances in {}", folder.display());
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect()
}

#[test]
fn every_stored_optimum_is_found_and_proven() {
    for path in instances() {
        let stored: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for route in ["nearest", "bestpath"] {
            let answer = answer(&path, &["--route", route]);
            let results = answer["results"].as_array().unwrap();
            let problems = stored["problems"].as_array().unwrap();
            assert_eq!(results.len(), problems.len());
            for (result, problem) in results.iter().zip(problems) {
                let expected = problem[route]["optimal_score"].as_f64().unwrap();
                let score = result["score"].as_f64().unwrap();
                let difference = (score - expected).abs() / expected;
                assert!(difference <= 1e-9, "{} {route}: {result}", path.display());
                assert_eq!(result["proven"], true, "{} {route}", path.display());
            }
        }
    }
}

#[test]
fn each_tier_may_do_more_and_so_does_no_worse() {
    let mean = |tier: &str| {
        let answer = answer(&example(), &["--tier", tier]);
        answer["results"][0]["mean_ms"].as_f64().unwrap()
    };
    let today = answer(&example(), &[])["today"]["mean_ms"].as_f64().unwrap();
    let (one, two, three) = (mean("1"), mean("2"), mean("3"));
    assert!(today >= one && one >= two && two >= three, "{today} {one} {two} {three}");
    assert!(three < today, "the example leaves something to gain");
}

#[test]
fn the_example_of_the_documentation_is_what_comes() {
    let output = plan(&example(), &[]);
    let told = String::from_utf8(output.stdout).unwrap();
    let text = std::fs::read_to_string(root().join("docs/plan-placement.md")).unwrap();
    let shown = text.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(told, shown);
}

#[test]
fn a_page_stands_alone() {
    let folder = folder("placement-page");
    let page = folder.join("plan.html");
    let output = plan(&example(), &["--html", page.to_str().unwrap(), "--worth", "4"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(text.contains("follow the sun") && text.contains("optimal"));
    assert!(!text.contains("<script") && !text.contains("http") && !text.contains("NaN"));
}

#[test]
fn what_is_wrong_is_told_with_its_file_row_and_column() {
    let folder = folder("placement-wrong");
    let told = |rtt: &str, counts: &str, options: &[&str]| {
        std::fs::write(folder.join("rtt.csv"), rtt).unwrap();
        std::fs::write(folder.join("counts.csv"), counts).unwrap();
        let output = plan(&folder, options);
        assert_eq!(output.status.code(), Some(2), "{rtt}{counts}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let (rtt, counts) = ("x,a,b\na,0,9\nb,9,0\n", "interval,client,weak-read\n0,a,1\n");
    let sizes = ["--replicas", "2", "--voters", "1"];
    assert!(told("x,a,b\na,0,9\n", counts, &sizes).contains("not square"));
    assert!(told("x,a,b\na,0,-9\nb,9,0\n", counts, &sizes).contains("rtt.csv:2:3: came \"-9\""));
    assert!(told(rtt, "interval,client,weak-read\n0,c,1\n", &sizes).contains("counts.csv:2:2"));
    assert!(told(rtt, counts, &["--replicas", "3", "--voters", "1"]).contains("1 to 2"));
    std::fs::write(folder.join("domains.csv"), "site,domain\na,one\nb,one\n").unwrap();
    let options = ["--replicas", "2", "--voters", "2", "--voter-domains", "2"];
    assert!(told(rtt, counts, &options).contains("2 failure domains were asked for"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_plan_can_be_told_in_a_databases_own_words() {
    let best = &answer(&example(), &[])["results"][0];
    let sites = answer(&example(), &[])["sites"].clone();
    let leader = sites[best["leader"].as_u64().unwrap() as usize].as_str().unwrap().to_owned();
    let told = |options: &[&str]| {
        let output = plan(&example(), options);
        let text = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = told(&["--statements", "cockroachdb", "--database", "a\"b"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("ALTER DATABASE \"a\"\"b\" CONFIGURE ZONE USING num_replicas = 5,"));
    assert!(text.contains(&format!("lease_preferences = '[[+region={leader}]]';")), "{text}");
    let (code, text) = told(&["--statements", "tidb", "--database", "d", "--table", "t"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("ALTER TABLE `d`.`t` PLACEMENT POLICY=`evenkeel_d`;"), "{text}");
    let (code, text) = told(&["--statements", "tidb"]);
    assert!(code == Some(2) && text.contains("--database NAME"), "{text}");
    let (code, text) = told(&["--statements", "yugabytedb"]);
    assert!(code == Some(2) && text.contains("cloud.region.zone"), "{text}");
}
