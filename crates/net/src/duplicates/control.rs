//! Orders from other threads: judged on the service's own, answered at once.

use std::rc::Rc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::engine::{Engine, Inner};
use super::layout::PARTITIONS_MAX;
use super::orders::{MovesState, NotTaken, Order};

/// An order, and where its answer goes.
pub(super) struct Asked {
    order: Order,
    answer: oneshot::Sender<Result<MovesState, NotTaken>>,
}

impl Asked {
    /// It is not taken, for this reason.
    pub(super) fn refuse(self, why: String) {
        let _ = self.answer.send(Err(NotTaken::Impossible(why))); // who asked has gone
    }
}

/// Where a service takes orders; from any thread.
#[derive(Clone, Debug)]
pub struct Control(UnboundedSender<Asked>);

impl Control {
    pub(super) fn new() -> (Self, UnboundedReceiver<Asked>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Gives an order. It is under way when this returns how changes stand; the state of the
    /// service tells how it goes on.
    ///
    /// # Errors
    /// When another one is under way, or it cannot be done.
    pub async fn order(&self, order: Order) -> Result<MovesState, NotTaken> {
        let ended = || NotTaken::Impossible("the service is not running".to_owned());
        let (answer, answered) = oneshot::channel();
        self.0.send(Asked { order, answer }).map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

/// Answers for as long as the service runs.
pub(super) async fn answer(engine: Rc<Engine>, mut orders: UnboundedReceiver<Asked>) {
    while let Some(Asked { order, answer }) = orders.recv().await {
        let answered = {
            let mut inner = engine.borrow();
            inner.read_clock();
            inner.take_order(order).map(|()| inner.moves_state())
        };
        let _ = answer.send(answered); // who asked has gone
    }
}

impl Inner {
    /// Takes an order, if it can be carried out as far as is known now.
    pub(super) fn take_order(&mut self, order: Order) -> Result<(), NotTaken> {
        let impossible = |why: String| Err(NotTaken::Impossible(why));
        if order == (Order::Abandon {}) {
            return match &self.orders.now {
                None => impossible("no move is under way".to_owned()),
                Some(_) if self.moving.is_some() && self.is_past_return() => impossible(
                    "the new owner may be in force already: it will be a moment".to_owned(),
                ),
                Some(_) => {
                    self.orders.is_unwanted = true;
                    self.break_move("it is not wanted any more");
                    Ok(())
                }
            };
        }
        if let Some(taken) = &self.orders.now {
            return Err(NotTaken::Busy(taken.order.told()));
        }
        if let Some(failure) = &self.failure {
            return impossible(failure.clone());
        }
        self.judge(&order).map_err(NotTaken::Impossible)?;
        self.orders.take(order, self.now);
        Ok(())
    }

    /// Whether an order makes sense.
    fn judge(&self, order: &Order) -> Result<(), String> {
        match order {
            Order::MoveShard { shard, to } => self.judge_move(*shard, *to),
            Order::AddDuplicate { partition, address } => {
                self.open_partition(*partition)?;
                self.judge_room(1)?;
                self.judge_new(address.as_slice(), 1)
            }
            Order::RemoveDuplicate { partition, address } => {
                self.judge_removal(*partition, address)
            }
            Order::AddPartition { addresses, duplicates, shard } => {
                let count = duplicates.unwrap_or(addresses.len());
                if self.map.partitions() >= PARTITIONS_MAX {
                    return Err(format!("there were {PARTITIONS_MAX} partitions already"));
                }
                if let Some(shard) = shard.filter(|&shard| shard >= self.map.shards()) {
                    return Err(self.no_shard(shard));
                }
                self.judge_room(count)?;
                self.judge_new(addresses, count)
            }
            Order::RemovePartition { partition } => {
                self.open_partition(*partition)?;
                match self.map.shards_of(*partition).count() {
                    0 => Ok(()),
                    count => Err(format!("partition {partition} holds {count} shards: move them")),
                }
            }
            Order::Abandon {} => Ok(()),
        }
    }

    fn no_shard(&self, shard: usize) -> String {
        format!("there is no shard {shard}, expected 0 to {}", self.map.shards() - 1)
    }

    fn open_partition(&self, partition: usize) -> Result<(), String> {
        let count = self.map.partitions();
        if partition >= count {
            return Err(format!("there is no partition {partition}, expected 0 to {}", count - 1));
        }
        if self.members.configured(partition).is_empty() {
            return Err(format!("partition {partition} is closed"));
        }
        Ok(())
    }

    fn judge_move(&self, shard: usize, to: usize) -> Result<(), String> {
        if shard >= self.map.shards() {
            return Err(self.no_shard(shard));
        }
        self.open_partition(to)?;
        let from = self.map.partition(shard);
        if from == to {
            return Err(format!("shard {shard} is in partition {to} already"));
        }
        for partition in [from, to] {
            if let Err(refused) = self.members.takers(partition) {
                return Err(format!("partition {partition} takes no writes: {refused}"));
            }
        }
        Ok(())
    }

    fn judge_room(&self, count: usize) -> Result<(), String> {
        use evenkeel_core::request::ordered::SERVERS_MAX;
        let there: usize = self.layout.partitions.iter().map(|it| it.duplicates.len()).sum();
        if count == 0 || there + count > SERVERS_MAX {
            return Err(format!(
                "{count} more duplicates of {there}, expected one or more and at most \
                 {SERVERS_MAX} in all"
            ));
        }
        Ok(())
    }

    /// Whether these may become duplicates.
    fn judge_new(&self, places: &[String], count: usize) -> Result<(), String> {
        if self.makes_its_own() {
            return match places {
                [] => Ok(()),
                [first, ..] => Err(format!(
                    "came {first:?}, but embedded duplicates have no address: they are made in the \
                     directory (leave it out; a partition takes \"duplicates\": 2)"
                )),
            };
        }
        if places.len() != count {
            return Err(format!("{} addresses for {count} duplicates", places.len()));
        }
        for (index, place) in places.iter().enumerate() {
            let target = self.config.target(place)?;
            let is_repeated = places[..index].contains(place);
            if is_repeated || self.layout.partition_of(&target.place()).is_some() {
                return Err(format!("{place} is a duplicate already"));
            }
        }
        Ok(())
    }

    fn judge_removal(&self, partition: usize, address: &str) -> Result<(), String> {
        self.open_partition(partition)?;
        let Some(server) = self.server_named(partition, address) else {
            return Err(format!("{address} is no duplicate of partition {partition}"));
        };
        let voters = self.members.voters(partition);
        let (count, mut rest) = (voters.len() - 1, self.members.live(partition).and(voters));
        rest.remove(server);
        let needed = self.members.acknowledge().live_min(count);
        if count == 0 {
            return Err(format!("{address} is the last one of partition {partition}"));
        }
        if rest.len() < needed {
            return Err(format!(
                "{} of the other {count} are live, acknowledgement needs {needed}",
                rest.len()
            ));
        }
        Ok(())
    }
}
