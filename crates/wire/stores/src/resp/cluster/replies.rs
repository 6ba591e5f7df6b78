//! The replies to `CLUSTER …`.

use super::{ClusterMap, Node};
use crate::resp::commands::{integer, refusals, unknown_subcommand};
use crate::resp::hash::{SLOTS, slot};
use crate::resp::request::Arguments;
use crate::resp::{Protocol, encode};

/// What is still to be done for a client that asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// Nothing: it is answered.
    Answered,
    /// The keys of this slot are to be counted.
    Count(u16),
    /// So many keys of this slot are to be listed.
    Keys(u16, usize),
}

const NOT_A_MASTER: &str = "ERR The specified node is not a master";
const HELP: [&str; 13] = [
    "CLUSTER <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "COUNT-FAILURE-REPORTS <node-id>",
    "COUNTKEYSINSLOT <slot>",
    "GETKEYSINSLOT <slot> <count>",
    "INFO",
    "KEYSLOT <key>",
    "LINKS",
    "MYID",
    "MYSHARDID",
    "NODES",
    "REPLICAS <node-id>",
    "SHARDS",
    "SLOTS",
];

impl ClusterMap {
    /// Answers `CLUSTER subcommand …`; `offset` is how far this process has come in the writes.
    pub fn answer(
        &self,
        arguments: Arguments<'_>,
        (offset, protocol): (u64, Protocol),
        out: &mut Vec<u8>,
    ) -> Asked {
        let what = arguments.get(1).unwrap_or_default().to_ascii_lowercase();
        match (what.as_slice(), arguments.len()) {
            (b"slots", 2) => self.slots(protocol, out),
            (b"shards", 2) => self.write_shards(offset, protocol, out),
            (b"nodes", 2) => {
                let lines: String = (0..self.nodes.len()).map(|node| self.line(node)).collect();
                encode::text(out, &lines, protocol);
            }
            (b"info", 2) => encode::text(out, &self.info(), protocol),
            (b"myid", 2) => encode::bulk(out, self.nodes[self.own].id.as_bytes()),
            (b"myshardid", 2) => {
                let id = self.place_of(self.own).map_or("", |(shard, _)| &shard.id);
                encode::bulk(out, id.as_bytes());
            }
            (b"links", 2) => encode::array(out, 0), // there is no bus
            (b"keyslot", 3) => encode::integer(out, slot(arguments.at(2)).into()),
            (b"countkeysinslot", 3) => return count(arguments, out),
            (b"getkeysinslot", 4) => return keys(arguments, out),
            (b"count-failure-reports", 3) => match self.named(arguments.at(2)) {
                Some(_) => encode::integer(out, 0), // nobody votes
                None => unknown_node(arguments.at(2), out),
            },
            (b"replicas" | b"slaves", 3) => self.replicas(arguments.at(2), out),
            (b"help", 2) => {
                encode::array(out, HELP.len());
                HELP.iter().for_each(|line| encode::simple(out, line));
            }
            (what, _) if is_changing(what) => encode::error(out, refusals::CLUSTER_CHANGES),
            (what, _) if is_known(what) => {
                let what = String::from_utf8_lossy(what);
                let text = format!("ERR wrong number of arguments for 'cluster|{what}' command");
                encode::error(out, &text);
            }
            _ => unknown_subcommand("CLUSTER", arguments.get(1).unwrap_or_default(), out),
        }
        Asked::Answered
    }

    /// `CLUSTER SLOTS`: each range, its leader, and who stands by.
    fn slots(&self, protocol: Protocol, out: &mut Vec<u8>) {
        encode::array(out, self.shards.len());
        for shard in &self.shards {
            let (first, last) = shard.slots;
            encode::array(out, 3 + shard.replicas.len());
            encode::integer(out, first.into());
            encode::integer(out, last.into());
            for node in std::iter::once(&shard.leader).chain(&shard.replicas) {
                let Node { at, id } = &self.nodes[*node];
                encode::array(out, 4);
                encode::bulk(out, at.host.as_bytes());
                encode::integer(out, at.port.into());
                encode::bulk(out, id.as_bytes());
                encode::map(out, 0, protocol); // no other names
            }
        }
    }

    /// `CLUSTER SHARDS`
    fn write_shards(&self, offset: u64, protocol: Protocol, out: &mut Vec<u8>) {
        encode::array(out, self.shards.len());
        for shard in &self.shards {
            encode::map(out, 2, protocol);
            encode::bulk(out, b"slots");
            encode::array(out, 2);
            encode::integer(out, shard.slots.0.into());
            encode::integer(out, shard.slots.1.into());
            encode::bulk(out, b"nodes");
            encode::array(out, 1 + shard.replicas.len());
            for node in std::iter::once(&shard.leader).chain(&shard.replicas) {
                self.write_node(*node, offset, protocol, out);
            }
        }
    }

    fn write_node(&self, node: usize, offset: u64, protocol: Protocol, out: &mut Vec<u8>) {
        let is_leader = self.place_of(node).is_some_and(|(_, is_leader)| is_leader);
        let Node { at, id } = &self.nodes[node];
        encode::map(out, 7, protocol);
        encode::bulk(out, b"id");
        encode::bulk(out, id.as_bytes());
        encode::bulk(out, if self.is_tls { b"tls-port" } else { b"port" });
        encode::integer(out, at.port.into());
        let role = if is_leader { "master" } else { "replica" };
        for (name, value) in [("ip", &*at.host), ("endpoint", &at.host), ("role", role)] {
            encode::bulk(out, name.as_bytes());
            encode::bulk(out, value.as_bytes());
        }
        encode::bulk(out, b"replication-offset");
        encode::integer(out, i64::try_from(offset).unwrap_or(i64::MAX));
        encode::bulk(out, b"health");
        encode::bulk(out, b"online");
    }

    /// A line of `CLUSTER NODES`. There is no bus, hence no port of one.
    fn line(&self, node: usize) -> String {
        let Node { at, id } = &self.nodes[node];
        let myself = if node == self.own { "myself," } else { "" };
        let epoch = self.epoch;
        let (role, of, slots) = match self.place_of(node) {
            Some((shard, true)) => {
                let slots = match shard.slots {
                    (first, last) if first == last => format!(" {first}"),
                    (first, last) => format!(" {first}-{last}"),
                };
                ("master", "-", slots)
            }
            Some((shard, false)) => ("slave", &*self.nodes[shard.leader].id, String::new()),
            None => ("master", "-", String::new()), // nobody leads: it has no slots
        };
        format!("{id} {at}@0 {myself}{role} {of} 0 0 {epoch} connected{slots}\n")
    }

    /// `CLUSTER INFO`
    fn info(&self) -> String {
        let slots = self.shards.iter().map(|shard| shard.slots);
        let assigned: u32 = slots.map(|(first, last)| u32::from(last - first) + 1).sum();
        let state = if assigned == u32::from(SLOTS) { "ok" } else { "fail" };
        format!(
            "cluster_state:{state}\r\ncluster_slots_assigned:{assigned}\r\n\
             cluster_slots_ok:{assigned}\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:0\r\n\
             cluster_known_nodes:{}\r\ncluster_size:{}\r\ncluster_current_epoch:{epoch}\r\n\
             cluster_my_epoch:{epoch}\r\ncluster_stats_messages_sent:0\r\n\
             cluster_stats_messages_received:0\r\n\
             total_cluster_links_buffer_limit_exceeded:0\r\n",
            self.nodes.len(),
            self.shards.len(),
            epoch = self.epoch,
        )
    }

    /// `CLUSTER REPLICAS id`
    fn replicas(&self, id: &[u8], out: &mut Vec<u8>) {
        match self.named(id) {
            None => unknown_node(id, out),
            Some(node) => match self.shards.iter().find(|shard| shard.leader == node) {
                None => encode::error(out, NOT_A_MASTER),
                Some(shard) => {
                    encode::array(out, shard.replicas.len());
                    for replica in &shard.replicas {
                        encode::bulk(out, self.line(*replica).trim_end().as_bytes());
                    }
                }
            },
        }
    }

    fn named(&self, id: &[u8]) -> Option<usize> {
        self.nodes.iter().position(|node| node.id.as_bytes() == id)
    }
}

fn is_known(what: &[u8]) -> bool {
    let known = HELP.iter().skip(1).filter_map(|line| line.split(' ').next());
    known.chain(["SLAVES", "HELP"]).any(|name| name.as_bytes().eq_ignore_ascii_case(what))
}

fn is_changing(what: &[u8]) -> bool {
    refusals::CLUSTER_CHANGING.iter().any(|name| name.as_bytes() == what)
}

fn unknown_node(id: &[u8], out: &mut Vec<u8>) {
    let id = String::from_utf8_lossy(&id[..id.len().min(64)]).into_owned();
    encode::error(out, &format!("ERR Unknown node {id}"));
}

const NO_INTEGER: &str = "ERR value is not an integer or out of range";

/// `COUNTKEYSINSLOT slot`
fn count(arguments: Arguments<'_>, out: &mut Vec<u8>) -> Asked {
    match integer(arguments.at(2)).map(slot_at) {
        None => encode::error(out, NO_INTEGER),
        Some(None) => encode::error(out, "ERR Invalid slot"),
        Some(Some(slot)) => return Asked::Count(slot),
    }
    Asked::Answered
}

/// `GETKEYSINSLOT slot count`
fn keys(arguments: Arguments<'_>, out: &mut Vec<u8>) -> Asked {
    let asked = integer(arguments.at(2)).zip(integer(arguments.at(3)));
    match asked.map(|(slot, count)| slot_at(slot).zip(usize::try_from(count).ok())) {
        None => encode::error(out, NO_INTEGER),
        Some(None) => encode::error(out, "ERR Invalid slot or number of keys"),
        Some(Some((slot, count))) => return Asked::Keys(slot, count),
    }
    Asked::Answered
}

fn slot_at(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOTS)
}
