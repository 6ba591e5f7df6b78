//! A store inside this process, in one file: redb, a copy-on-write B-tree.
//!
//! A batch is one transaction, so a watermark in it is in step with the writes that it counts
//! whatever happens. Under [`Durability::Every`] a crash takes back the last transactions, the
//! watermark with them, and the log brings them again.

use std::fs;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use redb::{Database, DatabaseError, ReadableTable as _, ReadableTableMetadata as _};
use redb::{Durability as Commit, Table, TableDefinition, WriteTransaction};

use super::codec::{decode, encode, expiry};
use super::{Abilities, Change, Entry, Host, Page, Pauses, Store};

const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");
/// When keys expire, in milliseconds since 1970.
const EXPIRIES: TableDefinition<'_, (u64, &[u8]), ()> = TableDefinition::new("expiries");

/// Keys that have expired and are removed with one batch of changes.
const EXPIRED_AT_ONCE: usize = 20;

/// When a batch is made to survive the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// Before it is answered: as slow as the disk.
    Always,
    /// With the first batch after so long. The end of the process, too, takes back what came after
    /// the last one; the log has it.
    Every(Duration),
}

/// How the store is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmbeddedSettings {
    /// Its file; another for every store.
    pub path: PathBuf,
    /// When what is answered is durable.
    pub durability: Durability,
    /// Memory for pages of the file, in bytes.
    pub cache_bytes: usize,
}

impl EmbeddedSettings {
    /// A store in this file, durable once in a second, with 64 MiB of memory.
    pub fn at(path: &Path) -> Self {
        let durability = Durability::Every(Duration::from_secs(1));
        Self { path: path.to_owned(), durability, cache_bytes: 64 << 20 }
    }
}

/// An open store.
#[derive(Debug)]
pub struct Embedded {
    path: PathBuf,
    durability: Durability,
    database: Database,
    durable_at: Instant,
    /// Something was committed that a crash takes back.
    is_pending: bool,
}

impl Embedded {
    /// Opens the file, or makes it.
    ///
    /// # Errors
    /// When it is open elsewhere, is no such file, or cannot be read.
    pub fn open(settings: &EmbeddedSettings) -> io::Result<Self> {
        let EmbeddedSettings { path, durability, cache_bytes } = settings;
        let place = path.display();
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
            })?;
        }
        let opened = Database::builder().set_cache_size(*cache_bytes).create(path);
        let database = opened.map_err(|error| {
            io::Error::other(match &error {
                DatabaseError::DatabaseAlreadyOpen => {
                    format!("{place} is open elsewhere: each store needs a file of its own")
                }
                _ => format!("{place}: {error} (is it the file of an embedded store?)"),
            })
        })?;
        let mut store = Self {
            path: path.clone(),
            durability: *durability,
            database,
            durable_at: Instant::now(),
            is_pending: true,
        };
        // Readers find both tables from here on.
        store.write(true, |entries, expiries| {
            entries.len()?;
            expiries.len()?;
            Ok(())
        })?;
        Ok(store)
    }

    /// Opens it in a thread of its own.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn start(
        name: &str,
        settings: EmbeddedSettings,
        pauses: Option<Pauses>,
    ) -> io::Result<Host> {
        Host::start(name, pauses, async move || Self::open(&settings))
    }

    fn failed(path: &Path, Failed(error): &Failed) -> io::Error {
        io::Error::other(format!("{}: {error} (is the disk full or unsound?)", path.display()))
    }

    fn write(
        &mut self,
        is_durable: bool,
        change: impl FnOnce(&mut Entries<'_>, &mut Expiries<'_>) -> Result<(), Failed>,
    ) -> io::Result<()> {
        let is_due = match self.durability {
            Durability::Always => true,
            Durability::Every(every) => self.durable_at.elapsed() >= every,
        };
        let is_durable = is_durable || is_due;
        let committed = self.begin(is_durable).and_then(|transaction| {
            {
                let mut entries = transaction.open_table(ENTRIES)?;
                let mut expiries = transaction.open_table(EXPIRIES)?;
                change(&mut entries, &mut expiries)?;
            }
            Ok(transaction.commit()?)
        });
        committed.map_err(|error: Failed| Self::failed(&self.path, &error))?;
        self.is_pending = !is_durable;
        if is_durable {
            self.durable_at = Instant::now();
        }
        Ok(())
    }

    fn begin(&self, is_durable: bool) -> Result<WriteTransaction, Failed> {
        let mut transaction = self.database.begin_write()?;
        let commit = if is_durable { Commit::Immediate } else { Commit::None };
        transaction.set_durability(commit);
        Ok(transaction)
    }

    fn read<T>(
        &self,
        read: impl FnOnce(redb::ReadOnlyTable<&'static [u8], &'static [u8]>) -> Result<T, Failed>,
    ) -> io::Result<T> {
        let opened = self.database.begin_read().map_err(Failed::from);
        let result = opened.and_then(|reading| read(reading.open_table(ENTRIES)?));
        result.map_err(|error| Self::failed(&self.path, &error))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if self.is_pending
            && let Err(error) = self.write(true, |_, _| Ok(()))
        {
            tracing::warn!(%error, "the last changes of a store are not durable");
        }
    }
}

/// What redb says; its own type is large.
struct Failed(Box<redb::Error>);

impl<E: Into<redb::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(Box::new(error.into()))
    }
}

type Entries<'a> = Table<'a, &'static [u8], &'static [u8]>;
type Expiries<'a> = Table<'a, (u64, &'static [u8]), ()>;

impl Store for Embedded {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            has_collections: true,
            has_expiry: true,
            key_bytes_min: 0,
            key_bytes_max: 1 << 20,
            value_bytes_max: 1 << 30,
            change_bytes_max: 64 << 20,
        }
    }

    async fn load(&mut self, keys: &[&[u8]]) -> io::Result<Vec<Option<Entry>>> {
        let loaded = self.read(|table| {
            keys.iter().map(|&key| Ok(table.get(key)?.map(|entry| decode(entry.value())))).collect()
        });
        let loaded: Vec<Option<Option<Entry>>> = loaded?;
        let damaged = || {
            let path = self.path.display();
            io::Error::other(format!("{path}: an entry that this program did not write"))
        };
        let entries = loaded.into_iter().map(|entry| entry.map(|e| e.ok_or_else(damaged)));
        entries.map(Option::transpose).collect()
    }

    async fn store(&mut self, changes: &[Change]) -> io::Result<()> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        self.write(false, |entries, expiries| {
            for (key, entry) in changes {
                change(entries, expiries, key, entry.as_ref())?;
            }
            remove_expired(entries, expiries, now_ms)
        })
    }

    async fn list(&mut self, after: Option<&[u8]>, count: usize) -> io::Result<Page> {
        self.read(|table| {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let mut range = table.range::<&[u8]>((from, Bound::Unbounded))?;
            let mut page = Page::default();
            for entry in range.by_ref().take(count) {
                page.keys.push(entry?.0.value().to_vec());
            }
            page.is_last = range.next().is_none();
            Ok(page)
        })
    }

    async fn count(&mut self) -> io::Result<u64> {
        self.read(|table| Ok(table.len()?))
    }

    async fn clear(&mut self) -> io::Result<()> {
        let cleared = self.begin(true).and_then(|transaction| {
            transaction.delete_table(ENTRIES)?;
            transaction.delete_table(EXPIRIES)?;
            transaction.open_table(ENTRIES)?;
            transaction.open_table(EXPIRIES)?;
            Ok(transaction.commit()?)
        });
        cleared.map_err(|error| Self::failed(&self.path, &error))
    }
}

/// Changes one key, and when it expires.
fn change(
    entries: &mut Entries<'_>,
    expiries: &mut Expiries<'_>,
    key: &[u8],
    entry: Option<&Entry>,
) -> Result<(), Failed> {
    let before = match entry {
        Some(entry) => entries.insert(key, encode(entry).as_slice())?,
        None => entries.remove(key)?,
    };
    let expired = before.and_then(|before| expiry(before.value()));
    let expires = entry.and_then(|entry| entry.expires_ms);
    if expired == expires {
        return Ok(());
    }
    if let Some(at) = expired {
        expiries.remove((at, key))?;
    }
    if let Some(at) = expires {
        expiries.insert((at, key), ())?;
    }
    Ok(())
}

fn remove_expired(
    entries: &mut Entries<'_>,
    expiries: &mut Expiries<'_>,
    now_ms: u64,
) -> Result<(), Failed> {
    let mut due = Vec::new();
    for expiry in expiries.range::<(u64, &[u8])>(..(now_ms, &[][..]))?.take(EXPIRED_AT_ONCE) {
        let (expiry, ()) = expiry.map(|(expiry, _)| (expiry, ()))?;
        let (at, key) = expiry.value();
        due.push((at, key.to_vec()));
    }
    for (at, key) in due {
        expiries.remove((at, key.as_slice()))?;
        entries.remove(key.as_slice())?;
    }
    Ok(())
}
