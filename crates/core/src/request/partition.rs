//! Key → shard → partition.
//!
//! Keys are hashed to 16,384 slots as Redis Cluster does (so `{tags}` keep keys together), slots
//! are dealt to shards, and a map says which partition holds each shard. Shards are what moves;
//! more of them than partitions, so that load can move in small parts. There is no access across
//! shards, hence none across partitions. **Source**: Zoolander, section 3 ("a global hash function
//! maps keys to partitions").

/// Slots a key may be in.
pub const SLOTS: usize = 16_384;

/// Which partition holds which shard; replaced whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardMap {
    version: u64,
    partitions: usize,
    /// By shard.
    held_by: Vec<u16>,
}

impl ShardMap {
    /// `shards` dealt evenly to `partitions`, in contiguous runs.
    ///
    /// `None` when there are no partitions, fewer shards than partitions, or more shards than
    /// slots.
    #[must_use]
    pub fn even(shards: usize, partitions: usize) -> Option<Self> {
        let is_possible = partitions > 0 && shards >= partitions && shards <= SLOTS;
        let held_by = (0..shards).map(|shard| (shard * partitions / shards) as u16);
        is_possible.then(|| Self { version: 1, partitions, held_by: held_by.collect() })
    }

    /// The shard of a slot.
    #[inline]
    #[must_use]
    pub fn shard(&self, slot: u16) -> usize {
        usize::from(slot) % self.held_by.len()
    }

    /// The partition that holds a shard.
    ///
    /// # Panics
    /// When there is no such shard.
    #[inline]
    #[must_use]
    pub fn partition(&self, shard: usize) -> usize {
        usize::from(self.held_by[shard])
    }

    /// How many shards.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.held_by.len()
    }

    /// How many partitions.
    #[must_use]
    pub const fn partitions(&self) -> usize {
        self.partitions
    }

    /// Rises with every change.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The shards of one partition, by number.
    pub fn shards_of(&self, partition: usize) -> impl Iterator<Item = usize> + '_ {
        let held = self.held_by.iter().enumerate();
        held.filter(move |(_, by)| usize::from(**by) == partition).map(|(shard, _)| shard)
    }

    /// The map after a shard has moved; `None` when there is no such shard or partition.
    #[must_use]
    pub fn moved(&self, shard: usize, to: usize) -> Option<Self> {
        let mut next = self.clone();
        *next.held_by.get_mut(shard).filter(|_| to < self.partitions)? = to as u16;
        next.version += 1;
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_dealt_evenly_and_every_one_is_somewhere() {
        for (shards, partitions) in [(1, 1), (16, 3), (1_024, 7), (5, 5)] {
            let map = ShardMap::even(shards, partitions).unwrap();
            let counts: Vec<usize> =
                (0..partitions).map(|partition| map.shards_of(partition).count()).collect();
            assert_eq!(counts.iter().sum::<usize>(), shards);
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 1, "{counts:?}");
        }
        assert_eq!(ShardMap::even(2, 3), None);
        assert_eq!(ShardMap::even(0, 0), None);
    }

    #[test]
    fn a_move_is_a_new_map() {
        let map = ShardMap::even(4, 2).unwrap();
        let moved = map.moved(0, 1).unwrap();
        assert_eq!((map.partition(0), moved.partition(0)), (0, 1));
        assert!(moved.version() > map.version());
        assert_eq!((map.moved(4, 0), map.moved(0, 2)), (None, None));
    }
}
