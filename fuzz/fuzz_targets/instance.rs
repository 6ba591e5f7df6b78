//! Any bytes as a redistribution problem.
//!
//! Promise: an instance or an error that says something; small instances that are accepted are
//! solved, and the answer serves or sheds every quantum.

#![no_main]

#[allow(dead_code, reason = "the command line uses what this target does not")]
#[path = "../../crates/tools/cli/src/plan/instance.rs"]
mod instance;

use evenkeel_geo::{Effort, Objective, Overload, Question, solve};
use instance::{Instance, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match parse(data) {
        Ok(instance) if is_small(&instance) => check(&instance),
        Ok(_) => {}
        Err(error) => assert!(error.to_string().contains("got"), "{error}"),
    }
});

fn is_small(instance: &Instance) -> bool {
    instance.problem.sites() <= 4 && instance.problem.demand_total() <= 100
}

fn check(instance: &Instance) {
    let aims = [Some(Objective::Violations), instance.cost().ok()];
    for objective in aims.into_iter().flatten() {
        for overload in [Overload::Curve, Overload::Capped, Overload::Priced(1_000)] {
            for relay in [false, true] {
                let effort = Effort { work_max: 1_000_000, work_exact: 0, tolerance: 0 };
                let objective = objective.clone();
                check_answer(instance, &Question { objective, relay, overload, effort });
            }
        }
    }
}

fn check_answer(instance: &Instance, question: &Question) {
    let Ok(answer) = solve(&instance.problem, question) else { return };
    for (site, row) in answer.rates.iter().enumerate() {
        let all = row.iter().sum::<u32>() + answer.shed[site];
        assert_eq!(all, instance.problem.demand()[site], "{answer:?}");
    }
    assert!(answer.lower_bound <= answer.objective, "{answer:?}");
    assert!((0.0..=1.0).contains(&answer.violation_fraction(&instance.problem)));
}
