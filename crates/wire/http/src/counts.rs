//! What connections of HTTP did, for the whole process: each thread counts for itself, so that
//! counting costs no more than an addition, and whoever asks adds them up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// With whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Who sends requests.
    Clients,
    /// Who gets them.
    Replicas,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// Connections of HTTP/1.1 that were opened.
    Http1,
    /// Connections of HTTP/2 that were opened.
    Http2,
    /// Streams of HTTP/2 that began with a request.
    Streams,
    /// Streams that we reset.
    ResetsSent,
    /// Streams that the other side reset.
    ResetsReceived,
    /// Connections that we told to end.
    GoAwaysSent,
    /// Connections that the other side told to end.
    GoAwaysReceived,
    /// Connections that ended because a client made work without progress.
    Floods,
}

const KINDS: usize = Counted::Floods as usize + 1;

/// The counts of one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HttpCounts([u64; KINDS]);

impl HttpCounts {
    /// Of one kind, since the process began.
    #[must_use]
    pub const fn of(&self, counted: Counted) -> u64 {
        self.0[counted as usize]
    }
}

type OfThread = [[AtomicU64; KINDS]; 2];

static THREADS: Mutex<Vec<Arc<OfThread>>> = Mutex::new(Vec::new());

thread_local! {
    static MINE: Arc<OfThread> = {
        let mine = Arc::<OfThread>::default();
        THREADS.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&mine));
        mine
    };
}

/// Counts one.
#[inline]
pub(crate) fn count(side: Side, counted: Counted) {
    // Nobody else writes; where the thread ends there is nothing left to count.
    let _ = MINE.try_with(|mine| {
        let place = &mine[side as usize][counted as usize];
        place.store(place.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
}

/// What all threads counted.
#[must_use]
pub fn http_counts(side: Side) -> HttpCounts {
    let threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    let sum = |kind: usize| {
        threads.iter().map(|it| it[side as usize][kind].load(Ordering::Relaxed)).sum()
    };
    HttpCounts(std::array::from_fn(sum))
}
