//! What a request that has ended is told of: a line of the access log (JSON with OpenTelemetry's
//! field names, and ours), and spans of a trace.

use evenkeel_settings::address::ServerAddress;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::SystemTime;

use http::header::{HOST, HeaderValue};
use http::{Method, Uri, Version};
use serde::Serialize;

use crate::context::RequestId;
use crate::route::Route;
use crate::routes::Target;
use evenkeel_http::{Body, Client, FieldValue, Request};
use evenkeel_proxy::requests::access::{Access, timestamp};
use evenkeel_proxy::requests::record::{AttemptEnd, Place, RequestEnd, RequestRecord};
use evenkeel_proxy::requests::recorder::AtEnd;
use evenkeel_proxy::requests::traces::{Facts, Finished, HttpFacts, SpanContext, Traces};

/// Characters of a path and a host that wait for the exporter of traces; the rest is cut off.
const PATH_MAX: usize = 1_024;
const HOST_MAX: usize = 255;

/// What is told of a request that its record does not know.
pub(crate) struct Entry {
    access: Option<Access>,
    traces: Option<Traces>,
    route: Rc<Route>,
    method: Method,
    uri: Uri,
    version: Version,
    is_https: bool,
    host: Option<HeaderValue>,
    peer: SocketAddr,
    /// The user, where a proxy that is believed names it.
    client: Option<IpAddr>,
    id: RequestId,
    context: SpanContext,
}

impl Entry {
    /// Of a request as it came.
    pub(crate) fn of(
        (access, traces): (Option<Access>, Option<Traces>),
        target: &Target,
        request: &Request<Body>,
        (client, id, context): (&Client, &RequestId, SpanContext),
    ) -> Self {
        let forwarding = &target.policy.forwarding;
        Self {
            access,
            traces,
            route: Rc::clone(&target.route),
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            is_https: forwarding.is_https,
            host: request.headers().get(HOST).map(FieldValue::to_value),
            peer: client.address,
            client: forwarding.user(request.headers(), client.address.ip()),
            id: id.clone(),
            context,
        }
    }

    fn client(&self) -> String {
        self.client.unwrap_or(self.peer.ip()).to_canonical().to_string()
    }

    fn replica(&self, place: Place) -> Option<ServerAddress> {
        self.route.address(usize::from(place.datacenter), usize::from(place.slot))
    }

    fn finished(&self, record: &RequestRecord) -> Finished {
        let config = &self.route.config;
        let tried = record.tries().iter().map(|it| it.place);
        let places = tried.chain(record.candidates().iter().map(|it| record.place(it)));
        let home = (!config.sites.is_empty()).then(|| "home".to_owned());
        Finished {
            record: *record,
            ended_at: SystemTime::now(),
            context: self.context,
            upstream: config.name.clone(),
            policy: config.policy.text().to_owned(),
            is_upstream_tls: config.tls.is_some(),
            facts: Facts::Http(HttpFacts {
                host: text(self.host.as_ref()).map(|host| beginning(&host, HOST_MAX)),
                client: self.client(),
                peer: self.peer,
                is_https: self.is_https,
                request_id: String::from_utf8_lossy(self.id.as_bytes()).into_owned(),
                ..http_facts(&self.method, &self.uri, self.version)
            }),
            datacenters: home
                .into_iter()
                .chain(config.sites.iter().map(|it| it.name.clone()))
                .collect(),
            replicas: places.filter_map(|place| Some((place, self.replica(place)?))).collect(),
        }
    }

    fn line(&self, record: &RequestRecord) -> String {
        let answered = record.tries().get(usize::from(record.answered_by));
        let last = answered.or(record.tries().last());
        let known = |us: u32| (us != u32::MAX).then_some(us);
        let head_at = known(record.head_us);
        let line = Line {
            timestamp: timestamp(SystemTime::now()),
            method: method(&self.method),
            path: self.uri.path(),
            status: (record.status != 0).then_some(record.status),
            response_bytes: (record.bytes != u64::MAX).then_some(record.bytes),
            route: &self.route.config.name,
            server: text(self.host.as_ref()),
            client: self.client(),
            version: version(self.version),
            error: error(record),
            replica: last.and_then(|it| self.replica(it.place)).map(|it| it.to_string()),
            attempts: record.attempts,
            wait_us: record.tries().first().map(|first| first.sent_us),
            connect_us: answered.map(|_| record.connect_us),
            head_us: head_at.zip(answered).map(|(head, it)| head.saturating_sub(it.sent_us)),
            body_us: head_at.map(|head| record.total_us.saturating_sub(head)),
            total_us: record.total_us,
            end: record.end.name(),
            trace_id: (record.trace_id != 0).then(|| format!("{:032x}", record.trace_id)),
            request_id: String::from_utf8_lossy(self.id.as_bytes()).into_owned(),
        };
        serde_json::to_string(&line).expect("numbers and strings are always JSON")
    }
}

impl AtEnd for Entry {
    fn ended(&mut self, record: &RequestRecord) {
        if let Some(access) = self.access.as_ref().filter(|access| access.wants(record)) {
            access.write(self.line(record));
        }
        if let Some(traces) = self.traces.as_ref().filter(|traces| traces.wants(record)) {
            traces.push(Box::new(self.finished(record)));
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    #[serde(rename = "http.request.method")]
    method: &'a str,
    /// Without the query, which may have secrets.
    #[serde(rename = "url.path")]
    path: &'a str,
    #[serde(rename = "http.response.status_code")]
    status: Option<u16>,
    #[serde(rename = "http.response.body.size", skip_serializing_if = "Option::is_none")]
    response_bytes: Option<u64>,
    #[serde(rename = "http.route")]
    route: &'a str,
    #[serde(rename = "server.address", skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(rename = "client.address")]
    client: String,
    #[serde(rename = "network.protocol.version")]
    version: &'a str,
    #[serde(rename = "error.type", skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    replica: Option<String>,
    attempts: u8,
    wait_us: Option<u32>,
    connect_us: Option<u32>,
    head_us: Option<u32>,
    body_us: Option<u32>,
    total_us: u32,
    end: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    request_id: String,
}

/// What a request line says.
pub(crate) fn http_facts(method: &Method, uri: &Uri, version: Version) -> HttpFacts {
    HttpFacts {
        method: method.as_str().to_owned(),
        path: beginning(uri.path(), PATH_MAX),
        is_https: false,
        host: None,
        client: String::new(),
        peer: SocketAddr::from(([0; 4], 0)),
        version: self::version(version),
        request_id: String::new(),
    }
}

/// Methods that nobody has heard of are one, as OpenTelemetry wants: a client could make up any
/// number of them.
fn method(method: &Method) -> &str {
    match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE"
        | "PATCH" | "QUERY") => known,
        _ => "_OTHER",
    }
}

const fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    }
}

/// What failed: how it ended, or the status where a replica answered with an error.
fn error(record: &RequestRecord) -> Option<String> {
    let answered = record.tries().get(usize::from(record.answered_by)).map(|it| it.end);
    let is_error = matches!(answered, Some(AttemptEnd::ErrorReply | AttemptEnd::Unavailable));
    match record.end {
        end if end.is_failure() => Some(end.name().to_owned()),
        RequestEnd::ClientGone => Some(record.end.name().to_owned()),
        _ if is_error || record.status >= 500 => Some(record.status.to_string()),
        _ => None,
    }
}

fn text(value: Option<&HeaderValue>) -> Option<String> {
    value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn beginning(text: &str, characters_max: usize) -> String {
    text.chars().take(characters_max).collect()
}
