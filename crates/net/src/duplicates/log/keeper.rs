//! What may take milliseconds and nobody waits for: syncing now and then, removing old segments.
//!
//! A thread of its own, since the thread of the service would answer nobody meanwhile.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::LogError;

#[derive(Debug)]
enum Job {
    /// Once the time since the last one has passed.
    Sync(Arc<File>, PathBuf),
    /// At once; a segment is complete, the next one is there.
    Settle {
        complete: Arc<File>,
        next: Arc<File>,
        path: PathBuf,
    },
    Remove(PathBuf),
}

/// What the log and the thread share.
#[derive(Debug, Default)]
struct Shared {
    /// A sync has been asked for and has not begun.
    is_asked: AtomicBool,
    ends: AtomicBool,
    failed: OnceLock<String>,
}

/// The thread; dropping it does what is left to do.
#[derive(Debug)]
pub(super) struct Keeper {
    jobs: Option<Sender<Job>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(super) fn start(directory: &Path, every: Duration) -> Result<Self, LogError> {
        let shared = Arc::new(Shared::default());
        let (jobs, coming) = channel();
        let work = Work {
            directory: directory.to_owned(),
            every,
            shared: Arc::clone(&shared),
            synced: Instant::now(),
        };
        let started =
            thread::Builder::new().name("duplicates-log".to_owned()).spawn(|| work.run(coming));
        let thread =
            started.map_err(|error| LogError::system(directory, "start a thread for it", error))?;
        Ok(Self { jobs: Some(jobs), shared, thread: Some(thread) })
    }

    /// What failed since the beginning.
    pub(super) fn failed(&self) -> Option<&str> {
        self.shared.failed.get().map(String::as_str)
    }

    /// Asks for a sync within the time between two of them.
    pub(super) fn sync(&self, file: &Arc<File>, path: impl FnOnce() -> PathBuf) {
        if !self.shared.is_asked.swap(true, Ordering::AcqRel) {
            self.send(Job::Sync(Arc::clone(file), path()));
        }
    }

    /// Syncs a segment that is complete, and the one that follows.
    pub(super) fn settle(&self, complete: Arc<File>, next: Arc<File>, path: PathBuf) {
        self.send(Job::Settle { complete, next, path });
    }

    /// Removes a segment, after all that was asked for before.
    pub(super) fn remove(&self, path: PathBuf) {
        self.send(Job::Remove(path));
    }

    fn send(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("open until it is dropped");
        // The thread ends before only when it has failed, which is told.
        let _ = jobs.send(job);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has nothing to say that was not said.
            let _ = thread.join();
        }
    }
}

struct Work {
    directory: PathBuf,
    every: Duration,
    shared: Arc<Shared>,
    synced: Instant,
}

impl Work {
    #[expect(clippy::needless_pass_by_value, reason = "the thread owns its end of the channel")]
    fn run(mut self, jobs: Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            if let Err(error) = self.work(job) {
                // Only the first one matters: after it nothing is done.
                let _ = self.shared.failed.set(error.to_string());
                return;
            }
        }
    }

    fn work(&mut self, job: Job) -> Result<(), LogError> {
        match job {
            Job::Sync(file, path) => {
                self.wait();
                // Before the sync: what is written while it runs needs another one.
                self.shared.is_asked.store(false, Ordering::Release);
                sync(&file, &path)?;
                self.synced = Instant::now();
            }
            Job::Settle { complete, next, path } => {
                sync(&complete, &path)?;
                sync(&next, &path)?;
                sync_directory(&self.directory)?;
            }
            Job::Remove(path) => match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(LogError::system(&path, "remove it", error));
                }
                _ => {}
            },
        }
        Ok(())
    }

    fn wait(&self) {
        loop {
            let left = self.every.saturating_sub(self.synced.elapsed());
            if left.is_zero() || self.shared.ends.load(Ordering::Acquire) {
                return;
            }
            thread::park_timeout(left);
        }
    }
}

pub(super) fn sync(file: &File, path: &Path) -> Result<(), LogError> {
    file.sync_data().map_err(|error| LogError::system(path, "sync it", error))
}

/// Makes the names in a directory last.
pub(super) fn sync_directory(directory: &Path) -> Result<(), LogError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| LogError::system(directory, "sync the directory", error))
}
