//! Figure 9 and its cost.

use super::{at, count, ms, quick, rate, store};
use crate::duplicates::night::{Group, Idea, Night, Setup};
use crate::duplicates::policy::Prices;
use crate::duplicates::{Model, Question, Service, predict_partition};
use evenkeel_core::time::Duration;

fn night(service: &Service) -> Night<'_> {
    let day_rate = at(0.4, &store());
    Night {
        question: Question { effort: quick(50_000), ..Question::new(service, rate(0.0), ms(7.0)) },
        nodes: count(6),
        shards: count(6),
        day_rate,
        night_rate: rate(day_rate.value() / 2.0),
        duplicates_max: count(2),
        prices: Prices { per_node: 0.003 / 3_600.0, per_violation: 0.068e-3 },
        length: Duration::from_secs(4 * 3_600),
        migration_violations: 100.0,
    }
}

fn by_idea(setups: &[Setup], idea: Idea) -> &Setup {
    setups.iter().find(|setup| setup.idea == idea).unwrap()
}

fn group(partitions: u32, shards: u32, duplicates: u32) -> Group {
    Group { partitions, shards, duplicates: count(duplicates) }
}

#[test]
fn six_nodes_are_set_up_as_in_figure_9() {
    let service = Service::alike(store());
    let setups = night(&service).setups(Model::Lindley).unwrap();
    let of = |idea| by_idea(&setups, idea);
    assert_eq!(of(Idea::AsByDay).groups, [group(6, 1, 1)]);
    assert_eq!(of(Idea::Saving).groups, [group(3, 2, 1)]);
    assert_eq!(of(Idea::Naive).groups, [group(3, 2, 2)]);
    assert_eq!(of(Idea::Sparing).groups, [group(2, 2, 1), group(2, 1, 2)]);
    let nodes: Vec<u64> = setups.iter().map(|setup| setup.nodes).collect();
    assert_eq!(nodes, [6, 3, 6, 6]);
    // "4 shard migrations", and back "2 more".
    let sparing = of(Idea::Sparing);
    assert_eq!((sparing.copies_down, sparing.copies_back), (4, 2));
    assert_eq!((of(Idea::Saving).copies_down, of(Idea::Saving).copies_back), (3, 3));
    assert_eq!((of(Idea::AsByDay).copies_down, of(Idea::AsByDay).copies_back), (0, 0));
}

#[test]
fn violations_and_costs_are_those_of_the_partitions() {
    let service = Service::alike(store());
    let night = night(&service);
    let setups = night.setups(Model::Paper).unwrap();
    let late = |shards: f64, duplicates| {
        let rate = rate(shards * night.night_rate.value());
        let reported = predict_partition(Model::Paper, &night.question, rate, count(duplicates));
        reported.unwrap().violations
    };
    let sparing = by_idea(&setups, Idea::Sparing);
    let expected = (4.0 * late(2.0, 1) + 2.0 * late(1.0, 2)) / 6.0;
    assert!((sparing.violations - expected).abs() < 1e-15);
    let accesses = 6.0 * night.night_rate.value() * 14_400.0;
    assert!((sparing.late / (expected * accesses) - 1.0).abs() < 1e-12);
    let cost = 6.0 * 0.003 * 4.0 + expected * accesses * 0.068e-3;
    assert!((sparing.cost / cost - 1.0).abs() < 1e-12);
    let migration = 6.0 * 100.0 * 0.068e-3;
    assert!((sparing.cost_with_migration - cost - migration).abs() < 1e-9);
    // The paper's promise, for its model: fewer violations than the naive setup has, whose
    // duplicates are as busy as a node by day; and far fewer than switching nodes off.
    let saving = by_idea(&setups, Idea::Saving);
    assert!(sparing.violations < 0.8 * saving.violations, "{sparing:?} {saving:?}");
}

#[test]
fn general_numbers_add_up() {
    let service = Service::alike(store());
    for (nodes, shards, part) in [(5, 5, 2.0), (7, 20, 3.0), (4, 9, 1.5), (1, 1, 2.0), (6, 6, 1e9)]
    {
        let base = night(&service);
        let night = Night {
            nodes: count(nodes),
            shards: count(shards),
            night_rate: rate(base.day_rate.value() / part),
            duplicates_max: count(3),
            ..base
        };
        let peak = night.day_rate.value() * f64::from(shards.div_ceil(nodes));
        for setup in night.setups(Model::Paper).unwrap() {
            let sum = |of: fn(&Group) -> u32| -> u32 { setup.groups.iter().map(of).sum() };
            assert_eq!(sum(|group| group.partitions * group.shards), shards, "{setup:?}");
            assert_eq!(
                u64::from(sum(|group| group.partitions * group.duplicates.get())),
                setup.nodes
            );
            assert!(setup.nodes <= u64::from(nodes), "{setup:?}");
            assert!(setup.copies_back <= setup.copies_down, "{setup:?}");
            for group in &setup.groups {
                let rate = night.night_rate.value() * f64::from(group.shards);
                assert!(rate <= peak * (1.0 + 1e-9), "{setup:?}");
            }
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let service = Service::alike(store());
    let base = night(&service);
    assert!(Night { shards: count(5), ..base }.setups(Model::Paper).is_err());
    let more = rate(2.0 * base.day_rate.value());
    assert!(Night { night_rate: more, ..base }.setups(Model::Paper).is_err());
    let silent = Night { night_rate: rate(0.0), ..base }.setups(Model::Paper).unwrap();
    assert_eq!(by_idea(&silent, Idea::Saving).nodes, 1);
}
