//! `XADD key *`: the time in an id is ours, and ids of a stream never go back.
//!
//! All duplicates take the same id because its time is written for them (`ms-*`). Redis goes on
//! with the time of the stream's last id while its clock is behind that; here the clock may be
//! behind because it stepped back, because the leader before had another one, or because somebody
//! gave a stream an id of the future. So the time is never before that of the last id, which is
//! known from what was added here, or else asked of one live duplicate, behind all writes sent
//! before (once for each stream and leader). Meanwhile the client is held: what it sends behind
//! `XADD` must find the entry.
//!
//! What changes a last id otherwise makes it unknown again: ids that clients choose, `XSETID`,
//! `RENAME` and its kin, transactions. **What is left**: within `MULTI` the time is that of `XADD`,
//! not of `EXEC`; if others add with a later time between the two, the transaction's `XADD` fails.

use std::collections::BTreeMap;

use evenkeel_ordered::{ConnectionKind, Consistency};
use xxhash_rust::xxh3::xxh3_128;

use super::Inner;
use super::access::unix_ms;
use super::types::{ClientId, LastIdQuestion, Owed, ParsedCommand};
use evenkeel_stores::resp::commands::{Class, Command, Rewrite};
use evenkeel_stores::resp::{databases, encode, reply, rewrite};

/// Streams whose last id is remembered: a few MB. Beyond, all are asked again.
const STREAMS_MAX: usize = 65_536;

/// The last ids of streams, as far as they are known; by the hash of the key.
#[derive(Debug, Default)]
pub(super) struct Streams {
    last: BTreeMap<u128, Last>,
    questions: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    /// The question of this number is on its way, and no write since has made its answer old.
    Asked(u64),
    /// No id has a later time than this.
    Known(u64),
}

impl Streams {
    fn ask(&mut self, key: u128) -> u64 {
        if self.last.len() >= STREAMS_MAX {
            self.last.clear();
        }
        self.questions += 1;
        self.last.insert(key, Last::Asked(self.questions));
        self.questions
    }

    /// `ms` is none where nobody answered.
    fn learn(&mut self, question: &LastIdQuestion, ms: Option<u64>) {
        if self.last.get(&question.key) == Some(&Last::Asked(question.number)) {
            match ms {
                Some(ms) => drop(self.last.insert(question.key, Last::Known(ms))),
                None => drop(self.last.remove(&question.key)),
            }
        }
    }

    fn is_known(&self, key: u128) -> bool {
        matches!(self.last.get(&key), Some(Last::Known(_)))
    }

    /// The time of the next id: the present, or that of the last id where that is later.
    fn next_ms(&mut self, key: u128, now_unix_ms: u64) -> u64 {
        match self.last.get_mut(&key) {
            Some(Last::Known(ms)) => {
                *ms = (*ms).max(now_unix_ms);
                *ms
            }
            _ => now_unix_ms,
        }
    }

    /// All keys are gone.
    pub(super) fn forget_all(&mut self) {
        self.last.clear();
    }

    /// A write may give this key another last id.
    pub(super) fn forget(&mut self, key: u128) {
        self.last.remove(&key);
    }
}

impl Inner {
    /// Somebody may have given this key another last id.
    pub(super) fn forget_last_id(&mut self, key: u128) {
        self.streams.forget(key);
    }

    /// Has `XADD key *` wait until the last id of its stream is known; whether it waits.
    #[must_use]
    pub(super) fn asks_last_id(
        &mut self,
        id: ClientId,
        (command, class): (&Command, Class),
        parsed: ParsedCommand<'_>,
    ) -> bool {
        if !matches!(class, Class::Rewritten(Rewrite::StreamAdd, _))
            || !rewrite::wants_id(parsed.arguments())
        {
            return false;
        }
        let Some(client) = self.client(id).filter(|client| client.is_known()) else { return false };
        let database = client.transaction.as_ref().map_or(client.database, |it| it.database);
        let key = xxh3_128(&databases::place(database, parsed.argument(1)));
        let session = client.session;
        // What cannot be asked cannot be written either, and the client is told by who writes.
        let Ok(shard) = self.shard_of(command, parsed) else { return false };
        if self.streams.is_known(key) || self.failure.is_some() || !self.leads() {
            return false;
        }
        let partition = self.map.partition(shard);
        let eligible = self.members.eligible(partition, Consistency::Strong, session);
        let least = eligible.ok().and_then(|eligible| {
            eligible.from.iter().min_by_key(|&server| self.members.owed(server))
        });
        let Some(server) = least else { return false };
        self.hold(id);
        let question = LastIdQuestion { client: id, key, number: self.streams.ask(key) };
        let owed = Owed::LastId { question: Box::new(question) };
        self.ask_in((server, ConnectionKind::Ordered, database), owed, |out| {
            encode::command(out, &[b"XINFO", b"STREAM", parsed.argument(1)]);
        });
        self.schedule();
        true
    }

    /// A duplicate said how a stream is; of none, or of no stream, it says an error.
    pub(super) fn last_id_answered(
        &mut self,
        server: usize,
        question: &LastIdQuestion,
        reply: &[u8],
    ) {
        self.members.answered(self.now, server, None);
        self.streams.learn(question, Some(least_ms(reply)));
        self.release(question.client);
    }

    /// Whoever was asked is gone: the command is taken again, and asks another.
    pub(super) fn last_id_lost(&mut self, question: &LastIdQuestion) {
        self.streams.learn(question, None);
        self.release(question.client);
    }

    /// The time that a command is rewritten with.
    pub(super) fn time_of(
        &mut self,
        database: u8,
        rewritten: Rewrite,
        parsed: ParsedCommand<'_>,
    ) -> u64 {
        let now = unix_ms();
        match rewritten {
            Rewrite::StreamAdd if rewrite::wants_id(parsed.arguments()) => {
                let place = databases::place(database, parsed.argument(1));
                self.streams.next_ms(xxh3_128(&place), now)
            }
            _ => self.expiring_from(rewritten, now),
        }
    }

    /// A write was sent: what it may have changed of last ids is no longer known.
    pub(super) fn forget_last_ids(
        &mut self,
        database: u8,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) {
        let is_other = match command.name {
            "xadd" => !rewrite::wants_id(parsed.arguments()),
            "xsetid" | "rename" | "renamenx" | "copy" | "move" | "restore" | "del" | "unlink" => {
                true
            }
            _ => false,
        };
        if is_other && !self.streams.last.is_empty() {
            for place in databases::places(database, command, parsed.arguments()) {
                self.streams.forget(xxh3_128(&place));
            }
        }
    }
}

/// The least time that a new id may have, by the answer to `XINFO STREAM`.
fn least_ms(reply: &[u8]) -> u64 {
    let mut elements = reply::elements(reply);
    while let (Some(name), Some(value)) = (elements.next(), elements.next()) {
        if reply::payload(name) != Some(b"last-generated-id") {
            continue;
        }
        let id = reply::payload(value).and_then(|id| str::from_utf8(id).ok()).unwrap_or_default();
        let (ms, number) = id.split_once('-').unwrap_or((id, "0"));
        let ms: u64 = ms.parse().unwrap_or_default();
        // After the last number of a millisecond comes the first of the next.
        let is_full = number.parse() == Ok(u64::MAX);
        return if is_full { ms.saturating_add(1) } else { ms };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(key: u128, number: u64) -> LastIdQuestion {
        LastIdQuestion { client: ClientId::of_test(), key, number }
    }

    #[test]
    fn the_time_of_an_id_never_goes_back() {
        let mut streams = Streams::default();
        assert_eq!(streams.next_ms(1, 500), 500, "nothing is known");
        let number = streams.ask(1);
        assert!(!streams.is_known(1));
        streams.learn(&question(1, number), Some(900));
        assert_eq!(streams.next_ms(1, 500), 900);
        assert_eq!(streams.next_ms(1, 1_000), 1_000);
        assert_eq!(streams.next_ms(1, 400), 1_000, "the clock stepped back");
        assert_eq!(streams.next_ms(2, 400), 400, "another stream");
    }

    #[test]
    fn an_answer_that_a_write_made_old_is_not_believed() {
        let mut streams = Streams::default();
        let first = streams.ask(1);
        streams.forget(1);
        streams.learn(&question(1, first), Some(900));
        assert!(!streams.is_known(1));
        let second = streams.ask(1);
        streams.learn(&question(1, first), Some(900));
        assert!(!streams.is_known(1));
        streams.learn(&question(1, second), Some(950));
        assert!(streams.is_known(1));
        let third = streams.ask(1);
        streams.learn(&question(1, third), None);
        assert!(!streams.is_known(1), "who was asked is gone");
    }

    #[test]
    fn the_last_id_is_found_in_every_form_of_the_answer() {
        let pair = |id: &str| format!("$17\r\nlast-generated-id\r\n${}\r\n{id}\r\n", id.len());
        let map = |id: &str| format!("%2\r\n$6\r\nlength\r\n:1\r\n{}", pair(id)).into_bytes();
        assert_eq!(least_ms(&map("1700-3")), 1_700);
        assert_eq!(least_ms(format!("*2\r\n{}", pair("1700-3")).as_bytes()), 1_700);
        assert_eq!(least_ms(&map("1700-18446744073709551615")), 1_701);
        let last = "18446744073709551615-18446744073709551615";
        assert_eq!(least_ms(&map(last)), u64::MAX, "it can take no more, as at Redis");
        assert_eq!(least_ms(b"-ERR no such key\r\n"), 0);
        assert_eq!(least_ms(&map("what")), 0);
    }
}
