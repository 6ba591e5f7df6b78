//! Algorithm 3 of the paper: weighted k-means over sites, with what it leaves open decided.
//!
//! - Line 21 stops while the cost still falls ("new − previous < threshold" is always true): here
//!   it goes on while the cost falls.
//! - Clients choose by round trip (line 15) and, within algorithm 5, cost by equation 1 (line 18),
//!   so
//!   the cost may rise: the best set seen is kept, and rounds are limited.
//! - Two centroids may move to one site and be one: a site that is taken is no place to move to.
//! - Clients may have fewer nearest sites than there are replicas: the site that helps most is
//!   added until there are enough.

use super::demands::Demands;
use super::problem::Problem;

const ROUNDS_MAX: usize = 50;

/// What k-means works with: for whom, and by which costs.
#[derive(Debug)]
pub(super) struct Field<'a> {
    pub(super) problem: &'a Problem<'a>,
    /// Who chooses where, and what it costs. Equation 3 is the one with the weights of all
    /// operations.
    pub(super) demands: &'a Demands,
    /// Demands by falling weight, with the site that each prefers most.
    pub(super) heaviest: &'a [usize],
}

/// Sites for this many replicas, the fixed among them (they are fewer or as many), rising.
pub(super) fn sites(field: &Field<'_>, fixed: &[usize], replicas: usize) -> Vec<usize> {
    let mut sites = fixed.to_vec();
    for &site in field.heaviest {
        if sites.len() == replicas {
            break;
        }
        if !sites.contains(&site) {
            sites.push(site);
        }
    }
    fill(field, &mut sites, replicas);
    let mut best = rising(&sites);
    let mut best_cost = field.demands.total(&best);
    for _ in 0..ROUNDS_MAX {
        let before = sites.clone();
        move_centroids(field, &mut sites, fixed.len());
        let now = rising(&sites);
        let cost = field.demands.total(&now);
        if cost < best_cost {
            (best, best_cost) = (now, cost);
        } else if sites == before || cost > best_cost * 1.5 {
            break;
        }
    }
    best
}

fn rising(sites: &[usize]) -> Vec<usize> {
    let mut sites = sites.to_vec();
    sites.sort_unstable();
    sites
}

/// Adds the site that lowers the cost most, until there are enough.
fn fill(field: &Field<'_>, sites: &mut Vec<usize>, replicas: usize) {
    while sites.len() < replicas {
        let mut best = (f64::INFINITY, usize::MAX);
        for &site in field.problem.allowed.iter().filter(|site| !sites.contains(site)) {
            let mut with = sites.clone();
            with.push(site);
            let cost = field.demands.total(&rising(&with));
            if cost < best.0 || best.1 == usize::MAX {
                best = (cost, site);
            }
        }
        sites.push(best.1);
    }
}

/// Lines 15 to 19: every centroid that may move goes to where its own clients cost least.
fn move_centroids(field: &Field<'_>, sites: &mut [usize], fixed: usize) {
    let demands = field.demands;
    let order = rising(sites);
    let choices: Vec<usize> =
        (0..demands.count()).map(|demand| demands.choice(demand, &order)).collect();
    for place in fixed..sites.len() {
        let centroid = sites[place];
        let mut costs = vec![0.0; field.problem.sites()];
        let mut clients = 0;
        for demand in (0..demands.count()).filter(|&demand| choices[demand] == centroid) {
            clients += 1;
            for (sum, cost) in costs.iter_mut().zip(demands.cost(demand)) {
                *sum += cost;
            }
        }
        if clients == 0 {
            continue; // nobody's: it stays, as good as anywhere
        }
        let mut best = centroid;
        for &site in &field.problem.allowed {
            if costs[site] < costs[best] && !sites.contains(&site) {
                best = site;
            }
        }
        sites[place] = best;
    }
}
