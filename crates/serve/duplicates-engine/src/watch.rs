//! `WATCH`: `EXEC` does nothing if a watched key was written since.
//!
//! Writes get their places here, one after the other, and so does `EXEC`, which compares in the
//! turn in which it gets its place ([`Watches`]): nothing comes between. A write counts when it is
//! sent, whatever it changes.
//!
//! **Reads between `WATCH` and `EXEC`** must not be older than `WATCH`: it lifts the session to all
//! writes that its keys' partitions were sent, and `eventual` reads respect that while the client
//! watches.
//!
//! **Expiry** is no write. So `WATCH` asks one duplicate for the deadlines of its keys, behind all
//! writes. A deadline that is set later is a write.

use evenkeel_ordered::{Consistency, Watched, Watches};
use xxhash_rust::xxh3::xxh3_64;

use super::Inner;
use super::types::{Asked, ClientId, Form, Inquiry, ParsedCommand};
use evenkeel_stores::resp::commands::{self, Class, Command, Whole};
use evenkeel_stores::resp::reply::{Shape, integer};
use evenkeel_stores::resp::{databases, encode};
use evenkeel_stores::store::keys::RESERVED;

/// Keys that one client may watch.
const KEYS_MAX: usize = 1_024;

const NESTED: &str = "ERR WATCH inside MULTI is not allowed";
const TOO_MANY: &str = "ERR a connection may watch at most 1024 keys here";

/// What a client watches, and the `WATCH` that is not answered yet.
#[derive(Debug)]
pub(super) struct Watching {
    watched: Watched,
    /// Answers that its last `WATCH` waits for, and its number.
    asked: usize,
    number: u64,
}

#[cold]
fn note_keys(watches: &mut Watches, commands: &[u8]) {
    databases::for_each(commands, |known| {
        if known.is_some_and(|(_, command, _)| command.class == Class::Whole(Whole::Flush)) {
            return watches.note_emptied();
        }
        let keys = known.map(|(database, command, arguments)| {
            let places = databases::places(database, command, arguments);
            places.iter().map(|place| xxh3_64(place)).collect::<Vec<u64>>()
        });
        // What names no key may change any.
        watches.note(keys.as_deref().filter(|keys| !keys.is_empty()));
    });
}

impl Inner {
    /// A write gets its place.
    #[inline]
    pub(super) fn note_write(&mut self, commands: &[u8]) {
        if self.watches.is_watched() {
            note_keys(&mut self.watches, commands);
        }
    }

    /// `WATCH key…`
    pub(super) fn watch(&mut self, id: ClientId, command: &Command, parsed: ParsedCommand<'_>) {
        let Some(client) = self.client(id) else { return };
        if client.transaction.is_some() {
            // Redis refuses it, and EXEC goes on.
            return self.reply_now(id, |out, _| encode::error(out, NESTED));
        }
        let before = client.watching.as_ref().map_or(0, |watching| watching.watched.len());
        let indices = commands::keys(command, parsed.arguments()).into_iter().flatten();
        let keys: Vec<&[u8]> = indices.map(|index| parsed.argument(index)).collect();
        if keys.iter().any(|key| key.starts_with(RESERVED)) {
            return self.refuse(id, "ERR keys that begin with 'evenkeel:' are Evenkeel's own");
        }
        if before + keys.len() > KEYS_MAX {
            return self.refuse(id, TOO_MANY);
        }
        self.serial += 1;
        let number = self.serial;
        let sent = |key: &&[u8]| {
            let servers = self.members.configured(self.partition_of(key)).iter();
            servers.map(|server| self.members.sent_to(server)).max()
        };
        let seen = keys.iter().filter_map(sent).max();
        let Some(client) = self.clients.get_mut(id.key) else { return };
        seen.into_iter().for_each(|seen| client.session.saw(seen));
        let asked = keys.len();
        let watching = client.watching.get_or_insert_with(|| {
            Box::new(Watching { watched: self.watches.begin(), asked, number })
        });
        (watching.number, watching.asked) = (number, asked);
        let database = client.database;
        let places = keys.iter().map(|key| databases::place(database, key));
        let places: Vec<Box<[u8]>> = places.map(|place| Box::from(&*place)).collect();
        places.iter().for_each(|it| self.watches.watch(&mut watching.watched, xxh3_64(it)));
        self.hold(id);
        for key in places {
            let asked = Asked::Deadline;
            self.inquire(Box::new(Inquiry { client: id, number, key, asked }));
        }
    }

    /// The `WATCH` of a question, if its client still waits for it.
    fn watching(&mut self, inquiry: &Inquiry) -> Option<&mut Watching> {
        let watching = self.client(inquiry.client)?.watching.as_deref_mut()?;
        (watching.number == inquiry.number && watching.asked > 0).then_some(watching)
    }

    /// A duplicate said when a watched key expires.
    pub(super) fn deadline_answered(&mut self, inquiry: &Inquiry, reply: &[u8]) {
        let Some(at) = integer(reply) else { return self.watch_failed(inquiry, reply) };
        let Some(watching) = self.watching(inquiry) else { return };
        watching.asked -= 1;
        match u64::try_from(at) {
            Ok(at) => watching.watched.expires(at),
            Err(_) if at == -2 => watching.watched.is_missing(xxh3_64(&inquiry.key)),
            Err(_) => {}
        }
        if watching.asked == 0 {
            self.answer_held(inquiry.client, b"+OK\r\n");
        }
    }

    /// Nobody can say it: the client is told, and its `EXEC` does nothing if it goes on.
    pub(super) fn watch_failed(&mut self, inquiry: &Inquiry, error: &[u8]) {
        let Some(watching) = self.watching(inquiry) else { return };
        watching.asked = 0;
        watching.watched.break_it();
        self.counts.refused += 1;
        self.answer_held(inquiry.client, error);
    }

    /// Answers the command that a client is held for.
    pub(super) fn answer_held(&mut self, id: ClientId, answer: &[u8]) {
        let slot = self.slot(id);
        self.reply(id, slot, answer, &Form::One(Shape::Plain));
        self.release(id);
    }

    /// A client watches nothing more; whether an `EXEC` at this place must do nothing.
    pub(super) fn unwatch(&mut self, id: ClientId) -> bool {
        let due = self.due_unix_ms();
        let watching = self.client(id).and_then(|client| client.watching.take());
        watching.is_some_and(|it| self.watches.end(&it.watched, due))
    }

    /// Whether a key that a client watches was written by now.
    pub(super) fn is_watch_broken(&mut self, id: ClientId) -> bool {
        let due = self.due_unix_ms();
        let Some(client) = self.clients.get(id.key).filter(|client| client.is(id)) else {
            return false;
        };
        let watching = client.watching.as_ref();
        watching.is_some_and(|it| self.is_broken(it, due))
    }

    /// The same of what was taken from a client.
    pub(super) fn is_broken(&self, watching: &Watching, now_unix_ms: u64) -> bool {
        self.watches.is_broken(&watching.watched, now_unix_ms)
    }

    /// What was taken from a client is watched no more.
    pub(super) fn end_watching(&mut self, watching: &Watching) {
        self.watches.end(&watching.watched, 0);
    }

    /// What a client's reads must see.
    pub(super) fn consistency_of(&mut self, id: ClientId) -> Option<Consistency> {
        self.client(id).map(|client| client.consistency())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_commands_of_a_write_count_and_without_any_all_do() {
        let is_broken = |key: &str, all: &[&[&str]]| {
            let mut watches = Watches::default();
            let mut watched = watches.begin();
            watches.watch(&mut watched, xxh3_64(key.as_bytes()));
            let mut commands = Vec::new();
            for words in all {
                let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                encode::command(&mut commands, &words);
            }
            note_keys(&mut watches, &commands);
            watches.end(&watched, 0)
        };
        assert!(is_broken("a", &[&["SET", "a", "1"]]));
        assert!(!is_broken("a", &[&["SET", "b", "a"]]));
        assert!(is_broken("d", &[&["MSET", "a", "1", "d", "2"]]));
        assert!(is_broken("d", &[&["ZUNIONSTORE", "d", "1", "s"]]));
        assert!(is_broken("b", &[&["SET", "a", "1"], &["INCR", "b"]]));
        assert!(is_broken("a", &[&["FLUSHALL"]]), "it may be there");
        assert!(!is_broken("a", &[&["SELECT", "1"], &["SET", "a", "1"], &["SELECT", "0"]]));
        assert!(is_broken("a", &[&["SELECT", "1"], &["MOVE", "a", "0"], &["SELECT", "0"]]));
        assert!(is_broken("a", &[&["SELECT", "1"], &["SELECT", "0"], &["SET", "a", "1"]]));
        assert!(is_broken("a", &[&["SET", "b", "1"], &["UNHEARD", "of"]]));
    }
}
