//! What the manager makes of windows whose truth is known.

use std::time::Duration;

use evenkeel_core::units::Probability;
use evenkeel_core::{Instant, Rng};
use evenkeel_planner::duplicates::moves::Move;

use super::advise::{Advice, Adviser, Wanted};
use super::{Begun, Manager, ManagerSettings, Sample, Took, Window};

const MS: Duration = Duration::from_millis(1);

fn settings(target: f64) -> ManagerSettings {
    ManagerSettings { target: Probability::clamped(target), ..ManagerSettings::new(5 * MS) }
}

fn begun() -> Begun {
    Begun { at: Instant::ZERO, seed: 1, arrangement: 1, spares: None, nights: None }
}

/// One access in a second, so that there are no queues; 20 ms where it is an outlier, else 1 ms.
fn window(rows: usize, mut is_outlier: impl FnMut() -> [bool; 2]) -> Window {
    let took = |slow: bool| {
        let time = if slow { 20 * MS } else { MS };
        Some(Took { response: time, service: time })
    };
    let sample = |n: usize| {
        let times: Vec<Option<Took>> = is_outlier().map(took).into();
        let first = times.iter().flatten().map(|took| took.response).min();
        let sent = Instant::ZERO + Duration::from_secs(n as u64);
        Sample { arrangement: 0, partition: 0, sent, client: first, times }
    };
    Window {
        from: Instant::ZERO,
        until: Instant::ZERO + Duration::from_secs(rows as u64),
        accesses: vec![rows as u64],
        copies: vec![2 * rows as u64],
        owners: vec![0],
        is_away: false,
        samples: (0..rows).map(sample).collect(),
    }
}

fn independent(seed: u64, share: f64) -> Window {
    let (mut rng, share) = (Rng::seeded(seed), Probability::clamped(share));
    window(4_000, move || [rng.chance(share), rng.chance(share)])
}

fn reported(target: f64, window: &Window) -> Advice {
    Adviser::new(settings(target), &[2], None, None).learn(window)
}

#[test]
fn independent_outliers_are_multiplied() {
    let window = independent(7, 0.05);
    let late = |n: usize| {
        let slow = window.samples.iter().filter(|it| it.times[n].unwrap().response > 5 * MS);
        slow.count() as f64 / 4_000.0
    };
    let advice = reported(0.99, &window);
    // One second between accesses on average: an outlier keeps the next waiting for more than 4 ms
    // in 1.6 % of cases, in which that one is late too.
    let chance = |n| late(n) * 1.016;
    let expected = chance(0) * chance(1);
    let predicted = 1.0 - advice.predicted_within.unwrap();
    assert!((predicted / expected - 1.0).abs() < 0.05, "{predicted} {expected}");
    let alone = 1.0 - advice.measured_within_alone;
    assert!((alone - f64::midpoint(late(0), late(1))).abs() < 1e-12);
    assert_eq!(advice.outliers.as_ref().unwrap().duplicates_help, Some(true), "{advice:?}");
    // One duplicate misses 5 %, two 0.25 %: two are the fewest that keep 99 %.
    let best = advice.cheapest.as_ref().unwrap();
    assert_eq!((best.partitions, best.duplicates), (1, 2));
    assert_eq!(advice.what, "stay", "{}", advice.why);
    assert!((advice.accesses_per_s - 1.0).abs() < 1e-9);
}

#[test]
fn a_target_that_is_missed_wants_another_duplicate() {
    let advice = reported(0.9999, &independent(7, 0.05));
    // 0.05^3 is above one in ten thousand, 0.05^4 is below.
    let best = advice.cheapest.as_ref().unwrap();
    assert_eq!((best.partitions, best.duplicates), (1, 4));
    assert!(advice.what.starts_with("add a duplicate"), "{advice:?}");
}

#[test]
fn outliers_that_coincide_say_that_duplicates_do_not_help() {
    let mut rng = Rng::seeded(7);
    let coinciding = window(4_000, || [rng.chance(Probability::clamped(0.05)); 2]);
    let advice = reported(0.9, &coinciding);
    assert_eq!(advice.measured_within, advice.measured_within_alone);
    let outliers = advice.outliers.as_ref().unwrap();
    assert_eq!((outliers.verdict, outliers.duplicates_help), ("coincide", Some(false)));
    let late = 1.0 - advice.measured_within;
    let predicted = 1.0 - advice.predicted_within.unwrap();
    assert!((predicted / late - 1.016).abs() < 0.05, "{predicted} {late}");
    assert!(advice.what.contains("one for each of 1 partitions would do"), "{advice:?}");
    let hopeless = reported(0.99, &coinciding);
    assert!(hopeless.what.contains("find what makes all of them slow"), "{hopeless:?}");
}

#[test]
fn what_was_predicted_is_compared_with_what_came() {
    let mut adviser = Adviser::new(settings(0.99), &[2], None, None);
    assert_eq!(adviser.learn(&independent(1, 0.05)).holds, None);
    let second = adviser.learn(&independent(2, 0.05));
    assert_eq!(second.holds, Some(true), "{second:?}");
    let changed = adviser.learn(&independent(3, 0.4));
    assert_eq!(changed.holds, Some(false), "{changed:?}");
    assert!(changed.why.contains("had been predicted"), "{}", changed.why);
}

#[test]
fn few_rows_say_nothing() {
    let advice = reported(0.99, &window(150, || [false, false]));
    assert_eq!((advice.what.as_str(), advice.predicted_within), ("wait", None));
    assert!(advice.why.contains("150 sampled accesses"), "{}", advice.why);
    let mut window = independent(1, 0.05);
    window.samples.iter_mut().for_each(|sample| sample.times[1] = None);
    let advice = reported(0.99, &window);
    assert_eq!((advice.what.as_str(), advice.rows), ("wait", 0), "one duplicate is away");
}

#[test]
fn advice_changes_when_two_windows_in_a_row_say_so() {
    let mut adviser = Adviser::new(settings(0.99), &[2], None, None);
    let said = ["a", "b", "a", "b", "b", "b", "a"]
        .map(|it| adviser.steadied(Wanted { what: it.to_owned(), ..Wanted::default() }).0);
    assert_eq!(said, ["a", "a", "a", "a", "b", "b", "b"]);
}

/// Demand grows by a tenth in each window: what is planned for is ahead of what was counted, as a
/// manager without a forecast never is. Where it falls nothing is planned for but what there is.
#[test]
fn what_grows_is_planned_for_ahead_and_what_falls_is_not() {
    let planned = |factor: f64| {
        let mut adviser = Adviser::new(settings(0.99), &[2], None, None);
        let mut last = Advice::default();
        let mut accesses = 4_000.0;
        for number in 0..12_u64 {
            let mut window = independent(number, 0.05);
            let length = window.until.since(window.from);
            window.from = Instant::ZERO + length * number as u32;
            window.until = window.from + length;
            window.accesses = vec![accesses as u64; 1];
            accesses *= factor;
            last = adviser.learn(&window);
        }
        last.planned_per_s / last.accesses_per_s
    };
    let (grows, falls) = (planned(1.1), planned(0.9));
    assert!((1.02..1.2).contains(&grows), "{grows}");
    assert!((falls - 1.0).abs() < 1e-9, "{falls}");
}

/// Shards that are asked for alike are moved, whichever of them seems to be the best just now.
#[test]
fn windows_that_differ_in_the_shard_agree() {
    let mut adviser = Adviser::new(settings(0.99), &[1, 1], None, None);
    let shard = |shard: usize| Move::Shard { shard, from: 0, to: 1 };
    let add = Move::Add { partition: 0 };
    let said = [add, shard(3), shard(5), shard(2), add, shard(1)].map(|step| {
        let wanted = Wanted { what: step.describe(), steps: vec![step] };
        adviser.steadied(wanted).1
    });
    let moved = vec![shard(5)];
    assert_eq!(said, [vec![add], vec![], moved.clone(), moved.clone(), vec![], moved]);
}

/// What cannot be done for want of spare nodes keeps nobody from doing what can.
#[test]
fn without_spares_what_is_there_is_used_better() {
    let queue = |spares: Option<usize>| {
        let mut rng = Rng::seeded(3);
        let mut at = Duration::ZERO;
        // 300 accesses in a second of 2 ms each at the first partition, 100 at the second.
        let mut samples = Vec::new();
        while at < Duration::from_secs(10) {
            at += Duration::from_secs_f64(rng.exponential() / 400.0);
            let partition = usize::from(rng.below(4) == 0);
            let took = Took { response: 3 * MS, service: 2 * MS };
            let sent = Instant::ZERO + at;
            let client = Some(3 * MS);
            samples.push(Sample {
                arrangement: 0,
                partition,
                sent,
                client,
                times: vec![Some(took)],
            });
        }
        let window = Window {
            from: Instant::ZERO,
            until: Instant::ZERO + Duration::from_secs(10),
            accesses: vec![750, 750, 750, 750, 500, 500],
            copies: vec![3_000, 1_000],
            owners: vec![0, 0, 0, 0, 1, 1],
            is_away: false,
            samples,
        };
        Adviser::new(settings(0.999), &[1, 1], spares, None).learn(&window)
    };
    let wanted = queue(None);
    assert!(wanted.what.contains("new partition"), "{wanted:?}");
    let possible = queue(Some(0));
    assert!(possible.what.starts_with("move shard"), "{possible:?}");
    assert!(possible.what.ends_with("from partition 0 to partition 1"), "{possible:?}");
    assert_eq!(possible.cheapest, wanted.cheapest, "what more nodes would be good for");
}

/// The same partitions by number, but one has another duplicate now: rows of before are too short.
#[test]
fn what_was_sampled_before_a_change_is_not_learnt_from() {
    let begun = |arrangement| Begun { arrangement, ..begun() };
    let mut before = Manager::start(settings(0.99), &[vec![0]], 8, begun(1)).unwrap();
    let sample = before.sent(Instant::ZERO, (3, 0), 1).unwrap();
    let mut after = Manager::start(settings(0.99), &[vec![0, 1]], 8, begun(2)).unwrap();
    after.learn(*sample);
    assert!(after.window.samples.is_empty());
}

#[test]
fn a_wait_is_not_service() {
    let settings = ManagerSettings { samples: 4, ..settings(0.99) };
    let mut manager = Manager::start(settings, &[vec![0], vec![1, 2]], 8, begun()).unwrap();
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
    let mut first = manager.sent(at(10), (3, 1), 2).unwrap();
    let mut second = manager.sent(at(11), (3, 1), 2).unwrap();
    // Server 2 is the second of partition 1: it pauses for 30 ms, then answers both.
    for (ms, server, sample, sent) in
        [(12, 1, 0, 10), (13, 1, 1, 11), (40, 2, 0, 10), (41, 2, 1, 11)]
    {
        let sample = if sample == 0 { &mut first } else { &mut second };
        manager.answered(at(ms), server, at(sent), Some(sample));
    }
    let took =
        |response: u32, service: u32| Some(Took { response: response * MS, service: service * MS });
    assert_eq!(first.times, [took(2, 2), took(30, 30)]);
    assert_eq!(second.times, [took(2, 1), took(30, 1)]);
    for _ in 0..4 {
        manager.learn(Sample::clone(&first));
    }
    assert_eq!((manager.one_in, manager.window.samples.len()), (1, 4));
    for _ in 0..4 {
        manager.learn(Sample::clone(&first));
    }
    assert_eq!((manager.one_in, manager.window.samples.len()), (2, 4), "half of eight");
    assert_eq!((manager.window.accesses[3], manager.window.copies[1]), (2, 4));
}

#[test]
fn a_full_window_is_computed_elsewhere() {
    let settings = ManagerSettings { window: MS, ..settings(0.99) };
    let mut manager = Manager::start(settings, &[vec![0, 1]], 1, begun()).unwrap();
    manager.tick(Instant::ZERO + MS / 2, false, |_| 0);
    assert_eq!(manager.window.from, Instant::ZERO, "not full");
    manager.sent(Instant::ZERO, (0, 0), 2);
    manager.tick(Instant::ZERO + MS, false, |_| 0);
    assert_eq!((manager.window.from, manager.window.accesses[0]), (Instant::ZERO + MS, 0));
    let begun = std::time::Instant::now();
    while manager.advice().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "no advice came");
        std::thread::sleep(MS);
        manager.tick(Instant::ZERO + MS, false, |_| 0);
    }
    assert_eq!(manager.advice().unwrap().windows, 1);
}
