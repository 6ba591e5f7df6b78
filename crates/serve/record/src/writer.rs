//! The thread that writes: it empties the lanes, and gives files whole windows.
//!
//! What fails here (a full disk, a directory that is gone) is counted and said once until it goes
//! again. Memory is bounded: of too many rows their window is dropped as a whole.

mod stream;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use evenkeel_core::Instant;
use evenkeel_runtime::accept::StopSignal;
use evenkeel_runtime::clock::Clock;
use tokio::sync::watch;

use crate::config::RecordConfig;
use crate::counts::RecordCounts;
use crate::day;
use crate::lane::NewLane;
use stream::{Moment, StreamState, Target};

/// How often lanes are emptied.
const EVERY: Duration = Duration::from_millis(50);
/// How often folders of streams are looked for that are recorded no more.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Writes days.
#[derive(Debug)]
pub struct RecordWriter {
    lanes: Arc<Mutex<Vec<NewLane>>>,
    config: watch::Receiver<Option<Arc<RecordConfig>>>,
    counts: Arc<RecordCounts>,
    streams: Vec<StreamState>,
    look_at: Instant,
}

impl RecordWriter {
    pub(crate) const fn new(
        lanes: Arc<Mutex<Vec<NewLane>>>,
        config: watch::Receiver<Option<Arc<RecordConfig>>>,
        counts: Arc<RecordCounts>,
    ) -> Self {
        Self { lanes, config, counts, streams: Vec::new(), look_at: Instant::ZERO }
    }

    /// Writes until the process stops and no dispatcher is left that could tell anything. Must run
    /// on a thread of its own: it waits for the disk.
    pub async fn run(mut self, clock: Clock, mut stop: StopSignal) {
        let (told, stopping) = watch::channel(false);
        // Whoever keeps the signal is waited for, and this has no place in the drain.
        tokio::task::spawn_local(async move {
            stop.stopping().await;
            let _ = told.send(true);
        });
        let mut stopped = stopping.clone();
        loop {
            if self.is_off() {
                tokio::select! {
                    Ok(()) = self.config.changed() => {}
                    _ = stopped.changed() => {}
                }
            } else {
                tokio::time::sleep(EVERY).await;
            }
            let is_last = *stopping.borrow();
            self.turn(Moment { now: clock.now(), wall: SystemTime::now() });
            if is_last && self.streams.is_empty() && self.has_no_news() {
                return;
            }
        }
    }

    /// Whether nothing is recorded: then a process that nobody asks anything sleeps.
    fn is_off(&self) -> bool {
        self.config.borrow().is_none() && self.streams.is_empty() && self.has_no_news()
    }

    /// What is there is left there.
    fn has_no_news(&self) -> bool {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn news(&self) -> Vec<NewLane> {
        std::mem::take(&mut *self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Empties the lanes and writes what is complete.
    fn turn(&mut self, at: Moment) {
        for new in self.news() {
            match self.streams.iter_mut().find(|it| it.name() == new.stream.name) {
                Some(stream) => stream.add(new, at),
                None => self.streams.push(StreamState::new(new, at, Arc::clone(&self.counts))),
            }
        }
        let config = self.config.borrow_and_update().clone();
        if let Some(config) = &config
            && !self.streams.is_empty()
            && at.now >= self.look_at
        {
            self.look_at = at.now + LOOK_EVERY;
            self.remove_gone(at, config);
        }
        // All of them together keep to the limit.
        let shares = self.streams.len().max(1) as u64;
        let target = config.map(|config| Target { config, shares });
        self.streams.retain_mut(|stream| {
            stream.turn(at, target.as_ref());
            !stream.is_over()
        });
    }

    /// Removes what is too old, or too much, of streams that there were.
    fn remove_gone(&self, at: Moment, config: &RecordConfig) {
        let since = at.wall.checked_sub(config.keep).unwrap_or(SystemTime::UNIX_EPOCH);
        let is_recorded = |name: &str| self.streams.iter().any(|stream| stream.name() == name);
        let RecordConfig { directory, bytes_max, .. } = config;
        if directory.is_dir()
            && let Err(error) = day::remove_gone(directory, is_recorded, since, *bytes_max)
        {
            tracing::warn!(%error, "days of what is gone cannot be removed");
        }
    }
}
