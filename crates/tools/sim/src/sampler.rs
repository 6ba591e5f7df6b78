//! What a run showed over time, for those who ask: latency per window, load per replica.
//!
//! Off unless the scenario sets `run.window` or `run.load_every`: a run that nobody watches pays
//! one comparison per event for it.

use evenkeel_core::distribution::{Distribution, Recorder};
use evenkeel_core::time::millis;
use evenkeel_core::units::Probability;
use evenkeel_core::{Duration, Instant};
use serde::Serialize;

use crate::ends::{End, Ends};
use crate::redirect::SiteWindow;

/// The calls that ended within one window of virtual time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WindowReport {
    /// When the window ends, seconds of virtual time.
    pub until_s: f64,
    /// Calls answered in it, those of the warm-up included.
    pub served: u64,
    /// Of them with all optional content.
    pub optional: u64,
    /// Calls given up by the caller in it.
    pub timeouts: u64,
    /// Calls failed or refused in it.
    pub failed: u64,
    /// Calls served too late or not at all in it; 0 without an objective.
    pub violations: u64,
    /// Mean dimmer of the living replicas at its end, where they have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimmer: Option<f64>,
    /// Median latency of the served.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p999_ms: f64,
    /// By site of the users, where there are several data centres.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteWindow>,
}

impl WindowReport {
    /// Calls that ended in it.
    pub const fn calls(&self) -> u64 {
        self.served + self.timeouts + self.failed
    }
}

/// How the requests at the replicas (waiting and in service) varied.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    /// Samples taken, from the end of the warm-up to the last arrival.
    pub samples: u64,
    /// Mean load of each replica.
    pub means: Vec<f64>,
    /// Standard deviation over mean of a replica's load in time, averaged over the replicas:
    /// 0 = steady. Replicas that were never loaded have no say.
    pub variation: f64,
}

/// Cuts the run into windows.
#[derive(Debug)]
pub(crate) struct Windows {
    length: Duration,
    until: Instant,
    latency: Recorder,
    ends: Ends,
    reports: Vec<WindowReport>,
}

impl Windows {
    /// `None` when nobody asks: the length is zero.
    pub(crate) fn new(length: Duration) -> Option<Self> {
        let latency = Recorder::new(3).expect("3 digits are possible");
        let until = Instant::ZERO + length;
        let (ends, reports) = (Ends::default(), Vec::new());
        (!length.is_zero()).then_some(Self { length, until, latency, ends, reports })
    }

    #[inline]
    pub(crate) fn note(&mut self, latency: Duration, end: End, is_violation: bool) {
        self.ends.note(end, is_violation);
        if matches!(end, End::Served { .. }) {
            self.latency.record(latency);
        }
    }

    /// When the window that runs ends.
    pub(crate) const fn ends(&self) -> Instant {
        self.until
    }

    /// Ends the window that runs.
    pub(crate) fn close(&mut self, dimmer: Option<f64>) {
        let quantile = |p: f64| millis(self.latency.quantile(Probability::clamped(p)));
        let Ends { served, optional, timeouts, failed, violations } = self.ends;
        self.reports.push(WindowReport {
            until_s: self.until.as_secs_f64(),
            served,
            optional,
            timeouts,
            failed,
            violations,
            dimmer,
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            sites: Vec::new(),
        });
        self.latency.clear();
        self.ends = Ends::default();
        self.until += self.length;
    }

    /// The whole windows; what came after the last of them is not a window.
    pub(crate) fn into_reports(self) -> Vec<WindowReport> {
        self.reports
    }
}

/// Sums over samples of one replica's load.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    first: f64,
    second: f64,
}

/// Sums over samples of all replicas' loads.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    samples: u64,
    replicas: Vec<Sums>,
}

impl Loads {
    pub(crate) fn note(&mut self, loads: impl ExactSizeIterator<Item = u32>) {
        self.samples += 1;
        self.replicas.resize(loads.len(), Sums::default());
        for (sums, load) in self.replicas.iter_mut().zip(loads) {
            sums.first += f64::from(load);
            sums.second += f64::from(load) * f64::from(load);
        }
    }

    /// `None` when no sample was taken.
    pub(crate) fn into_report(self) -> Option<LoadReport> {
        let samples = self.samples as f64;
        let means: Vec<f64> = self.replicas.iter().map(|sums| sums.first / samples).collect();
        let variations: Vec<f64> = self
            .replicas
            .iter()
            .zip(&means)
            .filter(|(_, mean)| **mean > 0.0)
            .map(|(sums, mean)| (sums.second / samples - mean * mean).max(0.0).sqrt() / mean)
            .collect();
        let variation = variations.iter().sum::<f64>() / (variations.len() as f64).max(1.0);
        (self.samples > 0).then_some(LoadReport { samples: self.samples, means, variation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variation_is_deviation_over_mean_in_time() {
        let mut loads = Loads::default();
        for sample in [[4, 0, 0], [8, 0, 5]] {
            loads.note(sample.into_iter());
        }
        let report = loads.into_report().unwrap();
        assert_eq!((report.samples, report.means), (2, vec![6.0, 0.0, 2.5]));
        // Deviation 2 over mean 6, and 2.5 over 2.5; the idle replica has no say.
        assert!((report.variation - (1.0 / 3.0 + 1.0) / 2.0).abs() < 1e-12);
        assert_eq!(Loads::default().into_report(), None);
    }

    #[test]
    fn a_call_counts_in_the_window_in_which_it_ends() {
        let second = Duration::from_secs(1);
        let mut windows = Windows::new(second).unwrap();
        let served = End::Served { is_full: true };
        let calls =
            [(999, 7, served), (1_000, 50, served), (1_500, 90, End::TimedOut), (3_100, 1, served)];
        for (at_ms, latency_ms, end) in calls {
            while Instant::from_millis(at_ms) >= windows.ends() {
                windows.close(None);
            }
            windows.note(Duration::from_millis(latency_ms), end, latency_ms > 60);
        }
        let reports = windows.into_reports();
        let served: Vec<_> = reports.iter().map(|window| (window.until_s, window.served)).collect();
        assert_eq!(served, [(1.0, 1), (2.0, 1), (3.0, 0)]);
        assert!((reports[1].p999_ms - 50.0).abs() < 0.1, "{reports:?}");
        let second = (reports[1].optional, reports[1].timeouts, reports[1].violations);
        assert_eq!(second, (1, 1, 1));
        assert!(Windows::new(Duration::ZERO).is_none());
    }
}
