//! What Envoys were sent and report, for the registry of metrics.

use std::sync::Arc;
use std::time::Instant;

use super::demand::LocalityRates;
use super::feed::{Counts, Feed, Plane};
use evenkeel_runtime::component::Surface;
use evenkeel_runtime::metrics::{Label, Metric, Scrape, counter, gauge};

const OF_ALL: [Metric<Counts>; 8] = [
    gauge("evenkeel_envoy_streams", "Open discovery streams.", |it| it.streams.into()),
    counter("evenkeel_envoy_responses_total", "Responses sent to Envoys.", |it| it.sent.into()),
    counter("evenkeel_envoy_accepted_total", "Responses accepted (ACK).", |it| it.accepted.into()),
    counter("evenkeel_envoy_refused_total", "Responses refused (NACK): an alarm.", |it| {
        it.refused.into()
    }),
    counter("evenkeel_envoy_files_total", "Files written for Envoys.", |it| it.files.into()),
    counter("evenkeel_envoy_files_failed_total", "Failed writes of files: an alarm.", |it| {
        it.files_failed.into()
    }),
    counter("evenkeel_envoy_reports_total", "Load reports received.", |it| it.reports.into()),
    counter(
        "evenkeel_envoy_reported_elsewhere_total",
        "Requests in load reports for localities that are no sites.",
        |it| it.reported_elsewhere.into(),
    ),
];

const OF_FEEDS: [Metric<u64>; 1] =
    [gauge("evenkeel_envoy_reporters", "Envoys whose load reports count.", |it| (*it).into())];

/// Weight and load of a data centre in all Envoys.
struct Locality {
    /// 0 for one that is left out.
    weight: f64,
    rates: LocalityRates,
}

const OF_LOCALITIES: [Metric<Locality>; 3] = [
    gauge("evenkeel_envoy_weight", "Parts per million of requests for the locality.", |it| {
        it.weight.into()
    }),
    gauge("evenkeel_envoy_requests_per_second", "Requests that Envoys report.", |it| {
        it.rates.issued_per_s.into()
    }),
    gauge("evenkeel_envoy_failures_per_second", "Failed requests that Envoys report.", |it| {
        it.rates.failed_per_s.into()
    }),
];

/// Every data centre of an upstream, with its labels.
fn localities(feed: &Feed, now: Instant) -> Vec<(Vec<Label<'_>>, Locality)> {
    let (assignment, cluster) = (feed.assignment(), feed.cluster());
    let weight = |name: &str| {
        let assigned = assignment.localities.iter().find(|assigned| assigned.name == name);
        assigned.map_or(0.0, |assigned| f64::from(assigned.weight))
    };
    let localities = cluster.localities.iter().zip(feed.rates(now)).map(|(locality, rates)| {
        let labels = vec![("upstream", &*cluster.name), ("datacenter", &*locality.name)];
        (labels, Locality { weight: weight(&locality.name), rates })
    });
    localities.collect()
}

/// Adds how a plane stands.
pub fn collect(scrape: &mut Scrape, plane: &Plane) {
    let now = Instant::now();
    scrape.single(&OF_ALL, &plane.counts());
    for feed in plane.feeds() {
        let reporters = feed.reporters(now) as u64;
        scrape.table(&OF_FEEDS, [(vec![("upstream", &*feed.cluster().name)], &reporters)]);
        let localities = localities(feed, now);
        scrape.table(&OF_LOCALITIES, localities.iter().map(|(labels, it)| (labels.clone(), it)));
    }
}

/// What a plane shows.
#[must_use]
pub fn surface(plane: Arc<Plane>) -> Surface {
    Surface::of_metrics(move |scrape: &mut _| collect(scrape, &plane))
}
