//! What the site's users asked for, and what they got, from counts since the beginning.
//!
//! Demand is requests that came, whoever served them and with whatever content: the mean over the
//! last two epochs, since one epoch of a small service is mostly chance, and over a second at
//! least. Workers hand up what they counted every 0.2 s, so each one's counts are divided by the
//! time between *its* last hand-ups: by the time between two looks at them, a demand would be off
//! by up to 4 % with epochs of 2.5 s, and with the shortest ones every other would be none.

use std::collections::VecDeque;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::site::redirect::split::SplitWindow;
use evenkeel_core::units::Rate;

use crate::board::{LaneTally, SplitTally};

/// Counts at the ends of the last two epochs, and of the one before.
const KEPT: usize = 3;
/// Counts are kept for this long at least: several hand-ups of every worker.
const SPAN_MIN: Duration = Duration::from_secs(1);

/// Counts at the ends of the last epochs.
#[derive(Debug, Default)]
pub(super) struct Demand {
    kept: VecDeque<(Instant, SplitTally)>,
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
    /// The same of those that were served where they came, and had been nowhere else before; as far
    /// as it is known how late they were.
    pub(super) local_ended: u64,
    pub(super) local_missed: u64,
    /// What the site served in the last epoch, per second: its own users' requests and others'.
    pub(super) load: f64,
}

impl Demand {
    /// Takes the counts at the end of an epoch. `home` is this site.
    pub(super) fn note(&mut self, now: Instant, counts: SplitTally, home: usize) -> Lately {
        self.kept.push_back((now, counts));
        while self.kept.len() > KEPT && now.since(self.kept[1].0) >= SPAN_MIN {
            self.kept.pop_front();
        }
        let until = &self.kept[self.kept.len() - 1];
        let of_epoch = Between { until, since: &self.kept[self.kept.len().saturating_sub(2)] };
        let of_two = Between { until, since: &self.kept[0] };
        let sent_home = |window: &SplitWindow| window.lanes.get(home).map_or(0, |lane| lane.sent);
        let all = |tally: &SplitTally, count: fn(&LaneTally) -> u64| -> u64 {
            tally.lanes.iter().map(count).sum()
        };
        let local = |tally: &SplitTally, count: fn(&LaneTally) -> u64| {
            let here = tally.lanes.get(home).map_or(0, count);
            here.saturating_sub(count(&tally.returned) + count(&tally.foreign))
        };
        let ended = of_epoch.count(|tally| all(tally, |lane| lane.ended));
        let local_ended = of_epoch.count(|tally| local(tally, |lane| lane.ended));
        let from_elsewhere = of_epoch.count(|tally| tally.inflow + tally.returned.ended);
        Lately {
            demand: of_two.rate(|window| window.arrived),
            arrived: of_two.by_worker(|window| window.arrived),
            ended,
            missed: of_epoch.count(|tally| all(tally, |lane| lane.missed)).min(ended),
            local_ended,
            local_missed: of_epoch.count(|tally| local(tally, |lane| lane.missed)).min(local_ended),
            load: of_epoch.rate(sent_home) + per_second(from_elsewhere, of_epoch.seconds()),
        }
    }
}

impl Lately {
    /// What the site served, as a rate.
    pub(super) fn load(&self) -> Rate {
        Rate::new(self.load).expect("counts over time are a rate")
    }
}

/// What was counted between two moments. Counts that begin anew are no counts.
struct Between<'a> {
    until: &'a (Instant, SplitTally),
    since: &'a (Instant, SplitTally),
}

impl Between<'_> {
    fn count(&self, of: impl Fn(&SplitTally) -> u64) -> u64 {
        of(&self.until.1).saturating_sub(of(&self.since.1))
    }

    fn by_worker(&self, of: impl Fn(&SplitWindow) -> u64) -> Vec<u64> {
        let before = |worker: usize| self.since.1.workers.get(worker).map_or(0, &of);
        let workers = self.until.1.workers.iter().enumerate();
        workers.map(|(worker, window)| of(window).saturating_sub(before(worker))).collect()
    }

    /// Of all workers together, per second.
    fn rate(&self, of: impl Fn(&SplitWindow) -> u64) -> f64 {
        let counts = self.by_worker(of).into_iter().enumerate();
        counts.map(|(worker, count)| per_second(count, self.seconds_of(worker))).sum()
    }

    /// How long a worker counted; by our own clock where it does not say.
    fn seconds_of(&self, worker: usize) -> f64 {
        let at = |tally: &SplitTally| tally.counted_at.get(worker).copied().flatten();
        match (at(&self.until.1), at(&self.since.1)) {
            (Some(until), Some(since)) => until.saturating_duration_since(since).as_secs_f64(),
            _ => self.until.0.since(self.since.0).as_secs_f64(),
        }
    }

    /// How long the workers counted that counted at all, on average.
    fn seconds(&self) -> f64 {
        let all = (0..self.until.1.workers.len()).map(|worker| self.seconds_of(worker));
        let counted: Vec<f64> = all.filter(|seconds| *seconds > 0.0).collect();
        counted.iter().sum::<f64>() / counted.len().max(1) as f64
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sites, this is the first: two workers with `arrived` each, of which a tenth is sent on.
    fn counts(arrived: [u64; 2], ended: u64, missed: u64, inflow: u64) -> SplitTally {
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
        SplitTally { workers, lanes, inflow, ..SplitTally::default() }
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
        let after = |ms| Some(began + Duration::from_millis(ms));
        let with = |arrived, at: [u64; 2]| {
            let mut counts = counts(arrived, 0, 0, 0);
            counts.counted_at = at.map(after).into();
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
    fn short_epochs_between_hand_ups_change_neither_demand_nor_load() {
        let began = std::time::Instant::now();
        let mut demand = Demand::default();
        // 1,000 requests/s at each worker; both hand up every 200 ms, an epoch has 100 ms.
        for epoch in 0..40_u64 {
            let handed_up_ms = epoch / 2 * 200;
            let mut counts = counts([handed_up_ms; 2], 2 * handed_up_ms, 0, 0);
            let at = began + Duration::from_millis(handed_up_ms);
            counts.counted_at = vec![Some(at); 2];
            let lately = demand.note(Instant::from_millis(epoch * 100 + 7), counts, 0);
            if epoch >= 2 {
                assert!((lately.demand - 2_000.0).abs() < 1e-6, "{epoch}: {lately:?}");
                // Nine in ten stay; in every other epoch nothing is heard, and nothing said.
                let load = if lately.local_ended == 0 { 0.0 } else { 1_800.0 };
                assert!((lately.load - load).abs() < 1e-6, "{epoch}: {lately:?}");
            }
            assert!(demand.kept.len() <= 12, "{}", demand.kept.len());
        }
    }

    #[test]
    fn what_came_back_or_has_no_latency_is_load_and_says_nothing_of_how_home_serves() {
        let mut demand = Demand::default();
        demand.note(Instant::from_millis(0), counts([0, 0], 0, 0, 0), 0);
        let mut after = counts([500, 500], 1_000, 100, 0);
        after.returned = LaneTally { ended: 80, missed: 80 };
        after.foreign = LaneTally { ended: 20, missed: 0 };
        let lately = demand.note(Instant::from_millis(1_000), after, 0);
        assert_eq!((lately.ended, lately.missed), (1_000, 100), "users missed all of them");
        assert_eq!((lately.local_ended, lately.local_missed), (900 - 80 - 20, 90 - 80));
        assert_eq!(lately.load, 900.0 + 80.0);
    }

    #[test]
    fn counts_that_begin_anew_are_no_demand() {
        let mut demand = Demand::default();
        demand.note(Instant::from_millis(0), counts([500, 0], 900, 9, 9), 0);
        let lately = demand.note(Instant::from_millis(1_000), counts([0, 0], 0, 0, 0), 0);
        assert_eq!(lately, Lately { arrived: vec![0, 0], ..Lately::default() });
    }
}
