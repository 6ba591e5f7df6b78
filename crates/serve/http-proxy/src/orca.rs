//! ORCA load reports on HTTP responses: what a replica says of itself, on the wire.
//!
//! | header | value | here |
//! |---|---|---|
//! | `endpoint-load-metrics` | `TEXT name=value, …` | written and read |
//! | | `JSON {…}`, `BIN` and base64 of protobuf | read |
//! | | `name:value,…` without a prefix (Envoy until autumn 2024) | read |
//! | `endpoint-load-metrics-bin` | base64 of protobuf, padded or not (gRPC) | read, preferred |
//!
//! ORCA's map `named_metrics` is open, so the facts that selection needs ride there; map entries
//! are `map.key` in the TEXT form. Names, units and where they go:
//!
//! | metric | unit | field of [`Feedback`] |
//! |---|---|---|
//! | `named_metrics.evenkeel.queue` | requests | `queue_length` |
//! | `named_metrics.evenkeel.in_service` | requests | `in_service` |
//! | `named_metrics.evenkeel.service_ms` | milliseconds | `service_time` |
//! | `named_metrics.evenkeel.concurrency` | requests | `concurrency` |
//! | `named_metrics.evenkeel.latency_ms` | milliseconds | `latency` |
//! | `rps_fractional` | requests per second | `arrival_rate` |
//! | `named_metrics.evenkeel.at_ms` | milliseconds on the replica's clock | `reported_at` |
//! | `named_metrics.brownout.dimmer` | share | `dimmer` |
//! | `named_metrics.brownout.shortfall` | share | written only: 1 − dimmer, never zero |
//!
//! The first three make a report; any application may send them without an agent. A report with
//! none of them is somebody else's (it says how busy a CPU is) and no error.
//!
//! The shortfall is for balancers that take a utilisation, of which less is better: Envoy's
//! `metric_names_for_computing_utilization` looks at named metrics above zero only.
//!
//! **When it misleads**: a number that cannot be is worse than none, since policies would act on
//! it; so a report with one wrong number among those above is no report at all, and the caller
//! counts the reason. Other metrics are not looked at. **Written**: `=` after the name, as the
//! format's description, vLLM and Kubernetes' gateways have it; Envoy of 2024 understood only
//! `:`. **Source**: `xds/data/orca/v3/orca_load_report.proto`, Envoy's ORCA parser and its tests.

mod binary;
mod json;

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use evenkeel_core::units::{Dimmer, Rate};
use evenkeel_core::{Feedback, Instant, time};
use evenkeel_http::{Fields, Repeated};
use http::{HeaderName, HeaderValue};

/// The header with TEXT, JSON or BIN before the report.
pub const HEADER: HeaderName = HeaderName::from_static("endpoint-load-metrics");
/// The header with the report in protobuf, in base64.
pub const HEADER_BINARY: HeaderName = HeaderName::from_static("endpoint-load-metrics-bin");

/// The longest report that is read, in bytes; ours has about 320.
pub const REPORT_BYTES_MAX: usize = 4_096;

/// Takes the replica's report out of the headers of its response; no client ever sees it.
///
/// Both headers are removed whatever they hold. Without a report, or with one that says nothing
/// of queue and service, the answer is `None`.
///
/// # Errors
/// When there is a report that must not be believed; see [`OrcaError`].
pub fn take_feedback(headers: &mut Fields) -> Result<Option<Feedback>, OrcaError> {
    // The usual case without an agent: one look at the names costs less than asking for each.
    if !headers.contains_prefix(HEADER.as_str()) {
        return Ok(None);
    }
    let repeated = |_: Repeated| OrcaError::Repeated("the header");
    let binary = headers.take_only(HEADER_BINARY).map_err(repeated);
    let other = headers.take_only(HEADER).map_err(repeated);
    let report = match (binary?, other?) {
        (Some(value), _) => binary::parse(checked(&value)?),
        (None, Some(value)) => parse(checked(&value)?),
        (None, None) => return Ok(None),
    };
    report?.into_feedback()
}

/// Whether a report that came in another form is believed: the same numbers are impossible there.
///
/// # Errors
/// [`OrcaError::Absurd`].
pub(crate) fn check(feedback: &Feedback) -> Result<(), OrcaError> {
    let mut report = Report::default();
    report.set(Metric::Queue, f64::from(feedback.queue_length))?;
    report.set(Metric::InService, f64::from(feedback.in_service))?;
    let others = [
        (Metric::Service, feedback.service_time.map(time::millis)),
        (Metric::Concurrency, feedback.concurrency.map(f64::from)),
        (Metric::Latency, feedback.latency.map(time::millis)),
        (Metric::ArrivalRate, feedback.arrival_rate.map(Rate::value)),
        (Metric::ReportedAt, feedback.reported_at.map(|at| at.as_nanos() as f64 / 1e6)),
    ];
    let mut others = others.into_iter().filter_map(|(metric, value)| Some((metric, value?)));
    others.try_for_each(|(metric, value)| report.set(metric, value))
}

/// The report as the value of [`HEADER`], in the TEXT form.
///
/// Read again, durations are exact to the nanosecond, the time of the report for 49 days after the
/// replica's start, rates to a thousandth and the dimmer to a millionth. What no reader would
/// accept is written as the nearest that one does: a service time of zero becomes 1 ns, since
/// nothing takes no time.
pub fn write(feedback: &Feedback) -> HeaderValue {
    let mut text = Text(BytesMut::with_capacity(400));
    text.0.put_slice(b"TEXT ");
    text.count(Metric::Queue, feedback.queue_length);
    text.count(Metric::InService, feedback.in_service);
    if let Some(service_time) = feedback.service_time {
        text.millis(Metric::Service, time::nanos(service_time));
    }
    if let Some(concurrency) = feedback.concurrency {
        text.count(Metric::Concurrency, concurrency);
    }
    if let Some(latency) = feedback.latency {
        text.millis(Metric::Latency, time::nanos(latency));
    }
    if let Some(rate) = feedback.arrival_rate {
        text.decimal(Metric::ArrivalRate, (rate.value() * 1e3).round() as u64, 3);
    }
    if let Some(at) = feedback.reported_at {
        text.millis(Metric::ReportedAt, at.as_nanos());
    }
    if let Some(dimmer) = feedback.dimmer {
        text.millionths(Metric::Dimmer, dimmer.value());
        text.millionths(Metric::Shortfall, 1.0 - dimmer.value());
    }
    HeaderValue::from_maybe_shared(text.0.freeze()).expect("names and digits are a header value")
}

/// Why a report is not believed.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OrcaError {
    /// It is longer than [`REPORT_BYTES_MAX`].
    #[error("a load report of {bytes} bytes, expected at most {REPORT_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It is not in the form that its header or prefix says.
    #[error("the load report is not in the {form} form: {what}")]
    Malformed {
        /// `TEXT`, `JSON` or `BIN`.
        form: &'static str,
        /// What is wrong.
        what: &'static str,
    },
    /// The header, or this metric, is there twice: nobody knows which one holds.
    #[error("{0} came twice in a load report, expected once")]
    Repeated(&'static str),
    /// This metric has a value that cannot be: NaN, infinite, negative, zero where something
    /// must be, or beyond all bounds.
    #[error("{metric} came as {came}, expected a number from {min} to {max}")]
    Absurd {
        /// The metric.
        metric: &'static str,
        /// The value that came.
        came: f64,
        /// The least value that is believed.
        min: f64,
        /// The greatest value that is believed.
        max: f64,
    },
    /// Some of the three metrics that make a report are there, but not this one.
    #[error("the load report lacks {0}; queue, in_service and service_ms go together")]
    Missing(&'static str),
}

impl OrcaError {
    /// Whether it is the dimmer that must not be believed.
    pub fn is_of_dimmer(&self) -> bool {
        let name = Metric::Dimmer.name();
        match self {
            Self::Absurd { metric, .. } | Self::Repeated(metric) => *metric == name,
            Self::TooLong { .. } | Self::Malformed { .. } | Self::Missing(_) => false,
        }
    }
}

/// The metrics that are read, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    Queue,
    InService,
    Service,
    Concurrency,
    Latency,
    ArrivalRate,
    ReportedAt,
    Dimmer,
    /// Never read: it says nothing that the dimmer does not.
    Shortfall,
}

const METRICS: usize = 9;
/// More requests than any replica holds.
const COUNT_MAX: f64 = 1e7;
const DAY_MS: f64 = 86_400e3;
/// One nanosecond.
const SHORTEST_MS: f64 = 1e-6;

impl Metric {
    fn of(name: &str) -> Option<Self> {
        match name.strip_prefix("named_metrics.") {
            Some(name) => Self::of_named(name),
            None => (name == "rps_fractional").then_some(Self::ArrivalRate),
        }
    }

    /// The metric under this key of the map `named_metrics`.
    fn of_named(key: &str) -> Option<Self> {
        if key == "brownout.dimmer" {
            return Some(Self::Dimmer);
        }
        Some(match key.strip_prefix("evenkeel.")? {
            "queue" => Self::Queue,
            "in_service" => Self::InService,
            "service_ms" => Self::Service,
            "concurrency" => Self::Concurrency,
            "latency_ms" => Self::Latency,
            "at_ms" => Self::ReportedAt,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Queue => "named_metrics.evenkeel.queue",
            Self::InService => "named_metrics.evenkeel.in_service",
            Self::Service => "named_metrics.evenkeel.service_ms",
            Self::Concurrency => "named_metrics.evenkeel.concurrency",
            Self::Latency => "named_metrics.evenkeel.latency_ms",
            Self::ArrivalRate => "rps_fractional",
            Self::ReportedAt => "named_metrics.evenkeel.at_ms",
            Self::Dimmer => "named_metrics.brownout.dimmer",
            Self::Shortfall => "named_metrics.brownout.shortfall",
        }
    }

    /// The least and the greatest value that is believed.
    const fn range(self) -> (f64, f64) {
        match self {
            Self::Queue | Self::InService => (0.0, COUNT_MAX),
            Self::Concurrency => (1.0, COUNT_MAX),
            Self::Service => (SHORTEST_MS, DAY_MS),
            Self::Latency => (0.0, DAY_MS),
            Self::ArrivalRate => (0.0, 1e9),
            Self::ReportedAt => (0.0, 1e12),
            Self::Dimmer => (0.0, 1.0),
            Self::Shortfall => (1e-6, 1.0),
        }
    }
}

/// The metrics of one report, as they came.
#[derive(Default)]
struct Report([Option<f64>; METRICS]);

impl Report {
    fn set(&mut self, metric: Metric, came: f64) -> Result<(), OrcaError> {
        let (min, max) = metric.range();
        if !(min..=max).contains(&came) {
            return Err(OrcaError::Absurd { metric: metric.name(), came, min, max });
        }
        match self.0[metric as usize].replace(came) {
            None => Ok(()),
            Some(_) => Err(OrcaError::Repeated(metric.name())),
        }
    }

    fn into_feedback(self) -> Result<Option<Feedback>, OrcaError> {
        let needed = [Metric::Queue, Metric::InService, Metric::Service];
        if needed.iter().all(|metric| self.value(*metric).is_none()) {
            return Ok(None);
        }
        let need = |metric: Metric| self.value(metric).ok_or(OrcaError::Missing(metric.name()));
        Ok(Some(Feedback {
            queue_length: count(need(Metric::Queue)?),
            in_service: count(need(Metric::InService)?),
            concurrency: self.value(Metric::Concurrency).map(count),
            service_time: self.value(Metric::Service).map(duration),
            latency: self.value(Metric::Latency).map(duration),
            arrival_rate: self.value(Metric::ArrivalRate).and_then(|rate| Rate::new(rate).ok()),
            dimmer: self.value(Metric::Dimmer).and_then(|dimmer| Dimmer::new(dimmer).ok()),
            reported_at: self.value(Metric::ReportedAt).map(|ms| Instant::from_nanos(nanos(ms))),
        }))
    }

    fn value(&self, metric: Metric) -> Option<f64> {
        self.0[metric as usize]
    }
}

fn count(value: f64) -> u32 {
    value.round() as u32
}

fn duration(ms: f64) -> Duration {
    Duration::from_nanos(nanos(ms))
}

fn nanos(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

fn checked(value: &HeaderValue) -> Result<&[u8], OrcaError> {
    match value.len() {
        0..=REPORT_BYTES_MAX => Ok(value.as_bytes()),
        bytes => Err(OrcaError::TooLong { bytes }),
    }
}

fn parse(value: &[u8]) -> Result<Report, OrcaError> {
    if let Some(text) = value.strip_prefix(b"TEXT ") {
        return parse_text(text);
    }
    if let Some(json) = value.strip_prefix(b"JSON ") {
        return json::parse(json);
    }
    if let Some(base64) = value.strip_prefix(b"BIN ") {
        return binary::parse(base64);
    }
    parse_text(value)
}

fn parse_text(text: &[u8]) -> Result<Report, OrcaError> {
    let malformed = |what| OrcaError::Malformed { form: "TEXT", what };
    let text = std::str::from_utf8(text).map_err(|_| malformed("not in UTF-8"))?;
    let mut report = Report::default();
    for item in text.split(',').map(str::trim_ascii).filter(|item| !item.is_empty()) {
        let sign = item.bytes().position(|byte| byte == b'=' || byte == b':');
        let sign = sign.ok_or(malformed("a metric without \"=\" and value"))?;
        let Some(metric) = Metric::of(item[..sign].trim_ascii_end()) else { continue };
        let value = item[sign + 1..].trim_ascii_start().parse::<f64>();
        report.set(metric, value.map_err(|_| malformed("a value that is no number"))?)?;
    }
    Ok(report)
}

/// A TEXT report being written.
struct Text(BytesMut);

impl Text {
    fn count(&mut self, metric: Metric, value: u32) {
        self.decimal(metric, u64::from(value), 0);
    }

    fn millis(&mut self, metric: Metric, nanos: u64) {
        self.decimal(metric, nanos, 6);
    }

    fn millionths(&mut self, metric: Metric, value: f64) {
        self.decimal(metric, (value * 1e6).round() as u64, 6);
    }

    /// Writes a number of `decimals` decimal places, given as a whole number without the point.
    fn decimal(&mut self, metric: Metric, digits: u64, decimals: u32) {
        let one = 10_u64.pow(decimals);
        let (min, max) = metric.range();
        let least = (min * one as f64).round() as u64;
        let digits = digits.clamp(least, (max * one as f64) as u64);
        if metric != Metric::Queue {
            self.0.put_u8(b',');
        }
        self.0.put_slice(metric.name().as_bytes());
        self.0.put_u8(b'=');
        self.0.put_slice(itoa::Buffer::new().format(digits / one).as_bytes());
        self.fraction(digits % one, one / 10);
    }

    fn fraction(&mut self, mut rest: u64, mut place: u64) {
        if rest > 0 {
            self.0.put_u8(b'.');
        }
        while rest > 0 {
            self.0.put_u8(b'0' + (rest / place) as u8);
            rest %= place;
            place /= 10;
        }
    }
}

#[cfg(test)]
mod tests;
