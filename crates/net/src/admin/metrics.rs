//! `/metrics`: what was counted since the start, for Prometheus (text exposition format 0.0.4).
//!
//! Families come in the order of the tables below and series in the order of the configuration: two
//! scrapes differ only in numbers.
//! What is not known (a queue that no replica has reported, the cost under a policy that does not
//! rank) has no sample rather than a zero.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_core::Health;
use evenkeel_core::distribution::Recorder;
use evenkeel_core::site::redirect::split::{Enforced, LaneCounts};

use super::cluster;
use super::view::{AgentView, ReplicaView, View};
use crate::board::{Lane, Standing};
use crate::exposition::{Exposition, Metric, Series};

/// The `Content-Type` of [`render`]'s text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Everything counted, as text. `cpu` is the CPU time of all workers.
pub(super) fn render(views: &[View<'_>], agents: &[AgentView], cpu: Duration) -> String {
    let mut written = String::new();
    let mut text = Exposition(&mut written);
    text.family("evenkeel_build_info", "gauge", "The version that runs; always 1.");
    text.sample("evenkeel_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let help = "CPU time of all worker threads: listening, deciding, passing on.";
    text.family("evenkeel_workers_cpu_seconds_total", "counter", help);
    text.sample("evenkeel_workers_cpu_seconds_total", &[], cpu.as_secs_f64());
    for metric in &OF_UPSTREAMS {
        text.family(metric.name, metric.kind, metric.help);
        for view in views {
            text.series(metric, &view.standing, &[("upstream", &view.config.name)]);
        }
    }
    render_latency(&mut text, views);
    render_operations(&mut text, views);
    render_split(&mut text, views);
    let replicas: Vec<_> = views.iter().map(View::replicas).collect();
    for metric in &OF_REPLICAS {
        text.family(metric.name, metric.kind, metric.help);
        for (view, replicas) in views.iter().zip(&replicas) {
            for replica in replicas {
                let labels =
                    [("upstream", view.config.name.as_str()), ("replica", &replica.address)];
                text.series(metric, replica, &labels);
            }
        }
    }
    cluster::metrics(&mut text, views);
    for metric in &OF_AGENTS {
        text.family(metric.name, metric.kind, metric.help);
        for agent in agents {
            text.series(metric, agent, &[("agent", &agent.address)]);
        }
    }
    written
}

/// Requests as operations of databases, in the words of whoever places these: upstreams of one
/// database are one counter, since a series may come only once.
fn render_operations(text: &mut Exposition<'_>, views: &[View<'_>]) {
    let mut counts: BTreeMap<[&str; 3], u64> = BTreeMap::new();
    for view in views {
        let Some(counted) = &view.config.operations else { continue };
        let kinds = [counted.reads, counted.writes];
        for (kind, count) in kinds.into_iter().zip(view.standing.operations) {
            let labels = [counted.database.as_str(), counted.datacenter.as_str(), kind.name()];
            *counts.entry(labels).or_default() += count;
        }
    }
    if counts.is_empty() {
        return;
    }
    let help = "Requests of this site's own users, as operations of a database by where they come \
                from and what they wait for: counted as they come, wherever they are served.";
    text.family("evenkeel_operations_total", "counter", help);
    for ([database, datacenter, operation], count) in counts {
        let labels = [("database", database), ("datacenter", datacenter), ("operation", operation)];
        text.sample("evenkeel_operations_total", &labels, count as f64);
    }
}

const fn only<T>(value: fn(&T) -> Option<f64>) -> Series<T> {
    Series { suffix: "", label: None, value }
}

const fn outcome<T>(outcome: &'static str, value: fn(&T) -> Option<f64>) -> Series<T> {
    Series { suffix: "", label: Some(("outcome", outcome)), value }
}

const fn result<T>(result: &'static str, value: fn(&T) -> Option<f64>) -> Series<T> {
    Series { suffix: "", label: Some(("result", result)), value }
}

const fn reason<T>(reason: &'static str, value: fn(&T) -> Option<f64>) -> Series<T> {
    Series { suffix: "", label: Some(("reason", reason)), value }
}

const fn served<T>(content: &'static str, value: fn(&T) -> Option<f64>) -> Series<T> {
    Series { suffix: "", label: Some(("content", content)), value }
}

const fn cause<T>(cause: &'static str, value: fn(&T) -> Option<f64>) -> Series<T> {
    Series { suffix: "", label: Some(("cause", cause)), value }
}

const fn part<T>(suffix: &'static str, value: fn(&T) -> Option<f64>) -> Series<T> {
    Series { suffix, label: None, value }
}

const fn count(count: u64) -> Option<f64> {
    Some(count as f64)
}

const fn flag(flag: bool) -> Option<f64> {
    Some(if flag { 1.0 } else { 0.0 })
}

const OF_UPSTREAMS: [Metric<Standing>; 13] = [
    Metric {
        name: "evenkeel_requests_total",
        kind: "counter",
        help: "Requests that ended: answered by a replica (error replies included), \
               refused without an answer, or abandoned by the client.",
        series: &[
            outcome("answered", |standing| count(standing.total.answered)),
            outcome("refused", |standing| count(standing.total.refused)),
            outcome("abandoned", |standing| count(standing.total.abandoned)),
        ],
    },
    Metric {
        name: "evenkeel_held",
        kind: "gauge",
        help: "Requests held for a sending rate.",
        series: &[only(|standing| count(standing.held() as u64))],
    },
    Metric {
        name: "evenkeel_held_total",
        kind: "counter",
        help: "Requests that had to wait for a sending rate.",
        series: &[only(|standing| count(standing.total.held))],
    },
    Metric {
        name: "evenkeel_retries_total",
        kind: "counter",
        help: "Retries sent after a failed attempt.",
        series: &[only(|standing| count(standing.total.retries))],
    },
    Metric {
        name: "evenkeel_retries_denied_total",
        kind: "counter",
        help: "Retries that the retry budget forbade.",
        series: &[only(|standing| count(standing.total.retries_denied))],
    },
    Metric {
        name: "evenkeel_hedges_total",
        kind: "counter",
        help: "Hedges: sent, won (answered before the first copy), \
               denied (due, but forbidden by budget or gate).",
        series: &[
            result("sent", |standing| count(standing.total.hedges)),
            result("won", |standing| count(standing.total.hedges_won)),
            result("denied", |standing| count(standing.total.hedges_denied)),
        ],
    },
    Metric {
        name: "evenkeel_hedges_kept_total",
        kind: "counter",
        help: "Hedges toward an objective that were due and kept back: load (copies would hurt), \
               futile (copies are as late as the requests they should save), comparison (to find \
               out whether they are).",
        series: &[
            reason("load", |standing| count(standing.hedge()?.kept.by_load)),
            reason("futile", |standing| count(standing.hedge()?.kept.as_futile)),
            reason("comparison", |standing| count(standing.hedge()?.kept.for_comparison)),
        ],
    },
    Metric {
        name: "evenkeel_hedge_futile",
        kind: "gauge",
        help: "1 while copies are as late as the requests they should save (what is slow is slow \
               for all replicas at once) and only a few leave, to find out when that ends.",
        series: &[only(|standing| flag(standing.hedge()?.is_futile))],
    },
    Metric {
        name: "evenkeel_hedge_delay_seconds",
        kind: "gauge",
        help: "After which a copy leaves; none while none does.",
        series: &[only(|standing| Some(standing.hedge()?.delay?.as_secs_f64()))],
    },
    Metric {
        name: "evenkeel_hedge_worth",
        kind: "gauge",
        help: "Misses of the objective that a copy is foretold to avoid: 0 to 1.",
        series: &[only(|standing| standing.hedge()?.worth)],
    },
    Metric {
        name: "evenkeel_hedge_utilisation",
        kind: "gauge",
        help: "Utilisation of the replicas by first copies as hedging knows it, or the share of \
               requests that wait for others: 0 to 1. Near utilisation_max copies stop.",
        series: &[only(|standing| standing.hedge()?.utilisation)],
    },
    Metric {
        name: "evenkeel_answers_total",
        kind: "counter",
        help: "Answers of replicas that said whether they had all their optional content (full) \
               or something was left out (reduced).",
        series: &[
            served("full", |standing| count(standing.seen.full)),
            served("reduced", |standing| count(standing.seen.reduced)),
        ],
    },
    Metric {
        name: "evenkeel_dimmer_invalid_total",
        kind: "counter",
        help: "Answers of replicas with a dimmer that must not be believed: repeated, out of \
               range or no number. The replica's dimmer is then unknown.",
        series: &[only(|standing| count(standing.seen.dimmers_invalid))],
    },
];

const OF_REPLICAS: [Metric<ReplicaView>; 12] = [
    Metric {
        name: "evenkeel_attempts_total",
        kind: "counter",
        help: "Attempts that ended: succeeded, failed (error replies included), or cancelled.",
        series: &[
            outcome("succeeded", |replica| count(replica.counted.succeeded)),
            outcome("failed", |replica| count(replica.counted.failed)),
            outcome("cancelled", |replica| count(replica.counted.cancelled)),
        ],
    },
    Metric {
        name: "evenkeel_attempt_seconds",
        kind: "summary",
        help: "Time from sending to the head of the answer, of attempts that succeeded.",
        series: &[
            part("_sum", |replica| Some(replica.counted.latency_us_sum as f64 / 1e6)),
            part("_count", |replica| count(replica.counted.succeeded)),
        ],
    },
    Metric {
        name: "evenkeel_in_flight",
        kind: "gauge",
        help: "Attempts in flight.",
        series: &[only(|replica| count(replica.state.in_flight as u64))],
    },
    Metric {
        name: "evenkeel_connections",
        kind: "gauge",
        help: "Connections open to the replica, idle ones included.",
        series: &[only(|replica| count(replica.state.connections as u64))],
    },
    Metric {
        name: "evenkeel_replica_up",
        kind: "gauge",
        help: "Whether health checks find it well (1) or it is down or draining (0).",
        series: &[only(|replica| flag(matches!(replica.health, Health::Up)))],
    },
    Metric {
        name: "evenkeel_replica_ejected",
        kind: "gauge",
        help: "Whether a worker has ejected it for failing requests.",
        series: &[only(|replica| flag(replica.state.is_ejected))],
    },
    Metric {
        name: "evenkeel_replica_ejections_total",
        kind: "counter",
        help: "Times a worker ejected it for failing requests.",
        series: &[only(|replica| count(replica.counted.ejections))],
    },
    Metric {
        name: "evenkeel_replica_failure_ratio",
        kind: "gauge",
        help: "Share of recent attempts that failed (0 to 1), as the worst-off worker sees it.",
        series: &[only(|replica| Some(replica.state.failure_share))],
    },
    Metric {
        name: "evenkeel_replica_cost",
        kind: "gauge",
        help: "What the policy thinks a request to it costs, in the policy's unit; \
               the highest of all workers.",
        series: &[only(|replica| replica.state.cost)],
    },
    Metric {
        name: "evenkeel_replica_queue",
        kind: "gauge",
        help: "Requests waiting at the replica, by its own last report.",
        series: &[only(|replica| replica.state.queue_length.map(f64::from))],
    },
    Metric {
        name: "evenkeel_replica_service_seconds",
        kind: "gauge",
        help: "Service time without waiting, by the replica's own last report.",
        series: &[only(|replica| replica.state.service_time.map(|time| time.as_secs_f64()))],
    },
    Metric {
        name: "evenkeel_replica_dimmer",
        kind: "gauge",
        help: "Share of optional content the replica serves (0 to 1), by its own last word within \
               ten seconds.",
        series: &[only(|replica| replica.state.dimmer.map(|(dimmer, _)| dimmer.value()))],
    },
];

const OF_AGENTS: [Metric<AgentView>; 7] = [
    Metric {
        name: "evenkeel_agent_waiting",
        kind: "gauge",
        help: "Requests that wait in the agent for its application.",
        series: &[only(|agent| count(agent.state.waiting as u64))],
    },
    Metric {
        name: "evenkeel_agent_in_service",
        kind: "gauge",
        help: "Requests with the agent's application.",
        series: &[only(|agent| count(agent.state.in_service as u64))],
    },
    Metric {
        name: "evenkeel_brownout_dimmer",
        kind: "gauge",
        help: "Share of optional content that is served (0 to 1).",
        series: &[only(|agent| Some(agent.state.brownout?.standing.dimmer.value()))],
    },
    Metric {
        name: "evenkeel_brownout_requests_total",
        kind: "counter",
        help: "Requests for optional content, decided to be served in full or with something \
               left out (reduced).",
        series: &[
            served("full", |agent| count(agent.state.brownout?.standing.full)),
            served("reduced", |agent| count(agent.state.brownout?.standing.reduced)),
        ],
    },
    Metric {
        name: "evenkeel_brownout_percentile_seconds",
        kind: "gauge",
        help: "The percentile of response times that the dimmer goes by.",
        series: &[only(|agent| Some(agent.state.brownout?.standing.percentile?.as_secs_f64()))],
    },
    Metric {
        name: "evenkeel_brownout_setpoint_seconds",
        kind: "gauge",
        help: "What that percentile is kept at.",
        series: &[only(|agent| Some(agent.dimmer.as_ref()?.brownout.setpoint.as_secs_f64()))],
    },
    Metric {
        name: "evenkeel_brownout_held",
        kind: "gauge",
        help: "Whether the dimmer is held by hand (1) or follows its law (0).",
        series: &[only(|agent| flag(agent.state.brownout?.standing.is_held))],
    },
];

fn render_latency(text: &mut Exposition<'_>, views: &[View<'_>]) {
    let help = "Time from the arrival of a request to the head of its answer.";
    text.family("evenkeel_request_duration_seconds", "histogram", help);
    let nothing = Recorder::default();
    for view in views {
        let latency = view.total().latency.as_ref().unwrap_or(&nothing);
        let labels =
            [("upstream", view.config.name.as_str()), ("policy", view.config.policy.text())];
        text.histogram("evenkeel_request_duration_seconds", labels, latency);
    }
}

/// What is known of a data centre to which requests of an upstream may go.
struct Destination {
    upstream: String,
    name: String,
    counts: LaneCounts,
    lane: Lane,
    planned_per_s: Option<f64>,
    enforced: Option<Enforced>,
}

impl Destination {
    /// All of an upstream, in the order of the sites.
    fn of(view: &View<'_>) -> Vec<Self> {
        let Some(split) = &view.standing.split else { return Vec::new() };
        let (total, plan) = (split.total(), split.plan());
        let enforced = split.enforced().map(|(_, of_all)| of_all).unwrap_or_default();
        let destination = |(site, name): (usize, &String)| Self {
            upstream: view.config.name.clone(),
            name: name.clone(),
            counts: total.lanes[site],
            lane: split.lanes[site].clone(),
            planned_per_s: plan.map(|row| row.rates_per_1000_s[site] as f64 * 1e-3),
            enforced: enforced.iter().find(|one| one.to.index() == site).copied(),
        };
        split.setup.names.iter().enumerate().map(destination).collect()
    }
}

const OF_DESTINATIONS: [Metric<Destination>; 10] = [
    Metric {
        name: "evenkeel_redirect_requests_total",
        kind: "counter",
        help: "Requests of our own users by the data centre they were given to, ours among them.",
        series: &[only(|to| count(to.counts.sent))],
    },
    Metric {
        name: "evenkeel_redirect_over_cap_total",
        kind: "counter",
        help: "Requests meant for the data centre that stayed because it had its rate already.",
        series: &[only(|to| count(to.counts.over_cap))],
    },
    Metric {
        name: "evenkeel_redirect_unhealthy_total",
        kind: "counter",
        help: "Requests meant for the data centre that stayed because nobody there was healthy.",
        series: &[only(|to| count(to.counts.unhealthy))],
    },
    Metric {
        name: "evenkeel_redirect_rescued_total",
        kind: "counter",
        help: "Requests that no replica of ours could serve and that were sent to the data centre.",
        series: &[only(|to| count(to.counts.rescued))],
    },
    Metric {
        name: "evenkeel_redirect_fallback_total",
        kind: "counter",
        help: "Requests given to the data centre that came back: it could not be reached or \
               refused them.",
        series: &[only(|to| count(to.lane.fallbacks))],
    },
    Metric {
        name: "evenkeel_redirect_served_total",
        kind: "counter",
        help: "Requests of our own users by the data centre where they ended.",
        series: &[only(|to| count(to.lane.tally.ended))],
    },
    Metric {
        name: "evenkeel_redirect_missed_total",
        kind: "counter",
        help: "Of these, requests that failed or were answered later than the objective.",
        series: &[only(|to| count(to.lane.tally.missed))],
    },
    Metric {
        name: "evenkeel_redirect_planned_rate",
        kind: "gauge",
        help: "Requests per second that the plan in force sends to the data centre.",
        series: &[only(|to| to.planned_per_s)],
    },
    Metric {
        name: "evenkeel_redirect_error_requests",
        kind: "gauge",
        help: "Requests of the last epoch chosen for the data centre beyond (negative: short of) \
               its share of them.",
        series: &[only(|to| to.enforced.map(|enforced| enforced.error()))],
    },
    Metric {
        name: "evenkeel_redirect_divided_requests",
        kind: "gauge",
        help: "Requests of the last epoch that stayed over a worker's part of the cap though the \
               whole of it had room.",
        series: &[only(|to| to.enforced.map(|enforced| enforced.divided))],
    },
];

const OF_SPLITS: [Metric<Standing>; 2] = [
    Metric {
        name: "evenkeel_redirect_local_total",
        kind: "counter",
        help: "Requests of our own users that stayed for want of a plan: none came yet (no_plan), \
               or the last is too old to be believed (stale).",
        series: &[
            cause("no_plan", |standing| count(standing.split.as_ref()?.total().no_plan)),
            cause("stale", |standing| count(standing.split.as_ref()?.total().stale)),
        ],
    },
    Metric {
        name: "evenkeel_redirect_epoch_enforced",
        kind: "gauge",
        help: "The epoch of the plan that workers enforce.",
        series: &[only(|standing| count(standing.split.as_ref()?.plan()?.epoch))],
    },
];

/// Nothing where no upstream splits its requests.
fn render_split(text: &mut Exposition<'_>, views: &[View<'_>]) {
    let destinations: Vec<Destination> = views.iter().flat_map(Destination::of).collect();
    if destinations.is_empty() {
        return;
    }
    let labels = |to: &Destination| [to.upstream.clone(), to.name.clone()];
    for metric in &OF_DESTINATIONS {
        text.family(metric.name, metric.kind, metric.help);
        for to in &destinations {
            let [upstream, name] = labels(to);
            text.series(metric, to, &[("upstream", &upstream), ("datacenter", &name)]);
        }
    }
    let help = "Arrival to the head of the answer, by the data centre that served.";
    text.family("evenkeel_redirect_duration_seconds", "histogram", help);
    for to in &destinations {
        let labels = [("upstream", to.upstream.as_str()), ("datacenter", to.name.as_str())];
        text.histogram("evenkeel_redirect_duration_seconds", labels, &to.lane.latency);
    }
    let help = "Requests that another data centre sent here, by which; unknown: by none we know.";
    text.family("evenkeel_redirect_inflow_total", "counter", help);
    for to in &destinations {
        let labels = [("upstream", to.upstream.as_str()), ("origin", to.name.as_str())];
        text.sample("evenkeel_redirect_inflow_total", &labels, to.lane.inflow as f64);
    }
    for view in views {
        if let Some(split) = &view.standing.split {
            let labels = [("upstream", view.config.name.as_str()), ("origin", "unknown")];
            let unknown = split.inflow_unknown as f64;
            text.sample("evenkeel_redirect_inflow_total", &labels, unknown);
        }
    }
    for metric in &OF_SPLITS {
        text.family(metric.name, metric.kind, metric.help);
        for view in views {
            text.series(metric, &view.standing, &[("upstream", &view.config.name)]);
        }
    }
}
