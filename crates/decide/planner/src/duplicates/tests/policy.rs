//! The search against all policies one by one, and against table 4.

use proptest::prelude::*;

use super::{ask, at, count, ms, rate, share, store};
use crate::duplicates::policy::{
    Objective, Prices, best, better_up_to, candidates, duplicates_worthwhile, policies,
};
use crate::duplicates::{Law, Model, Policy, Question, Service, Times, predict, predict_partition};
use evenkeel_core::units::Weight;

fn objective(target: f64, nodes_max: u32, per_violation: f64) -> Objective {
    let prices = Prices { per_node: 1.0, per_violation };
    Objective { target: share(target), nodes_max, prices }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_best_is_the_best_of_all(
        load in 0.05..3.0_f64, bound_ms in 2.0..12.0_f64, target in 0.5..0.9999_f64,
        nodes_max in 1..13_u32, per_violation in prop::sample::select(vec![0.0, 0.01, 1.0]),
    ) {
        let service = Service::alike(store());
        let question = Question::new(&service, at(load, &store()), ms(bound_ms));
        let objective = objective(target, nodes_max, per_violation);
        let all = candidates(Model::Paper, &question, &objective).unwrap();
        // One by one: (cost, nodes, violations) of each that meets the target.
        let mut meeting = Vec::new();
        let mut possible = 0;
        for partitions in 1..=nodes_max {
            for duplicates in 1..=nodes_max {
                if partitions * duplicates > nodes_max {
                    continue;
                }
                possible += 1;
                let policy = Policy::new(partitions, duplicates).unwrap();
                let late = predict(Model::Paper, &question, policy).unwrap().violations;
                let nodes = f64::from(partitions * duplicates);
                if 1.0 - late >= target {
                    let cost = nodes + question.rate.value() * late * per_violation;
                    meeting.push((cost, nodes, late, policy));
                }
            }
        }
        prop_assert_eq!(all.len(), possible);
        meeting.sort_by(|a, b| {
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2))
        });
        let reported = best(&all);
        prop_assert_eq!(reported.is_some(), !meeting.is_empty());
        if let Some(reported) = reported {
            let (cost, nodes, late, _) = meeting[0];
            prop_assert!((reported.cost - cost).abs() <= 1e-9 * cost);
            prop_assert_eq!(reported.policy.nodes() as f64, nodes);
            prop_assert_eq!(reported.prediction.violations, late);
        }
    }
}

#[test]
fn all_policies_are_looked_at_once() {
    let all = policies(12, None);
    // Σ floor(12 / p): 12+6+4+3+2+2+1+1+1+1+1+1.
    assert_eq!(all.len(), 35);
    assert!(all.is_sorted_by(|a, b| (a.nodes(), a.partitions) < (b.nodes(), b.partitions)));
    assert!(policies(12, Some(2)).iter().all(|policy| policy.duplicates.get() <= 2));
    assert!(policies(0, None).is_empty());
}

/// A store in which single duplicates keep 94 % within 3.5 ms when idle, as section 4 says.
fn zookeeper() -> Times {
    let sigma: f64 = 0.37;
    let body = Law::LogNormal {
        mean: ms(1.66 * (0.5 * sigma * sigma).exp()),
        cv: (sigma * sigma).exp_m1().sqrt(),
    };
    let tail = Law::Pareto { minimum: ms(3.454), shape: 2.2, maximum: None };
    let weight = |value| Weight::new(value).unwrap();
    Times::mixed(&[(weight(0.96), body), (weight(0.04), tail)]).unwrap()
}

/// The paper's choice for so many accesses an hour: of its eight candidates the one with the fewest
/// nodes that keeps 98 % within 3.5 ms.
fn table_4(accesses_per_hour: f64) -> String {
    let service = Service::alike(zookeeper());
    let question = Question::new(&service, rate(accesses_per_hour / 3_600.0), ms(3.5));
    let eight = ["8p/1d", "4p/2d", "2p/4d", "6p/1d", "3p/2d", "2p/3d", "4p/1d", "2p/2d"];
    let all = candidates(Model::Paper, &question, &objective(0.98, 8, 0.0)).unwrap();
    let asked: Vec<_> =
        all.into_iter().filter(|one| eight.contains(&&*one.policy.to_string())).collect();
    assert_eq!(asked.len(), 8);
    best(&asked).map_or_else(|| "none".to_owned(), |best| best.policy.to_string())
}

/// Table 4 with two slips.
///
/// Its first column, 2K accesses an hour, says 4p/1d. Section 4 says that partitions alone keep
/// less than 94 % within 3.5 ms, so that it cannot be meant: 2p/2d has as many nodes.
///
/// Its third and fourth contradict each other as printed. 1M on 2p/2d and 1.5M on 3p/2d are the
/// same 500K on each of two duplicates, for which the model says the same by section 4's own words;
/// yet 2p/3d at 1M says that they miss the target and 3p/2d at 1.5M that they keep it. Rates are
/// rounded:
/// 1.03M and 1.47M would be printed alike and agree.
#[test]
fn table_4_is_reproduced_but_for_two_slips() {
    assert_eq!(table_4(850e3), "2p/2d");
    assert_eq!(table_4(1.03e6), "2p/3d");
    assert_eq!(table_4(1.47e6), "3p/2d");
    assert_eq!(table_4(1.9e6), "4p/2d");
    // The paper prints 4p/1d.
    assert_eq!(table_4(2e3), "2p/2d");
    let service = Service::alike(zookeeper());
    let of = |accesses: f64, policy: Policy| {
        let question = Question::new(&service, rate(accesses / 3_600.0), ms(3.5));
        predict(Model::Paper, &question, policy).unwrap().violations
    };
    let four = of(2e3, Policy::new(4, 1).unwrap());
    assert!((0.055..0.065).contains(&four), "{four}");
    // As printed, both or neither meet the target.
    let printed = of(1e6, Policy::new(2, 2).unwrap()) / of(1.5e6, Policy::new(3, 2).unwrap());
    assert!((printed - 1.0).abs() < 1e-9);
}

/// Figure 7: duplicates win at low load, partitions at high; our model sees no cliff between.
#[test]
fn more_load_wants_more_partitions() {
    let service = Service::alike(store());
    let most = at(4.0, &store());
    let question = ask(&service, most, ms(7.0), 30_000);
    let policy = |p, d| Policy::new(p, d).unwrap();
    for model in Model::ALL {
        let cross = |first, second| {
            better_up_to(model, &question, first, second, most).unwrap().unwrap().value()
        };
        let mixed = cross(policy(1, 4), policy(2, 2));
        let parted = cross(policy(2, 2), policy(4, 1));
        assert!(mixed < parted, "{model:?}: {mixed} {parted}");
        // One duplicate of four has all the load: it is lost before 1 of 4.
        assert!(mixed < most.value() / 4.0, "{model:?}: {mixed}");
        let never = better_up_to(model, &question, policy(4, 1), policy(4, 2), most).unwrap();
        assert_eq!(never, None);
        let always = better_up_to(model, &question, policy(4, 2), policy(4, 1), at(3.0, &store()));
        assert_eq!(always.unwrap(), Some(at(3.0, &store())));
    }
}

#[test]
fn a_multicast_that_costs_time_bounds_the_number_of_duplicates() {
    let service = Service::alike(store());
    let free = ask(&service, at(0.2, &store()), ms(4.0), 30_000);
    let costly = Question { repeat: ms(0.25), ..free };
    let most = count(8);
    let prices = Prices::default();
    for model in Model::ALL {
        let of = |question: &Question<'_>| {
            duplicates_worthwhile(model, question, question.rate, prices, most).unwrap().get()
        };
        let useful = of(&costly);
        assert!(of(&free) > useful, "{model:?}");
        assert!((2..8).contains(&useful), "{model:?}: {useful}");
        // And the next one indeed masks less than it delays.
        let late = |n| predict_partition(model, &costly, costly.rate, count(n)).unwrap().violations;
        assert!(late(useful + 1) > 0.9 * late(useful), "{model:?}");
        assert!(late(useful) < late(useful - 1), "{model:?}");
    }
}

/// With prices a duplicate must avoid violations for its money (figure 8).
#[test]
fn duplicates_pay_where_violations_are_dear() {
    let service = Service::alike(store());
    let question = Question::new(&service, at(0.1, &store()), ms(5.0));
    let worthwhile = |per_violation| {
        let prices = Prices { per_node: 1.0, per_violation };
        let most = count(8);
        duplicates_worthwhile(Model::Paper, &question, question.rate, prices, most).unwrap().get()
    };
    let late = |n: u32| {
        let policy = Policy::new(1, n).unwrap();
        question.rate.value() * predict(Model::Paper, &question, policy).unwrap().violations
    };
    // The price at which the second duplicate is worth its node, by the cost of section 4.
    let price = 1.0 / (late(1) - late(2));
    assert_eq!([worthwhile(0.99 * price), worthwhile(1.01 * price)], [1, 2]);
    assert!(worthwhile(1e9) > 4);
}

#[test]
fn a_prediction_near_the_target_is_not_sure() {
    let service = Service::alike(store());
    let question = ask(&service, at(0.3, &store()), ms(7.0), 20_000);
    let policy = Policy::new(1, 2).unwrap();
    let reported = predict(Model::Lindley, &question, policy).unwrap();
    let judged = |target: f64| {
        let all = candidates(Model::Lindley, &question, &objective(target, 2, 0.0)).unwrap();
        let one = all.into_iter().find(|one| one.policy == policy).unwrap();
        (one.meets, one.is_sure)
    };
    let near = 1.0 - reported.violations;
    assert!(!judged(near - 0.5 * reported.standard_error).1);
    assert_eq!(judged(near - 5.0 * reported.standard_error), (true, true));
    assert_eq!(judged(near + 5.0 * reported.standard_error), (false, true));
}
