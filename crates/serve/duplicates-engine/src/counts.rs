//! What a service counts, for people and for the manager.

use std::time::Duration;

use super::error_counts::ErrorCounts;
use evenkeel_core::Instant;
use evenkeel_core::distribution::Recorder;
use evenkeel_ordered::{Dropped, Sequence};

/// Counters since the service began.
#[derive(Debug)]
pub(super) struct Counts {
    /// Since when.
    pub(super) since: Instant,
    /// By partition, as far as there was something to count.
    partitions: Vec<PartitionCounts>,
    pub(super) clients: u64,
    /// What clients were told instead of an answer.
    pub(super) errors: ErrorCounts,
    pub(super) writes: u64,
    pub(super) refused: u64,
    /// Keys that were compared.
    pub(super) compared: u64,
    /// Keys that were removed because they had expired.
    pub(super) expired: u64,
    pub(super) replayed: u64,
    pub(super) copied: u64,
    /// Keys that went to another partition.
    pub(super) moved_keys: u64,
    pub(super) recorded: u64,
    pub(super) uncertain_writes: u64,
    pub(super) lost_reads: u64,
    /// Clients that did not read what they subscribed to.
    pub(super) subscribers_cut_off: u64,
    pub(super) servers: Vec<ServerCounts>,
}

/// Of one partition.
#[derive(Debug, Default)]
pub(super) struct PartitionCounts {
    /// The last write that got its place in its stream.
    pub(super) last: Sequence,
    /// Copies of reads and of writes that went to duplicates.
    pub(super) read_copies: u64,
    pub(super) write_copies: u64,
    /// Writes answered differently, and keys and duplicates found to differ.
    pub(super) found: u64,
    /// Duplicates that had differed and were filled again from another, or from the log.
    pub(super) copied_again: u64,
    pub(super) restored_again: u64,
    /// Latencies to clients, from the command to enough answers.
    pub(super) reads: Recorder,
    pub(super) wrote: Recorder,
}

/// Of one duplicate.
#[derive(Debug, Default)]
pub(super) struct ServerCounts {
    pub(super) drops: [u64; 5],
    /// From sending to its own answer, whether it was first or not.
    pub(super) answers: Recorder,
}

impl Counts {
    pub(super) fn new(servers: usize, since: Instant) -> Self {
        Self {
            since,
            partitions: Vec::new(),
            clients: 0,
            errors: ErrorCounts::default(),
            writes: 0,
            refused: 0,
            compared: 0,
            expired: 0,
            replayed: 0,
            copied: 0,
            moved_keys: 0,
            recorded: 0,
            uncertain_writes: 0,
            lost_reads: 0,
            subscribers_cut_off: 0,
            servers: (0..servers).map(|_| ServerCounts::default()).collect(),
        }
    }

    /// There is one more duplicate, or another one of this number.
    pub(super) fn renew(&mut self, server: usize) {
        match self.servers.get_mut(server) {
            Some(place) => *place = ServerCounts::default(),
            None => self.servers.push(ServerCounts::default()),
        }
    }

    pub(super) fn dropped(&mut self, server: usize, why: Dropped) {
        self.servers[server].drops[why as usize] += 1;
    }

    #[inline]
    pub(super) fn answered(&mut self, server: usize, latency: Duration) {
        self.servers[server].answers.record(latency);
    }

    #[inline]
    pub(super) fn done(&mut self, partition: usize, is_write: bool, latency: Duration) {
        let of = self.of(partition);
        if is_write { of.wrote.record(latency) } else { of.reads.record(latency) }
    }

    /// Writes and reads that were answered.
    pub(super) fn accesses(&self) -> u64 {
        self.partitions.iter().map(|of| of.wrote.count() + of.reads.count()).sum()
    }

    /// Whatever was found to differ.
    pub(super) fn disagreements(&self) -> u64 {
        self.partitions.iter().map(|of| of.found).sum()
    }

    /// Latencies of reads to clients, of all partitions.
    pub(super) fn reads(&self) -> Recorder {
        self.all(|of| &of.reads)
    }

    /// The same of writes.
    pub(super) fn wrote(&self) -> Recorder {
        self.all(|of| &of.wrote)
    }

    fn all(&self, which: impl Fn(&PartitionCounts) -> &Recorder) -> Recorder {
        let mut all = Recorder::default();
        for of in &self.partitions {
            all.merge(which(of)).expect("all are as precise");
        }
        all
    }

    /// What is counted of a partition.
    #[inline]
    pub(super) fn of(&mut self, partition: usize) -> &mut PartitionCounts {
        while self.partitions.len() <= partition {
            self.partitions.push(PartitionCounts::default());
        }
        &mut self.partitions[partition]
    }

    /// Something differs between duplicates of a partition.
    pub(super) fn found(&mut self, partition: usize) {
        self.of(partition).found += 1;
    }

    pub(super) const fn given_up(&mut self, is_write: bool) {
        if is_write { self.uncertain_writes += 1 } else { self.lost_reads += 1 }
    }
}
