//! What `adaptive` chooses, whom it asks and how long it waits.

use super::*;
use crate::units::Rate;

const GROUP: GroupId = GroupId::new(0);

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn rated(id: usize, level: f64, width: f64, arrivals: f64) -> Rated {
    Rated { id: ReplicaId::new(id), level, width, arrivals, cost: level * level }
}

fn shares(rated: &[Rated]) -> Vec<f64> {
    let mut rng = Rng::seeded(4);
    let mut counts = vec![0.0; rated.len()];
    for _ in 0..30_000 {
        counts[fill(&mut rated.to_vec(), 1.0, &mut rng).index()] += 1.0 / 30_000.0;
    }
    counts
}

#[test]
fn fresh_reports_give_the_best_and_old_ones_shares_by_speed() {
    let levels = |arrivals| [rated(0, 3.0, 1.0, arrivals), rated(1, 2.0, 3.0, arrivals)];
    assert!(shares(&levels(0.0))[0] == 0.0);
    // Level R: 1 × (R − 3) + 3 × (R − 2) = 2 000 000, so nearly one to three.
    let spread = shares(&levels(1e6));
    assert!((spread[0] - 0.25).abs() < 0.013, "{spread:?}"); // five standard deviations
    // 3 × (R − 2) = 2 at R = 2.67, below the other's level: all of it goes to one.
    assert!(shares(&levels(1.0))[0] == 0.0);
}

#[test]
fn equals_share_and_numbers_that_cannot_be_do_not_stop_it() {
    let equal = shares(&[rated(0, 2.0, 1.0, 0.0), rated(1, 2.0, 1.0, 0.0)]);
    assert!((equal[0] - 0.5).abs() < 0.015, "{equal:?}");
    let infinite = [rated(0, f64::INFINITY, 1.0, 0.0), rated(1, f64::INFINITY, 1.0, 0.0)];
    assert!(shares(&infinite)[0] > 0.4);
    shares(&[rated(0, f64::NAN, 1.0, 5.0), rated(1, 2.0, 1.0, f64::INFINITY)]);
}

/// A report of four slots with a service time of 8 ms.
fn report(load: u32, per_s: f64) -> Feedback {
    Feedback {
        concurrency: Some(4),
        latency: Some(from_millis_f64(8.0 * (1.0 + f64::from(load) / 4.0))),
        arrival_rate: Rate::new(per_s).ok(),
        ..Feedback::measured(0, load, Duration::from_millis(8))
    }
}

struct Asking {
    policy: Adaptive,
    fleet: Fleet,
    rng: Rng,
}

impl Asking {
    /// Replicas that answered a question within a millisecond at 10 ms.
    fn heard(reports: &[Feedback]) -> Self {
        let mut fleet = Fleet::single_group(reports.len());
        let mut policy = Adaptive::new(AdaptiveConfig::default());
        policy.on_membership(at(0), &fleet);
        for (slot, report) in reports.iter().enumerate() {
            let id = ReplicaId::new(slot);
            fleet.note_round_trip(id, 1_000_000);
            fleet.note_answer(at(10), id, Some(report));
            policy.on_probe(at(10), id, Some(report));
        }
        Self { policy, fleet, rng: Rng::seeded(1) }
    }

    fn ask(&mut self, now: Instant) -> (Option<Instant>, Asked) {
        let ids: Vec<_> = (0..self.fleet.len()).map(ReplicaId::new).collect();
        let from = Candidates { fleet: &self.fleet, group: GROUP, ids: &ids };
        let mut whom = Asked::new();
        (self.policy.ask(now, from, &mut self.rng, &mut whom), whom)
    }

    fn pick(&mut self, now: Instant) -> usize {
        let ids: Vec<_> = (0..self.fleet.len()).map(ReplicaId::new).collect();
        let from = Candidates { fleet: &self.fleet, group: GROUP, ids: &ids };
        match self.policy.select(now, from, &mut self.rng) {
            Choice::Send(id) => id.index(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn it_waits_where_others_have_made_the_best_report_history() {
    // 1 000 arrivals a second, none of them its own: two of them within 2 ms.
    let busy = report(1, 1_000.0);
    let mut asking = Asking::heard(&[busy; 3]);
    assert_eq!(asking.ask(at(11)).0, None, "one arrival is no history");
    let (until, whom) = asking.ask(at(13));
    // A round trip of 1 ms, and four deviations of half of it.
    assert_eq!((until, whom.len()), (Some(at(16)), 3));
    let mut quiet = Asking::heard(&[report(1, 20.0); 3]);
    assert_eq!(quiet.ask(at(60)).0, None, "one arrival in 50 ms");
}

#[test]
fn it_does_not_wait_for_itself_nor_over_a_long_way() {
    let mut alone = Asking::heard(&[report(1, 20.0); 3]);
    for ms in 11..100 {
        (0..3).for_each(|slot| alone.policy.known[slot].sent(at(ms)));
    }
    let newest = report(1, 1_000.0);
    (0..3).for_each(|slot| alone.policy.known[slot].hear(at(97), &newest));
    assert_eq!(alone.ask(at(100)).0, None, "all those arrivals are its own");
    let mut far = Asking::heard(&[report(1, 1_000.0); 3]);
    (0..200).for_each(|_| far.fleet.note_round_trip(ReplicaId::new(0), 50_000_000));
    (0..200).for_each(|_| far.fleet.note_round_trip(ReplicaId::new(1), 50_000_000));
    (0..200).for_each(|_| far.fleet.note_round_trip(ReplicaId::new(2), 50_000_000));
    assert_eq!(far.ask(at(13)).0, None, "50 ms there and back, for 8 ms of service");
    assert!(far.policy.next_probe().is_some(), "they are asked beside it");
}

#[test]
fn where_nobody_reports_nobody_is_asked_again() {
    let mut asking = Asking::heard(&[]);
    asking.fleet = Fleet::single_group(3);
    asking.policy.on_membership(at(0), &asking.fleet);
    assert_eq!(asking.ask(at(1)).1.len(), 3, "at first nobody knows");
    (0..3).for_each(|slot| asking.policy.heard(at(9), ReplicaId::new(slot), None, 8.0));
    assert_eq!(asking.ask(at(20)), (None, Asked::new()));
    assert_eq!(asking.policy.next_probe(), None);
}

#[test]
fn own_requests_count_until_a_report_contains_them() {
    let mut asking = Asking::heard(&[report(4, 20.0), report(5, 20.0)]);
    assert_eq!(asking.pick(at(11)), 0);
    let first = ReplicaId::new(0);
    (0..6).for_each(|_| asking.policy.on_send(at(11), first, Kind::First, &asking.fleet));
    assert_eq!(asking.pick(at(12)), 1, "six more are on their way there");
    asking.policy.on_probe(at(14), first, Some(&report(3, 20.0)));
    assert_eq!(asking.pick(at(14)), 0, "its newest report knows of them");
}

#[test]
fn who_has_served_nothing_yet_is_not_left_out() {
    let idle = Feedback { service_time: None, latency: None, ..report(0, 20.0) };
    let mut asking = Asking::heard(&[report(6, 20.0), idle]);
    assert_eq!(asking.pick(at(11)), 1);
}

#[test]
fn of_a_large_group_a_few_are_compared() {
    let mut asking = Asking::heard(&vec![report(2, 2_000.0); 40]);
    let (until, whom) = asking.ask(at(20));
    assert!(until.is_some() && whom.len() == AT_RANDOM, "{whom:?}");
    assert!(size_of::<Known>() <= 100, "{}", size_of::<Known>());
}
