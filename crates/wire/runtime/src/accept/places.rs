//! The clients of a whole process: how many there may be, and why one could not be accepted.
//!
//! Listeners limit their own clients without a look at others. The limit of open files is of the
//! process, so this is one count for all threads; it changes once for each connection, never for a
//! request. The admin listener does not count and does not wait: who asks what is wrong must come
//! through.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long accepting rests when the process has no place or file for a client.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Between two lines of the log on the same trouble: it repeats at every pause of every listener.
const SAID_EVERY: Duration = Duration::from_secs(1);

/// Those of this process.
pub(super) static PLACES: Places = Places::new();

/// See the module.
#[derive(Debug)]
pub(super) struct Places {
    taken: AtomicU64,
    max: AtomicU64,
    pauses: AtomicU64,
    evictions: AtomicU64,
    errors: [AtomicU64; Cause::ALL.len()],
    full: Told,
    failing: Told,
}

/// Why accepting a client failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The process has no free file.
    ProcessFiles,
    /// The whole machine has none.
    SystemFiles,
    Memory,
    /// The client gave up before it was accepted: no trouble of ours.
    Aborted,
    Other,
}

impl Cause {
    const ALL: [(Self, &'static str); 5] = [
        (Self::ProcessFiles, "process_files"),
        (Self::SystemFiles, "system_files"),
        (Self::Memory, "memory"),
        (Self::Aborted, "aborted"),
        (Self::Other, "other"),
    ];

    fn of(error: &io::Error) -> Self {
        use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, OutOfMemory};
        #[cfg(unix)]
        if let Some(errno) = rustix::io::Errno::from_io_error(error) {
            match errno {
                rustix::io::Errno::MFILE => return Self::ProcessFiles,
                rustix::io::Errno::NFILE => return Self::SystemFiles,
                rustix::io::Errno::NOBUFS => return Self::Memory,
                _ => {}
            }
        }
        match error.kind() {
            ConnectionAborted | ConnectionReset | Interrupted => Self::Aborted,
            OutOfMemory => Self::Memory,
            _ => Self::Other,
        }
    }
}

impl Places {
    const fn new() -> Self {
        Self {
            taken: AtomicU64::new(0),
            max: AtomicU64::new(u64::MAX),
            pauses: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            errors: [const { AtomicU64::new(0) }; Cause::ALL.len()],
            full: Told::new(),
            failing: Told::new(),
        }
    }

    /// Whether there is a place. Several who wait may all be given the last one: the reserve of
    /// files is larger than the number of listeners.
    pub(super) fn is_free(&self) -> bool {
        self.taken.load(Relaxed) < self.max.load(Relaxed)
    }

    /// Rests because all places are taken.
    pub(super) async fn full(&self) {
        self.pauses.fetch_add(1, Relaxed);
        if self.full.is_news(Instant::now()).is_some() {
            let (clients, max) = (self.taken.load(Relaxed), self.max.load(Relaxed));
            tracing::warn!(
                clients,
                max,
                "clients wait: the limit of open files leaves no more places for them"
            );
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    /// Counts a client that was told to leave for another.
    pub(super) fn evicted(&self) {
        self.evictions.fetch_add(1, Relaxed);
    }

    /// Takes a place, until it is dropped.
    pub(super) fn take(&'static self) -> Place {
        self.taken.fetch_add(1, Relaxed);
        Place(self)
    }

    /// Counts an error, and rests if the next attempt would fail too. Of a client that gave up
    /// while it waited nothing is said.
    pub(super) async fn failed(&self, error: &io::Error) {
        let cause = Cause::of(error);
        self.errors[cause as usize].fetch_add(1, Relaxed);
        if cause == Cause::Aborted {
            return;
        }
        if let Some(errors) = self.failing.is_news(Instant::now()) {
            tracing::warn!(%error, errors, "clients could not be accepted");
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    fn counts(&self) -> AcceptCounts {
        let errors =
            Cause::ALL.map(|(cause, name)| (name, self.errors[cause as usize].load(Relaxed)));
        let max = self.max.load(Relaxed);
        AcceptCounts {
            clients: self.taken.load(Relaxed),
            clients_max: (max != u64::MAX).then_some(max),
            pauses: self.pauses.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
            errors: errors.to_vec(),
        }
    }
}

/// The place of one client.
#[derive(Debug)]
pub(super) struct Place(&'static Places);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Relaxed);
    }
}

/// What was counted of accepting in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptCounts {
    /// Clients that are connected by sockets, those of administration and the mesh excepted.
    pub clients: u64,
    /// How many the limit of open files leaves places for; `None` where every listener's own
    /// limit is lower.
    pub clients_max: Option<u64>,
    /// Pauses because all places were taken.
    pub pauses: u64,
    /// Clients that asked nothing and were told to leave for others.
    pub evictions: u64,
    /// Failures to accept, by cause.
    pub errors: Vec<(&'static str, u64)>,
}

/// How accepting went so far in this process.
pub fn accept_counts() -> AcceptCounts {
    PLACES.counts()
}

/// Limits the clients of all listeners of this process together; see
/// [`Budget`](crate::files::Budget). Clients that are there already stay.
pub fn limit_clients(max: u64) {
    PLACES.max.store(max, Relaxed);
}

/// What is said at most once in a while.
#[derive(Debug)]
pub(crate) struct Told(Mutex<(Option<Instant>, u64)>);

impl Told {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new((None, 0)))
    }

    /// Whether to say it now; then how often it happened since it was last said, now included.
    pub(crate) fn is_news(&self, now: Instant) -> Option<u64> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.1 += 1;
        if told.0.is_some_and(|last| now.saturating_duration_since(last) < SAID_EVERY) {
            return None;
        }
        told.0 = Some(now);
        Some(std::mem::take(&mut told.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(story: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(story);
    }

    #[test]
    fn clients_beyond_the_places_of_the_process_wait_until_one_leaves() {
        run(async {
            let places: &Places = Box::leak(Box::new(Places::new()));
            places.max.store(2, Relaxed);
            let (one, _two) = (places.take(), places.take());
            for _ in 0..10 {
                assert!(!places.is_free(), "all places are taken");
                places.full().await;
            }
            drop(one);
            assert!(places.is_free());
            let counts = places.counts();
            assert_eq!((counts.clients, counts.clients_max), (1, Some(2)));
            assert_eq!(counts.pauses, 10);
        });
    }

    #[test]
    fn an_error_of_accepting_is_counted_by_its_cause_and_said_once_in_a_second() {
        run(async {
            let places = Places::new();
            #[cfg(unix)]
            for (errno, reason) in [
                (rustix::io::Errno::MFILE, "process_files"),
                (rustix::io::Errno::NFILE, "system_files"),
                (rustix::io::Errno::NOBUFS, "memory"),
                (rustix::io::Errno::NOMEM, "memory"),
                (rustix::io::Errno::CONNABORTED, "aborted"),
                (rustix::io::Errno::PERM, "other"),
            ] {
                let before = places.counts().errors;
                places.failed(&errno.into()).await;
                let more = before.into_iter().zip(places.counts().errors);
                let more: Vec<_> = more.filter(|(before, now)| before != now).collect();
                assert_eq!(more.len(), 1);
                assert_eq!(more[0].1, (reason, more[0].0.1 + 1));
            }
        });
        let (told, now) = (Told::new(), Instant::now());
        assert_eq!(told.is_news(now), Some(1));
        assert_eq!(told.is_news(now), None);
        assert_eq!(told.is_news(now + SAID_EVERY / 2), None);
        assert_eq!(told.is_news(now + SAID_EVERY), Some(3));
    }
}
