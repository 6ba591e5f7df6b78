//! Stores that are no Redis as duplicates: RESP servers inside this process.
//!
//! What a store has to be able to do is little ([`Store`]): give the entries of some keys, take
//! changes, list its keys. All of Redis's manners (which commands there are, what they answer, what
//! is an error) are in one place for all stores (`commands/`), and so is the protocol
//! (`session.rs`). A store that is added is one file.
//!
//! **One batch, one change.** All that has arrived on a connection is one batch: its keys are
//! loaded together, its commands are run in memory one after the other, and what they changed is
//! stored together, before anything is answered. A store that takes changes as a whole therefore
//! keeps a watermark in step with the writes it counts, and a `MULTI` … `EXEC` is whole as well.
//!
//! **What this costs.** A command takes its whole value into memory and writes it whole: fine for
//! strings, and for hashes and sets of some thousand fields. A field of a larger one is changed in
//! time proportional to the whole.
//!
//! **Order.** Fields of hashes and members of sets come sorted; Redis promises no order.

pub mod cassandra;
mod clients;
mod codec;
mod commands;
pub mod embedded;
mod host;
pub mod keys;
pub mod memcached;
mod pauses;
mod session;
#[cfg(test)]
mod tests;
pub mod zookeeper;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

pub use self::host::Host;
pub use self::pauses::Pauses;
pub use self::session::{Shared, serve};

/// What a key holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A string of bytes.
    Text(Vec<u8>),
    /// Fields and their values; never without a field.
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Members; never without one.
    Set(BTreeSet<Vec<u8>>),
}

/// What a key holds, and until when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it holds.
    pub value: Value,
    /// From when on it holds nothing, in milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// One key and what it is to hold from now on; `None` = nothing.
pub type Change = (Vec<u8>, Option<Entry>);

/// A page of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// In the store's order.
    pub keys: Vec<Vec<u8>>,
    /// Whether none follows.
    pub is_last: bool,
}

/// What a store can keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Abilities {
    /// Hashes and sets, not only strings.
    pub has_collections: bool,
    /// Entries that expire.
    pub has_expiry: bool,
    /// The shortest key, in bytes.
    pub key_bytes_min: usize,
    /// The longest key, in bytes.
    pub key_bytes_max: usize,
    /// The longest value with what is kept beside it, in bytes.
    pub value_bytes_max: usize,
    /// The most bytes of keys and values that [`Store::store`] is given at once, unless one
    /// transaction has more.
    pub change_bytes_max: usize,
}

/// A store that can be a duplicate. Errors of its methods end the connection that asked.
pub trait Store {
    /// How errors call it.
    fn name(&self) -> &'static str;

    /// What it can keep.
    fn abilities(&self) -> Abilities;

    /// What these keys hold, in their order; what has expired may still be given.
    fn load(&mut self, keys: &[&[u8]]) -> impl Future<Output = io::Result<Vec<Option<Entry>>>>;

    /// Makes these keys, each named once, hold this: all or none of it if the store can, and
    /// otherwise what is kept about the duplicate (`evenkeel:…`) after all others.
    fn store(&mut self, changes: &[Change]) -> impl Future<Output = io::Result<()>>;

    /// About `count` keys after this one, or the first ones, in an order that does not change:
    /// what is there from the first page to the last is listed.
    fn list(
        &mut self,
        after: Option<&[u8]>,
        count: usize,
    ) -> impl Future<Output = io::Result<Page>>;

    /// How many keys there are; those that have expired may count, and above some hundred it may
    /// stop counting.
    fn count(&mut self) -> impl Future<Output = io::Result<u64>>;

    /// Removes everything, but may keep the epoch.
    fn clear(&mut self) -> impl Future<Output = io::Result<()>>;
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
