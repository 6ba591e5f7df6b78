//! Groups as data, the rule by which they are spread, and the time for which it must hold.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use evenkeel_runtime::accept::first;

fn at(port: u16) -> Endpoint {
    Endpoint { host: "127.0.0.1".to_owned(), port }
}

/// Processes by their first doors lead these groups.
fn known(leaders: &[u16], there: &[u16]) -> Known {
    let holder = |(number, first): (usize, &u16)| {
        Holder::of(&format!("127.0.0.1:1 (process 1, cluster {})", at(first + number as u16)))
    };
    let holders = leaders.iter().enumerate().map(holder).collect();
    let at = there.iter().copied().map(at).collect();
    let processes = Processes { at, epoch: 1, loads: Loads::new() };
    Known { processes, ..Known { holders, ..Known::nothing(leaders.len()) } }
}

/// The same, with loads of the groups.
fn loaded(leaders: &[u16], there: &[u16], loads: &[u64]) -> Known {
    let mut known = known(leaders, there);
    known.processes.loads = loads.iter().copied().map(Some).collect();
    known
}

#[test]
fn every_slot_and_every_partition_is_of_one_group() {
    for of in [1, 2, 3, 4, 7, 16, 64] {
        let mut next = 0;
        for group in Group::all(of) {
            let (first, last) = group.slots();
            assert_eq!(usize::from(first), next, "{group:?}");
            next = usize::from(last) + 1;
            let partitions = group.share(of + 3);
            assert!((1..=4).contains(&partitions.len()) && partitions.end <= of + 3, "{group:?}");
        }
        assert_eq!(next, usize::from(SLOTS));
    }
    assert_eq!(Group::default().slots(), (0, 16_383));
}

#[test]
fn each_group_has_its_door_at_each_process() {
    let groups = known(&[100, 200, 100], &[100, 200]).slot_groups();
    let leaders: Vec<_> = groups.iter().map(|it| it.leader.clone().unwrap().port).collect();
    assert_eq!(leaders, [100, 201, 102]);
    assert_eq!(groups[1].nodes, [at(101), at(201)]);
    assert_eq!((groups[0].slots.0, groups[2].slots.1), (0, 16_383));
    let last = Group { number: 3, of: 4 };
    assert_eq!(last.first_door(&at(203)), Some(at(200)));
    assert_eq!((last.first_door(&at(3)), last.door(&at(65_535))), (None, None));
}

#[test]
fn one_process_hands_one_group_over_and_nobody_does_while_something_is_under_way() {
    let asked = |leaders: &[u16], there: &[u16]| -> Vec<Option<usize>> {
        let known = known(leaders, there);
        there.iter().map(|own| known.hands_over(&at(*own))).collect()
    };
    assert_eq!(asked(&[100; 4], &[100, 200, 300]), [Some(3), None, None]);
    assert_eq!(asked(&[100, 100, 200, 200], &[100, 200, 300]), [None, Some(3), None]);
    assert_eq!(asked(&[100, 100, 200, 300], &[100, 200, 300]), [None; 3], "even enough");
    assert_eq!(asked(&[100, 100, 100, 300], &[100, 200]), [None; 2], "300 is not there any more");
    assert_eq!(asked(&[100; 4], &[200]), [None], "the list does not have who leads");
    let mut vacant = known(&[100; 4], &[100, 200]);
    vacant.holders[2] = Holder::default();
    assert_eq!(vacant.hands_over(&at(100)), None);
}

#[test]
fn the_hottest_process_hands_over_the_group_that_makes_both_most_alike() {
    let asked = |leaders: &[u16], loads: &[u64]| -> Vec<Option<usize>> {
        let known = loaded(leaders, &[100, 200], loads);
        [100, 200].map(|own| known.hands_over(&at(own))).to_vec()
    };
    let even = [100, 100, 200, 200];
    assert_eq!(asked(&even, &[9_000, 3_000, 100, 100]), [Some(1), None], "9,000 would only move");
    assert_eq!(asked(&even, &[5_000, 4_000, 100, 100]), [Some(1), None]);
    assert_eq!(asked(&even, &[9_000, 0, 100, 100]), [None; 2], "a hot group alone: nothing helps");
    assert_eq!(asked(&even, &[5_000, 4_000, 4_200, 3_900]), [None; 2], "less than a tenth");
    assert_eq!(asked(&even, &[90, 30, 1, 1]), [None; 2], "hardly any load");
    assert_eq!(asked(&[100; 4], &[90, 30, 1, 1]), [Some(3), None], "then their number counts");
    let uneven = [100, 200, 200, 200];
    assert_eq!(asked(&uneven, &[9_000, 2_800, 3_100, 3_000]), [None; 2], "loads, not numbers");
    let mut partly = loaded(&[100; 4], &[100, 200], &[4_000, 4_000]);
    assert_eq!(partly.hands_over(&at(100)), Some(1), "of the others nothing is known");
    partly.processes.loads = vec![Some(u64::from(u32::MAX)); 9];
    assert!(partly.hands_over(&at(100)).is_some(), "whatever a process says");
}

#[test]
fn who_has_least_load_takes_a_group_at_once() {
    let known = loaded(&[100, 100, 200, 300], &[100, 200, 300], &[500, 500, 5_000, 3_000]);
    let waits: Vec<_> = [100, 200, 300].map(|own| known.waits(&at(own))).to_vec();
    assert_eq!(waits, [0, 2, 1]);
}

#[test]
fn who_leads_least_takes_a_group_at_once() {
    let known = known(&[100, 100, 100, 100, 100, 200], &[100, 200, 300]);
    let waits: Vec<_> = [100, 200, 300].map(|own| known.waits(&at(own))).to_vec();
    assert_eq!(waits, [WAITS_MAX, 1, 0]);
    assert_eq!(Known::nothing(4).waits(&at(100)), 0, "who knows nobody takes it");
}

proptest! {
    /// However groups are led at first, they are spread within a number of hand-overs that is less
    /// than that of groups, one at a time, and then all stays as it is.
    #[test]
    fn hand_overs_end_with_even_shares(
        first in prop::collection::vec(0..5_usize, 1..40),
        there in 1..5_usize,
    ) {
        let there: Vec<usize> = (0..there).collect();
        let mut leaders: Vec<_> = first.iter().map(|it| Some(it % there.len())).collect();
        let mut moves = 0;
        loop {
            let mut wishes = Vec::new();
            let alike: Vec<_> = leaders.iter().map(|leader| (*leader, 1)).collect();
            for own in &there {
                wishes.extend(to_hand_over(&alike, &there, own).map(|group| (own, group)));
            }
            let loads: BTreeMap<_, _> = there
                .iter()
                .map(|it| (it, leaders.iter().flatten().filter(|by| *by == it).count()))
                .collect();
            let (least, most) = (loads.values().min().unwrap(), loads.values().max().unwrap());
            prop_assert_eq!(wishes.is_empty(), most - least < 2);
            let Some((own, group)) = wishes.pop() else { break };
            prop_assert!(wishes.is_empty() && leaders[group] == Some(*own));
            leaders[group] = there.iter().copied().min_by_key(|it| loads[it]);
            moves += 1;
            prop_assert!(moves < leaders.len());
        }
    }

    /// Whatever the loads are, hand-overs end soon, and then no group could make the two that
    /// differ most more alike by a tenth.
    #[test]
    fn hand_overs_by_load_end_where_no_group_would_help(
        groups in prop::collection::vec((0..5_usize, 0..100_000_u64), 1..40),
        there in 1..5_usize,
    ) {
        let there: Vec<usize> = (0..there).collect();
        let loads: Vec<_> = groups.iter().map(|(_, load)| Some(*load)).collect();
        let leaders = groups.iter().map(|(by, _)| Some(by % there.len()));
        let mut groups: Vec<_> = leaders.zip(weights(&loads, loads.len())).collect();
        let mut moves = 0;
        loop {
            let wish = |own: &usize| Some((*own, to_hand_over(&groups, &there, own)?));
            let wishes: Vec<_> = there.iter().filter_map(wish).collect();
            let weighed = there.iter().map(|it| (weight_of(&groups, it), *it));
            let (most, least) = (weighed.clone().max().unwrap(), weighed.min().unwrap());
            let Some((own, group)) = wishes.first().copied() else {
                let helps = |(leader, weight): &(Option<usize>, u64)| {
                    let after = (most.0 - weight.min(&most.0)).max(least.0 + weight);
                    *leader == Some(most.1) && after < most.0 - most.0 / 10
                };
                prop_assert!(!groups.iter().any(helps));
                break;
            };
            prop_assert!(wishes.len() == 1 && own == most.1);
            groups[group].0 = Some(least.1);
            moves += 1;
            prop_assert!(moves < 3 * groups.len() + 3);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_is_handed_over_once_that_has_been_wanted_for_a_while() {
    let (even, uneven) = (known(&[100, 200], &[100, 200]), known(&[100, 100], &[100, 200]));
    let sender = watch::Sender::new(even.clone());
    let (last, settled) = (Group { number: 1, of: 2 }, Duration::from_secs(4));
    let own = at(100);
    let is_due = async |within: u64| {
        let due = async {
            until_due(sender.subscribe(), (last, &own), settled).await;
            true
        };
        let late = async {
            tokio::time::sleep(Duration::from_secs(within)).await;
            false
        };
        first(due, late).await
    };
    assert!(!is_due(100).await, "both lead as much");
    sender.send_replace(uneven.clone());
    let flapping = async {
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_secs(3)).await;
            sender.send_replace(known(&[100, 100], &[100])); // the other one has died again
            tokio::time::sleep(Duration::from_secs(1)).await;
            sender.send_replace(uneven.clone());
        }
        false
    };
    assert!(!first(is_due(1_000), flapping).await);
    assert!(!is_due(3).await);
    assert!(is_due(5).await);
}

#[tokio::test(start_paused = true)]
async fn a_load_must_have_called_for_it_for_half_a_minute() {
    let hot = loaded(&[100, 100, 200, 200], &[100, 200], &[5_000, 4_000, 100, 100]);
    let sender = watch::Sender::new(hot.clone());
    let own = at(100);
    let group = Group { number: 1, of: 4 };
    let began = tokio::time::Instant::now();
    until_due(sender.subscribe(), (group, &own), Duration::from_secs(4)).await;
    assert_eq!(began.elapsed(), LOAD_SETTLED);
    let bursts = async {
        loop {
            tokio::time::sleep(Duration::from_secs(20)).await;
            sender.send_modify(|known| known.processes.loads.clear());
            tokio::time::sleep(Duration::from_secs(20)).await;
            sender.send_replace(hot.clone());
        }
    };
    let due = until_due(sender.subscribe(), (group, &own), Duration::from_secs(4));
    let waited = timeout(Duration::from_secs(3_600), first(due, bursts)).await;
    assert!(waited.is_err(), "a burst moves nothing");
}

#[test]
fn each_slot_is_of_the_group_whose_run_has_it() {
    for of in [1, 2, 3, 4, 7, 63, 64] {
        for group in Group::all(of) {
            let (first, last) = group.slots();
            for slot in [first, (first + last) / 2, last] {
                assert_eq!(Group::of_slot(slot, of), group.number, "slot {slot} of {of}");
            }
        }
    }
}
