//! Key events: what Redis publishes when a key changes (`notify-keyspace-events`).
//!
//! A server publishes the same event on up to two channels: `__keyspace@0__:KEY` says `EVENT`, and
//! `__keyevent@0__:EVENT` says `KEY`. Source:
//! <https://redis.io/docs/latest/develop/use/keyspace-notifications/>

use super::commands::Channels;

/// What is subscribed at a server that is asked for its events.
pub const PATTERNS: [&[u8]; 2] = [b"__keyspace@*__:*", b"__keyevent@*__:*"];

const SPACE: &[u8] = b"__keyspace@";
const EVENT: &[u8] = b"__keyevent@";

/// Whether somebody who subscribes to this name may want key events.
pub fn may_concern(kind: Channels, name: &[u8]) -> bool {
    match kind {
        Channels::Plain => name.starts_with(SPACE) || name.starts_with(EVENT),
        Channels::Patterns => {
            let end = name.iter().position(|byte| b"*?[\\".contains(byte));
            let literal = &name[..end.unwrap_or(name.len())];
            let may_be = |known: &[u8]| known.starts_with(literal) || literal.starts_with(known);
            may_be(SPACE) || may_be(EVENT)
        }
        Channels::Sharded => false,
    }
}

/// One event, as one of its two messages tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyEvent<'a> {
    /// Of which database the key is.
    pub database: u8,
    /// The key.
    pub key: &'a [u8],
    /// What became of it: `set`, `expired`, …
    pub event: &'a [u8],
    /// It was told on the channel of the key, and not on that of the event.
    pub is_of_key: bool,
}

impl<'a> KeyEvent<'a> {
    /// Reads a message; `None` where it is no key event.
    pub fn read(channel: &'a [u8], text: &'a [u8]) -> Option<Self> {
        let (is_of_key, rest) = match channel.strip_prefix(SPACE) {
            Some(rest) => (true, rest),
            None => (false, channel.strip_prefix(EVENT)?),
        };
        let end = memchr::memmem::find(rest, b"__:")?;
        let database = str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
        let name = &rest[end + 3..];
        let (key, event) = if is_of_key { (name, text) } else { (text, name) };
        Some(Self { database, key, event, is_of_key })
    }

    /// The channel of its message, and what that says.
    pub fn message(&self) -> (Vec<u8>, &'a [u8]) {
        let (start, name, text) = match self.is_of_key {
            true => (SPACE, self.key, self.event),
            false => (EVENT, self.event, self.key),
        };
        let database = self.database.to_string();
        ([start, database.as_bytes(), b"__:", name].concat(), text)
    }
}

/// Which events a server tells, as far as expiry is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Told {
    /// On the channels of keys (`K`).
    pub of_keys: bool,
    /// On the channels of events (`E`).
    pub of_events: bool,
    /// `del` (`g`).
    pub generic: bool,
    /// `expired` (`x`).
    pub expired: bool,
}

impl Told {
    /// Reads a value of `notify-keyspace-events`.
    pub fn read(value: &[u8]) -> Self {
        let has = |flag: u8| value.contains(&flag);
        let (generic, expired) = (has(b'g') || has(b'A'), has(b'x') || has(b'A'));
        Self { of_keys: has(b'K'), of_events: has(b'E'), generic, expired }
    }

    /// On how many channels an event is told.
    pub fn channels(self) -> u8 {
        u8::from(self.of_keys) + u8::from(self.of_events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_want_events_is_known_by_the_name() {
        use Channels::{Patterns, Plain, Sharded};
        for (kind, name) in [
            (Plain, "__keyspace@0__:a"),
            (Plain, "__keyevent@3__:set"),
            (Patterns, "*"),
            (Patterns, "__key*"),
            (Patterns, "__keyevent@*__:expired"),
            (Patterns, "[_]*"),
            (Patterns, ""),
        ] {
            assert!(may_concern(kind, name.as_bytes()), "{name}");
        }
        for (kind, name) in [
            (Plain, "__key"),
            (Plain, "news"),
            (Patterns, "news.*"),
            (Patterns, "__keyring*"),
            (Sharded, "__keyspace@0__:a"),
        ] {
            assert!(!may_concern(kind, name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn both_messages_of_an_event_are_read_and_written() {
        let event = KeyEvent { database: 9, key: b"a__:b", event: b"del", is_of_key: true };
        assert_eq!(KeyEvent::read(b"__keyspace@9__:a__:b", b"del"), Some(event));
        assert_eq!(event.message(), (b"__keyspace@9__:a__:b".to_vec(), &b"del"[..]));
        let other = KeyEvent { is_of_key: false, ..event };
        assert_eq!(KeyEvent::read(b"__keyevent@9__:del", b"a__:b"), Some(other));
        assert_eq!(other.message(), (b"__keyevent@9__:del".to_vec(), &b"a__:b"[..]));
        for channel in ["news", "__keyspace@0__", "__keyspace@x__:a", "__keyspace@999__:a"] {
            assert_eq!(KeyEvent::read(channel.as_bytes(), b"del"), None, "{channel}");
        }
    }

    #[test]
    fn flags_are_read_as_redis_reads_them() {
        let told = Told::read(b"AKE");
        assert!(told.of_keys && told.of_events && told.generic && told.expired);
        assert_eq!(told.channels(), 2);
        let told = Told::read(b"Ex");
        assert!(!told.of_keys && told.of_events && !told.generic && told.expired);
        assert_eq!(Told::read(b""), Told::default());
    }
}
