//! What heads say of their bodies and of the connection, in either direction (RFC 9112 §6, §9.3).

use http::header::{CONTENT_LENGTH, HeaderName, TRAILER, TRANSFER_ENCODING};

use crate::fields::{FieldValue, Fields, Role, write_line};

/// The most lines of a head or of trailers.
pub(super) const LINES_MAX: usize = 100;

/// How a body leaves. It is made from the body that there is and never taken over from a head: a
/// length that does not match would let the other side read the next message as a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes are to come.
    Length(u64),
    /// With these fields behind it, which its head has announced.
    Chunked { trailers: Vec<HeaderName> },
    /// Up to the end of the connection.
    UntilClose,
}

impl Framing {
    /// In chunks, with the trailers that these headers announce.
    pub(super) fn chunked(headers: &Fields) -> Self {
        let lines = headers.with_role(Role::Trailer).filter_map(FieldValue::to_str);
        let names = lines.flat_map(|line| line.split(','));
        let names = names.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok());
        Self::Chunked { trailers: names.filter(may_follow).collect() }
    }

    /// Appends the line that says it, if one does.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => {
                let mut digits = itoa::Buffer::new();
                let length = digits.format(*length).as_bytes();
                write_line(bytes, CONTENT_LENGTH.as_str().as_bytes(), length);
            }
            Self::Chunked { .. } => bytes.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            Self::UntilClose => {}
        }
    }
}

/// Whether a field may come behind a body: none that says how the message is to be read.
fn may_follow(name: &HeaderName) -> bool {
    use http::header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HOST,
        MAX_FORWARDS, SET_COOKIE, TE,
    };
    let refused = [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONTENT_ENCODING,
        CONTENT_LENGTH,
        CONTENT_RANGE,
        CONTENT_TYPE,
        HOST,
        MAX_FORWARDS,
        SET_COOKIE,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
    ];
    // Nor what is of one hop, or what proxies say of a client.
    let is_of_hop = ["connection", "keep-alive", "upgrade", "expect", "forwarded"];
    let name_text = name.as_str();
    let is_of_proxies = name_text.starts_with("proxy-") || name_text.starts_with("x-forwarded-");
    !refused.contains(name) && !is_of_hop.contains(&name_text) && !is_of_proxies
}

/// Whether a connection stays, by the lines so far. Once it was to close, no later line changes
/// that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeps {
    Yes,
    /// By its version.
    No,
    Closes,
}

impl Keeps {
    /// What a message of HTTP/1.1, or of HTTP/1.0, means without a word.
    pub(super) const fn by_version(is_new: bool) -> Self {
        if is_new { Self::Yes } else { Self::No }
    }

    /// What a line `Connection` changes.
    pub(super) fn told(self, value: &[u8]) -> Self {
        let has = |wanted: &[u8]| {
            let mut tokens = value.split(|byte| *byte == b',');
            tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(wanted))
        };
        match self {
            Self::Closes => Self::Closes,
            _ if has(b"close") => Self::Closes,
            Self::No if has(b"keep-alive") => Self::Yes,
            as_before => as_before,
        }
    }
}

/// Whether `chunked` is the last transfer coding, by the last line of `Transfer-Encoding`.
pub(super) fn is_chunked(line: &[u8]) -> bool {
    let last = line.rsplit(|byte| *byte == b',').next().unwrap_or_default();
    // A value with other bytes than visible ones is none that servers agree on.
    let is_text = line.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    is_text && last.trim_ascii().eq_ignore_ascii_case(b"chunked")
}

/// The one number that all lines of `Content-Length` say, those before this one and this one.
///
/// # Errors
/// When it is more than one, or none.
pub(super) fn content_length(before: Option<u64>, line: &[u8]) -> Result<Option<u64>, BadLength> {
    let mut length = before;
    for said in line.split(|byte| *byte == b',') {
        let said = decimal(said.trim_ascii()).ok_or(BadLength)?;
        if *length.get_or_insert(said) != said {
            return Err(BadLength);
        }
    }
    Ok(length)
}

/// Digits and nothing else.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `Content-Length` is not one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its `Content-Length` is not one number")]
pub(super) struct BadLength;
