//! Who may change something: programs and our own page.
//!
//! On the loopback it is done without a password, so a web page in a browser of this machine must
//! not reach it: the body must be declared as JSON, for which a browser asks permission of whoever
//! serves the page's requests (a preflight, which gets none here), and what a browser says of the
//! page's origin must not be another one.

use evenkeel_http::{FieldValue, Fields};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderName, ORIGIN};
use http::uri::Authority;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses what a page of another origin may have sent.
///
/// # Errors
/// The status and words of the refusal.
pub(super) fn check(
    headers: &Fields,
    is_own_host: impl Fn(&Authority) -> bool,
) -> Result<(), (StatusCode, String)> {
    let site = headers.get(SEC_FETCH_SITE).map(FieldValue::as_bytes);
    let is_own_page = site.is_none_or(|site| matches!(site, b"same-origin" | b"none"));
    let is_own_origin = headers.get_all(ORIGIN).all(|origin| {
        let host = origin.to_str().and_then(|origin| origin.split_once("://"));
        let host = host.and_then(|(_, host)| host.parse::<Authority>().ok());
        host.is_some_and(|host| is_own_host(&host))
    });
    if !is_own_page || !is_own_origin {
        let words = "a page of another origin sent this, expected the dashboard or a program\n";
        return Err((StatusCode::FORBIDDEN, words.to_owned()));
    }
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], FieldValue::as_bytes);
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if !essence.eq_ignore_ascii_case(b"application/json") {
        let words = "a request without Content-Type: application/json, which is needed: \
                     pages of others cannot send it\n";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, words.to_owned()));
    }
    Ok(())
}
