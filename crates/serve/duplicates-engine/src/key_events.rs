//! Key events (`notify-keyspace-events`): of each partition one live duplicate, the *source*, is
//! subscribed to, and what it says is handed to who listens here.
//!
//! All duplicates do the same writes, so one tells what all would. A source is wanted as long as a
//! client subscribes to a name that may be a key event's; such a client is confirmed when every
//! partition has one, or after [`PATIENCE`]. When a source is lost another one takes over. What is
//! done in between is told by nobody, or by both: at most once is not promised then, nor at least.
//!
//! **What is not told.** Keys of ours; keys of a partition that a shard moves to or from, unless
//! the partition serves them; and what a duplicate did that is undone: as long as it is ahead of
//! the log ([`super::effects`]) its events are kept.
//!
//! **Expired keys.** Most keys are removed by the source itself, which says `expired`. Where its
//! clock is behind, our `DEL` removes them, and it would say `del`, or nothing where only `expired`
//! is asked for. Its answer to that `DEL` says so: then `expired` is told in place of it.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::Instant;
use tokio::sync::Notify;

use super::Inner;
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::commands::Channels;
use evenkeel_stores::resp::key_events::{KeyEvent, Told, may_concern};
use evenkeel_stores::resp::{databases, reply};
use evenkeel_stores::store::keys::RESERVED;

/// How long a client waits for the confirmation that it will get events.
const PATIENCE: Duration = Duration::from_secs(1);
/// How soon a duplicate is asked again after one that does not tell events.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long sources are kept that nobody has listened to yet.
const UNUSED_MAX: Duration = Duration::from_secs(5);
/// Bytes of events that are kept while a source is ahead of the log.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// Removals of expired keys that are on their way to a source.
const REMOVED_MAX: usize = 256;

/// Who listens to key events, and who tells them.
#[derive(Debug, Default)]
pub(super) struct KeyEvents {
    /// Subscriptions that may concern them.
    listeners: usize,
    /// By partition.
    sources: BTreeMap<usize, Source>,
    /// Clients that wait until all partitions have a source.
    waiting: Vec<ClientId>,
    /// Since when somebody wants them, and since when one is missing.
    wanted_since: Option<Instant>,
    missing_since: Option<Instant>,
    /// When sources that failed are replaced.
    again_at: Option<Instant>,
    removed: VecDeque<Removed>,
    wanted: Rc<Notify>,
}

/// The duplicate whose events are told.
#[derive(Debug)]
struct Source {
    server: usize,
    /// Of this choice: who follows an earlier one of the same duplicate is not heard.
    serial: u64,
    is_followed: bool,
    /// What it does from now on will come.
    is_open: bool,
    /// By its configuration when it was asked, and what was set since.
    told: Told,
    /// What came and may be undone.
    kept: Vec<(Vec<u8>, Vec<u8>)>,
    kept_bytes: usize,
}

/// An expired key that we removed at a source.
#[derive(Debug)]
struct Removed {
    call: usize,
    partition: usize,
    database: u8,
    key: Box<[u8]>,
    /// `del` of that key that came before the answer: whose it is is not known yet.
    held: Vec<bool>,
    /// Messages that are still to come and are not told, once it has answered.
    ignored: Option<u8>,
}

impl KeyEvents {
    fn is_wanted(&self) -> bool {
        self.listeners > 0 || self.wanted_since.is_some()
    }

    /// Whether somebody waits for a source.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || self.again_at.is_some()
    }

    /// A client subscribed to a name, or ended that.
    pub(super) fn listens(&mut self, kind: Channels, name: &[u8], is_on: bool) {
        if may_concern(kind, name) {
            match is_on {
                true => self.listeners += 1,
                false => self.listeners -= 1,
            }
        }
    }
}

impl Inner {
    /// Has a client wait until events come to which it subscribes; whether it has to.
    pub(super) fn awaits_events(
        &mut self,
        id: ClientId,
        kind: Channels,
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let mut names = parsed.arguments().iter().skip(1);
        if !self.is_redis() || !names.any(|name| may_concern(kind, name)) {
            return false;
        }
        self.key_events.wanted_since = Some(self.now);
        self.choose_sources();
        let sources = &self.key_events.sources;
        let mut partitions = 0..self.members.partitions();
        let are_open = partitions.all(|it| {
            sources.get(&it).is_some_and(|source| source.is_open)
                || self.members.configured(it).is_empty()
        });
        if are_open {
            return false;
        }
        let since = *self.key_events.missing_since.get_or_insert(self.now);
        if self.now.since(since) >= PATIENCE {
            return false;
        }
        self.key_events.waiting.push(id);
        self.hold(id);
        true
    }

    /// Gives every partition without a source one.
    fn choose_sources(&mut self) {
        if self.key_events.again_at.is_some_and(|at| at > self.now) {
            return;
        }
        self.key_events.again_at = None;
        for partition in 0..self.members.partitions() {
            if self.key_events.sources.contains_key(&partition) {
                continue;
            }
            let live = self.members.live(partition);
            let speaking = live.without(self.silent);
            let among = if speaking.is_empty() { live } else { speaking };
            let of_effects = |server| !self.effects.is_followed(server);
            let least = among.iter().min_by_key(|&it| (of_effects(it), self.members.owed(it)));
            let Some(server) = least else { continue };
            self.serial += 1;
            let source = Source {
                server,
                serial: self.serial,
                is_followed: false,
                is_open: false,
                told: Told::default(),
                kept: Vec::new(),
                kept_bytes: 0,
            };
            self.key_events.sources.insert(partition, source);
            self.key_events.wanted.notify_one();
        }
    }

    /// Once in a while: sources that are missing are chosen, those that nobody needs are left.
    pub(super) fn look_at_key_events(&mut self) {
        let Some(since) = self.key_events.wanted_since else { return };
        if self.key_events.missing_since.is_some_and(|it| self.now.since(it) >= PATIENCE) {
            self.release_waiting_for_events();
        }
        if self.key_events.listeners > 0 {
            return self.choose_sources();
        }
        if self.now.since(since) >= UNUSED_MAX {
            self.release_waiting_for_events();
            let events = &mut self.key_events;
            (events.wanted_since, events.missing_since, events.again_at) = (None, None, None);
            events.sources.clear();
            events.removed.clear();
        }
    }

    fn release_waiting_for_events(&mut self) {
        for id in std::mem::take(&mut self.key_events.waiting) {
            self.release(id);
        }
    }

    /// Who is told when a source is to be followed.
    pub fn key_events_wanted(&self) -> Rc<Notify> {
        Rc::clone(&self.key_events.wanted)
    }

    /// Sources that nobody follows yet: which servers, and the number of each choice.
    pub fn take_wanted_sources(&mut self) -> Vec<(usize, u64)> {
        let sources = self.key_events.sources.values_mut();
        let new = sources.filter_map(|source| {
            let is_followed = std::mem::replace(&mut source.is_followed, true);
            (!is_followed).then_some((source.server, source.serial))
        });
        new.collect()
    }

    /// Whether this is still a source.
    pub fn is_source(&self, server: usize, serial: u64) -> bool {
        let mut sources = self.key_events.sources.values();
        sources.any(|source| (source.server, source.serial) == (server, serial))
    }

    fn source(&mut self, server: usize, serial: u64) -> Option<&mut Source> {
        let source = self.key_events.sources.get_mut(&self.members.partition(server))?;
        ((source.server, source.serial) == (server, serial)).then_some(source)
    }

    /// Whether this one tells key events.
    pub(super) fn tells_events(&self, server: usize) -> bool {
        let source = self.key_events.sources.get(&self.members.partition(server));
        source.is_some_and(|source| source.server == server && source.is_open)
    }

    /// What a source does from now on will come; `value` is its `notify-keyspace-events`.
    pub fn source_opened(&mut self, server: usize, serial: u64, value: &[u8]) {
        let Some(source) = self.source(server, serial) else { return };
        (source.is_open, source.told) = (true, Told::read(value));
        if self.key_events.sources.values().all(|source| source.is_open) {
            self.key_events.missing_since = None;
            self.release_waiting_for_events();
        }
    }

    /// Somebody has set which events are told.
    pub(super) fn note_events_set(&mut self, value: &[u8]) {
        let told = Told::read(value);
        self.key_events.sources.values_mut().for_each(|source| source.told = told);
    }

    /// A source cannot be followed any more: another one is, a moment later.
    pub fn source_failed(&mut self, server: usize, serial: u64, why: &str) {
        if self.source(server, serial).is_none() {
            return;
        }
        tracing::warn!(server, why, "a duplicate does not tell key events");
        self.key_events.again_at = Some(self.now + AGAIN_AFTER);
        self.lose_source(server);
        self.schedule();
    }

    /// A duplicate was dropped: another takes over.
    pub(super) fn lose_source(&mut self, server: usize) {
        let partition = self.members.partition(server);
        let events = &mut self.key_events;
        if events.sources.get(&partition).is_none_or(|source| source.server != server) {
            return;
        }
        events.sources.remove(&partition);
        events.missing_since.get_or_insert(self.now);
        events.removed.retain(|removed| removed.partition != partition);
        if events.is_wanted() {
            self.choose_sources();
        }
    }

    /// A source has said something.
    pub fn key_event_came(&mut self, server: usize, serial: u64, channel: &[u8], text: &[u8]) {
        let Some(source) = self.source(server, serial) else { return };
        let bytes = channel.len() + text.len();
        if source.kept_bytes + bytes > KEPT_BYTES_MAX {
            return self.source_failed(server, serial, "too many at once");
        }
        source.kept_bytes += bytes;
        source.kept.push((channel.to_vec(), text.to_vec()));
        self.tell_key_events();
    }

    /// Tells what has come and cannot be undone.
    pub(super) fn tell_key_events(&mut self) {
        let sources = self.key_events.sources.iter();
        let full = sources.filter(|(_, source)| !source.kept.is_empty()).map(|(&it, _)| it);
        let full: Vec<usize> = full.collect();
        for partition in full {
            if self.effects.is_ahead(partition) {
                continue; // it may be who is ahead
            }
            let Some(source) = self.key_events.sources.get_mut(&partition) else { continue };
            let kept = std::mem::take(&mut source.kept);
            source.kept_bytes = 0;
            for (channel, text) in kept {
                if let Some(event) = KeyEvent::read(&channel, &text) {
                    self.tell_key_event(partition, event);
                }
            }
        }
    }

    fn tell_key_event(&mut self, partition: usize, event: KeyEvent<'_>) {
        let is_served = self.partition_of(event.key) == partition;
        if event.key.starts_with(RESERVED) || !is_served || self.is_of_removal(event) {
            return;
        }
        let (channel, text) = event.message();
        let seen = self.history.last().sequence; // it has its place before it is sent
        self.send_message((Channels::Plain, &channel, text), seen);
    }

    /// Whether an event is that of our removal, or may be: then it is told later, or not.
    fn is_of_removal(&mut self, event: KeyEvent<'_>) -> bool {
        if event.event != b"del" {
            return false;
        }
        let events = &mut self.key_events;
        let found = events.removed.iter().position(|it| {
            it.database == event.database && *it.key == *event.key && it.ignored != Some(0)
        });
        let Some(index) = found else { return false };
        match &mut events.removed[index] {
            Removed { ignored: Some(ignored), .. } => *ignored -= 1,
            removed => removed.held.push(event.is_of_key),
        }
        events.removed.retain(|it| it.ignored != Some(0));
        true
    }

    /// An expired key is removed by this call.
    pub(super) fn note_removal(&mut self, partition: usize, call: usize, place: &[u8]) {
        if !self.key_events.sources.get(&partition).is_some_and(|source| source.is_open) {
            return;
        }
        let (database, key) = databases::at(place);
        let key = Box::from(key);
        let removed = Removed { call, partition, database, key, held: Vec::new(), ignored: None };
        self.key_events.removed.push_back(removed);
        if self.key_events.removed.len() > REMOVED_MAX {
            self.key_events.removed.pop_front();
        }
    }

    /// A duplicate has answered such a call: how many keys it removed.
    pub(super) fn removal_answered(&mut self, server: usize, call: usize, reply: &[u8]) {
        let removed = &self.key_events.removed;
        let Some(index) = removed.iter().position(|it| it.call == call && it.ignored.is_none())
        else {
            return;
        };
        let removed = &mut self.key_events.removed[index];
        let partition = removed.partition;
        let source = self.key_events.sources.get(&partition).filter(|it| it.server == server);
        let Some(told) = source.map(|source| source.told) else { return };
        let is_ours = reply::integer(reply) == Some(1);
        let held = std::mem::take(&mut removed.held);
        let coming = if told.generic && is_ours { told.channels() } else { 0 };
        removed.ignored = Some(coming.saturating_sub(held.len() as u8));
        let (database, key) = (removed.database, removed.key.clone());
        self.key_events.removed.retain(|it| it.ignored != Some(0));
        let (event, of): (&[u8], Vec<bool>) = match is_ours {
            true if !told.expired => (b"expired", Vec::new()),
            true => {
                let of = [(true, told.of_keys), (false, told.of_events)].into_iter();
                (b"expired", of.filter(|(_, is_told)| *is_told).map(|(it, _)| it).collect())
            }
            false => (b"del", held), // of somebody before us
        };
        for is_of_key in of {
            self.tell_key_event(partition, KeyEvent { database, key: &key, event, is_of_key });
        }
    }
}

#[cfg(test)]
mod tests;
