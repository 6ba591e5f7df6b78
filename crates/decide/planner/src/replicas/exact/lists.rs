//! Which free sites each demand could go to at a node, and at what cost.
//!
//! Some site is open always, the leader's. A demand goes to the nearest open site or to one that is
//! nearer and opens yet; it can always be counted at the cost of the nearest open one, so only
//! cheaper ones matter.

use super::super::demands::Demands;
use super::super::problem::Problem;
use super::fate::{Fate, with_fate};

/// By demand: sites that are nearer than the leader, by rising cost. No others are ever on a list
/// below: the leader is open. Dearer ones are, where a nearer site that is dearer yet is open.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    starts: Vec<usize>,
    sites: Vec<u32>,
    costs: Vec<f64>,
}

impl Wishes {
    pub(super) fn new(problem: &Problem<'_>, demands: &Demands, leader: usize) -> Self {
        let mut wishes = Self::default();
        let mut some: Vec<u32> = Vec::new();
        for demand in 0..demands.count() {
            wishes.starts.push(wishes.sites.len());
            let (prefer, cost) = (demands.prefer(demand), demands.cost(demand));
            let is_wished = |site: &usize| (prefer[*site], *site) < (prefer[leader], leader);
            some.clear();
            some.extend(problem.allowed.iter().filter(|site| is_wished(site)).map(|s| *s as u32));
            some.sort_unstable_by(|a, b| {
                cost[*a as usize].total_cmp(&cost[*b as usize]).then(a.cmp(b))
            });
            wishes.sites.extend(&some);
            wishes.costs.extend(some.iter().map(|site| cost[*site as usize]));
        }
        wishes.starts.push(wishes.sites.len());
        wishes
    }

    /// Sites and costs of a demand, by rising cost.
    fn of(&self, demand: usize) -> (&[u32], &[f64]) {
        let range = self.starts[demand]..self.starts[demand + 1];
        (&self.sites[range.clone()], &self.costs[range])
    }
}

/// By demand: free sites that are nearer and cheaper than the open ones, by rising cost.
#[derive(Debug, Default)]
pub(super) struct Lists {
    starts: Vec<usize>,
    sites: Vec<u32>,
    costs: Vec<f64>,
    /// What the nearest open site costs each demand: no price is higher.
    pub(super) ceilings: Vec<f64>,
}

impl Lists {
    /// Those of a node.
    pub(super) fn build(&mut self, demands: &Demands, wishes: &Wishes, fates: &[Fate]) {
        self.starts.clear();
        self.sites.clear();
        self.costs.clear();
        self.ceilings.clear();
        let open: Vec<usize> = with_fate(fates, Fate::Open).collect();
        for demand in 0..demands.count() {
            self.starts.push(self.sites.len());
            let (prefer, cost) = (demands.prefer(demand), demands.cost(demand));
            let nearest = demands.choice(demand, &open);
            let ceiling = cost[nearest];
            self.ceilings.push(ceiling);
            let (sites, costs) = wishes.of(demand);
            for (&site, &site_cost) in sites.iter().zip(costs) {
                let at = site as usize;
                if site_cost >= ceiling {
                    break;
                }
                let is_nearer = (prefer[at], at) < (prefer[nearest], nearest);
                if fates[at] == Fate::Free && is_nearer {
                    self.sites.push(site);
                    self.costs.push(site_cost);
                }
            }
        }
        self.starts.push(self.sites.len());
    }

    /// Sites and costs of a demand, by rising cost.
    pub(super) fn of(&self, demand: usize) -> (&[u32], &[f64]) {
        let range = self.starts[demand]..self.starts[demand + 1];
        (&self.sites[range.clone()], &self.costs[range])
    }

    /// The least price that makes sense: below it nobody is willing and the bound only falls.
    fn floor(&self, demand: usize) -> f64 {
        self.of(demand).1.first().copied().unwrap_or(self.ceilings[demand])
    }

    /// The nearest prices that make sense.
    pub(super) fn clamp(&self, prices: &mut [f64]) {
        for (demand, price) in prices.iter_mut().enumerate() {
            *price = price.min(self.ceilings[demand]).max(self.floor(demand));
        }
    }
}
