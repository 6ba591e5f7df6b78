//! gRPC as far as a proxy must know it: how a call ended, how long it may take, and how to refuse
//! one.
//!
//! Over HTTP every gRPC call is a 200; its outcome is the `grpc-status` at its end, in trailers or,
//! where there is nothing else to say, in the head.

use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::body::Body;
use super::fields::Fields;
use super::head::is_refusal;
use super::message::Response;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// What a status that is none means.
const UNKNOWN: u32 = 2;
const DEADLINE_EXCEEDED: u32 = 4;
const RESOURCE_EXHAUSTED: u32 = 8;
const PERMISSION_DENIED: u32 = 7;
const UNAUTHENTICATED: u32 = 16;
const UNIMPLEMENTED: u32 = 12;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;
const DATA_LOSS: u32 = 15;

/// Whether this is the head of a gRPC message, in either direction.
pub fn is_grpc(headers: &Fields) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE) else { return false };
    let Some(rest) = kind.as_bytes().strip_prefix(b"application/grpc") else { return false };
    matches!(rest.first(), None | Some(b'+' | b';')) // not grpc-web
}

/// The `grpc-status` in a head.
pub fn status_in(head: &Fields) -> Option<u32> {
    Some(status_in_words(head.get(GRPC_STATUS)?.as_bytes()))
}

/// The same in trailers.
pub(crate) fn status_in_trailers(trailers: &HeaderMap) -> Option<u32> {
    Some(status_in_words(trailers.get(GRPC_STATUS)?.as_bytes()))
}

fn status_in_words(status: &[u8]) -> u32 {
    str::from_utf8(status).ok().and_then(|status| status.parse().ok()).unwrap_or(UNKNOWN)
}

/// Whether a status says that the replica cannot serve now: another may.
pub fn is_unavailable(status: u32) -> bool {
    status == UNAVAILABLE
}

/// Whether a status speaks against the replica; others are about the request.
pub fn is_failure(status: u32) -> bool {
    matches!(status, DEADLINE_EXCEEDED | INTERNAL | UNAVAILABLE | DATA_LOSS)
}

/// How long the client waits for all of the answer, if it says that and it can be read.
pub fn timeout(headers: &Fields) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if number.len() > 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3_600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// A [refusal](super::head::Refusal) of ours in the form that a client of gRPC understands: a 200
/// that is all trailers. What a replica answered stays as it is.
pub fn understood(refused: Response<Body>) -> Response<Body> {
    if !is_refusal(&refused) {
        return refused;
    }
    let status = status_of(refused.status());
    let words = refused.body().text().unwrap_or_default();
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, &HeaderValue::from_static("application/grpc"));
    headers.insert(GRPC_STATUS, &HeaderValue::from(status));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(words.trim_end())) {
        headers.insert(GRPC_MESSAGE, &message);
    }
    response
}

/// As clients of gRPC read the status of a server that knows no gRPC, and where we know more, that.
fn status_of(status: StatusCode) -> u32 {
    match status {
        StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::TOO_MANY_REQUESTS => UNAVAILABLE,
        StatusCode::UNAUTHORIZED => UNAUTHENTICATED,
        StatusCode::FORBIDDEN => PERMISSION_DENIED,
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => DEADLINE_EXCEEDED,
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            RESOURCE_EXHAUSTED
        }
        StatusCode::NOT_IMPLEMENTED | StatusCode::NOT_FOUND => UNIMPLEMENTED,
        StatusCode::BAD_REQUEST | StatusCode::LOOP_DETECTED => INTERNAL,
        _ => UNKNOWN,
    }
}

fn percent_encoded(words: &str) -> String {
    let mut encoded = String::with_capacity(words.len());
    for byte in words.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Refusal;

    fn with(name: HeaderName, value: &str) -> Fields {
        Fields::from_iter([(name, HeaderValue::from_bytes(value.as_bytes()).unwrap())])
    }

    #[test]
    fn what_is_grpc() {
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            assert!(is_grpc(&with(CONTENT_TYPE, kind)), "{kind}");
        }
        for kind in ["application/grpc-web", "application/json", "", "application/grp"] {
            assert!(!is_grpc(&with(CONTENT_TYPE, kind)), "{kind}");
        }
        assert!(!is_grpc(&Fields::new()));
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        let read = |text| timeout(&with(GRPC_TIMEOUT, text));
        assert_eq!(read("1H"), Some(Duration::from_secs(3_600)));
        assert_eq!(read("2M"), Some(Duration::from_secs(120)));
        assert_eq!(read("30S"), Some(Duration::from_secs(30)));
        assert_eq!(read("99999999m"), Some(Duration::from_millis(99_999_999)));
        assert_eq!(read("5u"), Some(Duration::from_micros(5)));
        assert_eq!(read("7n"), Some(Duration::from_nanos(7)));
        for wrong in ["", "S", "1", "-1S", "1s", "123456789S", "1.5S", "+1S", "1 S", "\u{e9}"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn failures_are_the_replica_s_and_nothing_else() {
        let failures: Vec<u32> = (0..20).filter(|status| is_failure(*status)).collect();
        assert_eq!(failures, [4, 13, 14, 15]);
        assert_eq!(status_in(&with(GRPC_STATUS, "14")), Some(14));
        assert_eq!(status_in(&with(GRPC_STATUS, "well")), Some(UNKNOWN));
        assert_eq!(status_in(&Fields::new()), None);
    }

    #[test]
    fn a_refusal_is_all_trailers() {
        let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "no 100 % of it");
        let response = understood(refusal.into_response());
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(status_in(response.headers()), Some(UNAVAILABLE));
        assert_eq!(response.headers().get(GRPC_MESSAGE).unwrap(), "no 100 %25 of it");
        assert!(is_grpc(response.headers()));
        let mut of_a_replica = Response::new(Body::full("no"));
        *of_a_replica.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(understood(of_a_replica).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
