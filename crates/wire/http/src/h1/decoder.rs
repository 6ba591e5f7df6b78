//! A message body from bytes: by its length, in chunks, or up to the end of the connection.
//!
//! Chunks are read strictly (RFC 9112 §7.1): lines end with CR LF, sizes have up to 16 digits, and
//! extensions and trailers have limits. Whatever else comes ends the message.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::framing::LINES_MAX;
use super::inbox::Inbox;

/// The longest line of a chunk's size with its extensions. That is for one chunk; of all chunks of
/// a body the extensions may have as much.
const SIZE_LINE_BYTES_MAX: usize = 16 << 10;
/// The longest trailers.
const TRAILER_BYTES_MAX: usize = 16 << 10;
/// Why bytes are no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadBody {
    #[error("the connection ended before the body")]
    Incomplete,
    #[error("a chunk's size is no number in hexadecimal digits on a line of its own")]
    ChunkSize,
    #[error("a chunk is longer than its size, or its line does not end with CR LF")]
    ChunkEnd,
    #[error("extensions of chunks of more than {SIZE_LINE_BYTES_MAX} bytes")]
    Extensions,
    #[error("trailers that are no header fields, or of more than {TRAILER_BYTES_MAX} bytes")]
    Trailers,
}

/// How the rest of a body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoder {
    /// So many bytes.
    Length(u64),
    Chunked {
        next: Next,
        /// What extensions may still have, in bytes.
        extensions_left: usize,
    },
    /// All that comes.
    UntilClose,
}

/// What comes next of a body in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Size,
    /// So many bytes of a chunk, then its end.
    Data(u64),
    DataEnd,
    Trailers,
    Nothing,
}

/// What was found in what was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    Data(Bytes),
    Trailers(HeaderMap),
    /// The end was there already.
    End,
    /// More must be read.
    NeedsMore,
}

impl Decoder {
    pub(super) const CHUNKED: Self =
        Self::Chunked { next: Next::Size, extensions_left: SIZE_LINE_BYTES_MAX };

    /// Whether all has come.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked { next: Next::Nothing, .. })
    }

    /// Nothing more comes.
    ///
    /// # Errors
    /// Unless that is how the body ends.
    pub(super) fn close(&mut self) -> Result<(), BadBody> {
        match self {
            Self::UntilClose => *self = Self::Length(0),
            _ if self.is_done() => {}
            _ => return Err(BadBody::Incomplete),
        }
        Ok(())
    }

    fn end_chunk(&mut self) {
        if let Self::Chunked { next: next @ Next::Data(0), .. } = self {
            *next = Next::DataEnd;
        }
    }

    /// The next piece of what was read.
    ///
    /// # Errors
    /// When it is no body.
    pub(super) fn decode(&mut self, inbox: &mut Inbox) -> Result<Decoded, BadBody> {
        loop {
            match self {
                Self::Length(0) => return Ok(Decoded::End),
                Self::UntilClose if inbox.is_empty() => return Ok(Decoded::NeedsMore),
                Self::UntilClose => return Ok(Decoded::Data(inbox.take(inbox.bytes().len()))),
                Self::Length(left) | Self::Chunked { next: Next::Data(left), .. } => {
                    if inbox.is_empty() {
                        return Ok(Decoded::NeedsMore);
                    }
                    let here = inbox.bytes().len();
                    let count = usize::try_from(*left).map_or(here, |left| left.min(here));
                    *left -= count as u64;
                    self.end_chunk();
                    return Ok(Decoded::Data(inbox.take(count)));
                }
                Self::Chunked { next, extensions_left } => match next {
                    Next::Size => match chunk_size(inbox, extensions_left)? {
                        Some(0) => *next = Next::Trailers,
                        Some(size) => *next = Next::Data(size),
                        None => return Ok(Decoded::NeedsMore),
                    },
                    Next::DataEnd => match &inbox.bytes()[..] {
                        [b'\r', b'\n', ..] => {
                            inbox.take(2);
                            *next = Next::Size;
                        }
                        [] | [b'\r'] => return Ok(Decoded::NeedsMore),
                        _ => return Err(BadBody::ChunkEnd),
                    },
                    Next::Trailers => {
                        let Some(found) = trailers(inbox)? else {
                            return Ok(Decoded::NeedsMore);
                        };
                        *next = Next::Nothing;
                        if !found.is_empty() {
                            return Ok(Decoded::Trailers(found));
                        }
                    }
                    Next::Nothing => return Ok(Decoded::End),
                    Next::Data(_) => unreachable!("an arm before"),
                },
            }
        }
    }
}

/// Takes the line with a chunk's size, if all of it is there.
fn chunk_size(inbox: &mut Inbox, extensions_left: &mut usize) -> Result<Option<u64>, BadBody> {
    let bytes = inbox.bytes();
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits > 16 {
        return Err(BadBody::ChunkSize);
    }
    let rest = &bytes[digits..];
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    match rest.get(blanks) {
        Some(b'\r' | b';') | None => {}
        Some(_) => return Err(BadBody::ChunkSize),
    }
    if digits == 0 && !bytes.is_empty() {
        return Err(BadBody::ChunkSize);
    }
    let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return if rest.len() > *extensions_left { Err(BadBody::Extensions) } else { Ok(None) };
    };
    match &rest[end..] {
        [b'\r', b'\n', ..] => {}
        [b'\r'] => return Ok(None),
        _ => return Err(BadBody::ChunkSize),
    }
    *extensions_left = extensions_left.checked_sub(end).ok_or(BadBody::Extensions)?;
    let digits_text = std::str::from_utf8(&bytes[..digits]).expect("they are ASCII");
    let size = u64::from_str_radix(digits_text, 16).expect("16 digits are 64 bits");
    inbox.take(digits + end + 2);
    Ok(Some(size))
}

/// Takes the trailers with the empty line behind them, if all of them are there.
fn trailers(inbox: &mut Inbox) -> Result<Option<HeaderMap>, BadBody> {
    let bytes = inbox.bytes();
    if bytes.starts_with(b"\r\n") {
        inbox.take(2);
        return Ok(Some(HeaderMap::new()));
    }
    if !inbox.may_end_a_head() {
        let is_too_long = inbox.bytes().len() > TRAILER_BYTES_MAX;
        return if is_too_long { Err(BadBody::Trailers) } else { Ok(None) };
    }
    let bytes = inbox.bytes();
    // The parser also takes a line feed alone for an end, which other servers do not.
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let length = end.map_or(bytes.len(), |end| end + 4);
    let is_bare = |(at, byte): (usize, &u8)| *byte == b'\n' && (at == 0 || bytes[at - 1] != b'\r');
    if length > TRAILER_BYTES_MAX || bytes[..length].iter().enumerate().any(is_bare) {
        return Err(BadBody::Trailers);
    }
    if end.is_none() {
        return Ok(None);
    }
    let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
    let lines = match httparse::parse_headers(&bytes[..length], &mut lines) {
        Ok(httparse::Status::Complete((parsed, lines))) if parsed == length => lines,
        _ => return Err(BadBody::Trailers),
    };
    let mut found = HeaderMap::with_capacity(lines.len());
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| BadBody::Trailers)?;
        let value = HeaderValue::from_bytes(line.value).map_err(|_| BadBody::Trailers)?;
        found.append(name, value);
    }
    inbox.take(length);
    Ok(Some(found))
}
