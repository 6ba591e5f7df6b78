//! The published instances with their proven optima, when they are at hand.

use std::path::{Path, PathBuf};

use evenkeel_geo::{Answer, Effort, Question, Status, solve};
use serde_json::Value;

use super::super::instance::{self, Instance};

/// Where the instances are, beside the project; `None`, with a line, when they are not.
fn folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../..");
    let folder = beside.join("shared/data/redirect-instances");
    if folder.join("optima.json").is_file() {
        return Some(folder);
    }
    eprintln!("skipped: no redirect instances in {}", folder.display());
    None
}

/// Every instance that is there, with what is known about it.
fn instances() -> Vec<(String, Instance, Value)> {
    let Some(folder) = folder() else { return Vec::new() };
    let text = std::fs::read_to_string(folder.join("optima.json")).unwrap();
    let optima: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    let load = |(name, known): (String, Value)| {
        let path = folder.join(format!("{name}.json"));
        path.is_file().then(|| (name, instance::load(&path).unwrap(), known))
    };
    optima.into_iter().filter_map(load).collect()
}

/// Instances up to so many sites are solved: fewer without optimisation, where they take longer.
const fn sites_max(unoptimised: usize) -> usize {
    if cfg!(debug_assertions) { unoptimised } else { 32 }
}

fn ask(instance: &Instance, question: &Question) -> Answer {
    let effort = Effort::one_in_a_million(&instance.problem);
    let question = Question { effort, ..question.clone() };
    solve(&instance.problem, &question).unwrap()
}

/// The objective is the known one; if the optimum is not known, no worse than the best known.
fn compare(name: &str, answer: &Answer, known: &Value, optimum: &str, best: &str) {
    assert!(answer.lower_bound <= answer.objective, "{name}");
    match (known[optimum].as_u64(), known[best].as_u64()) {
        (Some(optimum), _) => {
            assert_eq!(answer.objective, optimum, "{name}");
            assert!(answer.proven, "{name}");
        }
        (None, Some(best)) => assert!(answer.objective <= best, "{name}"),
        (None, None) => {}
    }
}

#[test]
fn violations_are_the_proven_optima() {
    for (name, instance, known) in instances() {
        if instance.problem.sites() <= sites_max(24) {
            let answer = ask(&instance, &Question::violations());
            compare(&name, &answer, &known, "perf_opt", "perf_best");
        }
    }
}

#[test]
fn relayed_violations_are_the_proven_optima() {
    for (name, instance, known) in instances() {
        if instance.problem.sites() <= sites_max(8).min(12) {
            let question = Question { relay: true, ..Question::violations() };
            let answer = ask(&instance, &question);
            compare(&name, &answer, &known, "relay_opt", "relay_best");
        }
    }
}

#[test]
fn costs_are_the_proven_optima() {
    for (name, instance, known) in instances() {
        if instance.problem.sites() > 12 {
            continue;
        }
        let objective = instance.cost().unwrap();
        let question = Question { objective, ..Question::violations() };
        let answer = solve(&instance.problem, &question).unwrap();
        let is_infeasible = known["cost_status"] == "Infeasible";
        assert_eq!(answer.status == Status::Infeasible, is_infeasible, "{name}");
        assert!(answer.proven, "{name}");
        if !is_infeasible {
            assert_eq!(Some(answer.objective), known["cost_opt"].as_u64(), "{name}");
        }
    }
}
