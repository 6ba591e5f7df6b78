//! Exact placement: Lagrangian branch and bound under every leader.
//!
//! With the leader fixed, what is left is a k-median with three twists: transactions wait for the
//! radius of the quorum, clients go to the *nearest* replica and not to the cheapest, and limits of
//! failure domains. "Every demand is assigned once" is relaxed: each demand has a price that it
//! pays for being served, a site is worth what the demands that it serves pay above their cost, and
//! the best set is then a matter of sorting. The bound is as good as the linear program's, without
//! one.
//!
//! - The radius is not relaxed: within each the sub-problem takes enough sites inside and the rest
//!   wherever they are best ([`relaxed`]).
//! - An open site forbids all that are farther for a demand ([`lists`]); this, by branching, closes
//!   the gap that the nearest rule opens. Charging sites for demands that pass them by (its own
//!   multipliers) gave a third of the nodes at several times the effort each, and is not here;
//!   multipliers that are found at the root and kept below it gave as many nodes as none.
//! - Sites whose opening or closing would lift the bound above the best found are fixed
//!   ([`relaxed`]).
//! - Depth first, the open branch first. Effort is counted in nodes, never timed, so equal
//!   questions have equal answers; what was not examined keeps its bound, and the least of them is
//!   the answer's.
//!
//! | file | what it is |
//! |---|---|
//! | `tree` | one leader's tree: nodes, what follows from decisions, branching |
//! | `state` | what the nodes of a tree share |
//! | `fate` | what was decided of each site |
//! | `lists` | which free sites each demand could go to at a node, by cost |
//! | `relaxed` | the sub-problem at given prices |
//! | `climb` | better prices by subgradients |

mod climb;
mod fate;
mod lists;
mod relaxed;
mod state;
mod tree;

use super::problem::{Found, Problem, TOLERANCE};
use state::Tree;
use tree::Node;

/// What was found and what is proven of it.
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) found: Found,
    /// In milliseconds × operations.
    pub(super) lower_bound_ms: f64,
    pub(super) nodes: u64,
}

/// The best set so far, and what effort is left.
#[derive(Debug)]
pub(super) struct Search {
    best: Found,
    nodes: u64,
    nodes_max: u64,
}

impl Search {
    /// Bounds from here on prune.
    fn cutoff(&self) -> f64 {
        self.best.value - TOLERANCE * self.best.value
    }

    fn offer(&mut self, found: Found) {
        if found.is_better(&self.best) {
            self.best = found;
        }
    }

    /// Counts a node; false when there are no more.
    fn has_node(&mut self) -> bool {
        self.nodes += 1;
        self.nodes <= self.nodes_max
    }
}

/// Searches under every leader, the most promising first: first the root of each, which settles
/// most, then the trees of those that are left.
pub(super) fn find(problem: &Problem<'_>, start: Found, nodes_max: u64) -> Proof {
    let mut search = Search { best: start, nodes: 0, nodes_max };
    let floors = problem.allowed.iter().map(|&leader| (problem.floor_of(leader), leader));
    let mut leaders: Vec<(f64, usize)> = floors.collect();
    leaders.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut roots: Vec<Root> = Vec::new();
    let mut lower = f64::INFINITY;
    for &(floor, leader) in &leaders {
        if floor >= search.cutoff() {
            break; // and so are all that follow
        }
        if !search.has_node() {
            lower = lower.min(floor);
            continue;
        }
        let mut tree = Tree::new(problem, leader);
        if let Some(node) = tree.root(&mut search, floor) {
            roots.push(Root { leader, node });
        }
    }
    roots.sort_by(|a, b| a.node.bound.total_cmp(&b.node.bound));
    for root in roots {
        if root.node.bound >= search.cutoff() {
            continue;
        }
        let mut tree = Tree::new(problem, root.leader);
        lower = lower.min(tree.search(&mut search, root.node));
    }
    let nodes = search.nodes.min(nodes_max);
    let lower_bound_ms = lower.min(search.best.value);
    Proof { found: search.best, lower_bound_ms, nodes }
}

struct Root {
    leader: usize,
    node: Node,
}
