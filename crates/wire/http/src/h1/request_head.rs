//! The head of a request: from a client's bytes, and as bytes for a replica.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{Extensions, Method, StatusCode, Uri, Version};
use http_body::Body as _;

use super::decoder::Decoder;
use super::framing::{self, Framing, Keeps, LINES_MAX};
use crate::body::Body;
use crate::fields::{Fields, Role};
use crate::message::request;

/// The longest length that others can read: behind a coding a longer one is none to them.
const LENGTH_MAX: u64 = i64::MAX as u64;
/// As long as a URI of the crate `http` may be.
const TARGET_BYTES_MAX: usize = u16::MAX as usize - 1;

/// A request's head and what follows it.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) parts: Box<request::Parts>,
    pub(super) framing: Decoder,
    pub(super) keeps_alive: bool,
    /// The client waits for a word before it sends the body.
    pub(super) expects_continue: bool,
    /// It may speak another protocol behind this request.
    pub(super) wants_upgrade: bool,
    pub(super) takes_trailers: bool,
}

/// Finds a request's head, if all of it is there, and its length.
///
/// # Errors
/// The status that refuses it.
pub(super) fn parse(bytes: &Bytes, bytes_max: usize) -> Result<Option<(usize, Head)>, StatusCode> {
    let mut lines = [const { MaybeUninit::uninit() }; LINES_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let found = parser.parse_request_with_uninit_headers(&mut parsed, bytes, &mut lines);
    let is_too_long = match found {
        Ok(httparse::Status::Complete(length)) => length > bytes_max,
        Ok(httparse::Status::Partial) => bytes.len() >= bytes_max,
        Err(httparse::Error::TooManyHeaders) => true,
        Err(_) => return Err(StatusCode::BAD_REQUEST),
    };
    match found {
        _ if is_too_long => Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        Ok(httparse::Status::Complete(length)) => Ok(Some((length, head(bytes, length, &parsed)?))),
        _ => Ok(None),
    }
}

fn head(
    bytes: &Bytes,
    length: usize,
    parsed: &httparse::Request<'_, '_>,
) -> Result<Head, StatusCode> {
    let bad = StatusCode::BAD_REQUEST;
    let method = parsed.method.expect("it is complete");
    let target = parsed.path.expect("it is complete");
    if target.len() > TARGET_BYTES_MAX {
        return Err(StatusCode::URI_TOO_LONG);
    }
    let is_new = parsed.version == Some(1);
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| bad)?;
    let target = bytes.slice_ref(target.as_bytes());
    let uri = Uri::from_maybe_shared(target).map_err(|_| bad)?;
    let mut keeps = Keeps::by_version(is_new);
    let mut wants_upgrade = method == Method::CONNECT;
    let (mut expects_continue, mut takes_trailers) = (false, false);
    let mut said = Said::default();
    let mut headers = Fields::of_head(bytes.slice(..length), parsed.headers.len());
    for line in parsed.headers.iter() {
        let value = line.value;
        match headers.take_up(line.name.as_bytes(), value).ok_or(bad)? {
            Role::Connection => keeps = keeps.told(value),
            Role::Expect => {
                expects_continue = value.eq_ignore_ascii_case(b"100-continue") && is_new;
            }
            Role::Upgrade => wants_upgrade |= is_new,
            Role::Te => takes_trailers |= has_trailers(value),
            Role::ContentLength if !said.length(value)? => headers.take_back(),
            Role::TransferEncoding => said.coding = Some(value),
            _ => {}
        }
    }
    let framing = match said {
        Said { coding: None, length } => Decoder::Length(length.unwrap_or(0)),
        Said { coding: Some(last), .. } if !is_new || !framing::is_chunked(last) => {
            return Err(bad);
        }
        Said { length, .. } if length.is_some_and(|it| it > LENGTH_MAX) => return Err(bad),
        Said { length, .. } => {
            if length.is_some() {
                headers.retain_roles(|role| role != Role::ContentLength);
                keeps = Keeps::Closes;
            }
            Decoder::CHUNKED
        }
    };
    let version = if is_new { Version::HTTP_11 } else { Version::HTTP_10 };
    let extensions = Extensions::new();
    Ok(Head {
        parts: Box::new(request::Parts { method, uri, version, headers, extensions }),
        framing,
        keeps_alive: keeps == Keeps::Yes,
        expects_continue,
        wants_upgrade,
        takes_trailers,
    })
}

fn has_trailers(value: &[u8]) -> bool {
    let mut tokens = value.split(|byte| *byte == b',');
    tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// What the lines so far say of the body. Of a length and a coding the coding is believed, and
/// nothing behind that request; the length must be one all the same.
#[derive(Default)]
struct Said<'a> {
    /// The last line `Transfer-Encoding`.
    coding: Option<&'a [u8]>,
    length: Option<u64>,
}

impl Said<'_> {
    /// A line `Content-Length`; whether it is the first. A list is refused even if its members are
    /// equal: not every server reads it as one.
    fn length(&mut self, line: &[u8]) -> Result<bool, StatusCode> {
        let length = framing::decimal(line).ok_or(StatusCode::BAD_REQUEST)?;
        match self.length.replace(length) {
            Some(other) if other != length => Err(StatusCode::BAD_REQUEST),
            before => Ok(before.is_none()),
        }
    }
}

/// Appends the head, with the framing of its body.
pub(super) fn encode(head: &request::Parts, body: &Body, bytes: &mut Vec<u8>) -> Framing {
    bytes.extend_from_slice(head.method.as_str().as_bytes());
    bytes.push(b' ');
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    if !target.starts_with(['/', '*']) {
        bytes.push(b'/'); // of `http://a?b` it is `?b`
    }
    bytes.extend_from_slice(target.as_bytes());
    bytes.extend_from_slice(b" HTTP/1.1\r\n");
    let mut says_length = false;
    head.headers.write(bytes, |field| {
        let role = field.role();
        says_length |= role == Role::ContentLength;
        !matches!(role, Role::ContentLength | Role::TransferEncoding)
    });
    let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    let framing = length.map_or_else(|| Framing::chunked(&head.headers), Framing::Length);
    if framing != Framing::Length(0) || says_length {
        framing.write(bytes);
    }
    bytes.extend_from_slice(b"\r\n");
    framing
}
