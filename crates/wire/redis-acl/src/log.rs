//! `ACL LOG`: what was refused lately.

use std::collections::VecDeque;

use super::Denied;
use evenkeel_stores::resp::{Protocol, encode};

/// `acllog-max-len`
const ENTRIES_MAX: usize = 128;
/// Entries alike within this time are one, in milliseconds.
const ALIKE_MS: u64 = 60_000;
/// Bytes of a name that are kept.
const OBJECT_BYTES_MAX: usize = 256;

/// Where a command stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// By itself.
    Alone,
    /// Between `MULTI` and `EXEC`.
    Transaction,
}

#[derive(Debug)]
struct Entry {
    count: i64,
    reason: &'static str,
    context: Context,
    object: Vec<u8>,
    user: String,
    /// Milliseconds since 1970.
    at: u64,
    client: String,
}

/// What was refused, the latest first.
#[derive(Debug, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
}

impl Log {
    /// A user was refused something. `client` is its line of `CLIENT LIST`.
    pub fn denied(
        &mut self,
        (user, client): (&str, String),
        (denied, context): (&Denied, Context),
        now_unix_ms: u64,
    ) {
        let object: &[u8] = match denied {
            Denied::Command(name) => name.as_bytes(),
            Denied::Script => b"eval",
            Denied::Key(name) | Denied::Channel(name) => name,
            Denied::Sort(option) => option.as_bytes(),
        };
        self.note(denied.kind(), context, object, (user, client), now_unix_ms);
    }

    /// Somebody said what is no password of this user.
    pub fn unknown(&mut self, (user, client): (&str, String), command: &str, now_unix_ms: u64) {
        let object = command.as_bytes();
        self.note("auth", Context::Alone, object, (user, client), now_unix_ms);
    }

    fn note(
        &mut self,
        reason: &'static str,
        context: Context,
        object: &[u8],
        (user, client): (&str, String),
        at: u64,
    ) {
        let object = &object[..object.len().min(OBJECT_BYTES_MAX)];
        let user: String = user.chars().take(OBJECT_BYTES_MAX).collect();
        let alike = self.entries.iter().position(|it| {
            (it.reason, it.context, &*it.object, &it.user) == (reason, context, object, &user)
                && at.saturating_sub(it.at) < ALIKE_MS
        });
        let before = alike.and_then(|index| self.entries.remove(index));
        let count = before.map_or(1, |it| it.count + 1);
        let object = object.to_vec();
        self.entries.push_front(Entry { count, reason, context, object, user, at, client });
        self.entries.truncate(ENTRIES_MAX);
    }

    /// `ACL LOG RESET`
    pub fn reset(&mut self) {
        self.entries.clear();
    }

    /// The answer to `ACL LOG count`.
    pub fn write(&self, count: usize, now_unix_ms: u64, protocol: Protocol, out: &mut Vec<u8>) {
        encode::array(out, self.entries.len().min(count));
        for entry in self.entries.iter().take(count) {
            encode::map(out, 7, protocol);
            encode::bulk(out, b"count");
            encode::integer(out, entry.count);
            let context = match entry.context {
                Context::Alone => "toplevel",
                Context::Transaction => "multi",
            };
            for (name, text) in [
                ("reason", entry.reason.as_bytes()),
                ("context", context.as_bytes()),
                ("object", &entry.object),
                ("username", entry.user.as_bytes()),
            ] {
                encode::bulk(out, name.as_bytes());
                encode::bulk(out, text);
            }
            encode::bulk(out, b"age-seconds");
            let age = now_unix_ms.saturating_sub(entry.at) as f64 / 1e3;
            encode::double(out, age, protocol);
            encode::bulk(out, b"client-info");
            encode::bulk(out, entry.client.as_bytes());
        }
    }
}
