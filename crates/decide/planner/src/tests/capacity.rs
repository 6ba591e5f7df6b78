//! Leaders of many databases against all assignments there are.

use super::near;
use crate::capacity::{Assignment, BadDemand, Choice, Demand, NoRoom, assign, no_room};
use evenkeel_core::rng::Rng;

fn demand(load: f64, options: &[(usize, f64)]) -> Demand {
    let options = options.iter().map(|&(site, cost)| Choice { site, cost }).collect();
    Demand { load, options }
}

/// The least excess over capacity, and the least cost with it.
fn brute_force(demands: &[Demand], capacities: &[f64]) -> (f64, f64) {
    let mut best = (f64::INFINITY, f64::INFINITY);
    let number: usize = demands.iter().map(|demand| demand.options.len()).product();
    for mut code in 0..number {
        let (mut loads, mut cost) = (vec![0.0; capacities.len()], 0.0);
        for demand in demands {
            let choice = demand.options[code % demand.options.len()];
            code /= demand.options.len();
            loads[choice.site] += demand.load;
            cost += choice.cost;
        }
        let over = loads.iter().zip(capacities).map(|(load, capacity)| (load - capacity).max(0.0));
        let excess: f64 = over.sum();
        if excess < best.0 - 1e-9 || (excess < best.0 + 1e-9 && cost < best.1) {
            best = (excess, cost);
        }
    }
    best
}

fn excess(assignment: &Assignment) -> f64 {
    assignment.over.iter().map(|over| over.load - over.capacity).sum()
}

#[test]
fn small_assignments_are_seldom_worse_than_the_best_and_the_bound_holds() {
    let mut rng = Rng::seeded(11);
    let (mut fitting, mut fitted, mut best, mut gaps) = (0, 0, 0, 0.0);
    let (mut nothing, mut explained) = (0, 0);
    for _ in 0..1_000 {
        let sites = 2 + rng.below(3);
        let demands: Vec<Demand> = (0..2 + rng.below(5))
            .map(|_| {
                let mut options: Vec<(usize, f64)> =
                    (0..sites).map(|site| (site, 1.0 + rng.below(50) as f64)).collect();
                options.truncate(1 + rng.below(sites));
                demand(1.0 + rng.below(9) as f64, &options)
            })
            .collect();
        let capacities: Vec<f64> = (0..sites).map(|_| 4.0 + rng.below(16) as f64).collect();
        let reported = assign(&demands, &capacities).unwrap();
        let (least_excess, least_cost) = brute_force(&demands, &capacities);
        assert!(excess(&reported) >= least_excess - 1e-6);
        if least_excess < 1e-9 {
            fitting += 1;
            assert!(reported.bound <= least_cost * (1.0 + 1e-9), "{} {least_cost}", reported.bound);
            if reported.over.is_empty() {
                fitted += 1;
                assert!(reported.cost >= least_cost - 1e-6);
                assert!(no_room(&demands, &capacities).unwrap().is_none());
                assert!(
                    reported.proven
                        && near(reported.cost, least_cost)
                        && near(reported.bound, least_cost)
                );
                best += usize::from(near(reported.cost, least_cost));
                gaps += reported.cost / least_cost - 1.0;
            }
        } else {
            assert!(!reported.over.is_empty(), "nothing fits, and that must be said");
            assert!(reported.proven);
            nothing += 1;
            let why = no_room(&demands, &capacities).unwrap();
            explained += usize::from(why.is_some());
        }
        // What is told agrees with itself.
        let mut loads = vec![0.0; sites];
        for (demand, site) in demands.iter().zip(&reported.sites) {
            loads[*site] += demand.load;
        }
        assert_eq!(loads, reported.loads);
    }
    println!("{fitting} fitting, {fitted} fitted, {best} best, gaps {gaps}");
    assert!(explained * 2 > nothing, "most have a plain reason: {explained} of {nothing}");
    assert!(fitting > 400, "{fitting}");
    assert!(fitted * 100 >= fitting * 99, "{fitted} of {fitting} fitted");
    assert!(best * 100 >= fitted * 95, "{best} of {fitted} are the best");
    let mean_gap = gaps / fitted as f64;
    assert!(mean_gap < 0.005, "{mean_gap}");
}

#[test]
fn who_loses_most_gets_the_full_site_and_an_infinite_capacity_takes_all() {
    let demands = [demand(10.0, &[(0, 1.0), (1, 5.0)]), demand(10.0, &[(0, 1.0), (1, 50.0)])];
    assert_eq!(assign(&demands, &[10.0, 10.0]).unwrap().sites, [1, 0]);
    let free = assign(&demands, &[f64::INFINITY, 0.0]).unwrap();
    assert_eq!((free.sites, free.cost, free.bound), (vec![0, 0], 2.0, 2.0));
}

#[test]
fn a_move_that_needs_room_gets_it_from_another_move() {
    // Regret puts the first two at 0; only 0 -> 1 and 1 -> 2 together let the third in.
    let demands = [
        demand(6.0, &[(0, 1.0), (1, 9.0)]),
        demand(6.0, &[(1, 1.0), (2, 8.0)]),
        demand(6.0, &[(0, 1.0)]),
    ];
    let reported = assign(&demands, &[6.0, 6.0, 6.0]).unwrap();
    assert_eq!((reported.sites, reported.over), (vec![1, 2, 0], vec![]));
}

#[test]
fn what_does_not_fit_is_marked_and_bad_numbers_are_named() {
    let reported = assign(&[demand(7.0, &[(0, 1.0)]), demand(7.0, &[(0, 1.0)])], &[10.0]).unwrap();
    assert_eq!(
        (reported.over[0].site, reported.over[0].load, reported.over[0].capacity),
        (0, 14.0, 10.0)
    );
    let refused = assign(&[demand(1.0, &[(3, 1.0)])], &[1.0]).unwrap_err();
    assert_eq!(refused, BadDemand::UnknownSite { database: 0, site: 3, sites: 1 });
    assert_eq!(assign(&[demand(1.0, &[])], &[1.0]), Err(BadDemand::NoOption { database: 0 }));
    let refused = assign(&[demand(1.0, &[(0, -2.0)])], &[1.0]).unwrap_err();
    assert!(refused.to_string().contains("database 0, cost of site 0: -2"), "{refused}");
    assert!(matches!(assign(&[], &[f64::NAN]), Err(BadDemand::Number { database: None, .. })));
}

#[test]
fn hundreds_of_databases_fit_with_a_small_proven_gap() {
    let mut rng = Rng::seeded(12);
    let demands: Vec<Demand> = (0..500)
        .map(|_| {
            let favourite = rng.below(4); // leaders crowd at four of twenty sites
            let mut options = vec![(favourite, 10.0 * rng.unit())];
            let quiet = 4 + rng.below(16);
            for site in 4..20 {
                if site == quiet || rng.below(3) == 0 {
                    options.push((site, 10.0 + 100.0 * rng.unit()));
                }
            }
            demand(rng.exponential() * 10.0, &options)
        })
        .collect();
    let total: f64 = demands.iter().map(|demand| demand.load).sum();
    let reported = assign(&demands, &[total / 16.0; 20]).unwrap();
    assert!(reported.over.is_empty());
    let gap = reported.cost / reported.bound - 1.0;
    println!("gap {gap}");
    assert!((0.0..0.01).contains(&gap), "{gap}");
    assert_eq!(reported, assign(&demands, &[total / 16.0; 20]).unwrap());
}

#[test]
fn what_plainly_cannot_fit_is_told_with_its_numbers() {
    let two = [demand(7.0, &[(0, 1.0), (1, 2.0)]), demand(7.0, &[(0, 1.0)])];
    assert_eq!(no_room(&two, &[10.0, 10.0]), Ok(None));
    let alone = no_room(&two, &[6.0, 9.0]).unwrap();
    let expected = NoRoom::Database { database: 1, load: 7.0, capacity_max: 6.0 };
    assert_eq!(alone, Some(expected));
    let together = no_room(&two, &[7.0, 6.0]).unwrap();
    assert_eq!(together, Some(NoRoom::Together { load: 14.0, capacity: 13.0 }));
    // A site where nobody can lead is no help, one without a limit is.
    assert!(no_room(&two, &[7.0, 6.0, 99.0]).unwrap().is_some());
    assert!(no_room(&two, &[7.0, f64::INFINITY]).unwrap().is_none());
}
