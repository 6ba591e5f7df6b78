//! What one duplicate says of a key that is compared with the others, and replies in short.
//!
//! Nothing is remembered of values but digests. Replies that only *may* differ between servers with
//! equal data (the order of a set, an estimate) are told apart here: by type for keys
//! ([`Kind`]), by command for clients' reads ([`is_exact`]).

use evenkeel_ordered::Statement;
use xxhash_rust::xxh3::xxh3_64;

use evenkeel_stores::resp::reply::{elements, integer, payload};
use evenkeel_stores::resp::request::RequestParser;
use evenkeel_stores::resp::{commands, databases, functions};

/// Of longer replies only both ends are compared.
const REPLY_END_BYTES: usize = 512;
/// What replies of at most seven bytes never have in their digest, which is below 8 << 56.
const HASHED: u64 = 1 << 63;

/// What is asked of a key that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Of no key: whether the epoch is there.
    Mark,
    /// Its type.
    Kind,
    /// When it expires.
    Deadline,
    /// How much memory it takes.
    Bytes,
    /// What it holds, or of a long one its length.
    Value,
    /// All libraries of functions, which are compared as one key is.
    Libraries,
}

/// What `TYPE` says of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is no such key.
    None,
    /// `string`
    String,
    /// `list`
    List,
    /// `set`
    Set,
    /// `zset`
    SortedSet,
    /// `hash`
    Hash,
    /// `stream`
    Stream,
    /// A type of a module, or of a newer Redis.
    Other,
    /// No key: the libraries of functions.
    Libraries,
}

/// What a duplicate has said of a key.
#[derive(Debug, Clone, Copy)]
pub struct Said {
    /// Its number.
    pub server: usize,
    /// The type of the key.
    pub kind: Kind,
    expires_unix_ms: i64,
    /// Bytes of memory that the key takes there; -1: not said.
    pub bytes: i64,
    value: u64,
    /// It could not say.
    pub is_void: bool,
}

impl Said {
    /// Before it has said anything.
    pub const fn nothing(server: usize) -> Self {
        let kind = Kind::None;
        Self { server, kind, expires_unix_ms: -2, bytes: -1, value: 0, is_void: false }
    }

    /// It answers a question.
    pub fn hear(&mut self, question: Question, reply: &[u8]) {
        let is_error = matches!(reply.first(), Some(b'-' | b'!'));
        match question {
            Question::Bytes => self.bytes = integer(reply).unwrap_or(-1),
            _ if is_error => self.is_void = true,
            Question::Kind => self.kind = Kind::of(payload(reply).unwrap_or_default()),
            Question::Deadline => self.expires_unix_ms = integer(reply).unwrap_or(-1),
            Question::Value => self.value = self.kind.digest(reply),
            Question::Libraries => {
                (self.kind, self.value) = (Kind::Libraries, xxh3_64(&functions::listed(reply)));
            }
            Question::Mark => {}
        }
    }

    /// What is compared of it: `is_of_value`, or only the type.
    pub fn statement(&self, is_of_value: bool) -> Statement {
        let Self { server, expires_unix_ms, .. } = *self;
        let is_known = is_of_value || self.kind == Kind::Libraries;
        let digest = if is_known { self.value } else { self.kind as u64 };
        Statement { server, digest, expires_unix_ms }
    }
}

impl Kind {
    fn of(name: &[u8]) -> Self {
        match name {
            b"none" => Self::None,
            b"string" => Self::String,
            b"list" => Self::List,
            b"set" => Self::Set,
            b"zset" => Self::SortedSet,
            b"hash" => Self::Hash,
            b"stream" => Self::Stream,
            _ => Self::Other,
        }
    }

    /// What is asked for the value: all of it, or as much as does not take long.
    pub fn question(self, key: &[u8], is_small: bool) -> Vec<&[u8]> {
        match (self, is_small) {
            (Self::None | Self::Other | Self::Libraries, _) => Vec::new(),
            (Self::String, _) => vec![b"GETRANGE", key, b"-65536", b"-1"],
            (Self::List, true) => vec![b"LRANGE", key, b"0", b"-1"],
            (Self::List, false) => vec![b"LLEN", key],
            (Self::Set, true) => vec![b"SMEMBERS", key],
            (Self::Set, false) => vec![b"SCARD", key],
            (Self::SortedSet, true) => vec![b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
            (Self::SortedSet, false) => vec![b"ZCARD", key],
            (Self::Hash, true) => vec![b"HGETALL", key],
            (Self::Hash, false) => vec![b"HLEN", key],
            (Self::Stream, true) => vec![b"XRANGE", key, b"-", b"+"],
            (Self::Stream, false) => vec![b"XLEN", key],
        }
    }

    /// Of sets and hashes the order does not count. Estimates of cardinality are equal in other
    /// bytes.
    fn digest(self, reply: &[u8]) -> u64 {
        let is_whole = matches!(reply.first(), Some(b'*' | b'~' | b'%'));
        let mut parts = elements(reply);
        let mut all: u64 = 0;
        match self {
            Self::Set if is_whole => parts.for_each(|it| all = all.wrapping_add(xxh3_64(it))),
            Self::Hash if is_whole => {
                while let (Some(field), Some(value)) = (parts.next(), parts.next()) {
                    let both = xxh3_64(field).rotate_left(1) ^ xxh3_64(value);
                    all = all.wrapping_add(xxh3_64(&both.to_le_bytes()));
                }
            }
            Self::String if payload(reply).is_some_and(|it| it.starts_with(b"HYLL")) => {}
            _ => all = xxh3_64(reply),
        }
        all
    }
}

/// Whether servers with equal data give the same reply to a read, byte by byte.
pub fn is_exact(command: &[u8]) -> bool {
    let command = databases::within(command);
    let mut parser = RequestParser::default();
    let Ok(Some(_)) = parser.parse(command) else { return false };
    // Of newer commands nobody says whether they do.
    let Some(known) = commands::lookup(parser.argument(command, 0)) else { return false };
    let differs = [
        "smembers",
        "sunion",
        "sinter",
        "sdiff",
        "srandmember",
        "zrandmember",
        "hgetall",
        "hkeys",
        "hvals",
        "hrandfield",
        "keys",
        "randomkey",
        "dbsize",
        "sort_ro",
        "ttl",
        "pttl",
        "object",
        "memory",
        "dump",
        "xinfo",
        "xpending",
        "eval_ro",
        "evalsha_ro",
        "fcall_ro",
        "function",
    ];
    !differs.contains(&known.name)
}

/// A reply in short, whatever its length. Of up to seven bytes it is the reply itself, with its
/// length. So two of these are never taken for equal, nor one for a longer one.
#[inline]
pub fn digest(reply: &[u8]) -> u64 {
    let length = reply.len() as u64;
    match (reply.first_chunk(), reply.last_chunk()) {
        _ if length > 7 => HASHED | hash(reply),
        (Some(first), Some(last)) => {
            let [first, last] = [first, last].map(|four| u32::from_le_bytes(*four));
            length << 56 | u64::from(last >> 8) << 32 | u64::from(first)
        }
        _ => reply.iter().fold(length, |all, &byte| all << 8 | u64::from(byte)), // below 4 << 24
    }
}

fn hash(reply: &[u8]) -> u64 {
    if reply.len() <= 2 * REPLY_END_BYTES {
        return xxh3_64(reply);
    }
    let ends = [&reply[..REPLY_END_BYTES], &reply[reply.len() - REPLY_END_BYTES..]];
    let [head, tail] = ends.map(xxh3_64);
    head ^ tail.rotate_left(1) ^ reply.len() as u64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn short_replies_are_told_apart_for_certain_and_from_all_longer_ones() {
        let parts: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"\x01", b"\xff", b"+O"];
        let mut replies: HashSet<Vec<u8>> = HashSet::new();
        for first in parts {
            for second in parts {
                for third in parts {
                    replies.insert([first, second, third, b"\r\n"].concat());
                    replies.insert([first, second, third].concat());
                }
            }
        }
        replies.retain(|it| it.len() <= 7);
        let short: HashSet<u64> = replies.iter().map(|it| digest(it)).collect();
        assert_eq!(short.len(), replies.len());
        assert!(short.iter().all(|it| it & HASHED == 0));
        assert_eq!(digest(&[0xff; 7]) & HASHED, 0);
        for length in [8, 9, 1_024, 1_025, 9_000] {
            assert_ne!(digest(&vec![0; length]) & HASHED, 0);
        }
    }
}
