//! Which changes of the layout are taken, and why others are not.

use evenkeel_ordered::SERVERS_MAX;

use super::Inner;
use evenkeel_duplicates_config::changes::ChangeRequest;
use evenkeel_duplicates_config::rejected::ChangeRejected;
use evenkeel_leadership::layout::PARTITIONS_MAX;

impl Inner {
    /// Takes a change, if it can be carried out as far as is known now.
    ///
    /// # Errors
    /// When another one is under way, or it cannot.
    pub fn take_change(&mut self, change: ChangeRequest) -> Result<(), ChangeRejected> {
        if change == (ChangeRequest::Abandon {}) {
            return match &self.changes.now {
                None => Err(ChangeRejected::NothingUnderWay),
                Some(_) if self.moving.is_some() && self.is_past_return() => {
                    Err(ChangeRejected::TooLate)
                }
                Some(_) => {
                    self.changes.is_unwanted = true;
                    self.break_move("it is not wanted any more");
                    Ok(())
                }
            };
        }
        if let Some(taken) = &self.changes.now {
            return Err(ChangeRejected::Busy(taken.change.describe()));
        }
        if let Some(failure) = &self.failure {
            return Err(ChangeRejected::OutOfService(failure.clone()));
        }
        self.judge(&change)?;
        self.changes.take(change, self.now);
        Ok(())
    }

    /// Whether a change makes sense.
    fn judge(&self, change: &ChangeRequest) -> Result<(), ChangeRejected> {
        match change {
            ChangeRequest::MoveShard { shard, to } => self.judge_move(*shard, *to),
            ChangeRequest::AddDuplicate { partition, address } => {
                self.open_partition(*partition)?;
                self.judge_room(1)?;
                self.judge_new(address.as_slice(), 1)
            }
            ChangeRequest::RemoveDuplicate { partition, address } => {
                self.judge_removal(*partition, address)
            }
            ChangeRequest::AddPartition { addresses, duplicates, shard } => {
                let count = duplicates.unwrap_or(addresses.len());
                if self.map.partitions() >= PARTITIONS_MAX {
                    return Err(ChangeRejected::ManyPartitions);
                }
                shard.map_or(Ok(()), |shard| self.judge_shard(shard))?;
                self.judge_room(count)?;
                self.judge_new(addresses, count)
            }
            ChangeRequest::RemovePartition { partition } => {
                self.open_partition(*partition)?;
                match self.map.shards_of(*partition).count() {
                    0 => Ok(()),
                    count => Err(ChangeRejected::HoldsShards { partition: *partition, count }),
                }
            }
            ChangeRequest::Abandon {} => Ok(()),
        }
    }

    fn judge_shard(&self, shard: usize) -> Result<(), ChangeRejected> {
        let shards = self.map.shards();
        if shard >= shards {
            return Err(ChangeRejected::NoShard { shard, shards });
        }
        Ok(())
    }

    fn open_partition(&self, partition: usize) -> Result<(), ChangeRejected> {
        let partitions = self.map.partitions();
        if partition >= partitions {
            return Err(ChangeRejected::NoPartition { partition, partitions });
        }
        if self.members.configured(partition).is_empty() {
            return Err(ChangeRejected::Closed(partition));
        }
        Ok(())
    }

    fn judge_move(&self, shard: usize, to: usize) -> Result<(), ChangeRejected> {
        self.judge_shard(shard)?;
        self.open_partition(to)?;
        let from = self.map.partition(shard);
        if from == to {
            return Err(ChangeRejected::There { shard, partition: to });
        }
        for partition in [from, to] {
            if let Err(refused) = self.members.takers(partition) {
                return Err(ChangeRejected::NoWrites { partition, refused });
            }
        }
        Ok(())
    }

    fn judge_room(&self, more: usize) -> Result<(), ChangeRejected> {
        let there: usize = self.layout.partitions.iter().map(|it| it.duplicates.len()).sum();
        if more == 0 || there + more > SERVERS_MAX {
            return Err(ChangeRejected::NoRoom { more, there });
        }
        Ok(())
    }

    /// Whether these may become duplicates.
    fn judge_new(&self, places: &[String], count: usize) -> Result<(), ChangeRejected> {
        if self.makes_its_own() {
            return match places {
                [] => Ok(()),
                [first, ..] => Err(ChangeRejected::NoAddresses(first.clone())),
            };
        }
        if places.len() != count {
            return Err(ChangeRejected::Addresses { came: places.len(), duplicates: count });
        }
        for (index, place) in places.iter().enumerate() {
            let target = self.config.target(place)?;
            let is_repeated = places[..index].contains(place);
            if is_repeated || self.layout.partition_of(&target.place()).is_some() {
                return Err(ChangeRejected::Known(place.clone()));
            }
        }
        Ok(())
    }

    fn judge_removal(&self, partition: usize, address: &str) -> Result<(), ChangeRejected> {
        self.open_partition(partition)?;
        let Some(server) = self.server_named(partition, address) else {
            return Err(ChangeRejected::NoDuplicate { address: address.to_owned(), partition });
        };
        let voters = self.members.voters(partition);
        let (others, mut rest) = (voters.len() - 1, self.members.live(partition).and(voters));
        rest.remove(server);
        let needed = self.members.acknowledge().live_min(others);
        if others == 0 {
            return Err(ChangeRejected::Last { address: address.to_owned(), partition });
        }
        if rest.len() < needed {
            return Err(ChangeRejected::Needed { live: rest.len(), others, needed });
        }
        Ok(())
    }
}
