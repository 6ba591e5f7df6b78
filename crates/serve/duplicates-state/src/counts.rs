//! What a service counts, for people and for the manager.

use std::time::Duration;

use super::error_counts::ErrorCounts;
use evenkeel_core::Instant;
use evenkeel_core::distribution::Recorder;
use evenkeel_ordered::{Dropped, Sequence};

/// Counters since the service began.
#[derive(Debug)]
pub struct Counts {
    /// Since when.
    pub since: Instant,
    /// By partition, as far as there was something to count.
    partitions: Vec<PartitionCounts>,
    /// Connections of clients that are open.
    pub clients: u64,
    /// What clients were told instead of an answer.
    pub errors: ErrorCounts,
    /// Writes that got their places.
    pub writes: u64,
    /// Commands answered with an error of ours.
    pub refused: u64,
    /// Keys that were compared.
    pub compared: u64,
    /// Keys that were removed because they had expired.
    pub expired: u64,
    /// Writes of the log that duplicates were given again.
    pub replayed: u64,
    /// Keys that duplicates were filled with from others.
    pub copied: u64,
    /// Keys that went to another partition.
    pub moved_keys: u64,
    /// Keys whose values went into the log.
    pub recorded: u64,
    /// Writes whose clients were told that nobody knows yet.
    pub uncertain_writes: u64,
    /// Reads whose duplicates went away.
    pub lost_reads: u64,
    /// Clients that did not read what they subscribed to.
    pub subscribers_cut_off: u64,
    /// By number of the duplicate.
    pub servers: Vec<ServerCounts>,
}

/// Of one partition.
#[derive(Debug, Default)]
pub struct PartitionCounts {
    /// The last write that got its place in its stream.
    pub last: Sequence,
    /// Copies of reads that went to duplicates.
    pub read_copies: u64,
    /// The same of writes.
    pub write_copies: u64,
    /// Writes answered differently, and keys and duplicates found to differ.
    pub found: u64,
    /// Duplicates that had differed and were filled again from another.
    pub copied_again: u64,
    /// The same from the log.
    pub restored_again: u64,
    /// Latencies of reads to clients, from the command to enough answers.
    pub reads: Recorder,
    /// The same of writes.
    pub wrote: Recorder,
}

/// Of one duplicate.
#[derive(Debug, Default)]
pub struct ServerCounts {
    /// Times it was dropped, by [`Dropped`].
    pub drops: [u64; 5],
    /// From sending to its own answer, whether it was first or not.
    pub answers: Recorder,
}

impl Counts {
    /// Nothing, of so many duplicates.
    pub fn new(servers: usize, since: Instant) -> Self {
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
    pub fn renew(&mut self, server: usize) {
        match self.servers.get_mut(server) {
            Some(place) => *place = ServerCounts::default(),
            None => self.servers.push(ServerCounts::default()),
        }
    }

    /// A duplicate was given up.
    pub fn dropped(&mut self, server: usize, why: Dropped) {
        self.servers[server].drops[why as usize] += 1;
    }

    /// A duplicate has answered, so long after it was asked.
    #[inline]
    pub fn answered(&mut self, server: usize, latency: Duration) {
        self.servers[server].answers.record(latency);
    }

    /// A client was answered, so long after its command.
    #[inline]
    pub fn done(&mut self, partition: usize, is_write: bool, latency: Duration) {
        let of = self.of(partition);
        if is_write { of.wrote.record(latency) } else { of.reads.record(latency) }
    }

    /// Writes and reads that were answered.
    pub fn accesses(&self) -> u64 {
        self.partitions.iter().map(|of| of.wrote.count() + of.reads.count()).sum()
    }

    /// Whatever was found to differ.
    pub fn disagreements(&self) -> u64 {
        self.partitions.iter().map(|of| of.found).sum()
    }

    /// Latencies of reads to clients, of all partitions.
    pub fn reads(&self) -> Recorder {
        self.all(|of| &of.reads)
    }

    /// The same of writes.
    pub fn wrote(&self) -> Recorder {
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
    pub fn of(&mut self, partition: usize) -> &mut PartitionCounts {
        while self.partitions.len() <= partition {
            self.partitions.push(PartitionCounts::default());
        }
        &mut self.partitions[partition]
    }

    /// Something differs between duplicates of a partition.
    pub fn found(&mut self, partition: usize) {
        self.of(partition).found += 1;
    }

    /// A client's access has no answer.
    pub const fn given_up(&mut self, is_write: bool) {
        if is_write { self.uncertain_writes += 1 } else { self.lost_reads += 1 }
    }
}
