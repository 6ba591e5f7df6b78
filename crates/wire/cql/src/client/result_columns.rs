//! What the result of a prepared statement looks like, and whether that has changed.
//!
//! A table that is altered gives `SELECT *` other columns. Nodes then forget the statement, and a
//! client that is told so prepares it again and learns the new ones. So it is here: a statement is
//! prepared again without the client's notice ([`prepare`](super::prepare)) only where it gives
//! what it gave. That tells one client of all. The others would read rows without metadata by the
//! columns of before: version 5 has a number against that; for version 4 the change is remembered
//! here, and rows come with metadata from then on.
//!
//! *When it misleads.* Names are compared, no types: those are written differently in either
//! version, and a type that gets a field more is read by the old one. Who else has a node prepare
//! the statement first takes the sign away, as it does from a driver at the node itself.

use std::hash::Hasher as _;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::response::Columns;
use xxhash_rust::xxh3::Xxh3;

/// The columns of a prepared statement's result.
#[derive(Debug, Default)]
pub struct ResultColumns {
    /// Of their names; `None` where nobody needs to know.
    digest: Option<u64>,
    has_changed: AtomicBool,
}

impl ResultColumns {
    /// These, as a node told them; of most statements but SELECT there are none.
    pub fn new(columns: Option<&Columns<'_>>) -> Self {
        Self { digest: Some(digest(columns)), has_changed: AtomicBool::new(false) }
    }

    /// Whether a client may know others than there are now.
    pub fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Relaxed)
    }

    /// Whether they are these.
    pub(super) fn are(&self, columns: Option<&Columns<'_>>) -> bool {
        self.digest.is_none_or(|known| known == digest(columns))
    }

    /// A node has told of others.
    pub(super) fn change(&self) {
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// These are in place of earlier ones, which some clients know.
    pub fn follow(&self, earlier: &Self) {
        if earlier.has_changed() || self.digest != earlier.digest {
            self.change();
        }
    }
}

impl Clone for ResultColumns {
    fn clone(&self) -> Self {
        Self { digest: self.digest, has_changed: AtomicBool::new(self.has_changed()) }
    }
}

/// Whether they are the same columns.
impl PartialEq for ResultColumns {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ResultColumns {}

fn digest(columns: Option<&Columns<'_>>) -> u64 {
    let mut hasher = Xxh3::new();
    for column in columns.iter().flat_map(|columns| columns.iter()) {
        hasher.write_usize(column.name.len());
        hasher.write(column.name.as_bytes());
    }
    hasher.finish()
}
