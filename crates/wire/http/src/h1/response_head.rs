//! The head of a response: from a replica's bytes, and as bytes for a client.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Extensions, StatusCode, Version};
use http_body::Body as _;
use hyper::ext::ReasonPhrase;

use super::date;
use super::decoder::Decoder;
use super::framing::{self, BadLength, Framing, Keeps, LINES_MAX};
use crate::body::Body;
use crate::fields::{Fields, Role, write_line};
use crate::message::response;

/// Why bytes are no head of a response.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadHead {
    #[error("{0}")]
    Syntax(#[from] httparse::Error),
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    #[error("its status is none")]
    Status,
    #[error("{0}")]
    Length(#[from] BadLength),
    #[error("`Transfer-Encoding` in HTTP/1.0")]
    OldCoding,
    #[error("it came before it was asked for")]
    Unasked,
}

/// A head and what follows it.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) parts: Box<response::Parts>,
    pub(super) framing: Decoder,
    /// Whether the server says that another request may follow.
    pub(super) keeps_alive: bool,
}

/// Finds the head of the final response, and how many bytes lead up to its end. What only informs
/// is skipped: of that the number of bytes alone comes back, so that nobody reads it twice.
///
/// # Errors
/// When no response begins so.
pub(super) fn parse(
    bytes: &Bytes,
    of_head_request: bool,
    bytes_max: usize,
) -> Result<(usize, Option<Head>), BadHead> {
    let mut skipped = 0;
    loop {
        let rest = &bytes[skipped..];
        let mut lines = [const { MaybeUninit::uninit() }; LINES_MAX];
        let mut parsed = httparse::Response::new(&mut []);
        let parser = httparse::ParserConfig::default();
        let status = parser.parse_response_with_uninit_headers(&mut parsed, rest, &mut lines)?;
        let httparse::Status::Complete(length) = status else {
            let is_too_long = rest.len() >= bytes_max;
            return if is_too_long {
                Err(BadHead::TooLong(bytes_max))
            } else {
                Ok((skipped, None))
            };
        };
        if length > bytes_max {
            return Err(BadHead::TooLong(bytes_max));
        }
        let code = StatusCode::from_u16(parsed.code.expect("it is complete"));
        let code = code.map_err(|_| BadHead::Status)?;
        let began = skipped;
        skipped += length;
        if code.is_informational() && code != StatusCode::SWITCHING_PROTOCOLS {
            continue;
        }
        let head = head(bytes.slice(began..skipped), code, &parsed, of_head_request)?;
        return Ok((skipped, Some(head)));
    }
}

fn head(
    bytes: Bytes,
    status: StatusCode,
    parsed: &httparse::Response<'_, '_>,
    of_head_request: bool,
) -> Result<Head, BadHead> {
    let is_new = parsed.version == Some(1);
    let mut keeps = Keeps::by_version(is_new);
    let mut headers = Fields::of_head(bytes, parsed.headers.len());
    let (mut coding, mut length) = (None, Ok(None));
    for line in parsed.headers.iter() {
        let role = headers.take_up(line.name.as_bytes(), line.value);
        match role.ok_or(httparse::Error::HeaderName)? {
            Role::Connection => keeps = keeps.told(line.value),
            Role::TransferEncoding => coding = Some(line.value),
            Role::ContentLength => {
                length = length.and_then(|length| framing::content_length(length, line.value));
            }
            _ => {}
        }
    }
    let framing = match coding {
        _ if of_head_request || is_bare(status) => Decoder::Length(0),
        Some(_) if !is_new => return Err(BadHead::OldCoding),
        Some(coding) if framing::is_chunked(coding) => Decoder::CHUNKED,
        Some(_) => Decoder::UntilClose,
        None => length?.map_or(Decoder::UntilClose, Decoder::Length),
    };
    let version = if is_new { Version::HTTP_11 } else { Version::HTTP_10 };
    let mut extensions = Extensions::new();
    let reason = parsed.reason.filter(|reason| Some(*reason) != status.canonical_reason());
    if let Some(reason) = reason {
        let reason = ReasonPhrase::try_from(reason.as_bytes());
        extensions.insert(reason.map_err(|_| httparse::Error::Status)?);
    }
    let keeps_alive = keeps == Keeps::Yes && status != StatusCode::SWITCHING_PROTOCOLS;
    let parts = Box::new(response::Parts { status, version, headers, extensions });
    Ok(Head { parts, framing, keeps_alive })
}

/// Whether an answer never has a body, whatever its head says.
fn is_bare(status: StatusCode) -> bool {
    status.is_informational() || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// What the request means for its response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) is_head: bool,
    /// HTTP/1.1
    pub(super) is_new: bool,
    pub(super) takes_trailers: bool,
    pub(super) keeps_alive: bool,
}

/// Appends the head, with the framing of its body and what the connection is for afterwards.
/// `None`: there is no body to send.
pub(super) fn encode(
    head: &response::Parts,
    body: &Body,
    asked: &mut Asked,
    bytes: &mut Vec<u8>,
) -> Option<Framing> {
    bytes.extend_from_slice(if asked.is_new { b"HTTP/1.1 " } else { b"HTTP/1.0 " });
    bytes.extend_from_slice(head.status.as_str().as_bytes());
    bytes.push(b' ');
    let reason = head.extensions.get::<ReasonPhrase>().map(ReasonPhrase::as_bytes);
    let reason = reason.or(head.status.canonical_reason().map(str::as_bytes));
    bytes.extend_from_slice(reason.unwrap_or(b"<none>"));
    bytes.extend_from_slice(b"\r\n");
    let is_switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
    assert!(is_switched || !head.status.is_informational(), "an answer is final");
    let length = if body.is_end_stream() { Some(0) } else { body.size_hint().exact() };
    let framing = match length {
        Some(length) => Framing::Length(length),
        None if asked.is_new => Framing::chunked(&head.headers),
        None => Framing::UntilClose,
    };
    let has_body = !asked.is_head && !is_bare(head.status);
    if has_body && framing == Framing::UntilClose {
        asked.keeps_alive = false;
    }
    let (mut says_date, mut length_line) = (false, None);
    head.headers.write(bytes, |field| match field.role() {
        Role::ContentLength => {
            length_line = Some(field.value().as_bytes());
            false
        }
        Role::TransferEncoding => false,
        Role::Trailer => has_body && matches!(framing, Framing::Chunked { .. }),
        Role::Connection => {
            let keeps = Keeps::by_version(true).told(field.value().as_bytes());
            asked.keeps_alive &= is_switched || keeps == Keeps::Yes;
            is_switched
        }
        role => {
            says_date |= role == Role::Date;
            true
        }
    });
    match length_line {
        Some(value) if asked.is_head => {
            write_line(bytes, CONTENT_LENGTH.as_str().as_bytes(), value);
        }
        _ if has_body => framing.write(bytes),
        _ if asked.is_head && length.is_some_and(|length| length > 0) => framing.write(bytes),
        _ => {}
    }
    if !says_date {
        date::write(bytes);
    }
    match (is_switched, asked.keeps_alive, asked.is_new) {
        (true, ..) | (false, true, true) | (false, false, false) => {}
        (false, false, true) => bytes.extend_from_slice(b"connection: close\r\n"),
        (false, true, false) => bytes.extend_from_slice(b"connection: keep-alive\r\n"),
    }
    bytes.extend_from_slice(b"\r\n");
    let is_empty = framing == Framing::Length(0);
    (has_body && !is_empty).then_some(match framing {
        Framing::Chunked { .. } if !asked.takes_trailers => Framing::Chunked { trailers: vec![] },
        framing => framing,
    })
}
