//! Where the keys of a command are.
//!
//! A partition has one order of writes, so what lies in it may be used together, whatever its
//! shards. Two things limit that. While a shard moves, a write to it and to other shards would have
//! to be done in part at the target: it is refused, as Redis Cluster does, until the move is over.
//! And a read that is sent again must find all of its shards where they were: it goes nowhere else
//! once the layout is another ([`Location::version`]).

use evenkeel_core::request::partition::ShardMap;

use super::commands::Refusal;
use super::hash::slot;
use crate::store::keys::RESERVED;

/// Of keys in several partitions.
pub const CROSSING: Refusal = Refusal(
    "CROSSSLOT Keys in request don't hash to the same slot: they are in several partitions, give \
     them a common {tag}",
);
const MOVING: Refusal = Refusal(
    "TRYAGAIN Multiple keys request during rehashing of slot: a shard of these keys moves to \
     another partition, ask again later",
);
const OURS: Refusal = Refusal("ERR keys that begin with 'evenkeel:' are Evenkeel's own");

/// Where the keys of a command are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// That of the first key.
    pub shard: usize,
    /// That of all keys.
    pub partition: usize,
    /// More than this shard counts, as the layout of this version has it.
    pub version: Option<u64>,
    /// It is about all keys of the partition: one copy of it is work enough.
    pub is_whole: bool,
    /// One of the shards is on its way to another partition.
    moves: bool,
}

impl Location {
    /// Where all of these keys are; `None` where there are none. Writes to the shard that `moves`
    /// go to two partitions.
    ///
    /// # Errors
    /// What the client is told when they are in several partitions, or when a key is ours.
    pub fn of<'k>(
        map: &ShardMap,
        moves: Option<usize>,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Option<Self>, Refusal> {
        let mut location: Option<Self> = None;
        for key in keys {
            check_key(key)?;
            let shard = map.shard(slot(key));
            let is_moving = moves == Some(shard);
            match &mut location {
                Some(known) if known.shard == shard => {}
                Some(known) if known.partition != map.partition(shard) => return Err(CROSSING),
                Some(known) => {
                    known.version = Some(map.version());
                    known.moves |= is_moving;
                }
                None => {
                    let partition = map.partition(shard);
                    let (version, is_whole) = (None, false);
                    location = Some(Self { shard, partition, version, is_whole, moves: is_moving });
                }
            }
        }
        Ok(location)
    }

    /// A whole partition, if it holds anything.
    pub fn whole(map: &ShardMap, partition: usize) -> Option<Self> {
        let shard = map.shards_of(partition).next()?;
        let version = Some(map.version());
        Some(Self { shard, partition, version, is_whole: true, moves: false })
    }

    /// The shard that a write there is noted for.
    ///
    /// # Errors
    /// Where it would have to be done in part at another partition too.
    pub fn shard_to_write(self) -> Result<usize, Refusal> {
        if self.version.is_some() && self.moves { Err(MOVING) } else { Ok(self.shard) }
    }
}

fn check_key(key: &[u8]) -> Result<(), Refusal> {
    if key.starts_with(RESERVED) { Err(OURS) } else { Ok(()) }
}

fn partition_of(map: &ShardMap, key: &[u8]) -> usize {
    map.partition(map.shard(slot(key)))
}

/// The partitions that hold shards.
pub fn partitions_in_use(map: &ShardMap) -> Vec<usize> {
    let holds_some = |&partition: &usize| map.shards_of(partition).next().is_some();
    (0..map.partitions()).filter(holds_some).collect()
}

/// Whether a key that a partition has is a client's, and is read there.
pub fn is_visible(map: &ShardMap, partition: usize, key: &[u8]) -> bool {
    !key.starts_with(RESERVED) && partition_of(map, key) == partition
}

/// Whether these keys are in several partitions.
pub fn is_in_parts<'k>(map: &ShardMap, keys: impl Iterator<Item = &'k [u8]>) -> bool {
    let mut partitions = keys.map(|key| partition_of(map, key));
    let first = partitions.next();
    partitions.any(|partition| Some(partition) != first)
}

/// By partition, where these keys stand; in the order of the first key of each.
///
/// # Errors
/// When a key is ours.
pub fn parts<'k>(
    map: &ShardMap,
    keys: impl Iterator<Item = (usize, &'k [u8])>,
) -> Result<Vec<(usize, Vec<usize>)>, Refusal> {
    let mut parts: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, key) in keys {
        check_key(key)?;
        let partition = partition_of(map, key);
        match parts.iter_mut().find(|(known, _)| *known == partition) {
            Some((_, places)) => places.push(at),
            None => parts.push((partition, vec![at])),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(
        map: &ShardMap,
        moves: Option<usize>,
        keys: &[&str],
    ) -> Result<Option<Location>, Refusal> {
        Location::of(map, moves, keys.iter().map(|key| key.as_bytes()))
    }

    #[test]
    fn keys_of_one_partition_are_written_together_unless_one_of_them_moves() {
        let map = ShardMap::even(4, 2).unwrap();
        let shard = |key: &str| map.shard(slot(key.as_bytes()));
        let keys: Vec<String> = (0..100).map(|n| format!("k{n}")).collect();
        let of_shard =
            |wanted: usize| keys.iter().find(|key| shard(key) == wanted).unwrap().as_str();
        let (a, b, other) = (of_shard(0), of_shard(1), of_shard(2));
        assert_eq!(of(&map, None, &[]), Ok(None));
        let one = of(&map, Some(0), &[a, a]).unwrap().unwrap();
        assert_eq!((one.shard, one.version, one.shard_to_write()), (0, None, Ok(0)));
        let both = of(&map, Some(3), &[b, a]).unwrap().unwrap();
        assert_eq!((both.partition, both.version), (0, Some(1)));
        assert_eq!(both.shard_to_write(), Ok(1));
        for moves in [0, 1] {
            let both = of(&map, Some(moves), &[a, b]).unwrap().unwrap();
            assert_eq!(both.shard_to_write(), Err(MOVING));
        }
        assert_eq!(of(&map, None, &[a, other]), Err(CROSSING));
        assert_eq!(of(&map, None, &[a, "evenkeel:x"]), Err(OURS));
        let named = [a, other, b, a].map(str::as_bytes);
        assert!(is_in_parts(&map, named.into_iter()) && !is_in_parts(&map, [named[0]].into_iter()));
        let places = parts(&map, named.into_iter().enumerate());
        assert_eq!(places, Ok(vec![(0, vec![0, 2, 3]), (1, vec![1])]));
        assert!(is_visible(&map, 1, named[1]) && !is_visible(&map, 0, named[1]));
        assert!((0..2).all(|partition| !is_visible(&map, partition, b"evenkeel:epoch")));
        let moved = map.moved(2, 0).unwrap().moved(3, 0).unwrap();
        assert_eq!((partitions_in_use(&map), partitions_in_use(&moved)), (vec![0, 1], vec![0]));
        assert_eq!(Location::whole(&moved, 1), None);
    }
}
