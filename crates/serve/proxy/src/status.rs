//! How every upstream and replica stands, for `/api/v1/status`.
//!
//! Every key carries its unit. `null` means that nobody knows: a quantile too few requests back, a
//! queue that the replica has not reported, the cost under a policy that does not rank.

use std::time::{Duration, Instant};

use evenkeel_core::Health;
use evenkeel_core::discovery::AnswerCounts;
use evenkeel_core::request::redundancy::HedgeStats;
use evenkeel_core::time::millis;
use serde::Serialize;

use super::series::{Latency, Point, ReplicaPoint, Series, rounded, seconds};
use super::view::{ReplicaView, View};
use crate::upstream_state::SourceState;

/// One upstream.
#[derive(Serialize)]
pub struct UpstreamStatus<'a> {
    name: &'a str,
    policy: &'a str,
    /// Threads with a dispatcher of their own that have reported.
    workers: usize,
    is_ready: bool,
    /// Requests waiting for a sending rate.
    held: usize,
    /// The newest point of the series; `null` in the first second.
    now: Option<&'a Point>,
    /// Since the process began.
    total: Total,
    /// How second copies stand; `null` where none are sent.
    hedge: Option<Hedge>,
    replicas: Vec<Replica>,
    /// Names, services and files that tell of replicas, and names that these tell of.
    sources: Vec<Source>,
    series: Columns,
}

#[derive(Serialize)]
struct Source {
    name: String,
    /// `well`, `failing`, `empty`, `gone`; `unknown` before the first answer.
    standing: &'static str,
    /// Since the last whole answer.
    age_s: Option<f64>,
    /// Replicas or names that it tells of, those included that stay while it fails.
    replicas: usize,
    answers: Answers,
    /// Why the last answer that was not whole was not; `null` while all were.
    last_error: Option<String>,
    /// How long ago that was.
    last_error_age_s: Option<f64>,
}

/// Since the source is known.
#[derive(Serialize)]
struct Answers {
    whole: u64,
    partial: u64,
    empty: u64,
    failed: u64,
}

#[derive(Serialize)]
struct Hedge {
    /// After which a copy leaves; `null` while none does.
    delay_ms: Option<f64>,
    /// Whether copies are kept back because of load.
    is_gated: bool,
    /// Whether copies are kept back because they are as late as the requests they should save.
    is_futile: bool,
    /// Utilisation by first copies; `null` while unknown, and where hedges follow a quantile.
    utilisation: Option<f64>,
    /// Misses of the objective that a copy is foretold to avoid; `null` where there is none.
    worth: Option<f64>,
    /// The share of slowness that copies certainly share with their first.
    shared: f64,
    /// Copies kept back since the process began, by reason.
    kept_by_load: u64,
    kept_as_futile: u64,
    kept_for_comparison: u64,
}

#[derive(Serialize)]
struct Total {
    requests: u64,
    answered: u64,
    refused: u64,
    abandoned: u64,
    held: u64,
    retries: u64,
    rescues: u64,
    retries_denied: u64,
    hedges: u64,
    hedges_won: u64,
    hedges_denied: u64,
    moves: u64,
    /// Answers that said they had all their optional content.
    answers_full: u64,
    /// Answers that said something was left out.
    answers_reduced: u64,
    #[serde(flatten)]
    latency: Latency,
}

#[derive(Serialize)]
struct Replica {
    address: String,
    health: &'static str,
    /// Whether a worker has ejected it for failing requests.
    is_ejected: bool,
    /// Whether it owes a worker replies and sends none.
    is_silent: bool,
    in_flight: u32,
    connections: usize,
    #[serde(flatten)]
    now: ReplicaPoint,
    /// Requests waiting there, by its own last report.
    queue_reported: Option<u32>,
    /// Service time without waiting, by its own last report.
    service_reported_ms: Option<f64>,
    /// Share of optional content it serves, by its own last word.
    dimmer: Option<f64>,
    /// What the policy thinks a request to it costs, in the policy's unit; lower is better.
    cost: Option<f64>,
    /// Since the process began.
    total: ReplicaTotal,
}

#[derive(Serialize)]
struct ReplicaTotal {
    attempts: u64,
    succeeded: u64,
    failed: u64,
    /// Of those that failed.
    broken_bodies: u64,
    cancelled: u64,
    ejections: u64,
}

/// The series by column, oldest first: much shorter than an object per point.
#[derive(Serialize)]
struct Columns {
    /// How long ago each point was.
    ago_s: Vec<f64>,
    requests_per_s: Vec<f64>,
    refused_per_s: Vec<f64>,
    failure_share: Vec<Option<f64>>,
    p50_ms: Vec<Option<f64>>,
    p95_ms: Vec<Option<f64>>,
    p99_ms: Vec<Option<f64>>,
    p999_ms: Vec<Option<f64>>,
    /// By slot, as in `replicas`.
    replicas: Vec<ReplicaColumns>,
}

#[derive(Serialize)]
struct ReplicaColumns {
    share: Vec<Option<f64>>,
}

impl<'a> UpstreamStatus<'a> {
    /// Of what is seen now, and what was seen lately.
    pub fn new(view: &'a View<'_>, series: &'a Series, now: Instant) -> Self {
        let replica = |(slot, replica): (usize, ReplicaView)| {
            let point = series.now().and_then(|point| point.replicas.get(slot));
            Replica::new(replica, point.copied().unwrap_or_default())
        };
        Self {
            name: &view.config.name,
            policy: view.config.policy.text(),
            workers: view.stats.workers.len(),
            is_ready: view.is_ready(),
            held: view.stats.held(),
            now: series.now(),
            total: Total::of(view),
            hedge: view.stats.hedge().map(Hedge::new),
            replicas: view.replicas().into_iter().enumerate().map(replica).collect(),
            sources: view.sources.iter().map(Source::new).collect(),
            series: Columns::of(series, view.home.len(), now),
        }
    }
}

impl Hedge {
    fn new(stats: HedgeStats) -> Self {
        let share = |share: f64| rounded(share, 1_000.0);
        Self {
            delay_ms: stats.delay.map(millis),
            is_gated: stats.is_gated,
            is_futile: stats.is_futile,
            utilisation: stats.utilisation.map(share),
            worth: stats.worth.map(share),
            shared: share(stats.shared),
            kept_by_load: stats.kept.by_load,
            kept_as_futile: stats.kept.as_futile,
            kept_for_comparison: stats.kept.for_comparison,
        }
    }
}

impl Total {
    fn of(view: &View<'_>) -> Self {
        let total = view.total();
        Self {
            requests: total.opened,
            answered: total.answered,
            refused: total.refused,
            abandoned: total.abandoned,
            held: total.held,
            retries: total.retries,
            rescues: total.rescues,
            retries_denied: total.retries_denied,
            hedges: total.hedges,
            hedges_won: total.hedges_won,
            hedges_denied: total.hedges_denied,
            moves: total.moves,
            answers_full: view.stats.seen.full,
            answers_reduced: view.stats.seen.reduced,
            latency: Latency::of(total.latency.as_ref()),
        }
    }
}

impl Replica {
    fn new(view: ReplicaView, now: ReplicaPoint) -> Self {
        let is_silent = view.is_silent();
        let ReplicaView { address, health, state, counted } = view;
        Self {
            address,
            health: health_word(health),
            is_ejected: state.is_ejected,
            is_silent,
            in_flight: state.in_flight,
            connections: state.connections,
            now,
            queue_reported: state.queue_length,
            service_reported_ms: state.service_time.map(millis),
            dimmer: state.dimmer.map(|(dimmer, _)| rounded(dimmer.value(), 1_000.0)),
            cost: state.cost,
            total: ReplicaTotal {
                attempts: counted.sent,
                succeeded: counted.succeeded,
                failed: counted.failed,
                broken_bodies: counted.broken_bodies,
                cancelled: counted.cancelled,
                ejections: counted.ejections,
            },
        }
    }
}

impl Source {
    fn new(state: &SourceState) -> Self {
        let AnswerCounts { whole, partial, empty, failed } = state.counts;
        let age = |age: Option<Duration>| age.map(|it| rounded(it.as_secs_f64(), 10.0));
        Self {
            name: state.name.clone(),
            standing: state.standing.name(),
            age_s: age(state.age),
            replicas: state.replicas,
            answers: Answers { whole, partial, empty, failed },
            last_error: state.last_error.as_ref().map(|(why, _)| why.clone()),
            last_error_age_s: age(state.last_error.as_ref().map(|(_, age)| *age)),
        }
    }
}

impl Columns {
    fn of(series: &Series, replicas: usize, now: Instant) -> Self {
        let points = series.points();
        let column = |value: fn(&Point) -> f64| points.iter().map(value).collect();
        let sparse = |value: fn(&Point) -> Option<f64>| points.iter().map(value).collect();
        let age = |point: &Point| seconds(now.saturating_duration_since(point.at));
        let replica = |slot: usize| {
            let share = |point: &Point| {
                let share = point.replicas.get(slot)?.share?;
                Some(rounded(f64::from(share), 10_000.0))
            };
            ReplicaColumns { share: points.iter().map(share).collect() }
        };
        Self {
            ago_s: points.iter().map(age).collect(),
            requests_per_s: column(|point| point.requests_per_s),
            refused_per_s: column(|point| point.refused_per_s),
            failure_share: sparse(|point| point.failure_share),
            p50_ms: sparse(|point| point.latency.p50_ms),
            p95_ms: sparse(|point| point.latency.p95_ms),
            p99_ms: sparse(|point| point.latency.p99_ms),
            p999_ms: sparse(|point| point.latency.p999_ms),
            replicas: (0..replicas).map(replica).collect(),
        }
    }
}

const fn health_word(health: Health) -> &'static str {
    match health {
        Health::Up => "up",
        Health::Down => "down",
        Health::Draining => "draining",
    }
}
