//! The world against what queueing theory knows.

use evenkeel_core::Duration;

use super::deployment::{Arrivals, Common, Deployment, Pauses};
use super::law::{Law, Shape};
use crate::report::RunReport;

fn deployment(change: impl FnOnce(&mut Deployment)) -> Deployment {
    let mut deployment = Deployment { lindley_accesses: 0, ..Deployment::default() };
    change(&mut deployment);
    deployment
}

fn of(shape: Shape) -> Vec<(f64, Law)> {
    vec![(0.0, Law::new(shape, Duration::from_millis(1)))]
}

fn violations(deployment: &Deployment, policy: &str) -> f64 {
    let run = RunReport::of_duplicates(deployment, policy, 1);
    run.violations.unwrap_or_default() as f64 / run.requests as f64
}

/// M/M/1: longer than t is e^(-(1-ρ)t/μ) of the answers, M/D/1 waits half as long on average.
#[test]
fn one_duplicate_is_a_queue_as_in_the_books() {
    let exponential = deployment(|it| {
        it.phases = of(Shape::Exponential);
        it.workload.rate = 500.0;
        it.bound = Duration::from_millis(6);
        it.workload.accesses = 400_000;
    });
    let run = RunReport::of_duplicates(&exponential, "1p1d", 1);
    assert!((run.mean_ms / 2.0 - 1.0).abs() < 0.03, "{}", run.mean_ms);
    let late = violations(&exponential, "1p1d");
    assert!((late / (-3.0_f64).exp() - 1.0).abs() < 0.06, "{late}");
    let constant = deployment(|it| {
        it.phases = of(Shape::Constant);
        it.workload.rate = 500.0;
    });
    let run = RunReport::of_duplicates(&constant, "1p1d", 1);
    assert!((run.mean_ms / 1.5 - 1.0).abs() < 0.02, "{}", run.mean_ms);
    assert!((run.duplicates.map_or(0.0, |of| of.utilisation) - 0.5).abs() < 0.01);
}

/// Where nobody waits, all duplicates are late by chance only: exponential ones as one that is so
/// many times as fast.
#[test]
fn without_queues_duplicates_multiply() {
    for (policy, duplicates) in [("1p1d", 1.0), ("1p2d", 2.0), ("1p3d", 3.0)] {
        let idle = deployment(|it| {
            it.phases = of(Shape::Exponential);
            it.workload.arrivals = Arrivals::AfterAll;
            it.bound = Duration::from_millis(2);
        });
        let (late, truth) = (violations(&idle, policy), (-2.0_f64 * duplicates).exp());
        let close = 5.0 * (truth / 190_000.0_f64).sqrt();
        assert!((late - truth).abs() < close, "{policy}: {late} for {truth}");
    }
}

/// Who asks again as soon as the first duplicate answers leaves the others behind: nobody is there
/// to mask the next slow access of the one ahead.
#[test]
fn a_client_that_does_not_wait_for_the_slow_gains_nothing() {
    let greedy = deployment(|it| {
        it.phases = of(Shape::Exponential);
        it.workload.arrivals = Arrivals::AfterFirst;
        it.bound = Duration::from_millis(2);
    });
    let (alone, masked) = (violations(&greedy, "1p1d"), violations(&greedy, "1p4d"));
    assert!((masked / alone - 1.0).abs() < 0.05, "{masked} for {alone}");
}

/// A batch is answered when its last access is.
#[test]
fn a_batch_takes_as_long_as_its_slowest() {
    let batches = deployment(|it| {
        it.phases = of(Shape::Constant);
        it.workload.batch = 4;
        it.workload.shards = 1;
        it.workload.rate = 4.0;
    });
    let run = RunReport::of_duplicates(&batches, "1p2d", 1);
    // Four in a row at one server, both duplicates alike.
    assert!((run.mean_ms / 4.0 - 1.0).abs() < 0.01, "{}", run.mean_ms);
    assert_eq!(run.requests, 47_500);
}

#[test]
fn a_multicast_sends_one_copy_after_another() {
    let slow = deployment(|it| {
        it.phases = of(Shape::Constant);
        it.workload.arrivals = Arrivals::AfterAll;
        it.copies.repeat = Duration::from_micros(100);
        it.copies.one_way = Duration::from_micros(200);
    });
    // One repeat, there, served, back: the first copy's answer is the first.
    let run = RunReport::of_duplicates(&slow, "1p4d", 1);
    assert!((run.mean_ms / 1.5 - 1.0).abs() < 2e-3, "{}", run.mean_ms);
}

#[test]
fn cancelled_copies_are_not_served() {
    let read = |cancel| {
        let deployment = deployment(|it| {
            it.phases = of(Shape::Exponential);
            it.workload.rate = 600.0;
            it.copies.cancel = cancel;
        });
        RunReport::of_duplicates(&deployment, "1p3d", 1)
    };
    let (kept, cancelled) = (read(false), read(true));
    let of = |run: &RunReport| run.duplicates.clone().unwrap_or_default();
    assert_eq!(of(&kept).cancelled_ratio, 0.0);
    assert!(of(&cancelled).cancelled_ratio > 0.1);
    assert!(of(&cancelled).utilisation < of(&kept).utilisation);
    assert!(cancelled.p99_ms < kept.p99_ms);
}

/// Pauses of 20 ms every second stop one server a fiftieth of the time; whoever comes then waits
/// 10 ms on average. A second duplicate masks nearly all of that, unless both stop at once.
#[test]
fn pauses_are_masked_unless_they_come_together() {
    let paused = |together: f64, policy: &str| {
        let deployment = deployment(|it| {
            it.phases = of(Shape::Constant);
            it.workload.rate = 20.0;
            let twenty = Duration::from_millis(20);
            let every = Duration::from_secs(1);
            it.pauses = Some(Pauses { every, least: twenty, most: twenty, power: 1.0, together });
            it.bound = Duration::from_millis(5);
        });
        violations(&deployment, policy)
    };
    // Whoever meets more than 4 ms of a pause: 17 of 1,020 ms, since pauses may follow pauses.
    let alone = paused(0.0, "1p1d");
    assert!((alone - 0.017).abs() < 0.002, "{alone}");
    assert!(paused(0.0, "1p2d") < 0.001);
    assert!(paused(1.0, "1p2d") > 0.014);
}

/// What delays all copies cannot be masked: of one in a thousand, half are longer than twice the
/// shortest.
#[test]
fn what_delays_all_copies_is_not_masked() {
    let delayed = deployment(|it| {
        it.phases = of(Shape::Constant);
        it.workload.arrivals = Arrivals::AfterAll;
        let least = Duration::from_millis(10);
        it.common = Common { share: 0.01, least, most: Duration::from_secs(1) };
        it.bound = Duration::from_millis(21);
    });
    let late = violations(&delayed, "1p8d");
    assert!((late / 0.005 - 1.0).abs() < 0.15, "{late}");
}

/// Half the run's accesses at twice the rate, so two thirds of the time at the lower one.
#[test]
fn the_rate_follows_its_factors() {
    let day = deployment(|it| {
        it.workload.factors = vec![1.0, 2.0];
        it.workload.rate = 10.0;
    });
    let run = RunReport::of_duplicates(&day, "2p1d", 1);
    let truth = 100_000.0 / 10.0 + 100_000.0 / 20.0;
    assert!((run.virtual_s / truth - 1.0).abs() < 0.02, "{}", run.virtual_s);
    assert!((200_000.0 / truth / day.mean_rate() - 1.0).abs() < 1e-9);
}

#[test]
fn equal_seeds_are_equal_and_policies_meet_equal_arrivals() {
    let busy = deployment(|it| it.workload.rate = 200.0);
    let run = |policy, seed| RunReport::of_duplicates(&busy, policy, seed);
    assert_eq!(run("2p2d", 7), run("2p2d", 7));
    assert_ne!(run("2p2d", 7).digest, run("2p2d", 8).digest);
    // The last arrivals are at the same instant, and nothing takes long after them.
    let ends = ["2p2d", "4p1d", "1p4d"].map(|policy| run(policy, 7).virtual_s);
    assert!(ends.iter().all(|end| (end - ends[0]).abs() < 60.0), "{ends:?}");
}

/// The models' own domains: exact without queues, and the paper's far too hopeful with them.
#[test]
fn models_are_told_what_a_manager_knows() {
    let bound = Duration::from_millis(9);
    let idle = deployment(|it| {
        it.workload.arrivals = Arrivals::AfterAll;
        it.bound = bound;
    });
    let reported = |deployment: &Deployment| {
        RunReport::of_duplicates(deployment, "1p2d", 1).duplicates.unwrap_or_default()
    };
    let without_queues = reported(&idle);
    let predicted = without_queues.predicted;
    assert!((predicted.paper - 0.04 * 0.04).abs() < 1e-6, "{predicted:?}");
    assert!((without_queues.violation_ratio / 0.0016 - 1.0).abs() < 0.3, "{without_queues:?}");
    let busy = deployment(|it| {
        it.workload.rate = 100.0;
        it.bound = bound;
        it.lindley_accesses = 200_000;
    });
    let busy = reported(&busy);
    let lindley = busy.predicted.lindley.unwrap_or_default();
    assert!((lindley / busy.violation_ratio).ln().abs() < 0.35, "{busy:?}");
    assert!(busy.predicted.paper < busy.violation_ratio / 2.0, "{busy:?}");
}

/// A change of the law is seen in the windows that follow it, and in no other.
#[test]
fn windows_diverge_when_the_law_changes() {
    let changing = deployment(|it| {
        it.workload.arrivals = Arrivals::AfterAll;
        it.phases.push((0.5, Law::new(Shape::ZookeeperWrite, Duration::from_millis(4))));
        it.window = 10_000;
    });
    let run = RunReport::of_duplicates(&changing, "1p1d", 1).duplicates.unwrap_or_default();
    let reported = run.divergences.unwrap_or_default();
    assert_eq!((reported.calm_ratio, reported.found_ratio, reported.lasts_windows), (0.0, 1.0, 1));
    let found = reported.over_noise;
    assert_eq!(found.len(), 19);
    let loud: Vec<usize> = (0..19).filter(|window| found[*window] > 1.0).collect();
    assert_eq!(loud, [9], "{found:?}");
}
