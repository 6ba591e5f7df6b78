//! What was counted since the start of whatever has a dispatcher, for the registry of metrics.
//!
//! The families of requests, attempts and replicas are the same for HTTP, CQL and RESP: an upstream
//! has the label `upstream`, a service of duplicates `service`.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_core::Health;
use evenkeel_core::discovery::Standing;
use evenkeel_core::window::LATENCY_BOUNDS_US;

use super::view::{ReplicaView, View};
use crate::config::UpstreamConfig;
use crate::site_metrics;
use crate::upstream_state::{
    ProbeCounts, ProbeResults, SourceState, UpstreamStates, UpstreamStats,
};
use evenkeel_runtime::metrics::{
    Buckets, Label, Metric, Scrape, counter, counter_by, gauge, gauge_by, histogram, histogram_of,
    summary,
};

/// What has a dispatcher: an upstream, or a service of duplicates.
#[derive(Debug)]
pub struct Balanced<'a> {
    /// The label that names it: a service may have the name of an upstream.
    pub label: Label<'a>,
    /// The policy, as it is written.
    pub policy: &'a str,
    /// How it stands, over all workers.
    pub stats: &'a UpstreamStats,
    /// Its replicas.
    pub replicas: Vec<ReplicaView>,
}

impl<'a> Balanced<'a> {
    fn of_upstream(view: &'a View<'_>) -> Self {
        let (label, policy) = (("upstream", view.config.name.as_str()), view.config.policy.text());
        // A replica that has left, and answers nothing any more, is none.
        let is_there = |it: &ReplicaView| it.health != Health::Draining || it.state.in_flight > 0;
        let replicas = view.replicas().into_iter().filter(is_there).collect();
        Self { label, policy, stats: &view.stats, replicas }
    }
}

/// Adds the process and these upstreams of it.
pub fn collect<'a>(
    scrape: &mut Scrape,
    upstreams: impl Iterator<Item = (usize, &'a UpstreamConfig)>,
    states: &UpstreamStates,
) {
    scrape.single(&OF_PROCESS, &states.cpu());
    let views = View::of_all(upstreams, states);
    let balanced: Vec<_> = views.iter().map(Balanced::of_upstream).collect();
    collect_balanced(scrape, &balanced);
    let rows = views.iter().flat_map(|view| {
        view.sources.iter().map(|source| {
            (vec![("upstream", &*view.config.name), ("source", &*source.name)], source)
        })
    });
    scrape.table(&OF_SOURCES, rows);
    collect_probes(scrape, &views);
    collect_operations(scrape, &views);
    site_metrics::collect(scrape, &views);
}

/// Adds whatever has a dispatcher.
pub fn collect_balanced(scrape: &mut Scrape, of: &[Balanced<'_>]) {
    scrape.table(&OF_UPSTREAMS, of.iter().map(|it| (vec![it.label], it.stats)));
    let by_policy = of.iter().map(|it| (vec![it.label, ("policy", it.policy)], it.stats));
    scrape.table(&BY_POLICY, by_policy);
    let replicas = of.iter().flat_map(|it| {
        it.replicas.iter().map(|replica| (vec![it.label, ("replica", &*replica.address)], replica))
    });
    scrape.table(&OF_REPLICAS, replicas);
}

const OF_PROCESS: [Metric<Duration>; 2] = [
    gauge_by("evenkeel_build_info", "The running version; always 1.", "version", |_| {
        vec![(env!("CARGO_PKG_VERSION"), 1_u64.into())]
    }),
    counter("evenkeel_workers_cpu_seconds_total", "CPU time of all worker threads.", |cpu| {
        (*cpu).into()
    }),
];

/// Families whose buckets have exemplars.
pub(crate) const REQUEST_SECONDS: &str = "evenkeel_request_duration_seconds";
pub(crate) const ATTEMPT_SECONDS: &str = "evenkeel_attempt_seconds";

const BY_POLICY: [Metric<UpstreamStats>; 1] = [histogram(
    "evenkeel_request_duration_seconds",
    "Time from the arrival of a request to the head of its answer, or to its timeout.",
    |it| it.total.latency.as_ref(),
)];

const OF_UPSTREAMS: [Metric<UpstreamStats>; 17] = [
    counter_by(
        "evenkeel_requests_total",
        "Requests that ended: answered by a replica (error replies included), refused without an \
         answer (timeouts included), or abandoned by the client.",
        "outcome",
        |it| {
            vec![
                ("answered", it.total.answered.into()),
                ("refused", it.total.refused.into()),
                ("abandoned", it.total.abandoned.into()),
            ]
        },
    ),
    counter_by(
        "evenkeel_responses_total",
        "HTTP responses to clients by class of status, those of the proxy itself included; not the \
         400 to what is no HTTP.",
        "class",
        |it| {
            if it.responses == [0; 5] {
                return Vec::new(); // another protocol, or nobody has come yet
            }
            let classes = ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter();
            classes.zip(it.responses).map(|(class, count)| (class, count.into())).collect()
        },
    ),
    gauge("evenkeel_upstream_queued", "Requests that wait for a sending rate.", |it| {
        it.held().into()
    }),
    counter(
        "evenkeel_upstream_queue_entries_total",
        "Requests that waited for a sending rate.",
        |it| it.total.held.into(),
    ),
    counter("evenkeel_retries_total", "Retries, rescues included.", |it| it.total.retries.into()),
    counter(
        "evenkeel_rescues_total",
        "Retries beside an attempt whose replica is silent or on trial.",
        |it| it.total.rescues.into(),
    ),
    counter("evenkeel_retries_denied_total", "Retries that the retry budget forbade.", |it| {
        it.total.retries_denied.into()
    }),
    counter(
        "evenkeel_moves_total",
        "Requests that went to another replica as they had to wait for a slot of theirs.",
        |it| it.total.moves.into(),
    ),
    counter_by(
        "evenkeel_hedges_total",
        "Hedges: sent, won (answered before the first copy), denied (due, but forbidden by budget \
         or gate).",
        "result",
        |it| {
            vec![
                ("sent", it.total.hedges.into()),
                ("won", it.total.hedges_won.into()),
                ("denied", it.total.hedges_denied.into()),
            ]
        },
    ),
    counter_by(
        "evenkeel_hedges_kept_total",
        "Hedges for an objective that were due and not sent: load (copies would hurt), \
         ineffective (copies are as late as the first), comparison (to learn whether they are).",
        "reason",
        |it| {
            let Some(kept) = it.hedge().map(|hedge| hedge.kept) else { return Vec::new() };
            vec![
                ("load", kept.by_load.into()),
                ("ineffective", kept.as_futile.into()),
                ("comparison", kept.for_comparison.into()),
            ]
        },
    ),
    gauge(
        "evenkeel_hedge_ineffective",
        "1 while copies are as late as the first (all replicas are slow at once); then only a few \
         are sent, to learn when that ends.",
        |it| it.hedge().map(|hedge| hedge.is_futile).into(),
    ),
    gauge("evenkeel_hedge_delay_seconds", "Delay before a copy is sent; absent for none.", |it| {
        it.hedge().and_then(|hedge| hedge.delay).into()
    }),
    gauge(
        "evenkeel_hedge_benefit_ratio",
        "Predicted share of a copy that avoids a miss of the objective: 0 to 1.",
        |it| it.hedge().and_then(|hedge| hedge.worth).into(),
    ),
    gauge(
        "evenkeel_hedge_utilisation",
        "Utilisation of the replicas by first copies, or the share of requests that wait for \
         others: 0 to 1. Hedging stops near utilisation_max.",
        |it| it.hedge().and_then(|hedge| hedge.utilisation).into(),
    ),
    counter_by(
        "evenkeel_mirrored_total",
        "Requests of other upstreams that a route mirrors here: copied (sent), or left out \
         (skipped) because 128 copies of the route were on their way or the body was not kept.",
        "result",
        |it| match it.mirrored {
            [0, 0] => Vec::new(),
            [sent, skipped] => vec![("sent", sent.into()), ("skipped", skipped.into())],
        },
    ),
    counter_by(
        "evenkeel_answers_total",
        "Answers of replicas with brownout: all optional content (full), or less (reduced).",
        "content",
        |it| vec![("full", it.seen.full.into()), ("reduced", it.seen.reduced.into())],
    ),
    counter(
        "evenkeel_dimmer_invalid_total",
        "Answers with an invalid dimmer: repeated, out of range or no number. The replica's \
         dimmer is then unknown.",
        |it| it.seen.dimmers_invalid.into(),
    ),
];

const OF_REPLICAS: [Metric<ReplicaView>; 15] = [
    counter_by(
        "evenkeel_attempts_total",
        "Attempts that ended: succeeded, failed (error replies and broken bodies included), or \
         cancelled.",
        "outcome",
        |it| {
            vec![
                ("succeeded", it.counted.succeeded.into()),
                ("failed", it.counted.failed.into()),
                ("cancelled", it.counted.cancelled.into()),
            ]
        },
    ),
    counter(
        "evenkeel_broken_bodies_total",
        "Failed attempts whose answer broke off after its head.",
        |it| it.counted.broken_bodies.into(),
    ),
    histogram_of(
        "evenkeel_attempt_seconds",
        "Time from sending to the head of the answer, of attempts that succeeded.",
        |it| Buckets {
            bounds_us: &LATENCY_BOUNDS_US,
            counts: &it.counted.latencies.0,
            sum: Duration::from_micros(it.counted.latency_us_sum),
        },
    ),
    summary(
        "evenkeel_attempt_unanswered_seconds",
        "Time from sending to the end of attempts that were cancelled or timed out: their answers \
         would have taken longer.",
        |it| (Duration::from_micros(it.counted.censored_us_sum), it.counted.censored),
    ),
    gauge("evenkeel_in_flight", "Attempts in flight.", |it| it.state.in_flight.into()),
    gauge("evenkeel_connections", "Open connections to the replica, idle ones included.", |it| {
        it.state.connections.into()
    }),
    gauge(
        "evenkeel_replica_up",
        "1 while health checks pass and no worker ejects it or finds it silent; else 0.",
        |it| (it.health == Health::Up && !it.state.is_ejected && !it.is_silent()).into(),
    ),
    gauge(
        "evenkeel_replica_silent",
        "1 while it owes a worker responses and sends none: it gets no requests.",
        |it| it.is_silent().into(),
    ),
    gauge("evenkeel_replica_ejected", "1 while a worker ejects it for failures.", |it| {
        it.state.is_ejected.into()
    }),
    counter("evenkeel_replica_ejections_total", "Ejections for failures, by any worker.", |it| {
        it.counted.ejections.into()
    }),
    gauge(
        "evenkeel_replica_failure_ratio",
        "Share of recent attempts that failed (0 to 1); the highest of all workers.",
        |it| it.state.failure_share.into(),
    ),
    gauge(
        "evenkeel_replica_cost",
        "Cost of one more request by the policy, in its unit; the highest of all workers.",
        |it| it.state.cost.into(),
    ),
    gauge("evenkeel_replica_queue", "Requests that wait at the replica, as it reported.", |it| {
        it.state.queue_length.into()
    }),
    gauge(
        "evenkeel_replica_service_seconds",
        "Service time without waiting, as the replica reported.",
        |it| it.state.service_time.into(),
    ),
    gauge(
        "evenkeel_replica_dimmer",
        "Share of optional content that the replica serves (0 to 1), as it reported within ten \
         seconds.",
        |it| it.state.dimmer.map(|(dimmer, _)| dimmer.value()).into(),
    ),
];

const OF_SOURCES: [Metric<SourceState>; 4] = [
    gauge(
        "evenkeel_discovery_age_seconds",
        "Time since the last whole answer of a source of replicas; absent before the first.",
        |it| it.age.into(),
    ),
    gauge(
        "evenkeel_discovery_stale",
        "1 while its last answer was not whole: what it told before stays, unless it has told of \
         nobody for long enough.",
        |it| (it.standing != Standing::Well).into(),
    ),
    gauge(
        "evenkeel_discovery_replicas",
        "Replicas or names that it tells of, those included that stay while it fails.",
        |it| it.replicas.into(),
    ),
    counter_by(
        "evenkeel_discovery_answers_total",
        "Its answers: whole, partial (some addresses are unknown), empty (no such name, or no \
         addresses), failed (no answer, SERVFAIL, no readable file).",
        "outcome",
        |it| {
            vec![
                ("whole", it.counts.whole.into()),
                ("partial", it.counts.partial.into()),
                ("empty", it.counts.empty.into()),
                ("failed", it.counts.failed.into()),
            ]
        },
    ),
];

const PROBES: [Metric<ProbeResults>; 1] = [counter_by(
    "evenkeel_probes_total",
    "Probes of replicas, over HTTP or UDP: answered, unanswered (over UDP: lost or late), or \
     unknown (no agent is there).",
    "result",
    |it| {
        vec![
            ("answered", it.answered.into()),
            ("unanswered", it.unanswered.into()),
            ("unknown", it.unknown.into()),
        ]
    },
)];

const OF_DATAGRAMS: [Metric<ProbeCounts>; 2] = [
    counter_by(
        "evenkeel_probe_datagrams_dropped_total",
        "Dropped datagrams to the UDP ports of probes: unexpected (late, or come twice), or \
         invalid (no answer or notice of the agent asked).",
        "reason",
        |it| vec![("unexpected", it.unexpected.into()), ("invalid", it.invalid.into())],
    ),
    counter(
        "evenkeel_notices_total",
        "Notices of agents that a request waits there, in time.",
        |it| it.notices.into(),
    ),
];

/// Of upstreams whose policies ask.
fn collect_probes(scrape: &mut Scrape, views: &[View<'_>]) {
    let asking = || views.iter().filter(|view| view.stats.probes != ProbeCounts::default());
    let by_channel = asking().flat_map(|view| {
        let counts = &view.stats.probes;
        [("http", &counts.http), ("udp", &counts.udp)].map(|(channel, results)| {
            (vec![("upstream", &*view.config.name), ("channel", channel)], results)
        })
    });
    scrape.table(&PROBES, by_channel);
    let datagrams = asking().map(|it| (vec![("upstream", &*it.config.name)], &it.stats.probes));
    scrape.table(&OF_DATAGRAMS, datagrams);
}

const OPERATIONS: [Metric<u64>; 1] = [counter(
    "evenkeel_operations_total",
    "Requests of this site's own users as operations of a database, by where they come from and \
     what they wait for; counted wherever they are served.",
    |count| (*count).into(),
)];

/// Upstreams of one database are one counter, since a series may come only once.
fn collect_operations(scrape: &mut Scrape, views: &[View<'_>]) {
    let mut counts: BTreeMap<[&str; 3], u64> = BTreeMap::new();
    for view in views {
        let Some(counted) = &view.config.operations else { continue };
        let kinds = [counted.reads, counted.writes];
        for (kind, count) in kinds.into_iter().zip(view.stats.operations) {
            let labels = [counted.database.as_str(), counted.datacenter.as_str(), kind];
            *counts.entry(labels).or_default() += count;
        }
    }
    let rows = counts.iter().map(|([database, datacenter, operation], count)| {
        let place = [("database", *database), ("datacenter", *datacenter)];
        ([&place[..], &[("operation", *operation)]].concat(), count)
    });
    scrape.table(&OPERATIONS, rows);
}
