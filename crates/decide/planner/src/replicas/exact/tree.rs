//! The tree of one leader.

use super::super::quorum::Seen;
use super::Search;
use super::climb::{Climb, ROUNDS, ROUNDS_ROOT, climb};
use super::fate::{Fate, with_fate};
use super::state::Tree;

/// Decisions, and what is known under them.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) bound: f64,
    fates: Vec<Fate>,
    prices: Vec<f64>,
    /// The free site to decide next, none when nothing is free.
    next: Option<usize>,
}

impl Tree<'_> {
    /// The root after its climb, unless that settles it.
    pub(super) fn root(&mut self, search: &mut Search, floor: f64) -> Option<Node> {
        let mut fates = vec![Fate::Closed; self.problem.sites()];
        self.problem.allowed.iter().for_each(|&site| fates[site] = Fate::Free);
        self.problem.fixed.iter().for_each(|&site| fates[site] = Fate::Open);
        fates[self.leader] = Fate::Open;
        let prices = self.prices_like(&search.best.replicas);
        let node = Node { bound: floor, fates, prices, next: None };
        self.examine(search, node, ROUNDS_ROOT)
    }

    /// Prices as of a set that is good: between what its nearest and what its second costs.
    fn prices_like(&self, replicas: &[usize]) -> Vec<f64> {
        let one = |demand: usize| {
            let cost = self.demands.cost(demand);
            let mut two = [f64::INFINITY; 2];
            for &site in replicas {
                if cost[site] < two[0] {
                    two = [cost[site], two[0]];
                } else if cost[site] < two[1] {
                    two[1] = cost[site];
                }
            }
            let far = two[1].min(cost[self.leader]).max(two[0]);
            0.5 * (two[0] + far)
        };
        (0..self.demands.count()).map(one).collect()
    }

    /// Searches below a root; returns the least bound of what was left when nodes ran out, infinite
    /// when nothing was.
    pub(super) fn search(&mut self, search: &mut Search, root: Node) -> f64 {
        let mut open = Vec::new();
        self.branch(root, &mut open);
        while let Some(node) = open.pop() {
            if node.bound >= search.cutoff() {
                continue;
            }
            if !search.has_node() {
                let left = open.iter().map(|left| left.bound).fold(node.bound, f64::min);
                return left;
            }
            if let Some(node) = self.examine(search, node, ROUNDS) {
                self.branch(node, &mut open);
            }
        }
        f64::INFINITY
    }

    /// Follows what is decided, climbs, fixes; none when nothing better can be below.
    fn examine(&mut self, search: &mut Search, mut node: Node, rounds: u32) -> Option<Node> {
        if !self.follow(&mut node.fates) {
            return None;
        }
        if with_fate(&node.fates, Fate::Free).next().is_none() {
            self.offer(search, with_fate(&node.fates, Fate::Open).collect());
            return None;
        }
        let mut lists = std::mem::take(&mut self.lists);
        lists.build(&self.demands, &self.wishes, &node.fates);
        let climbed = climb(self, search, &lists, &node.fates, &node.prices, rounds);
        self.lists = lists;
        node.bound = node.bound.max(climbed.bound);
        if node.bound >= search.cutoff() {
            return None;
        }
        let open: Vec<usize> = with_fate(&node.fates, Fate::Open).collect();
        self.fix(search, &mut node.fates, &climbed);
        if rounds == ROUNDS {
            let sites = climbed.relaxed.best().sites.iter().copied();
            self.offer(search, open.into_iter().chain(sites).collect());
        }
        node.next = next(&node.fates, &climbed);
        node.prices = climbed.prices;
        Some(node)
    }

    /// Decides what cannot be otherwise in a better set.
    fn fix(&self, search: &Search, fates: &mut [Fate], climbed: &Climb) {
        let open = with_fate(fates, Fate::Open).count();
        let slots = self.problem.question.replicas - open;
        let least = climbed.relaxed.best().value;
        for (site, fate, value) in climbed.relaxed.forced(fates, slots) {
            if climbed.bound + (value - least) >= search.cutoff() {
                fates[site] = if fate == Fate::Open { Fate::Closed } else { Fate::Open };
            }
        }
    }

    /// The two ways to decide the next site; the open one is on top.
    fn branch(&self, node: Node, open: &mut Vec<Node>) {
        let Some(site) = node.next else {
            open.push(node);
            return;
        };
        let mut closed = node.clone();
        closed.fates[site] = Fate::Closed;
        open.push(closed);
        let mut opened = node;
        opened.fates[site] = Fate::Open;
        open.push(opened);
    }

    /// Decides what follows from decisions: numbers of replicas and limits of domains. False when
    /// nothing can be right any more.
    fn follow(&self, fates: &mut [Fate]) -> bool {
        loop {
            let open: Vec<usize> = with_fate(fates, Fate::Open).collect();
            let free: Vec<usize> = with_fate(fates, Fate::Free).collect();
            let Some(slots) = self.problem.question.replicas.checked_sub(open.len()) else {
                return false;
            };
            if free.len() < slots {
                return false;
            }
            if slots == 0 || free.len() == slots {
                let fate = if slots == 0 { Fate::Closed } else { Fate::Open };
                free.iter().for_each(|&site| fates[site] = fate);
                return true;
            }
            let Some(closed) = self.excluded(&open, &free, slots) else { return false };
            if closed.is_empty() {
                return true;
            }
            closed.iter().for_each(|&site| fates[site] = Fate::Closed);
        }
    }

    /// Free sites that domains exclude; none when the limits cannot be kept.
    fn excluded(&self, open: &[usize], free: &[usize], slots: usize) -> Option<Vec<usize>> {
        let problem = self.problem;
        let Some(domains) = &problem.question.domains else { return Some(Vec::new()) };
        let held = |site: usize| {
            open.iter().filter(|&&other| domains.of[other] == domains.of[site]).count()
        };
        let limit = problem.question.replicas_max_in_domain();
        if open.iter().any(|&site| held(site) > limit) {
            return None;
        }
        let mut seen = Seen::new(problem.question, self.leader);
        open.iter().for_each(|&site| seen.add(problem.question, site));
        let missing = problem.question.new_domains().saturating_sub(seen.new_ones());
        if missing > slots {
            return None;
        }
        let is_excluded = |site: &usize| {
            let held = held(*site);
            held >= limit || (missing == slots && held > 0)
        };
        Some(free.iter().copied().filter(is_excluded).collect())
    }
}

/// The free site that the climb chose most often: opening it is most likely right, and shows
/// soonest
/// what it costs those that are nearest to it.
fn next(fates: &[Fate], climbed: &Climb) -> Option<usize> {
    let free = with_fate(fates, Fate::Free);
    let worth = &climbed.relaxed.worth;
    free.min_by(|&a, &b| {
        let ways = climbed.often[b].total_cmp(&climbed.often[a]);
        ways.then_with(|| worth[a].total_cmp(&worth[b]))
    })
}
