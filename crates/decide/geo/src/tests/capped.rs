//! Where loads are capped: never worse than no plan, nor than a plan that may overload.

use proptest::prelude::*;

use super::super::{Effort, Overload, Problem, Question, Status};
use super::solved;

/// A data centre: quanta that saturate it, those that come, how sharp its knee is, whether it is
/// lost.
type Site = (u32, u32, u32, bool);

fn site() -> impl Strategy<Value = Site> {
    let capacity = prop_oneof![3..40_u32, 40..400_u32, 400..3_000_u32];
    capacity.prop_flat_map(|capacity| {
        let demand = prop_oneof![1 => 0..=capacity * 3 / 4, 2 => capacity / 2..=capacity * 3 / 2];
        (Just(capacity), demand, 2..40_u32, prop::bool::weighted(0.15))
    })
}

/// Requests late inside a data centre, nearly none up to a knee, all from saturation on; `more` of
/// the others are late on the way.
fn curve((capacity, _, sharp, is_lost): Site, more: f64) -> Vec<u32> {
    let late = |load: u32| {
        let free = 1.0 - f64::from(load) / f64::from(capacity);
        let late = if free <= 0.0 { 1.0 } else { (-f64::from(sharp) * free).exp() };
        ((late + (1.0 - late) * more) * 1e6) as u32
    };
    if is_lost { vec![1_000_000] } else { (0..=capacity).map(late).collect() }
}

fn problem(sites: &[Site], ways: &[f64]) -> Problem {
    let way = |i: usize, j: usize| if i == j { 0.0 } else { ways[i.abs_diff(j) % ways.len()] };
    let row = |i: usize| (0..sites.len()).map(|j| curve(sites[j], way(i, j))).collect();
    let demand = sites.iter().map(|site| site.1).collect();
    let problem = Problem::new(demand, (0..sites.len()).map(row).collect()).unwrap();
    let saturation = sites.iter().map(|site| if site.3 { 0 } else { site.0 }).collect();
    problem.with_saturation(saturation).unwrap()
}

/// What misses the objective if all that is planned to be shed is load at home instead.
fn unshed(problem: &Problem, rates: &[Vec<u32>], shed: &[u32]) -> u64 {
    let sites = 0..problem.sites();
    let quanta = |i: usize, j: usize| rates[i][j] + if i == j { shed[i] } else { 0 };
    let late = |j: usize| -> u64 {
        let load = sites.clone().map(|i| quanta(i, j)).sum();
        let of = |i| u64::from(quanta(i, j)) * u64::from(problem.violation_ppm(i, j, load));
        sites.clone().map(of).sum()
    };
    sites.clone().map(late).sum()
}

fn all_local(problem: &Problem) -> u64 {
    let late = |(site, &demand): (usize, &u32)| {
        u64::from(demand) * u64::from(problem.violation_ppm(site, site, demand))
    };
    problem.demand().iter().enumerate().map(late).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_plan_that_may_overload_is_better(
        sites in prop::collection::vec(site(), 2..5),
        ways in prop::collection::vec(prop_oneof![Just(0.0), 0.0..0.1, 0.1..1.0], 2),
        price in 1..90_000_u32,
    ) {
        let problem = problem(&sites, &ways);
        let effort = Effort { work_max: 20_000_000, work_exact: 20_000_000, tolerance: 0 };
        let asked = |overload| Question { overload, effort, ..Question::violations() };
        let capped = solved(&problem, &asked(Overload::Capped));
        for site in 0..sites.len() {
            let at = problem.violation_ppm(site, site, capped.loads[site]);
            prop_assert!(capped.loads[site] == 0 || at < 1_000_000, "all late at {}", site);
        }
        let local = all_local(&problem);
        prop_assert!(capped.violations <= local);
        prop_assert!(unshed(&problem, &capped.rates, &capped.shed) <= local, "without a dimmer");
        // Shares of sites that shed are rounded up to parts per million.
        let rounded = u64::from(problem.demand_total());
        for overload in [Overload::Curve, Overload::Priced(price)] {
            let other = solved(&problem, &asked(overload));
            let most = other.violations + rounded + (capped.objective - capped.lower_bound);
            prop_assert!(capped.violations <= most, "{:?} has {}", overload, other.violations);
        }
    }
}

/// Two that are as full as they may be and one that lost a third of its servers.
#[test]
fn a_site_that_lost_servers_does_not_fill_the_others_until_all_are_late() {
    let sites = [(100, 94, 20, false), (100, 70, 20, false), (60, 85, 20, false)];
    let problem = problem(&sites, &[0.02, 0.9]);
    let question = Question { overload: Overload::Capped, ..Question::violations() };
    let capped = solved(&problem, &question);
    assert!(capped.proven && capped.redirected > 0);
    assert!(capped.violations < all_local(&problem) / 2, "{capped:?}");
    assert!(unshed(&problem, &capped.rates, &capped.shed) < all_local(&problem));
}

/// A target allows 5 % to be late, and shedding them would save redirects.
#[test]
fn nothing_is_shed_to_save_redirects() {
    let sites = [(100, 150, 2_000, false), (100, 30, 2_000, false)];
    let capped = |sites: &[Site]| {
        let problem = problem(sites, &[0.0]);
        let question = Question::cost(&problem, 50_000);
        solved(&problem, &Question { overload: Overload::Capped, ..question })
    };
    let answer = capped(&sites);
    assert_eq!((answer.status, answer.shed, answer.redirected), (Status::Optimal, vec![0, 0], 51));
    // Without room for them 5 % may be shed, and are.
    let full = [sites[0], (100, 51, 2_000, false)];
    let answer = capped(&full);
    assert_eq!((answer.status, answer.shed, answer.redirected), (Status::Optimal, vec![7, 0], 44));
}
