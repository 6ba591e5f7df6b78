//! The mesh in `/metrics` (Prometheus text exposition format 0.0.4).
//!
//! What is not known has no sample rather than a zero.

use std::fmt::Write as _;

use super::state::{PathState, RedirectState, SiteState};

type OfSite = (&'static str, &'static str, &'static str, fn(&SiteState) -> Option<f64>);

const OF_SITES: [OfSite; 12] = [
    (
        "evenkeel_redirect_member",
        "gauge",
        "Whether the plan in force counts on the site.",
        |site| Some(f64::from(u8::from(matches!(site.standing, "fresh" | "held")))),
    ),
    (
        "evenkeel_redirect_demand_per_second",
        "gauge",
        "Requests per second of the site's users, as it told last.",
        |site| site.demand_per_s,
    ),
    (
        "evenkeel_redirect_capacity_per_second",
        "gauge",
        "Requests per second that the site's replicas can serve, as it told last.",
        |site| site.capacity_per_s,
    ),
    (
        "evenkeel_redirect_curve_version",
        "gauge",
        "Version of the site's curves in force; 0 is the profile.",
        |site| site.curve_version.map(f64::from),
    ),
    (
        "evenkeel_redirect_missed_share",
        "gauge",
        "Share of the site's users' requests that missed the objective, as it told last.",
        |site| site.missed_share,
    ),
    (
        "evenkeel_redirect_alone_share",
        "gauge",
        "The share that is predicted to miss it with every site on its own.",
        |site| site.alone_share,
    ),
    (
        "evenkeel_redirect_planned_share",
        "gauge",
        "The share that is predicted to miss it with the plan.",
        |site| site.planned_share,
    ),
    (
        "evenkeel_redirect_rate_per_second",
        "gauge",
        "Requests per second of this site's users that the plan has served there.",
        |site| site.rate_per_s,
    ),
    ("evenkeel_redirect_connections_to", "gauge", "Connections to the site.", |site| {
        Some(site.connections_to.into())
    }),
    ("evenkeel_redirect_connections_from", "gauge", "Connections from the site.", |site| {
        Some(site.connections_from.into())
    }),
    (
        "evenkeel_redirect_rows_total",
        "counter",
        "Rows that came from the site, believed or not.",
        |site| Some(site.rows as f64),
    ),
    (
        "evenkeel_redirect_throttled_total",
        "counter",
        "Times the site was read later because it sent too much.",
        |site| Some(site.throttled as f64),
    ),
];

type OfPath = (&'static str, &'static str, &'static str, fn(&PathState) -> f64);

const OF_PATHS: [OfPath; 6] = [
    ("evenkeel_redirect_base_seconds", "gauge", "Base round trip to the site.", |path| {
        path.base_ms * 1e-3
    }),
    (
        "evenkeel_redirect_residual_p50_seconds",
        "gauge",
        "What half of all probes take beyond the base at most.",
        |path| path.residual_p50_ms * 1e-3,
    ),
    (
        "evenkeel_redirect_residual_p99_seconds",
        "gauge",
        "What 99 of 100 probes take beyond the base at most.",
        |path| path.residual_p99_ms * 1e-3,
    ),
    ("evenkeel_redirect_probes_total", "counter", "Probes learnt from.", |path| {
        path.samples as f64
    }),
    ("evenkeel_redirect_reroutes_total", "counter", "Changes of route.", |path| {
        path.reroutes as f64
    }),
    (
        "evenkeel_redirect_probes_rejected_total",
        "counter",
        "Probes that were not believed.",
        |path| path.probes_rejected as f64,
    ),
];

type OfAll = (&'static str, &'static str, &'static str, fn(&RedirectState) -> Option<f64>);

const OF_ALL: [OfAll; 16] = [
    ("evenkeel_redirect_epoch", "gauge", "The epoch it is.", |state| {
        state.epoch.map(|epoch| epoch as f64)
    }),
    ("evenkeel_redirect_plan_epoch", "gauge", "The epoch of the last plan.", |state| {
        state.plan.as_ref().map(|plan| plan.epoch as f64)
    }),
    (
        "evenkeel_redirect_wants_capacity",
        "gauge",
        "Whether sites are short of servers by the last plan.",
        |state| state.plan.as_ref().map(|plan| f64::from(u8::from(plan.wants_capacity))),
    ),
    ("evenkeel_redirect_plans_total", "counter", "Plans made.", |state| {
        Some(state.counts.plans as f64)
    }),
    ("evenkeel_redirect_plans_cpu_seconds_total", "counter", "CPU time of plans.", |state| {
        Some(state.counts.plans_cpu_ns as f64 * 1e-9)
    }),
    (
        "evenkeel_redirect_compared_total",
        "counter",
        "Plans of other sites that were compared with this site's.",
        |state| Some(state.counts.compared as f64),
    ),
    (
        "evenkeel_redirect_disagreements_total",
        "counter",
        "Of these, the ones that differed.",
        |state| Some(state.counts.disagreements as f64),
    ),
    ("evenkeel_redirect_alarms_total", "counter", "Alarms raised.", |state| {
        Some(state.counts.alarms as f64)
    }),
    ("evenkeel_redirect_rows_late_total", "counter", "Rows that came after their plan.", |state| {
        Some(state.counts.rows_late as f64)
    }),
    (
        "evenkeel_redirect_rows_unsent_total",
        "counter",
        "Epochs for which this site could not send a row.",
        |state| Some(state.counts.rows_unsent as f64),
    ),
    (
        "evenkeel_redirect_bytes_sent_total",
        "counter",
        "Bytes sent to other sites, TLS included, TCP and IP not.",
        |state| Some(state.counts.bytes_sent as f64),
    ),
    (
        "evenkeel_redirect_bytes_received_total",
        "counter",
        "Bytes received from other sites and from whoever connects.",
        |state| Some(state.counts.bytes_received as f64),
    ),
    (
        "evenkeel_redirect_certificates_replaced_total",
        "counter",
        "Times that changed certificates were taken.",
        |state| Some(state.counts.certificates_replaced as f64),
    ),
    (
        "evenkeel_redirect_certificates_failed_total",
        "counter",
        "Times that changed certificates were not sound.",
        |state| Some(state.counts.certificates_failed as f64),
    ),
    (
        "evenkeel_redirect_curves_replaced_total",
        "counter",
        "Times that other curves of this site were put in force.",
        |state| Some(state.counts.curves_replaced as f64),
    ),
    ("evenkeel_redirect_clock_steps_total", "counter", "Steps of this site's clock.", |state| {
        Some(state.counts.clock_steps as f64)
    }),
];

/// Appends how a mesh stands. Names of sites are plain text: configuration is checked where it is
/// read.
pub fn write(state: &RedirectState, text: &mut String) {
    for (name, kind, help, value) in &OF_ALL {
        family(text, name, kind, help);
        sample(text, name, "", value(state));
    }
    for (name, kind, help, value) in &OF_SITES {
        family(text, name, kind, help);
        for site in &state.sites {
            sample(text, name, &format!("{{site=\"{}\"}}", site.name), value(site));
        }
    }
    for (name, kind, help, value) in &OF_PATHS {
        family(text, name, kind, help);
        for site in &state.sites {
            let labels = format!("{{site=\"{}\"}}", site.name);
            sample(text, name, &labels, site.path.as_ref().map(value));
        }
    }
    by_reason(state, text);
}

fn by_reason(state: &RedirectState, text: &mut String) {
    let refused = "evenkeel_redirect_refused_total";
    family(text, refused, "counter", "Connections from others that were refused.");
    for (reason, count) in &state.counts.refused {
        sample(text, refused, &format!("{{reason=\"{reason}\"}}"), Some(*count as f64));
    }
    let unmade = "evenkeel_redirect_unmade_total";
    family(text, unmade, "counter", "Connections to the site that could not be made.");
    for site in &state.sites {
        for (reason, count) in &site.unmade {
            let labels = format!("{{site=\"{}\",reason=\"{reason}\"}}", site.name);
            sample(text, unmade, &labels, Some(*count as f64));
        }
    }
    let rejected = "evenkeel_redirect_rejected_total";
    family(text, rejected, "counter", "Rows and frames of the site that were not believed.");
    for site in &state.sites {
        for (reason, count) in &site.rejected {
            let labels = format!("{{site=\"{}\",reason=\"{reason}\"}}", site.name);
            sample(text, rejected, &labels, Some(*count as f64));
        }
    }
}

const INFALLIBLE: &str = "writing to a string cannot fail";

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect(INFALLIBLE);
}

fn sample(text: &mut String, name: &str, labels: &str, value: Option<f64>) {
    if let Some(value) = value {
        writeln!(text, "{name}{labels} {value}").expect(INFALLIBLE);
    }
}
