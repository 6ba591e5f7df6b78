//! The result of a load, in the form that scripts read.

use std::time::Duration;

use super::cassandra::parameters::CassandraParameters;
use super::expect::Mismatch;
use super::tally::{FailureCount, Latencies, Tally};
use super::{Load, Plan};

/// A send lag above this (99th percentile) makes latencies doubtful, in milliseconds.
const SEND_LAG_MS_MAX: f64 = 1.0;

/// What a load gives back.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figures.
    pub report: Report,
    /// Latency from the moment a request was due: served requests and timeouts.
    pub latency: Latencies,
    /// Latency from the moment a request was sent: served requests only.
    pub service: Latencies,
    /// The part of the delay before sending that is the generator's own.
    pub send_lag: Latencies,
}

/// The figures of a load: one element of `runs` in the JSON of `evenkeel load --json`.
///
/// `requests` = `served` + `failed` + `timeouts`. Latencies hold served requests and timeouts (as
/// long as the timeout); failures are left out, because failing fast is not being fast: look at
/// `failed` first. They are `null` when there are none.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// The label given to the run.
    pub policy: String,
    /// The seed of arrivals and keys.
    pub seed: u64,
    /// Requests that were due and have been decided.
    pub requests: u64,
    /// Answered whole, with a status of 2xx or 304 and, if that was checked, the right body.
    pub served: u64,
    /// Answered otherwise, or not answered for another reason than time.
    pub failed: u64,
    /// Not answered within the timeout, counted from the moment they were due.
    pub timeouts: u64,
    /// Served with optional content (`Brownout-Served: ?1`).
    pub optional: u64,
    /// The share of `requests` that missed the objective: those answered whole later than that
    /// after they were due, all that failed and all that timed out. `None` without an objective.
    pub missed_share: Option<f64>,
    /// Latency.
    #[serde(flatten)]
    pub latency: LatencyFigures,
    /// Requests per second of the *generator's* CPU time: its own limit on one core.
    pub requests_per_cpu_s: f64,
    /// From the start to the last answer.
    pub duration_s: f64,
    /// Requests that became due, per second of the plan.
    pub offered_rate: f64,
    /// Requests served, per second of `duration_s`.
    pub achieved_rate: f64,
    /// Bytes of response bodies.
    pub bytes: u64,
    /// Responses by class of status.
    pub statuses: Statuses,
    /// Responses whose body was not what it must be (they count as failed).
    pub mismatches: u64,
    /// The first of them.
    pub mismatch_examples: Vec<Mismatch>,
    /// What went wrong, and how often; answers by their status come first.
    pub failures: Vec<FailureCount>,
    /// Requests that found the queue full (they count as failed).
    pub dropped: u64,
    /// Requests without a decision when the load was cancelled; not among `requests`.
    pub unfinished: u64,
    /// The load was ended before its time.
    pub cancelled: bool,
    /// Connections that were opened.
    pub connections_opened: u64,
    /// Delay that the generator itself added before sending: median.
    pub send_lag_p50_ms: Option<f64>,
    /// Delay that the generator itself added before sending: 99th percentile.
    pub send_lag_p99_ms: Option<f64>,
    /// Latency from the actual sending, served requests only: median.
    pub service_p50_ms: Option<f64>,
    /// Latency from the actual sending, served requests only: 99th percentile.
    pub service_p99_ms: Option<f64>,
    /// Share of one core that the generator used.
    pub generator_cpu_share: f64,
    /// The same for each kind of request, where there are several (Cassandra).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationReport>,
}

/// The figures of one kind of request.
#[derive(Clone, Debug, serde::Serialize)]
pub struct OperationReport {
    /// `read` or `update`.
    pub operation: &'static str,
    /// Those that were due and have been decided.
    pub requests: u64,
    /// Served.
    pub served: u64,
    /// Failed.
    pub failed: u64,
    /// Not answered within the timeout.
    pub timeouts: u64,
    /// Latency.
    #[serde(flatten)]
    pub latency: LatencyFigures,
}

/// What there is to say of latencies, in milliseconds; `None` where nothing was measured.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct LatencyFigures {
    /// The mean.
    pub mean_ms: Option<f64>,
    /// The median.
    pub p50_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// 99.9th percentile.
    pub p999_ms: Option<f64>,
    /// The longest.
    pub max_ms: Option<f64>,
}

/// Responses by class of status.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Statuses {
    /// 200 to 299.
    #[serde(rename = "2xx")]
    pub success: u64,
    /// 300 to 399; redirections are not followed, and all but 304 count as failed.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// 400 to 499.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// 500 to 599.
    #[serde(rename = "5xx")]
    pub server_error: u64,
    /// Any other.
    pub other: u64,
}

/// The parameters of a load as resolved: `scenario` in the JSON of `evenkeel load --json`.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Parameters {
    /// `host:port`.
    pub authority: String,
    /// The path of the first request.
    pub path: String,
    /// The method.
    pub method: String,
    /// `constant`, `poisson` or `trace`.
    pub arrivals: &'static str,
    /// Requests per second, averaged over the whole plan.
    pub rate: f64,
    /// When requests end; `null` without an end.
    pub duration_s: Option<f64>,
    /// The most requests; `null` without a bound.
    pub requests_max: Option<u64>,
    /// The timeout of a request.
    pub timeout_ms: f64,
    /// The objective that requests are judged by; `null` without one.
    pub objective_ms: Option<f64>,
    /// The most connections.
    pub connections_max: usize,
    /// The most requests that wait for a connection.
    pub queue_max: usize,
    /// The seed of arrivals and keys.
    pub seed: u64,
    /// What a load on Cassandra has more; its keys stand beside the others.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub cassandra: Option<CassandraParameters>,
}

/// How long a load took.
pub(super) struct Spent {
    /// From the start to the end.
    pub(super) wall: Duration,
    pub(super) cpu: Duration,
    pub(super) cancelled: bool,
}

impl Spent {
    /// The part of the plan that was carried out: all of it, if nothing but time could end it.
    fn carried_out(&self, plan: &Plan) -> Duration {
        match plan.end() {
            Some(end) if !self.cancelled && plan.requests_max.is_none() => end,
            end => end.map_or(self.wall, |end| end.min(self.wall)),
        }
    }
}

impl Parameters {
    pub(super) fn of(load: &Load) -> Self {
        let plan = &load.plan;
        Self {
            authority: load.target.authority().into(),
            path: load.target.path(0, 0),
            method: load.target.method.to_string(),
            arrivals: plan.arrivals.kind(),
            rate: plan.arrivals.rate_mean(),
            duration_s: plan.end().map(|end| end.as_secs_f64()),
            requests_max: plan.requests_max,
            timeout_ms: plan.timeout.as_secs_f64() * 1e3,
            objective_ms: plan.objective.map(|objective| objective.as_secs_f64() * 1e3),
            connections_max: load.connections_max,
            queue_max: load.queue_max,
            seed: plan.seed,
            cassandra: None,
        }
    }
}

impl Report {
    /// One sentence when the generator, not the server, was what limited the run.
    pub fn doubt(&self) -> Option<String> {
        let lag_ms = self.send_lag_p99_ms.filter(|lag_ms| *lag_ms > SEND_LAG_MS_MAX)?;
        Some(format!(
            "the generator sent late (send lag p99 {lag_ms:.1} ms, {:.0} % of a core used): \
             latencies include that; service_p99_ms does not (is the machine shared or the rate \
             beyond one core?)",
            self.generator_cpu_share * 100.0
        ))
    }

    fn new(plan: &Plan, due: u64, tally: &Tally, spent: &Spent) -> Self {
        let [other, informational, success, redirection, client_error, server_error] =
            tally.statuses;
        let other = other + informational;
        let counted = |all: Duration| all.saturating_sub(plan.warm_up).as_secs_f64();
        let (wall_s, all_s) = (counted(spent.wall), spent.wall.as_secs_f64());
        let cpu_s = spent.cpu.as_secs_f64();
        let per =
            |count: u64, seconds: f64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        Self {
            policy: plan.policy.clone(),
            seed: plan.seed,
            requests: tally.decided(),
            served: tally.served,
            failed: tally.failed,
            timeouts: tally.timeouts,
            optional: tally.optional,
            missed_share: tally.missed_share(),
            latency: tally.latency.figures(),
            requests_per_cpu_s: per(tally.decided(), cpu_s),
            duration_s: wall_s,
            offered_rate: per(due, counted(spent.carried_out(plan))),
            achieved_rate: per(tally.served, wall_s),
            bytes: tally.bytes,
            statuses: Statuses { success, redirection, client_error, server_error, other },
            mismatches: tally.mismatches,
            mismatch_examples: tally.mismatch_examples.clone(),
            failures: tally.reasons(),
            dropped: tally.dropped,
            unfinished: due - tally.decided(),
            cancelled: spent.cancelled,
            connections_opened: tally.connections_opened,
            send_lag_p50_ms: tally.send_lag.quantile_ms(0.5),
            send_lag_p99_ms: tally.send_lag.quantile_ms(0.99),
            service_p50_ms: tally.service.quantile_ms(0.5),
            service_p99_ms: tally.service.quantile_ms(0.99),
            generator_cpu_share: if all_s > 0.0 { cpu_s / all_s } else { 0.0 },
            operations: Vec::new(),
        }
    }
}

impl Latencies {
    /// What there is to say of them.
    pub fn figures(&self) -> LatencyFigures {
        LatencyFigures {
            mean_ms: self.mean_ms(),
            p50_ms: self.quantile_ms(0.5),
            p95_ms: self.quantile_ms(0.95),
            p99_ms: self.quantile_ms(0.99),
            p999_ms: self.quantile_ms(0.999),
            max_ms: self.max_ms(),
        }
    }
}

impl OperationReport {
    pub(super) fn new(operation: &'static str, tally: &Tally) -> Self {
        Self {
            operation,
            requests: tally.decided(),
            served: tally.served,
            failed: tally.failed,
            timeouts: tally.timeouts,
            latency: tally.latency.figures(),
        }
    }
}

impl Outcome {
    pub(super) fn new(plan: &Plan, due: u64, tally: Tally, spent: &Spent) -> Self {
        let report = Report::new(plan, due, &tally, spent);
        let Tally { latency, service, send_lag, .. } = tally;
        Self { report, latency, service, send_lag }
    }
}
