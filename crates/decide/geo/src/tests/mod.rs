//! The solver against enumeration, a dynamic program, and itself on the same problem told
//! differently.

mod brute;
mod capped;
pub(crate) mod instances;
mod laws;

use super::{Answer, Effort, Overload, Problem, Question, Status, Target, solve};
use instances::{Family, Instance, instance};

/// Checks what every answer promises, whatever was asked.
fn check(problem: &Problem, question: &Question, answer: &Answer) {
    let sites = problem.sites();
    for site in 0..sites {
        let row: u32 = answer.rates[site].iter().sum();
        assert_eq!(row + answer.shed[site], problem.demand()[site], "origin {site}");
        let column: u32 = answer.rates.iter().map(|row| row[site]).sum();
        assert_eq!(column, answer.loads[site], "destination {site}");
        let sent = row - answer.rates[site][site];
        let received = column - answer.rates[site][site];
        assert!(question.relay || sent == 0 || received == 0, "{site} sends and receives");
        if question.overload == Overload::Capped {
            let saturation = problem.saturation()[site];
            assert!(column < saturation.max(1), "{site} is at saturation or above");
            assert!(answer.shed[site] == 0 || received == 0, "{site} sheds and receives");
        }
    }
    let away = |i: usize, j: usize| if i == j { 0 } else { answer.rates[i][j] };
    let redirected: u32 = (0..sites).flat_map(|i| (0..sites).map(move |j| away(i, j))).sum();
    assert_eq!(redirected, answer.redirected);
    assert!(answer.lower_bound <= answer.objective && answer.excess_bound <= answer.excess);
    assert_eq!(
        answer.status == Status::Optimal,
        answer.excess == 0 && { answer.lower_bound == answer.objective }
    );
    assert!(answer.status != Status::Optimal || answer.proven);
}

fn solved(problem: &Problem, question: &Question) -> Answer {
    let answer = solve(problem, question).expect("the question fits");
    check(problem, question, &answer);
    answer
}

fn problem_of(instance: Instance) -> Problem {
    let problem = Problem::new(instance.demand, instance.curves).expect("it is sound");
    let problem = problem.with_distances(&instance.rtt_us).expect("it is square");
    problem.with_saturation(instance.capacity).expect("one for each")
}

fn problem(family: Family, sites: usize, quantum: u32, seed: u64) -> Problem {
    problem_of(instance(family, sites, quantum, seed))
}

#[test]
fn every_family_is_proven_at_five_sites() {
    use Family::{Down, Hot, Mixed, Overload as Over, Tight, Unequal};
    for family in [Down, Hot, Mixed, Over, Tight, Unequal] {
        let problem = problem(family, 5, 2, 7);
        let apart = solved(&problem, &Question::violations());
        let relayed = solved(&problem, &Question { relay: true, ..Question::violations() });
        assert_eq!((apart.status, relayed.status), (Status::Optimal, Status::Optimal));
        assert!(relayed.objective <= apart.objective, "{family:?}");
        assert_eq!(apart.objective, apart.violations);
    }
}

#[test]
fn a_spent_budget_leaves_a_bound() {
    let problem = problem(Family::Mixed, 12, 2, 1);
    let exact = solved(&problem, &Question::violations());
    assert_eq!(exact.status, Status::Optimal);
    let effort = Effort { work_max: 0, work_exact: 0, tolerance: 0 };
    let answer = solved(&problem, &Question { effort, ..Question::violations() });
    assert_eq!((answer.status, answer.proven), (Status::Bounded, false));
    assert!(answer.lower_bound <= exact.objective && exact.objective <= answer.objective);
    // An answer so far from its bound is proven all the same if that was said to be enough.
    let effort = Effort { tolerance: u64::MAX >> 1, ..effort };
    let answer = solved(&problem, &Question { effort, ..Question::violations() });
    assert_eq!((answer.status, answer.proven), (Status::Bounded, true));
}

#[test]
fn without_demand_there_is_nothing_to_do() {
    let problem = Problem::new(vec![0, 0], vec![vec![vec![0, 9]; 2]; 2]).unwrap();
    for question in [Question::violations(), Question::cost(&problem, 0)] {
        let answer = solved(&problem, &question);
        assert_eq!((answer.objective, answer.status), (0, Status::Optimal));
        assert!(answer.violation_fraction(&problem).abs() < f64::EPSILON);
    }
}

#[test]
fn one_site_serves_its_own() {
    let problem = Problem::new(vec![2], vec![vec![vec![0, 5, 70_000]]]).unwrap();
    let answer = solved(&problem, &Question::violations());
    assert_eq!((answer.objective, &answer.rates), (140_000, &vec![vec![2]]));
    let kept = solved(&problem, &Question::cost(&problem, 70_000));
    assert_eq!((kept.objective, kept.status), (0, Status::Optimal));
    let broken = solved(&problem, &Question::cost(&problem, 50_000));
    assert_eq!((broken.status, broken.proven), (Status::Infeasible, true));
    assert_eq!((broken.excess, broken.excess_bound), (40_000, 40_000));
}

#[test]
fn when_all_are_down_nobody_sends() {
    let problem = Problem::new(vec![3, 4, 5], vec![vec![vec![1_000_000]; 3]; 3]).unwrap();
    let answer = solved(&problem, &Question::violations());
    assert_eq!((answer.objective, answer.redirected), (12_000_000, 0));
    let capped = problem.clone().with_saturation(vec![0; 3]).unwrap();
    let question = Question { overload: Overload::Capped, ..Question::violations() };
    let answer = solved(&capped, &question);
    assert_eq!((answer.shed, answer.objective), (vec![3, 4, 5], 12_000_000));
}

#[test]
fn overload_is_capped_instead_of_giving_one_up() {
    let problem = problem(Family::Overload, 5, 2, 3);
    let given_up = solved(&problem, &Question::violations());
    let saturation = problem.saturation();
    assert!(given_up.loads.iter().zip(saturation).any(|(load, cap)| load > cap));
    let question = Question { overload: Overload::Capped, ..Question::violations() };
    let capped = solved(&problem, &question);
    assert!(capped.shed.iter().sum::<u32>() > 0 && capped.violations <= given_up.violations);
    let priced = Question { overload: Overload::Priced(100_000), ..Question::violations() };
    let priced = solved(&problem, &priced);
    let beyond = |answer: &Answer| {
        let over = answer.loads.iter().zip(saturation).map(|(&l, &cap)| l.saturating_sub(cap));
        over.max().unwrap_or(0)
    };
    assert!(beyond(&priced) < beyond(&given_up));
}

#[test]
fn a_global_target_needs_no_more_redirects_than_local_ones() {
    let problem = problem(Family::Hot, 4, 2, 5);
    let local = solved(&problem, &Question::cost(&problem, 50_000));
    let target = Target::Global { ppm: 50_000, weights: vec![1; 4] };
    let objective = super::Objective::Cost(target);
    let global = solved(&problem, &Question { objective, ..Question::violations() });
    assert_eq!((local.status, global.status), (Status::Optimal, Status::Optimal));
    assert!(global.objective <= local.objective);
    assert!(global.violations <= 50_000 * u64::from(problem.demand_total()));
}

#[test]
fn questions_that_do_not_fit_are_refused() {
    let problem = Problem::new(vec![1, 1], vec![vec![vec![0]; 2]; 2]).unwrap();
    let mut question = Question::cost(&problem, 0);
    question.objective = super::Objective::Cost(Target::Local(vec![0]));
    let error = solve(&problem, &question).unwrap_err().to_string();
    assert_eq!(error, "target: got 1 values, expected 2, one for each data centre");
    question.objective = super::Objective::Cost(Target::Local(vec![0, 1_000_001]));
    let error = solve(&problem, &question).unwrap_err().to_string();
    assert_eq!(error, "target: got 1000001, expected at most 1000000");
}

#[test]
fn numbers_that_are_no_problem_are_refused() {
    let refused = |demand: Vec<u32>, curves| Problem::new(demand, curves).unwrap_err().to_string();
    let curve = |values: Vec<u32>| vec![vec![values]];
    assert!(refused(vec![], vec![]).starts_with("demand: got 0 values"));
    assert!(refused(vec![20_001], curve(vec![0])).starts_with("demand: got 20001 quanta"));
    assert!(refused(vec![1], curve(vec![])).starts_with("curve 0 0 at load 0: got nothing"));
    assert_eq!(
        refused(vec![1], curve(vec![0, 7, 6])),
        "curve 0 0 at load 2: got 6, expected at least 7, the value before it"
    );
    assert!(refused(vec![1], curve(vec![1_000_001])).contains("at most 1000000"));
    assert!(refused(vec![1], vec![]).starts_with("curves: got 0 values, expected 1"));
}
