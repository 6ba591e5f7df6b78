//! The arrows that point up, from the request loop to the slow loops, metrics and dashboard.

use core::cmp::Ordering;

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
    /// Retries sent after a failed attempt, or beside one whose replica says nothing.
    pub retries: u64,
    /// Of the retries, those beside an attempt whose replica says nothing.
    pub rescues: u64,
    /// Retries that the retry budget forbade.
    pub retries_denied: u64,
    /// Hedges sent.
    pub hedges: u64,
    /// Hedges that answered before the first copy.
    pub hedges_won: u64,
    /// Hedges that were due but forbidden by budget or gate.
    pub hedges_denied: u64,
    /// Calls that moved to another replica as they waited for a slot.
    pub moves: u64,
    /// Per replica, by slot.
    pub replicas: Vec<ReplicaWindow>,
    /// Latency from open to answer of answered calls; `None` unless recording was asked for.
    pub latency: Option<Recorder>,
}

/// Upper ends of the buckets of [`Latencies`], in microseconds: three to the decade.
pub const LATENCY_BOUNDS_US: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// How many latencies were in which bucket; the last one has no upper end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies(pub [u64; LATENCY_BOUNDS_US.len() + 1]);

impl Latencies {
    /// The bucket of a latency.
    #[inline]
    pub fn bucket(latency_us: u64) -> usize {
        LATENCY_BOUNDS_US.partition_point(|bound| *bound < latency_us)
    }

    /// Adds one.
    #[inline]
    pub fn add(&mut self, latency_us: u64) {
        self.0[Self::bucket(latency_us)] += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }
}

/// What one dispatcher counted about one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaWindow {
    /// Of which replica in this slot: what was counted of an earlier one is not added to it.
    pub generation: u32,
    /// Attempts sent.
    pub sent: u64,
    /// Attempts answered without error whose answer has come to its end: all of it came, or the
    /// client left.
    pub succeeded: u64,
    /// Attempts that failed, error replies and broken bodies included.
    pub failed: u64,
    /// Of those that failed, the ones whose answer broke off, or stood still, after its head.
    pub broken_bodies: u64,
    /// Attempts cancelled.
    pub cancelled: u64,
    /// Sum of the latencies (from sending to the head of the answer) of the attempts that
    /// succeeded, in microseconds.
    pub latency_us_sum: u64,
    /// The same latencies, by bucket.
    pub latencies: Latencies,
    /// Attempts that were cancelled or timed out: their answers would have taken longer.
    pub censored: u64,
    /// Sum of the times after which they were, in microseconds.
    pub censored_us_sum: u64,
    /// Times it was ejected for failing.
    pub ejections: u64,
}

impl ReplicaWindow {
    /// The mean time to an answer, at least, in microseconds: what was cancelled or timed out
    /// counts with the time it lasted. Where every slow answer is overtaken by a hedge, the answers
    /// that remain are the quick ones. `None` where nothing ended.
    pub fn mean_latency_us(&self) -> Option<f64> {
        let ended = self.succeeded + self.censored;
        let sum_us = self.latency_us_sum + self.censored_us_sum;
        (ended > 0).then(|| sum_us as f64 / ended as f64)
    }

    /// Adds what was counted elsewhere or later of the same replica. Of two replicas that had the
    /// slot one after the other only the newer counts.
    pub fn merge(&mut self, other: &Self) {
        match other.generation.cmp(&self.generation) {
            Ordering::Less => {}
            Ordering::Greater => *self = *other,
            Ordering::Equal => {
                self.sent += other.sent;
                self.succeeded += other.succeeded;
                self.failed += other.failed;
                self.broken_bodies += other.broken_bodies;
                self.cancelled += other.cancelled;
                self.latency_us_sum += other.latency_us_sum;
                self.latencies.merge(&other.latencies);
                self.censored += other.censored;
                self.censored_us_sum += other.censored_us_sum;
                self.ejections += other.ejections;
            }
        }
    }
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
        self.rescues += other.rescues;
        self.retries_denied += other.retries_denied;
        self.hedges += other.hedges;
        self.hedges_won += other.hedges_won;
        self.hedges_denied += other.hedges_denied;
        self.moves += other.moves;
        if self.replicas.len() < other.replicas.len() {
            self.replicas.resize(other.replicas.len(), ReplicaWindow::default());
        }
        for (mine, theirs) in self.replicas.iter_mut().zip(&other.replicas) {
            mine.merge(theirs);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_in_the_bucket_that_ends_at_it_or_above() {
        assert!(LATENCY_BOUNDS_US.is_sorted_by(|a, b| a < b));
        for (number, bound) in LATENCY_BOUNDS_US.into_iter().enumerate() {
            assert_eq!(
                (Latencies::bucket(bound), Latencies::bucket(bound + 1)),
                (number, number + 1)
            );
        }
        let mut latencies = Latencies::default();
        [0, 500, 501, u64::MAX].into_iter().for_each(|us| latencies.add(us));
        assert_eq!((latencies.0[0], latencies.0[1], latencies.0[14]), (2, 1, 1));
    }
}
