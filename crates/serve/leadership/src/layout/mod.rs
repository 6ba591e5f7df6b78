//! What is kept of a service besides its log: which partition holds which shard, and who the
//! duplicates are.
//!
//! It is stored the first time that something changes while the service runs; before, the
//! configuration says it all. From then on what is stored is in force, and the configuration is
//! compared with what it said then: who changes it by hand is told, since one of the two would be
//! ignored.
//!
//! ```text
//! evenkeel-layout 1 <16 hex digits: XXH3-64 of what follows>
//! {"version": 3, "partitions": [...], "shards": [0, 0, 1, …], …}
//! ```

mod error;
mod store;
#[cfg(test)]
mod tests;

use evenkeel_core::request::partition::ShardMap;
use evenkeel_ordered::{Epoch, Position, SERVERS_MAX, Sequence};
use serde::{Deserialize, Serialize};

pub use error::LayoutError;
pub use store::{LocalFuture, MapPlace, MapStore, StoreError};

const MAGIC: &str = "evenkeel-layout 1 ";
/// Longer bytes are no layout.
pub const LAYOUT_BYTES_MAX: usize = 1 << 20;
/// Partitions at most, with those that were closed: their numbers are not given again.
pub const PARTITIONS_MAX: usize = 1_024;

/// Which partition holds which shard, and who the duplicates are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Its version rises with every change of the layout.
    pub map: ShardMap,
    /// By number; one without duplicates was closed.
    pub partitions: Vec<PartitionLayout>,
    /// The duplicates of each partition as the configuration had them when this was stored.
    pub configured: Vec<Vec<String>>,
    /// Shards that have moved away while keys of theirs may be left, and where.
    pub left: Vec<Leftover>,
}

/// One partition.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionLayout {
    /// Where its duplicates are, as the configuration would name them.
    pub duplicates: Vec<String>,
    /// The write after which it was opened; 0 = it was there from the beginning.
    pub opened: u64,
    /// The epoch that this write was given in: numbers alone are given again when a log is lost.
    #[serde(default)]
    pub epoch: u64,
}

/// Keys of a shard at a partition that no longer holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leftover {
    /// Whose keys.
    pub shard: usize,
    /// Where they may be.
    pub partition: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u64,
    shards: Vec<u16>,
    partitions: Vec<PartitionLayout>,
    configured: Vec<Vec<String>>,
    #[serde(default)]
    left: Vec<Leftover>,
}

impl Layout {
    /// What the configuration says: `shards` dealt evenly to these partitions.
    ///
    /// `None` when there are fewer shards than partitions.
    pub fn configured(shards: usize, partitions: &[Vec<String>]) -> Option<Self> {
        let of = |duplicates: &Vec<String>| PartitionLayout {
            duplicates: duplicates.clone(),
            ..PartitionLayout::default()
        };
        Some(Self {
            map: ShardMap::even(shards, partitions.len())?,
            partitions: partitions.iter().map(of).collect(),
            configured: partitions.to_vec(),
            left: Vec::new(),
        })
    }

    /// Rises with every change.
    pub const fn version(&self) -> u64 {
        self.map.version()
    }

    /// By shard, the partition that held it before shards could move.
    pub fn first_owners(&self) -> Vec<u16> {
        let first = ShardMap::even(self.map.shards(), self.configured.len());
        first.map_or_else(Vec::new, |map| map.held_by().to_vec())
    }

    /// Its bytes, which [`Layout::decode`] reads.
    ///
    /// # Panics
    /// Never: numbers and names are JSON.
    pub fn encode(&self) -> Vec<u8> {
        let written = Written {
            version: self.version(),
            shards: self.map.held_by().to_vec(),
            partitions: self.partitions.clone(),
            configured: self.configured.clone(),
            left: self.left.clone(),
        };
        let json = serde_json::to_string(&written).expect("numbers and names are JSON");
        let sum = xxhash_rust::xxh3::xxh3_64(json.as_bytes());
        format!("{MAGIC}{sum:016x}\n{json}").into_bytes()
    }

    /// Reads what [`Layout::encode`] wrote.
    ///
    /// # Errors
    /// What came and what was expected, when it is something else or contradicts itself.
    pub fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        if bytes.len() > LAYOUT_BYTES_MAX {
            return Err(LayoutError::Long { came: bytes.len(), most: LAYOUT_BYTES_MAX });
        }
        let text = str::from_utf8(bytes).map_err(|_| LayoutError::NoText)?;
        let Some((sum, json)) = text.strip_prefix(MAGIC).and_then(|rest| rest.split_once('\n'))
        else {
            let came = text.chars().take(40).collect();
            return Err(LayoutError::FirstLine { came, expected: MAGIC });
        };
        let computed = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(json.as_bytes()));
        if sum != computed {
            return Err(LayoutError::Checksum { computed, written: sum.to_owned() });
        }
        let written: Written = serde_json::from_str(json).map_err(LayoutError::Json)?;
        Self::of(written)
    }

    fn of(written: Written) -> Result<Self, LayoutError> {
        let Written { version, shards, partitions, configured, left } = written;
        let servers: usize = partitions.iter().map(|it| it.duplicates.len()).sum();
        if servers > SERVERS_MAX || partitions.len() > PARTITIONS_MAX {
            let partitions = partitions.len();
            return Err(LayoutError::Many { servers, partitions, most: PARTITIONS_MAX });
        }
        let map = ShardMap::written(version, partitions.len(), shards);
        let map = map.ok_or(LayoutError::Nowhere)?;
        let is_closed = |shard: usize| partitions[map.partition(shard)].duplicates.is_empty();
        if let Some(shard) = (0..map.shards()).find(|&shard| is_closed(shard)) {
            return Err(LayoutError::InClosed { shard });
        }
        let is_known = |it: &Leftover| it.shard < map.shards() && it.partition < partitions.len();
        if !left.iter().all(is_known) {
            return Err(LayoutError::Leftovers);
        }
        Ok(Self { map, partitions, configured, left })
    }

    /// After a shard has moved; where it was, keys may be left.
    #[must_use]
    pub fn moved(&self, shard: usize, to: usize) -> Option<Self> {
        let from = (shard < self.map.shards()).then(|| self.map.partition(shard))?;
        let map = self.map.moved(shard, to)?;
        let mut left = self.left.clone();
        left.retain(|it| it.shard != shard || (it.partition != to && it.partition != from));
        left.push(Leftover { shard, partition: from });
        Some(Self { map, left, ..self.clone() })
    }

    /// A shard may go there: should it not arrive, keys of it are left.
    #[must_use]
    pub fn expecting(&self, shard: usize, partition: usize) -> Self {
        let mut next = Self { map: self.map.renewed(), ..self.clone() };
        next.left.push(Leftover { shard, partition });
        next
    }

    /// Where a shard was, none of its keys is left.
    #[must_use]
    pub fn forgotten(&self, leftover: Leftover) -> Self {
        let left = self.left.iter().copied().filter(|it| *it != leftover).collect();
        Self { map: self.map.renewed(), left, ..self.clone() }
    }

    /// With another duplicate of a partition.
    #[must_use]
    pub fn with_duplicate(&self, partition: usize, duplicate: &str) -> Self {
        let mut next = Self { map: self.map.renewed(), ..self.clone() };
        next.partitions[partition].duplicates.push(duplicate.to_owned());
        next
    }

    /// Without a duplicate.
    #[must_use]
    pub fn without_duplicate(&self, partition: usize, duplicate: &str) -> Self {
        let mut next = Self { map: self.map.renewed(), ..self.clone() };
        next.partitions[partition].duplicates.retain(|it| it != duplicate);
        next
    }

    /// With another partition, the last, that holds nothing yet.
    #[must_use]
    pub fn with_partition(&self, duplicates: Vec<String>, opened: Position) -> Self {
        let mut next = Self { map: self.map.extended(), ..self.clone() };
        let Position { epoch: Epoch(epoch), sequence: Sequence(opened) } = opened;
        next.partitions.push(PartitionLayout { duplicates, opened, epoch });
        next
    }

    /// With a partition closed: nobody is left in it. Its number is not given again.
    #[must_use]
    pub fn without_partition(&self, partition: usize) -> Self {
        let mut next = Self { map: self.map.renewed(), ..self.clone() };
        next.partitions[partition].duplicates.clear();
        next.left.retain(|it| it.partition != partition);
        next
    }

    /// The partition that a duplicate is in, by where it is.
    pub fn partition_of(&self, duplicate: &str) -> Option<usize> {
        self.partitions.iter().position(|it| it.duplicates.iter().any(|it| it == duplicate))
    }

    /// What is in force, of what is stored and what the configuration says now.
    ///
    /// # Errors
    /// When the configuration was changed by hand since the layout was changed while running.
    pub fn reconciled(stored: Option<Self>, configured: Self) -> Result<Self, LayoutError> {
        let Some(stored) = stored else { return Ok(configured) };
        if stored.map.shards() != configured.map.shards() {
            let (configured, stored) = (configured.map.shards(), stored.map.shards());
            return Err(LayoutError::Shards { configured, stored });
        }
        let now = &configured.configured;
        let in_force: Vec<Vec<String>> =
            stored.partitions.iter().map(|it| it.duplicates.clone()).collect();
        let is_same = *now == stored.configured || *now == in_force || *now == open(&in_force);
        if is_same {
            return Ok(stored);
        }
        // Nobody came or went while running: duplicates may be exchanged in the file as ever.
        if in_force == stored.configured && now.len() == in_force.len() {
            let mut next = Self { configured: now.clone(), ..stored };
            for (place, duplicates) in next.partitions.iter_mut().zip(now) {
                place.duplicates.clone_from(duplicates);
            }
            return Ok(next);
        }
        Err(LayoutError::Changed { in_force: open(&in_force) })
    }
}

fn open(partitions: &[Vec<String>]) -> Vec<Vec<String>> {
    partitions.iter().filter(|it| !it.is_empty()).cloned().collect()
}
