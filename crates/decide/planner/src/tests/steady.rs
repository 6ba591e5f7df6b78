//! When to move: never under noise below the threshold, once and in time when clients moved.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::{ProptestConfig, any, proptest};
use proptest::{prop_assert, prop_assert_eq};

use super::shared;
use crate::history::{History, Interval};
use crate::model::{Counts, Layout, RoundTrips};
use crate::planner::{Config, Planner};
use crate::steady::{MoveCost, Steady, Verdict, Why};
use evenkeel_core::rng::Rng;

/// Three sites, 10 ms from each other, a client at each.
fn three() -> Arc<RoundTrips> {
    let row = |site| (0..3).map(|to| if to == site { 0.0 } else { 10.0 }).collect();
    let rows: Vec<Vec<f64>> = (0..3).map(row).collect();
    shared(&(rows.clone(), rows))
}

/// A database whose clients read from the leader so often.
struct Database {
    planner: Planner,
    history: History,
    trips: Arc<RoundTrips>,
    today: Layout,
    moves: Vec<usize>,
    /// Time from one interval to the next.
    every: Duration,
    since_move: Duration,
}

impl Database {
    fn new(tau: f64, steady: Steady) -> Self {
        Self {
            planner: Planner::new(Config { steady, ..Config::default() }),
            history: History::new(tau, 16).unwrap(),
            trips: three(),
            today: Layout::new(0, vec![0, 1, 2], vec![0, 1, 2]).unwrap(),
            moves: Vec::new(),
            every: Duration::from_secs(1_800),
            since_move: Duration::ZERO,
        }
    }

    /// An interval passes, a decision is made, and done.
    fn interval(&mut self, reads: [f64; 3]) -> Verdict {
        let counts = reads.map(|count| [0.0, 0.0, count, 0.0, 0.0]).to_vec();
        let interval = Interval::new(Counts::new(counts).unwrap(), self.trips.clone());
        self.history.push(interval.unwrap()).unwrap();
        self.since_move += self.every;
        self.history.rested(self.since_move);
        let verdict = self.planner.decide(&self.history, &self.today).unwrap().verdict;
        if let Verdict::Move { to, .. } = &verdict {
            self.moves.push(to.leader());
            self.today = to.clone();
            self.history.moved();
            self.since_move = Duration::ZERO;
        }
        verdict
    }

    fn why(&mut self, reads: [f64; 3]) -> Why {
        match self.interval(reads) {
            Verdict::Stay { why } => why,
            Verdict::Move { .. } => panic!("a move came, a reason to stay was expected"),
        }
    }
}

fn free() -> Steady {
    let cost = MoveCost { leader: 0.0, voter: 0.0, replica: 0.0 };
    Steady { cost, cooldown: Duration::ZERO, ..Steady::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Led by `l` the others' reads take 10 ms each. With noise of at most e on each count two
    /// leaders' means differ by less than ((1 + e) / (1 - e) - 1), here below θ = 2 %.
    #[test]
    fn noise_below_the_threshold_moves_nothing(
        seed in any::<u64>(), tau in 1.0..4.0_f64, intervals in 1..4_usize,
    ) {
        let mut rng = Rng::seeded(seed);
        let mut database = Database::new(tau, Steady { intervals, ..free() });
        for _ in 0..100 {
            let mut reads = || 1e4 * (1.0 + 0.0098 * 2.0 * (rng.unit() - 0.5));
            database.interval([reads(), reads(), reads()]);
        }
        prop_assert_eq!(database.moves.len(), 0);
    }

    /// However wild the noise: two moves are more than the cooldown apart.
    #[test]
    fn the_cooldown_bounds_how_often_anything_moves(seed in any::<u64>()) {
        let mut rng = Rng::seeded(seed);
        let steady = Steady { intervals: 1, cost: free().cost, ..Steady::default() };
        let mut database = Database::new(2.0, steady);
        let mut moved_at = Vec::new();
        for interval in 0..100 {
            let mut reads = || 1e4 * rng.unit();
            if matches!(database.interval([reads(), reads(), reads()]), Verdict::Move { .. }) {
                moved_at.push(interval);
            }
        }
        prop_assert!(moved_at.len() > 5, "wild noise moves something: {moved_at:?}");
        prop_assert!(moved_at.windows(2).all(|pair| pair[1] - pair[0] >= 4), "{moved_at:?}");
    }
}

#[test]
fn the_cooldown_is_time_and_not_the_number_of_intervals() {
    let mut database = Database::new(2.0, Steady { intervals: 1, ..Steady::default() });
    database.why([9e9, 1e9, 1e9]);
    assert!(matches!(database.interval([0.0, 9e12, 0.0]), Verdict::Move { .. }));
    // Many intervals that are pushed at once are no time, and one after a long pause is.
    database.every = Duration::from_secs(10);
    for past in 1..=10 {
        let left = Duration::from_secs(7_200 - past * 10);
        assert_eq!(database.why([0.0, 0.0, 9e12]), Why::Cooldown { left });
    }
    database.every = Duration::from_secs(7_200);
    assert!(matches!(database.interval([0.0, 0.0, 9e12]), Verdict::Move { .. }));
}

#[test]
fn clients_that_moved_are_followed_once_and_after_the_intervals_asked_for() {
    let mut database = Database::new(2.0, free());
    for _ in 0..5 {
        assert_eq!(database.why([9e3, 1e3, 1e3]), Why::Best);
    }
    assert!(matches!(database.why([1e3, 9e3, 1e3]), Why::TooSoon { intervals: 1, wanted: 3 }));
    assert!(matches!(database.why([1e3, 9e3, 1e3]), Why::TooSoon { intervals: 2, wanted: 3 }));
    let verdict = database.interval([1e3, 9e3, 1e3]);
    let Verdict::Move { to, gain_share, saves_ms_per_s, .. } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(to.leader(), 1);
    // Weights 1, 1/2, 1/4 of the new, 1/8 … 1/128 of the old: means of 11 000 reads each.
    let (new, old) = (1.75, 0.125 * (2.0 - 0.0625));
    let today = (new * 10e3 + old * 2e3) * 10.0;
    let goal = (new * 2e3 + old * 10e3) * 10.0;
    assert!((gain_share - (1.0 - goal / today)).abs() < 1e-12);
    assert!((saves_ms_per_s - (today - goal) / (new + old) / 1800.0).abs() < 1e-9);
    for _ in 0..20 {
        assert_eq!(database.why([1e3, 9e3, 1e3]), Why::Best);
    }
    assert_eq!(database.moves, [1]);
}

#[test]
fn a_spike_moves_nothing_though_it_outweighs_the_usual_for_hours() {
    let run = |intervals| {
        let mut database = Database::new(2.0, Steady { intervals, ..free() });
        for interval in 0..40 {
            let spike = if interval % 10 == 5 { 20.0 } else { 1.0 };
            database.interval([3e3, 2e3 * spike, 1e3]);
        }
        database.moves.len()
    };
    assert_eq!(run(3), 0);
    assert_eq!(run(1), 7, "without evidence it goes there and back, the last time not yet back");
}

#[test]
fn two_better_leaders_that_take_turns_do_not_keep_the_worst() {
    let mut database = Database::new(f64::INFINITY, free());
    let turn = |interval: usize| {
        if interval.is_multiple_of(2) { [1e3, 9e3, 8e3] } else { [1e3, 8e3, 9e3] }
    };
    (0..2).for_each(|interval| {
        assert!(matches!(database.why(turn(interval)), Why::TooSoon { .. }));
    });
    assert!(matches!(database.interval(turn(2)), Verdict::Move { .. }));
    (3..20).for_each(|interval| {
        database.interval(turn(interval));
    });
    assert_eq!(database.moves, [1], "and then they take turns in vain");
}

#[test]
fn a_move_must_pay_for_itself() {
    let cost = MoveCost { leader: 1e5, ..MoveCost::default() };
    let steady = Steady { intervals: 1, payback_intervals: 2.0, cost, ..free() };
    // It saves 10 ms × 4000 operations in an interval, 80 000 in two: less than 100 000.
    let mut quiet = Database::new(2.0, steady);
    let Why::NotWorthIt { saves_ms, cost_ms } = quiet.why([1e3, 5e3, 1e3]) else {
        panic!("it does not pay for itself");
    };
    assert!((saves_ms - 8e4).abs() < 1e-6 && cost_ms == 1e5);
    let mut busy = Database::new(2.0, steady);
    assert!(matches!(busy.interval([2e3, 1e4, 2e3]), Verdict::Move { cost_ms: 1e5, .. }));
}

#[test]
fn intervals_without_operations_are_no_evidence() {
    let mut database = Database::new(2.0, free());
    assert_eq!(database.why([0.0; 3]), Why::NoOperations);
    assert!(matches!(database.why([0.0, 9.0, 0.0]), Why::TooSoon { intervals: 1, .. }));
    for _ in 0..5 {
        assert!(matches!(database.why([0.0; 3]), Why::TooSoon { intervals: 1, .. }));
    }
}

#[test]
fn small_gains_are_told_with_their_size() {
    let mut database = Database::new(1.0, free());
    let Why::SmallGain { gain_share, gain_min } = database.why([1000.0, 1010.0, 1.0]) else {
        panic!("a gain of 1 % is small");
    };
    assert!((gain_share - (1.0 - 1001.0 / 1011.0)).abs() < 1e-12);
    assert_eq!(gain_min, 0.02);
}

#[test]
fn a_layout_costs_what_changes() {
    let cost = MoveCost { leader: 1.0, voter: 10.0, replica: 100.0 };
    let layout = |leader, voters: &[usize], replicas: &[usize]| {
        Layout::new(leader, voters.to_vec(), replicas.to_vec()).unwrap()
    };
    let from = layout(0, &[0, 1, 2], &[0, 1, 2, 3]);
    assert_eq!(cost.of(&from, &from), 0.0);
    assert_eq!(cost.of(&from, &layout(1, &[0, 1, 2], &[0, 1, 2, 3])), 1.0);
    assert_eq!(cost.of(&from, &layout(0, &[0, 1, 3], &[0, 1, 2, 3])), 20.0);
    assert_eq!(cost.of(&from, &layout(4, &[1, 3, 4], &[0, 1, 3, 4])), 1.0 + 40.0 + 100.0);
}
