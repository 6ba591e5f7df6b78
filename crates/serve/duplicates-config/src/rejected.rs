//! Why a change of a service is not taken.

use evenkeel_ordered::{Refused, SERVERS_MAX};
use evenkeel_settings::Mismatch;
use http::StatusCode;

use evenkeel_leadership::layout::PARTITIONS_MAX;

/// Why a [`ChangeRequest`](super::changes::ChangeRequest) is not taken. What goes wrong after it
/// was taken is part of the service's state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRejected {
    /// The body of the request is no change.
    #[error(
        "got {came:?} ({error}), expected such as {{\"shard\": 3, \"to\": 1}}, \
         {{\"add_duplicate\": {{\"partition\": 0, \"address\": \"10.0.1.4:6379\"}}}}, \
         {{\"remove_duplicate\": {{\"partition\": 0, \"address\": \"10.0.1.4:6379\"}}}}, \
         {{\"add_partition\": {{\"addresses\": [\"10.0.2.1:6379\"]}}}}, {{\"remove_partition\": \
         {{\"partition\": 1}}}} or {{\"abandon\": {{}}}}"
    )]
    Unreadable {
        /// How it begins.
        came: String,
        /// What is wrong with it.
        error: String,
    },
    /// Another one is under way: which.
    #[error("another order is under way: {0}")]
    Busy(String),
    /// The service has ended, or not begun.
    #[error("the service is not running")]
    NotRunning,
    /// The service takes no writes: it stands by or its log has failed.
    #[error("{0}")]
    OutOfService(String),
    /// There is nothing to give up.
    #[error("no move is under way")]
    NothingUnderWay,
    /// The new owner may be in force already.
    #[error("the new owner may be in force already: it will be a moment")]
    TooLate,
    /// No such shard.
    #[error("there is no shard {shard}, expected 0 to {}", .shards - 1)]
    NoShard {
        /// The number that came.
        shard: usize,
        /// How many there are.
        shards: usize,
    },
    /// No such partition.
    #[error("there is no partition {partition}, expected 0 to {}", .partitions - 1)]
    NoPartition {
        /// The number that came.
        partition: usize,
        /// How many there are.
        partitions: usize,
    },
    /// The partition was closed.
    #[error("partition {0} is closed")]
    Closed(usize),
    /// As many partitions as there may be were opened already.
    #[error("there were {PARTITIONS_MAX} partitions already")]
    ManyPartitions,
    /// The partition still holds shards.
    #[error("partition {partition} holds {count} shards: move them")]
    HoldsShards {
        /// Its number.
        partition: usize,
        /// How many.
        count: usize,
    },
    /// The shard is there already.
    #[error("shard {shard} is in partition {partition} already")]
    There {
        /// Its number.
        shard: usize,
        /// The partition that holds it.
        partition: usize,
    },
    /// A partition takes no writes.
    #[error("partition {partition} takes no writes: {refused}")]
    NoWrites {
        /// Its number.
        partition: usize,
        /// Why.
        refused: Refused,
    },
    /// No duplicates were asked for, or more than there may be.
    #[error(
        "{more} more duplicates of {there}, expected one or more and at most {SERVERS_MAX} in all"
    )]
    NoRoom {
        /// How many were asked for.
        more: usize,
        /// How many there are.
        there: usize,
    },
    /// An address came for duplicates that have none, being made by this process.
    #[error(
        "got {0:?}, but embedded duplicates have no address: they are made in the directory \
         (leave it out; a partition takes \"duplicates\": 2)"
    )]
    NoAddresses(String),
    /// Not one address for each new duplicate.
    #[error("{came} addresses for {duplicates} duplicates")]
    Addresses {
        /// How many came.
        came: usize,
        /// How many duplicates are to be added.
        duplicates: usize,
    },
    /// An address that is none for this kind of store.
    #[error(transparent)]
    Address(#[from] Mismatch),
    /// The address is that of a duplicate already.
    #[error("{0} is a duplicate already")]
    Known(String),
    /// The address is none of the partition's.
    #[error("{address} is no duplicate of partition {partition}")]
    NoDuplicate {
        /// As it came.
        address: String,
        /// The number of the partition.
        partition: usize,
    },
    /// The partition would be left without duplicates.
    #[error("{address} is the last one of partition {partition}")]
    Last {
        /// The duplicate's address.
        address: String,
        /// The number of the partition.
        partition: usize,
    },
    /// The others could not acknowledge writes.
    #[error("{live} of the other {others} are live, acknowledgement needs {needed}")]
    Needed {
        /// Of the others, those that are live.
        live: usize,
        /// How many others there are.
        others: usize,
        /// How many must be live.
        needed: usize,
    },
}

impl ChangeRejected {
    /// The status of an HTTP answer: 409 while another change is under way, else 422.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Busy(_) => StatusCode::CONFLICT,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}
