//! Decisions to and from headers; what a lean response may say.
//!
//! A lean response is a complete answer, `200`, but not the page that others should see later: it
//! says `no-store` and has no validators, so that no cache keeps it and no `304` revives it. It
//! does not vary by `Brownout-Optional`, since clients do not send it. A `304` is left as it is:
//! what it confirms was stored, so it was full.

use evenkeel_core::dimmer::wire::{Decision, dimmer_text, lets_store};
use evenkeel_core::units::Dimmer;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// Of a request: which optional parts to compute. `?1` all, `?0` none, `?0;comments` only these.
pub const OPTIONAL: HeaderName = HeaderName::from_static("brownout-optional");
/// Of a response: which optional parts it holds, in the same words.
pub const SERVED: HeaderName = HeaderName::from_static("brownout-served");
/// Of a response: the dimmer in force, `0.73`.
pub const DIMMER: HeaderName = HeaderName::from_static("brownout-dimmer");

/// What a header says that should come once.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Said {
    Nothing,
    /// Well-formed.
    Decision(HeaderValue),
    /// More than once, or malformed.
    Unclear,
}

pub(crate) fn said(headers: &HeaderMap, name: &HeaderName) -> Said {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Said::Nothing,
        (Some(value), None) if Decision::parse(value.as_bytes()).is_ok() => {
            Said::Decision(value.clone())
        }
        _ => Said::Unclear,
    }
}

/// A value written by [`evenkeel_core::dimmer::wire`].
pub(crate) fn value(text: std::borrow::Cow<'static, str>) -> HeaderValue {
    match text {
        std::borrow::Cow::Borrowed(text) => HeaderValue::from_static(text),
        std::borrow::Cow::Owned(text) => {
            HeaderValue::try_from(text).expect("names of parts are visible ASCII, checked at start")
        }
    }
}

pub(crate) fn write_dimmer(headers: &mut HeaderMap, dimmer: Dimmer) {
    headers.insert(DIMMER, HeaderValue::from_static(dimmer_text(dimmer)));
}

/// Keeps a lean response out of caches, the browser's included.
pub(crate) fn forbid_storing(headers: &mut HeaderMap) {
    let is_for_storing = |name: &&HeaderName| lets_store(name.as_str());
    let names: Vec<HeaderName> = headers.keys().filter(is_for_storing).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Whether the service failed, so that neither its time nor its work tells anything. gRPC says it
/// beside a status of 200, in the head if it failed before its first message.
pub(crate) fn is_failure(status: StatusCode, headers: &HeaderMap) -> bool {
    status.is_server_error()
        || headers.get("grpc-status").is_some_and(|code| FAILURES.contains(&code.as_bytes()))
}

/// UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and
/// DATA_LOSS: the codes that gRPC's HTTP mapping gives a status of 429 or 5xx.
const FAILURES: [&[u8]; 7] = [b"2", b"4", b"8", b"12", b"13", b"14", b"15"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_status_of_5xx_or_its_like_in_grpc() {
        let failed = |status, code: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.extend(code.map(|code| {
                (HeaderName::from_static("grpc-status"), HeaderValue::from_static(code))
            }));
            is_failure(StatusCode::from_u16(status).unwrap(), &headers)
        };
        assert!(failed(500, None) && failed(503, None) && failed(200, Some("14")));
        assert!(!failed(200, None) && !failed(404, None) && !failed(200, Some("0")));
        assert!(!failed(200, Some("5")), "NOT_FOUND is an answer, as 404 is");
    }
}
