//! Steps that lead somewhere, and stay there.

use proptest::prelude::*;

use super::{at, count, ms, quick, rate, share, store};
use crate::duplicates::moves::{Arrangement, Move, Partition, Planner, Steadiness, Step};
use crate::duplicates::policy::{Objective, Prices, best, candidates};
use crate::duplicates::{Model, Question, Service, predict_partition};
use evenkeel_core::rng::Rng;
use evenkeel_core::time::Duration;
use evenkeel_core::units::Rate;

fn planner(service: &Service, model: Model) -> Planner<'_> {
    Planner {
        model,
        question: Question { effort: quick(10_000), ..Question::new(service, rate(0.0), ms(7.0)) },
        target: share(0.99),
        nodes_max: 12,
        prices: Prices::default(),
        steadiness: Steadiness::default(),
        duplicates_min: count(1),
    }
}

fn partition(shards: impl IntoIterator<Item = usize>, duplicates: u32) -> Partition {
    Partition { shards: shards.into_iter().collect(), duplicates: count(duplicates) }
}

/// Shards that together keep one duplicate this busy, by weight.
fn rates(load: f64, weights: &[f64]) -> Vec<Rate> {
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| rate(at(load, &store()).value() * weight / sum)).collect()
}

/// Every shard once, moves lead to the arrangement, outlooks are what they claim to be.
fn assert_sound(planner: &Planner<'_>, from: &Arrangement, step: &Step, rates: &[Rate]) {
    let mut to = from.clone();
    for one in &step.moves {
        to = to.after(one).unwrap();
    }
    to.partitions.retain(|partition| !partition.shards.is_empty());
    assert_eq!(to, step.arrangement);
    let mut shards: Vec<usize> =
        to.partitions.iter().flat_map(|partition| partition.shards.clone()).collect();
    shards.sort_unstable();
    assert_eq!(shards, (0..rates.len()).collect::<Vec<_>>());
    let nodes_max = from.nodes().max(planner.nodes_max.into());
    assert!(to.nodes() <= nodes_max && step.after.nodes == to.nodes());
    assert!(!step.why.is_empty());
    if step.before.meets {
        assert!(step.after.meets && step.after.cost < step.before.cost, "{step:?}");
    } else {
        assert!(step.after.violations < step.before.violations, "{step:?}");
    }
}

#[test]
fn from_one_overloaded_partition_to_the_target() {
    let service = Service::alike(store());
    for model in Model::ALL {
        let planner = planner(&service, model);
        let rates = rates(1.6, &[1.0; 8]);
        let mut now = Arrangement { partitions: vec![partition(0..8, 1)] };
        let steps = planner.plan(&now, &rates, 20).unwrap();
        assert!(!steps.is_empty() && steps.len() < 20);
        for step in &steps {
            assert_sound(&planner, &now, step, &rates);
            now = step.arrangement.clone();
        }
        let last = steps.last().unwrap();
        assert!(last.after.meets, "{model:?}: {last:?}");
        // Not worse than the best even policy by more than a node.
        let service = &service;
        let total = rates.iter().map(|rate| rate.value()).sum();
        let question = Question { rate: rate(total), service, ..planner.question };
        let objective = Objective { target: planner.target, nodes_max: 12, prices: planner.prices };
        let all = candidates(model, &question, &objective).unwrap();
        let fewest = best(&all).unwrap().policy.nodes();
        assert!(last.after.nodes <= fewest + 1, "{model:?}: {last:?} of {fewest}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// From anywhere: sound steps that end, and end where nothing more is worth it.
    #[test]
    fn plans_are_sound_and_end(
        load in 0.1..4.0_f64, weights in prop::collection::vec(0.1..3.0_f64, 1..9),
        at_first in prop::collection::vec((0..4_usize, 1..4_u32), 1..9), seed in 0..99_u64,
    ) {
        let service = Service::alike(store());
        let mut planner = planner(&service, Model::Paper);
        planner.question.effort.seed = seed;
        let rates = rates(load, &weights);
        let mut now = Arrangement { partitions: Vec::new() };
        for shard in 0..weights.len() {
            let (place, duplicates) = at_first[shard % at_first.len()];
            if place < now.partitions.len() {
                now.partitions[place].shards.push(shard);
            } else {
                now.partitions.push(partition([shard], duplicates));
            }
        }
        let steps = planner.plan(&now, &rates, 40).unwrap();
        prop_assert!(steps.len() < 40, "{} steps", steps.len());
        for step in &steps {
            assert_sound(&planner, &now, step, &rates);
            now = step.arrangement.clone();
        }
        prop_assert_eq!(planner.next(&now, &rates, None).unwrap(), None);
    }
}

#[test]
fn a_shard_that_grows_hot_gets_help_and_the_others_stay() {
    let service = Service::alike(store());
    let planner = planner(&service, Model::Lindley);
    let now = Arrangement { partitions: vec![partition(0..4, 2), partition(4..8, 2)] };
    let mut weights = [1.0; 8];
    let even = rates(0.5, &weights);
    assert!(planner.outlook(&now, &even).unwrap().meets);
    // Shard 0 alone has as much as the second partition.
    weights[0] = 5.0;
    let hot = rates(0.5 * 12.0 / 8.0, &weights);
    let step = planner.next(&now, &hot, Some(Duration::from_secs(1))).unwrap();
    let step = step.expect("the target is missed: no rest");
    assert_sound(&planner, &now, &step, &hot);
    assert!(step.after.meets && !step.before.meets, "{step:?}");
    // What the other partition has, it keeps.
    assert!(
        step.arrangement
            .partitions
            .iter()
            .any(|part| { (4..8).all(|shard| part.shards.contains(&shard)) }),
        "{step:?}"
    );
}

/// Load between the two limits changes nothing; noise does not lead back and forth.
#[test]
fn noise_does_not_move_shards_back_and_forth() {
    let service = Service::alike(store());
    let planner = planner(&service, Model::Lindley);
    let mut now = Arrangement { partitions: vec![partition(0..8, 1)] };
    let mut rng = Rng::seeded(8);
    let mut seen: Vec<Arrangement> = vec![now.clone()];
    let mut late_steps = 0;
    for round in 0..60 {
        let load = 1.0 + 0.16 * (rng.unit() - 0.5);
        let weights: Vec<f64> = (0..8).map(|_| 1.0 + 0.1 * (rng.unit() - 0.5)).collect();
        if let Some(step) = planner.next(&now, &rates(load, &weights), None).unwrap() {
            now = step.arrangement;
            assert!(!seen.contains(&now), "back again in round {round}");
            seen.push(now.clone());
            late_steps += usize::from(round >= 10);
        }
    }
    assert!(late_steps <= 1, "{late_steps} steps after it had settled");
}

#[test]
fn nodes_are_given_back_with_room_to_spare_and_after_a_rest() {
    let service = Service::alike(store());
    let planner = planner(&service, Model::Lindley);
    let now = Arrangement { partitions: vec![partition(0..4, 3), partition(4..8, 3)] };
    let night = rates(0.2, &[1.0; 8]);
    let soon = planner.next(&now, &night, Some(Duration::from_secs(60))).unwrap();
    assert_eq!(soon, None);
    let later = planner.next(&now, &night, Some(Duration::from_secs(601))).unwrap().unwrap();
    assert!(later.after.nodes < 6 && later.after.has_room, "{later:?}");
    // Not if copies cost more than the nodes saved in four hours.
    let mut dear = planner.clone();
    dear.steadiness.migration = 1e9;
    let cheap = dear.next(&now, &night, None).unwrap().unwrap();
    assert_eq!(cheap.copies, 0, "{cheap:?}");
}

/// Two partitions of four where three nodes are allowed: no single step gets there.
#[test]
fn from_more_nodes_than_allowed_steps_lead_down() {
    let service = Service::alike(store());
    let planner = Planner { nodes_max: 3, ..planner(&service, Model::Lindley) };
    let mut now = Arrangement { partitions: vec![partition(0..4, 4), partition(4..8, 4)] };
    let night = rates(0.2, &[1.0; 8]);
    let steps = planner.plan(&now, &night, 20).unwrap();
    assert!(steps.len() < 20);
    for step in &steps {
        assert_sound(&planner, &now, step, &night);
        now = step.arrangement.clone();
    }
    assert!(now.nodes() <= 3, "{now:?}");
}

#[test]
fn moves_that_make_no_sense_are_refused() {
    let now = Arrangement { partitions: vec![partition([0], 1)] };
    for wrong in [
        Move::Add { partition: 1 },
        Move::Remove { partition: 0 },
        Move::Shard { shard: 1, from: 0, to: 0 },
        Move::Shard { shard: 0, from: 0, to: 1 },
        Move::Open { shard: 0, from: 3, duplicates: count(1) },
    ] {
        assert!(now.after(&wrong).is_err(), "{wrong:?}");
    }
    let service = Service::alike(store());
    assert!(planner(&service, Model::Paper).outlook(&now, &[]).is_err());
    let nobody = planner(&service, Model::Paper).outlook(&now, &[rate(0.0)]).unwrap();
    assert_eq!((nobody.violations, nobody.meets), (0.0, true));
}

/// Interpolated outlooks are near what is simulated at that very rate.
#[test]
fn outlooks_are_those_of_the_model() {
    let service = Service::alike(store());
    for model in Model::ALL {
        let planner = planner(&service, model);
        let now = Arrangement { partitions: vec![partition([0, 1], 2), partition([2], 1)] };
        let rates = rates(0.6, &[0.7, 1.1, 0.9]);
        let reported = planner.outlook(&now, &rates).unwrap().violations;
        let of = |load: f64, duplicates| {
            predict_partition(model, &planner.question, rate(load), count(duplicates))
                .unwrap()
                .violations
        };
        let [a, b, c] = [0, 1, 2].map(|n: usize| rates[n].value());
        let expected = ((a + b) * of(a + b, 2) + c * of(c, 1)) / (a + b + c);
        assert!(
            (reported / expected - 1.0).abs() < 0.02,
            "{model:?}: {reported} is not {expected}"
        );
    }
}
