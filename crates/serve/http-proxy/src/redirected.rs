//! Requests between data centres: what tells a request that another site sent.
//!
//! What is sent elsewhere carries [`ORIGIN`], the name of the site it comes from. A proxy that
//! believes it (`forwarded_requests = "trust"`) serves such a request at home and does not count it
//! as demand ([`evenkeel_proxy::site_router`]). A proxy that does not (`"strip"`) removes it.

use evenkeel_http::{FieldValue, Fields};
use http::{HeaderName, HeaderValue};

use crate::config::Edge;
use evenkeel_geo::traffic::SplitSetup;

/// The site whose users sent a request that another site sent on: of a request.
pub const ORIGIN: HeaderName = HeaderName::from_static("evenkeel-origin");

/// What a request that leaves a site carries.
pub(crate) fn origin_of(setup: &SplitSetup) -> HeaderValue {
    let name = HeaderValue::try_from(setup.home_name());
    name.expect("names of sites are plain: configuration is checked where it is read")
}

/// The name of the site that sent a request.
pub(crate) fn sender(headers: &Fields) -> Option<&[u8]> {
    headers.get(ORIGIN).map(FieldValue::as_bytes)
}

/// Whether a request was sent here by another site. Removes what says so where it is not believed,
/// and what CGI and WSGI take for it.
pub(crate) fn is_believed(headers: &mut Fields, edge: Edge) -> bool {
    if edge == Edge::Trust && headers.contains(ORIGIN) {
        return true;
    }
    headers.remove_like(&ORIGIN);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_believed_is_removed_in_every_spelling() {
        let mut headers = Fields::new();
        for name in ["evenkeel-origin", "evenkeel_origin", "Evenkeel.Origin"] {
            headers.append(HeaderName::try_from(name).unwrap(), &HeaderValue::from_static("here"));
        }
        headers.append(ORIGIN, &HeaderValue::from_static("there"));
        headers.append(
            HeaderName::from_static("evenkeel-original"),
            &HeaderValue::from_static("another"),
        );
        assert!(!is_believed(&mut headers, Edge::Strip));
        assert_eq!(
            headers.names().map(|name| name.to_string()).collect::<Vec<_>>(),
            ["evenkeel-original"]
        );
        assert!(!is_believed(&mut headers, Edge::Trust), "it does not say it came from elsewhere");
        headers.append(ORIGIN, &HeaderValue::from_static("there"));
        assert!(is_believed(&mut headers, Edge::Trust));
        assert!(headers.contains(ORIGIN), "what is believed is passed on");
    }
}
