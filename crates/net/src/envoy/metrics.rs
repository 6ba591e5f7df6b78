//! What Envoys are told and report, in `/metrics` (Prometheus text exposition format 0.0.4).

use std::time::Instant;

use super::demand::LocalityRates;
use super::feed::{Counts, Feed, Plane};
use crate::exposition::{Exposition, Number, counter, gauge};

const OF_ALL: [Number<Counts>; 8] = [
    gauge("evenkeel_envoy_streams", "Discovery streams that are open.", |counts| {
        Some(counts.streams as f64)
    }),
    counter("evenkeel_envoy_responses_total", "Responses sent to Envoys.", |counts| {
        Some(counts.sent as f64)
    }),
    counter("evenkeel_envoy_accepted_total", "Of these, accepted (ACK).", |counts| {
        Some(counts.accepted as f64)
    }),
    counter("evenkeel_envoy_refused_total", "Of these, refused (NACK): an alarm.", |counts| {
        Some(counts.refused as f64)
    }),
    counter("evenkeel_envoy_files_total", "Files written for Envoys.", |counts| {
        Some(counts.files as f64)
    }),
    counter(
        "evenkeel_envoy_files_failed_total",
        "Files that could not be written: an alarm.",
        |counts| Some(counts.files_failed as f64),
    ),
    counter("evenkeel_envoy_reports_total", "Load reports taken in.", |counts| {
        Some(counts.reports as f64)
    }),
    counter(
        "evenkeel_envoy_reported_elsewhere_total",
        "Requests in load reports for localities that are no sites.",
        |counts| Some(counts.reported_elsewhere as f64),
    ),
];

/// What Envoys are told and say of a data centre.
struct Lane {
    /// 0 for one that is left out.
    weight: f64,
    rates: LocalityRates,
}

const OF_LANES: [Number<Lane>; 3] = [
    gauge("evenkeel_envoy_weight", "Parts per million of requests Envoys shall send.", |lane| {
        Some(lane.weight)
    }),
    gauge("evenkeel_envoy_requests_per_second", "Requests Envoys say they send.", |lane| {
        Some(lane.rates.issued_per_s)
    }),
    gauge("evenkeel_envoy_failures_per_second", "Requests Envoys say have failed.", |lane| {
        Some(lane.rates.failed_per_s)
    }),
];

/// Every data centre of an upstream, with its labels.
fn lanes(feed: &Feed, now: Instant) -> Vec<([(&'static str, &str); 2], Lane)> {
    let (assignment, cluster) = (feed.assignment(), feed.cluster());
    let weight = |name: &str| {
        let told = assignment.localities.iter().find(|told| told.name == name);
        told.map_or(0.0, |told| f64::from(told.weight))
    };
    let lanes = cluster.localities.iter().zip(feed.rates(now)).map(|(locality, rates)| {
        let labels = [("upstream", cluster.name.as_str()), ("datacenter", locality.name.as_str())];
        (labels, Lane { weight: weight(&locality.name), rates })
    });
    lanes.collect()
}

/// Appends how a plane stands. Names are plain text: configuration is checked where it is read.
pub(crate) fn write(plane: &Plane, text: &mut String) {
    let (counts, now) = (plane.counts(), Instant::now());
    let mut text = Exposition(text);
    text.table(&OF_ALL, &[([], &counts)]);
    let name = "evenkeel_envoy_reporters";
    text.family(name, "gauge", "Envoys whose load reports count.");
    for feed in plane.feeds() {
        text.sample(name, &[("upstream", &feed.cluster().name)], feed.reporters(now) as f64);
    }
    let lanes: Vec<_> = plane.feeds().iter().flat_map(|feed| lanes(feed, now)).collect();
    text.table(&OF_LANES, &lanes.iter().map(|(labels, lane)| (*labels, lane)).collect::<Vec<_>>());
}
