//! What may take milliseconds and nobody waits for: syncing now and then, removing old segments.
//!
//! A thread of its own, since the thread of the service would answer nobody meanwhile.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::LogError;

#[derive(Debug)]
enum Job {
    /// Once the time since the last one has passed.
    Sync(Arc<File>, PathBuf),
    /// At once, as is a removal; a segment is complete, the next one is there.
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
    failed: OnceLock<String>,
}

/// The thread; dropping it does what is left to do.
#[derive(Debug)]
pub(super) struct BackgroundWriter {
    jobs: Option<Sender<Job>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl BackgroundWriter {
    pub(super) fn start(directory: &Path, every: Duration) -> Result<Self, LogError> {
        let shared = Arc::new(Shared::default());
        let (jobs, coming) = channel();
        let work = Work {
            directory: directory.to_owned(),
            every,
            shared: Arc::clone(&shared),
            synced: Instant::now(),
            due: None,
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

    /// Removes a segment, after those that were to be settled before.
    pub(super) fn remove(&self, path: PathBuf) {
        self.send(Job::Remove(path));
    }

    fn send(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("open until it is dropped");
        // The thread ends before only when it has failed, which is told.
        let _ = jobs.send(job);
    }
}

impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
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
    /// To be synced once the time has passed; other work is not kept waiting.
    due: Option<(Arc<File>, PathBuf)>,
}

impl Work {
    #[expect(clippy::needless_pass_by_value, reason = "the thread owns its end of the channel")]
    fn run(mut self, jobs: Receiver<Job>) {
        if let Err(error) = self.work_until_closed(&jobs) {
            // Only the first one matters: after it nothing is done.
            let _ = self.shared.failed.set(error.to_string());
        }
    }

    fn work_until_closed(&mut self, jobs: &Receiver<Job>) -> Result<(), LogError> {
        loop {
            let next = match &self.due {
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(_) => match self.every.saturating_sub(self.synced.elapsed()) {
                    // What comes without a pause must not put it off.
                    Duration::ZERO => Err(RecvTimeoutError::Timeout),
                    left => jobs.recv_timeout(left),
                },
            };
            match next {
                Ok(job) => self.work(job)?,
                Err(RecvTimeoutError::Timeout) => self.sync_due()?,
                Err(RecvTimeoutError::Disconnected) => return self.sync_due(),
            }
        }
    }

    fn work(&mut self, job: Job) -> Result<(), LogError> {
        match job {
            Job::Sync(file, path) => self.due = Some((file, path)),
            Job::Settle { complete, next, path } => {
                // What is due is in one of the two.
                self.take_due();
                sync(&complete, &path)?;
                sync(&next, &path)?;
                sync_directory(&self.directory)?;
                self.synced = Instant::now();
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

    fn sync_due(&mut self) -> Result<(), LogError> {
        let Some((file, path)) = self.take_due() else { return Ok(()) };
        sync(&file, &path)?;
        self.synced = Instant::now();
        Ok(())
    }

    /// Taken before the sync: what is written while it runs needs another one.
    fn take_due(&mut self) -> Option<(Arc<File>, PathBuf)> {
        let due = self.due.take()?;
        self.shared.is_asked.store(false, Ordering::Release);
        Some(due)
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
