//! Why bytes are no layout, or a layout cannot be in force.

use evenkeel_ordered::SERVERS_MAX;

/// What is wrong with a layout. The words for bytes that are none follow "it holds".
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// More bytes than a layout has.
    #[error("{came} bytes, expected at most {most}")]
    Long {
        /// How many came.
        came: usize,
        /// How many there may be.
        most: usize,
    },
    /// Bytes that are not UTF-8.
    #[error("bytes that are no text")]
    NoText,
    /// The first line is not that of a layout.
    #[error("{came:?}, expected a first line that begins with {expected:?}")]
    FirstLine {
        /// How it begins.
        came: String,
        /// How one begins.
        expected: &'static str,
    },
    /// The checksum is another.
    #[error("the checksum {computed}, expected {written} (was it edited by hand, or damaged?)")]
    Checksum {
        /// That of what is there, in hexadecimal.
        computed: String,
        /// The one that is written.
        written: String,
    },
    /// What follows the first line is no layout in JSON.
    #[error("{0}")]
    Json(#[source] serde_json::Error),
    /// More duplicates or partitions than there may be.
    #[error(
        "{servers} duplicates in {partitions} partitions, expected at most {SERVERS_MAX} in {most}"
    )]
    Many {
        /// Duplicates.
        servers: usize,
        /// Partitions.
        partitions: usize,
        /// Partitions that there may be.
        most: usize,
    },
    /// A shard is in none of the partitions.
    #[error("shards that are nowhere, expected each in one of the partitions")]
    Nowhere,
    /// A shard is in a partition that was closed.
    #[error("shard {shard} in a partition without duplicates")]
    InClosed {
        /// Its number.
        shard: usize,
    },
    /// Keys are left of a shard, or in a partition, that is not there.
    #[error("leftovers of a shard or in a partition that is not there")]
    Leftovers,
    /// The number of shards was changed by hand.
    #[error(
        "shards = {configured} in the configuration, but {stored} in the stored layout: the \
         number of shards cannot change"
    )]
    Shards {
        /// In the configuration.
        configured: usize,
        /// In the stored layout.
        stored: usize,
    },
    /// The duplicates were changed both by hand and while the service ran.
    #[error(
        "`partitions` in the configuration was changed, and so was the layout while the service \
         ran; write what is in force, partitions = {in_force:?}, and change it there"
    )]
    Changed {
        /// Those that are in force, by partition.
        in_force: Vec<Vec<String>>,
    },
}
