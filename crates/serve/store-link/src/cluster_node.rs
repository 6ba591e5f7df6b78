//! Whether a node of a Redis Cluster can be a duplicate: it must have every key, and nobody may put
//! another one in its place.
//!
//! A duplicate has all keys of its partition, of whichever slots. So its node has all 16,384 slots:
//! it is the only shard of its cluster. Other nodes may belong to the cluster as long as they have
//! no slot. **Replicas** lag behind what a node has acknowledged. The cluster puts one in the place
//! of a node that was away for `cluster-node-timeout`, and what the replica lacks is lost, though
//! Evenkeel has counted on it: so none may, unless somebody says so by hand.
//!
//! It is asked when it is connected to. A slot that leaves later is noticed by the next command
//! about it, which is refused: the node is dropped, and asked this again when it is reached anew.

use std::io;

use crate::connect::Link;
use evenkeel_duplicates_config::Connector;
use evenkeel_stores::resp::hash::SLOTS;
use evenkeel_stores::resp::reply::payload;

/// Asks a node of a Redis Cluster which slots it has, and whether its cluster is up.
///
/// # Errors
/// When it must not be a duplicate, or does not tell.
pub async fn check(connector: &Connector, link: &mut Link) -> io::Result<()> {
    let nodes = link.ask(&[b"CLUSTER", b"NODES"]).await?;
    let about = link.ask(&[b"CLUSTER", b"INFO"]).await?;
    judge(&told(&nodes)?, &told(&about)?)
        .map_err(|why| io::Error::other(format!("{connector}: {why}")))
}

fn told(reply: &[u8]) -> io::Result<String> {
    let text = String::from_utf8_lossy(payload(reply).unwrap_or_default()).into_owned();
    if !matches!(reply.first(), Some(b'-' | b'!')) {
        // To whoever speaks RESP3 a text says which kind it is.
        return Ok(text.strip_prefix("txt:").unwrap_or(&text).to_owned());
    }
    let words = format!("it does not tell which slots it has ({text}); permit +cluster");
    Err(io::Error::other(words))
}

/// Why a node must not be a duplicate.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Unfit {
    #[error(
        "it has {has} of the {SLOTS} slots of its cluster, expected all: a duplicate is the only \
         shard of its cluster{}",
        match .other {
            Some(other) => format!(" ({other} has slots as well)"),
            None => " (the others are nobody's: CLUSTER ADDSLOTSRANGE)".to_owned(),
        }
    )]
    Slots { has: usize, other: Option<String> },
    #[error("a slot of its is on its way ({0}), expected none: end that (CLUSTER SETSLOT)")]
    OnItsWay(String),
    #[error("its cluster is {0:?} (cluster_state), expected \"ok\": it takes no command")]
    Down(String),
    #[error(
        "its replica {0} may take its place by itself, and lacks what was not replicated yet; \
         expected cluster-replica-no-failover yes in the configuration of that replica (or none)"
    )]
    Replaceable(String),
    #[error("it does not say which node it is, expected a line with 'myself' of CLUSTER NODES")]
    Nobody,
}

/// A line of `CLUSTER NODES`: `id address flags master sent heard epoch link slot …`
struct Node<'t> {
    id: &'t str,
    address: &'t str,
    flags: &'t str,
    master: &'t str,
    slots: Vec<&'t str>,
}

impl<'t> Node<'t> {
    fn parse(line: &'t str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (id, address) = (words.next()?, words.next()?);
        let address = address.split('@').next().unwrap_or(address);
        let (flags, master) = (words.next()?, words.next()?);
        Some(Self { id, address, flags, master, slots: words.skip(4).collect() })
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.split(',').any(|it| it == flag)
    }

    fn slots(&self) -> usize {
        let count = |range: &&str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
            (usize::from(last) + 1).checked_sub(first.into())
        };
        self.slots.iter().filter_map(count).sum()
    }
}

/// By its answers to `CLUSTER NODES` and `CLUSTER INFO`.
fn judge(nodes: &str, about: &str) -> Result<(), Unfit> {
    let nodes: Vec<Node<'_>> = nodes.lines().filter_map(Node::parse).collect();
    let Some(own) = nodes.iter().find(|node| node.has("myself")) else {
        return Err(Unfit::Nobody);
    };
    let has = own.slots();
    if has != usize::from(SLOTS) {
        let other = nodes.iter().find(|node| !node.has("myself") && node.slots() > 0);
        return Err(Unfit::Slots { has, other: other.map(|node| node.address.to_owned()) });
    }
    if let Some(moving) = own.slots.iter().find(|slot| slot.starts_with('[')) {
        return Err(Unfit::OnItsWay((*moving).to_owned()));
    }
    let state = about.lines().find_map(|line| line.trim_end().strip_prefix("cluster_state:"));
    if state != Some("ok") {
        return Err(Unfit::Down(state.unwrap_or_default().to_owned()));
    }
    match nodes.iter().find(|node| node.master == own.id && !node.has("nofailover")) {
        Some(replica) => Err(Unfit::Replaceable(replica.address.to_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "cluster_state:ok\r\ncluster_slots_assigned:16384\r\n";
    const OWN: &str = "126eec 10.0.0.1:6379@16379 myself,master - 0 0 1 connected";

    fn said(nodes: &str, about: &str) -> String {
        judge(nodes, about).map_or_else(|why| why.to_string(), |()| String::new())
    }

    /// Lines as Redis 7.0.15 writes them.
    #[test]
    fn a_node_has_all_slots_and_nobody_who_takes_its_place() {
        let whole = format!("{OWN} 0-16383\n");
        assert_eq!(said(&whole, OK), "");
        assert_eq!(said(&format!("{OWN} 0 1-16381 16382-16383\n"), OK), "");
        let empty = "b7ae 10.0.0.2:6379@16379 master - 0 1700000000000 2 connected\n";
        assert_eq!(said(&format!("{empty}{whole}"), OK), "", "one without slots");
        let replica = "b7ae 10.0.0.2:6379@16379,two slave,nofailover 126eec 0 1 1 connected\n";
        assert_eq!(said(&format!("{whole}{replica}"), OK), "");
    }

    #[test]
    fn who_lacks_slots_or_may_be_replaced_is_told_so() {
        let whole = format!("{OWN} 0-16383");
        let other = "b7ae 10.0.0.2:6379@16379 master - 0 1 2 connected 16383\n";
        let replica = "b7ae 10.0.0.2:6379@16379 slave 126eec 0 1 1 connected\n";
        for (nodes, about, expected) in [
            (format!("{OWN} 0-16382\n{other}"), OK, "has 16383 of the 16384 slots"),
            (format!("{OWN} 0-16382\n{other}"), OK, "10.0.0.2:6379 has slots as well"),
            (format!("{OWN}\n"), OK, "has 0 of the 16384 slots"),
            (format!("{OWN}\n"), OK, "ADDSLOTSRANGE"),
            (format!("{OWN} 9-2\n"), OK, "has 0 of"),
            (format!("{whole} [77->-b7ae]\n"), OK, "[77->-b7ae]"),
            (format!("{whole} [77-<-b7ae]\n"), OK, "expected none"),
            (whole.clone(), "cluster_state:fail\r\n", "\"fail\" (cluster_state), expected \"ok\""),
            (whole.clone(), "", "\"\" (cluster_state)"),
            (format!("{whole}\n{replica}"), OK, "cluster-replica-no-failover yes"),
            (format!("{whole}\n{replica}"), OK, "its replica 10.0.0.2:6379 may"),
            (other.to_owned(), OK, "'myself'"),
            ("nonsense".to_owned(), OK, "'myself'"),
        ] {
            let why = said(&nodes, about);
            assert!(why.contains(expected), "{nodes}: {why}");
        }
    }

    #[test]
    fn who_may_not_ask_is_told_which_right_it_lacks() {
        let why = told(b"-NOPERM no\r\n").unwrap_err().to_string();
        assert!(why.contains("NOPERM") && why.contains("+cluster"), "{why}");
        assert_eq!(told(b"=7\r\ntxt:a b\r\n").unwrap(), "a b");
        assert_eq!(told(b"$3\r\na b\r\n").unwrap(), "a b");
    }
}
