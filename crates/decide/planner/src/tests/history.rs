//! What a history keeps, and how much it counts.

use std::sync::Arc;

use super::{Case, near, shared};
use crate::history::{History, Interval};
use crate::model::{BadInput, Counts, Layout, Matrix, Operation, RoundTrips, Route};
use evenkeel_core::rng::Rng;

/// Two sites 10 ms apart, a client at each.
fn two() -> Arc<RoundTrips> {
    let rows = vec![vec![0.0, 10.0], vec![10.0, 0.0]];
    shared(&(rows.clone(), rows))
}

fn strong(first: f64, second: f64, trips: &Arc<RoundTrips>) -> Interval {
    let reads = |count| [0.0, 0.0, count, 0.0, 0.0];
    let counts = Counts::new(vec![reads(first), reads(second)]).unwrap();
    Interval::new(counts, trips.clone()).unwrap()
}

fn led_by(leader: usize) -> Layout {
    Layout::new(leader, vec![0, 1], vec![0, 1]).unwrap()
}

#[test]
fn every_layout_is_scored_anew_on_all_that_is_kept() {
    let mut rng = Rng::seeded(3);
    for _ in 0..2_000 {
        let case = Case::random(&mut rng);
        for _ in 0..3 {
            let count = 1 + rng.below(case.sites);
            let replicas = case.some_sites(&mut rng, count);
            let layout = Layout::new(replicas[0], replicas.clone(), replicas.clone()).unwrap();
            for route in [Route::Nearest, Route::BestPath] {
                let expected = case.model.mean_ms(replicas[0], &replicas, &replicas, route);
                let reported = case.history.mean_ms(&layout, route);
                assert_eq!(reported.is_some(), expected.is_some());
                assert!(near(reported.unwrap_or(0.0), expected.unwrap_or(0.0)));
            }
        }
    }
}

#[test]
fn each_interval_counts_tau_times_less_than_the_next() {
    // The client at site 0 read 100 times, then the one at site 1 once: led by 0 only that one
    // waits.
    let mean_ms = |tau| {
        let mut history = History::new(tau, 16).unwrap();
        history.push(strong(100.0, 0.0, &two())).unwrap();
        history.push(strong(0.0, 1.0, &two())).unwrap();
        history.mean_ms(&led_by(0), Route::Nearest).unwrap()
    };
    assert!(near(mean_ms(1.0), 10.0 / 101.0));
    assert!(near(mean_ms(2.0), 10.0 / 51.0));
    assert!(near(mean_ms(f64::INFINITY), 10.0));
}

#[test]
fn a_history_keeps_no_more_than_it_may_and_tells_what_it_knew() {
    let mut history = History::new(2.0, 3).unwrap();
    for reads in 1..=5 {
        history.push(strong(f64::from(reads), 0.0, &two())).unwrap();
    }
    assert_eq!(history.len(), 3);
    assert!(near(history.faded().total(), 5.0 + 4.0 / 2.0 + 3.0 / 4.0));
    assert!(near(history.past(1).unwrap().operations(), 4.0 + 3.0 / 2.0));
    let per_interval = history.past(0).unwrap().operations_per_interval();
    assert!(near(per_interval, (5.0 + 2.0 + 0.75) / 1.75));
    assert!(history.past(3).is_none());
    assert_eq!(history.newest().unwrap().counts().total_of(Operation::StrongRead), 5.0);
}

#[test]
fn intervals_without_operations_change_nothing() {
    let mut history = History::default();
    assert_eq!(history.mean_ms(&led_by(0), Route::Nearest), None);
    assert_eq!(history.faded().clients(), 0);
    history.push(strong(0.0, 0.0, &two())).unwrap();
    assert_eq!(history.mean_ms(&led_by(0), Route::Nearest), None);
    assert_eq!(history.faded(), Counts::none(2));
    history.push(strong(3.0, 1.0, &two())).unwrap();
    let before = history.mean_ms(&led_by(0), Route::Nearest);
    assert_eq!(before, Some(2.5));
    history.push(strong(0.0, 0.0, &two())).unwrap();
    assert_eq!(history.mean_ms(&led_by(0), Route::Nearest), before);
    assert_eq!(history.busy().collect::<Vec<_>>(), [1]);
    let mut newest_only = History::new(f64::INFINITY, 4).unwrap();
    newest_only.push(strong(3.0, 1.0, &two())).unwrap();
    newest_only.push(strong(0.0, 0.0, &two())).unwrap();
    assert_eq!(newest_only.mean_ms(&led_by(0), Route::Nearest), None);
}

#[test]
fn what_does_not_fit_is_refused_by_row_and_column() {
    assert_eq!(History::new(0.5, 4).unwrap_err(), BadInput::Decay { came: 0.5 });
    assert!(matches!(History::new(f64::NAN, 4), Err(BadInput::Decay { .. })));
    assert_eq!(History::new(2.0, 0).unwrap_err(), BadInput::NoIntervals);
    let counts = Counts::none(3);
    let refused = Interval::new(counts, two()).unwrap_err();
    assert_eq!(refused, BadInput::Clients { came: 3, expected: 2 });
    let mut history = History::default();
    history.push(strong(1.0, 1.0, &two())).unwrap();
    let one_site = shared(&(vec![vec![1.0], vec![2.0]], vec![vec![0.0]]));
    let refused = history.push(strong(1.0, 1.0, &one_site)).unwrap_err();
    assert_eq!(refused, BadInput::Sites { came: 1, expected: 2 });
    let square = vec![vec![0.0, 1.0], vec![1.0]];
    let refused = RoundTrips::new(&[], &square).unwrap_err();
    let ragged = BadInput::Ragged { matrix: Matrix::BetweenSites, row: 1, came: 1, expected: 2 };
    assert_eq!(refused, ragged);
    let missing = [vec![1.0, f64::NAN]];
    let refused = RoundTrips::new(&missing, &[vec![0.0, 1.0], vec![1.0, 0.0]]).unwrap_err();
    assert!(refused.to_string().contains("row 0, column 1"), "{refused}");
    let refused = Counts::new(vec![[0.0; 5], [0.0, 0.0, 0.0, -1.0, 0.0]]).unwrap_err();
    assert!(refused.to_string().contains("client 1, single-group"), "{refused}");
}
