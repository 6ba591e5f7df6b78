//! How the requests of an upstream are shared between data centres, for the registry of metrics.

use evenkeel_geo::split::{DestinationCounts, Enforced};

use super::view::View;
use crate::upstream_state::{SiteCounts, SplitStats};
use evenkeel_runtime::metrics::{Label, Metric, Scrape, counter, counter_by, gauge, histogram};

/// What is known of a data centre to which requests of an upstream may go.
struct Destination {
    upstream: String,
    name: String,
    counts: DestinationCounts,
    site: SiteCounts,
    planned_per_s: Option<f64>,
    enforced: Option<Enforced>,
}

impl Destination {
    /// All of an upstream, in the order of the sites.
    fn of(view: &View<'_>) -> Vec<Self> {
        let Some(split) = &view.stats.split else { return Vec::new() };
        let (total, plan) = (split.total(), split.plan());
        let enforced = split.enforced().map(|(_, of_all)| of_all).unwrap_or_default();
        let destination = |(site, name): (usize, &String)| Self {
            upstream: view.config.name.clone(),
            name: name.clone(),
            counts: total.by_site[site],
            site: split.by_site[site].clone(),
            planned_per_s: plan.map(|row| row.rates_per_1000_s[site] as f64 * 1e-3),
            enforced: enforced.iter().find(|one| one.to.index() == site).copied(),
        };
        split.setup.names.iter().enumerate().map(destination).collect()
    }

    fn labels(&self, name: &'static str) -> Vec<Label<'_>> {
        vec![("upstream", &self.upstream), (name, &self.name)]
    }
}

/// Adds upstreams whose requests are shared; nothing where none are.
pub(super) fn collect(scrape: &mut Scrape, views: &[View<'_>]) {
    let destinations: Vec<Destination> = views.iter().flat_map(Destination::of).collect();
    if destinations.is_empty() {
        return;
    }
    scrape.table(&OF_DESTINATIONS, destinations.iter().map(|to| (to.labels("datacenter"), to)));
    scrape.table(
        &OF_ORIGINS,
        destinations.iter().map(|from| (from.labels("origin"), &from.site.inflow)),
    );
    let splits = views.iter().filter_map(|view| {
        Some((vec![("upstream", view.config.name.as_str())], view.stats.split.as_ref()?))
    });
    scrape.table(&OF_SPLITS, splits.clone());
    let unknown = splits.map(|(mut labels, split)| {
        labels.push(("origin", "unknown"));
        (labels, &split.inflow_unknown)
    });
    scrape.table(&OF_ORIGINS, unknown);
}

const OF_DESTINATIONS: [Metric<Destination>; 11] = [
    counter(
        "evenkeel_redirect_requests_total",
        "Requests of our own users by the data centre they were sent to, ours included.",
        |to| to.counts.sent.into(),
    ),
    counter(
        "evenkeel_redirect_over_cap_total",
        "Requests meant for the data centre that stayed because it had its rate already.",
        |to| to.counts.over_cap.into(),
    ),
    counter(
        "evenkeel_redirect_unhealthy_total",
        "Requests meant for the data centre that stayed because nobody there was healthy.",
        |to| to.counts.unhealthy.into(),
    ),
    counter(
        "evenkeel_redirect_failover_total",
        "Requests sent to the data centre because no replica of ours could serve them.",
        |to| to.counts.failed_over.into(),
    ),
    counter(
        "evenkeel_redirect_fallback_total",
        "Requests sent to the data centre that came back: refused, not answered, unreachable.",
        |to| to.site.fallbacks.into(),
    ),
    counter(
        "evenkeel_redirect_served_total",
        "Requests of our own users by the data centre where they ended.",
        |to| to.site.tally.ended.into(),
    ),
    counter(
        "evenkeel_redirect_missed_total",
        "Served requests that failed or were answered later than the objective.",
        |to| to.site.tally.missed.into(),
    ),
    gauge(
        "evenkeel_redirect_planned_rate",
        "Requests per second that the plan in force sends to the data centre.",
        |to| to.planned_per_s.into(),
    ),
    gauge(
        "evenkeel_redirect_error_requests",
        "Requests of the last epoch sent to the data centre beyond (negative: short of) its share.",
        |to| to.enforced.map(|enforced| enforced.error()).into(),
    ),
    gauge(
        "evenkeel_redirect_divided_requests",
        "Requests of the last epoch over one worker's part of the cap while the whole had room.",
        |to| to.enforced.map(|enforced| enforced.divided).into(),
    ),
    histogram(
        "evenkeel_redirect_duration_seconds",
        "Time from arrival to the head of the answer, by the data centre that served.",
        |to| Some(&to.site.latency),
    ),
];

const OF_ORIGINS: [Metric<u64>; 1] = [counter(
    "evenkeel_redirect_inflow_total",
    "Requests that another data centre sent here, by which; unknown: by none of the plan.",
    |count| (*count).into(),
)];

const OF_SPLITS: [Metric<SplitStats>; 2] = [
    counter_by(
        "evenkeel_redirect_local_total",
        "Requests of our own users that stayed without a plan: none came yet (no_plan), or the \
         last one is too old (stale).",
        "cause",
        |it| {
            let total = it.total();
            vec![("no_plan", total.no_plan.into()), ("stale", total.stale.into())]
        },
    ),
    gauge("evenkeel_redirect_epoch_enforced", "Epoch of the plan that workers enforce.", |it| {
        it.plan().map(|plan| plan.epoch).into()
    }),
];
