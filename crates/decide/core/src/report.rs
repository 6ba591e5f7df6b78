//! What a replica knows of itself beyond counts: mean service time, arrival rate, latency. Agents
//! tell it, and so do the simulator's servers, by these lines: no simulated policy can read what
//! the wire would not carry.
//!
//! **Signals**: time of each answered request in the application, gaps between arrivals.
//! **Why these statistics**: both are exponentially weighted means, one multiplication per
//! request, whose memory (some thirty requests) is shorter than what they are read for. The rate
//! is one over the mean *gap*, which a burst moves at once; gaps count as 50 ms at most, so that
//! one idle night does not hide the morning's first rush. **When they mislead**: hence no rate
//! below 20/s is ever told, and an idle replica tells its last one. A mean says nothing of the
//! spread of service times. **Cold start**: the first sample is taken whole; until a request is
//! answered, the time since the first one was sent stands for the service time, since it cannot
//! be shorter. **Source**: adaptive selection study, section 3 (server side); the latency is
//! what Prequal asks of a server (NSDI '24), by the simplest formula that grows with load.

use crate::fleet::Feedback;
use crate::time::{self, Duration, Instant};
use crate::units::Rate;

/// Weight of a new service time.
const SERVICE_GAIN: f64 = 0.04;
/// Weight of a new gap between arrivals.
const GAP_GAIN: f64 = 0.03;
const GAP_MS_MAX: f64 = 50.0;
/// A burst within one tick of the clock has gaps of zero; their mean must not be.
const GAP_MS_MIN: f64 = 1e-6;

/// Running estimates of one application.
#[derive(Clone, Debug, Default)]
pub struct Estimates {
    arrived_at: Option<Instant>,
    gap_ms: Option<f64>,
    sent_first: Option<Instant>,
    service_ms: Option<f64>,
}

/// What is counted at the moment of a report.
#[derive(Debug, Clone, Copy)]
pub struct Present {
    /// The moment of the report.
    pub now: Instant,
    /// Requests that wait for the application.
    pub waiting: u32,
    /// Requests the application works on.
    pub in_service: u32,
    /// Requests it can work on at once, where that is known.
    pub concurrency: Option<u32>,
}

impl Estimates {
    /// A request came from a client.
    pub fn arrived(&mut self, now: Instant) {
        if let Some(before) = self.arrived_at.replace(now) {
            let gap_ms = now.millis_since(before).clamp(GAP_MS_MIN, GAP_MS_MAX);
            self.gap_ms = Some(mean(self.gap_ms, gap_ms, GAP_GAIN));
        }
    }

    /// A request was sent to the application.
    pub fn sent(&mut self, now: Instant) {
        self.sent_first.get_or_insert(now);
    }

    /// The application answered a request after this time.
    pub fn served(&mut self, service_time: Duration) {
        self.service_ms = Some(mean(self.service_ms, time::millis(service_time), SERVICE_GAIN));
    }

    /// The report of this moment: with the service time of the request just answered, or else
    /// the usual one; with none before anything was sent to the application. Who has done nothing
    /// yet says so: one that kept silent would never be given anything.
    pub fn report(&self, present: Present, service_time: Option<Duration>) -> Feedback {
        let Present { now, waiting, in_service, concurrency } = present;
        let usual = self.usual(now);
        Feedback {
            queue_length: waiting,
            in_service,
            concurrency,
            service_time: service_time.or_else(|| usual.map(time::from_millis_f64)),
            latency: usual.map(|usual| time::from_millis_f64(latency_ms(usual, present))),
            arrival_rate: self.gap_ms.and_then(|gap_ms| Rate::new(1e3 / gap_ms).ok()),
            dimmer: None,
            reported_at: Some(now),
        }
    }

    /// The mean service time, or what it cannot be below.
    fn usual(&self, now: Instant) -> Option<f64> {
        self.service_ms.or_else(|| Some(now.millis_since(self.sent_first?)))
    }
}

/// The mean service time × (1 + load / concurrency). Without a limit, waiting happens inside the
/// application and is part of its mean already.
fn latency_ms(service_ms: f64, present: Present) -> f64 {
    let Present { waiting, in_service, concurrency, .. } = present;
    let Some(concurrency) = concurrency else { return service_ms };
    let load = f64::from(waiting) + f64::from(in_service);
    service_ms * (1.0 + load / f64::from(concurrency.max(1)))
}

fn mean(mean: Option<f64>, sample: f64, gain: f64) -> f64 {
    mean.map_or(sample, |mean| mean + gain * (sample - mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn idle(now: Instant) -> Present {
        Present { now, waiting: 0, in_service: 0, concurrency: Some(4) }
    }

    #[test]
    fn an_even_stream_has_its_own_rate_and_mean() {
        let mut estimates = Estimates::default();
        for n in 0..1_000 {
            estimates.arrived(Instant::from_millis(n * 2));
            estimates.sent(Instant::from_millis(n * 2));
            estimates.served(8 * MS);
        }
        let now = Instant::from_millis(5_000);
        let report = estimates.report(idle(now), None);
        assert!((report.arrival_rate.unwrap().value() - 500.0).abs() < 1e-6);
        assert!(report.service_time.unwrap().abs_diff(8 * MS) < Duration::from_nanos(10));
        assert_eq!((report.reported_at, report.concurrency), (Some(now), Some(4)));
        let busy = Present { waiting: 6, in_service: 4, ..idle(now) };
        let report = estimates.report(busy, Some(3 * MS));
        // 8 ms × (1 + 10 / 4) = 28 ms, whatever the last request took.
        let counts = (report.queue_length, report.in_service);
        assert_eq!((report.service_time, counts), (Some(3 * MS), (6, 4)));
        assert!(report.latency.unwrap().abs_diff(28 * MS) < Duration::from_nanos(100));
        let unlimited = Present { concurrency: None, ..busy };
        let report = estimates.report(unlimited, None);
        assert!(report.latency.unwrap().abs_diff(8 * MS) < Duration::from_nanos(100));
    }

    #[test]
    fn a_new_rate_is_believed_after_some_thirty_requests() {
        let mut estimates = Estimates::default();
        let mut now_ms = 0;
        for gap_ms in std::iter::repeat_n(20, 500).chain(std::iter::repeat_n(2, 100)) {
            now_ms += gap_ms;
            estimates.arrived(Instant::from_millis(now_ms));
            estimates.sent(Instant::from_millis(now_ms));
        }
        // Of the old gap's excess of 18 ms a share of 0.97^100 is left.
        let gap_ms = 2.0 + 18.0 * 0.97_f64.powi(100);
        let report = estimates.report(idle(Instant::from_millis(now_ms)), None);
        assert!((report.arrival_rate.unwrap().value() * gap_ms / 1e3 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_long_pause_counts_as_fifty_milliseconds_and_a_burst_is_finite() {
        let rate = |arrivals: &[Instant]| {
            let mut estimates = Estimates::default();
            estimates.sent(Instant::ZERO);
            arrivals.iter().for_each(|at| estimates.arrived(*at));
            let report = estimates.report(idle(Instant::FAR), None);
            report.arrival_rate.map(Rate::value)
        };
        assert_eq!(rate(&[Instant::ZERO]), None, "one arrival has no gap");
        assert_eq!(rate(&[Instant::ZERO, Instant::from_millis(3_600_000)]), Some(20.0));
        assert!(rate(&[Instant::ZERO; 9]).unwrap().is_finite());
    }

    #[test]
    fn a_service_time_nobody_measured_is_absent_then_at_least_the_time_waited() {
        let mut estimates = Estimates::default();
        estimates.arrived(Instant::ZERO);
        let report = estimates.report(idle(Instant::ZERO), None);
        assert_eq!((report.service_time, report.latency, report.queue_length), (None, None, 0));
        estimates.sent(Instant::from_millis(5));
        estimates.sent(Instant::from_millis(9));
        let report = estimates.report(idle(Instant::from_millis(25)), None);
        assert_eq!(report.service_time, Some(20 * MS));
        estimates.served(30 * MS);
        let report = estimates.report(idle(Instant::from_millis(90)), None);
        assert_eq!(report.service_time, Some(30 * MS));
    }
}
