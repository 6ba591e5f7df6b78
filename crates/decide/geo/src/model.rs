//! A question in the solver's words: one price per unit of flow that orders allocations wholly.
//!
//! **Ties.** The objective alone has many minima (curves are flat at low load), and every data
//! centre must come to the same one. Unit prices therefore hold three numbers in one: the objective
//! times a factor larger than all the rest can come to, then redirected quanta, then nearness. What
//! is smallest in this sum is smallest in the objective, among those in redirects, and so on. For
//! the cost objective the second number is violations.
//!
//! All of it is integers. Floating point proposes prices and places to look, and decides nothing.

use super::pairs::Pairs;
use super::problem::{ALL_PPM, Problem};
use super::question::{Objective, Overload, Question, Target};
use super::shed::Shedding;

/// Totals stay below this.
const TOTAL_MAX: i128 = 1 << 60;
/// Ranks of nearness that are told apart, where the numbers have room for them.
const RANKS: i64 = 15;

/// What a request of others counts at a data centre that sheds its own.
const SHEDS_PPM: u32 = 4 * ALL_PPM;

/// A flow for every pair, in quanta.
pub(super) type Flow = Pairs<u32>;

/// What a target asks: `Σ weight[i] · violations[i] <= budget[row[i]]`.
#[derive(Clone, Debug)]
pub(super) struct Side {
    /// The row that an origin's violations count in.
    pub(super) row: Vec<usize>,
    /// How much they count.
    pub(super) weight: Vec<i64>,
    /// What each row may come to.
    pub(super) budget: Vec<i64>,
    /// The price of a unit beyond the budget, when one may go beyond.
    pub(super) excess_price: Option<i64>,
    /// Prices of violations stay at this or below: no bound is lost, and no sum overflows.
    pub(super) price_max: i64,
}

/// What an allocation comes to; the smaller one is the better one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Score {
    /// Beyond the budgets.
    pub(super) excess: i64,
    /// Prices, summed.
    pub(super) cost: i64,
}

/// Unit prices: `fixed[i][j] + weight · ppm(i, j, load of j)`.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) sites: usize,
    pub(super) demand: Vec<u32>,
    pub(super) relay: bool,
    /// For each destination the violations of all origins, load by load.
    tables: Vec<Vec<u32>>,
    pub(super) fixed: Pairs<i64>,
    pub(super) weight: i64,
    pub(super) limit: Pairs<u32>,
    /// What each origin keeps at least. Without relaying that is its lowest load too.
    pub(super) kept: Vec<u32>,
    pub(super) side: Option<Side>,
    /// Price of one unit of the objective.
    pub(super) unit: i64,
    /// What all lower keys together can come to: less than `unit`.
    below: i64,
    /// The lowest and highest load of each data centre.
    pub(super) range: Vec<(u32, u32)>,
}

impl Model {
    /// `shedding` where loads are capped.
    pub(super) fn new(problem: &Problem, question: &Question, shedding: Option<&Shedding>) -> Self {
        let demand = problem.demand();
        let total = problem.demand_total();
        // Nobody is sent where that saturates, or beyond the bound; what is at home may.
        let below = |site: usize| problem.saturation()[site].saturating_sub(1).min(total);
        let cap = |site: usize| match shedding {
            None => problem.bounds()[site].min(total).max(demand[site]),
            Some(_) => below(site).min(problem.bounds()[site]).max(demand[site]),
        };
        let sites = problem.sites();
        let kept: Vec<u32> = (0..sites).map(|site| problem.kept(site, demand[site])).collect();
        let most = |i: usize, j: usize| demand[i] - if i == j { 0 } else { kept[i] };
        let mut model = Self {
            sites,
            demand: demand.to_vec(),
            relay: question.relay,
            tables: tables(problem, question, shedding),
            fixed: Pairs::filled(sites, 0),
            weight: 0,
            limit: Pairs::from_fn(sites, |i, j| problem.limit(i, j).min(most(i, j))),
            side: None,
            unit: 1,
            below: 0,
            range: (0..sites).map(|site| (kept[site], cap(site))).collect(),
            kept,
        };
        match &question.objective {
            Objective::Violations => model.price_violations(problem),
            Objective::Cost(target) => model.price_redirects(problem, target),
        }
        model
    }

    /// The same question for the least excess, redirects being the second key.
    pub(super) fn of_excess(&self) -> Self {
        let mut model = self.clone();
        let Some(side) = &mut model.side else { return model };
        model.weight = 0;
        model.fixed = Pairs::from_fn(self.sites, |i, j| self.fixed[(i, j)] / self.unit);
        let highest = model.fixed.rows().flatten().max().copied().unwrap_or(0);
        let total = i64::from(self.demand.iter().sum::<u32>());
        let excess = i128::from(TOTAL_MAX as i64 / side.price_max) * i128::from(total);
        let redirects = highest * total;
        let largest = i128::from(redirects + 1) * excess.max(1);
        let keys = Keys::fit(largest, redirects);
        model.fixed = Pairs::from_fn(self.sites, |i, j| model.fixed[(i, j)] * keys.second);
        (model.unit, model.below) = (keys.first, keys.below);
        side.excess_price = Some(model.unit);
        side.price_max = side.price_max.min(model.unit);
        model
    }

    /// With each data centre's role fixed, for local targets without relaying.
    ///
    /// Curves do not fall. A data centre whose own requests alone break its target must send, and
    /// one that receives would break it further. In some cheapest answer nobody else sends:
    /// cancelling what it sends lowers others' loads, its own load returns to its demand, and
    /// nobody's violations rise. (`KurmaCost`'s roles do not depend on what is sent, so the search
    /// is left with amounts.)
    pub(super) fn with_roles(&self) -> Self {
        let mut model = self.clone();
        let Some(side) = &self.side else { return model };
        let breaks = |site: usize, load: u32| {
            let violations = i64::from(self.demand[site]) * i64::from(self.ppm(site, site, load));
            violations * side.weight[site] > side.budget[side.row[site]]
        };
        let sends = |site: usize| {
            let demand = self.demand[site];
            breaks(site, demand) || demand > self.range[site].1
        };
        let senders: Vec<bool> = (0..self.sites).map(sends).collect();
        for site in 0..self.sites {
            let (demand, (lowest, highest)) = (self.demand[site], self.range[site]);
            model.range[site] = if senders[site] {
                let highest = demand.saturating_sub(1).min(highest);
                (lowest, self.most_kept(side, &senders, site, (lowest, highest)))
            } else {
                let first = (demand..=highest).find(|&load| breaks(site, load));
                (demand, first.map_or(highest, |load| load - 1))
            };
        }
        model
    }

    /// The most a sender can keep if the rest meets no more violations than a first guest of the
    /// best receiver would.
    fn most_kept(&self, side: &Side, senders: &[bool], site: usize, range: (u32, u32)) -> u32 {
        let hosts = (0..self.sites).filter(|&to| !senders[to] && self.limit[(site, to)] > 0);
        let guest = hosts.map(|to| self.ppm(site, to, self.demand[to] + 1)).min().unwrap_or(0);
        let spent = |quanta: u32, ppm: u32| side.weight[site] * i64::from(quanta) * i64::from(ppm);
        let keeps_target = |&load: &u32| {
            let own = spent(load, self.ppm(site, site, load));
            own + spent(self.demand[site] - load, guest) <= side.budget[side.row[site]]
        };
        (range.0..=range.1).rev().find(keeps_target).unwrap_or(range.1)
    }

    /// Whether a data centre's role is to send.
    pub(super) fn must_send(&self, site: usize) -> bool {
        self.side.is_some() && self.range[site].1 < self.demand[site]
    }

    fn price_violations(&mut self, problem: &Problem) {
        let total = i64::from(self.demand.iter().sum::<u32>());
        let worst = self.worst();
        let fits = |ranks: i64| {
            let unit = unit_of_violations(total, ranks);
            i128::from(worst) * i128::from(unit) * i128::from(total) < TOTAL_MAX
        };
        let ranks = [RANKS, 7, 3, 1].into_iter().find(|&ranks| fits(ranks)).unwrap_or(0);
        let nearness = nearness(problem, ranks);
        let redirect = ranks * total + 1;
        let price = |i, j| if i == j { 0 } else { redirect + nearness[(i, j)] };
        self.fixed = Pairs::from_fn(self.sites, price);
        self.unit = unit_of_violations(total, ranks);
        self.below = self.unit - 1;
        self.weight = self.unit;
    }

    fn price_redirects(&mut self, problem: &Problem, target: &Target) {
        let worst = self.worst();
        let side = side_of(target, &self.demand, worst);
        let total = i128::from(self.demand.iter().sum::<u32>());
        let price = |i, j| i64::from(problem.price(i, j));
        // Whoever keeps local targets has no more violations than the budgets allow.
        let violations = match target {
            Target::Local(_) => side.budget.iter().map(|&budget| i128::from(budget)).sum(),
            Target::Global { .. } => total * i128::from(worst),
        };
        let prices = Pairs::from_fn(self.sites, price);
        let highest = prices.rows().flatten().max().copied().unwrap_or(0);
        let largest = i128::from(highest.max(1)) * (violations + 1) * total.max(1);
        let keys = Keys::fit(largest, violations as i64);
        (self.unit, self.weight, self.below) = (keys.first, keys.second, keys.below);
        self.fixed = Pairs::from_fn(self.sites, |i, j| prices[(i, j)] * self.unit);
        self.side = Some(side);
    }

    /// The highest value of all curves.
    fn worst(&self) -> u32 {
        self.tables.iter().flatten().max().copied().unwrap_or(0)
    }

    pub(super) fn total(&self) -> u32 {
        self.demand.iter().sum()
    }

    /// Violations of all origins at destination `to` under this load.
    #[inline]
    pub(super) fn row(&self, to: usize, load: u32) -> &[u32] {
        let table = &self.tables[to];
        let start = (load as usize * self.sites).min(table.len() - self.sites);
        &table[start..start + self.sites]
    }

    /// The load from which on rows are all the same.
    pub(super) fn flat_from(&self, to: usize) -> u32 {
        (self.tables[to].len() / self.sites - 1) as u32
    }

    #[inline]
    pub(super) fn ppm(&self, from: usize, to: usize, load: u32) -> u32 {
        self.row(to, load)[from]
    }

    /// The price of a unit of `from` at `to` under this load.
    #[inline]
    pub(super) fn unit_price(&self, from: usize, to: usize, load: u32) -> i64 {
        self.fixed[(from, to)] + self.weight * i64::from(self.ppm(from, to, load))
    }

    /// The rows of the target.
    pub(super) fn side_rows(&self) -> usize {
        self.side.as_ref().map_or(0, |side| side.budget.len())
    }

    /// The least objective that weighs at least so much: objectives are whole.
    pub(super) fn objective_above(&self, weight: i128) -> i128 {
        let unit = i128::from(self.unit);
        let least = weight - i128::from(self.below);
        least.div_euclid(unit) + i128::from(least.rem_euclid(unit) > 0)
    }

    /// The objective of an allocation that weighs so much.
    pub(super) fn objective_of(&self, weight: i128) -> i128 {
        weight.div_euclid(i128::from(self.unit))
    }

    /// What a score weighs as one number; `None` when it breaks a budget that must be kept.
    pub(super) fn weigh(&self, score: Score) -> Option<i64> {
        match self.side.as_ref().and_then(|side| side.excess_price) {
            Some(price) => Some(score.cost + price * score.excess),
            None => (score.excess == 0).then_some(score.cost),
        }
    }

    /// What this allocation comes to.
    pub(super) fn score(&self, flow: &Flow) -> Score {
        let loads = loads(self.sites, flow);
        let pairs = (0..self.sites).flat_map(|i| (0..self.sites).map(move |j| (i, j)));
        let cost =
            pairs.map(|(i, j)| i64::from(flow[(i, j)]) * self.unit_price(i, j, loads[j])).sum();
        Score { excess: self.excess(&self.spent(flow)), cost }
    }

    /// What counts in each row of the target.
    pub(super) fn spent(&self, flow: &Flow) -> Vec<i64> {
        let Some(side) = &self.side else { return Vec::new() };
        let mut spent = vec![0; side.budget.len()];
        for (to, load) in loads(self.sites, flow).into_iter().enumerate() {
            for from in 0..self.sites {
                let violations = i64::from(flow[(from, to)]) * i64::from(self.ppm(from, to, load));
                spent[side.row[from]] += side.weight[from] * violations;
            }
        }
        spent
    }

    /// What these sums of violations are beyond their budgets.
    pub(super) fn excess(&self, spent: &[i64]) -> i64 {
        let Some(side) = &self.side else { return 0 };
        spent.iter().zip(&side.budget).map(|(spent, budget)| (spent - budget).max(0)).sum()
    }
}

/// Prices of the objective and of the second key.
struct Keys {
    first: i64,
    second: i64,
    below: i64,
}

impl Keys {
    /// For a second key that comes to at most `second`, and totals of `largest` if one unit of the
    /// objective were just more than that.
    ///
    /// There is room to spare for two things. The price of a violation is a small part of what a
    /// redirect costs, and in whole numbers needs a finer unit. And a bound on the sum says little
    /// about the objective alone while the second key is a large part of its unit.
    fn fit(largest: i128, second: i64) -> Self {
        if largest >= TOTAL_MAX {
            return Self { first: 1, second: 0, below: 0 };
        }
        let room = (TOTAL_MAX / largest.max(1)).min(1 << 24) as i64;
        let bits = room.ilog2();
        let (apart, fine) = (1 << (bits - bits / 2), 1 << (bits / 2));
        Self { first: (second + 1) * apart * fine, second: fine, below: second * fine }
    }
}

/// Quanta served at each destination.
pub(super) fn loads(sites: usize, flow: &Flow) -> Vec<u32> {
    (0..sites).map(|to| (0..sites).map(|from| flow[(from, to)]).sum()).collect()
}

/// `[destination][load · sites + origin]`, as long as the longest curve into the destination.
fn tables(problem: &Problem, question: &Question, shedding: Option<&Shedding>) -> Vec<Vec<u32>> {
    let sites = problem.sites();
    let all = problem.demand_total() as usize + 1;
    let slope = match question.overload {
        Overload::Priced(ppm) => ppm,
        Overload::Curve | Overload::Capped => 0,
    };
    let table = |to: usize| {
        let (saturation, demand) = (problem.saturation()[to], problem.demand()[to]);
        let longest = (0..sites).map(|from| problem.curve(from, to).len()).max().unwrap_or(1);
        let length = match (slope, shedding) {
            (1.., _) => all,
            (0, None) => longest.min(all),
            (0, Some(_)) => longest.max(demand as usize + 2).min(all),
        };
        let mut table = Vec::with_capacity(length * sites);
        let mut sheds = false;
        for load in 0..length as u32 {
            let price = slope * load.saturating_sub(saturation);
            sheds |= question.relay && shedding.is_some_and(|of| of.served(to, load).is_some());
            table.extend((0..sites).map(|from| match shedding {
                Some(of) if from == to && load <= demand => of.ppm(problem, to, load),
                // Nobody is sent where requests are shed.
                _ if from != to && sheds => SHEDS_PPM,
                _ => problem.violation_ppm(from, to, load) + price,
            }));
        }
        table
    };
    (0..sites).map(table).collect()
}

/// Larger than all redirects and all their ranks.
const fn unit_of_violations(total: i64, ranks: i64) -> i64 {
    total * (ranks * total + 1 + ranks) + 1
}

/// The rank of a destination among an origin's others, nearest first, at most `ranks`.
fn nearness(problem: &Problem, ranks: i64) -> Pairs<i64> {
    let sites = problem.sites();
    Pairs::from_fn(sites, |from, to| {
        let key = |site: usize| (problem.distance(from, site), site);
        let nearer = (0..sites).filter(|&site| site != from && key(site) < key(to)).count();
        (nearer as i64).min(ranks)
    })
}

fn side_of(target: &Target, demand: &[u32], worst: u32) -> Side {
    let sites = demand.len();
    let price_max =
        |heaviest: u32| TOTAL_MAX as i64 / (i64::from(worst.max(1)) * i64::from(heaviest.max(1)));
    match target {
        Target::Local(ppm) => Side {
            row: (0..sites).collect(),
            weight: vec![1; sites],
            budget: demand
                .iter()
                .zip(ppm)
                .map(|(&d, &ppm)| i64::from(d) * i64::from(ppm))
                .collect(),
            excess_price: None,
            price_max: price_max(1),
        },
        Target::Global { ppm, weights } => {
            let weighted = demand.iter().zip(weights).map(|(&d, &w)| i64::from(d) * i64::from(w));
            Side {
                row: vec![0; sites],
                weight: weights.iter().map(|&weight| i64::from(weight)).collect(),
                budget: vec![weighted.sum::<i64>() * i64::from((*ppm).min(ALL_PPM))],
                excess_price: None,
                price_max: price_max(weights.iter().max().copied().unwrap_or(0)),
            }
        }
    }
}
