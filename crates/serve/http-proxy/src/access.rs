//! A line of the access log: JSON with OpenTelemetry's field names, and ours.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::SystemTime;

use http::header::{HOST, HeaderValue};
use http::{Method, Request, Uri, Version};
use serde::Serialize;

use crate::route::Route;
use evenkeel_http::{Body, Client};
use evenkeel_proxy::requests::access::{Access, timestamp};
use evenkeel_proxy::requests::record::{AttemptEnd, Place, RequestEnd, RequestRecord};
use evenkeel_proxy::requests::recorder::AtEnd;

/// What a line tells of a request that its record does not.
pub(crate) struct Entry {
    access: Access,
    route: Rc<Route>,
    method: Method,
    uri: Uri,
    version: Version,
    host: Option<HeaderValue>,
    client: SocketAddr,
    id: HeaderValue,
}

impl Entry {
    /// Of a request as it came.
    pub(crate) fn of(
        access: Access,
        route: Rc<Route>,
        request: &Request<Body>,
        (client, id): (&Client, &HeaderValue),
    ) -> Self {
        Self {
            access,
            route,
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            host: request.headers().get(HOST).cloned(),
            client: client.address,
            id: id.clone(),
        }
    }

    fn replica(&self, place: Place) -> Option<String> {
        let address = self.route.address(usize::from(place.datacenter), usize::from(place.slot));
        address.map(|address| address.to_string())
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
            client: self.client.ip().to_canonical().to_string(),
            version: version(self.version),
            error: error(record),
            replica: last.and_then(|it| self.replica(it.place)),
            attempts: record.attempts,
            wait_us: record.tries().first().map(|first| first.sent_us),
            head_us: head_at.zip(answered).map(|(head, it)| head.saturating_sub(it.sent_us)),
            body_us: head_at.map(|head| record.total_us.saturating_sub(head)),
            total_us: record.total_us,
            end: record.end.name(),
            trace_id: format!("{:032x}", record.trace_id),
            request_id: text(Some(&self.id)).unwrap_or_default(),
        };
        serde_json::to_string(&line).expect("numbers and strings are always JSON")
    }
}

impl AtEnd for Entry {
    fn ended(&mut self, record: &RequestRecord) {
        if self.access.wants(record) {
            self.access.write(self.line(record));
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
    head_us: Option<u32>,
    body_us: Option<u32>,
    total_us: u32,
    end: &'a str,
    trace_id: String,
    request_id: String,
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
