//! What Envoys report of the requests they sent, added up over all of them.
//!
//! Every Envoy reports, once in an interval it was told, how many requests it issued to each
//! locality and how many failed. Rates are over the interval the Envoy says it measured, so a late
//! report is not a lull. **A silent Envoy** counts no more after two intervals: what it said last
//! is no demand of today. A locality that is not in a report had no requests.
//!
//! **When it misleads.** Envoy counts every try: with retries on its routes the demand is too high
//! by them. It knows no latencies here: a request that was late and not failed is no miss.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::split::{DestinationCounts, SplitWindow};

use evenkeel_geo::demand::SiteTally;

/// Reports of further Envoys are not kept.
const REPORTERS_MAX: usize = 4_096;

/// One Envoy's report of one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What it says it measured over; zero when it does not say.
    pub over: Duration,
    /// By site.
    pub localities: Vec<LocalityReport>,
    /// Requests that no locality got: circuit breakers were open.
    pub dropped: u64,
}

/// What became of the requests to one locality since the report before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalityReport {
    /// Requests sent there.
    pub issued: u64,
    /// Requests answered with success.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
}

impl Report {
    /// The same, as our own proxy would have counted it: what nobody was sent was meant for home
    /// and failed there.
    pub fn counts(&self, home: SiteId) -> (SplitWindow, Vec<SiteTally>) {
        let mut window = SplitWindow::empty(self.localities.len());
        let mut tallies = vec![SiteTally::default(); self.localities.len()];
        for (site, locality) in self.localities.iter().enumerate() {
            let dropped = if site == home.index() { self.dropped } else { 0 };
            let sent = locality.issued + dropped;
            window.arrived += sent;
            window.by_site[site] = DestinationCounts { sent, ..DestinationCounts::default() };
            let missed = locality.failed + dropped;
            tallies[site] = SiteTally { ended: locality.succeeded + missed, missed };
        }
        (window, tallies)
    }
}

/// Requests per second to one locality, over all Envoys that are heard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LocalityRates {
    /// Sent there.
    pub issued_per_s: f64,
    /// Failed there.
    pub failed_per_s: f64,
}

/// The newest reports of one cluster.
#[derive(Debug)]
pub struct Demand {
    interval: Duration,
    sites: usize,
    /// By reporter (a load reporting stream).
    newest: BTreeMap<u64, (Instant, Vec<LocalityRates>)>,
}

impl Demand {
    /// Nothing heard yet, of `sites` sites; Envoys are told to report once in an `interval`.
    pub const fn new(sites: usize, interval: Duration) -> Self {
        Self { interval, sites, newest: BTreeMap::new() }
    }

    /// Takes in a report that came at `now`.
    pub fn note(&mut self, now: Instant, reporter: u64, report: &Report) {
        self.forget_silent(now);
        if self.newest.len() >= REPORTERS_MAX && !self.newest.contains_key(&reporter) {
            return;
        }
        let over = if report.over.is_zero() { self.interval } else { report.over }.as_secs_f64();
        let rates = |locality: &LocalityReport| LocalityRates {
            issued_per_s: locality.issued as f64 / over,
            failed_per_s: locality.failed as f64 / over,
        };
        let mut rates: Vec<LocalityRates> = report.localities.iter().map(rates).collect();
        rates.resize(self.sites, LocalityRates::default());
        self.newest.insert(reporter, (now, rates));
    }

    /// The stream of a reporter has ended: another one speaks for it from now on.
    pub fn forget(&mut self, reporter: u64) {
        self.newest.remove(&reporter);
    }

    /// Envoys that are heard.
    pub fn reporters(&self, now: Instant) -> usize {
        self.newest.values().filter(|(at, _)| !self.is_silent(now, *at)).count()
    }

    /// By site, what all Envoys that are heard send there.
    pub fn rates(&self, now: Instant) -> Vec<LocalityRates> {
        let mut sum = vec![LocalityRates::default(); self.sites];
        for (_, rates) in self.newest.values().filter(|(at, _)| !self.is_silent(now, *at)) {
            for (sum, one) in sum.iter_mut().zip(rates) {
                sum.issued_per_s += one.issued_per_s;
                sum.failed_per_s += one.failed_per_s;
            }
        }
        sum
    }

    fn is_silent(&self, now: Instant, at: Instant) -> bool {
        now.saturating_duration_since(at) > 2 * self.interval
    }

    fn forget_silent(&mut self, now: Instant) {
        let limit = 2 * self.interval;
        self.newest.retain(|_, (at, _)| now.saturating_duration_since(*at) <= limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn report(over: Duration, issued: [u64; 2], failed: [u64; 2]) -> Report {
        let locality = |site: usize| LocalityReport {
            issued: issued[site],
            succeeded: issued[site] - failed[site],
            failed: failed[site],
        };
        Report { over, localities: vec![locality(0), locality(1)], dropped: 0 }
    }

    fn issued(demand: &Demand, now: Instant) -> Vec<f64> {
        demand.rates(now).iter().map(|rates| rates.issued_per_s).collect()
    }

    #[test]
    fn several_envoys_add_up_each_over_its_own_interval() {
        let (mut demand, now) = (Demand::new(2, SECOND), Instant::now());
        demand.note(now, 1, &report(SECOND, [90, 10], [0, 5]));
        demand.note(now, 2, &report(2 * SECOND, [200, 0], [20, 0]));
        assert_eq!(issued(&demand, now), [190.0, 10.0]);
        let failed: Vec<f64> = demand.rates(now).iter().map(|rates| rates.failed_per_s).collect();
        assert_eq!(failed, [10.0, 5.0]);
        assert_eq!(demand.reporters(now), 2);
    }

    #[test]
    fn a_newer_report_replaces_the_envoys_older_one() {
        let (mut demand, now) = (Demand::new(2, SECOND), Instant::now());
        demand.note(now, 1, &report(SECOND, [90, 10], [0, 0]));
        demand.note(now + SECOND, 1, &report(SECOND, [40, 0], [0, 0]));
        assert_eq!(issued(&demand, now + SECOND), [40.0, 0.0]);
    }

    #[test]
    fn an_envoy_that_is_silent_for_two_intervals_counts_no_more() {
        let (mut demand, now) = (Demand::new(2, SECOND), Instant::now());
        demand.note(now, 1, &report(SECOND, [90, 10], [0, 0]));
        demand.note(now + SECOND, 2, &report(SECOND, [5, 5], [0, 0]));
        assert_eq!(issued(&demand, now + 2 * SECOND), [95.0, 15.0]);
        assert_eq!(issued(&demand, now + 2 * SECOND + Duration::from_millis(1)), [5.0, 5.0]);
        assert_eq!(demand.reporters(now + 4 * SECOND), 0);
    }

    #[test]
    fn an_envoy_whose_stream_ended_counts_no_more() {
        let (mut demand, now) = (Demand::new(2, SECOND), Instant::now());
        demand.note(now, 1, &report(SECOND, [90, 10], [0, 0]));
        demand.forget(1);
        assert_eq!(issued(&demand, now), [0.0, 0.0]);
    }

    #[test]
    fn a_report_counts_as_if_our_own_proxy_had_sent_the_requests() {
        let report = Report { dropped: 7, ..report(SECOND, [90, 10], [4, 1]) };
        let (window, by_site) = report.counts(SiteId::new(0));
        assert_eq!((window.arrived, window.no_plan, window.stale), (107, 0, 0));
        assert_eq!(window.by_site.iter().map(|counts| counts.sent).collect::<Vec<_>>(), [97, 10]);
        assert_eq!(by_site[0], SiteTally { ended: 97, missed: 11 });
        assert_eq!(by_site[1], SiteTally { ended: 10, missed: 1 });
    }

    #[test]
    fn a_report_without_an_interval_is_over_the_one_asked_for() {
        let (mut demand, now) = (Demand::new(2, 4 * SECOND), Instant::now());
        demand.note(now, 1, &report(Duration::ZERO, [40, 0], [0, 0]));
        assert_eq!(issued(&demand, now), [10.0, 0.0]);
    }
}
