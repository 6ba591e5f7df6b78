//! What a redistribution plan costs, to a proof, on problems by formula.
//!
//! `cargo bench -p evenkeel-core --bench redirect` prints wall time; on a machine that is not
//! shared that is CPU time (`cargo xtask bench redirect` puts other solvers beside). The bars, at a
//! quantum of 1 %: 5 ms for 5 data centres, 10 ms for 8, 100 ms for 16 and for 8 that relay, 1 s
//! for 32 within one request in a million.

#[path = "../src/tests/instances.rs"]
mod instances;

use divan::Bencher;
use evenkeel_geo::joint::{Hedged, Joint, Prices, Service};
use evenkeel_geo::{Effort, Overload, Problem, Question, solve};
use instances::{Family, Instance, instance};

fn main() {
    divan::main();
}

fn problem(family: Family, sites: usize) -> Problem {
    let Instance { demand, curves, rtt_us, capacity } = instance(family, sites, 1, 1);
    let problem = Problem::new(demand, curves).expect("it is sound");
    let problem = problem.with_distances(&rtt_us).expect("it is square");
    problem.with_saturation(capacity).expect("one for each")
}

fn measure(bencher: Bencher<'_, '_>, problem: &Problem, question: &Question) {
    let answer = solve(problem, question).expect("the question fits");
    assert!(answer.proven, "{answer:?}");
    bencher.bench(|| solve(problem, question));
}

#[divan::bench(args = [5, 8, 16, 24], sample_count = 20)]
fn violations_of_mixed(bencher: Bencher<'_, '_>, sites: usize) {
    measure(bencher, &problem(Family::Mixed, sites), &Question::violations());
}

#[divan::bench(args = [5, 8, 16], sample_count = 20)]
fn violations_of_hot(bencher: Bencher<'_, '_>, sites: usize) {
    measure(bencher, &problem(Family::Hot, sites), &Question::violations());
}

#[divan::bench(args = [5, 8, 16], sample_count = 20)]
fn violations_of_tight(bencher: Bencher<'_, '_>, sites: usize) {
    measure(bencher, &problem(Family::Tight, sites), &Question::violations());
}

#[divan::bench(args = [5, 8, 16], sample_count = 20)]
fn violations_of_unequal(bencher: Bencher<'_, '_>, sites: usize) {
    measure(bencher, &problem(Family::Unequal, sites), &Question::violations());
}

#[divan::bench(args = [5, 8], sample_count = 20)]
fn violations_with_one_down(bencher: Bencher<'_, '_>, sites: usize) {
    measure(bencher, &problem(Family::Down, sites), &Question::violations());
}

#[divan::bench(args = [5, 8], sample_count = 20)]
fn violations_in_overload(bencher: Bencher<'_, '_>, sites: usize) {
    measure(bencher, &problem(Family::Overload, sites), &Question::violations());
}

#[divan::bench(args = [5, 8, 16], sample_count = 20)]
fn capped_overload(bencher: Bencher<'_, '_>, sites: usize) {
    let question = Question { overload: Overload::Capped, ..Question::violations() };
    measure(bencher, &problem(Family::Overload, sites), &question);
}

#[divan::bench(args = [24, 32], sample_count = 20)]
fn violations_within_one_in_a_million(bencher: Bencher<'_, '_>, sites: usize) {
    let problem = problem(Family::Mixed, sites);
    let effort = Effort { work_exact: 0, ..Effort::one_in_a_million(&problem) };
    measure(bencher, &problem, &Question { effort, ..Question::violations() });
}

/// Curves are priced and planned: ten milliseconds for eight data centres at a quantum of 2 %.
#[divan::bench(args = [Family::Hot, Family::Mixed, Family::Tight, Family::Overload])]
fn joint_plan_of_eight(bencher: Bencher<'_, '_>, family: &Family) {
    let Instance { demand, curves, rtt_us, capacity } = instance(*family, 8, 2, 1);
    let problem = Problem::new(demand, curves).expect("it is sound");
    let problem = problem.with_distances(&rtt_us).expect("it is square");
    let problem = problem.with_saturation(capacity).expect("one for each");
    let services = [Service { full_us: 10_000, lean_us: 1_000 }; 8];
    bencher.bench(|| {
        let joint = Joint::new(&problem, None, &services, &Prices::default());
        let joint = joint.expect("it is sound");
        joint.plan(joint.effort()).expect("it is sound")
    });
}

/// The same with curves of hedged requests, and at a quantum of 1 %, the default.
#[divan::bench(args = [Family::Hot, Family::Mixed, Family::Tight], consts = [1, 2])]
fn hedged_joint_plan_of_eight<const PERCENT: u32>(bencher: Bencher<'_, '_>, family: &Family) {
    let Instance { demand, curves, rtt_us, capacity } = instance(*family, 8, PERCENT, 1);
    let faster = |ppm: &u32| ppm / 2;
    let hedge = |curve: &Vec<u32>| curve.iter().map(faster).collect::<Vec<_>>();
    let hedged = curves.iter().map(|row| row.iter().map(hedge).collect()).collect();
    let hedged = Hedged { curves: hedged, extra_ppm: 50_000 };
    let problem = Problem::new(demand, curves).expect("it is sound");
    let problem = problem.with_distances(&rtt_us).expect("it is square");
    let problem = problem.with_saturation(capacity).expect("one for each");
    let services = [Service { full_us: 10_000, lean_us: 1_000 }; 8];
    bencher.bench(|| {
        let joint = Joint::new(&problem, Some(&hedged), &services, &Prices::default());
        let joint = joint.expect("it is sound");
        joint.plan(joint.effort()).expect("it is sound")
    });
}

#[divan::bench(args = [5, 8], sample_count = 20)]
fn relayed_violations(bencher: Bencher<'_, '_>, sites: usize) {
    let question = Question { relay: true, ..Question::violations() };
    measure(bencher, &problem(Family::Mixed, sites), &question);
}

#[divan::bench(args = [5, 8], sample_count = 20)]
fn cost(bencher: Bencher<'_, '_>, sites: usize) {
    let problem = problem(Family::Mixed, sites);
    measure(bencher, &problem, &Question::cost(&problem, 50_000));
}
