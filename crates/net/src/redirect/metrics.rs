//! The mesh in `/metrics` (Prometheus text exposition format 0.0.4).

use std::collections::BTreeMap;

use super::companion_metrics;
use super::state::{PathState, RedirectState, SiteState};
use crate::exposition::{Exposition, Number, counter, gauge};

const OF_SITES: [Number<SiteState>; 14] = [
    gauge("evenkeel_redirect_member", "Whether the plan in force counts on the site.", |site| {
        Some(f64::from(u8::from(matches!(site.standing, "fresh" | "held"))))
    }),
    gauge(
        "evenkeel_redirect_demand_per_second",
        "Requests per second of the site's users, as it told last.",
        |site| site.demand_per_s,
    ),
    gauge(
        "evenkeel_redirect_capacity_per_second",
        "Requests per second that the site's replicas can serve, as it told last.",
        |site| site.capacity_per_s,
    ),
    gauge(
        "evenkeel_redirect_writes_share",
        "Share of writes among the requests of the site's users, as it told last.",
        |site| site.writes_share,
    ),
    gauge(
        "evenkeel_redirect_waiting",
        "Requests that waited for a replica of the site, as it told last.",
        |site| site.waiting.map(|waiting| waiting as f64),
    ),
    gauge(
        "evenkeel_redirect_curve_version",
        "Version of the site's curves in force; 0 is the profile.",
        |site| site.curve_version.map(f64::from),
    ),
    gauge(
        "evenkeel_redirect_missed_share",
        "Share of the site's users' requests that missed the objective, as it told last.",
        |site| site.missed_share,
    ),
    gauge(
        "evenkeel_redirect_alone_share",
        "The share that is predicted to miss it with every site on its own.",
        |site| site.alone_share,
    ),
    gauge(
        "evenkeel_redirect_planned_share",
        "The share that is predicted to miss it with the plan.",
        |site| site.planned_share,
    ),
    gauge(
        "evenkeel_redirect_rate_per_second",
        "Requests per second of this site's users that the plan has served there.",
        |site| site.rate_per_s,
    ),
    gauge("evenkeel_redirect_connections_to", "Connections to the site.", |site| {
        Some(site.connections_to.into())
    }),
    gauge("evenkeel_redirect_connections_from", "Connections from the site.", |site| {
        Some(site.connections_from.into())
    }),
    counter(
        "evenkeel_redirect_rows_total",
        "Rows that came from the site, believed or not.",
        |site| Some(site.rows as f64),
    ),
    counter(
        "evenkeel_redirect_throttled_total",
        "Times the site was read later because it sent too much.",
        |site| Some(site.throttled as f64),
    ),
];

const OF_PATHS: [Number<PathState>; 6] = [
    gauge("evenkeel_redirect_base_seconds", "Base round trip to the site.", |path| {
        Some(path.base_ms * 1e-3)
    }),
    gauge(
        "evenkeel_redirect_residual_p50_seconds",
        "What half of all probes take beyond the base at most.",
        |path| Some(path.residual_p50_ms * 1e-3),
    ),
    gauge(
        "evenkeel_redirect_residual_p99_seconds",
        "What 99 of 100 probes take beyond the base at most.",
        |path| Some(path.residual_p99_ms * 1e-3),
    ),
    counter("evenkeel_redirect_probes_total", "Probes learnt from.", |path| {
        Some(path.samples as f64)
    }),
    counter("evenkeel_redirect_reroutes_total", "Changes of route.", |path| {
        Some(path.reroutes as f64)
    }),
    counter("evenkeel_redirect_probes_rejected_total", "Probes that were not believed.", |path| {
        Some(path.probes_rejected as f64)
    }),
];

const OF_ALL: [Number<RedirectState>; 16] = [
    gauge("evenkeel_redirect_epoch", "The epoch it is.", |state| {
        state.epoch.map(|epoch| epoch as f64)
    }),
    gauge("evenkeel_redirect_plan_epoch", "The epoch of the last plan.", |state| {
        state.plan.as_ref().map(|plan| plan.epoch as f64)
    }),
    gauge(
        "evenkeel_redirect_wants_capacity",
        "Whether sites are short of servers by the last plan.",
        |state| state.plan.as_ref().map(|plan| f64::from(u8::from(plan.wants_capacity))),
    ),
    counter("evenkeel_redirect_plans_total", "Plans made.", |state| {
        Some(state.counts.plans as f64)
    }),
    counter("evenkeel_redirect_plans_cpu_seconds_total", "CPU time of plans.", |state| {
        Some(state.counts.plans_cpu_ns as f64 * 1e-9)
    }),
    counter(
        "evenkeel_redirect_compared_total",
        "Plans of other sites that were compared with this site's.",
        |state| Some(state.counts.compared as f64),
    ),
    counter(
        "evenkeel_redirect_disagreements_total",
        "Of these, the ones that differed.",
        |state| Some(state.counts.disagreements as f64),
    ),
    counter("evenkeel_redirect_alarms_total", "Alarms raised.", |state| {
        Some(state.counts.alarms as f64)
    }),
    counter("evenkeel_redirect_rows_late_total", "Rows that came after their plan.", |state| {
        Some(state.counts.rows_late as f64)
    }),
    counter(
        "evenkeel_redirect_rows_unsent_total",
        "Epochs for which this site could not send a row.",
        |state| Some(state.counts.rows_unsent as f64),
    ),
    counter(
        "evenkeel_redirect_bytes_sent_total",
        "Bytes sent to other sites, TLS included, TCP and IP not.",
        |state| Some(state.counts.bytes_sent as f64),
    ),
    counter(
        "evenkeel_redirect_bytes_received_total",
        "Bytes received from other sites and from whoever connects.",
        |state| Some(state.counts.bytes_received as f64),
    ),
    counter(
        "evenkeel_redirect_certificates_replaced_total",
        "Times that changed certificates were taken.",
        |state| Some(state.counts.certificates_replaced as f64),
    ),
    counter(
        "evenkeel_redirect_certificates_failed_total",
        "Times that changed certificates were not sound.",
        |state| Some(state.counts.certificates_failed as f64),
    ),
    counter(
        "evenkeel_redirect_curves_replaced_total",
        "Times that other curves of this site were put in force.",
        |state| Some(state.counts.curves_replaced as f64),
    ),
    counter("evenkeel_redirect_clock_steps_total", "Steps of this site's clock.", |state| {
        Some(state.counts.clock_steps as f64)
    }),
];

/// Appends how a mesh stands. Names of sites are plain text: configuration is checked where it is
/// read.
pub fn write(state: &RedirectState, text: &mut String) {
    let mut text = Exposition(text);
    let sites: Vec<_> = state.sites.iter().map(|site| ([label(site)], site)).collect();
    let paths = state.sites.iter().filter_map(|site| Some(([label(site)], site.path.as_ref()?)));
    text.table(&OF_ALL, &[([], state)]);
    text.table(&OF_SITES, &sites);
    text.table(&OF_PATHS, &paths.collect::<Vec<_>>());
    let refused = "evenkeel_redirect_refused_total";
    text.family(refused, "counter", "Connections from others that were refused.");
    for (reason, count) in &state.counts.refused {
        text.sample(refused, &[("reason", reason)], *count as f64);
    }
    let unmade = "evenkeel_redirect_unmade_total";
    text.family(unmade, "counter", "Connections to the site that could not be made.");
    by_reason(&mut text, unmade, state, |site| &site.unmade);
    let rejected = "evenkeel_redirect_rejected_total";
    text.family(rejected, "counter", "Rows and frames of the site that were not believed.");
    by_reason(&mut text, rejected, state, |site| &site.rejected);
    companion_metrics::write(state, &mut text);
}

fn label(site: &SiteState) -> (&'static str, &str) {
    ("datacenter", &site.name)
}

fn by_reason(
    text: &mut Exposition<'_>,
    name: &str,
    state: &RedirectState,
    counts: fn(&SiteState) -> &BTreeMap<&'static str, u64>,
) {
    for site in &state.sites {
        for (reason, count) in counts(site) {
            text.sample(name, &[label(site), ("reason", reason)], *count as f64);
        }
    }
}
