//! Records as JSON, for `/api/v1/requests`. Every key carries its unit; `null` means that nobody
//! knows, or that the policy does not rank.

use evenkeel_core::request::decision::Candidate;
use serde::Serialize;

use super::record::{Remarks, RequestRecord, Try};
use super::words::{self, Names};

/// One request.
#[derive(Serialize)]
pub struct ShownRequest {
    /// `x-request-id`; empty where the protocol has none.
    id: String,
    trace_id: Option<String>,
    at_unix_ms: u64,
    upstream: String,
    /// Method and path.
    request: String,
    status: Option<u16>,
    end: &'static str,
    /// Why it is kept for longer.
    remarks: Vec<&'static str>,
    total_ms: f64,
    head_ms: Option<f64>,
    response_bytes: Option<u64>,
    /// All of it in a sentence.
    words: String,
    cause: &'static str,
    members: u16,
    candidates: Vec<ShownCandidate>,
    attempts: Vec<ShownAttempt>,
    attempts_total: u8,
    hedge: ShownHedge,
    was_held: bool,
    is_retry_denied: bool,
}

#[derive(Serialize)]
struct ShownCandidate {
    replica: String,
    cost: Option<f32>,
    in_flight: u16,
    latency_ms: Option<f64>,
    state: &'static str,
    dimmer: Option<f32>,
}

#[derive(Serialize)]
struct ShownAttempt {
    replica: String,
    datacenter: Option<String>,
    why: &'static str,
    end: &'static str,
    sent_ms: f64,
    ended_ms: Option<f64>,
    cost: Option<f32>,
}

#[derive(Serialize)]
struct ShownHedge {
    state: &'static str,
    delay_ms: Option<f64>,
    quantile: Option<f64>,
}

impl ShownRequest {
    /// A record of an upstream, at this time of day.
    pub fn new(
        record: &RequestRecord,
        upstream: String,
        at_unix_ms: u64,
        names: &dyn Names,
    ) -> Self {
        let remarks = Remarks::NAMED.into_iter().filter(|(remark, _)| record.remarks.has(*remark));
        let candidate = |it: &Candidate| ShownCandidate {
            replica: names.replica(record.place(it)),
            cost: known(it.cost),
            in_flight: it.in_flight,
            latency_ms: ms(it.latency_us()),
            state: it.standing.name(),
            dimmer: (it.dimmer != u8::MAX).then(|| f32::from(it.dimmer) / 100.0),
        };
        let attempt = |it: &Try| ShownAttempt {
            replica: names.replica(it.place),
            datacenter: (it.place.datacenter > 0).then(|| names.datacenter(it.place.datacenter)),
            why: it.why.name(),
            end: it.end.name(),
            sent_ms: f64::from(it.sent_us) / 1_000.0,
            ended_ms: ms(it.ended_us),
            cost: known(it.cost),
        };
        Self {
            id: record.id.text(),
            trace_id: (record.trace_id != 0).then(|| format!("{:032x}", record.trace_id)),
            at_unix_ms,
            upstream,
            request: record.line.text(),
            status: (record.status != 0).then_some(record.status),
            end: record.end.name(),
            remarks: remarks.map(|(_, name)| name).collect(),
            total_ms: f64::from(record.total_us) / 1_000.0,
            head_ms: ms(record.head_us),
            response_bytes: (record.bytes != u64::MAX).then_some(record.bytes),
            words: words::explain(record, names),
            cause: record.cause().name(),
            members: record.members,
            candidates: record.candidates().iter().map(candidate).collect(),
            attempts: record.tries().iter().map(attempt).collect(),
            attempts_total: record.attempts,
            hedge: ShownHedge {
                state: record.hedge.name(),
                delay_ms: ms(record.hedge_delay_us),
                quantile: (record.hedge_quantile > 0)
                    .then(|| f64::from(record.hedge_quantile) / 1_000.0),
            },
            was_held: record.was_held,
            is_retry_denied: record.is_retry_denied,
        }
    }
}

fn ms(us: u32) -> Option<f64> {
    (us != u32::MAX).then(|| f64::from(us) / 1_000.0)
}

fn known(cost: f32) -> Option<f32> {
    cost.is_finite().then_some(cost)
}
