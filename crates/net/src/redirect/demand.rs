//! What the site's users asked for, and what they got, from counts since the beginning.
//!
//! Demand is requests that came, whoever served them and with whatever content: the mean over the
//! last two epochs, since one epoch of a small service is mostly chance. Workers hand up what they
//! counted every 0.2 s, so each one's counts are divided by the time between *its* last hand-ups:
//! by the time between two looks at them, a demand would be off by up to 4 % with epochs of 2.5 s.

use std::collections::VecDeque;

use evenkeel_core::Instant;
use evenkeel_core::units::Rate;

use super::Counts;

/// Counts at the ends of the last two epochs, and of the one before.
const KEPT: usize = 3;

/// Counts at the ends of the last epochs.
#[derive(Debug, Default)]
pub(super) struct Demand {
    kept: VecDeque<(Instant, Counts)>,
}

/// What happened lately.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Lately {
    /// Requests of the site's users, per second.
    pub(super) demand: f64,
    /// By worker, how many of them came to it.
    pub(super) arrived: Vec<u64>,
    /// Requests of the site's users that ended in the last epoch, and of these those that missed.
    pub(super) ended: u64,
    pub(super) missed: u64,
    /// The same of those that were served where they came.
    pub(super) local_ended: u64,
    pub(super) local_missed: u64,
    /// What the site served in the last epoch, per second: its own users' requests and others'.
    pub(super) load: f64,
}

impl Demand {
    /// Takes the counts at the end of an epoch. `home` is this site.
    pub(super) fn note(&mut self, now: Instant, counts: Counts, home: usize) -> Lately {
        self.kept.push_back((now, counts));
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
        let (_, newest) = self.kept.back().expect("it was just put there");
        let (oldest_at, oldest) = self.kept.front().expect("as well");
        let (before_at, before) = &self.kept[self.kept.len().saturating_sub(2)];
        let arrived = by_worker(newest, oldest);
        let lane = |counts: &Counts| counts.tally.lanes.get(home).copied().unwrap_or_default();
        let sum = |counts: &Counts| {
            let lanes = counts.tally.lanes.iter();
            lanes.fold((0, 0), |sum, lane| (sum.0 + lane.ended, sum.1 + lane.missed))
        };
        let since = |new: u64, old: u64| new.saturating_sub(old);
        let ended = since(sum(newest).0, sum(before).0);
        let local_ended = since(lane(newest).ended, lane(before).ended);
        let served_here = since(sent_home(newest, home), sent_home(before, home));
        let inflow = since(newest.inflow, before.inflow);
        Lately {
            demand: demand(&arrived, (now, newest), (*oldest_at, oldest)),
            arrived,
            ended,
            missed: since(sum(newest).1, sum(before).1).min(ended),
            local_ended,
            local_missed: since(lane(newest).missed, lane(before).missed).min(local_ended),
            load: rate(served_here + inflow, now, *before_at),
        }
    }
}

impl Lately {
    /// What the site served, as a rate.
    pub(super) fn load(&self) -> Rate {
        Rate::new(self.load).expect("counts over time are a rate")
    }
}

fn rate(count: u64, now: Instant, since: Instant) -> f64 {
    let seconds = now.since(since).as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Of all workers together; the time is each one's own where it is known.
fn demand(arrived: &[u64], newest: (Instant, &Counts), oldest: (Instant, &Counts)) -> f64 {
    let of = |(worker, &count): (usize, &u64)| {
        let at = |counts: &Counts| counts.tally.counted_at.get(worker).copied().flatten();
        match (at(newest.1), at(oldest.1)) {
            (Some(until), Some(since)) => {
                let seconds = until.saturating_duration_since(since).as_secs_f64();
                if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
            }
            _ => rate(count, newest.0, oldest.0),
        }
    };
    arrived.iter().enumerate().map(of).sum()
}

fn by_worker(newest: &Counts, oldest: &Counts) -> Vec<u64> {
    let before = |worker: usize| oldest.tally.workers.get(worker).map_or(0, |w| w.arrived);
    let workers = newest.tally.workers.iter().enumerate();
    workers.map(|(worker, window)| window.arrived.saturating_sub(before(worker))).collect()
}

fn sent_home(counts: &Counts, home: usize) -> u64 {
    counts.tally.workers.iter().filter_map(|window| Some(window.lanes.get(home)?.sent)).sum()
}

#[cfg(test)]
mod tests {
    use evenkeel_core::site::redirect::split::SplitWindow;

    use super::*;
    use crate::board::{LaneTally, SplitTally};

    /// Two sites, this is the first: two workers with `arrived` each, of which a tenth is sent on.
    fn counts(arrived: [u64; 2], ended: u64, missed: u64, inflow: u64) -> Counts {
        let worker = |arrived: u64| {
            let mut window = SplitWindow::empty(2);
            window.arrived = arrived;
            window.lanes[0].sent = arrived * 9 / 10;
            window.lanes[1].sent = arrived / 10;
            window
        };
        let lane = |part: u64| LaneTally { ended: ended * part / 10, missed: missed * part / 10 };
        let lanes = vec![lane(9), lane(1)];
        let workers = arrived.map(worker).into();
        Counts { tally: SplitTally { workers, lanes, ..SplitTally::default() }, inflow }
    }

    #[test]
    fn demand_is_the_mean_of_two_epochs_and_the_rest_of_one() {
        let mut demand = Demand::default();
        let at = Instant::from_millis;
        let nothing = demand.note(at(1_000), counts([0, 0], 0, 0, 0), 0);
        assert_eq!((nothing.demand, nothing.ended, nothing.load), (0.0, 0, 0.0));
        let first = demand.note(at(3_000), counts([100, 300], 300, 100, 20), 0);
        assert_eq!((first.demand, &first.arrived), (200.0, &vec![100, 300]));
        let second = demand.note(at(5_000), counts([300, 500], 700, 140, 60), 0);
        assert_eq!((second.demand, &second.arrived), (200.0, &vec![300, 500]));
        assert_eq!((second.ended, second.missed), (400, 40));
        assert_eq!((second.local_ended, second.local_missed), (360, 36));
        // 360 of the 400 that came stayed, 40 came from elsewhere: 400 in 2 s.
        assert_eq!(second.load, 200.0);
        let third = demand.note(at(7_000), counts([300, 500], 700, 140, 60), 0);
        assert_eq!((third.demand, third.ended, third.load), (100.0, 0, 0.0));
    }

    #[test]
    fn each_worker_counts_over_the_time_between_its_own_hand_ups() {
        let began = std::time::Instant::now();
        let after = |ms| Some(began + std::time::Duration::from_millis(ms));
        let with = |arrived, at: [u64; 2]| {
            let mut counts = counts(arrived, 0, 0, 0);
            counts.tally.counted_at = at.map(after).into();
            counts
        };
        let mut demand = Demand::default();
        demand.note(Instant::from_millis(200), with([0, 0], [0, 190]), 0);
        // 100/s and 300/s; the first was last heard of 0.2 s ago, the second just now.
        let counts = with([80, 300], [800, 1_190]);
        let lately = demand.note(Instant::from_millis(1_200), counts, 0);
        assert!((lately.demand - 400.0).abs() < 1e-9, "{lately:?}");
    }

    #[test]
    fn counts_that_begin_anew_are_no_demand() {
        let mut demand = Demand::default();
        demand.note(Instant::from_millis(0), counts([500, 0], 900, 9, 9), 0);
        let lately = demand.note(Instant::from_millis(1_000), counts([0, 0], 0, 0, 0), 0);
        assert_eq!(lately, Lately { arrived: vec![0, 0], ..Lately::default() });
    }
}
