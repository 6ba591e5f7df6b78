//! Redis Cluster's protocol: who serves which slots, as clients are told it.
//!
//! A client of Redis Cluster has a map "slot → node". It asks for the map when it begins, sends a
//! command to the node that has the slot of its keys, and asks anew when a node answers `MOVED`.
//! [`ClusterMap`] is that map as data: it is made of who leads which slots, and of who stands by.
//! Where that is known from does not matter here.
//!
//! **Nodes** are the addresses of a service's processes: each process has one for each group of
//! slots. The one whose process leads the group is a master, with a shard of its own; the others of
//! the group are shown as its replicas. A node's id is the SHA-1 of the service's name and the
//! node's address: so it stays the same when the process is started anew.
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
use super::hash::slot;
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

/// Slots that are led together, and the nodes that may lead them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotGroup {
    /// First and last of its slots.
    pub slots: (u16, u16),
    /// Who leads them, where somebody does.
    pub leader: Option<Endpoint>,
    /// All nodes that are known of it, in any order; the leader need not be among them.
    pub nodes: Vec<Endpoint>,
}

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
    /// First and last.
    slots: (u16, u16),
    leader: usize,
    replicas: Vec<usize>,
}

impl ClusterMap {
    /// The map of a service as the node at `own` sees it: who leads which slots, in their order and
    /// without overlaps.
    pub fn new(
        (service, own): (&str, &Endpoint),
        groups: &[SlotGroup],
        (epoch, is_tls): (u64, bool),
    ) -> Self {
        let of = |group: &'_ SlotGroup| group.nodes.iter().chain(&group.leader).cloned().collect();
        let mut all: Vec<Endpoint> = groups.iter().flat_map::<Vec<_>, _>(of).collect();
        all.push(own.clone());
        all.sort();
        all.dedup();
        let node = |at: Endpoint| Node { id: id_of(service, &at), at };
        let nodes: Vec<Node> = all.into_iter().map(node).collect();
        let place = |at: &Endpoint| nodes.binary_search_by_key(&at, |node| &node.at).unwrap_or(0);
        let shard = |(number, group): (usize, &SlotGroup)| {
            let leader = place(group.leader.as_ref()?);
            let mut replicas: Vec<usize> = group.nodes.iter().map(place).collect();
            replicas.retain(|node| *node != leader);
            replicas.sort_unstable();
            replicas.dedup();
            let id = hex(format!("{service} shard {number}").as_bytes());
            Some(Shard { id, slots: group.slots, leader, replicas })
        };
        let shards = groups.iter().enumerate().filter_map(shard).collect();
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
        let holds = |(first, last): (u16, u16)| (first..=last).contains(&slot);
        self.shards.iter().find(|shard| holds(shard.slots))
    }

    /// The shard of a node, and whether the node leads it.
    fn place_of(&self, node: usize) -> Option<(&Shard, bool)> {
        let is_its = |shard: &&Shard| shard.leader == node || shard.replicas.contains(&node);
        self.shards.iter().find(is_its).map(|shard| (shard, shard.leader == node))
    }
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

/// What a client is told instead of a node's word that another one has the slot: whoever follows
/// that writes past whatever is between the two.
pub fn without_redirection(reply: &[u8]) -> &[u8] {
    match reply.starts_with(b"-MOVED ") || reply.starts_with(b"-ASK ") {
        true => b"-CLUSTERDOWN the duplicate does not serve this slot any more\r\n",
        false => reply,
    }
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
