//! Demand from counts, over times of all kinds.

use super::*;

/// Two sites, this is the first: two workers with `arrived` each, of which a tenth is sent on.
fn counts(arrived: [u64; 2], ended: u64, missed: u64, inflow: u64) -> SplitTally {
    let worker = |arrived: u64| {
        let mut window = SplitWindow::empty(2);
        window.arrived = arrived;
        window.by_site[0].sent = arrived * 9 / 10;
        window.by_site[1].sent = arrived / 10;
        window
    };
    let counts = |part: u64| SiteTally { ended: ended * part / 10, missed: missed * part / 10 };
    let by_site = vec![counts(9), counts(1)];
    let workers = arrived.map(worker).into();
    SplitTally { workers, by_site, inflow, ..SplitTally::default() }
}

#[test]
fn demand_is_the_mean_of_two_epochs_and_the_rest_of_one() {
    let mut demand = DemandMeter::default();
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
    let after = |ms| Some(Instant::from_millis(7 + ms));
    let with = |arrived, at: [u64; 2]| {
        let mut counts = counts(arrived, 0, 0, 0);
        counts.counted_at = at.map(after).into();
        counts
    };
    let mut demand = DemandMeter::default();
    demand.note(Instant::from_millis(200), with([0, 0], [0, 190]), 0);
    // 100/s and 300/s; the first was last heard of 0.2 s ago, the second just now.
    let counts = with([80, 300], [800, 1_190]);
    let lately = demand.note(Instant::from_millis(1_200), counts, 0);
    assert!((lately.demand - 400.0).abs() < 1e-9, "{lately:?}");
    assert_eq!(lately.arrived, [100, 300], "in the second between the looks");
}

#[test]
fn short_epochs_between_hand_ups_change_neither_demand_nor_load() {
    let mut demand = DemandMeter::default();
    // 1,000 requests/s at each worker; both hand up every 200 ms, an epoch has 100 ms.
    for epoch in 0..40_u64 {
        let handed_up_ms = epoch / 2 * 200;
        let mut counts = counts([handed_up_ms; 2], 2 * handed_up_ms, 0, 0);
        let at = Instant::from_millis(handed_up_ms);
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
    let mut demand = DemandMeter::default();
    demand.note(Instant::from_millis(0), counts([0, 0], 0, 0, 0), 0);
    let mut after = counts([500, 500], 1_000, 100, 0);
    after.returned = SiteTally { ended: 80, missed: 80 };
    after.foreign = SiteTally { ended: 20, missed: 0 };
    let lately = demand.note(Instant::from_millis(1_000), after, 0);
    assert_eq!((lately.ended, lately.missed), (1_000, 100), "users missed all of them");
    assert_eq!((lately.local_ended, lately.local_missed), (900 - 80 - 20, 90 - 80));
    assert_eq!(lately.load, 900.0 + 80.0);
}

#[test]
fn counts_that_begin_anew_are_no_demand() {
    let mut demand = DemandMeter::default();
    demand.note(Instant::from_millis(0), counts([500, 0], 900, 9, 9), 0);
    let lately = demand.note(Instant::from_millis(1_000), counts([0, 0], 0, 0, 0), 0);
    assert_eq!(
        lately,
        Lately { arrived: vec![0, 0], in_time: lately.in_time.clone(), ..Lately::default() }
    );
}

/// A site alone with one worker, so far asked this often.
fn alone(arrived: u64, writes: u64) -> SplitTally {
    let mut window = SplitWindow::empty(1);
    (window.arrived, window.writes) = (arrived, writes);
    SplitTally { workers: vec![window], ..SplitTally::default() }
}

#[test]
fn demand_over_a_time_is_a_mean_over_the_counts_that_are_that_old() {
    let span = DemandSpan { epochs: 1, least: Duration::from_secs(5) };
    let mut meter = DemandMeter::new(span, Choice::Tested);
    let mut at = |seconds: f64, arrived: u64| {
        meter.note(Instant::from_secs_f64(seconds), alone(arrived, 0), 0).demand
    };
    assert_eq!(at(0.0, 0), 0.0);
    assert_eq!(at(2.5, 1_000), 400.0, "over the time there was");
    assert_eq!(at(5.0, 3_000), 600.0);
    assert_eq!(at(7.5, 3_000), 400.0, "the first 2.5 s are forgotten");
    assert_eq!(at(107.5, 53_000), 500.0, "the last count was 100 s ago");
}

#[test]
fn a_meter_that_is_asked_all_the_time_stays_small() {
    let span = DemandSpan { epochs: 1, least: Duration::from_secs(3_600) };
    let mut meter = DemandMeter::new(span, Choice::Tested);
    for n in 0..10_000 {
        let lately = meter.note(Instant::from_millis(n), alone(3 * n, 0), 0);
        assert!(n == 0 || (lately.demand - 3_000.0).abs() < 1e-6, "{lately:?}");
    }
    assert!(meter.kept.len() <= COUNTS_MAX);
}

#[test]
fn writes_are_a_share_of_the_same_time_and_what_waits_is_that_of_now() {
    let mut meter = DemandMeter::default();
    meter.note(Instant::ZERO, alone(0, 0), 0);
    meter.note(Instant::from_millis(2_000), alone(100, 100), 0);
    let tally = SplitTally { waiting: 7, ..alone(400, 100) };
    let lately = meter.note(Instant::from_millis(4_000), tally, 0);
    assert_eq!((lately.demand, lately.writes().value()), (100.0, 0.25), "100 of 400");
    let report = lately.report(5, (1, Learnt::AS_PROFILED), vec![None]);
    assert_eq!((report.writes_ppm, report.backlog_requests), (250_000, 7));
    assert_eq!((report.demand_per_1000_s, report.capacity_per_1000_s), (100_000, 5));
    let lately = meter.note(Instant::from_millis(6_000), alone(400, 100), 0);
    assert_eq!((lately.writes_ppm, lately.waiting), (0, 0), "no write in two epochs");
    let lately = meter.note(Instant::from_millis(8_000), alone(400, 100), 0);
    assert_eq!((lately.demand, lately.writes_ppm), (0.0, 0));
}

/// A site that served 360/s in time, and a moment later a quarter of that.
struct Collapsed {
    demand: DemandMeter,
    second: u64,
    ended: u64,
    missed: u64,
}

impl Collapsed {
    fn new() -> Self {
        let demand = DemandMeter::default();
        let mut this = Self { demand, second: 0, ended: 0, missed: 0 };
        assert_eq!(this.serve(5, 400, 0), 360.0);
        // A site that is sent four times what is believed gets 70 % of the load that was too much.
        assert!((this.serve(3, 400, 300) - 360.0 * 0.7 / 4.0).abs() < 0.1);
        this
    }

    /// So many seconds, in each of which so many end and miss, nine of ten of them here; what the
    /// site is then believed to serve in time.
    fn serve(&mut self, seconds: u64, ended: u64, missed: u64) -> f64 {
        let mut believed = 0.0;
        for _ in 0..seconds {
            self.second += 1;
            (self.ended, self.missed) = (self.ended + ended, self.missed + missed);
            let counts = counts([0, 0], self.ended, self.missed, 0);
            let lately = self.demand.note(Instant::from_millis(1_000 * self.second), counts, 0);
            believed = lately.in_time[0];
        }
        believed
    }
}

#[test]
fn a_site_that_collapsed_for_a_moment_is_believed_again_as_it_serves() {
    let mut site = Collapsed::new();
    // 63/s are believed, and 270/s are served in time: twice as much after each minute.
    let believed = site.serve(60, 300, 0);
    assert!((120.0..135.0).contains(&believed), "{believed}");
    let believed = site.serve(120, 300, 0);
    assert_eq!(believed, 270.0);
}

#[test]
fn a_site_that_collapsed_is_not_believed_for_what_is_late_or_little() {
    let mut site = Collapsed::new();
    // Of those half an hour forgets two fifths, as before.
    let believed = site.serve(1_800, 300, 30);
    assert!((63.0..92.0).contains(&believed), "a tenth was late: {believed}");
    let mut site = Collapsed::new();
    site.serve(1_800, 60, 0);
    let believed = site.serve(1, 300, 0);
    assert!((54.0..92.0).contains(&believed), "54/s say nothing about more: {believed}");
}
