//! The transportation problem: once loads are fixed, prices are constants and what is left is who
//! serves whom at the least price. Successive shortest paths with potentials; exact.

use std::collections::VecDeque;

const FAR: i64 = i64::MAX;

/// Supplies, needs, and for every pair a price of zero or more and a most, row by row.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    pub(super) supply: Vec<u32>,
    pub(super) need: Vec<u32>,
    pub(super) price: Vec<i64>,
    pub(super) most: Vec<u32>,
}

/// An allocation in progress. Potentials keep the reduced price of every pair with room at zero or
/// more, and of every pair in use at zero or less.
#[derive(Debug)]
struct Filling<'a> {
    given: &'a Transport,
    flow: Vec<u32>,
    supply: Vec<u32>,
    need: Vec<u32>,
    from_potential: Vec<i64>,
    to_potential: Vec<i64>,
}

/// A cheapest way from what is left to a need: distances, and who led to whom.
#[derive(Debug)]
struct Tree {
    from_distance: Vec<i64>,
    to_distance: Vec<i64>,
    from_parent: Vec<usize>,
    to_parent: Vec<usize>,
}

impl Transport {
    /// The cheapest flow that places as much as can be placed, row by row. Among equally cheap
    /// ones the smallest in lexicographic order, if `is_canonical`.
    pub(super) fn solve(&self, is_canonical: bool) -> Vec<u32> {
        let mut filling = Filling::new(self);
        while filling.augment() {}
        if is_canonical {
            filling.make_smallest();
        }
        filling.flow
    }

    fn columns(&self) -> usize {
        self.need.len()
    }
}

impl<'a> Filling<'a> {
    fn new(given: &'a Transport) -> Self {
        Self {
            given,
            flow: vec![0; given.price.len()],
            supply: given.supply.clone(),
            need: given.need.clone(),
            from_potential: vec![0; given.supply.len()],
            to_potential: vec![0; given.need.len()],
        }
    }

    /// Sends along a cheapest path; false when nothing is left or nothing can be placed.
    fn augment(&mut self) -> bool {
        let Some((tree, end)) = self.shortest() else { return false };
        let reach = tree.to_distance[end];
        for (potential, &distance) in self.from_potential.iter_mut().zip(&tree.from_distance) {
            *potential += distance.min(reach);
        }
        for (potential, &distance) in self.to_potential.iter_mut().zip(&tree.to_distance) {
            *potential += distance.min(reach);
        }
        self.send(&tree, end);
        true
    }

    /// Dijkstra over reduced prices, from all that have supply to the nearest that has need.
    fn shortest(&self) -> Option<(Tree, usize)> {
        let (rows, columns) = (self.supply.len(), self.need.len());
        let start = |&left: &u32| if left > 0 { 0 } else { FAR };
        let mut tree = Tree {
            from_distance: self.supply.iter().map(start).collect(),
            to_distance: vec![FAR; columns],
            from_parent: vec![usize::MAX; rows],
            to_parent: vec![usize::MAX; columns],
        };
        let (mut from_done, mut to_done) = (vec![false; rows], vec![false; columns]);
        loop {
            let from = nearest(&tree.from_distance, &from_done);
            let to = nearest(&tree.to_distance, &to_done);
            match (from, to) {
                (None, None) => return None,
                (Some((from, distance)), to) if to.is_none_or(|(_, other)| distance <= other) => {
                    from_done[from] = true;
                    self.relax_from(from, distance, &mut tree);
                }
                (_, Some((to, distance))) => {
                    if self.need[to] > 0 {
                        return Some((tree, to));
                    }
                    to_done[to] = true;
                    self.relax_to(to, distance, &mut tree);
                }
                (Some(_), None) => unreachable!("the second arm takes it"),
            }
        }
    }

    fn relax_from(&self, from: usize, distance: i64, tree: &mut Tree) {
        for to in 0..self.need.len() {
            let pair = from * self.need.len() + to;
            if self.flow[pair] < self.given.most[pair] {
                let through = distance + self.reduced(from, to);
                if through < tree.to_distance[to] {
                    tree.to_distance[to] = through;
                    tree.to_parent[to] = from;
                }
            }
        }
    }

    fn relax_to(&self, to: usize, distance: i64, tree: &mut Tree) {
        for from in 0..self.supply.len() {
            if self.flow[from * self.need.len() + to] > 0 {
                let through = distance - self.reduced(from, to);
                if through < tree.from_distance[from] {
                    tree.from_distance[from] = through;
                    tree.from_parent[from] = to;
                }
            }
        }
    }

    fn reduced(&self, from: usize, to: usize) -> i64 {
        let price = self.given.price[from * self.need.len() + to];
        price + self.from_potential[from] - self.to_potential[to]
    }

    fn send(&mut self, tree: &Tree, end: usize) {
        let columns = self.given.columns();
        let (mut to, mut amount) = (end, self.need[end]);
        let start = loop {
            let from = tree.to_parent[to];
            let pair = from * columns + to;
            amount = amount.min(self.given.most[pair] - self.flow[pair]);
            let back = tree.from_parent[from];
            if back == usize::MAX {
                break from;
            }
            amount = amount.min(self.flow[from * columns + back]);
            to = back;
        };
        amount = amount.min(self.supply[start]);
        self.supply[start] -= amount;
        self.need[end] -= amount;
        let mut to = end;
        loop {
            let from = tree.to_parent[to];
            self.flow[from * columns + to] += amount;
            if from == start && tree.from_parent[from] == usize::MAX {
                return;
            }
            to = tree.from_parent[from];
            self.flow[from * columns + to] -= amount;
        }
    }

    /// Moves flow along circles that cost nothing, pair by pair, so that earlier pairs carry as
    /// little as they can.
    fn make_smallest(&mut self) {
        for pair in 0..self.flow.len() {
            while self.flow[pair] > 0 && self.divert(pair) {}
        }
    }

    /// Takes flow off a pair over later pairs at no price; false when there is no way.
    fn divert(&mut self, pair: usize) -> bool {
        let columns = self.given.columns();
        let (origin, target) = (pair / columns, pair % columns);
        if self.reduced(origin, target) != 0 {
            return false;
        }
        let Some(path) = self.free_path(origin, target, pair) else { return false };
        let room = |&(pair, is_forward): &(usize, bool)| {
            if is_forward { self.given.most[pair] - self.flow[pair] } else { self.flow[pair] }
        };
        let amount = path.iter().map(room).min().unwrap_or(0).min(self.flow[pair]);
        self.flow[pair] -= amount;
        for (pair, is_forward) in path {
            if is_forward {
                self.flow[pair] += amount;
            } else {
                self.flow[pair] -= amount;
            }
        }
        amount > 0
    }

    /// A way from `origin` to `target` over pairs after `pair` whose reduced price is zero.
    fn free_path(&self, origin: usize, target: usize, pair: usize) -> Option<Vec<(usize, bool)>> {
        let (rows, columns) = (self.supply.len(), self.need.len());
        let mut came = vec![None; rows + columns];
        let mut queue = VecDeque::from([origin]);
        while let Some(node) = queue.pop_front() {
            if node == rows + target {
                break;
            }
            for other in if node < rows { rows..rows + columns } else { 0..rows } {
                let is_forward = node < rows;
                let (from, to) =
                    if is_forward { (node, other - rows) } else { (other, node - rows) };
                let step = from * columns + to;
                let has_room = match is_forward {
                    true => self.flow[step] < self.given.most[step],
                    false => self.flow[step] > 0,
                };
                let is_new = other != origin && came[other].is_none();
                if step > pair && has_room && is_new && self.reduced(from, to) == 0 {
                    came[other] = Some((node, step, is_forward));
                    queue.push_back(other);
                }
            }
        }
        let (mut node, mut path) = (rows + target, Vec::new());
        while node != origin {
            let (before, step, is_forward) = came[node]?;
            path.push((step, is_forward));
            node = before;
        }
        Some(path)
    }
}

fn nearest(distances: &[i64], done: &[bool]) -> Option<(usize, i64)> {
    let open = distances.iter().zip(done).enumerate();
    let reached = open.filter(|&(_, (&distance, &done))| !done && distance < FAR);
    reached.map(|(place, (&distance, _))| (place, distance)).min_by_key(|&(_, distance)| distance)
}
