//! Where a server's reply ends, what it is, and what a client of RESP2 gets to see of it.
//!
//! [`ReplyScanner::scan`] finds the first whole reply of any type of RESP2 and RESP3, however it is
//! nested. Replies of unknown length (`$?`) are refused: no Redis server sends them, and their end
//! cannot be bounded. A scanner keeps the counts of the aggregates that it is inside of, at most as
//! many as the depth limit, and which byte it waits for: a reply that comes in pieces is read once.
//!
//! **Attributes** (`|`) belong to the reply after them. Those before a whole reply are offered
//! apart, [`ReplyScanner::attribute`]: agents of ours say there how busy their store is. A client
//! never sees one it did not ask for: several client libraries take it for the reply itself.

mod convert;
mod token;

use std::ops::Range;

pub use convert::{Shape, down_convert, strip_attributes};
use token::{Token, Tokens, What, token};

use super::{ProtocolError, encode};

/// How large a reply may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyLimits {
    /// Bytes of a whole reply with its attributes.
    pub bytes_max: usize,
    /// Aggregates within aggregates.
    pub depth_max: usize,
}

/// The deepest reply of a server is that of a script: Lua's stack ends it there, at 8,000
/// (`LUAI_MAXCSTACK`).
const DEPTH_MAX: usize = 8_192;

impl Default for ReplyLimits {
    fn default() -> Self {
        Self { bytes_max: 512 << 20, depth_max: DEPTH_MAX }
    }
}

/// What a reply is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `+`: a word.
    Simple,
    /// `-` or `!`: the command failed.
    Error,
    /// `:`
    Integer,
    /// `$`: bytes.
    Bulk,
    /// `_`, `$-1` or `*-1`.
    Null,
    /// `,`
    Double,
    /// `#`
    Boolean,
    /// `(`
    BigNumber,
    /// `=`: text with its format.
    Verbatim,
    /// `*`, `%` or `~`.
    Aggregate,
    /// `>`: no reply to any command.
    Push,
}

/// An aggregate that is being read.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Elements that are still to come.
    remaining: u64,
    is_attribute: bool,
}

/// Finds replies in what a server sends; one per connection.
#[derive(Debug)]
pub struct ReplyScanner {
    limits: ReplyLimits,
    /// The first byte that was not understood yet.
    at: usize,
    /// Before the buffer has so many bytes there is no use in looking.
    wanted: usize,
    /// The line that begins at `at` does not end before this byte.
    searched: usize,
    open: Vec<Open>,
    kind: Option<Kind>,
    attribute: Range<usize>,
    has_nested_attributes: bool,
    is_done: bool,
}

impl Default for ReplyScanner {
    fn default() -> Self {
        Self::new(ReplyLimits::default())
    }
}

impl ReplyScanner {
    /// A scanner that has read nothing.
    pub fn new(limits: ReplyLimits) -> Self {
        Self {
            limits,
            at: 0,
            wanted: 1,
            searched: 0,
            open: Vec::new(),
            kind: None,
            attribute: 0..0,
            has_nested_attributes: false,
            is_done: false,
        }
    }

    /// The length in bytes of the reply that `buffer` begins with, attributes before it included;
    /// `None` while it is not whole. Then the next call gets the same bytes and more; after a
    /// length, the next call gets the bytes after it.
    ///
    /// # Errors
    /// When the bytes are no reply or larger than the limits; the connection is then of no use.
    #[inline]
    pub fn scan(&mut self, buffer: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.is_done {
            self.reset();
        }
        while buffer.len() >= self.wanted {
            let limit = self.limits.bytes_max;
            let next = token(buffer, self.at, self.searched, limit)?;
            let token = match next {
                token::Next::Token(token) => token,
                token::Next::Wanted { bytes, searched } => {
                    self.wanted = bytes;
                    self.searched = searched;
                    break;
                }
            };
            self.at = token.end;
            self.wanted = token.end + 1;
            self.searched = token.end;
            if self.at > limit {
                return Err(ProtocolError::TooBigReply);
            }
            if self.take(&token)? {
                self.is_done = true;
                return Ok(Some(self.at));
            }
        }
        if self.wanted > self.limits.bytes_max {
            return Err(ProtocolError::TooBigReply);
        }
        Ok(None)
    }

    /// Forgets a reply that was not whole.
    pub fn reset(&mut self) {
        self.at = 0;
        self.wanted = 1;
        self.searched = 0;
        self.open.clear();
        self.kind = None;
        self.attribute = 0..0;
        self.has_nested_attributes = false;
        self.is_done = false;
    }

    /// Takes one token; whether the reply is whole with it.
    #[inline]
    fn take(&mut self, token: &Token) -> Result<bool, ProtocolError> {
        let is_attribute = token.what == What::Attribute;
        if self.open.is_empty() && !is_attribute {
            self.kind = Some(token.kind());
        }
        if is_attribute && !self.open.is_empty() {
            self.has_nested_attributes = true;
        }
        if token.elements > 0 {
            if self.open.len() >= self.limits.depth_max {
                return Err(ProtocolError::TooDeepReply);
            }
            self.open.push(Open { remaining: token.elements, is_attribute });
            return Ok(false);
        }
        if is_attribute {
            self.end_attribute();
            return Ok(false);
        }
        Ok(self.end_element())
    }

    /// An element is whole, and with it perhaps those it is the last of.
    #[inline]
    fn end_element(&mut self) -> bool {
        while let Some(innermost) = self.open.last_mut() {
            innermost.remaining -= 1;
            if innermost.remaining > 0 {
                return false;
            }
            let is_attribute = innermost.is_attribute;
            self.open.pop();
            if is_attribute {
                self.end_attribute();
                return false;
            }
        }
        true
    }

    fn end_attribute(&mut self) {
        if self.open.is_empty() {
            self.attribute.end = self.at;
        }
    }

    /// What the reply is that was found last; `None` before one was.
    pub fn kind(&self) -> Option<Kind> {
        self.kind.filter(|_| self.is_done)
    }

    /// Where the attributes stand that came before the reply; empty when none came. There is more
    /// than one map when the server sent several.
    pub fn attribute(&self) -> Range<usize> {
        self.attribute.clone()
    }

    /// Where the reply itself stands, without the attributes before it; empty before one was found.
    pub fn body(&self) -> Range<usize> {
        if self.is_done { self.attribute.end..self.at } else { 0..0 }
    }

    /// Whether attributes stand within the reply too: [`strip_attributes`] takes them out.
    pub fn has_nested_attributes(&self) -> bool {
        self.has_nested_attributes
    }
}

/// The elements of a whole array, set, push, map or attribute: keys and values in turn. Of anything
/// else there are none. Each element has the attributes before it with it.
///
/// # Panics
/// While iterating, when this is no whole reply that [`ReplyScanner`] found.
pub fn elements(reply: &[u8]) -> Elements<'_> {
    let mut tokens = Tokens::new(reply);
    let remaining = tokens.next().map_or(0, |token| token.elements);
    Elements { tokens, remaining }
}

/// The elements of an aggregate, each as a reply of its own.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    tokens: Tokens<'a>,
    remaining: u64,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.remaining = self.remaining.checked_sub(1)?;
        let start = self.tokens.at();
        self.tokens.skip_element();
        Some(&self.tokens.bytes()[start..self.tokens.at()])
    }
}

/// An array without its last element, such as the answer to an `EXEC` that ended with a watermark.
/// What is no array stays as it is.
///
/// # Panics
/// When this is no whole reply that [`ReplyScanner`] found.
pub fn without_last(reply: &[u8]) -> Vec<u8> {
    let elements: Vec<&[u8]> = elements(reply).collect();
    let Some((_, rest)) = elements.split_last() else { return reply.to_vec() };
    let mut out = Vec::with_capacity(reply.len());
    encode::array(&mut out, rest.len());
    rest.iter().for_each(|element| out.extend_from_slice(element));
    out
}

/// Whether this is an error, or an array with one.
///
/// # Panics
/// When this is no whole reply that [`ReplyScanner`] found.
pub fn has_failed(reply: &[u8]) -> bool {
    let is_error = |it: &[u8]| matches!(it.first(), Some(b'-' | b'!'));
    is_error(reply) || elements(reply).any(is_error)
}

/// The value of a field of a map, or of an array of names and values.
///
/// # Panics
/// When this is no whole reply that [`ReplyScanner`] found.
pub fn field<'a>(map: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut parts = elements(map);
    while let (Some(known), Some(value)) = (parts.next(), parts.next()) {
        if payload(known) == Some(name) {
            return Some(value);
        }
    }
    None
}

/// The bytes of a whole reply that is not an aggregate: of a bulk string what it holds, of an error
/// or another line what stands after its type. Of a null and of aggregates nothing.
///
/// # Panics
/// When this is no whole reply that [`ReplyScanner`] found.
pub fn payload(reply: &[u8]) -> Option<&[u8]> {
    let token = Tokens::new(reply).next()?;
    let has_payload = matches!(token.what, What::Line | What::Blob);
    has_payload.then(|| &reply[token.payload])
}

/// The value of an integer reply.
pub fn integer(reply: &[u8]) -> Option<i64> {
    let digits = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Whose fault an error is: this decides what a failed duplicated write means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// The command's: every server with the same data says the same, and no data changed.
    Command,
    /// The server's own condition (memory, disk, loading, rights): another server may have done
    /// what this one refused, so the two may differ from here on.
    Server,
}

/// Codes of errors that tell of the server and not of the command. **Source**: the shared errors of
/// Redis 7.0.
const SERVER_CODES: [&[u8]; 17] = [
    b"ASK",
    b"BUSY",
    b"CLUSTERDOWN",
    b"DENIED",
    b"INPROG",
    b"LOADING",
    b"MASTERDOWN",
    b"MISCONF",
    b"MOVED",
    b"NOAUTH",
    b"NOGOODSLAVE",
    b"NOPERM",
    b"NOREPLICAS",
    b"OOM",
    b"READONLY",
    b"TRYAGAIN",
    b"WRONGPASS",
];

/// Whose fault an error reply is; `None` when it is no error.
///
/// `EXECABORT` says only that an earlier command of the transaction was refused; ask that one's
/// reply. It counts as the server's, as does a command that it does not know.
///
/// # Panics
/// When this is no whole reply that [`ReplyScanner`] found.
pub fn blame(reply: &[u8]) -> Option<Blame> {
    let token = Tokens::new(reply).next()?;
    if token.kind() != Kind::Error {
        return None;
    }
    let text = &reply[token.payload];
    let code = text.split(|&byte| byte == b' ').next().unwrap_or_default();
    let is_server = SERVER_CODES.contains(&code)
        || code == b"EXECABORT"
        || text.starts_with(b"ERR unknown command")
        || text.starts_with(b"ERR max number of clients");
    Some(if is_server { Blame::Server } else { Blame::Command })
}
