//! What one worker learns, its siblings use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_core::request::select::Policy;
use evenkeel_core::request::siblings::Siblings;
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Outcome, Replay, Request, Step,
};
use evenkeel_core::{Duration, Feedback, Fleet, GroupId, Health, Instant, ReplicaId};

const REPLICAS: usize = 3;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn worker(of: &Arc<Siblings>, number: usize, policy: &str) -> Dispatcher {
    let policy: Policy = policy.parse().expect("a policy of the registry");
    let config = DispatcherConfig { seed: number as u64, ..DispatcherConfig::default() };
    let fleet = Fleet::single_group(REPLICAS);
    let mut dispatcher = Dispatcher::new(fleet, policy.make(1), config);
    dispatcher.take_seat(of.seat(number));
    dispatcher
}

fn send(worker: &mut Dispatcher, now: Instant, id: u64) -> (Call, Attempt) {
    let request = Request::new(GroupId::new(0), Replay::Always);
    let mut call = worker.open(now, CallId(id), request);
    match worker.step(now, &mut call) {
        Step::Send(attempt) => (call, attempt),
        other => panic!("{other:?}"),
    }
}

fn answer(
    worker: &mut Dispatcher,
    now: Instant,
    (mut call, mut attempt): (Call, Attempt),
    report: Option<Feedback>,
) {
    call.settle(worker.learn(now, &mut attempt, &Outcome::Replied(report)));
    worker.finish(now, attempt, BodyEnd::Complete);
    worker.close(now, call);
}

#[test]
fn what_a_sibling_has_in_flight_counts() {
    for policy in ["least-outstanding", "c3", "two-choices", "peak-ewma"] {
        let siblings = Siblings::new(2);
        let (mut one, mut other) = (worker(&siblings, 0, policy), worker(&siblings, 1, policy));
        let mut busy = Vec::new();
        for id in 0..30 {
            busy.push(send(&mut one, at(id), id)); // all of them wait
        }
        let load =
            |worker: &Dispatcher, id| worker.fleet().replica(ReplicaId::new(id)).load(at(40));
        let of_one: Vec<f64> = (0..REPLICAS).map(|id| load(&one, id)).collect();
        let _ = send(&mut other, at(40), 0);
        let of_other: f64 = (0..REPLICAS).map(|id| load(&other, id)).sum();
        assert_eq!(of_other, of_one.iter().sum::<f64>() + 1.0, "{policy}");
        for of in busy {
            answer(&mut one, at(50), of, None);
        }
        let _ = send(&mut other, at(60), 1);
        let of_other: f64 = (0..REPLICAS).map(|id| load(&other, id)).sum();
        assert_eq!(of_other, 2.0, "{policy}: they were answered");
    }
}

/// A replica that stands still looks idle to who has given up what it sent there: with hedges that
/// is what most is known by (without it p99.9 was 1.1 times that of workers that share nothing).
#[test]
fn what_a_sibling_gave_up_counts_until_it_is_forgotten() {
    let siblings = Siblings::new(2);
    let make = |number| worker(&siblings, number, "least-outstanding");
    let (mut one, mut other) = (make(0), make(1));
    let (call, mut attempt) = send(&mut one, at(0), 0);
    let replica = attempt.replica();
    let _ = one.give_up(at(50), &mut attempt);
    one.finish(at(50), attempt, BodyEnd::Complete);
    one.close(at(50), call);
    let sent = send(&mut other, at(60), 0);
    assert_ne!(sent.1.replica(), replica, "it is taken for busy");
    let load = other.fleet().replica(replica).load(at(60));
    assert!((load - 50.0 / 60.0).abs() < 1e-6, "{load}");
    // Who answers is not held up any more.
    let busy: Vec<_> = (1..=9).map(|id| send(&mut one, at(70), id)).collect();
    assert!(busy.iter().any(|(_, attempt)| attempt.replica() == replica));
    busy.into_iter().for_each(|sent| answer(&mut one, at(71), sent, None));
    answer(&mut other, at(71), sent, None);
    let sent = send(&mut other, at(80), 1);
    assert_eq!(
        other.fleet().replica(replica).in_flight_of_all(),
        u32::from(sent.1.replica() == replica)
    );
    let load: f64 =
        (0..REPLICAS).map(|id| other.fleet().replica(ReplicaId::new(id)).load(at(80))).sum();
    assert_eq!(load, 1.0, "its own");
}

#[test]
fn a_worker_avoids_the_replica_that_hangs_for_its_sibling() {
    let siblings = Siblings::new(2);
    let make = |number| worker(&siblings, number, "least-outstanding");
    let (mut one, mut other) = (make(0), make(1));
    // Of what the first sends, replica 0 answers nothing.
    let mut hung = 0;
    for id in 0..60 {
        let sent = send(&mut one, at(id), id);
        match sent.1.replica().index() {
            0 => hung += 1,
            _ => answer(&mut one, at(id), sent, None),
        }
    }
    assert!(hung > 0);
    for id in 0..60 {
        let now = at(100 + id);
        let sent = send(&mut other, now, id);
        assert_ne!(sent.1.replica().index(), 0, "it was told");
        answer(&mut other, now, sent, None);
    }
}

#[test]
fn c3_learns_from_the_answers_of_siblings() {
    let siblings = Siblings::new(2);
    let make = |number, policy| worker(&siblings, number, policy);
    let (mut one, mut other) = (make(0, "round-robin"), make(1, "c3"));
    let _ = send(&mut other, at(0), 0); // it knows what there was until now: nothing
    // Replica 0 takes 50 ms, the others 5.
    let mut now = 0;
    for id in 0..200 {
        now += 60;
        let sent = send(&mut one, at(now), id);
        let took = if sent.1.replica().index() == 0 { 50 } else { 5 };
        answer(&mut one, at(now + took), sent, None);
    }
    let avoided = (0..30).all(|id| {
        let sent = send(&mut other, at(now + id), 1 + id);
        let is_well = sent.1.replica().index() != 0;
        answer(&mut other, at(now + id), sent, None);
        is_well
    });
    assert!(avoided, "a worker that has hardly asked it knows that it is slow");
}

#[test]
fn a_report_of_a_sibling_is_a_report() {
    let siblings = Siblings::new(2);
    let make = |number, policy| worker(&siblings, number, policy);
    let (mut one, mut other) = (make(0, "round-robin"), make(1, "c3"));
    let _ = send(&mut other, at(0), 0);
    let mut told = [false; REPLICAS];
    for id in 0..100 {
        let sent = send(&mut one, at(id * 10), id);
        let replica = sent.1.replica().index();
        told[replica] = true;
        let queue = if replica == 1 { 40 } else { 0 };
        let report = Feedback::measured(queue, 0, Duration::from_millis(4));
        answer(&mut one, at(id * 10 + 5), sent, Some(report));
    }
    assert_eq!(told, [true; REPLICAS]);
    let _ = send(&mut other, at(1_000), 1);
    let cost = |id| other.cost(at(1_000), ReplicaId::new(id)).unwrap();
    assert!(cost(1) > 100.0 * cost(2), "a queue of forty: {} beside {}", cost(1), cost(2));
}

#[test]
fn a_worker_that_ends_has_nothing_in_flight() {
    let siblings = Siblings::new(2);
    let make = |number| worker(&siblings, number, "least-outstanding");
    let (mut one, mut other) = (make(0), make(1));
    let _ = (0..9).map(|id| send(&mut one, at(0), id)).collect::<Vec<_>>();
    let _ = send(&mut other, at(1), 0);
    let load = |worker: &Dispatcher| -> u32 {
        let of = |id| worker.fleet().replica(ReplicaId::new(id)).in_flight_of_all();
        (0..REPLICAS).map(of).sum()
    };
    assert_eq!(load(&other), 10);
    drop(one);
    let _ = send(&mut other, at(2), 1);
    assert_eq!(load(&other), 2);
}

#[test]
fn of_another_replica_in_the_slot_nothing_is_taken_over() {
    let siblings = Siblings::new(2);
    let make = |number| worker(&siblings, number, "least-outstanding");
    let (mut one, mut other) = (make(0), make(1));
    let _ = (0..9).map(|id| send(&mut one, at(0), id)).collect::<Vec<_>>();
    let plan = evenkeel_core::plan::RoutePlan {
        version: 1,
        health: vec![Health::Up; REPLICAS],
        generations: vec![1, 0, 0],
        groups: vec![(0..REPLICAS).map(ReplicaId::new).collect()],
    };
    other.adopt(at(1), &plan);
    let _ = send(&mut other, at(2), 0);
    let of = |id| other.fleet().replica(ReplicaId::new(id)).in_flight_of_all();
    let own: u32 =
        (0..REPLICAS).map(|id| other.fleet().replica(ReplicaId::new(id)).in_flight()).sum();
    assert_eq!(own, 1);
    assert_eq!(of(0) + of(1) + of(2) - own, 6, "three each: those of the first slot are another's");
}

/// Sums are read whole while they are written: the latencies of a replica are all 7 ms, so their
/// mean is.
#[test]
fn what_is_read_beside_writing_is_whole() {
    let siblings = Siblings::new(2);
    let (mut reader, is_over) = (worker(&siblings, 1, "c3"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (siblings, is_over) = (&siblings, &is_over);
        scope.spawn(move || {
            let mut writer = worker(siblings, 0, "c3");
            for id in 0..200_000 {
                let sent = send(&mut writer, at(id * 10), id);
                answer(&mut writer, at(id * 10 + 7), sent, None);
            }
            is_over.store(true, Ordering::Release);
        });
        let mut now = 0;
        while !is_over.load(Ordering::Acquire) {
            now += 10;
            let sent = send(&mut reader, at(now), now);
            answer(&mut reader, at(now + 7), sent, None);
            for id in (0..REPLICAS).map(ReplicaId::new) {
                let load = reader.fleet().replica(id).load(at(now));
                let service_ms = reader.cost(at(now), id).unwrap() / (1.0 + load).powi(3);
                let is_unheard = service_ms == 1.0;
                assert!(is_unheard || (service_ms - 7.0).abs() < 1e-6, "{service_ms}");
            }
        }
    });
}
