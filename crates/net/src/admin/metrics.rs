//! `/metrics`: what was counted since the start, for Prometheus (text exposition format 0.0.4).
//!
//! The format is a dozen lines to write, so it is written here. Families come in the order of the
//! tables below and series in the order of the configuration: two scrapes differ only in numbers.
//! What is not known (a queue that no replica has reported, the cost under a policy that does not
//! rank) has no sample rather than a zero.

use std::fmt::Write;
use std::time::Duration;

use evenkeel_core::Health;
use evenkeel_core::distribution::Recorder;

use super::view::{AgentView, ReplicaView, View};
use crate::board::Standing;

/// The `Content-Type` of [`render`]'s text.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper ends of the histogram's buckets: six to the decade, so that a quantile read from it is
/// within a factor of 1.5 or so of the truth wherever the objective lies.
const BUCKETS_MS: [f64; 30] = [
    0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 50.0, 75.0, 100.0, 150.0,
    200.0, 300.0, 500.0, 750.0, 1e3, 1.5e3, 2e3, 3e3, 5e3, 7.5e3, 1e4, 1.5e4, 2e4, 3e4,
];

/// Everything counted, as text. `cpu` is the CPU time of all workers.
pub(super) fn render(views: &[View<'_>], agents: &[AgentView], cpu: Duration) -> String {
    let mut text = Exposition::default();
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
    for metric in &OF_AGENTS {
        text.family(metric.name, metric.kind, metric.help);
        for agent in agents {
            text.series(metric, agent, &[("agent", &agent.address)]);
        }
    }
    text.0
}

/// A family of series over things of one kind.
struct Metric<T: 'static> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    series: &'static [Series<T>],
}

struct Series<T> {
    suffix: &'static str,
    /// A label beside those of the thing.
    label: Option<(&'static str, &'static str)>,
    value: fn(&T) -> Option<f64>,
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

const fn served<T>(content: &'static str, value: fn(&T) -> Option<f64>) -> Series<T> {
    Series { suffix: "", label: Some(("content", content)), value }
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

const OF_UPSTREAMS: [Metric<Standing>; 8] = [
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

fn render_latency(text: &mut Exposition, views: &[View<'_>]) {
    let help = "Time from the arrival of a request to the head of its answer.";
    text.family("evenkeel_request_duration_seconds", "histogram", help);
    let nothing = Recorder::default();
    for view in views {
        let latency = view.total().latency.as_ref().unwrap_or(&nothing);
        let labels =
            [("upstream", view.config.name.as_str()), ("policy", view.config.policy.text())];
        let [upstream, policy] = labels;
        for at_ms in BUCKETS_MS {
            let within = latency.count_within(Duration::from_micros((at_ms * 1e3) as u64));
            let at = (at_ms / 1e3).to_string();
            let labels = [upstream, policy, ("le", &at)];
            text.sample("evenkeel_request_duration_seconds_bucket", &labels, within as f64);
        }
        let (all, sum) = (latency.count() as f64, latency.sum().as_secs_f64());
        let infinite = [upstream, policy, ("le", "+Inf")];
        text.sample("evenkeel_request_duration_seconds_bucket", &infinite, all);
        text.sample("evenkeel_request_duration_seconds_sum", &labels, sum);
        text.sample("evenkeel_request_duration_seconds_count", &labels, all);
    }
}

/// A text that grows by families and their samples.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    const INFALLIBLE: &str = "writing to a string cannot fail";

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect(Self::INFALLIBLE);
    }

    fn series<T>(&mut self, metric: &Metric<T>, of: &T, labels: &[(&str, &str)]) {
        for series in metric.series {
            let Some(value) = (series.value)(of) else { continue };
            let mut labels = labels.to_vec();
            labels.extend(series.label);
            self.sample(&format!("{}{}", metric.name, series.suffix), &labels, value);
        }
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(self.0, "{open}{label}=\"{value}\"").expect(Self::INFALLIBLE);
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.0, "{close} {}", number(value)).expect(Self::INFALLIBLE);
    }
}

/// Rust writes infinity as `inf`, the format as `+Inf`.
fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    value.to_string()
}
