//! Better prices by subgradients: a demand that is served twice pays too much, one that is not
//! served too little.

use super::Search;
use super::fate::{Fate, with_fate};
use super::lists::Lists;
use super::relaxed::Relaxed;
use super::state::Tree;

/// Rounds at the root, where prices are far off.
pub(super) const ROUNDS_ROOT: u32 = 160;
/// Rounds below it.
pub(super) const ROUNDS: u32 = 15;
/// Rounds without a better bound after which steps are halved.
const PATIENCE: u32 = 6;
/// Steps shorter than this part of the gap gain nothing.
const STEP_MIN: f64 = 0.01;

/// What a climb came to.
#[derive(Debug)]
pub(super) struct Climb {
    /// No set at the node is below; infinite when there is none.
    pub(super) bound: f64,
    /// The prices of that bound.
    pub(super) prices: Vec<f64>,
    /// The sub-problem at those prices.
    pub(super) relaxed: Relaxed,
    /// How often each free site was chosen, later rounds counting more.
    pub(super) often: Vec<f64>,
}

/// Climbs for so many rounds at most, until the bound passes the cutoff. At the root every set on
/// the way is offered as an answer; below it that would be half of the effort and find nothing.
pub(super) fn climb(
    tree: &Tree<'_>,
    search: &mut Search,
    lists: &Lists,
    fates: &[Fate],
    prices: &[f64],
    rounds: u32,
) -> Climb {
    let open: Vec<usize> = with_fate(fates, Fate::Open).collect();
    let slots = tree.problem.question.replicas - open.len();
    let base = tree.problem.to_leader(tree.leader);
    let mut prices = prices.to_vec();
    lists.clamp(&mut prices);
    let mut best = Climb {
        bound: f64::NEG_INFINITY,
        prices: prices.clone(),
        relaxed: Relaxed::of(fates.len()),
        often: vec![0.0; fates.len()],
    };
    let mut now = Relaxed::of(fates.len());
    let (mut step, mut waited) = (1.6, 0);
    let mut last: Vec<usize> = Vec::new();
    for _ in 0..rounds {
        let paid = appraise(lists, &prices, &mut now.worth);
        if !now.solve(tree, fates, slots) {
            best.bound = f64::INFINITY;
            return best;
        }
        let choice = now.best();
        let bound = base + paid + choice.value;
        let slope = Slope::of(lists, &prices, fates.len(), &choice.sites);
        best.often.iter_mut().for_each(|often| *often *= 0.9);
        choice.sites.iter().for_each(|&site| best.often[site] += 1.0);
        if rounds == ROUNDS_ROOT && choice.sites != last {
            last.clone_from(&choice.sites);
            tree.offer(search, open.iter().chain(&last).copied().collect());
        }
        waited += 1;
        if bound > best.bound {
            best.bound = bound;
            best.prices.clone_from(&prices);
            std::mem::swap(&mut best.relaxed, &mut now);
            waited = 0;
        }
        if waited >= PATIENCE {
            step *= 0.5;
            waited = 0;
        }
        if best.bound >= search.cutoff() || slope.squares == 0.0 || step < STEP_MIN {
            return best;
        }
        let length = step * (search.best.value - bound) / slope.squares;
        prices.iter_mut().zip(&slope.paid).for_each(|(price, slope)| *price += length * slope);
        lists.clamp(&mut prices);
    }
    best
}

/// What sites are worth at these prices; returns the sum of the prices.
fn appraise(lists: &Lists, prices: &[f64], worth: &mut [f64]) -> f64 {
    worth.fill(0.0);
    for (demand, &price) in prices.iter().enumerate() {
        let (sites, costs) = lists.of(demand);
        for (&site, &cost) in sites.iter().zip(costs) {
            if cost >= price {
                break;
            }
            worth[site as usize] += cost - price;
        }
    }
    prices.iter().sum()
}

/// Which way prices should go.
struct Slope {
    /// By demand: 1 less how often it is served.
    paid: Vec<f64>,
    /// The sum of squares.
    squares: f64,
}

impl Slope {
    fn of(lists: &Lists, prices: &[f64], sites: usize, chosen: &[usize]) -> Self {
        let mut is_chosen = vec![false; sites];
        chosen.iter().for_each(|&site| is_chosen[site] = true);
        let one = |(demand, &price): (usize, &f64)| {
            let (sites, costs) = lists.of(demand);
            let paying = sites.iter().zip(costs).take_while(|(_, cost)| **cost < price);
            let times = paying.filter(|(site, _)| is_chosen[**site as usize]).count();
            // At its ceiling a demand is served by an open site: it cannot pay more.
            let is_full = times == 0 && price >= lists.ceilings[demand];
            if is_full { 0.0 } else { 1.0 - times as f64 }
        };
        let paid: Vec<f64> = prices.iter().enumerate().map(one).collect();
        let squares = paid.iter().map(|slope| slope * slope).sum();
        Self { paid, squares }
    }
}
