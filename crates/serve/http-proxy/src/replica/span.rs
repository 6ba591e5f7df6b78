//! A request at an agent as spans: how long it waited here, what the application took, and whether
//! it was to leave anything out.
//!
//! The trace is that of the proxy's attempt; what goes to the application is an attempt of the
//! agent. Without `[traces]` the proxy's `traceparent` passes as it came.

use std::time::SystemTime;

use evenkeel_core::Instant;
use evenkeel_http::{Body, Client, End, FieldValue, Fields, Request, Response, SendError};
use evenkeel_proxy::requests::context::Ids;
use evenkeel_proxy::requests::record::{
    AttemptEnd, Place, Remarks, RequestEnd, RequestRecord, Try, Why, micros,
};
use evenkeel_proxy::requests::traces::{Facts, Finished, HttpFacts, Traces};
use evenkeel_runtime::clock::Clock;
use evenkeel_settings::address::ServerAddress;
use http::StatusCode;
use http::header::HOST;
use http_body::Body as _;

use crate::access::http_facts;
use crate::context::Trace;

/// The application, as a record knows it.
const APP: Place = Place { datacenter: 0, slot: 0, generation: 0 };

/// A request on its way through an agent. It is told of when it is dropped.
pub(super) struct AgentSpan {
    traces: Traces,
    clock: Clock,
    record: RequestRecord,
    trace: Trace,
    facts: Facts,
    app: (ServerAddress, bool),
}

impl AgentSpan {
    /// Of a request as it came, for an application, which may be spoken to in TLS.
    pub(super) fn begin(
        (traces, ids, clock): (&Traces, &Ids, Clock),
        request: &mut Request<Body>,
        (client, is_https): (&Client, bool),
        app: (ServerAddress, bool),
    ) -> Box<Self> {
        let trace = Trace::join(request.headers_mut(), ids, Some(traces));
        let host = request.headers().get(HOST).and_then(FieldValue::to_str);
        let facts = Facts::Http(HttpFacts {
            host: host.map(str::to_owned),
            client: client.address.ip().to_canonical().to_string(),
            peer: client.address,
            is_https,
            ..http_facts(request.method(), request.uri(), request.version())
        });
        let mut record = RequestRecord::new(clock.now(), 0);
        record.trace_id = trace.id;
        if trace.is_sampled() {
            record.remarks.add(Remarks::SAMPLED);
        }
        Box::new(Self { traces: traces.clone(), clock, record, trace, facts, app })
    }

    /// It goes to the application, which is told whose child it is; perhaps without some content.
    pub(super) fn sent(&mut self, now: Instant, headers: &mut Fields, is_reduced: bool) {
        self.record.tries[0] = Try {
            place: APP,
            why: Why::First,
            end: AttemptEnd::Pending,
            sent_us: micros(now.since(self.record.began)),
            ended_us: u32::MAX,
            cost: f32::NAN,
        };
        self.record.attempts = 1;
        if is_reduced {
            self.record.remarks.add(Remarks::DIMMED);
        }
        self.trace.mark(headers);
    }

    /// The head of the answer is here.
    pub(super) fn answered(&mut self, now: Instant, response: &Response<Body>) {
        let record = &mut self.record;
        (record.answered_by, record.head_us) = (0, micros(now.since(record.began)));
        record.bytes = response.body().size_hint().exact().unwrap_or(u64::MAX);
        record.status = response.status().as_u16();
        record.tries[0].end = match response.status() {
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => AttemptEnd::Unavailable,
            status if status.is_server_error() => AttemptEnd::ErrorReply,
            _ => AttemptEnd::Answered,
        };
    }

    /// There is no answer of the application.
    pub(super) fn failed(&mut self, now: Instant, error: Option<&SendError>) {
        let (attempt, end) = match error {
            None => (AttemptEnd::TimedOut, RequestEnd::TimedOut),
            Some(error) if error.was_sent() => (AttemptEnd::Broken, RequestEnd::Broken),
            Some(_) => (AttemptEnd::Unsent, RequestEnd::Unsent),
        };
        let record = &mut self.record;
        (record.tries[0].end, record.end) = (attempt, end);
        record.tries[0].ended_us = micros(now.since(record.began));
        record.status = error.map_or(StatusCode::GATEWAY_TIMEOUT, SendError::status).as_u16();
    }

    /// It did not come to the application.
    pub(super) fn refused(&mut self) {
        self.record.end = RequestEnd::QueueFull;
        self.record.status = StatusCode::SERVICE_UNAVAILABLE.as_u16();
    }

    /// The answer came to its end.
    pub(super) fn ended(mut self: Box<Self>, end: End) {
        self.record.end = match end {
            End::Complete | End::GrpcStatus(_) => RequestEnd::Complete,
            End::Broken => RequestEnd::BodyBroke,
            End::Abandoned => RequestEnd::ClientGone,
        };
    }
}

impl Drop for AgentSpan {
    fn drop(&mut self) {
        let record = &mut self.record;
        record.total_us = micros(self.clock.now().since(record.began));
        if record.end.is_failure() {
            record.remarks.add(Remarks::FAILED);
        }
        if !self.traces.wants(record) {
            return;
        }
        self.traces.push(Box::new(Finished {
            record: *record,
            ended_at: SystemTime::now(),
            context: self.trace.context,
            upstream: "agent".to_owned(),
            policy: String::new(),
            is_upstream_tls: self.app.1,
            facts: self.facts.clone(),
            datacenters: Vec::new(),
            replicas: vec![(APP, self.app.0)],
        }));
    }
}
