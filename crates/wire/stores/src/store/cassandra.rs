//! Cassandra as a duplicate: everything, expiries too; one duplicate is a node or a whole cluster.
//!
//! A duplicate is a keyspace. `entries_N` has a row for each key; `journal` has one row, with the
//! number of the last batch (its *stamp*), what that batch changed, and the number N.
//!
//! **A batch** is written twice. First into the journal, by a lightweight transaction: from stamp
//! n to n + 1 if it is still n. Then into the entries, all at once, `USING TIMESTAMP n + 1`: where
//! rows come late, twice or in another order (a hint, a retry, a process that died in between),
//! the later batch has the higher timestamp and stays. Whoever comes next, this process after an
//! error too, reads the journal (`SERIAL`) and writes the entries of its batch again, before
//! anything else. So a batch is there as a whole or not at all, a watermark is in step with the
//! writes that it counts, and the order is that of the stamps, whatever clocks say.
//!
//! **Fencing.** The stamp is read only when the store is opened and after an error, and an error
//! ends all connections: whoever uses the store then asks for the epoch anew. So whoever writes
//! anything after another process has written anything is refused, but for a new epoch: that waits
//! for the other one's batches, unless they change the epoch too. One that was stopped
//! between journal and entries and wakes writes what its successor has written already, at
//! timestamps below all that came since.
//!
//! **Emptying** begins another table, `entries_N+1`, with nothing but the epoch in it, and drops
//! the one before: late writes have no table any more, and no tombstones are left.
//!
//! What a stopped process could still do: bring a row back that it had journaled and that was
//! deleted since, if it sleeps for longer than `gc_grace_seconds` (ten days) on a connection that
//! is still open.
//!
//! **Expiry** is a time in the entry. The row's `TTL` is a day longer, and only sweeps.
//!
//! Source: CQL 3.4 of Cassandra 5.0; `native_protocol_v4.spec`.

mod journal;
mod link;
mod schema;
mod settings;
#[cfg(test)]
mod tests;

use std::io;

use bytes::Bytes;
use evenkeel_core::request::ring::Consistency;
use evenkeel_core::request::ring::murmur::token;
use evenkeel_cql::request::Bound;
use evenkeel_cql::rows::Row;
use evenkeel_cql::{Value as Term, value};

use self::journal::Record;
use self::link::{Link, Step, rows};
pub use self::settings::{CassandraAccess, CassandraSettings};
use super::keys::{EPOCH, RESERVED, WATERMARK};
use super::{Abilities, Change, Entry, Host, Page, Pauses, Store, codec, now_ms};

const KEY_BYTES_MAX: usize = 8 << 10;
const VALUE_BYTES_MAX: usize = 1 << 20;
/// Of what is journaled at once. Nodes take mutations of 16 MiB by default, and a small one has
/// room for requests of a fortieth of its heap.
const JOURNAL_BYTES_MAX: usize = 4 << 20;
/// Keys of one page: answers have a length that is known before they are read.
const PAGE_KEYS_MAX: usize = 1_000;
/// Keys are counted no further: it is only asked whether there are any but ours.
const COUNT_MAX: usize = 1_000;
/// Batches of another process that a new epoch waits for.
const CLAIMS_MAX: usize = 100;
/// What is swept expires that much later, in seconds: clocks of servers differ.
const SWEPT_AFTER: u64 = 24 * 3_600;
/// Longer lives are not given to servers, whose clocks end in 2038: such rows are not swept.
const SWEPT_MAX: u64 = 365 * 24 * 3_600;

/// Where the journal is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    /// The number of the last batch, 0 before the first; the timestamp of its rows.
    stamp: i64,
    /// The number of the table that has the entries.
    generation: i64,
}

/// One keyspace and who is asked for it.
#[derive(Debug)]
pub struct Cassandra {
    settings: CassandraSettings,
    link: Option<Link>,
    /// Which contact point is asked.
    contact: usize,
    /// Where the journal was when it was read or written here last; `None` after an error.
    place: Option<Place>,
    /// The epoch that was there at that place.
    epoch: Option<Entry>,
}

impl Cassandra {
    /// Connects, makes keyspace and tables where they are missing, and completes the last batch.
    ///
    /// # Errors
    /// When no contact point answers, or what is missing cannot be made.
    pub async fn open(settings: CassandraSettings) -> io::Result<Self> {
        if !settings.is_sound() {
            let message = format!("Cassandra {settings}: expected {}", CassandraSettings::EXPECTED);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut store = Self { settings, link: None, contact: 0, place: None, epoch: None };
        let mut why = Vec::new();
        for _ in 0..store.settings.contact_points.len() {
            match store.begin().await {
                Ok(()) => return Ok(store),
                Err(error) => {
                    why.push(error.to_string());
                    store.look_elsewhere();
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::NotConnected, why.join("; ")))
    }

    /// Connects in a thread of its own.
    ///
    /// # Errors
    /// As [`Cassandra::open`].
    pub fn start(
        name: &str,
        settings: CassandraSettings,
        pauses: Option<Pauses>,
    ) -> io::Result<Host> {
        Host::start(name, pauses, async move || Self::open(settings).await)
    }

    async fn begin(&mut self) -> io::Result<()> {
        let settings = self.settings.clone();
        schema::prepare(self.link()?, &settings).await?;
        self.settle().await.map(drop)
    }

    fn link(&mut self) -> io::Result<&mut Link> {
        if self.link.is_none() {
            let address = self.settings.contact_points[self.contact];
            self.link = Some(Link::new(address, &self.settings.access)?);
        }
        Ok(self.link.as_mut().expect("it is there from now on"))
    }

    /// After an error: the node may be at fault, and what it did is not known.
    fn look_elsewhere(&mut self) {
        self.link = None;
        self.contact = (self.contact + 1) % self.settings.contact_points.len();
    }

    /// Asks for all of these at once.
    async fn all(&mut self, steps: Vec<Step>, level: Consistency) -> io::Result<Vec<Bytes>> {
        let asked = match self.link() {
            Ok(link) => link.all(steps, level).await,
            Err(error) => Err(error),
        };
        if asked.is_err() {
            self.look_elsewhere();
        }
        asked
    }

    async fn one(&mut self, step: Step, level: Consistency) -> io::Result<Bytes> {
        Ok(self.all(vec![step], level).await?.remove(0))
    }

    fn entries(&self, generation: i64) -> String {
        format!("\"{}\".entries_{generation}", self.settings.keyspace)
    }

    fn journal(&self) -> String {
        format!("\"{}\".journal", self.settings.keyspace)
    }

    async fn place(&mut self) -> io::Result<Place> {
        match self.place {
            Some(place) => Ok(place),
            None => self.settle().await,
        }
    }

    /// Reads where the journal is, and completes its last batch.
    async fn settle(&mut self) -> io::Result<Place> {
        let journal = self.journal();
        let text = format!("SELECT stamp, generation, changes FROM {journal} WHERE name = 'last'");
        let serial = self.settings.access.serial();
        let answer = self.one(Step::new(text), serial).await?;
        let read = |row: Row<'_>| {
            let number = |at: usize| row.at(at).and_then(value::bigint);
            let changes = journal::decode(row.at(2).unwrap_or_default())?;
            Some((Place { stamp: number(0)?, generation: number(1)? }, changes))
        };
        let found = rows(&answer, read)?.pop();
        let Some((place, Record { changes })) = found else {
            let message = format!("the row of {journal} is missing (was it truncated?)");
            return Err(self.error_at(&message));
        };
        self.apply(&changes, place).await?;
        let settings = self.settings.clone();
        schema::drop_before(self.link()?, &settings, place.generation).await?;
        self.epoch = self.load_from(place, &[EPOCH]).await?.remove(0);
        self.place = Some(place);
        Ok(place)
    }

    fn error_at(&self, message: &str) -> io::Error {
        let address = self.settings.contact_points[self.contact];
        io::Error::other(format!("Cassandra {address}: {message}"))
    }

    /// Makes a batch the last one, if `from` is the last so far; whether it was.
    async fn swap(&mut self, from: Place, to: Place, changes: &[u8]) -> io::Result<bool> {
        let journal = self.journal();
        let text = format!(
            "UPDATE {journal} SET stamp = ?, generation = ?, changes = ? WHERE name = 'last' IF \
             stamp = ?"
        );
        let mut values = Bound::new();
        values
            .push(Term::Bytes(&to.stamp.to_be_bytes()))
            .push(Term::Bytes(&to.generation.to_be_bytes()))
            .push(Term::Bytes(changes))
            .push(Term::Bytes(&from.stamp.to_be_bytes()));
        let quorum = self.settings.access.quorum();
        let answer = self.one(Step { text, values }, quorum).await?;
        let applied = rows(&answer, |row| row.at(0).and_then(value::boolean))?;
        applied.first().copied().ok_or_else(|| self.error_at("a condition without an answer"))
    }

    /// Writes the entries of a batch.
    async fn apply(&mut self, changes: &[Change], place: Place) -> io::Result<()> {
        let entries = self.entries(place.generation);
        let put =
            format!("UPDATE {entries} USING TIMESTAMP ? AND TTL ? SET entry = ? WHERE key = ?");
        let delete = format!("DELETE FROM {entries} USING TIMESTAMP ? WHERE key = ?");
        let stamp = place.stamp.to_be_bytes();
        let now_ms = now_ms();
        let steps = changes.iter().map(|(key, entry)| {
            let mut values = Bound::new();
            values.push(Term::Bytes(&stamp));
            if let Some(entry) = entry {
                let seconds = swept_after(entry.expires_ms, now_ms);
                values.push(Term::Bytes(&seconds.to_be_bytes()));
                values.push(Term::Bytes(&codec::encode(entry)));
            }
            values.push(Term::Bytes(key));
            let text = if entry.is_some() { put.clone() } else { delete.clone() };
            Step { text, values }
        });
        let quorum = self.settings.access.quorum();
        self.all(steps.collect(), quorum).await.map(drop)
    }

    async fn load_from(&mut self, place: Place, keys: &[&[u8]]) -> io::Result<Vec<Option<Entry>>> {
        let entries = self.entries(place.generation);
        let text = format!("SELECT entry FROM {entries} WHERE key = ?");
        let steps = keys.iter().map(|key| {
            let mut values = Bound::new();
            values.push(Term::Bytes(key));
            Step { text: text.clone(), values }
        });
        let quorum = self.settings.access.quorum();
        let answers = self.all(steps.collect(), quorum).await?;
        let read = |answer: &Bytes| {
            let entry = rows(answer, |row| codec::decode(row.at(0)?))?.pop();
            Ok(entry)
        };
        answers.iter().map(read).collect::<io::Result<_>>()
    }

    /// One batch: journal, then entries.
    async fn commit(&mut self, changes: &[Change]) -> io::Result<()> {
        let bytes = journal::encode(changes);
        let claimed = changes.iter().rfind(|(key, _)| key == EPOCH).map(|(_, entry)| entry);
        for _ in 0..CLAIMS_MAX {
            let from = self.place().await?;
            let to = Place { stamp: from.stamp + 1, ..from };
            if self.swap(from, to, &bytes).await? {
                self.apply(changes, to).await?;
                self.place = Some(to);
                if let Some(epoch) = claimed {
                    self.epoch.clone_from(epoch);
                }
                return Ok(());
            }
            if claimed.is_none() {
                break;
            }
            // Somebody else writes. A new epoch was chosen above the one that was there at our
            // place: it may come after the other's batches, not after another epoch.
            let before = self.epoch.take();
            self.settle().await?;
            if self.epoch != before {
                break;
            }
        }
        Err(self.error_at("another process has written here, this one must ask for the epoch"))
    }

    async fn store_parts(&mut self, changes: &[Change]) -> io::Result<()> {
        let parts = parts(changes);
        let mark = changes.iter().find(|(key, _)| key == WATERMARK);
        if let (2.., Some((key, Some(entry)))) = (parts.len(), mark) {
            self.commit(&[(key.clone(), Some(journal::doubtful(entry)))]).await?;
        }
        for part in parts {
            self.commit(&part).await?;
        }
        Ok(())
    }

    /// Begins another table, with the epoch of the one before.
    async fn begin_anew(&mut self) -> io::Result<()> {
        let from = self.place().await?;
        let to = Place { stamp: from.stamp + 1, generation: from.generation + 1 };
        let settings = self.settings.clone();
        schema::make_entries(self.link()?, &settings, to.generation).await?;
        let kept = self.epoch.clone().map(|epoch| (EPOCH.to_vec(), Some(epoch)));
        let kept: Vec<Change> = kept.into_iter().collect();
        if !self.swap(from, to, &journal::encode(&kept)).await? {
            return Err(self.error_at("another process has written here, it is not emptied"));
        }
        self.apply(&kept, to).await?;
        schema::drop_before(self.link()?, &settings, to.generation).await?;
        self.place = Some(to);
        Ok(())
    }

    /// After an error it is not known where the journal is.
    fn doubting<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        if done.is_err() {
            (self.place, self.epoch) = (None, None);
            self.look_elsewhere();
        }
        done
    }
}

impl Store for Cassandra {
    fn name(&self) -> &'static str {
        "cassandra"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            has_collections: true,
            has_expiry: true,
            key_bytes_min: 1,
            key_bytes_max: KEY_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
            change_bytes_max: 1 << 20,
        }
    }

    async fn load(&mut self, keys: &[&[u8]]) -> io::Result<Vec<Option<Entry>>> {
        let place = self.place().await?;
        self.load_from(place, keys).await
    }

    async fn store(&mut self, changes: &[Change]) -> io::Result<()> {
        let stored = self.store_parts(changes).await;
        self.doubting(stored)
    }

    /// By token, and by key where two have one.
    async fn list(&mut self, after: Option<&[u8]>, count: usize) -> io::Result<Page> {
        let place = self.place().await?;
        let entries = self.entries(place.generation);
        let from = after.map(|after| token(after).0);
        let mut limit = count.clamp(1, PAGE_KEYS_MAX) + usize::from(after.is_some());
        loop {
            let mut values = Bound::new();
            let mut clause = "";
            if let Some(from) = from {
                clause = " WHERE token(key) >= ?";
                values.push(Term::Bytes(&from.to_be_bytes()));
            }
            let text = format!("SELECT key FROM {entries}{clause} LIMIT ?");
            let most = i32::try_from(limit).unwrap_or(i32::MAX);
            values.push(Term::Bytes(&most.to_be_bytes()));
            let quorum = self.settings.access.quorum();
            let answer = self.one(Step { text, values }, quorum).await?;
            let mut keys = rows(&answer, |row| row.at(0).map(<[u8]>::to_vec))?;
            let is_last = keys.len() < limit;
            keys.retain(|key| {
                after.is_none_or(|after| (token(key).0, key.as_slice()) > (token(after).0, after))
            });
            if is_last || !keys.is_empty() {
                return Ok(Page { keys, is_last });
            }
            // Only keys of this token up to this one: who chose them chose them for that.
            limit = limit.saturating_mul(2);
        }
    }

    async fn count(&mut self) -> io::Result<u64> {
        let place = self.place().await?;
        let text = format!("SELECT key FROM {} LIMIT {COUNT_MAX}", self.entries(place.generation));
        let quorum = self.settings.access.quorum();
        let answer = self.one(Step::new(text), quorum).await?;
        Ok(rows(&answer, |row| row.at(0).map(drop))?.len() as u64)
    }

    async fn clear(&mut self) -> io::Result<()> {
        let cleared = self.begin_anew().await;
        self.doubting(cleared)
    }
}

/// Batches that fit into the journal; what is kept about the writes, the watermark, in the last.
fn parts(changes: &[Change]) -> Vec<Vec<Change>> {
    let (own, others): (Vec<_>, Vec<_>) =
        changes.iter().cloned().partition(|(key, _)| key.starts_with(RESERVED));
    let (mut parts, mut bytes) = (vec![Vec::new()], 0);
    for change in others.into_iter().chain(own) {
        let size = journal::size(&change);
        if bytes + size > JOURNAL_BYTES_MAX && bytes > 0 {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        parts.last_mut().expect("there is one from the start").push(change);
    }
    parts
}

/// In how many seconds a row may be swept; 0 = never.
fn swept_after(expires_ms: Option<u64>, now_ms: u64) -> i32 {
    let Some(at) = expires_ms else { return 0 };
    let seconds = at.saturating_sub(now_ms).div_ceil(1_000);
    if seconds > SWEPT_MAX {
        return 0;
    }
    i32::try_from(seconds + SWEPT_AFTER).unwrap_or(0)
}
