//! One token of a reply: a scalar, or the head of an aggregate.

use std::ops::Range;

use super::Kind;
use crate::resp::{Number, ProtocolError, number};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// A scalar that is a line.
    Line,
    /// A scalar with a length: bulk string, error, verbatim text.
    Blob,
    Null,
    Aggregate,
    Attribute,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) tag: u8,
    pub(super) what: What,
    /// Where it begins: at its tag.
    pub(super) start: usize,
    /// How many elements follow that belong to it: two for each pair.
    pub(super) elements: u64,
    /// The bytes of a scalar without its frame.
    pub(super) payload: Range<usize>,
    /// Where the next token begins.
    pub(super) end: usize,
}

impl Token {
    #[inline]
    pub(super) fn kind(&self) -> Kind {
        match (self.what, self.tag) {
            (What::Null, _) => Kind::Null,
            (_, b'+') => Kind::Simple,
            (_, b'-' | b'!') => Kind::Error,
            (_, b':') => Kind::Integer,
            (_, b',') => Kind::Double,
            (_, b'#') => Kind::Boolean,
            (_, b'(') => Kind::BigNumber,
            (_, b'=') => Kind::Verbatim,
            (_, b'>') => Kind::Push,
            (What::Blob, _) => Kind::Bulk,
            _ => Kind::Aggregate,
        }
    }
}

/// What was found at a place.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    Token(Token),
    /// The token is not whole: it ends at byte `bytes` of the buffer or later, and if it is a line,
    /// that does not end before `searched`.
    Wanted {
        bytes: usize,
        searched: usize,
    },
}

/// The token that begins at `at`; the bytes before `searched` are known not to end its line.
#[inline]
pub(super) fn token(
    buffer: &[u8],
    at: usize,
    searched: usize,
    bytes_max: usize,
) -> Result<Next, ProtocolError> {
    let Some(&tag) = buffer.get(at) else {
        return Ok(Next::Wanted { bytes: at + 1, searched: at });
    };
    match tag {
        b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => line(buffer, at, searched),
        b'$' | b'!' | b'=' | b'*' | b'%' | b'~' | b'>' | b'|' => {
            if buffer.get(at + 1) == Some(&b'?') {
                return Err(ProtocolError::StreamedReply);
            }
            match number(buffer, at + 1) {
                Number::Unfinished => Ok(Next::Wanted { bytes: buffer.len() + 1, searched: at }),
                Number::Malformed => Err(ProtocolError::MalformedReply(tag)),
                Number::Whole(count, from) => counted(buffer, at, count, from, bytes_max),
            }
        }
        _ => Err(ProtocolError::UnknownReply(tag)),
    }
}

#[inline]
fn line(buffer: &[u8], at: usize, searched: usize) -> Result<Next, ProtocolError> {
    let tag = buffer[at];
    let from = searched.max(at + 1);
    let unread = buffer.get(from..).unwrap_or_default();
    let Some(found) = memchr::memchr2(b'\r', b'\n', unread) else {
        return Ok(Next::Wanted { bytes: buffer.len() + 1, searched: buffer.len() });
    };
    let payload = at + 1..from + found;
    match (buffer[payload.end], buffer.get(payload.end + 1)) {
        (b'\r', None) => {
            return Ok(Next::Wanted { bytes: payload.end + 2, searched: payload.end });
        }
        (b'\r', Some(b'\n')) if is_well_formed(tag, &buffer[payload.clone()]) => {}
        _ => return Err(ProtocolError::MalformedReply(tag)),
    }
    let what = if tag == b'_' { What::Null } else { What::Line };
    let end = payload.end + 2;
    Ok(Next::Token(Token { tag, what, start: at, elements: 0, payload, end }))
}

/// Whether a line is written as its type asks.
#[inline]
fn is_well_formed(tag: u8, text: &[u8]) -> bool {
    match tag {
        b':' => is_whole_number(text) && text.len() <= 20,
        b'(' => is_whole_number(text),
        b'_' => text.is_empty(),
        b'#' => text == b"t" || text == b"f",
        b',' => {
            text.len() <= 400 && str::from_utf8(text).is_ok_and(|text| text.parse::<f64>().is_ok())
        }
        _ => true,
    }
}

#[inline]
fn is_whole_number(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// A token whose first line is a count: of bytes, of elements or of pairs.
#[inline]
fn counted(
    buffer: &[u8],
    at: usize,
    count: i64,
    from: usize,
    bytes_max: usize,
) -> Result<Next, ProtocolError> {
    let tag = buffer[at];
    if count == -1 && matches!(tag, b'$' | b'*') {
        let (what, payload) = (What::Null, from..from);
        let token = Token { tag, what, start: at, elements: 0, payload, end: from };
        return Ok(Next::Token(token));
    }
    let Ok(count) = u64::try_from(count) else { return Err(ProtocolError::MalformedReply(tag)) };
    if count > bytes_max as u64 {
        return Err(ProtocolError::TooBigReply); // an element has a byte at the least
    }
    let (what, elements) = match tag {
        b'$' | b'!' | b'=' => return blob(buffer, at, from, count as usize),
        b'|' => (What::Attribute, count * 2),
        b'%' => (What::Aggregate, count * 2),
        _ => (What::Aggregate, count),
    };
    Ok(Next::Token(Token { tag, what, start: at, elements, payload: from..from, end: from }))
}

#[inline]
fn blob(buffer: &[u8], at: usize, from: usize, length: usize) -> Result<Next, ProtocolError> {
    let tag = buffer[at];
    let payload = from..from + length;
    let end = payload.end + 2;
    let Some(ending) = buffer.get(payload.end..end) else {
        return Ok(Next::Wanted { bytes: end, searched: from });
    };
    // Verbatim text begins with three letters of its format and a colon.
    let has_format = tag != b'=' || (length >= 4 && buffer[from + 3] == b':');
    if ending != b"\r\n" || !has_format {
        return Err(ProtocolError::MalformedReply(tag));
    }
    Ok(Next::Token(Token { tag, what: What::Blob, start: at, elements: 0, payload, end }))
}

/// The tokens of replies that are known to be whole.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The next token, attributes too; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Token> {
        if self.at == self.bytes.len() {
            return None;
        }
        match token(self.bytes, self.at, self.at, usize::MAX) {
            Ok(Next::Token(token)) => {
                self.at = token.end;
                Some(token)
            }
            other => panic!("a reply that was scanned is whole, not {other:?}"),
        }
    }

    /// The next token that is neither an attribute nor within one.
    pub(super) fn next_of_value(&mut self) -> Option<Token> {
        loop {
            let token = self.next()?;
            if token.what != What::Attribute {
                return Some(token);
            }
            self.skip_elements(token.elements);
        }
    }

    /// Leaves out one element, with the attributes before it and within it.
    pub(super) fn skip_element(&mut self) {
        self.skip_elements(1);
    }

    fn skip_elements(&mut self, elements: u64) {
        let mut remaining = elements;
        while remaining > 0 {
            let token = self.next().expect("a reply that was scanned has all its elements");
            // An attribute comes before an element and is none itself.
            let itself = u64::from(token.what != What::Attribute);
            remaining = remaining - itself + token.elements;
        }
    }
}
