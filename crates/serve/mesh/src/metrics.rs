//! What the mesh between data centres shows: its metrics, and `/api/v1/redirect`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::export::ExportState;
use super::follower_metrics;
use super::state::{PathState, RedirectState, SiteState};
use evenkeel_runtime::component::{Endpoint, Surface};
use evenkeel_runtime::metrics::{Metric, Scrape, Value, by_reason, counter, counter_by, gauge};

const PATH: &str = "/api/v1/redirect";

const OF_SITES: [Metric<SiteState>; 19] = [
    gauge("evenkeel_redirect_member", "1 while the site takes part in the plan in force.", |it| {
        matches!(it.standing, "fresh" | "held").into()
    }),
    gauge(
        "evenkeel_redirect_demand_per_second",
        "Requests per second of the site's users, as reported last.",
        |it| it.demand_per_s.into(),
    ),
    gauge(
        "evenkeel_redirect_capacity_per_second",
        "Requests per second that the site's replicas can serve, as reported last.",
        |it| it.capacity_per_s.into(),
    ),
    gauge(
        "evenkeel_redirect_writes_ratio",
        "Share of writes among the requests of the site's users, as reported last.",
        |it| it.writes_share.into(),
    ),
    gauge(
        "evenkeel_redirect_waiting",
        "Requests that wait for a replica of the site, as reported last.",
        |it| it.waiting.into(),
    ),
    gauge(
        "evenkeel_redirect_curve_version",
        "Version of the site's curves in force; 0 is the profile.",
        |it| it.curve_version.into(),
    ),
    gauge(
        "evenkeel_redirect_curve_scale_ratio",
        "Load that the site is believed to serve, relative to its curves, as reported last.",
        |it| it.curve_scale.into(),
    ),
    gauge(
        "evenkeel_redirect_curve_odds_ratio",
        "Odds of a miss that are believed, relative to its curves, as reported last.",
        |it| it.curve_odds.into(),
    ),
    gauge(
        "evenkeel_redirect_curve_floor_ratio",
        "Share of requests that are believed to miss at any load, as reported last.",
        |it| it.curve_floor.into(),
    ),
    gauge(
        "evenkeel_redirect_missed_ratio",
        "Share of the requests of the site's users that missed the objective, as reported last.",
        |it| it.missed_share.into(),
    ),
    gauge(
        "evenkeel_redirect_alone_missed_ratio",
        "Share predicted to miss the objective with every site on its own.",
        |it| it.alone_share.into(),
    ),
    gauge(
        "evenkeel_redirect_planned_missed_ratio",
        "Share predicted to miss the objective with the plan.",
        |it| it.planned_share.into(),
    ),
    gauge(
        "evenkeel_redirect_rate_per_second",
        "Requests per second of this site's users that the plan sends to the site.",
        |it| it.rate_per_s.into(),
    ),
    gauge("evenkeel_redirect_connections_to", "Connections to the site.", |it| {
        it.connections_to.into()
    }),
    gauge("evenkeel_redirect_connections_from", "Connections from the site.", |it| {
        it.connections_from.into()
    }),
    counter("evenkeel_redirect_reports_total", "Reports of the site, valid or not.", |it| {
        it.rows.into()
    }),
    counter(
        "evenkeel_redirect_throttled_total",
        "Delayed reads from the site, and probes without an answer, because a connection sent too \
         much.",
        |it| it.throttled.into(),
    ),
    counter_by(
        "evenkeel_redirect_connect_failures_total",
        "Failed connections to the site.",
        "reason",
        |it| by_reason(&it.unmade),
    ),
    counter_by(
        "evenkeel_redirect_rejected_total",
        "Reports and frames of the site that were rejected.",
        "reason",
        |it| by_reason(&it.rejected),
    ),
];

const OF_PATHS: [Metric<PathState>; 6] = [
    gauge("evenkeel_redirect_base_seconds", "Base round trip to the site.", |it| {
        seconds(it.base_ms)
    }),
    gauge(
        "evenkeel_redirect_residual_p50_seconds",
        "Median of probes' round trips above the base.",
        |it| seconds(it.residual_p50_ms),
    ),
    gauge(
        "evenkeel_redirect_residual_p99_seconds",
        "99th percentile of probes' round trips above the base.",
        |it| seconds(it.residual_p99_ms),
    ),
    counter("evenkeel_redirect_probes_total", "Valid probes.", |it| it.samples.into()),
    counter("evenkeel_redirect_reroutes_total", "Changes of route.", |it| it.reroutes.into()),
    counter("evenkeel_redirect_probes_rejected_total", "Probes that were rejected.", |it| {
        it.probes_rejected.into()
    }),
];

const OF_ALL: [Metric<RedirectState>; 17] = [
    gauge("evenkeel_redirect_epoch", "The current epoch.", |it| it.epoch.into()),
    gauge("evenkeel_redirect_plan_epoch", "The epoch of the last plan.", |it| {
        it.plan.as_ref().map(|plan| plan.epoch).into()
    }),
    gauge(
        "evenkeel_redirect_wants_capacity",
        "1 while sites are short of servers by the last plan.",
        |it| it.plan.as_ref().map(|plan| plan.wants_capacity).into(),
    ),
    counter("evenkeel_redirect_plans_total", "Plans made.", |it| it.counts.plans.into()),
    counter("evenkeel_redirect_plans_cpu_seconds_total", "CPU time of plans.", |it| {
        Duration::from_nanos(it.counts.plans_cpu_ns).into()
    }),
    counter(
        "evenkeel_redirect_compared_total",
        "Plans of other sites that were compared with this site's.",
        |it| it.counts.compared.into(),
    ),
    counter("evenkeel_redirect_disagreements_total", "Compared plans that differed.", |it| {
        it.counts.disagreements.into()
    }),
    counter("evenkeel_redirect_alarms_total", "Alarms raised.", |it| it.counts.alarms.into()),
    counter("evenkeel_redirect_reports_late_total", "Reports that came after their plan.", |it| {
        it.counts.rows_late.into()
    }),
    counter(
        "evenkeel_redirect_reports_unsent_total",
        "Epochs for which this site could not send a report.",
        |it| it.counts.rows_unsent.into(),
    ),
    counter(
        "evenkeel_redirect_bytes_sent_total",
        "Bytes sent to other sites, TLS included, TCP and IP not.",
        |it| it.counts.bytes_sent.into(),
    ),
    counter(
        "evenkeel_redirect_bytes_received_total",
        "Bytes received from other sites and from whoever connects.",
        |it| it.counts.bytes_received.into(),
    ),
    counter("evenkeel_redirect_certificates_replaced_total", "Reloads of certificates.", |it| {
        it.counts.certificates_replaced.into()
    }),
    counter(
        "evenkeel_redirect_certificates_failed_total",
        "Reloads of certificates that failed because they are invalid.",
        |it| it.counts.certificates_failed.into(),
    ),
    counter(
        "evenkeel_redirect_curves_replaced_total",
        "Times that other curves of this site came into force.",
        |it| it.counts.curves_replaced.into(),
    ),
    counter("evenkeel_redirect_clock_steps_total", "Steps of this site's clock.", |it| {
        it.counts.clock_steps.into()
    }),
    counter_by(
        "evenkeel_redirect_refused_total",
        "Refused connections from others.",
        "reason",
        |it| by_reason(&it.counts.refused),
    ),
];

const OF_EXPORTS: [Metric<ExportState>; 3] = [
    counter(
        "evenkeel_redirect_exports_total",
        "Times that Istio, Kubernetes or DNS was told the plan, and has it.",
        |it| it.told.into(),
    ),
    counter("evenkeel_redirect_exports_failed_total", "Times that this failed.", |it| {
        it.failed.into()
    }),
    gauge("evenkeel_redirect_exports_failing", "1 while it has another plan: an alarm.", |it| {
        it.problem.is_some().into()
    }),
];

/// What the mesh of a process shows, or nothing where there is none; with the upstream whose
/// requests are shared.
#[must_use]
pub fn surface(mesh: Option<(watch::Receiver<Arc<RedirectState>>, String)>) -> Surface {
    let Some((state, upstream)) = mesh else {
        return Surface {
            endpoints: vec![Endpoint::get(PATH, || "null".to_owned())],
            ..Surface::default()
        };
    };
    let its = state.clone();
    let endpoint = Endpoint::get(PATH, move || state.borrow().json(&upstream));
    let metrics = move |scrape: &mut _| collect(scrape, &its.borrow());
    Surface { endpoints: vec![endpoint], ..Surface::of_metrics(metrics) }
}

/// Adds how a mesh stands.
pub fn collect(scrape: &mut Scrape, state: &RedirectState) {
    scrape.single(&OF_ALL, state);
    let sites = state.sites.iter();
    scrape.table(&OF_SITES, sites.clone().map(|it| (vec![("datacenter", &*it.name)], it)));
    let paths = sites.filter_map(|it| Some((vec![("datacenter", &*it.name)], it.path.as_ref()?)));
    scrape.table(&OF_PATHS, paths);
    scrape.table(&OF_EXPORTS, state.exports.iter().map(|it| (vec![("to", it.to)], it)));
    follower_metrics::collect(scrape, state);
}

fn seconds(ms: f64) -> Value {
    (ms * 1e-3).into()
}
