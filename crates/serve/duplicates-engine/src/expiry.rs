//! Keys expire at one place in the order of writes, whatever the clocks of the duplicates say.
//!
//! Core knows the deadlines and decides ([`Deadlines`]). Here they are learnt from the writes that
//! get a place and from all keys, which are listed once; clocks of duplicates are read; and before
//! a command is taken its keys are looked at: what has expired is removed by a write of ours, what
//! is not sure is asked for, and the client is held meanwhile.
//!
//! A `strong` or `read-my-own-writes` read of what has expired removes it as well: once a key is
//! gone for one it is gone for all, and a session never finds it again. `eventual` reads go past.
//!
//! Whoever cannot be written to is not looked at: its writes are refused, and reads show what the
//! duplicate holds that answers. So it is while clients are paused, when nothing may be written.
//!
//! Keys are known by their places ([`databases::place`]): one is looked at, asked for and removed
//! in its database.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel_core::Instant;
use evenkeel_ordered::{
    APART_MAX_MS, Answered, Clocks, ConnectionKind, Consistency, Deadlines, DueWrites, Judgement,
    Sequence, ServerSet,
};
use xxhash_rust::xxh3::xxh3_128;

use super::types::{Asked, Asking, ClientId, Form, Inquiry, Owed, ParsedCommand, Write};
use super::{Engine, Inner};
use evenkeel_store_link::expiry::{key_of, note_change, number_of};
use evenkeel_stores::resp::commands::{self, Class, Command, Local, Repeat, Rewrite, Time, Whole};
use evenkeel_stores::resp::deadlines::{self, Change, Written};
use evenkeel_stores::resp::hash::slot;
use evenkeel_stores::resp::reply::{Shape, elements, integer, payload};
use evenkeel_stores::resp::{databases, encode};
use evenkeel_stores::store::keys::RESERVED;

/// How often it is looked whether keys are to be listed, or clocks to be read, at most.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often the clocks of duplicates are read while somebody asks for something.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Keys that are listed at once.
const LISTED_TOGETHER: &[u8] = b"100";
/// Keys that are asked for at once for one command; the others follow.
const ASKED_TOGETHER: usize = 256;

/// What is known of deadlines.
#[derive(Debug)]
pub(super) struct Expiry {
    pub(super) deadlines: Deadlines,
    /// Which writes may be done again by who comes back, by partition.
    due_writes: Vec<DueWrites>,
    clocks: Clocks,
    read_at: Option<Instant>,
    /// The time of day at which our own time began, in ms since 1970; read with the clocks.
    began_unix_ms: i64,
    /// Questions of earlier listings are forgotten.
    number: u64,
    listing: Option<Listing>,
    /// Keys that the write which gets its place gives a deadline for sure: unless it is refused.
    pub(super) set: Vec<u64>,
    /// Those whose clocks are far from the others'.
    apart: ServerSet,
    /// The time of day that the clocks of duplicates are compared with, in ms since 1970.
    pub(super) unix_ms: fn() -> i64,
}

impl Default for Expiry {
    fn default() -> Self {
        Self {
            deadlines: Deadlines::default(),
            due_writes: Vec::new(),
            clocks: Clocks::default(),
            read_at: None,
            began_unix_ms: i64::MAX, // not read: everything may be near
            number: 0,
            listing: None,
            set: Vec::new(),
            apart: ServerSet::EMPTY,
            unix_ms: now_ms,
        }
    }
}

/// All keys, on their way.
#[derive(Debug)]
struct Listing {
    partition: usize,
    database: u8,
    server: usize,
    cursor: Vec<u8>,
    owed: usize,
}

/// How much of its keys a command depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// Whether they are there.
    Read,
    /// The same, and no later command may see what this one does not.
    StrongRead,
    /// All of it.
    Write,
}

/// The time of day as it was when the process began, and goes on since: nobody sets it.
fn now_us() -> i64 {
    static BEGAN: OnceLock<(std::time::Instant, i64)> = OnceLock::new();
    let (began, unix_us) = BEGAN.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (std::time::Instant::now(), i64::try_from(since.as_micros()).unwrap_or(i64::MAX / 2))
    });
    unix_us.saturating_add(i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX / 2))
}

fn now_ms() -> i64 {
    now_us() / 1_000
}

impl Engine {
    /// Lists keys and reads clocks for the life of the service.
    pub(super) async fn keep_deadlines(self: Rc<Self>) {
        let mut seen = 0;
        while self.look().is_redis() {
            tokio::time::sleep(LOOK_EVERY).await;
            let within = {
                let mut inner = self.look();
                inner.read_clock();
                inner.read_clocks();
                inner.list_keys_of_all();
                (!inner.expiry.deadlines.is_complete()).then_some(LOOK_EVERY)
            };
            self.stirred(&mut seen, within).await;
        }
    }
}

impl Inner {
    /// Looks at the keys of a command that may have expired; whether it has to wait.
    #[inline]
    pub(super) fn asks_deadlines(
        &mut self,
        id: ClientId,
        (command, class): (&Command, Class),
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let since = i64::try_from(self.now.since(Instant::ZERO).as_millis()).unwrap_or(0);
        if self.expiry.deadlines.is_far(self.expiry.began_unix_ms.saturating_add(since)) {
            return false;
        }
        let now = (self.expiry.unix_ms)();
        !self.expiry.deadlines.is_quiet(now)
            && self.is_redis()
            && self.looks_at_keys(id, (command, class), parsed, now)
    }

    fn looks_at_keys(
        &mut self,
        id: ClientId,
        (command, class): (&Command, Class),
        parsed: ParsedCommand<'_>,
        now: i64,
    ) -> bool {
        let Some(client) = self.clients.get(id.key).filter(|it| it.is(id) && it.is_known()) else {
            return false;
        };
        let (keys, sight): (Vec<Box<[u8]>>, Sight) = match (class, &client.transaction) {
            (Class::Local(Local::Exec), Some(it)) => {
                let sight = match it.writes || it.is_effect {
                    true => Sight::Write,
                    false if client.consistency() == Consistency::Strong => Sight::StrongRead,
                    false => Sight::Read,
                };
                (it.keys.clone(), sight)
            }
            (Class::Read, None) if client.consistency() == Consistency::Eventual => return false,
            (class, None) => {
                let Some(mut sight) = sight_of(command, class) else { return false };
                if class == Class::Read && client.consistency() == Consistency::Strong {
                    sight = Sight::StrongRead;
                }
                let places = databases::places(client.database, command, parsed.arguments());
                (places.iter().map(|place| Box::from(&**place)).collect(), sight)
            }
            _ => return false,
        };
        if self.pause.is_kept(self.now) {
            return false; // whoever paused relies on it that nothing is written
        }
        let (mut seen, mut asked) = (BTreeSet::new(), Vec::new());
        for place in keys.iter().filter(|it| !databases::key(it).starts_with(RESERVED)) {
            let key = key_of(place);
            let deadlines = &self.expiry.deadlines;
            let judgement = match sight {
                Sight::Read => deadlines.before_read(key, now),
                Sight::StrongRead => deadlines.before_strong_read(key, now),
                Sight::Write => deadlines.before_write(key, now),
            };
            let partition = self.partition_of(place);
            let is_left = judgement == Judgement::Leave || self.can_write(partition).is_err();
            if is_left || !seen.insert(key) {
                continue;
            }
            if self.effects.wait_behind(partition, id) {
                self.hold(id);
                return true;
            }
            if judgement == Judgement::Remove {
                self.remove_expired(id, place);
            } else if asked.len() < ASKED_TOGETHER {
                asked.push((self.expiry.deadlines.ask(key), place.clone()));
            }
        }
        self.ask_for_all(id, asked)
    }

    /// Asks for the deadlines of these keys; whether the client has to wait.
    fn ask_for_all(&mut self, id: ClientId, asked: Vec<(u64, Box<[u8]>)>) -> bool {
        if asked.is_empty() {
            return false;
        }
        self.serial += 1;
        let look = self.serial;
        self.hold_for(id, look, asked.len());
        for (number, key) in asked {
            let asked = Asked::Expiry { look, told: ServerSet::EMPTY };
            self.inquire(Box::new(Inquiry { client: id, number, key, asked }));
        }
        // Where nobody can say anything, the command finds out why.
        self.client(id).is_some_and(|client| client.is_held())
    }

    /// Removes a key that has expired, from all, behind everything that was sent. Who found it has
    /// seen that.
    pub(super) fn remove_expired(&mut self, id: ClientId, place: &[u8]) {
        let (database, key) = databases::at(place);
        let mut commands = Vec::new();
        databases::write_within(&mut commands, database, |out| {
            encode::command(out, &[b"DEL", key]);
        });
        let write = Write {
            commands: &commands,
            count: databases::count_within(database),
            shard: self.map.shard(slot(key)),
            repeat: if database > 0 { Repeat::Once } else { Repeat::Idempotent },
            keys: &[xxh3_128(place)],
            key_names: &[place],
            form: Form::One(Shape::Plain),
            is_single: true,
        };
        self.counts.expired += 1;
        if let Some(call) = self.write(ClientId::NOBODY, &write) {
            self.calls[call].removes_expired = true;
            self.note_removal(self.map.partition(write.shard), call, place);
            let sequence = self.calls[call].write;
            if let (Some(sequence), Some(client)) = (sequence, self.client(id)) {
                client.session.saw(sequence);
            }
        }
        self.forget_last_id(xxh3_128(place));
    }

    /// Removes what has expired of the keys of these commands, as far as that is sure.
    pub(super) fn remove_expired_of(&mut self, id: ClientId, text: &[u8]) {
        let now = (self.expiry.unix_ms)();
        if self.expiry.deadlines.is_quiet(now) {
            return;
        }
        let mut expired: Vec<Box<[u8]>> = Vec::new();
        databases::for_each(text, |known| {
            let Some((database, command, arguments)) = known else { return };
            for place in databases::places(database, command, arguments) {
                let judgement = self.expiry.deadlines.before_read(key_of(&place), now);
                if judgement == Judgement::Remove && !expired.iter().any(|it| **it == *place) {
                    expired.push(Box::from(&*place));
                }
            }
        });
        expired.iter().for_each(|place| self.remove_expired(id, place));
    }

    /// A duplicate has said when a key expires.
    pub(super) fn expiry_known(
        &mut self,
        server: usize,
        inquiry: &Inquiry,
        (look, mut told): (u64, ServerSet),
        reply: &[u8],
    ) {
        let key = key_of(&inquiry.key);
        let partition = self.partition_of(&inquiry.key);
        let cannot = self.effects.is_ahead(partition)
            || self.can_write(partition).is_err()
            || self.pause.is_kept(self.now);
        let Some(said) = integer(reply).filter(|_| !cannot) else {
            return self.expiry_unknown(inquiry, look);
        };
        let now = (self.expiry.unix_ms)();
        match self.expiry.deadlines.answered(key, inquiry.number, said, now) {
            Answered::Settled => {}
            Answered::Expired => self.remove_expired(inquiry.client, &inquiry.key),
            Answered::GoneThere if self.client(inquiry.client).is_some() => {
                told.insert(server);
                let asked = Asked::Expiry { look, told };
                let (client, key) = (inquiry.client, inquiry.key.clone());
                return self.inquire(Box::new(Inquiry { client, key, asked, ..*inquiry }));
            }
            Answered::GoneThere => self.expiry.deadlines.unanswered(key, inquiry.number),
        }
        self.release_of(inquiry.client, look);
    }

    /// All have said that there is no such key.
    pub(super) fn expiry_gone(&mut self, inquiry: &Inquiry, look: u64) {
        let now = (self.expiry.unix_ms)();
        self.expiry.deadlines.gone(key_of(&inquiry.key), inquiry.number, now);
        self.release_of(inquiry.client, look);
    }

    /// Nobody can say it: the command is taken again, and finds out why.
    pub(super) fn expiry_unknown(&mut self, inquiry: &Inquiry, look: u64) {
        self.expiry.deadlines.unanswered(key_of(&inquiry.key), inquiry.number);
        self.release_of(inquiry.client, look);
    }

    /// A write gets its place in the stream of a partition, this one.
    #[inline]
    pub(super) fn note_deadlines(
        &mut self,
        (partition, sequence): (usize, Sequence),
        text: &[u8],
        count: u32,
    ) {
        self.expiry.set.clear();
        if !self.is_redis() {
            return;
        }
        let deadlines = &self.expiry.deadlines;
        let is_nothing = deadlines.is_complete() && deadlines.is_empty() && count == 1;
        if (!is_nothing || deadlines::may_set(text))
            && let Some(due) = self.note_deadlines_of(partition, text)
        {
            let partitions = self.expiry.due_writes.len().max(partition + 1);
            self.expiry.due_writes.resize_with(partitions, DueWrites::default);
            self.expiry.due_writes[partition].note(sequence, due);
        }
    }

    /// Whether a duplicate that has these writes may still do the later ones: none of their keys
    /// has expired since, for the others or by its own clock, which may be far ahead of theirs.
    pub fn can_follow(&self, server: usize, after: Sequence) -> bool {
        let partition = self.members.partition(server);
        let now = (self.expiry.unix_ms)();
        let own = now.saturating_add(self.expiry.clocks.lead_ms(server));
        let until = self.expiry.deadlines.until(now).max(own);
        self.expiry.due_writes.get(partition).is_none_or(|it| it.can_follow(after, until))
    }

    /// The last duplicate has refused a write (out of memory, most of the time): its keys may be
    /// what they were.
    pub(super) fn doubt_deadlines(&mut self, call: usize) {
        let set = std::mem::take(&mut self.calls[call].sets);
        set.into_iter().for_each(|key| self.expiry.deadlines.changed(key));
    }

    /// What was noted last may not have been written.
    pub(super) fn forget_deadlines(&mut self) {
        self.expiry.deadlines.forget();
        self.expiry.number += 1;
        self.expiry.listing = None;
    }

    /// Until when all of that may be done again. What is written of keys of other partitions (a
    /// shard that moved is removed, a script has gone astray) is not about them.
    fn note_deadlines_of(&mut self, partition: usize, text: &[u8]) -> Option<i64> {
        let mut due: BTreeMap<u64, i64> = BTreeMap::new();
        let map = Some(&self.map).filter(|map| map.partitions() > 1);
        let now = (self.expiry.unix_ms)();
        let (deadlines, set) = (&mut self.expiry.deadlines, &mut self.expiry.set);
        deadlines::for_each(text, |written| {
            let (database, name, change) = match written {
                Written::Everything => return deadlines.clear(),
                Written::Database(database) => return deadlines.clear_database(database),
                Written::Key(database, name, change) => (database, name, change),
            };
            if map.is_some_and(|map| map.partition(map.shard(slot(name))) != partition) {
                return;
            }
            let key = number_of(database, name);
            match change {
                Change::Set(_) | Change::Cleared => {}
                // Said again behind what kept it.
                Change::Perhaps(at) if due.get(&key) == Some(&at) => drop(due.remove(&key)),
                _ => due.extend(deadlines.due_write(key).map(|at| (key, at))),
            }
            if let Change::Set(_) = change {
                set.push(key);
            }
            note_change(deadlines, key, change, now);
        });
        due.into_values().min()
    }

    /// From when a time to live counts: from now by the clock of the fastest duplicate, or it would
    /// end too early there.
    pub(super) fn expiring_from(&self, rewritten: Rewrite, now_unix_ms: u64) -> u64 {
        let is_relative = match rewritten {
            Rewrite::Expire(time)
            | Rewrite::SetWithExpiry(time)
            | Rewrite::ExpiryOption(_, time) => time != Time::UnixSeconds,
            Rewrite::Restore => true,
            Rewrite::StreamAdd | Rewrite::StreamTrim | Rewrite::Pop => false,
        };
        if !is_relative || !self.is_redis() {
            return now_unix_ms;
        }
        let ahead = self.expiry.clocks.ahead_ms(self.all_live());
        u64::try_from((self.expiry.unix_ms)().saturating_add(ahead)).unwrap_or(now_unix_ms)
    }

    /// Until when keys have expired for somebody, in ms since 1970.
    pub(super) fn due_unix_ms(&self) -> u64 {
        let ahead = self.expiry.deadlines.lead_ms();
        u64::try_from((self.expiry.unix_ms)().saturating_add(ahead)).unwrap_or(0)
    }

    pub(super) fn all_live(&self) -> ServerSet {
        let partitions = 0..self.members.partitions();
        partitions.fold(ServerSet::EMPTY, |all, it| all.or(self.members.live(it)))
    }

    /// Reads the clocks of all live duplicates, if it is time.
    fn read_clocks(&mut self) {
        if self.expiry.read_at.is_some_and(|at| self.now.since(at) < READ_EVERY) {
            return;
        }
        self.expiry.read_at = Some(self.now);
        let since = i64::try_from(self.now.since(Instant::ZERO).as_millis()).unwrap_or(0);
        self.expiry.began_unix_ms = (self.expiry.unix_ms)().saturating_sub(since);
        self.all_live().iter().for_each(|server| self.read_clock_of(server));
    }

    /// Reads the clock of one.
    pub(super) fn read_clock_of(&mut self, server: usize) {
        if !self.is_redis() || !self.servers[server].free.is_open {
            return;
        }
        let asking = Asking::Clock { sent_unix_us: now_us() };
        self.ask_for_expiry(server, ConnectionKind::Free, asking, &[b"TIME"]);
        self.go_by_clocks();
    }

    /// The time by which clocks are compared, in µs since 1970: it is never set.
    pub fn clock_us(&self) -> i64 {
        now_us()
    }

    /// One that was reached anew has told its time, for which it was asked then, in µs since 1970.
    pub fn clock_told(&mut self, server: usize, sent_unix_us: i64, reply: &[u8]) {
        let came = now_us();
        let mut parts = elements(reply).map(|it| payload(it).and_then(commands::integer));
        if let (Some(Some(seconds)), Some(Some(micros))) = (parts.next(), parts.next()) {
            let told = seconds.saturating_mul(1_000_000).saturating_add(micros);
            self.expiry.clocks.told(server, (sent_unix_us, came), told);
        }
    }

    fn go_by_clocks(&mut self) {
        let live = self.all_live();
        self.expiry.deadlines.read(&self.expiry.clocks, live);
        let apart = self.expiry.clocks.apart(live);
        for server in apart.without(self.expiry.apart).iter() {
            tracing::warn!(
                service = self.config.name,
                server,
                "the clock of this duplicate is more than {APART_MAX_MS} ms from those of the \
                 others: its keys expire at the wrong time, and it will differ from them"
            );
        }
        self.expiry.apart = apart;
    }

    fn ask_for_expiry(
        &mut self,
        server: usize,
        kind: ConnectionKind,
        asking: Asking,
        words: &[&[u8]],
    ) {
        self.ask_in((server, kind, 0), Owed::Expiring { asking }, |out| {
            encode::command(out, words);
        });
        self.schedule();
    }

    /// Goes on with listing all keys, if that is wanted.
    fn list_keys_of_all(&mut self) {
        if self.expiry.listing.as_ref().is_some_and(|listing| listing.owed > 0) {
            return;
        }
        if !self.expiry.deadlines.wants_list((self.expiry.unix_ms)()) {
            self.expiry.listing = None;
            return;
        }
        let begun = self.expiry.listing.take();
        let partition = begun.as_ref().map_or(0, |listing| listing.partition);
        if partition >= self.members.partitions() {
            return self.expiry.deadlines.complete((self.expiry.unix_ms)());
        }
        let live = self.members.live(partition);
        let new = |server: usize| Listing {
            partition,
            database: 0,
            server,
            cursor: b"0".to_vec(),
            owed: 0,
        };
        // One that went away listed nothing: another begins anew, as soon as there is one.
        let goes_on = begun.filter(|listing| live.contains(listing.server));
        let Some(mut listing) = goes_on.or_else(|| live.iter().next().map(new)) else {
            let is_none = self.members.configured(partition).is_empty();
            let partition = if is_none { partition + 1 } else { partition };
            self.expiry.listing = Some(Listing { partition, ..new(usize::MAX) });
            return;
        };
        if self.members.owed(listing.server) >= self.members.owed_max() / 2 {
            self.expiry.listing = Some(listing); // once it has less to do
            return;
        }
        self.expiry.number += 1;
        let asking = Asking::Page { number: self.expiry.number };
        let place = (listing.server, ConnectionKind::Ordered, listing.database);
        self.ask_in(place, Owed::Expiring { asking }, |out| {
            encode::command(out, &[b"SCAN", &listing.cursor, b"COUNT", LISTED_TOGETHER]);
        });
        listing.owed = 1;
        self.expiry.listing = Some(listing);
        self.schedule();
    }

    /// A duplicate has answered one of these questions.
    pub(super) fn expiry_asked_answered(&mut self, server: usize, asking: Asking, reply: &[u8]) {
        self.members.answered(self.now, server, None);
        match asking {
            Asking::Clock { sent_unix_us } => {
                self.clock_told(server, sent_unix_us, reply);
                self.go_by_clocks();
            }
            Asking::Page { number } if number == self.expiry.number => self.page_listed(reply),
            Asking::Deadline { number, key } if number == self.expiry.number => {
                let Some(at) = integer(reply) else {
                    return self.expiry_asked_lost(asking); // it does not tell deadlines now
                };
                // It may have expired there, and not yet elsewhere.
                let at = if at == -2 { (self.expiry.unix_ms)() } else { at };
                self.expiry.deadlines.listed(key, at);
                if let Some(listing) = &mut self.expiry.listing {
                    listing.owed = listing.owed.saturating_sub(1);
                }
            }
            Asking::Page { .. } | Asking::Deadline { .. } => {}
        }
    }

    fn page_listed(&mut self, reply: &[u8]) {
        let Some(mut listing) = self.expiry.listing.take() else { return };
        let mut parts = elements(reply);
        let (Some(next), Some(page)) = (parts.next().and_then(payload), parts.next()) else {
            return; // it does not list keys now: begun again
        };
        let keys = elements(page).filter_map(payload).filter(|key| !key.starts_with(RESERVED));
        let keys: Vec<&[u8]> = keys.collect();
        let (server, database, number) = (listing.server, listing.database, self.expiry.number);
        (listing.owed, listing.cursor) = (keys.len(), next.to_vec());
        match next {
            b"0" if database < self.database_last => listing.database += 1,
            b"0" => (listing.partition, listing.database) = (listing.partition + 1, 0),
            _ => {}
        }
        self.expiry.listing = Some(listing);
        let ordered = (server, ConnectionKind::Ordered);
        if database > 0 {
            self.choose(ordered, database);
        }
        for key in keys {
            let asking = Asking::Deadline { number, key: number_of(database, key) };
            self.ask_for_expiry(server, ConnectionKind::Ordered, asking, &[b"PEXPIRETIME", key]);
        }
        if database > 0 {
            self.choose(ordered, 0);
        }
    }

    /// Who was asked is gone, or does not say it: all keys are listed again.
    pub(super) fn expiry_asked_lost(&mut self, asking: Asking) {
        if let Asking::Page { number } | Asking::Deadline { number, .. } = asking
            && number == self.expiry.number
        {
            self.list_again();
        }
    }

    /// Keys that are being listed are listed from the first one: they may be where it was looked
    /// already.
    pub(super) fn list_again(&mut self) {
        self.expiry.number += 1;
        self.expiry.listing = None;
    }
}

/// `None`: what a command does is the same whether its keys are there or not, or is not about keys.
fn sight_of(command: &Command, class: Class) -> Option<Sight> {
    match class {
        Class::Read => Some(Sight::Read),
        Class::Write(Repeat::Idempotent) | Class::Rewritten(_, Repeat::Idempotent) => {
            matches!(command.name, "del" | "unlink").then_some(Sight::Read) // they count keys
        }
        Class::Write(_) | Class::Rewritten(..) | Class::Effects | Class::Waits(_) => {
            Some(Sight::Write)
        }
        Class::Whole(Whole::Sort { .. }) => Some(Sight::Write),
        Class::Whole(Whole::ScanPart) => Some(Sight::Read),
        // What is removed later, by its own first write, would be a change.
        Class::Local(Local::Watch) => Some(Sight::Write),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
