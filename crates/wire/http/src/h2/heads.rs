//! Heads of messages: between the form of HTTP/1.1, which all others here have, and a stream's.

use evenkeel_settings::address::ServerAddress;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, StatusCode, Uri, Version};

use crate::fields::{FieldValue, Fields, Repeated, Role};
use crate::head::Refusal;
use crate::message::{Request, request};

/// The most lines a head may have, as in HTTP/1.1: a byte each is enough where they repeat.
const LINES_MAX: usize = 100;

/// Checks a client's head and gives it the form of HTTP/1.1 as far as only a stream can differ.
///
/// # Errors
/// What the client is told: two hosts, none, too many lines, or a name that HTTP/1.1 cannot carry.
pub(crate) fn from_client<T>(request: &mut Request<T>) -> Result<(), Refusal> {
    check_authority(request)?;
    check_names(request.headers())?;
    to_origin_form(request)?;
    let headers = request.headers_mut();
    join_cookies(headers);
    if headers.len() > LINES_MAX {
        let message = format!("a head of {} lines, expected at most {LINES_MAX}", headers.len());
        return Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message));
    }
    Ok(())
}

/// Two names of one host must be the same: who is behind us might believe the other one.
fn check_authority<T>(request: &Request<T>) -> Result<(), Refusal> {
    let bad = |message| Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    let Some(authority) = request.uri().authority() else { return Ok(()) };
    if authority.as_str().contains('@') {
        return bad("the :authority must not name a user");
    }
    let mut hosts = request.headers().get_all(header::HOST);
    let same =
        |host: FieldValue<'_>| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
    match hosts.all(same) {
        true => Ok(()),
        false => bad("the Host header differs from the :authority"),
    }
}

/// A quotation mark is the only byte that the library lets into a name and that is of no token
/// (RFC 9110, 5.6.2): a replica of HTTP/1.1 might read the line otherwise, or refuse us for it.
fn check_names(headers: &Fields) -> Result<(), Refusal> {
    match headers.names().any(|name| name.as_bytes().contains(&b'"')) {
        true => Err(Refusal::new(StatusCode::BAD_REQUEST, "a header's name has a quotation mark")),
        false => Ok(()),
    }
}

/// One Host, and a path.
fn to_origin_form<T>(request: &mut Request<T>) -> Result<(), Refusal> {
    let bad = |message| Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    let Some(authority) = request.uri().authority() else {
        return match request.headers().contains(header::HOST) {
            true => Ok(()),
            false => bad("a request needs an :authority or a Host header"),
        };
    };
    if request.method() == Method::CONNECT {
        return Ok(()); // which is refused
    }
    let Ok(host) = HeaderValue::from_str(authority.as_str()) else {
        return bad("the :authority is no host");
    };
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
    request.headers_mut().insert(header::HOST, &host);
    Ok(())
}

/// Clients may send each cookie on a line of its own (RFC 9113, 8.2.3); servers of HTTP/1.1 expect
/// one line.
fn join_cookies(headers: &mut Fields) {
    if !matches!(headers.get_only(header::COOKIE), Err(Repeated)) {
        return;
    }
    let lines: Vec<_> = headers.get_all(header::COOKIE).map(FieldValue::as_bytes).collect();
    let joined = lines.join(&b"; "[..]);
    let joined = HeaderValue::from_maybe_shared(Bytes::from(joined));
    headers.insert(header::COOKIE, &joined.expect("joined header values are a header value"));
}

/// The head of a stream towards a replica.
pub(crate) fn to_replica(
    parts: Box<request::Parts>,
    is_tls: bool,
    address: ServerAddress,
) -> http::Request<()> {
    let mut request = Request::from_parts(parts, ());
    *request.version_mut() = Version::HTTP_2;
    let host = request.headers().get(header::HOST).filter(|host| !host.is_empty());
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    request.headers_mut().retain_roles(|role| role != Role::Host && !is_of_connection(role));
    let authority = authority.or_else(|| Authority::try_from(address.authority()).ok());
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(if is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    uri.authority = authority;
    uri.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from_parts(uri).expect("scheme, authority and path are a URI");
    request.into()
}

/// Removes what a stream must not carry.
pub(crate) fn strip(headers: &mut Fields) {
    headers.retain_roles(|role| !is_of_connection(role));
}

fn is_of_connection(role: Role) -> bool {
    matches!(role, Role::Connection | Role::KeepAlive | Role::TransferEncoding | Role::Upgrade)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = http::Request::builder().uri(uri).version(Version::HTTP_2);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into()
    }

    fn status(uri: &str, headers: &[(&str, &str)]) -> Option<StatusCode> {
        from_client(&mut request(uri, headers)).err().map(|refusal| refusal.status)
    }

    #[test]
    fn two_hosts_that_differ_are_refused() {
        let bad = Some(StatusCode::BAD_REQUEST);
        assert_eq!(status("http://a.example/", &[]), None);
        assert_eq!(status("http://a.example:80/", &[("host", "A.example:80")]), None);
        assert_eq!(status("/", &[("host", "a.example")]), None);
        assert_eq!(status("/", &[]), bad);
        assert_eq!(status("http://a.example/", &[("host", "b.example")]), bad);
        assert_eq!(status("http://a.example/", &[("host", "a.example"), ("host", "b")]), bad);
        assert_eq!(status("http://u@a.example/", &[]), bad);
    }

    /// If the library takes another byte than that, this says so.
    #[test]
    fn names_that_are_no_tokens_are_refused() {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        for byte in 0..=255_u8 {
            let Ok(name) = http::HeaderName::from_bytes(&[b'a', byte]) else { continue };
            let refused = status("http://a/", &[(name.as_str(), "1")]);
            assert_eq!(refused.is_none(), is_token(byte), "{byte:#x}");
        }
    }

    #[test]
    fn cookies_are_joined_and_lines_are_counted() {
        let mut crumbs = request("http://a/", &[("cookie", "a=1"), ("cookie", "b=2"), ("x", "y")]);
        from_client(&mut crumbs).unwrap();
        assert_eq!(crumbs.headers().get(header::COOKIE).unwrap(), "a=1; b=2");
        assert_eq!(crumbs.headers().get(header::HOST).unwrap(), "a");
        assert_eq!((crumbs.headers().len(), crumbs.uri().to_string()), (3, "/".to_owned()));
        let many = vec![("cookie", "a=1"); 300];
        assert_eq!(status("http://a/", &many), None);
        let many = vec![("x", ""); 101];
        let too_many = Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert_eq!(status("http://a/", &many), too_many);
    }

    proptest! {
        #[test]
        fn what_goes_to_a_replica_is_a_stream_s_head(
            path in "/[a-z0-9/]{0,20}(\\?[a-z=&]{0,10})?",
            host in prop::option::of("[a-z0-9.-]{0,12}(:[0-9]{1,4})?"),
            connection in any::<bool>(),
            te in any::<bool>(),
            is_tls in any::<bool>(),
        ) {
            let mut it = request(&path, &[("x-kept", "1"), ("transfer-encoding", "chunked")]);
            *it.method_mut() = Method::POST;
            if let Some(host) = &host {
                it.headers_mut().insert(header::HOST, &HeaderValue::try_from(host).unwrap());
            }
            if connection {
                it.headers_mut().insert(header::CONNECTION, &HeaderValue::from_static("te"));
            }
            if te {
                it.headers_mut().insert(header::TE, &HeaderValue::from_static("trailers"));
            }
            let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80)).into();
            let sent = to_replica(it.into_parts().0, is_tls, address);
            prop_assert_eq!(sent.version(), Version::HTTP_2);
            prop_assert_eq!(sent.uri().path_and_query().unwrap().as_str(), &path);
            prop_assert_eq!(sent.uri().scheme_str(), Some(if is_tls { "https" } else { "http" }));
            prop_assert!(sent.uri().authority().is_some());
            let named = host.filter(|host| host.parse::<Authority>().is_ok());
            let expected = named.unwrap_or(address.to_string());
            prop_assert_eq!(sent.uri().authority().unwrap().as_str(), &expected);
            prop_assert_eq!(sent.headers().len(), 1 + usize::from(te));
            prop_assert_eq!(sent.headers().contains_key(header::TE), te);
        }
    }
}
