//! The arrows that point up, from the request loop to the slow loops, metrics and dashboard.

use crate::distribution::Recorder;

/// What one dispatcher counted since its window was last taken.
#[derive(Clone, Debug, Default)]
pub struct RequestWindow {
    /// Calls opened.
    pub opened: u64,
    /// Calls answered by a replica (error replies included: the caller got an answer).
    pub answered: u64,
    /// Calls that ended without an answer: refused, failed on every attempt.
    pub refused: u64,
    /// Calls closed by the caller before an answer or a refusal.
    pub abandoned: u64,
    /// Calls that had to wait in the backlog.
    pub held: u64,
    /// Retries sent after a failed attempt.
    pub retries: u64,
    /// Retries that the retry budget forbade.
    pub retries_denied: u64,
    /// Hedges sent.
    pub hedges: u64,
    /// Hedges that answered before the first copy.
    pub hedges_won: u64,
    /// Hedges that were due but forbidden by budget or gate.
    pub hedges_denied: u64,
    /// Per replica, by seat.
    pub replicas: Vec<ReplicaWindow>,
    /// Latency from open to answer of answered calls; `None` unless recording was asked for.
    pub latency: Option<Recorder>,
}

/// What one dispatcher counted about one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaWindow {
    /// Attempts sent.
    pub sent: u64,
    /// Attempts answered without error.
    pub succeeded: u64,
    /// Attempts that failed, error replies included.
    pub failed: u64,
    /// Attempts cancelled.
    pub cancelled: u64,
    /// Sum of the latencies of the attempts that succeeded, in microseconds.
    pub latency_us_sum: u64,
    /// Times it was ejected for failing.
    pub ejections: u64,
}

impl RequestWindow {
    /// Adds what another dispatcher, or a later window, counted.
    pub fn merge(&mut self, other: &Self) {
        self.opened += other.opened;
        self.answered += other.answered;
        self.refused += other.refused;
        self.abandoned += other.abandoned;
        self.held += other.held;
        self.retries += other.retries;
        self.retries_denied += other.retries_denied;
        self.hedges += other.hedges;
        self.hedges_won += other.hedges_won;
        self.hedges_denied += other.hedges_denied;
        if self.replicas.len() < other.replicas.len() {
            self.replicas.resize(other.replicas.len(), ReplicaWindow::default());
        }
        for (mine, theirs) in self.replicas.iter_mut().zip(&other.replicas) {
            mine.sent += theirs.sent;
            mine.succeeded += theirs.succeeded;
            mine.failed += theirs.failed;
            mine.cancelled += theirs.cancelled;
            mine.latency_us_sum += theirs.latency_us_sum;
            mine.ejections += theirs.ejections;
        }
        match (&mut self.latency, &other.latency) {
            (Some(mine), Some(theirs)) => {
                mine.merge(theirs).expect("windows record with the default digits");
            }
            (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
            (_, None) => {}
        }
    }
}
