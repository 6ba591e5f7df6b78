//! Laws that hold for problems of any size.

use proptest::prelude::*;

use super::super::{Answer, Objective, Problem, Question, Status};
use super::instances::{Family, Instance, instance};
use super::{problem, problem_of, solved};

fn families() -> impl Strategy<Value = Family> {
    use Family::{Down, Hot, Mixed, Overload, Tight, Unequal};
    prop::sample::select(vec![Down, Hot, Mixed, Overload, Tight, Unequal])
}

fn questions(problem: &Problem) -> Vec<Question> {
    let violations = Question::violations();
    vec![
        Question { relay: true, ..violations.clone() },
        violations,
        Question::cost(problem, 50_000),
    ]
}

/// Site `order[k]` becomes site `k`.
fn renumbered(instance: &Instance, order: &[usize]) -> Instance {
    let square = |rows: &Vec<Vec<u32>>| {
        order.iter().map(|&i| order.iter().map(|&j| rows[i][j]).collect()).collect()
    };
    let curves = |i: usize| order.iter().map(move |&j| instance.curves[i][j].clone()).collect();
    Instance {
        demand: order.iter().map(|&i| instance.demand[i]).collect(),
        curves: order.iter().map(|&i| curves(i)).collect(),
        rtt_us: square(&instance.rtt_us),
        capacity: order.iter().map(|&i| instance.capacity[i]).collect(),
    }
}

/// Two answers to one question do not contradict each other: what one proves to be the least, the
/// other has not beaten. They are equal where both are proven.
fn agree(a: &Answer, b: &Answer) -> bool {
    let is_optimal = |of: &Answer| of.status == Status::Optimal;
    let values = |of: &Answer| (of.objective, of.lower_bound, of.redirected);
    a.excess_bound <= b.excess
        && b.excess_bound <= a.excess
        && (values(a) == values(b) || !is_optimal(a) || !is_optimal(b))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn numbers_of_sites_do_not_matter(
        family in families(),
        seed in 0..1_000_u64,
        order in Just((0..5_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let given = instance(family, 5, 4, seed);
        let (one, other) = (problem_of(given.clone()), problem_of(renumbered(&given, &order)));
        for question in questions(&one) {
            let (a, b) = (solved(&one, &question), solved(&other, &question));
            prop_assert!(agree(&a, &b), "{:?} and {:?}", a, b);
            if question.objective == Objective::Violations {
                let loads: Vec<u32> = order.iter().map(|&site| a.loads[site]).collect();
                // Ties that reach down to the numbers themselves are allowed to differ.
                prop_assert_eq!(a.violations, b.violations);
                prop_assert!(loads == b.loads || a.redirected == b.redirected);
            }
        }
    }

    #[test]
    fn the_same_question_has_the_same_answer(family in families(), seed in 0..1_000_u64) {
        let problem = problem(family, 6, 4, seed);
        for question in questions(&problem) {
            prop_assert_eq!(solved(&problem, &question), solved(&problem, &question));
        }
    }

    /// Halving the quantum allows all that was allowed before.
    #[test]
    fn a_finer_quantum_is_never_worse(family in families(), seed in 0..1_000_u64) {
        let fine = instance(family, 4, 2, seed);
        let every_other = |curve: &Vec<u32>| {
            let last = curve.last().copied();
            curve.iter().step_by(2).copied().chain(last).collect()
        };
        let coarse = Instance {
            demand: fine.demand.iter().map(|demand| demand / 2).collect(),
            curves: fine
                .curves
                .iter()
                .map(|row| row.iter().map(every_other).collect())
                .collect(),
            ..fine.clone()
        };
        let even = coarse.demand.iter().map(|demand| 2 * demand).collect();
        let fine = problem_of(Instance { demand: even, ..fine });
        let coarse = problem_of(coarse);
        for question in [Question::violations(), Question::cost(&coarse, 50_000)] {
            let (fine, coarse) = (solved(&fine, &question), solved(&coarse, &question));
            prop_assert!(fine.excess <= 2 * coarse.excess);
            if coarse.status == Status::Optimal {
                prop_assert!(fine.objective <= 2 * coarse.objective);
            }
        }
    }

    /// Who breaks its target by itself sends, who does not never does.
    #[test]
    fn targets_fix_roles(family in families(), seed in 0..1_000_u64) {
        let problem = problem(family, 6, 4, seed);
        let answer = solved(&problem, &Question::cost(&problem, 50_000));
        prop_assume!(answer.status == Status::Optimal);
        for site in 0..6 {
            let demand = problem.demand()[site];
            let breaks = problem.violation_ppm(site, site, demand) > 50_000;
            prop_assert_eq!(answer.loads[site] < demand, breaks, "site {}", site);
        }
    }

    /// With one sender the receivers' loads are a knapsack, solved quantum by quantum.
    #[test]
    fn one_sender_is_a_knapsack(family in families(), seed in 0..1_000_u64) {
        let sites = 5;
        let one = |i: usize| (0..sites).map(|_| if i == 0 { u32::MAX } else { 0 }).collect();
        let limits: Vec<Vec<u32>> = (0..sites).map(one).collect();
        let problem = problem(family, sites, 1, seed);
        let problem = problem.with_limits(&limits).unwrap();
        let answer = solved(&problem, &Question::violations());
        prop_assert_eq!(answer.status, Status::Optimal);
        prop_assert_eq!(answer.objective, knapsack(&problem));
    }
}

fn knapsack(problem: &Problem) -> u64 {
    let demand = problem.demand();
    let ppm = |i: usize, j: usize, load: u32| u64::from(problem.violation_ppm(i, j, load));
    let at = |site: usize, more: u32| {
        let load = demand[site] + more;
        u64::from(demand[site]) * ppm(site, site, load) + u64::from(more) * ppm(0, site, load)
    };
    // `least[sent]`: the best so far with so many quanta sent away.
    let mut least: Vec<u64> = vec![u64::MAX; demand[0] as usize + 1];
    least[0] = 0;
    for site in 1..demand.len() {
        let with = |sent: u32| {
            let one = |more: u32| least[(sent - more) as usize].saturating_add(at(site, more));
            (0..=sent).map(one).min().unwrap_or(u64::MAX)
        };
        least = (0..=demand[0]).map(with).collect();
    }
    let kept = |sent: u32| demand[0] - sent;
    let all = |sent: u32| least[sent as usize] + u64::from(kept(sent)) * ppm(0, 0, kept(sent));
    (0..=demand[0]).map(all).min().unwrap_or(0)
}
