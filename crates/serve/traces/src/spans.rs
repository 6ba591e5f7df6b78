//! A request that has ended as spans, with the names of OpenTelemetry's semantic conventions for
//! HTTP and for databases, and `evenkeel.*` for why it went as it did.

use std::time::{Duration, SystemTime};

use evenkeel_core::request::decision::Candidate;
use evenkeel_core::request::decision::HedgeFate;
use evenkeel_proxy::requests::record::{AttemptEnd, Remarks, RequestEnd, RequestRecord, Try, Why};
use evenkeel_proxy::requests::traces::{Facts, Finished, HttpFacts, StoreFacts};
use evenkeel_proxy::requests::words::{Names as _, explain};
use evenkeel_settings::address::ServerAddress;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};

/// The version of the conventions.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";
/// `SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK` and `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`.
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// What a collector is sent.
pub(crate) fn message(service: &str, spans: Vec<Span>) -> ExportTraceServiceRequest {
    let mut attributes = Attributes::default();
    attributes.text("service.name", service);
    attributes.text("service.version", env!("CARGO_PKG_VERSION"));
    attributes.number("process.pid", std::process::id().into());
    let resource = Resource { attributes: attributes.0, ..Resource::default() };
    let scope = InstrumentationScope {
        name: "evenkeel".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let schema_url = SCHEMA.to_owned();
    let of_scope = ScopeSpans { scope: Some(scope), spans, schema_url: schema_url.clone() };
    let of_all =
        ResourceSpans { resource: Some(resource), scope_spans: vec![of_scope], schema_url };
    ExportTraceServiceRequest { resource_spans: vec![of_all] }
}

/// The spans of a request: its own, then one for each attempt.
pub(crate) fn of(finished: &Finished) -> Vec<Span> {
    let mut spans = vec![of_request(finished)];
    let tries = finished.record.tries();
    spans.extend((0..tries.len()).map(|number| of_attempt(finished, number, &tries[number])));
    spans
}

fn of_request(finished: &Finished) -> Span {
    let record = &finished.record;
    let mut attributes = Attributes::default();
    match &finished.facts {
        Facts::Http(http) => attributes.http_request(http, record, &finished.upstream),
        Facts::Store(store) => attributes.store(store),
    }
    let error = request_error(record);
    if let Some(error) = &error {
        attributes.text("error.type", error);
    }
    attributes.text("evenkeel.upstream", &finished.upstream);
    attributes.text("evenkeel.end", record.end.name());
    attributes.text("evenkeel.policy", &finished.policy);
    attributes.text("evenkeel.explained", &explain(record, finished));
    attributes.texts("evenkeel.remarks", remarks(record));
    attributes.number("evenkeel.attempts", record.attempts.into());
    if let Some(first) = record.tries().first() {
        attributes.fraction("evenkeel.wait_ms", f64::from(first.sent_us) / 1_000.0);
    }
    if record.hedge != HedgeFate::None {
        attributes.text("evenkeel.hedge", record.hedge.name());
    }
    if record.hedge_delay_us != u32::MAX {
        attributes.fraction("evenkeel.hedge.delay_ms", f64::from(record.hedge_delay_us) / 1_000.0);
    }
    if !record.candidates().is_empty() {
        attributes.text("evenkeel.cause", record.cause().name());
        attributes.number("evenkeel.members", record.members.into());
        let told = record.candidates().iter().map(|it| candidate(finished, it));
        attributes.texts("evenkeel.candidates", told);
    }
    let parent = finished.context.parent;
    let name = format!("{} {}", operation(&finished.facts), finished.upstream);
    let at = (0, record.total_us);
    let mut span = span(finished, (name, SpanKind::Server), at, attributes);
    span.span_id = finished.context.span.to_be_bytes().to_vec();
    span.parent_span_id = parent.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default();
    span.flags |= KNOWS_REMOTE | if parent.is_some() { IS_REMOTE } else { 0 };
    // What the client did wrong is no error of a server.
    span.status = error.filter(|_| record.end != RequestEnd::ClientGone).map(failed);
    span
}

fn of_attempt(finished: &Finished, number: usize, it: &Try) -> Span {
    let record = &finished.record;
    let has_answered = usize::from(record.answered_by) == number;
    let mut attributes = Attributes::default();
    let replica = finished.replicas.iter().find(|(place, _)| *place == it.place);
    if let Some((_, address)) = replica {
        attributes.server(*address);
    }
    match &finished.facts {
        Facts::Http(http) => {
            attributes.method(http);
            if let Some((_, address)) = replica {
                let (scheme, authority) = (scheme(finished.is_upstream_tls), address.authority());
                attributes.text("url.full", &format!("{scheme}://{authority}{}", http.path));
            }
            attributes.text("url.path", &http.path);
            if has_answered && record.status != 0 {
                attributes.number("http.response.status_code", record.status.into());
            }
            if matches!(it.why, Why::Retry | Why::Moved) {
                attributes.number("http.request.resend_count", number as i64);
            }
        }
        Facts::Store(store) => attributes.store(store),
    }
    if has_answered && record.connect_us > 0 {
        let ms = f64::from(record.connect_us) / 1_000.0;
        attributes.fraction("evenkeel.attempt.connect_ms", ms);
    }
    let error = attempt_error(record, it, has_answered);
    if let Some(error) = &error {
        attributes.text("error.type", error);
    }
    attributes.text("evenkeel.attempt.why", it.why.name());
    attributes.text("evenkeel.attempt.end", it.end.name());
    if it.cost.is_finite() {
        attributes.fraction("evenkeel.attempt.cost", it.cost.into());
    }
    if finished.datacenters.len() > 1 {
        let name = finished.datacenter(it.place.datacenter);
        attributes.text("evenkeel.datacenter", &name);
    }
    let ended_us = match it.ended_us {
        _ if has_answered => record.total_us,
        u32::MAX => record.total_us,
        ended_us => ended_us,
    };
    let operation = operation(&finished.facts);
    let name = format!("{operation} {} {}", finished.upstream, it.why.name());
    let at = (it.sent_us, ended_us);
    let mut span = span(finished, (name, SpanKind::Client), at, attributes);
    span.span_id = finished.context.attempt(number as u8).to_be_bytes().to_vec();
    span.parent_span_id = finished.context.span.to_be_bytes().to_vec();
    span.flags |= KNOWS_REMOTE;
    span.status = error.map(failed);
    span
}

/// A span between two moments, in microseconds after the request came.
fn span(
    finished: &Finished,
    (name, kind): (String, SpanKind),
    (from_us, until_us): (u32, u32),
    attributes: Attributes,
) -> Span {
    let ended = finished.ended_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let began = ended.saturating_sub(Duration::from_micros(finished.record.total_us.into()));
    let at = |us: u32| nanos(began + Duration::from_micros(us.into()));
    Span {
        trace_id: finished.record.trace_id.to_be_bytes().to_vec(),
        name,
        kind: kind.into(),
        start_time_unix_nano: at(from_us),
        end_time_unix_nano: at(until_us.max(from_us)),
        flags: finished.context.flags.into(),
        attributes: attributes.0,
        ..Span::default()
    }
}

fn nanos(since: Duration) -> u64 {
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn failed(message: String) -> Status {
    Status { message, code: StatusCode::Error.into() }
}

const fn scheme(is_tls: bool) -> &'static str {
    if is_tls { "https" } else { "http" }
}

fn operation(facts: &Facts) -> &str {
    match facts {
        Facts::Http(http) => method(http),
        Facts::Store(store) => store.operation,
    }
}

/// Methods that nobody has heard of are one: a client could make up any number of them.
fn method(http: &HttpFacts) -> &str {
    match http.method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE"
        | "PATCH" | "QUERY") => known,
        _ => "_OTHER",
    }
}

fn request_error(record: &RequestRecord) -> Option<String> {
    match record.end {
        end if end.is_failure() || end == RequestEnd::ClientGone => Some(end.name().to_owned()),
        _ if record.status >= 500 => Some(record.status.to_string()),
        _ => None,
    }
}

/// What an attempt failed of. One that lost was no failure.
fn attempt_error(record: &RequestRecord, it: &Try, has_answered: bool) -> Option<String> {
    match it.end {
        AttemptEnd::Answered if has_answered && record.end.is_failure() => {
            Some(record.end.name().to_owned())
        }
        // By the conventions that is an error for who asked, though none of the replica.
        AttemptEnd::Answered if has_answered && record.status >= 400 => {
            Some(record.status.to_string())
        }
        AttemptEnd::Answered | AttemptEnd::Lost | AttemptEnd::Pending => None,
        failed => Some(failed.name().to_owned()),
    }
}

fn remarks(record: &RequestRecord) -> impl Iterator<Item = String> {
    let all = Remarks::NAMED.into_iter().filter(|(remark, _)| record.remarks.has(*remark));
    all.map(|(_, name)| name.to_owned())
}

/// Such as "10.0.0.1:80 cost=8.4 in_flight=6 state=ok".
fn candidate(finished: &Finished, it: &Candidate) -> String {
    let name = finished.replica(finished.record.place(it));
    let cost = if it.cost.is_finite() { format!(" cost={}", it.cost) } else { String::new() };
    format!("{name}{cost} in_flight={} state={}", it.in_flight, it.standing.name())
}

#[derive(Default)]
struct Attributes(Vec<KeyValue>);

impl Attributes {
    fn add(&mut self, key: &str, value: Value) {
        let value = Some(AnyValue { value: Some(value) });
        self.0.push(KeyValue { key: key.to_owned(), value, ..KeyValue::default() });
    }

    /// Nothing where it is empty.
    fn text(&mut self, key: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        self.add(key, Value::StringValue(value.to_owned()));
    }

    fn number(&mut self, key: &str, value: i64) {
        self.add(key, Value::IntValue(value));
    }

    fn fraction(&mut self, key: &str, value: f64) {
        self.add(key, Value::DoubleValue(value));
    }

    fn texts(&mut self, key: &str, values: impl IntoIterator<Item = String>) {
        let value = |text| AnyValue { value: Some(Value::StringValue(text)) };
        let values: Vec<AnyValue> = values.into_iter().map(value).collect();
        if !values.is_empty() {
            self.add(key, Value::ArrayValue(ArrayValue { values }));
        }
    }

    fn method(&mut self, http: &HttpFacts) {
        let known = method(http);
        self.text("http.request.method", known);
        if known != http.method {
            self.text("http.request.method_original", &http.method);
        }
    }

    fn http_request(&mut self, http: &HttpFacts, record: &RequestRecord, route: &str) {
        self.method(http);
        self.text("url.path", &http.path);
        self.text("url.scheme", scheme(http.is_https));
        self.text("http.route", route);
        if let Some(host) = &http.host {
            self.host(host);
        }
        self.text("client.address", &http.client);
        self.text("network.peer.address", &http.peer.ip().to_canonical().to_string());
        self.number("network.peer.port", http.peer.port().into());
        self.text("network.protocol.version", http.version);
        if record.status != 0 {
            self.number("http.response.status_code", record.status.into());
        }
        if record.bytes != u64::MAX {
            let bytes = i64::try_from(record.bytes).unwrap_or(i64::MAX);
            self.number("http.response.body.size", bytes);
        }
        self.text("evenkeel.request_id", &http.request_id);
    }

    fn store(&mut self, store: &StoreFacts) {
        self.text("db.system.name", store.system);
        self.text("db.operation.name", store.operation);
        self.text("db.namespace", store.namespace.as_deref().unwrap_or_default());
        self.add("evenkeel.is_write", Value::BoolValue(store.is_write));
        for (name, value) in &store.further {
            self.text(name, value);
        }
    }

    /// Who was asked. Of a name nobody knows here which of its addresses that was.
    fn server(&mut self, server: ServerAddress) {
        let (host, port) = (server.host(), server.port());
        self.text("server.address", &host);
        port.into_iter().for_each(|port| self.number("server.port", port.into()));
        if matches!(server, ServerAddress::Unix(_)) {
            self.text("network.transport", "unix");
        }
        if !matches!(server, ServerAddress::Name { .. }) {
            self.text("network.peer.address", &host);
            port.into_iter().for_each(|port| self.number("network.peer.port", port.into()));
        }
    }

    /// A `Host` in its parts.
    fn host(&mut self, host: &str) {
        let parts =
            host.rsplit_once(':').filter(|(name, _)| !name.contains(':') || name.ends_with(']'));
        match parts.and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?))) {
            Some((name, port)) => {
                self.text("server.address", name);
                self.number("server.port", port.into());
            }
            None => self.text("server.address", host),
        }
    }
}
