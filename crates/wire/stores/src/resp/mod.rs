//! RESP2 and RESP3, the protocol of Redis, as bytes: no sockets, no clocks, no store.
//!
//! | file | what it knows |
//! |---|---|
//! | [`request`] | where a client's command ends and what its arguments are |
//! | [`reply`] | where a server's reply ends, what it is, and what it looks like to a RESP2 client |
//! | [`encode`] | the replies and commands that are written here |
//! | [`commands`] | what every command does to which keys, and whether it may be duplicated |
//! | [`rewrite`] | the form of a command whose effect is the same at every server |
//! | [`deadlines`] | what writes make of the deadlines of keys |
//! | [`pause`] | `CLIENT PAUSE`: which commands are kept back |
//! | [`waiting`] | what commands that wait wait for, and how long |
//! | [`channels`] | who listens to what, and messages |
//! | [`cluster`] | who serves which slots, as Redis Cluster tells it |
//! | [`glob`] | patterns, as Redis matches them |
//! | [`hash`] | which shard a key belongs to |
//! | [`info`] | the text of `INFO`, of several servers as of one |
//! | [`settings`] | which settings clients may see and change |
//! | [`connections`] | `CLIENT`: names, filters, and the lines of its list |
//! | [`databases`] | which database a key is of, and how it is chosen |
//! | [`replication`] | what a command has done, as a server tells its replicas |
//! | [`backlog`] | what was written between which watermarks, by what a server keeps of that |
//! | [`scripts`] | the texts of scripts by their names |
//!
//! **Untrusted bytes.** Nothing here panics, recurses or allocates by what a peer *announces*: a
//! command or reply is found in the bytes that came, and both ends are bounded by limits. Parsers
//! remember how far they got, so that a large value that comes in a thousand pieces is read once.
//!
//! **Stricter than Redis** in two places, both on purpose: the two bytes after a bulk string must
//! be `CR LF` (Redis skips them unseen, and two programs that disagree about where a command ends
//! are how requests are smuggled), and an inline command may not hold a NUL (Redis drops what
//! follows).
//!
//! **Source**: the protocol specifications RESP2 and RESP3 of redis.io; `COMMAND` of Redis 7.0.15,
//! which the tests compare the table with.

pub mod backlog;
pub mod channels;
pub mod cluster;
pub mod commands;
pub mod connections;
pub mod databases;
pub mod deadlines;
pub mod encode;
pub mod functions;
pub mod glob;
pub mod hash;
pub mod info;
mod inline;
pub mod key_events;
pub mod locate;
pub mod merge;
pub mod monitor;
pub mod pause;
pub mod replication;
pub mod reply;
pub mod request;
pub mod rewrite;
pub mod script_calls;
pub mod scripts;
pub mod settings;
mod sha1;
#[cfg(test)]
mod tests;
pub mod waiting;
pub mod whole;

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Protocol {
    /// What a connection speaks until it says `HELLO 3`.
    #[default]
    Resp2,
    /// Maps, sets, doubles, one null, attributes and pushes.
    Resp3,
}

/// Bytes that are no RESP, or more than the limits: the connection is to be closed.
///
/// Written with [`Display`](std::fmt::Display) without the leading `ERR`;
/// [`encode::protocol_error`] writes the reply that Redis would give before it closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// `*` without a number of arguments, or with more than the limit.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// `$` without a length, or with more bytes than the limit.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// Something other than `$` where an argument of an array must begin.
    #[error("Protocol error: expected '$', got '{}'", printable(*.0))]
    ExpectedDollar(u8),
    /// An argument was not followed by `CR LF`.
    #[error("Protocol error: expected CR LF after a bulk string")]
    UnendedBulk,
    /// The arguments of one command have more bytes than the limit.
    #[error("Protocol error: too big request")]
    TooBigRequest,
    /// An inline command longer than the limit.
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    /// An inline command whose quotes do not match.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// An inline command with a NUL in it.
    #[error("Protocol error: NUL in an inline request")]
    NulInline,
    /// The words of HTTP: a browser was talked into sending them, or a wrong port was asked.
    #[error("Protocol error: HTTP came, expected RESP (is this the right port?)")]
    Http,
    /// A reply begins with a byte that begins no reply.
    #[error(
        "Protocol error: a reply begins with '{}', expected one of + - : $ * _ , # ( ! = % ~ > | \
         (is it a RESP server?)",
        printable(*.0)
    )]
    UnknownReply(u8),
    /// A reply of this type is not written as its type asks.
    #[error("Protocol error: malformed reply of type '{}'", printable(*.0))]
    MalformedReply(u8),
    /// A reply of unknown length (`$?`, `*?`), which no Redis server sends.
    #[error("Protocol error: a reply of unknown length came, expected one with a length")]
    StreamedReply,
    /// A reply nested deeper than the limit.
    #[error("Protocol error: a reply is nested too deep")]
    TooDeepReply,
    /// A reply with more bytes than the limit.
    #[error("Protocol error: a reply is too big")]
    TooBigReply,
}

/// A byte of a peer as one character of an error: never one that ends the line.
fn printable(byte: u8) -> char {
    if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '?' }
}

/// A length or count that ends with `CR LF`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Number {
    /// Its value, and where the next byte after it stands.
    Whole(i64, usize),
    /// More bytes are needed.
    Unfinished,
    Malformed,
}

/// More digits are no length of anything.
const DIGITS_MAX: usize = 18;

/// Reads the number at `from`, in the one way it may be written: no `+`, no leading zeros.
#[inline]
fn number(buffer: &[u8], from: usize) -> Number {
    let bytes = buffer.get(from..).unwrap_or_default();
    let first = usize::from(bytes.first() == Some(&b'-'));
    let mut value = 0_i64;
    let mut at = first;
    loop {
        match bytes.get(at) {
            Some(&digit @ b'0'..=b'9') if at - first < DIGITS_MAX => {
                value = value * 10 + i64::from(digit - b'0');
                at += 1;
            }
            Some(b'\r') => break,
            Some(_) => return Number::Malformed,
            None => return Number::Unfinished,
        }
    }
    let is_canonical = match at - first {
        0 => false,
        1 => bytes[first] != b'0' || first == 0,
        _ => bytes[first] != b'0',
    };
    match bytes.get(at + 1) {
        _ if !is_canonical => Number::Malformed,
        None => Number::Unfinished,
        Some(b'\n') => Number::Whole(if first == 1 { -value } else { value }, from + at + 2),
        Some(_) => Number::Malformed,
    }
}
