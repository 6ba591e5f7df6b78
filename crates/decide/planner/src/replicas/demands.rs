//! Who goes where, and what it costs, under one leader.
//!
//! A demand is what one client sends over one choice of replica: with route `nearest` weak and
//! bounded reads go together to the nearest; with `bestpath` they choose apart, which makes two.
//! Each goes to the replica that it prefers most, ties to the lowest site, and costs what that
//! costs, which with `nearest` need not be the least: the nearest may be far from the leader.

use super::super::model::{Counts, Operation, RoundTrips, Route};

/// Demands by site, for one leader. Costs are in milliseconds × operations.
#[derive(Clone, Debug, Default)]
pub(super) struct Demands {
    sites: usize,
    count: usize,
    prefer: Vec<f64>,
    cost: Vec<f64>,
}

impl Demands {
    /// Makes them those under another leader.
    pub(super) fn lead(
        &mut self,
        counts: &Counts,
        trips: &RoundTrips,
        route: Route,
        leader: usize,
    ) {
        self.sites = trips.sites();
        self.count = 0;
        self.prefer.clear();
        self.cost.clear();
        let to_leader: Vec<f64> =
            (0..self.sites).map(|site| trips.from_site(site)[leader]).collect();
        for (client, counts) in counts.iter().enumerate() {
            let weak = counts[Operation::WeakRead as usize];
            let bounded = counts[Operation::BoundedRead as usize];
            let near = trips.from_client(client);
            let ways = near.iter().zip(&to_leader);
            let both = ways.clone().map(|(near, on)| (near, near + on));
            let over = ways.map(|(near, on)| near + on);
            match route {
                Route::Nearest => {
                    if weak + bounded > 0.0 {
                        self.prefer.extend_from_slice(near);
                        self.cost.extend(both.map(|(near, over)| weak * near + bounded * over));
                        self.count += 1;
                    }
                }
                Route::BestPath => {
                    if weak > 0.0 {
                        self.prefer.extend_from_slice(near);
                        self.cost.extend(near.iter().map(|ms| weak * ms));
                        self.count += 1;
                    }
                    if bounded > 0.0 {
                        self.prefer.extend(over.clone());
                        self.cost.extend(over.map(|over| bounded * over));
                        self.count += 1;
                    }
                }
            }
        }
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// How far each site is for a demand, by which it chooses.
    pub(super) fn prefer(&self, demand: usize) -> &[f64] {
        &self.prefer[demand * self.sites..][..self.sites]
    }

    /// What each site costs a demand.
    pub(super) fn cost(&self, demand: usize) -> &[f64] {
        &self.cost[demand * self.sites..][..self.sites]
    }

    /// The one of these that a demand goes to; they are in rising order, and there is one.
    pub(super) fn choice(&self, demand: usize, replicas: &[usize]) -> usize {
        let prefer = self.prefer(demand);
        let mut best = replicas[0];
        for &site in &replicas[1..] {
            if prefer[site] < prefer[best] {
                best = site;
            }
        }
        best
    }

    /// What all of them cost, with these replicas.
    pub(super) fn total(&self, replicas: &[usize]) -> f64 {
        (0..self.count).map(|demand| self.cost(demand)[self.choice(demand, replicas)]).sum()
    }

    /// What all of them cost at least, wherever replicas are among these sites.
    pub(super) fn floor(&self, sites: &[usize]) -> f64 {
        let least = |demand| {
            let cost = self.cost(demand);
            sites.iter().map(|&site| cost[site]).fold(f64::INFINITY, f64::min)
        };
        (0..self.count).map(least).sum()
    }

    /// Equation 3: every operation of a client as if it went to the nearest replica and no further.
    pub(super) fn of_all_operations(counts: &Counts, trips: &RoundTrips) -> Self {
        let mut demands = Self { sites: trips.sites(), ..Self::default() };
        for (client, counts) in counts.iter().enumerate() {
            let weight: f64 = counts.iter().sum();
            if weight > 0.0 {
                let near = trips.from_client(client);
                demands.prefer.extend_from_slice(near);
                demands.cost.extend(near.iter().map(|ms| weight * ms));
                demands.count += 1;
            }
        }
        demands
    }

    /// The allowed site nearest to every client, those of most operations first.
    pub(super) fn heaviest(&self, counts: &Counts, allowed: &[usize]) -> Vec<usize> {
        let weights = counts.iter().map(|counts| counts.iter().sum::<f64>());
        let mut weights: Vec<f64> = weights.filter(|&weight| weight > 0.0).collect();
        weights.truncate(self.count);
        let mut order: Vec<usize> = (0..weights.len()).collect();
        order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
        order.into_iter().map(|demand| self.choice(demand, allowed)).collect()
    }
}
