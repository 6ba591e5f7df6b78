//! Prometheus' protobuf format: the only one with native histograms, whose buckets grow by a ninth
//! instead of by a half, so that a quantile is within 9 % of the truth.
//!
//! The messages are those of `io/prometheus/client/metrics.proto`, as far as they are used here.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use evenkeel_core::distribution::Recorder;
use prost::Message;

use super::{Exemplars, Kind, Measured, Sample, Scrape};

/// Eight buckets for each doubling.
const SCHEMA: i32 = 3;
/// As Prometheus' own libraries have it; shorter than anything.
const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

/// Durations by native bucket.
pub(super) type Native = BTreeMap<i32, u64>;

/// What was recorded, by the upper ends of the recorder's own, finer buckets.
pub(super) fn native(recorder: &Recorder) -> Native {
    let mut native = Native::new();
    for bucket in recorder.buckets() {
        let doublings = bucket.upper.as_secs_f64().max(1e-9).log2();
        let index = (doublings * f64::from(1 << SCHEMA)).ceil() as i32;
        *native.entry(index).or_default() += bucket.count;
    }
    native
}

/// Each family with its length before it.
pub(super) fn encode(scrape: &Scrape) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in &scrape.families {
        let samples: Vec<_> =
            family.samples.iter().map(|it| metric(family.desc.kind, it)).collect();
        if samples.is_empty() {
            continue; // Prometheus takes such a family for an error
        }
        let message = MetricFamily {
            name: family.desc.name.to_owned(),
            help: family.desc.help.to_owned(),
            kind: kind(family.desc.kind).into(),
            metric: samples,
        };
        message.encode_length_delimited(&mut bytes).expect("a vector has room");
    }
    bytes
}

const fn kind(kind: Kind) -> MetricType {
    match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Summary => MetricType::Summary,
        Kind::Histogram => MetricType::Histogram,
    }
}

fn metric(kind: Kind, Sample { labels, measured }: &Sample) -> Metric {
    let label = |(name, value): &(&'static str, String)| pair(name, value);
    let mut metric = Metric { label: labels.iter().map(label).collect(), ..Metric::default() };
    match measured {
        Measured::Number(value) if kind == Kind::Counter => {
            metric.counter = Some(Number { value: *value });
        }
        Measured::Number(value) => metric.gauge = Some(Number { value: *value }),
        Measured::Summary(sum, count) => {
            metric.summary = Some(Summary { sample_count: *count, sample_sum: sum.as_secs_f64() });
        }
        Measured::Histogram { within, sum, count, exemplars, native } => {
            let (positive_span, positive_delta) = native.as_ref().map(spans).unwrap_or_default();
            metric.histogram = Some(Histogram {
                sample_count: *count,
                sample_sum: sum.as_secs_f64(),
                bucket: buckets(within, *count, exemplars),
                schema: native.is_some().then_some(SCHEMA),
                zero_threshold: native.is_some().then_some(ZERO_THRESHOLD),
                zero_count: native.is_some().then_some(0),
                positive_span,
                positive_delta,
            });
        }
    }
    metric
}

fn pair(name: &str, value: &str) -> LabelPair {
    LabelPair { name: name.to_owned(), value: value.to_owned() }
}

fn buckets(within: &[(Duration, u64)], count: u64, exemplars: &Exemplars) -> Vec<Bucket> {
    let ends = within.iter().map(|(at, within)| (at.as_secs_f64(), *within));
    let all = ends.chain([(f64::INFINITY, count)]).enumerate();
    all.map(|(number, (upper_bound, cumulative_count))| {
        let exemplar = exemplars.get(&number).map(|told| Exemplar {
            label: vec![pair("trace_id", &format!("{:032x}", told.trace_id))],
            value: told.value.as_secs_f64(),
            timestamp: told.at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|at| Timestamp {
                seconds: at.as_secs() as i64,
                nanos: at.subsec_nanos() as i32,
            }),
        });
        Bucket { cumulative_count, upper_bound, exemplar }
    })
    .collect()
}

/// Runs of buckets that have something, and each one's difference from the one before it.
fn spans(native: &Native) -> (Vec<BucketSpan>, Vec<i64>) {
    let (mut spans, mut deltas) = (Vec::<BucketSpan>::new(), Vec::new());
    let (mut next, mut before) = (0, 0);
    for (index, count) in native {
        match spans.last_mut() {
            Some(span) if *index == next => span.length += 1,
            _ => spans.push(BucketSpan { offset: index - next, length: 1 }),
        }
        next = index + 1;
        deltas.push(*count as i64 - before);
        before = *count as i64;
    }
    (spans, deltas)
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct MetricFamily {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) help: String,
    #[prost(enumeration = "MetricType", tag = "3")]
    pub(super) kind: i32,
    #[prost(message, repeated, tag = "4")]
    pub(super) metric: Vec<Metric>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum MetricType {
    Counter = 0,
    Gauge = 1,
    Summary = 2,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LabelPair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub(super) label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    pub(super) gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    pub(super) counter: Option<Number>,
    #[prost(message, optional, tag = "4")]
    pub(super) summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    pub(super) histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Number {
    #[prost(double, tag = "1")]
    pub(super) value: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(uint64, tag = "1")]
    pub(super) sample_count: u64,
    #[prost(double, tag = "2")]
    pub(super) sample_sum: f64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(uint64, tag = "1")]
    pub(super) sample_count: u64,
    #[prost(double, tag = "2")]
    pub(super) sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    pub(super) bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    pub(super) schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub(super) zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub(super) zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub(super) positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    pub(super) positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Bucket {
    #[prost(uint64, tag = "1")]
    pub(super) cumulative_count: u64,
    #[prost(double, tag = "2")]
    pub(super) upper_bound: f64,
    #[prost(message, optional, tag = "3")]
    pub(super) exemplar: Option<Exemplar>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BucketSpan {
    #[prost(sint32, tag = "1")]
    pub(super) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(super) length: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub(super) label: Vec<LabelPair>,
    #[prost(double, tag = "2")]
    pub(super) value: f64,
    #[prost(message, optional, tag = "3")]
    pub(super) timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}
