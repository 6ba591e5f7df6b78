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
    pub fn even(shards: usize, partitions: usize) -> Option<Self> {
        let is_possible = partitions > 0 && shards >= partitions && shards <= SLOTS;
        let held_by = (0..shards).map(|shard| (shard * partitions / shards) as u16);
        is_possible.then(|| Self { version: 1, partitions, held_by: held_by.collect() })
    }

    /// A map that was written down: who holds each shard, of so many partitions.
    ///
    /// `None` when there is no shard, are more than slots, or one is held by nobody.
    pub fn written(version: u64, partitions: usize, held_by: Vec<u16>) -> Option<Self> {
        let is_possible = (1..=SLOTS).contains(&held_by.len())
            && partitions <= usize::from(u16::MAX)
            && held_by.iter().all(|&by| usize::from(by) < partitions);
        is_possible.then_some(Self { version, partitions, held_by })
    }

    /// Who holds each shard, by shard.
    pub fn held_by(&self) -> &[u16] {
        &self.held_by
    }

    /// The shard of a slot.
    #[inline]
    pub fn shard(&self, slot: u16) -> usize {
        usize::from(slot) % self.held_by.len()
    }

    /// The partition that holds a shard.
    ///
    /// # Panics
    /// When there is no such shard.
    #[inline]
    pub fn partition(&self, shard: usize) -> usize {
        usize::from(self.held_by[shard])
    }

    /// How many shards.
    pub fn shards(&self) -> usize {
        self.held_by.len()
    }

    /// How many partitions.
    pub const fn partitions(&self) -> usize {
        self.partitions
    }

    /// Rises with every change.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The shards of one partition, by number.
    pub fn shards_of(&self, partition: usize) -> impl Iterator<Item = usize> + '_ {
        let held = self.held_by.iter().enumerate();
        held.filter(move |(_, by)| usize::from(**by) == partition).map(|(shard, _)| shard)
    }

    /// The same shards in the same places, as another version: something else has changed that is
    /// kept beside it.
    #[must_use]
    pub fn renewed(&self) -> Self {
        Self { version: self.version + 1, ..self.clone() }
    }

    /// The map with one more partition, the last, that holds nothing yet.
    #[must_use]
    pub fn extended(&self) -> Self {
        Self { partitions: self.partitions + 1, ..self.renewed() }
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
        let extended = map.extended();
        assert_eq!((extended.partitions(), extended.shards_of(2).count()), (3, 0));
        assert_eq!(extended.moved(0, 2).unwrap().partition(0), 2);
    }

    #[test]
    fn a_map_that_was_written_down_is_the_same_or_none() {
        let map = ShardMap::even(4, 2).unwrap().moved(0, 1).unwrap();
        let written = ShardMap::written(map.version(), 2, map.held_by().to_vec());
        assert_eq!(written, Some(map));
        assert_eq!(ShardMap::written(1, 2, vec![0, 2]), None);
        assert_eq!(ShardMap::written(1, 2, Vec::new()), None);
    }
}
