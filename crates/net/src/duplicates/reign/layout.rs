//! The layout of a service in etcd: whoever reigns stores it, whoever comes next begins with it.
//!
//! It is compared twice: its own version with what the caller expects, and, in the transaction that
//! replaces it, the key's revision and whose the key `reign` is. So what was read before the
//! transaction may be old, and a process that was stopped for long replaces nothing.

use std::io;
use std::rc::Rc;

use super::super::layout::{Layout, LocalFuture, MapStore, StoreError};
use super::etcd::Kept;
use super::{Reign, Swapped};
use crate::placement::act::Trouble;

/// Keeps the layout for as long as this process reigns.
#[derive(Debug)]
pub(in super::super) struct EtcdStore {
    reign: Rc<Reign>,
}

impl EtcdStore {
    pub(in super::super) const fn new(reign: Rc<Reign>) -> Self {
        Self { reign }
    }

    async fn read(&self) -> io::Result<Option<(Layout, u64)>> {
        let kept = self.reign.load_map().await.map_err(|trouble| self.told(&trouble))?;
        kept.map(|kept| self.decoded(&kept).map(|layout| (layout, kept.revision))).transpose()
    }

    async fn swap(&self, expected: u64, layout: &Layout) -> Result<(), StoreError> {
        let there = self.read().await.map_err(StoreError::Refused)?;
        let (found, revision) =
            there.map_or((0, 0), |(layout, revision)| (layout.version(), revision));
        if found != expected {
            return Err(StoreError::Conflict { found });
        }
        match self.reign.swap_map(revision, &layout.encode()).await {
            Ok(Swapped::Done) => Ok(()),
            Ok(Swapped::Other(other)) => {
                let version = |kept: &Kept| self.decoded(kept).map(|layout| layout.version());
                let found = other.as_ref().map_or(Ok(0), version).map_err(StoreError::Refused)?;
                Err(StoreError::Conflict { found })
            }
            Ok(Swapped::Deposed) => Err(StoreError::Deposed(self.reign.lost())),
            Err(trouble) if trouble.may_pass => Err(StoreError::Unknown(self.told(&trouble))),
            Err(trouble) => Err(StoreError::Refused(self.told(&trouble))),
        }
    }

    fn decoded(&self, kept: &Kept) -> io::Result<Layout> {
        let wrong = |why: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: it holds {why}", self.place()))
        };
        Layout::decode(&kept.bytes).map_err(wrong)
    }

    fn told(&self, trouble: &Trouble) -> io::Error {
        io::Error::other(format!("{}: {trouble}", self.place()))
    }
}

impl MapStore for EtcdStore {
    fn place(&self) -> String {
        format!("the key map in {}", self.reign.election.place())
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
