//! Redis Cluster's protocol: who serves which slots, as clients are told it.
//!
//! A client of Redis Cluster has a map "slot → node". It asks for the map when it begins, sends a
//! command to the node that has the slot of its keys, and asks anew when a node answers `MOVED`.
//! [`ClusterMap`] is that map as data: it is made of who leads which slots, and of who stands by.
//! Where that is known from does not matter here: today one process leads all slots of a service.
//!
//! **Nodes** are the processes of a service. One that leads slots is a master, with a shard of its
//! own; the others are shown as replicas, dealt to the shards in their order. A node's id is the
//! SHA-1 of the service's name and the node's address: so it stays the same when the process is
//! started anew.
//!
//! **Stricter than our own clients are held to**: keys of one command must have one *slot*, as in
//! Redis Cluster, also where several slots lie in one partition. What clients get used to must
//! still work when slots are led by several processes.
//!
//! **Source**: the Redis Cluster specification; `cluster.c` of Redis 7.0.15 (replies and errors),
//! which the tests compare with.

mod replies;
#[cfg(test)]
mod tests;

use std::fmt;

use super::commands::{self, Channels, Class, Command, Local, Refusal, integer};
use super::hash::{SLOTS, slot};
use super::request::Arguments;
use super::sha1;
pub use replies::Asked;

/// Keys of one command that have several slots.
pub const CROSSSLOT: Refusal = Refusal("CROSSSLOT Keys in request don't hash to the same slot");
/// Nobody is known to lead a slot: clients ask again after a while.
pub const NOT_SERVED: &str = "CLUSTERDOWN Hash slot not served";

/// Where a node is reached.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// An address or a name, without a port.
    pub host: String,
    /// 1 to 65,535.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    /// As `MOVED` has it: an address of IPv6 without brackets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

/// Slots, first and last, and the node that leads them.
pub type Led = (u16, u16, Endpoint);

/// Who serves which slots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMap {
    /// This process and all that are known, by address.
    nodes: Vec<Node>,
    /// Which of them this process is.
    own: usize,
    shards: Vec<Shard>,
    /// Rises with whoever leads.
    epoch: u64,
    /// Nodes are spoken to by TLS.
    is_tls: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Node {
    at: Endpoint,
    id: String,
}

/// Slots of one leader.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shard {
    id: String,
    /// First and last, in their order.
    ranges: Vec<(u16, u16)>,
    leader: usize,
    replicas: Vec<usize>,
}

impl ClusterMap {
    /// The map of a service as the process at `own` sees it: `led` says who leads what, in the
    /// order of slots and without overlaps; `known` are all processes, in any order.
    pub fn new(
        (service, own): (&str, &Endpoint),
        known: &[Endpoint],
        led: &[Led],
        (epoch, is_tls): (u64, bool),
    ) -> Self {
        let mut all: Vec<&Endpoint> = known.iter().chain(led.iter().map(|(.., at)| at)).collect();
        all.push(own);
        all.sort();
        all.dedup();
        let node = |at: &&Endpoint| Node { at: (*at).clone(), id: id_of(service, at) };
        let nodes: Vec<Node> = all.iter().map(node).collect();
        let place = |at: &Endpoint| nodes.iter().position(|node| node.at == *at).unwrap_or(0);
        let mut shards: Vec<Shard> = Vec::new();
        for (first, last, leader) in led {
            let leader = place(leader);
            match shards.iter_mut().find(|shard| shard.leader == leader) {
                Some(shard) => shard.ranges.push((*first, *last)),
                None => {
                    let number = shards.len();
                    let id = hex(format!("{service} shard {number}").as_bytes());
                    let (ranges, replicas) = (vec![(*first, *last)], Vec::new());
                    shards.push(Shard { id, ranges, leader, replicas });
                }
            }
        }
        let leads = |node: &usize| shards.iter().any(|shard| shard.leader == *node);
        let others: Vec<usize> = (0..nodes.len()).filter(|node| !leads(node)).collect();
        let count = shards.len().max(1);
        for (number, node) in others.into_iter().enumerate() {
            if let Some(shard) = shards.get_mut(number % count) {
                shard.replicas.push(node);
            }
        }
        let own = place(own);
        Self { nodes, own, shards, epoch, is_tls }
    }

    /// Where a command about this slot is to be sent instead of here, in the words of Redis
    /// Cluster; `None`: it is right here.
    pub fn redirection(&self, slot: u16) -> Option<String> {
        match self.shard_of(slot) {
            Some(shard) if shard.leader == self.own => None,
            Some(shard) => Some(format!("MOVED {slot} {}", self.nodes[shard.leader].at)),
            None => Some(NOT_SERVED.to_owned()),
        }
    }

    /// Whether this process leads any slot.
    pub fn leads(&self) -> bool {
        self.shards.iter().any(|shard| shard.leader == self.own)
    }

    /// The leader of the shard that this process stands by for.
    pub fn master(&self) -> Option<&Endpoint> {
        let is_mine = |shard: &&Shard| shard.replicas.contains(&self.own);
        self.shards.iter().find(is_mine).map(|shard| &self.nodes[shard.leader].at)
    }

    fn shard_of(&self, slot: u16) -> Option<&Shard> {
        let holds = |&(first, last): &(u16, u16)| (first..=last).contains(&slot);
        self.shards.iter().find(|shard| shard.ranges.iter().any(holds))
    }

    /// The shard of a node, and whether the node leads it.
    fn place_of(&self, node: usize) -> Option<(&Shard, bool)> {
        let is_its = |shard: &&Shard| shard.leader == node || shard.replicas.contains(&node);
        self.shards.iter().find(is_its).map(|shard| (shard, shard.leader == node))
    }
}

/// Slots in which nobody leads but one: all of them.
pub fn all_led_by(leader: Endpoint) -> Led {
    (0, SLOTS - 1, leader)
}

/// The slot of what a command names: its keys, or channels of shards. `None` where it names none.
///
/// # Errors
/// When these have several slots, or the keys cannot be found.
pub fn slot_of(
    command: &Command,
    class: Class,
    arguments: Arguments<'_>,
) -> Result<Option<u16>, Refusal> {
    match class {
        Class::Local(
            Local::Subscribe(Channels::Sharded) | Local::Unsubscribe(Channels::Sharded),
        ) => one_slot(arguments.iter().skip(1)),
        Class::Local(Local::Publish(Channels::Sharded)) => one_slot(arguments.get(1).into_iter()),
        _ => one_slot(commands::keys(command, arguments)?.map(|index| arguments.at(index))),
    }
}

/// The slot that all of these have.
///
/// # Errors
/// When they have several.
pub fn one_slot<'k>(mut keys: impl Iterator<Item = &'k [u8]>) -> Result<Option<u16>, Refusal> {
    let Some(first) = keys.next().map(slot) else { return Ok(None) };
    if keys.all(|key| slot(key) == first) { Ok(Some(first)) } else { Err(CROSSSLOT) }
}

/// What Redis refuses where it is a cluster, in its words: other databases than 0.
pub fn refusal(command: &Command, arguments: Arguments<'_>) -> Option<&'static str> {
    let is_other = |at: usize| arguments.get(at).and_then(integer).is_some_and(|it| it != 0);
    match command.name {
        "select" if is_other(1) => Some("ERR SELECT is not allowed in cluster mode"),
        "move" => Some("ERR MOVE is not allowed in cluster mode"),
        "swapdb" => Some("ERR SWAPDB is not allowed in cluster mode"),
        "copy" => {
            let at = (3..arguments.len()).find(|&at| arguments.is(at, "db"))?;
            is_other(at + 1)
                .then_some("ERR Copying to another database is not allowed in cluster mode")
        }
        _ => None,
    }
}

fn id_of(service: &str, at: &Endpoint) -> String {
    hex(format!("{service} {at}").as_bytes())
}

fn hex(text: &[u8]) -> String {
    sha1::name(text).iter().copied().map(char::from).collect()
}
