//! What a proxy must change in a message head, and what it must refuse.
//!
//! Two messages meet in a proxy, and whatever describes one connection must not leak into the
//! other (RFC 9110 §7.6.1). Where the two ends could disagree about where a message ends, one of
//! them can be made to read a request that nobody sent (request smuggling); so a message leaves
//! here with exactly one framing, made anew from what was parsed:
//!
//! | came | hyper | here |
//! |---|---|---|
//! | request with a length and a coding | believes the coding, closes after | `chunked` only |
//! | response with both | believes the coding, keeps both | the coding's framing only |
//! | differing or malformed lengths | refuses | |
//! | repeated equal lengths | request: keeps one; response: keeps all | sends one |
//! | `Transfer-Encoding: gzip, chunked` | undoes `chunked` only | 501, or 502 for a response |
//! | no `Host`, two, or one that is not a host | accepts | refused with 400 |
//! | `Connection: close, X-Secret` | keeps `X-Secret` | removes it |
//!
//! `Expect: 100-continue` is answered here (hyper writes the 100 when the body is first read) and
//! not sent on; informational responses of the replica are dropped, as HTTP/1.0 clients and most
//! proxies before us do.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::header::{self, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Extensions, Method, StatusCode, Uri, Version};

use super::body::Body;
use super::client::Client;
use super::fields::{FieldValue, Fields, Role};
use super::message::{Request, Response};
use evenkeel_runtime::networks::Networks;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// How requests are passed on.
#[derive(Debug, Clone)]
pub struct Forwarding {
    /// Whether the client's address is appended to `X-Forwarded-For`.
    pub append_forwarded_for: bool,
    /// Peers that are believed what they say of their clients: of all others `Forwarded` and
    /// `X-Forwarded-*` are removed. `None` = whatever comes is passed on.
    pub trusted_proxies: Option<Networks>,
    /// Whether clients speak TLS: `X-Forwarded-Proto` says `https` then, unless a proxy that is
    /// believed says something else.
    pub is_https: bool,
    /// The `Host` sent on for an HTTP/1.0 request that has none.
    pub host_default: HeaderValue,
}

/// A request that is not passed on, and what the client is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// One sentence for whoever reads the answer's body.
    pub message: Cow<'static, str>,
}

/// Tells answers of ours from those of replicas.
#[derive(Clone, Copy)]
struct Refused;

/// Whether this is a [`Refusal`] of ours.
pub(super) fn is_refusal(response: &Response<Body>) -> bool {
    response.extensions().get::<Refused>().is_some()
}

impl Refusal {
    /// A refusal with a sentence of explanation.
    pub fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal { status, message: message.into() }
    }

    /// 413, because the body is longer than allowed.
    pub fn body_too_large(bytes_max: u64) -> Refusal {
        let message = format!("the request body is longer than the limit of {bytes_max} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// The answer for the client, as plain text.
    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::full(format!("{}\n", self.message)));
        *response.status_mut() = self.status;
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, &plain);
        if matches!(self.status, StatusCode::BAD_REQUEST | StatusCode::NOT_IMPLEMENTED) {
            // Whoever is in front may see its end elsewhere: nothing behind it is read.
            response.headers_mut().insert(header::CONNECTION, &HeaderValue::from_static("close"));
        }
        response.extensions_mut().insert(Refused);
        response
    }
}

/// Marks a request to speak WebSocket on its connection once it is answered with 101.
#[derive(Clone, Copy)]
struct Upgrade;

/// Whether a request that [was prepared](prepare_request) asks for WebSocket.
pub fn wants_upgrade<B>(request: &Request<B>) -> bool {
    asks_for_upgrade(request.extensions())
}

/// The same of a request's extensions.
pub(super) fn asks_for_upgrade(extensions: &Extensions) -> bool {
    extensions.get::<Upgrade>().is_some()
}

/// Makes a client's request fit to be sent to a replica: origin form, one `Host`, one framing,
/// nothing that was meant for this hop only.
///
/// # Errors
/// What must be answered instead of passed on: tunnels, protocol upgrades, transfer codings
/// other than `chunked`, ambiguous hosts.
pub fn prepare_request(
    request: &mut Request<Body>,
    client: &Client,
    forwarding: &Forwarding,
) -> Result<(), Refusal> {
    if request.method() == Method::CONNECT {
        let message = "this proxy opens no tunnels: CONNECT is not supported";
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, message));
    }
    let seen = Seen::scan(request.headers());
    check_host(&seen, request.version())?;
    let upgrades = seen.upgrade && check_upgrade(request)?;
    let is_chunked = match seen.transfer_encoding {
        true => check_request_coding(request.headers())?,
        // The end of a stream is its own.
        false => request.version() == Version::HTTP_2 && has_no_length(request, &seen),
    };
    let wants_trailers = seen.te && accepts_trailers(request.headers());
    to_origin_form(request)?;
    let headers = request.headers_mut();
    if seen.hosts == 0 && !headers.contains(header::HOST) {
        headers.insert(header::HOST, &forwarding.host_default);
    }
    strip(headers, &seen);
    if is_chunked {
        headers.insert(header::TRANSFER_ENCODING, &HeaderValue::from_static("chunked"));
    }
    if wants_trailers {
        headers.insert(header::TE, &HeaderValue::from_static("trailers"));
        headers.insert(header::CONNECTION, &HeaderValue::from_static("te"));
    }
    forward(headers, client, forwarding);
    *request.version_mut() = Version::HTTP_11;
    request.extensions_mut().clear();
    if upgrades {
        upgrade(request.headers_mut());
        request.extensions_mut().insert(Upgrade);
    }
    Ok(())
}

/// Makes a replica's response fit to be sent to a client.
///
/// # Errors
/// A response whose end or content the client could not understand is refused with 502.
pub fn prepare_response(response: &mut Response<Body>) -> Result<(), Refusal> {
    let headers = response.headers_mut();
    let seen = Seen::scan(headers);
    if seen.transfer_encoding && !is_chunked_only(headers) {
        let message = "the replica used a transfer coding other than \"chunked\"";
        return Err(Refusal::new(StatusCode::BAD_GATEWAY, message));
    }
    strip(headers, &seen);
    if seen.transfer_encoding || seen.lengths > 1 || seen.has_odd_length {
        headers.remove(header::CONTENT_LENGTH); // hyper writes the framing of the body it has
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        upgrade(response.headers_mut());
    }
    Ok(())
}

/// What one pass over the head found. Most heads have one or two of these.
#[derive(Default)]
struct Seen {
    hosts: u32,
    has_bad_host: bool,
    lengths: u32,
    has_odd_length: bool,
    connection: bool,
    /// `Connection` names something besides `keep-alive` and `close`.
    connection_names: bool,
    transfer_encoding: bool,
    te: bool,
    upgrade: bool,
    /// `Keep-Alive`, `Proxy-*`, `Expect`: always removed.
    other: bool,
}

impl Seen {
    fn scan(headers: &Fields) -> Seen {
        let mut seen = Seen::default();
        for field in headers.roles() {
            let value = || field.value().as_bytes();
            match field.role() {
                Role::Host => {
                    seen.hosts += 1;
                    seen.has_bad_host |= !is_host(value());
                }
                Role::ContentLength => {
                    seen.lengths += 1;
                    seen.has_odd_length |= !value().iter().all(u8::is_ascii_digit);
                }
                Role::Connection => {
                    seen.connection = true;
                    seen.connection_names |= !is_plain_connection(value());
                }
                Role::TransferEncoding => seen.transfer_encoding = true,
                Role::Te => seen.te = true,
                Role::Upgrade => seen.upgrade = true,
                Role::Expect | Role::KeepAlive | Role::Proxy => seen.other = true,
                Role::Date | Role::Trailer | Role::Other => {}
            }
        }
        seen
    }
}

fn is_plain_connection(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close")
}

fn check_host(seen: &Seen, version: Version) -> Result<(), Refusal> {
    let bad = |message| Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    match seen.hosts {
        0 if version == Version::HTTP_11 => bad("an HTTP/1.1 request needs a Host header"),
        0 => Ok(()),
        1 if !seen.has_bad_host => Ok(()),
        1 => bad("the Host header is not a host name or address with an optional port"),
        _ => bad("a request must not have more than one Host header"),
    }
}

fn has_no_length(request: &Request<Body>, seen: &Seen) -> bool {
    seen.lengths == 0 && !request.body().is_complete()
}

/// Accepts the characters of RFC 3986 `host [":" port]`; an empty one is allowed.
fn is_host(host: &[u8]) -> bool {
    host.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=:[]%".contains(byte))
}

/// Says that WebSocket is spoken next.
fn upgrade(headers: &mut Fields) {
    headers.insert(header::CONNECTION, &HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, &HeaderValue::from_static("websocket"));
}

/// Whether a replica agrees to speak what was asked for.
pub(super) fn agrees_to_upgrade(headers: &Fields) -> bool {
    has_token(headers, &header::UPGRADE, b"websocket")
}

/// Whether WebSocket is asked for. An offer of HTTP/2 may be ignored (some clients always make it);
/// other protocols are asked for in earnest.
fn check_upgrade(request: &Request<Body>) -> Result<bool, Refusal> {
    let headers = request.headers();
    let is_ignored = |token: &[u8]| token.len() >= 3 && token[..3].eq_ignore_ascii_case(b"h2c");
    if tokens(headers, &header::UPGRADE).all(is_ignored) {
        return Ok(false);
    }
    let mut asked = tokens(headers, &header::UPGRADE).filter(|token| !is_ignored(token));
    if !asked.all(|token| token.eq_ignore_ascii_case(b"websocket")) {
        let message = "of protocol upgrades this proxy supports only WebSocket";
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, message));
    }
    let is_plain = request.method() == Method::GET && request.body().is_complete();
    let is_of_hop = has_token(headers, &header::CONNECTION, b"upgrade");
    if !is_plain || !is_of_hop || request.version() != Version::HTTP_11 {
        let message = "an upgrade to WebSocket is a GET of HTTP/1.1 with `Connection: upgrade` \
                       and without a body";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(true)
}

fn has_token(headers: &Fields, name: &HeaderName, token: &[u8]) -> bool {
    tokens(headers, name).any(|it| it.eq_ignore_ascii_case(token))
}

/// `Ok(true)` when the body is chunked and nothing else.
fn check_request_coding(headers: &Fields) -> Result<bool, Refusal> {
    if is_chunked_only(headers) {
        return Ok(true);
    }
    let message = "the only transfer coding supported in requests is \"chunked\"";
    Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, message))
}

/// Whether it is `chunked` and nothing else. Empty members of a list mean nothing by RFC 9110
/// §5.6.1, but other servers refuse them.
fn is_chunked_only(headers: &Fields) -> bool {
    let mut lines = headers.get_all(header::TRANSFER_ENCODING);
    let is_chunked =
        |line: FieldValue<'_>| line.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    lines.next().is_some_and(is_chunked) && lines.next().is_none()
}

fn accepts_trailers(headers: &Fields) -> bool {
    tokens(headers, &header::TE).any(|token| token.eq_ignore_ascii_case(b"trailers"))
}

/// The members of a comma-separated header, over all its lines.
fn tokens<'a>(headers: &'a Fields, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers
        .get_all(name)
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// Absolute form becomes origin form, and its authority the `Host` (RFC 9112 §3.2.2).
fn to_origin_form(request: &mut Request<Body>) -> Result<(), Refusal> {
    let Some(authority) = request.uri().authority() else { return Ok(()) };
    let host = authority.as_str().rsplit('@').next().unwrap_or_default();
    let host = HeaderValue::from_str(host).ok().filter(|_| request.uri().scheme().is_some());
    let Some(host) = host else {
        let message = "the request target must be a path or an absolute URI";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    };
    let path = request.uri().path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    request.headers_mut().insert(header::HOST, &host);
    Ok(())
}

/// Removes everything that was meant for this hop.
fn strip(headers: &mut Fields, seen: &Seen) {
    if seen.connection_names {
        remove_named_by_connection(headers);
    }
    if seen.connection || seen.te || seen.upgrade || seen.transfer_encoding || seen.other {
        headers.retain_roles(|role| match role {
            Role::Connection
            | Role::Expect
            | Role::KeepAlive
            | Role::Proxy
            | Role::Te
            | Role::TransferEncoding
            | Role::Upgrade => false,
            Role::ContentLength | Role::Date | Role::Host | Role::Trailer | Role::Other => true,
        });
    }
}

/// Removes what `Connection` names, except the fields a message cannot do without.
fn remove_named_by_connection(headers: &mut Fields) {
    let mut named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .filter(|name| !matches!(*name, header::HOST | header::CONTENT_LENGTH))
        .collect();
    // A client may name thousands.
    named.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    headers.retain(|name| {
        let lower = || name.as_bytes().iter().map(u8::to_ascii_lowercase);
        named.binary_search_by(|other| other.as_str().bytes().cmp(lower())).is_err()
    });
}

impl Forwarding {
    /// Who the user is by `X-Forwarded-For`, where the peer and all proxies behind it are trusted:
    /// the last address there that is none of theirs. `None`: the peer.
    pub fn user(&self, headers: &Fields, peer: IpAddr) -> Option<IpAddr> {
        let trusted = self.trusted_proxies.as_ref().filter(|it| it.contain(peer))?;
        let entries = headers.get_all(X_FORWARDED_FOR).rev().filter_map(FieldValue::to_str);
        let mut user = None;
        for entry in entries.flat_map(|line| line.rsplit(',')) {
            // What a trusted proxy did not understand nobody does.
            let Some(address) = forwarded_address(entry.trim()) else { break };
            user = Some(address);
            if !trusted.contain(address) {
                break;
            }
        }
        user
    }
}

/// An address as proxies write it, some of them with the port.
fn forwarded_address(entry: &str) -> Option<IpAddr> {
    let in_brackets = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let alone = || in_brackets.unwrap_or(entry).parse().ok();
    alone().or_else(|| entry.parse().ok().map(|address: SocketAddr| address.ip()))
}

/// Tells the replica who asks, and what is believed of that.
fn forward(headers: &mut Fields, client: &Client, forwarding: &Forwarding) {
    let trusted = forwarding.trusted_proxies.as_ref();
    let is_believed = trusted.is_some_and(|it| it.contain(client.address.ip()));
    if trusted.is_some() && !is_believed {
        headers.retain(|name| name != *"forwarded" && !name.starts_with("x-forwarded-"));
    }
    if forwarding.append_forwarded_for {
        append_forwarded_for(headers, client);
    }
    let is_said = is_believed && headers.contains(X_FORWARDED_PROTO);
    if forwarding.is_https && !is_said {
        headers.insert(X_FORWARDED_PROTO, &HeaderValue::from_static("https"));
    }
}

fn append_forwarded_for(headers: &mut Fields, client: &Client) {
    if !headers.contains(X_FORWARDED_FOR) {
        return headers.append(X_FORWARDED_FOR, &client.forwarded_for);
    }
    let mut chain = Vec::new();
    for earlier in headers.get_all(X_FORWARDED_FOR) {
        chain.extend_from_slice(earlier.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(client.forwarded_for.as_bytes());
    let chain = HeaderValue::from_maybe_shared(bytes::Bytes::from(chain));
    headers.insert(X_FORWARDED_FOR, &chain.expect("joined header values are a header value"));
}
