//! What became of the requests: counts and latency histograms.

use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::expect::Mismatch;

/// The longest latency told apart from longer ones; a timeout cannot be longer.
pub const LATENCY_MAX: Duration = Duration::from_secs(3_600);

/// Mismatches kept with their details.
const MISMATCHES_KEPT: usize = 8;

/// Different failures kept apart; the rest is counted together.
const FAILURES_KEPT: usize = 16;

/// Latencies as an HDR histogram: every quantile within 0.1 %, mean and maximum exact.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let nanos_max = LATENCY_MAX.as_nanos() as u64;
        let histogram = Histogram::new_with_bounds(1, nanos_max, 3)
            .expect("1 ns to an hour at three digits is a valid range");
        Self { histogram, sum_ns: 0, max_ns: 0 }
    }
}

impl Latencies {
    /// Adds one latency; beyond [`LATENCY_MAX`] it counts as that.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        let nanos = latency.min(LATENCY_MAX).as_nanos() as u64;
        self.histogram.saturating_record(nanos);
        self.sum_ns += u128::from(nanos);
        self.max_ns = self.max_ns.max(nanos);
    }

    /// Adds all latencies of another.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all histograms here have equal bounds");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Forgets all latencies.
    pub fn clear(&mut self) {
        self.histogram.reset();
        (self.sum_ns, self.max_ns) = (0, 0);
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that this share (in [0, 1]) stays at or below, in milliseconds; `None` without
    /// latencies: an absent tail is not a fast one.
    pub fn quantile_ms(&self, share: f64) -> Option<f64> {
        let nanos = self.histogram.value_at_quantile(share).min(self.max_ns);
        (self.count() > 0).then_some(nanos as f64 * 1e-6)
    }

    /// The mean, in milliseconds.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns as f64 * 1e-6 / self.count() as f64)
    }

    /// The largest, in milliseconds.
    pub fn max_ms(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.max_ns as f64 * 1e-6)
    }

    /// The histogram itself, in nanoseconds.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Writes the percentiles in milliseconds as text in the form that HdrHistogram's tools and
    /// plotters read: five steps per halving of the distance to 100 %.
    ///
    /// # Errors
    /// When `out` cannot be written to.
    pub fn write_percentiles(&self, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(
            out,
            "{:>12} {:>14} {:>10} {:>14}\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        )?;
        let mut total = 0;
        for step in self.histogram.iter_quantiles(5) {
            total += step.count_since_last_iteration();
            let value_ms = step.value_iterated_to().min(self.max_ns) as f64 * 1e-6;
            let quantile = step.quantile_iterated_to();
            write!(out, "{value_ms:12.3} {quantile:.12} {total:10}")?;
            if quantile < 1.0 {
                writeln!(out, " {:14.2}", 1.0 / (1.0 - quantile))?;
            } else {
                writeln!(out)?;
            }
        }
        let mean = self.mean_ms().unwrap_or(0.0);
        let deviation = self.histogram.stdev() * 1e-6;
        let (max, count) = (self.max_ms().unwrap_or(0.0), self.count());
        writeln!(out, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]")?;
        writeln!(out, "#[Max     = {max:12.3}, Total count    = {count:12}]")?;
        let (buckets, sub_buckets) = (self.histogram.buckets(), 2_048);
        writeln!(out, "#[Buckets = {buckets:12}, SubBuckets     = {sub_buckets:12}]")
    }
}

/// A response that arrived whole.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) bytes: u64,
    /// The response says that it holds optional content.
    pub(super) optional: bool,
    pub(super) mismatch: Option<Mismatch>,
}

/// Whether an answer of this status counts as served. A redirect does not: what was asked for is
/// elsewhere, and nobody follows it. "Not modified" is what a conditional request asks for.
pub(super) fn is_success(status: u16) -> bool {
    status < 300 || status == 304
}

/// In words, an answer that does not.
fn answered(status: u16) -> String {
    let known = http::StatusCode::from_u16(status).ok();
    let reason = known.and_then(|status| status.canonical_reason());
    let reason = reason.map_or(String::new(), |reason| format!(" {reason}"));
    let hint = match status {
        300..=399 => " (redirects are not followed: load the address it leads to)",
        _ => "",
    };
    format!("answered {status}{reason}{hint}")
}

/// One kind of failure and how often it came.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct FailureCount {
    /// What happened, with its likely cause.
    pub message: String,
    /// How often.
    pub count: u64,
}

/// Everything that is counted while a load runs.
#[derive(Default)]
pub(super) struct Tally {
    /// An answer that takes longer than this, from the moment its request was due, comes too late.
    pub(super) objective: Option<Duration>,
    /// From the moment a request was due: served ones and timeouts.
    pub(super) latency: Latencies,
    /// The same since the last progress report.
    pub(super) recent: Latencies,
    /// From the moment a request was sent: served ones only.
    pub(super) service: Latencies,
    /// The part of the delay before sending that is the generator's own.
    pub(super) send_lag: Latencies,
    pub(super) served: u64,
    /// Of these, the ones that came too late.
    pub(super) late: u64,
    pub(super) failed: u64,
    pub(super) timeouts: u64,
    pub(super) dropped: u64,
    pub(super) optional: u64,
    pub(super) bytes: u64,
    /// By hundreds; index 0 takes what is no HTTP status.
    pub(super) statuses: [u64; 6],
    /// Whole answers that count as failed, by status.
    pub(super) failed_statuses: BTreeMap<u16, u64>,
    pub(super) mismatches: u64,
    pub(super) mismatch_examples: Vec<Mismatch>,
    pub(super) failures: Vec<FailureCount>,
    pub(super) connections_opened: u64,
}

impl Tally {
    pub(super) fn decided(&self) -> u64 {
        self.served + self.failed + self.timeouts
    }

    /// The share of requests that missed the objective; `None` without one, or without requests.
    pub(super) fn missed_share(&self) -> Option<f64> {
        let missed = self.late + self.failed + self.timeouts;
        let of = self.objective.map(|_| self.decided()).filter(|decided| *decided > 0)?;
        Some(missed as f64 / of as f64)
    }

    pub(super) fn answered(&mut self, latency: Duration, service: Duration, reply: Reply) {
        let class = usize::from(reply.status / 100);
        self.statuses[if class < 6 { class } else { 0 }] += 1;
        self.bytes += reply.bytes;
        if let Some(mismatch) = reply.mismatch {
            self.mismatches += 1;
            self.failed += 1;
            if self.mismatch_examples.len() < MISMATCHES_KEPT {
                self.mismatch_examples.push(mismatch);
            }
        } else if !is_success(reply.status) {
            self.failed += 1;
            *self.failed_statuses.entry(reply.status).or_default() += 1;
        } else {
            self.served += 1;
            self.late += u64::from(self.objective.is_some_and(|objective| latency > objective));
            self.optional += u64::from(reply.optional);
            self.latency.record(latency);
            self.recent.record(latency);
            self.service.record(service);
        }
    }

    pub(super) fn timed_out(&mut self, timeout: Duration) {
        self.timeouts += 1;
        self.latency.record(timeout);
        self.recent.record(timeout);
    }

    pub(super) fn dropped(&mut self) {
        self.dropped += 1;
        self.failed_because("dropped: the queue of requests without a connection was full");
    }

    pub(super) fn failed_because(&mut self, message: &str) {
        self.failed += 1;
        self.problem(message);
    }

    /// What went wrong, and how often: answers first, by status.
    pub(super) fn reasons(&self) -> Vec<FailureCount> {
        let of_status = |(status, count): (&u16, &u64)| {
            let message = answered(*status);
            FailureCount { message, count: *count }
        };
        let mut reasons: Vec<FailureCount> = self.failed_statuses.iter().map(of_status).collect();
        if self.mismatches > 0 {
            let message = "answered with another body than expected".to_owned();
            reasons.push(FailureCount { message, count: self.mismatches });
        }
        reasons.extend_from_slice(&self.failures);
        reasons
    }

    /// Notes a failure, which need not be that of a request.
    pub(super) fn problem(&mut self, message: &str) {
        let known = self.failures.iter().position(|failure| failure.message == message);
        match known {
            Some(index) => self.failures[index].count += 1,
            None if self.failures.len() < FAILURES_KEPT => {
                self.failures.push(FailureCount { message: message.into(), count: 1 });
            }
            None => {
                let last = self.failures.last_mut().expect("some are kept");
                "other failures".clone_into(&mut last.message);
                last.count += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(values: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        values.into_iter().for_each(|ms| latencies.record(Duration::from_millis(ms)));
        latencies
    }

    #[test]
    fn quantiles_are_within_a_thousandth_and_ends_exact() {
        let latencies = millis(1..=1_000);
        for share in [0.5, 0.95, 0.99, 0.999] {
            let came = latencies.quantile_ms(share).unwrap();
            assert!((came / (1_000.0 * share) - 1.0).abs() <= 0.001, "{share}: {came}");
        }
        assert_eq!(latencies.max_ms(), Some(1_000.0));
        assert_eq!(latencies.mean_ms(), Some(500.5));
        assert_eq!(Latencies::default().quantile_ms(0.99), None);
    }

    #[test]
    fn merging_is_recording_together() {
        let mut merged = millis(1..=400);
        merged.merge(&millis(401..=1_000));
        let whole = millis(1..=1_000);
        assert_eq!(merged.histogram(), whole.histogram());
        assert_eq!(merged.mean_ms(), whole.mean_ms());
        assert_eq!(merged.max_ms(), whole.max_ms());
    }

    #[test]
    fn percentile_files_have_the_known_form() {
        let mut text = Vec::new();
        millis(1..=1_000).write_percentiles(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let rows = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.contains("Value"))
            .filter(|line| !line.is_empty())
            .map(|line| {
                line.split_whitespace().map(|f| f.parse::<f64>().unwrap()).collect::<Vec<_>>()
            })
            .collect::<Vec<_>>();
        let half = rows.iter().find(|row| row[1] == 0.5).unwrap();
        assert!((half[0] - 500.0).abs() < 0.6 && half[2] == 500.0 && half[3] == 2.0, "{half:?}");
        assert_eq!(rows.last().unwrap()[..3], [1_000.0, 1.0, 1_000.0]);
        assert!(text.contains("Max     =     1000.000, Total count    =         1000]"), "{text}");
    }

    #[test]
    fn the_objective_is_missed_by_what_comes_late_or_not_at_all() {
        let mut tally = Tally::default();
        let answer = |tally: &mut Tally, ms: u64, status: u16| {
            let latency = Duration::from_millis(ms);
            let reply = Reply { status, bytes: 0, optional: false, mismatch: None };
            tally.answered(latency, latency, reply);
        };
        answer(&mut tally, 1, 200);
        assert_eq!(tally.missed_share(), None, "there is no objective");
        let objective = Some(Duration::from_millis(100));
        let mut tally = Tally { objective, ..Tally::default() };
        assert_eq!(tally.missed_share(), None, "there are no requests");
        answer(&mut tally, 1, 200);
        answer(&mut tally, 100, 200); // in time: the objective is the longest that is
        assert_eq!(tally.missed_share(), Some(0.0));
        answer(&mut tally, 101, 200);
        answer(&mut tally, 1, 503);
        tally.failed_because("it closed the connection");
        tally.timed_out(Duration::from_millis(50)); // a timeout below the objective
        tally.problem("of no request");
        assert_eq!(tally.missed_share(), Some(4.0 / 6.0));
        assert_eq!((tally.served, tally.decided()), (3, 6));
    }

    #[test]
    fn answers_that_fail_are_told_by_status_and_a_redirect_is_one_of_them() {
        let mut tally = Tally::default();
        for status in [200, 204, 304, 302, 302, 404, 503, 799] {
            let reply = Reply { status, bytes: 0, optional: false, mismatch: None };
            tally.answered(Duration::ZERO, Duration::ZERO, reply);
        }
        tally.failed_because("it closed the connection");
        assert_eq!((tally.served, tally.failed), (3, 6));
        let reasons = tally.reasons();
        let reasons = reasons.iter().map(|it| format!("{} × {}", it.count, it.message));
        assert_eq!(
            reasons.collect::<Vec<_>>(),
            [
                "2 × answered 302 Found (redirects are not followed: load the address it leads to)",
                "1 × answered 404 Not Found",
                "1 × answered 503 Service Unavailable",
                "1 × answered 799",
                "1 × it closed the connection"
            ]
        );
    }

    #[test]
    fn kinds_of_failures_are_bounded_and_none_is_lost() {
        let mut tally = Tally::default();
        (0..100).for_each(|i| tally.problem(&format!("problem {}", i % 50)));
        assert_eq!(tally.failures.len(), FAILURES_KEPT);
        assert_eq!(tally.failures.iter().map(|failure| failure.count).sum::<u64>(), 100);
    }
}
