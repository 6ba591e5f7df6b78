//! `CLIENT TRACKING`: clients keep what they read, and are told when it changes.
//!
//! Core decides who is told what ([`Tracking`]); here reads are noted when they are sent, writes
//! when they get their place, and messages are written: behind answers in the turn of the answer,
//! all others at the end of the turn of the event loop. A message lifts the session of its client
//! to the write that it tells of, so that a read behind it finds that; `eventual` reads of clients
//! that track are `read-my-own-writes`.
//!
//! **What an answer may lack**: a read that is noted lifts its session to the last writes of its
//! keys, so it is sent to who has these, or behind them. Where it goes elsewhere all the same, what
//! all who may answer have applied by then decides. With `BCAST` values may be read on connections
//! that do not track: their sessions are lifted as well. A transaction or a script has a place of
//! its own among the writes.
//!
//! **Scripts**: all keys that one names are noted, since nobody here knows what it read; none where
//! its text is nothing but calls of commands that read nothing ([`script_calls`]).
//! **Expiry**: keys that are noted are looked at when their deadlines have passed, and removed in
//! the order of writes; where that cannot be done now, who noted the key is told all the same. **A
//! duplicate that differed** may have answered what never was so: all forget all.
//!
//! Nothing of this is done while nobody tracks.

use std::borrow::Cow;
use std::time::Duration;

use evenkeel_ordered::{
    ConnectionKind, Invalid, Judgement, Look, Sequence, ServerSet, TrackedRead, Tracking,
};
use xxhash_rust::xxh3::xxh3_64;

use super::Inner;
use super::clients::Client;
use super::gather::Gather;
use super::types::{ClientId, Done, ParsedCommand};
use evenkeel_store_link::expiry::key_of;
use evenkeel_stores::resp::commands::{self, Class, Command, Keys, Local, Wait, Whole};
use evenkeel_stores::resp::request::Arguments;
use evenkeel_stores::resp::{Protocol, databases, encode, script_calls, settings};

/// Where clients of RESP2 are told in place of others.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// How often it is looked which keys have expired.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Keys that are looked at together.
const LOOKED_TOGETHER: usize = 1_000;
/// After how many ms it is looked again for a deadline that is not known yet.
const UNKNOWN_MS: i64 = 1_000;
/// Of an answer that has its own place: nothing before it is missing.
const EVERYTHING: Sequence = Sequence(u64::MAX);

/// Who tracks what.
#[derive(Debug, Default)]
pub(super) struct Trackers {
    pub(super) core: Tracking<ClientId>,
    /// Whose the write is that gets its place, and the place of its answer.
    writer: Option<(ClientId, u64)>,
    /// Messages behind answers that go to other connections.
    later: Vec<(ClientId, Invalid)>,
}

impl Trackers {
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.core.is_on()
    }

    /// Whether reads of others than those who track concern somebody.
    #[inline]
    pub(super) fn has_prefixes(&self) -> bool {
        self.core.has_prefixes()
    }

    /// As `INFO` has them: clients, keys, clients of all keys, prefixes.
    pub(super) fn sizes(&self) -> [usize; 4] {
        self.core.sizes()
    }

    /// `tracking-table-max-keys`
    pub(super) const fn keys_max(&self) -> usize {
        self.core.keys_max()
    }

    /// When keys are to be looked at again.
    pub(super) fn look_within(&self) -> Option<Duration> {
        self.core.has_looks().then_some(LOOK_EVERY)
    }

    /// The last answer was written to a client: what it is told behind it.
    #[inline]
    pub(super) fn tell_behind(&mut self, id: ClientId, client: &mut Client) {
        if client.tracks {
            self.tell_behind_answer(id, client);
        }
    }

    #[cold]
    fn tell_behind_answer(&mut self, id: ClientId, client: &mut Client) {
        let told = self.core.answered(id, client.first.saturating_sub(1));
        let redirects = self.core.tracker(id).is_some_and(|it| it.options.redirect.is_some());
        for invalid in told {
            match redirects {
                true => self.later.push((id, invalid)),
                false => write(&invalid, client, false),
            }
        }
    }
}

/// Writes a message for who can read it.
fn write(invalid: &Invalid, client: &mut Client, is_redirected: bool) {
    let (out, protocol) = (&mut client.out, client.protocol);
    match protocol {
        Protocol::Resp3 => {
            encode::push(out, 2, protocol);
            encode::bulk(out, b"invalidate");
        }
        Protocol::Resp2 if is_redirected && client.listening.is_some() => {
            encode::array(out, 3);
            encode::bulk(out, b"message");
            encode::bulk(out, CHANNEL);
        }
        Protocol::Resp2 => return, // it knows no messages between answers
    }
    match invalid {
        Invalid::All => encode::null(out, protocol),
        Invalid::Keys(keys) => {
            encode::array(out, keys.len());
            keys.iter().for_each(|key| encode::bulk(out, key));
        }
    }
}

/// Whether a client may keep what a command answers. What a function calls nobody knows.
fn reads(command: &Command, class: Class, arguments: Arguments<'_>) -> bool {
    if command.keys == Keys::Script {
        let script = arguments.get(1).filter(|_| matches!(command.name, "eval" | "eval_ro"));
        let script = script.and_then(|text| std::str::from_utf8(text).ok());
        let called = script.and_then(script_calls::called);
        return called.is_none_or(|names| names.iter().any(|name| is_read(name)));
    }
    matches!(class, Class::Read | Class::Whole(Whole::ScanPart) | Class::Waits(Wait::Stream))
        || command.name == "sort_ro"
}

/// Whether a script that calls this command may read something.
fn is_read(name: &str) -> bool {
    let command = commands::lookup(name.as_bytes());
    command.is_none_or(|it| {
        let class = it.class;
        matches!(class, Class::Read | Class::Whole(_) | Class::Waits(Wait::Stream))
    })
}

impl Inner {
    /// Who is told of what a client reads or writes, and the place of the answer to its next
    /// command: of a part that of the whole.
    fn tracker_of(&self, id: ClientId) -> Option<(ClientId, u64)> {
        let client = self.clients.get(id.key).filter(|client| client.is(id))?;
        Some(match client.part() {
            Some((gather, _)) => self.gathers.get(gather)?.place(),
            None => (id, client.next_slot()),
        })
    }

    /// A client that tracks has this command taken, or any one while keys are told by prefixes.
    #[cold]
    pub(super) fn track_command(
        &mut self,
        id: ClientId,
        (command, class): (&Command, Class),
        parsed: ParsedCommand<'_>,
    ) {
        let Some(client) = self.client(id) else { return };
        let is_queued = client.transaction.is_some()
            && !matches!(class, Class::Local(Local::Exec | Local::Discard | Local::Reset));
        if is_queued || matches!(class, Class::Local(Local::Client | Local::Multi)) {
            return; // `CLIENT CACHING` is about what comes behind these
        }
        if let Some(tracker) = self.tracking.core.tracker(id) {
            tracker.is_said_now = std::mem::take(&mut tracker.is_said);
        }
        let Some(place) = self.tracker_of(id) else { return };
        if !reads(command, class, parsed.arguments()) {
            return;
        }
        let places = databases::places(self.database_of(id), command, parsed.arguments());
        self.see_last_writes(id, &places);
        if self.tracking.core.tracker(id).is_none() {
            return; // another connection of its client may be told
        }
        for key in places {
            let applied = self.applied_by_all(id, self.partition_of(&key), class);
            self.track(place, &key, applied);
        }
        self.schedule(); // other keys may be given up
    }

    /// A client's command was taken, which may have been refused: what `CLIENT CACHING` said was
    /// about this one.
    #[cold]
    pub(super) fn end_caching(&mut self, id: ClientId, command: Option<&Command>) {
        let goes_on = command.is_some_and(|command| command.name == "client")
            || self.client(id).is_some_and(|client| client.transaction.is_some());
        if let Some(tracker) = self.tracking.core.tracker(id).filter(|_| !goes_on) {
            tracker.is_said = false;
        }
    }

    /// What a client is to keep is read where no write of it is missing, or behind those that wait.
    fn see_last_writes(&mut self, id: ClientId, places: &[Cow<'_, [u8]>]) {
        for place in places {
            let (key, partition) = (databases::key(place), self.partition_of(place));
            let tracker = self.tracking.core.tracker(id);
            let is_noted = tracker.is_some_and(|tracker| tracker.notes(key))
                || self.tracking.core.is_broadcast(key);
            let seen = self.tracking.core.last_of(xxh3_64(key), partition);
            if let Some(client) = self.client(id).filter(|_| is_noted) {
                client.session.saw(seen);
            }
        }
    }

    /// What all have applied who may answer a read of this client that is sent now.
    fn applied_by_all(&mut self, id: ClientId, partition: usize, class: Class) -> Sequence {
        let client = self.client(id).map(|client| (client.consistency(), client.session));
        let eligible =
            client.and_then(|(level, session)| self.eligible(partition, level, session).ok());
        match eligible.filter(|_| class == Class::Read) {
            Some(eligible) => self.applied_by((eligible.connection, eligible.from)),
            // A page of a scan is of its duplicate, whatever that has.
            None => self.applied_by((ConnectionKind::Free, self.members.live(partition))),
        }
    }

    fn applied_by(&self, (connection, from): (ConnectionKind, ServerSet)) -> Sequence {
        let applied = from.iter().map(|server| match connection {
            ConnectionKind::Ordered => self.members.sent_to(server),
            ConnectionKind::Free => self.members.applied(server),
        });
        applied.min().unwrap_or_default()
    }

    fn track(&mut self, (id, slot): (ClientId, u64), place: &[u8], applied: Sequence) {
        let (key, partition) = (databases::key(place), self.partition_of(place));
        let look = self.look_of(place);
        let read = TrackedRead { key, hash: xxh3_64(key), partition, applied, look };
        self.tracking.core.read(id, slot, &read);
    }

    /// When it is to be looked whether a key has expired.
    fn look_of(&self, place: &[u8]) -> Option<Look> {
        let (deadlines, key) = (&self.expiry.deadlines, key_of(place));
        if let Some(unix_ms) = deadlines.first_of(key) {
            return Some(Look { unix_ms, is_deadline: true });
        }
        let unix_ms = match deadlines.is_complete() {
            true => deadlines.due_write(key)?,
            false => (self.expiry.unix_ms)().saturating_add(UNKNOWN_MS),
        };
        Some(Look { unix_ms, is_deadline: false })
    }

    /// A read is sent again, to others.
    #[cold]
    pub(super) fn track_again(
        &mut self,
        (id, slot): (ClientId, u64),
        among: (ConnectionKind, ServerSet),
        database: u8,
        text: &[u8],
    ) {
        let client = self.clients.get(id.key).filter(|client| client.is(id));
        let Some(client) = client else { return };
        let part = client.part().and_then(|(gather, _)| self.gathers.get(gather));
        let (id, slot) = part.map_or((id, slot), Gather::place);
        let applied = self.applied_by(among);
        let mut core = std::mem::take(&mut self.tracking.core);
        databases::for_each(text, |known| {
            let Some((_, command, arguments)) = known else { return };
            for place in databases::places(database, command, arguments) {
                let (key, partition) = (databases::key(&place), self.partition_of(&place));
                let hash = xxh3_64(key);
                let read = TrackedRead { key, hash, partition, applied, look: None };
                core.resent(id, slot, &read);
            }
        });
        self.tracking.core = core;
    }

    /// What is done by one duplicate, as a whole, gets its place now: what it may have read.
    #[inline]
    pub(super) fn track_effects(&mut self, id: ClientId, commands: &[u8]) {
        if !self.tracking.is_on() {
            return;
        }
        let Some(place) = self.tracker_of(id) else { return };
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        databases::for_each(commands, |known| {
            let Some((database, command, arguments)) = known else { return };
            if reads(command, command.class, arguments) {
                let places = databases::places(database, command, arguments);
                keys.extend(places.iter().map(|place| Box::from(&**place)));
            }
        });
        keys.iter().for_each(|key| self.track(place, key, EVERYTHING));
    }

    /// A client's write gets its place: it is told of it behind the answer.
    #[inline]
    pub(super) fn begin_tracked_write(&mut self, id: ClientId, done: Option<&Done>) {
        if self.tracking.is_on() {
            let waits = done.is_some_and(|it| it.waiter.is_some());
            self.tracking.writer = if waits { None } else { self.tracker_of(id) };
        }
    }

    /// A write has its place in the stream of a partition.
    #[inline]
    pub(super) fn note_tracked(&mut self, at: (usize, Sequence), commands: &[u8]) {
        if self.tracking.is_on() {
            self.note_tracked_keys(at, commands);
        }
    }

    #[cold]
    fn note_tracked_keys(&mut self, (partition, sequence): (usize, Sequence), commands: &[u8]) {
        let writer = self.tracking.writer.take();
        let mut core = std::mem::take(&mut self.tracking.core);
        databases::for_each(commands, |known| {
            let Some((database, command, arguments)) = known else {
                return core.emptied(partition, sequence, writer); // it may be of any key
            };
            let places = databases::places(database, command, arguments);
            let is_about_keys = command.name != "function";
            if command.class == Class::Whole(Whole::Flush) || places.is_empty() && is_about_keys {
                return core.emptied(partition, sequence, writer);
            }
            let is_read = reads(command, command.class, arguments);
            // Of copies of a shard that moves nobody need know.
            for place in places.iter().filter(|it| self.partition_of(it) == partition) {
                let (key, look) = (databases::key(place), self.look_of(place));
                let hash = xxh3_64(key);
                match writer.filter(|_| is_read) {
                    Some((id, slot)) => {
                        let applied = EVERYTHING;
                        let read = TrackedRead { key, hash, partition, applied, look };
                        core.read(id, slot, &read);
                    }
                    None if is_read => {}
                    None => {
                        core.wrote((key, hash), sequence, writer);
                        let look = look.filter(|it| it.is_deadline && core.is_broadcast(key));
                        core.look_at(key, look);
                    }
                }
            }
        });
        self.tracking.core = core;
        self.schedule();
    }

    /// Whoever answers from now on may lack what was written before, in any partition.
    pub(super) fn doubt_tracked(&mut self) {
        if self.tracking.is_on() {
            let sent: Vec<_> = self.sent_in_all().collect();
            sent.into_iter().for_each(|(it, sequence)| self.tracking.core.moved(it, sequence));
        }
    }

    /// The last write that was sent, by partition.
    pub(super) fn sent_in_all(&self) -> impl Iterator<Item = (usize, Sequence)> {
        (0..self.members.partitions()).map(|partition| (partition, self.sent_in(partition)))
    }

    fn sent_in(&self, partition: usize) -> Sequence {
        let servers = self.members.configured(partition).iter();
        servers.map(|server| self.members.sent_to(server)).max().unwrap_or_default()
    }

    /// A duplicate of a partition held something else than the others, and may have answered that.
    pub(super) fn distrust_tracked(&mut self, partition: usize) {
        if self.tracking.is_on() {
            let sent = self.sent_in(partition);
            self.tracking.core.emptied(partition, sent, None);
            self.schedule();
        }
    }

    /// Sends what somebody is to be told at once.
    #[inline]
    pub(super) fn tell_invalid(&mut self) {
        if self.tracking.core.has_messages() {
            let messages = self.tracking.core.take_messages();
            messages.iter().for_each(|(id, invalid)| self.invalidate(*id, invalid));
        }
    }

    /// Sends what is told behind answers to others than who has them.
    #[inline]
    pub(super) fn tell_later(&mut self) {
        if !self.tracking.later.is_empty() {
            let messages = std::mem::take(&mut self.tracking.later);
            messages.iter().for_each(|(id, invalid)| self.invalidate(*id, invalid));
        }
    }

    fn invalidate(&mut self, id: ClientId, invalid: &Invalid) {
        let Some(tracker) = self.tracking.core.tracker(id) else { return };
        let redirect = tracker.options.redirect;
        let seen = match invalid {
            Invalid::All => self.history.last().sequence,
            Invalid::Keys(keys) => {
                let partitions = keys.iter().map(|key| self.partition_of(key));
                partitions.map(|partition| self.sent_in(partition)).max().unwrap_or_default()
            }
        };
        if let Some(client) = self.client(id) {
            client.session.saw(seen);
        }
        let to = redirect.unwrap_or(id);
        let Some(client) = self.client(to).filter(|client| !client.is_ending) else {
            return self.redirect_broken(id, to);
        };
        client.session.saw(seen);
        write(invalid, client, redirect.is_some());
        self.push(to, b""); // wakes it, or cuts it off
    }

    /// A client's try was in vain, and it waits on.
    pub(super) fn tell_undone(&mut self, id: ClientId, slot: u64) {
        let told = self.tracking.core.undone(id, slot);
        told.iter().for_each(|invalid| self.invalidate(id, invalid));
    }

    /// Whoever was to be told in the place of a client is gone.
    fn redirect_broken(&mut self, id: ClientId, gone: ClientId) {
        if let Some(tracker) = self.tracking.core.tracker(id) {
            tracker.is_broken = true;
        }
        let Some(client) = self.client(id).filter(|it| it.protocol == Protocol::Resp3) else {
            return;
        };
        encode::push(&mut client.out, 2, Protocol::Resp3);
        encode::bulk(&mut client.out, b"tracking-redir-broken");
        encode::integer(&mut client.out, gone.number());
        self.push(id, b"");
    }

    /// Looks at keys whose deadlines have passed.
    pub(super) fn look_at_tracked(&mut self) {
        if !self.tracking.core.has_looks() {
            return;
        }
        let due = i64::try_from(self.due_unix_ms()).unwrap_or(i64::MAX);
        for _ in 0..LOOKED_TOGETHER {
            let Some((key, is_deadline)) = self.tracking.core.overdue(due) else { break };
            self.look_at_key(&key, is_deadline, due);
        }
        self.tell_invalid();
    }

    fn look_at_key(&mut self, key: &[u8], is_deadline: bool, due: i64) {
        let places = (0..=self.database_last).map(|database| databases::place(database, key));
        let places: Vec<Box<[u8]>> = places.map(|place| Box::from(&*place)).collect();
        let looks = places.iter().filter_map(|place| self.look_of(place));
        let next = looks.min().filter(|look| look.unix_ms > due);
        let deadlines = &self.expiry.deadlines;
        let deadline = |place: &[u8]| deadlines.first_of(key_of(place));
        let is_over = places.iter().any(|it| deadline(it).is_some_and(|at| at <= due));
        if !is_deadline && !is_over {
            return self.tracking.core.look_at(key, next);
        }
        for place in &places {
            let partition = self.partition_of(place);
            let now = (self.expiry.unix_ms)();
            let is_sure =
                self.expiry.deadlines.before_read(key_of(place), now) == Judgement::Remove;
            let is_kept = self.pause.is_kept(self.now) || self.effects.is_ahead(partition);
            if is_sure && !is_kept && self.can_write(partition).is_ok() {
                self.remove_expired(ClientId::NOBODY, place);
            }
        }
        self.tracking.core.expired(key);
    }

    /// A client tracks no more.
    pub(super) fn stop_tracking(&mut self, id: ClientId) {
        if let Some(client) = self.client(id).filter(|client| client.tracks) {
            client.tracks = false;
            self.tracking.core.end(id);
        }
    }

    /// `CONFIG SET tracking-table-max-keys`
    pub(super) fn set_tracked_keys(&mut self, value: &[u8]) {
        if let Ok(keys_max) = settings::keys_max(value) {
            self.tracking.core.set_keys_max(keys_max);
            self.schedule();
        }
    }
}

#[cfg(test)]
mod tests;
