//! What clients may keep of what they read, and who is told that it changed (`CLIENT TRACKING`).
//!
//! **Rule.** Behind every answer that a client keeps it is told of each write of the key that the
//! answer may not show. A key is noted when its read is *sent*; a write that is given its place
//! tells all who noted the key, and forgets them. Two cases are no matter of a single Redis:
//!
//! - *The write comes while the answer is on its way.* The client is told at once, and again
//!   behind that answer.
//! - *The write came before the read, and whoever answers may lack it.* The hash of a key leads to
//!   one of 64 Ki places, which has the number of the last write there: the read had better be sent
//!   to who has that. If not all who may answer had applied it when the read was sent, the client
//!   is told behind the answer. **When it misleads**: two keys of one place; a read then waits, or
//!   a client is told, in vain, and never too little.
//!
//! What a client's own write changes it is told behind the answer to that write. **Bounded**: of
//! too many keys one after the other is given up, and who noted it is told. **Expiry**: a key that
//! has a deadline is looked at when that has passed; whoever asks removes it, or says so.
//!
//! **Source**: `tracking.c` of Redis 7.0. As there, keys of one name in several databases are one.
//! While nobody tracks, nothing is noted.

use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::Sequence;

/// Places for the numbers of the last writes.
const PLACES: usize = 1 << 16;
/// Keys that are noted at most, unless it is set: as with Redis.
pub const TRACKED_KEYS_MAX: usize = 1_000_000;

/// The name of a key.
type Name = Box<[u8]>;

/// How a client tracks, as it said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrackingOptions<C> {
    /// Who is told in its place.
    pub redirect: Option<C>,
    /// It is told of all keys with its prefixes, whatever it read.
    pub is_bcast: bool,
    /// Keys are noted of the command behind `CLIENT CACHING YES` alone.
    pub is_optin: bool,
    /// They are not noted of the command behind `CLIENT CACHING NO`.
    pub is_optout: bool,
    /// It is not told of what it writes itself.
    pub is_noloop: bool,
    /// Those of `BCAST`; an empty one is that of all keys.
    pub prefixes: BTreeSet<Name>,
}

impl<C> Default for TrackingOptions<C> {
    fn default() -> Self {
        let (redirect, prefixes) = (None, BTreeSet::new());
        let (is_bcast, is_optin, is_optout, is_noloop) = (false, false, false, false);
        Self { redirect, is_bcast, is_optin, is_optout, is_noloop, prefixes }
    }
}

/// What a client is told has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Invalid {
    /// These keys.
    Keys(BTreeSet<Name>),
    /// Every key.
    All,
}

/// A client that tracks.
#[derive(Clone, Debug)]
pub struct Tracker<C> {
    /// How.
    pub options: TrackingOptions<C>,
    /// `CLIENT CACHING` was said for the next command.
    pub is_said: bool,
    /// It was said for the command that is taken now.
    pub is_said_now: bool,
    /// Whoever should be told in its place is gone.
    pub is_broken: bool,
    /// Keys of reads that are not answered, by the place of the answer; whether the client is told
    /// of the key behind it.
    open: BTreeMap<u64, Vec<(Name, bool)>>,
    /// What it is told behind the answers to its own writes, by their places.
    behind: BTreeMap<u64, Vec<Invalid>>,
}

/// Who noted a key.
#[derive(Clone, Debug)]
struct Noted<C> {
    clients: Vec<C>,
    look: Option<Look>,
}

/// When it is looked whether a key has expired.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Look {
    /// In ms since 1970.
    pub unix_ms: i64,
    /// Its deadline is then; otherwise more may be known of it then.
    pub is_deadline: bool,
}

impl<C> Default for Noted<C> {
    fn default() -> Self {
        Self { clients: Vec::new(), look: None }
    }
}

/// A read of a key, as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct TrackedRead<'a> {
    /// The name of the key, and its hash.
    pub key: &'a [u8],
    /// Equal for equal names.
    pub hash: u64,
    /// Where the key is.
    pub partition: usize,
    /// What all who may answer have applied; the highest there is where the answer has its own
    /// place among the writes.
    pub applied: Sequence,
    /// When it is to be looked whether the key has expired.
    pub look: Option<Look>,
}

/// Who may keep what, by clients of this kind.
#[derive(Clone, Debug)]
pub struct Tracking<C> {
    clients: BTreeMap<C, Tracker<C>>,
    keys: BTreeMap<Name, Noted<C>>,
    items: usize,
    /// Keys are given up one behind the other.
    given_up: Name,
    looks: BTreeSet<(Look, Name)>,
    prefixes: BTreeMap<Name, BTreeSet<C>>,
    /// Written since prefixes were told last, each by whom.
    written: BTreeMap<Name, Option<C>>,
    /// The last write of each place; empty until somebody tracks.
    places: Vec<Sequence>,
    /// The last write that may be of any key, by partition.
    of_all: BTreeMap<usize, Sequence>,
    /// The client and the place of what emptied all last: it has a part in each partition.
    emptied_by: Option<(C, u64)>,
    keys_max: usize,
    told: Vec<(C, Invalid)>,
}

impl<C> Default for Tracking<C> {
    fn default() -> Self {
        Self {
            clients: BTreeMap::new(),
            keys: BTreeMap::new(),
            items: 0,
            given_up: Name::default(),
            looks: BTreeSet::new(),
            prefixes: BTreeMap::new(),
            written: BTreeMap::new(),
            places: Vec::new(),
            of_all: BTreeMap::new(),
            emptied_by: None,
            keys_max: TRACKED_KEYS_MAX,
            told: Vec::new(),
        }
    }
}

impl<C: Copy> Tracker<C> {
    /// Whether what is read now is noted.
    pub fn notes(&self, key: &[u8]) -> bool {
        let options = &self.options;
        match options.is_bcast {
            true => options.prefixes.iter().any(|prefix| key.starts_with(prefix)),
            false if options.is_optin => self.is_said_now,
            false => !(options.is_optout && self.is_said_now),
        }
    }

    /// Answers of these reads do not show what is written now.
    fn doubt(&mut self, is_it: impl Fn(&[u8]) -> bool) {
        let open = self.open.values_mut().flatten();
        open.filter(|(key, _)| is_it(key)).for_each(|(_, is_told)| *is_told = true);
    }

    /// It is told of its own write behind the answer to that, of keys of one prefix together.
    fn tell_behind(&mut self, slot: u64, key: &[u8], prefix: Option<&[u8]>) {
        let behind = self.behind.entry(slot).or_default();
        let together = behind.iter_mut().find_map(|told| match (told, prefix) {
            (Invalid::Keys(keys), Some(prefix)) => {
                keys.first().is_some_and(|key| key.starts_with(prefix)).then_some(keys)
            }
            _ => None,
        });
        match together {
            Some(keys) => _ = keys.insert(key.into()),
            None => behind.push(of_one(key)),
        }
    }
}

fn of_one(key: &[u8]) -> Invalid {
    Invalid::Keys(BTreeSet::from([key.into()]))
}

impl<C: Copy + Ord> Tracking<C> {
    /// Whether anybody tracks: only then need reads and writes be noted.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Clients that track, keys that are noted, how often, and prefixes.
    pub fn sizes(&self) -> [usize; 4] {
        [self.clients.len(), self.keys.len(), self.items, self.prefixes.len()]
    }

    /// Keys that are noted at most; 0 = any number.
    pub const fn keys_max(&self) -> usize {
        self.keys_max
    }

    /// Changes that; who noted what is too much is told.
    pub fn set_keys_max(&mut self, keys_max: usize) {
        self.keys_max = keys_max;
        self.give_up(None);
    }

    /// A client that tracks.
    pub fn tracker(&mut self, client: C) -> Option<&mut Tracker<C>> {
        self.clients.get_mut(&client)
    }

    /// A client tracks, in this way from now on. With what it said before it keeps its prefixes.
    /// `sent`: the last write of each partition, which somebody may lack.
    pub fn begin(
        &mut self,
        client: C,
        options: TrackingOptions<C>,
        sent: impl Iterator<Item = (usize, Sequence)>,
    ) {
        if !self.is_on() {
            self.places.clear();
            self.places.resize(PLACES, Sequence(0));
            self.of_all = sent.collect();
        }
        for prefix in &options.prefixes {
            self.prefixes.entry(prefix.clone()).or_default().insert(client);
        }
        match self.clients.entry(client) {
            Place::Occupied(mut known) => {
                let known = known.get_mut();
                let mut before = std::mem::replace(&mut known.options, options);
                known.options.prefixes.append(&mut before.prefixes);
                known.is_broken = false;
            }
            Place::Vacant(place) => {
                let (open, behind) = (BTreeMap::new(), BTreeMap::new());
                let (is_said, is_said_now, is_broken) = (false, false, false);
                place.insert(Tracker { options, is_said, is_said_now, is_broken, open, behind });
            }
        }
    }

    /// A client tracks no more. What it noted is forgotten when it changes; all is, with the last.
    pub fn end(&mut self, client: C) {
        let Some(tracker) = self.clients.remove(&client) else { return };
        for prefix in &tracker.options.prefixes {
            if let Place::Occupied(mut clients) = self.prefixes.entry(prefix.clone()) {
                clients.get_mut().remove(&client);
                if clients.get().is_empty() {
                    clients.remove();
                }
            }
        }
        if self.clients.is_empty() {
            *self = Self { keys_max: self.keys_max, ..Self::default() };
        }
    }

    /// A client's read is sent, whose answer has this place.
    pub fn read(&mut self, client: C, slot: u64, read: &TrackedRead<'_>) {
        let is_behind = self.is_behind(read.hash, read.partition, read.applied);
        let Some(tracker) = self.clients.get_mut(&client) else { return };
        if !tracker.notes(read.key) {
            return;
        }
        tracker.open.entry(slot).or_default().push((read.key.into(), is_behind));
        let noted = self.keys.entry(read.key.into()).or_default();
        if !noted.clients.contains(&client) {
            noted.clients.push(client);
            self.items += 1;
        }
        self.look_at(read.key, read.look);
        self.give_up(Some(read.key));
    }

    /// The same read may be answered by others, who have applied this.
    pub fn resent(&mut self, client: C, slot: u64, read: &TrackedRead<'_>) {
        let is_behind = self.is_behind(read.hash, read.partition, read.applied);
        let open = self.clients.get_mut(&client).and_then(|it| it.open.get_mut(&slot));
        let keys = open.into_iter().flatten().filter(|(key, _)| is_behind && **key == *read.key);
        keys.for_each(|(_, is_told)| *is_told = true);
    }

    /// Whether somebody who has applied this may lack the last write of a key.
    fn is_behind(&self, hash: u64, partition: usize, applied: Sequence) -> bool {
        self.last_of(hash, partition) > applied
    }

    /// The last write that may be of a key with this hash: who has applied it lacks none.
    pub fn last_of(&self, hash: u64, partition: usize) -> Sequence {
        let place = self.places.get((hash % PLACES as u64) as usize);
        let of_all = self.of_all.get(&partition);
        place.into_iter().chain(of_all).copied().max().unwrap_or_default()
    }

    /// A write of a key gets its place; `writer`: whose, with the place of its answer.
    pub fn wrote(
        &mut self,
        (key, hash): (&[u8], u64),
        sequence: Sequence,
        writer: Option<(C, u64)>,
    ) {
        if let Some(place) = self.places.get_mut((hash % PLACES as u64) as usize) {
            *place = sequence;
        }
        self.changed(key, writer);
        self.broadcast_later(key, writer);
    }

    /// A key has expired, or may have.
    pub fn expired(&mut self, key: &[u8]) {
        self.changed(key, None);
        self.broadcast_later(key, None);
    }

    /// Who noted a key is told, and forgotten; who is told by prefix is told so.
    fn changed(&mut self, key: &[u8], writer: Option<(C, u64)>) {
        for client in self.forget(key).clients {
            let Some(tracker) = self.clients.get_mut(&client) else { continue };
            if tracker.options.is_bcast {
                continue;
            }
            match writer.filter(|(it, _)| *it == client) {
                Some(_) if tracker.options.is_noloop => {}
                Some((_, slot)) => tracker.tell_behind(slot, key, None),
                None => {
                    tracker.doubt(|open| open == key);
                    self.told.push((client, of_one(key)));
                }
            }
        }
    }

    fn broadcast_later(&mut self, key: &[u8], writer: Option<(C, u64)>) {
        let mut is_told = false;
        for (prefix, clients) in self.prefixes.iter().filter(|(it, _)| key.starts_with(it)) {
            is_told = true;
            for client in clients {
                let Some(tracker) = self.clients.get_mut(client) else { continue };
                match writer.filter(|(it, _)| it == client) {
                    Some(_) if tracker.options.is_noloop => {}
                    Some((_, slot)) => tracker.tell_behind(slot, key, Some(prefix)),
                    None => tracker.doubt(|open| open == key),
                }
            }
        }
        if is_told {
            self.written.insert(key.into(), writer.map(|(client, _)| client));
        }
    }

    /// Whether some client is told of keys by their prefixes, whoever reads them.
    #[inline]
    pub fn has_prefixes(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Whether some client is told of this key by its prefix.
    pub fn is_broadcast(&self, key: &[u8]) -> bool {
        self.prefixes.keys().any(|prefix| key.starts_with(prefix))
    }

    /// Every key of a partition is gone, or may have been written: all clients forget all keys.
    pub fn emptied(&mut self, partition: usize, sequence: Sequence, writer: Option<(C, u64)>) {
        self.of_all.insert(partition, sequence);
        let is_told = writer.is_some() && self.emptied_by == writer;
        self.emptied_by = writer;
        self.keys.clear();
        self.looks.clear();
        self.items = 0;
        for (client, tracker) in &mut self.clients {
            match writer.filter(|(it, _)| it == client) {
                Some(_) if is_told => {}
                Some((_, slot)) => tracker.behind.entry(slot).or_default().push(Invalid::All),
                None => {
                    tracker.doubt(|_| true);
                    if !is_told {
                        self.told.push((*client, Invalid::All));
                    }
                }
            }
        }
    }

    /// Somebody who answers from now on may lack what was written until then.
    pub fn moved(&mut self, partition: usize, sequence: Sequence) {
        if self.is_on() {
            self.of_all.insert(partition, sequence);
        }
    }

    /// A key is to be looked at then, whoever noted it.
    pub fn look_at(&mut self, key: &[u8], look: Option<Look>) {
        let Some(look) = look else { return };
        let noted = self.keys.entry(key.into()).or_default();
        if let Some(before) = noted.look.replace(look) {
            self.looks.remove(&(before, key.into()));
        }
        self.looks.insert((look, key.into()));
        self.give_up(Some(key));
    }

    /// Whether some key is to be looked at, at any time.
    pub fn has_looks(&self) -> bool {
        !self.looks.is_empty()
    }

    /// The next key that is to be looked at by now, and whether its deadline has passed.
    pub fn overdue(&mut self, now_unix_ms: i64) -> Option<(Name, bool)> {
        let first = self.looks.first().filter(|(look, _)| look.unix_ms <= now_unix_ms)?.clone();
        self.looks.remove(&first);
        if let Some(noted) = self.keys.get_mut(&first.1) {
            noted.look = None;
        }
        Some((first.1, first.0.is_deadline))
    }

    /// Nobody has noted a key any more; who had.
    fn forget(&mut self, key: &[u8]) -> Noted<C> {
        let noted = self.keys.remove(key).unwrap_or_default();
        self.items -= noted.clients.len();
        if let Some(look) = noted.look {
            self.looks.remove(&(look, key.into()));
        }
        noted
    }

    /// Gives up keys that are too many, but not this one.
    fn give_up(&mut self, kept: Option<&[u8]>) {
        while self.keys_max > 0 && self.keys.len() > self.keys_max {
            let behind = (Bound::Excluded(&*self.given_up), Bound::Unbounded);
            let is_other = |key: &&Name| kept != Some(&***key);
            let next = self.keys.range::<[u8], _>(behind).map(|(key, _)| key).find(is_other);
            let next = next.or_else(|| self.keys.keys().find(is_other));
            let Some(key) = next.cloned() else { return };
            let noted = self.forget(&key);
            for client in noted.clients {
                let Some(tracker) = self.clients.get_mut(&client) else { continue };
                tracker.doubt(|open| *open == *key);
                self.told.push((client, of_one(&key)));
            }
            if noted.look.is_some() {
                self.broadcast_later(&key, None); // nobody looks whether it has expired
            }
            self.given_up = key;
        }
    }

    /// The answer at this place was written to a client: what it is told behind it.
    pub fn answered(&mut self, client: C, slot: u64) -> Vec<Invalid> {
        let Some(tracker) = self.clients.get_mut(&client) else { return Vec::new() };
        let mut told = Vec::new();
        while let Some(open) = tracker.open.first_entry().filter(|it| *it.key() <= slot) {
            let stale = open.remove().into_iter().filter(|(_, is_told)| *is_told);
            told.extend(stale.map(|(key, _)| of_one(&key)));
        }
        while let Some(behind) = tracker.behind.first_entry().filter(|it| *it.key() <= slot) {
            told.extend(behind.remove());
        }
        told
    }

    /// A client's write that had this place changed nothing, and has no answer yet: what it is told
    /// at once.
    pub fn undone(&mut self, client: C, slot: u64) -> Vec<Invalid> {
        let behind = self.clients.get_mut(&client).and_then(|it| it.behind.remove(&slot));
        behind.unwrap_or_default()
    }

    /// Whether a message waits for somebody.
    #[inline]
    pub fn has_messages(&self) -> bool {
        !self.told.is_empty() || !self.written.is_empty()
    }

    /// Who is told what at once. Of prefixes once for all that was written since the last time.
    pub fn take_messages(&mut self) -> Vec<(C, Invalid)> {
        let mut told = std::mem::take(&mut self.told);
        let written = std::mem::take(&mut self.written);
        for (prefix, clients) in self.prefixes.iter().filter(|_| !written.is_empty()) {
            for client in clients {
                // Of its own writes it was told behind their answers.
                let of_others = written.iter().filter(|(_, writer)| **writer != Some(*client));
                let keys = of_others.map(|(key, _)| key).filter(|key| key.starts_with(prefix));
                let keys: BTreeSet<Name> = keys.cloned().collect();
                if !keys.is_empty() {
                    told.push((*client, Invalid::Keys(keys)));
                }
            }
        }
        told
    }
}

#[cfg(test)]
mod tests;
