//! The JSON form: protobuf's mapping, of which the names in snake case and camel case are read.

use serde::Deserialize;

use super::{Metric, OrcaError, Report};

pub(super) fn parse(json: &[u8]) -> Result<Report, OrcaError> {
    let malformed = |what| OrcaError::Malformed { form: "JSON", what };
    if !json.trim_ascii_start().starts_with(b"{") {
        return Err(malformed("not an object")); // a list would do for serde
    }
    let load: LoadReport = serde_json::from_slice(json)
        .map_err(|_| malformed("not JSON, a metric that is no number, or one that came twice"))?;
    let named = load.named_metrics;
    let mut report = Report::default();
    for (metric, value) in [
        (Metric::Queue, named.queue),
        (Metric::InService, named.in_service),
        (Metric::Service, named.service_ms),
        (Metric::Concurrency, named.concurrency),
        (Metric::Latency, named.latency_ms),
        (Metric::ArrivalRate, load.rps_fractional),
        (Metric::ReportedAt, named.at_ms),
        (Metric::Dimmer, named.dimmer),
    ] {
        if let Some(value) = value {
            report.set(metric, value)?;
        }
    }
    Ok(report)
}

#[derive(Deserialize)]
struct LoadReport {
    #[serde(alias = "rpsFractional")]
    rps_fractional: Option<f64>,
    #[serde(alias = "namedMetrics", default)]
    named_metrics: NamedMetrics,
}

#[derive(Deserialize, Default)]
struct NamedMetrics {
    #[serde(rename = "evenkeel.queue")]
    queue: Option<f64>,
    #[serde(rename = "evenkeel.in_service")]
    in_service: Option<f64>,
    #[serde(rename = "evenkeel.service_ms")]
    service_ms: Option<f64>,
    #[serde(rename = "evenkeel.concurrency")]
    concurrency: Option<f64>,
    #[serde(rename = "evenkeel.latency_ms")]
    latency_ms: Option<f64>,
    #[serde(rename = "evenkeel.at_ms")]
    at_ms: Option<f64>,
    #[serde(rename = "brownout.dimmer")]
    dimmer: Option<f64>,
}
