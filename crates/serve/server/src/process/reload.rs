//! Another configuration for a process that runs.
//!
//! The file is read and checked whole, then all parts stage it, then all of them take it over; if
//! anything fails on the way everything is as it was. Reloads come one after the other, and none
//! while the process stops.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use tokio::sync::watch;

use crate::config::Config;
use evenkeel_runtime::accept::{Stage, Stop};
use evenkeel_runtime::component::{self, Parts, ReloadError};

/// Reloads the configuration of one process. Clones are of the same process.
#[derive(Clone)]
pub struct Reloader(Arc<Inner>);

struct Inner {
    /// Locked for the time of a reload.
    parts: Mutex<Parts<Config>>,
    file: Option<PathBuf>,
    configs: watch::Receiver<Arc<Config>>,
    /// Not a signal: who has one keeps the process from being done. Gone with the process.
    stop: Weak<Stop>,
    status: Mutex<ReloadStatus>,
}

/// How reloads went.
#[derive(Clone, Debug)]
pub struct ReloadStatus {
    /// How many configurations the process has had: 1 after the start.
    pub generation: u64,
    /// How many reloads ended so, by `applied` or [`ReloadError::kind`].
    pub results: BTreeMap<&'static str, u64>,
    /// The last reload.
    pub last: Option<LastReload>,
}

/// The last time that the configuration was to be reloaded.
#[derive(Clone, Debug)]
pub struct LastReload {
    /// When, by the machine's clock, in milliseconds of Unix time.
    pub at_unix_ms: u64,
    /// Why it was not; `None` when it was.
    pub error: Option<String>,
}

/// A configuration was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// How many configurations the process has had.
    pub generation: u64,
    /// The paths of the keys that are written differently; empty: it is the same configuration.
    pub changed: Vec<String>,
}

impl Reloader {
    pub(super) fn new(
        file: Option<PathBuf>,
        configs: watch::Receiver<Arc<Config>>,
        stop: Weak<Stop>,
    ) -> Self {
        let kinds = ["applied", "invalid", "needs_restart", "unusable", "no_file", "stopping"];
        let results = kinds.into_iter().map(|kind| (kind, 0)).collect();
        let status = Mutex::new(ReloadStatus { generation: 1, results, last: None });
        Self(Arc::new(Inner { parts: Mutex::default(), file, configs, stop, status }))
    }

    /// Says which parts there are.
    pub(super) fn mount(&self, parts: Parts<Config>) {
        *self.0.parts.lock().unwrap_or_else(PoisonError::into_inner) = parts;
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.0.configs.borrow())
    }

    /// How reloads went.
    #[must_use]
    pub fn status(&self) -> ReloadStatus {
        self.lock_status().clone()
    }

    /// Reads the file again that the process was started from, and takes it over.
    ///
    /// # Errors
    /// When it cannot be taken over; then nothing has changed.
    pub fn reload_file(&self) -> Result<Reloaded, ReloadError> {
        // Who waits for another reload reads the file after it.
        let mut parts = self.0.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            let file = self.0.file.as_deref().ok_or(ReloadError::NoFile)?;
            Config::load(file).map_err(ReloadError::Invalid)
        };
        self.take_over(&mut parts, read)
    }

    /// Takes over another configuration.
    ///
    /// # Errors
    /// When it cannot be taken over; then nothing has changed.
    pub fn reload(&self, next: Config) -> Result<Reloaded, ReloadError> {
        let mut parts = self.0.parts.lock().unwrap_or_else(PoisonError::into_inner);
        self.take_over(&mut parts, || Ok(next))
    }

    fn take_over(
        &self,
        parts: &mut Parts<Config>,
        next: impl FnOnce() -> Result<Config, ReloadError>,
    ) -> Result<Reloaded, ReloadError> {
        let result = next().and_then(|next| self.try_take_over(parts, next));
        let mut status = self.lock_status();
        let kind = result.as_ref().map_or_else(ReloadError::kind, |_| "applied");
        *status.results.entry(kind).or_default() += 1;
        let error = result.as_ref().err().map(ToString::to_string);
        status.last = Some(LastReload { at_unix_ms: unix_ms(), error });
        let changed = result?;
        status.generation += u64::from(!changed.is_empty());
        Ok(Reloaded { generation: status.generation, changed })
    }

    fn try_take_over(
        &self,
        parts: &mut Parts<Config>,
        next: Config,
    ) -> Result<Vec<String>, ReloadError> {
        let stage = self.0.stop.upgrade().map(|stop| stop.stage());
        if stage != Some(Stage::Running) {
            return Err(ReloadError::Stopping);
        }
        let before = self.config();
        if before.source.document().is_none() || next.source.document().is_none() {
            return Err(ReloadError::NoFile);
        }
        // Where nothing is written differently, files that it names may still have changed.
        let changed = before.source.changes(&next.source);
        let next = Config {
            agents: before.agents.clone(), // with the ports that they have; see `Fixed`
            ..next.placed_like(&before)
        };
        component::reload(parts, &Arc::new(next))?;
        Ok(changed)
    }

    fn lock_status(&self) -> MutexGuard<'_, ReloadStatus> {
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reloader({:?})", self.lock_status())
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
