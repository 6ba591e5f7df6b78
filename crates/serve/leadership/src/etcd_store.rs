//! The layout of a service in etcd: whoever leads stores it, whoever comes next begins with it.
//!
//! It is compared twice: its own version with what the caller expects, and, in the transaction that
//! replaces it, the key's revision and whose the key `reign` is. So what was read before the
//! transaction may be old, and a process that was stopped for long replaces nothing.

use std::io;
use std::rc::Rc;

use super::etcd::Kept;
use super::layout::{Layout, LayoutError, LocalFuture, MapStore, StoreError};
use super::{Leadership, Swapped};
use evenkeel_stores::clients::error::RemoteError;

/// Keeps the layout for as long as this process leads.
#[derive(Debug)]
pub struct EtcdStore {
    leadership: Rc<Leadership>,
}

impl EtcdStore {
    /// In the name of whoever leads.
    pub const fn new(leadership: Rc<Leadership>) -> Self {
        Self { leadership }
    }

    async fn read(&self) -> io::Result<Option<(Layout, u64)>> {
        let kept = self.leadership.load_map().await.map_err(|error| self.reported(&error))?;
        kept.map(|kept| self.decoded(&kept).map(|layout| (layout, kept.revision))).transpose()
    }

    async fn swap(&self, expected: u64, layout: &Layout) -> Result<(), StoreError> {
        let there = self.read().await.map_err(StoreError::Refused)?;
        let (found, revision) =
            there.map_or((0, 0), |(layout, revision)| (layout.version(), revision));
        if found != expected {
            return Err(StoreError::Conflict { found });
        }
        match self.leadership.swap_map(revision, &layout.encode()).await {
            Ok(Swapped::Done) => Ok(()),
            Ok(Swapped::Other(other)) => {
                let version = |kept: &Kept| self.decoded(kept).map(|layout| layout.version());
                let found = other.as_ref().map_or(Ok(0), version).map_err(StoreError::Refused)?;
                Err(StoreError::Conflict { found })
            }
            Ok(Swapped::Deposed) => Err(StoreError::Deposed(self.leadership.lost())),
            Err(error) if error.may_pass => Err(StoreError::Unknown(self.reported(&error))),
            Err(error) => Err(StoreError::Refused(self.reported(&error))),
        }
    }

    fn decoded(&self, kept: &Kept) -> io::Result<Layout> {
        let wrong = |why: LayoutError| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: it holds {why}", self.place()))
        };
        Layout::decode(&kept.bytes).map_err(wrong)
    }

    fn reported(&self, error: &RemoteError) -> io::Error {
        io::Error::other(format!("{}: {error}", self.place()))
    }
}

impl MapStore for EtcdStore {
    fn place(&self) -> String {
        format!("the key map in {}", self.leadership.election.place())
    }

    fn load(&self) -> LocalFuture<'_, io::Result<Option<Layout>>> {
        Box::pin(async { Ok(self.read().await?.map(|(layout, _)| layout)) })
    }

    fn store<'a>(
        &'a self,
        expected: u64,
        layout: &'a Layout,
    ) -> LocalFuture<'a, Result<(), StoreError>> {
        Box::pin(self.swap(expected, layout))
    }
}
