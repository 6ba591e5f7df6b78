//! Token → replicas, in Cassandra's order.
//!
//! **Source**: `locator.SimpleStrategy` and `locator.NetworkTopologyStrategy` of Cassandra 5.0,
//! whose answers for a thousand random rings are kept in `tests/ring/rings.txt`. Both walk the ring
//! from the key on. The simple strategy takes the nodes it meets. The other fills each data centre
//! for itself: a node of a rack that has none yet is always taken; of a rack that has one, only
//! while the data centre has fewer racks than it needs replicas, and so many times as it has fewer.

use std::collections::BTreeMap;

use crate::request::ring::replication::Replication;
use crate::request::ring::token::{Ranges, Token};

/// A node of the ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its data centre.
    pub datacenter: String,
    /// Its rack; the same name in another data centre is another rack.
    pub rack: String,
    /// The last tokens of the ranges it is the first replica of. A node without any (it joins) is
    /// no replica.
    pub tokens: Vec<Token>,
}

/// All nodes of a cluster by their tokens, whether they are up or not.
#[derive(Clone, Debug)]
pub struct Ring {
    nodes: usize,
    /// Every token with its node, ascending.
    tokens: Vec<(Token, usize)>,
    datacenters: BTreeMap<String, Datacenter>,
}

/// One data centre's part of the ring.
#[derive(Clone, Debug, Default)]
struct Datacenter {
    /// Every token of its nodes: its place among all tokens, its node, its rack. Ascending.
    places: Vec<(usize, usize, usize)>,
    /// Nodes that have tokens.
    nodes: usize,
    racks: usize,
}

impl Ring {
    /// The ring of these nodes. Of nodes that claim the same token, the first has it.
    pub fn new(nodes: &[Node]) -> Self {
        let each = nodes.iter().enumerate();
        let mut tokens: Vec<(Token, usize)> =
            each.flat_map(|(number, node)| node.tokens.iter().map(move |&t| (t, number))).collect();
        tokens.sort_unstable();
        tokens.dedup_by_key(|&mut (token, _)| token);
        let mut ring = Self { nodes: nodes.len(), tokens, datacenters: BTreeMap::new() };
        let mut racks: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for node in nodes.iter().filter(|node| !node.tokens.is_empty()) {
            let datacenter = ring.datacenters.entry(node.datacenter.clone()).or_default();
            datacenter.nodes += 1;
            racks.entry((&node.datacenter, &node.rack)).or_insert_with(|| {
                datacenter.racks += 1;
                datacenter.racks - 1
            });
        }
        for (place, &(_, number)) in ring.tokens.iter().enumerate() {
            let node = &nodes[number];
            let rack = racks[&(node.datacenter.as_str(), node.rack.as_str())];
            let datacenter = ring.datacenters.get_mut(&node.datacenter);
            let datacenter = datacenter.expect("every node with a token is in one");
            datacenter.places.push((place, number, rack));
        }
        ring
    }

    /// How many nodes it was made of.
    pub const fn len(&self) -> usize {
        self.nodes
    }

    /// True when no node has a token.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The replicas of every token under this replication. Takes tens of milliseconds for 25,000
    /// tokens: not on the request path.
    pub fn replicas(&self, replication: &Replication) -> ReplicaSets {
        let mut sets = Sets::default();
        let ranges = match replication {
            Replication::Local | Replication::Everywhere => {
                let everybody = sets.number((0..self.nodes).collect());
                Ranges::new(self.tokens.last().map(|&(token, _)| (token, everybody)))
            }
            Replication::Simple { replicas } => {
                let mut walk = Walk::new(self.nodes, 0);
                self.walked(&mut sets, |place, found| {
                    self.simple(place, *replicas, &mut walk, found);
                })
            }
            Replication::NetworkTopology(wanted) => {
                let known = |(name, &replicas): (&String, &usize)| {
                    let datacenter = self.datacenters.get(name)?;
                    let walk = Walk::new(self.nodes, datacenter.racks);
                    Some((datacenter, replicas, walk))
                };
                let mut parts: Vec<_> = wanted.iter().filter_map(known).collect();
                let all = self.tokens.len();
                self.walked(&mut sets, |place, found| {
                    for (datacenter, replicas, walk) in &mut parts {
                        datacenter.spread((place, all), *replicas, walk, found);
                    }
                })
            }
        };
        ReplicaSets { ranges, sets: sets.sets }
    }

    /// The ranges of all tokens, with what `walk` finds from each token's place on: how far away,
    /// and which node.
    fn walked(
        &self,
        sets: &mut Sets,
        mut walk: impl FnMut(usize, &mut Vec<(usize, usize)>),
    ) -> Ranges {
        let mut found = Vec::new();
        let each = self.tokens.iter().enumerate().map(|(place, &(token, _))| {
            found.clear();
            walk(place, &mut found);
            found.sort_unstable(); // data centres are walked one by one, their order is the ring's
            (token, sets.number(found.iter().map(|&(_, node)| node).collect()))
        });
        Ranges::new(each)
    }

    fn simple(
        &self,
        place: usize,
        replicas: usize,
        walk: &mut Walk,
        found: &mut Vec<(usize, usize)>,
    ) {
        walk.begin();
        let around = self.tokens[place..].iter().chain(&self.tokens[..place]);
        for (distance, &(_, node)) in around.enumerate() {
            if found.len() == replicas {
                return;
            }
            if walk.is_new_node(node) {
                found.push((distance, node));
            }
        }
    }
}

impl Datacenter {
    /// Finds this data centre's replicas of the range that ends at a place of the ring.
    fn spread(
        &self,
        (place, all): (usize, usize),
        replicas: usize,
        walk: &mut Walk,
        found: &mut Vec<(usize, usize)>,
    ) {
        walk.begin();
        let mut missing = replicas.min(self.nodes);
        let mut repeats = replicas.saturating_sub(self.racks);
        let first = self.places.partition_point(|&(other, ..)| other < place);
        let around = self.places[first..].iter().chain(&self.places[..first]);
        for &(other, node, rack) in around {
            if missing == 0 {
                return;
            }
            if walk.has_node(node) {
                continue;
            }
            if !walk.is_new_rack(rack) {
                if repeats == 0 {
                    continue; // there are racks enough that have none yet
                }
                repeats -= 1;
            }
            let _ = walk.is_new_node(node);
            missing -= 1;
            let distance = if other >= place { other - place } else { other + all - place };
            found.push((distance, node));
        }
    }
}

/// Whom a walk has met. Marks are numbers of walks, so that nothing is wiped between them.
struct Walk {
    number: u32,
    nodes: Vec<u32>,
    racks: Vec<u32>,
}

impl Walk {
    fn new(nodes: usize, racks: usize) -> Self {
        Self { number: 0, nodes: vec![0; nodes], racks: vec![0; racks] }
    }

    fn begin(&mut self) {
        self.number += 1;
    }

    fn has_node(&self, node: usize) -> bool {
        self.nodes[node] == self.number
    }

    fn is_new_node(&mut self, node: usize) -> bool {
        core::mem::replace(&mut self.nodes[node], self.number) != self.number
    }

    fn is_new_rack(&mut self, rack: usize) -> bool {
        core::mem::replace(&mut self.racks[rack], self.number) != self.number
    }
}

/// Sets of nodes, each of them once.
#[derive(Default)]
struct Sets {
    sets: Vec<Box<[usize]>>,
    numbers: BTreeMap<Box<[usize]>, u32>,
}

impl Sets {
    fn number(&mut self, set: Box<[usize]>) -> u32 {
        let next = self.sets.len() as u32;
        *self.numbers.entry(set).or_insert_with_key(|set| {
            self.sets.push(set.clone());
            next
        })
    }
}

/// The replicas of every token under one replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSets {
    pub(super) ranges: Ranges,
    pub(super) sets: Vec<Box<[usize]>>,
}

impl ReplicaSets {
    /// The replicas of a token: numbers of nodes as the ring was given them, in Cassandra's order.
    /// Empty when nobody holds it. Where each node has data of its own, and where every node has
    /// all, these are all nodes in the order given.
    #[inline]
    pub fn of(&self, token: Token) -> &[usize] {
        self.ranges.of(token).map_or(&[], |number| &self.sets[number as usize])
    }

    /// How many different sets there are.
    pub fn len(&self) -> usize {
        self.sets.len()
    }

    /// True when the ring has no tokens.
    pub fn is_empty(&self) -> bool {
        self.ranges.len() == 0
    }
}
