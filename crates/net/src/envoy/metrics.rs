//! What Envoys are told and report, in `/metrics` (Prometheus text exposition format 0.0.4).

use std::fmt::Write as _;
use std::time::Instant;

use super::feed::{Counts, Feed, Plane};

type OfAll = (&'static str, &'static str, &'static str, fn(&Counts) -> u64);

const OF_ALL: [OfAll; 8] = [
    ("evenkeel_envoy_streams", "gauge", "Discovery streams that are open.", |counts| {
        counts.streams
    }),
    ("evenkeel_envoy_responses_total", "counter", "Responses sent to Envoys.", |counts| {
        counts.sent
    }),
    ("evenkeel_envoy_accepted_total", "counter", "Of these, accepted (ACK).", |counts| {
        counts.accepted
    }),
    ("evenkeel_envoy_refused_total", "counter", "Of these, refused (NACK): an alarm.", |counts| {
        counts.refused
    }),
    ("evenkeel_envoy_files_total", "counter", "Files written for Envoys.", |counts| counts.files),
    (
        "evenkeel_envoy_files_failed_total",
        "counter",
        "Files that could not be written: an alarm.",
        |counts| counts.files_failed,
    ),
    ("evenkeel_envoy_reports_total", "counter", "Load reports taken in.", |counts| counts.reports),
    (
        "evenkeel_envoy_reported_elsewhere_total",
        "counter",
        "Requests in load reports for localities that are no sites.",
        |counts| counts.reported_elsewhere,
    ),
];

/// By site: its name, the weight it has (0 for one that is left out), requests and failures per
/// second.
fn lanes(feed: &Feed, now: Instant) -> Vec<(String, f64, f64, f64)> {
    let assignment = feed.assignment();
    let weight = |name: &str| {
        let told = assignment.localities.iter().find(|told| told.name == name);
        told.map_or(0.0, |told| f64::from(told.weight))
    };
    let lanes = feed.cluster().localities.iter().zip(feed.rates(now));
    lanes
        .map(|(locality, rates)| {
            let name = locality.name.clone();
            let weight = weight(&name);
            (name, weight, rates.issued_per_s, rates.failed_per_s)
        })
        .collect()
}

/// Appends how a plane stands. Names are plain text: configuration is checked where it is read.
pub(crate) fn write(plane: &Plane, text: &mut String) {
    let (counts, now) = (plane.counts(), Instant::now());
    for (name, kind, help, value) in OF_ALL {
        family(text, name, kind, help);
        line(text, name, "", value(&counts) as f64);
    }
    let name = "evenkeel_envoy_reporters";
    family(text, name, "gauge", "Envoys whose load reports count.");
    for feed in plane.feeds() {
        let labels = format!("{{upstream=\"{}\"}}", feed.cluster().name);
        line(text, name, &labels, feed.reporters(now) as f64);
    }
    type OfLane = (&'static str, &'static str, fn(&(String, f64, f64, f64)) -> f64);
    let of_lanes: [OfLane; 3] = [
        ("evenkeel_envoy_weight", "Parts per million of requests Envoys shall send.", |of| of.1),
        ("evenkeel_envoy_requests_per_second", "Requests Envoys say they send.", |of| of.2),
        ("evenkeel_envoy_failures_per_second", "Requests Envoys say have failed.", |of| of.3),
    ];
    let lanes: Vec<_> =
        plane.feeds().iter().map(|feed| (&feed.cluster().name, lanes(feed, now))).collect();
    for (name, help, value) in of_lanes {
        family(text, name, "gauge", help);
        for (upstream, lanes) in &lanes {
            for lane in lanes {
                let labels = format!("{{upstream=\"{upstream}\",to=\"{}\"}}", lane.0);
                line(text, name, &labels, value(lane));
            }
        }
    }
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &str, value: f64) {
    let _ = writeln!(text, "{name}{labels} {value}");
}
