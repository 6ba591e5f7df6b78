//! Leaders of many databases, so that no site has more than it can take.
//!
//! The paper assumes that load balances itself. It need not: leaders follow clients, and the
//! clients of many databases are in one region. With a capacity for each site the choice of leaders
//! is a generalised assignment problem: hard in general, and easy to come close to.
//!
//! 1. Everybody gets the best; if that fits, it is the optimum.
//! 2. Otherwise capacity gets a price (Lagrangian relaxation by subgradients): a lower bound on the
//!    cost of any assignment that fits, and at good prices a good order to assign in.
//! 3. Greedy, who loses most by not getting its best going first, with and without prices; and once
//!    who needs most room.
//! 4. Improved by single moves, and by moves that make room with another move.
//! 5. Branch and bound with the prices as its bound, of so many nodes at most: it proves the
//!    optimum of few databases, or that nothing fits.
//!
//! Less excess over capacity comes first, then cost. The result says how far it is from the bound,
//! and what is above capacity if nothing that fits was found. Deterministic; the effort is bounded
//! and counted, not timed.

use core::cmp::Ordering;
use std::collections::BinaryHeap;

use super::history::Past;
use super::leader::Ranked;
use super::model::Operation;

/// How often prices are corrected.
const PRICINGS: usize = 200;

/// How many pairs of moves an improvement looks at in all.
const LOOKS_MAX: usize = 20_000_000;

/// How many nodes branch and bound looks at.
const NODES_MAX: usize = 200_000;

/// Of more databases branch and bound proves nothing, and its recursion would be deep.
const DEPTH_MAX: usize = 500;

/// Less than this share is a matter of rounding.
const ROUNDING: f64 = 1e-9;

/// A database that needs a leader.
#[derive(Clone, PartialEq, Debug)]
pub struct Demand {
    /// Operations that its leader takes, per second.
    pub load: f64,
    /// Where it can lead, at most once each.
    pub options: Vec<Choice>,
}

/// One site that can lead.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Choice {
    /// The site.
    pub site: usize,
    /// What operations take with it, in milliseconds × operations per second.
    pub cost: f64,
}

impl Demand {
    /// The demand of one database, by its [ranking](super::planner::Decision::ranked) and how long
    /// an interval is. Of several layouts with one leader the first counts.
    ///
    /// The leader takes all but weak reads: bounded reads ask it too.
    pub fn of(past: &Past<'_>, ranked: &[Ranked], interval_s: f64) -> Self {
        let per_s = past.operations_per_interval() / interval_s;
        let counts = past.counts();
        let weak = counts.total_of(Operation::WeakRead) / counts.total();
        let mut options: Vec<Choice> = Vec::new();
        for option in ranked {
            let site = option.layout.leader();
            if options.iter().all(|choice| choice.site != site) {
                options.push(Choice { site, cost: option.latency_ms * per_s });
            }
        }
        Self { load: per_s * (1.0 - weak), options }
    }
}

/// Who leads where.
#[derive(Clone, PartialEq, Debug)]
pub struct Assignment {
    /// By database: which of its options, counted from 0.
    pub chosen: Vec<usize>,
    /// By database: the site of its leader.
    pub sites: Vec<usize>,
    /// What all operations take together, in milliseconds × operations per second.
    pub cost: f64,
    /// No assignment that fits costs less.
    pub bound: f64,
    /// By site: operations per second that its leaders take.
    pub loads: Vec<f64>,
    /// Sites above their capacity, in rising order: empty if all fits.
    pub over: Vec<Over>,
    /// Whether nothing better is possible: no assignment that fits costs less or, if some site is
    /// above its capacity, none fits.
    pub proven: bool,
}

/// A site above its capacity.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Over {
    /// The site.
    pub site: usize,
    /// Operations per second that its leaders take.
    pub load: f64,
    /// How many it can take.
    pub capacity: f64,
}

/// Why there is no assignment at all.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum BadDemand {
    /// No site can lead a database.
    #[error("database {database} has no site that can lead, at least one was expected")]
    NoOption {
        /// This one.
        database: usize,
    },
    /// A number is negative or not finite (a capacity may be infinite).
    #[error("{}: {came} came, a number of 0 or more was expected", number_of(*database, *site))]
    Number {
        /// Of this database; none: a capacity.
        database: Option<usize>,
        /// For this site; none: the load.
        site: Option<usize>,
        /// What came.
        came: f64,
    },
    /// A site without a capacity.
    #[error("database {database} names site {site}, there are {sites} capacities (counted from 0)")]
    UnknownSite {
        /// Named by this database.
        database: usize,
        /// Its number.
        site: usize,
        /// How many there are.
        sites: usize,
    },
}

fn number_of(database: Option<usize>, site: Option<usize>) -> String {
    let of = site.map_or_else(String::new, |site| format!(" of site {site}"));
    match (database, site) {
        (None, _) => format!("the capacity{of}"),
        (Some(database), None) => format!("database {database}, load"),
        (Some(database), Some(_)) => format!("database {database}, cost{of}"),
    }
}

/// Chooses a leader for every database, no site above its capacity (operations per second, may be
/// infinite) if that is found.
///
/// # Errors
/// When a database has no option or an unknown site, or a number is negative or NaN. That nothing
/// fits is no error: see [`Assignment::over`].
pub fn assign(demands: &[Demand], capacities: &[f64]) -> Result<Assignment, BadDemand> {
    check(demands, capacities)?;
    let mut best = State::cheapest(demands, capacities, &vec![0.0; capacities.len()]);
    let mut bound = best.cost;
    let mut proven = true;
    if best.excess > 0.0 {
        let no_price = vec![0.0; capacities.len()];
        best = State::greedy(demands, capacities, &no_price, First::Regret);
        best.improve();
        let (prices, priced_bound) = prices(demands, capacities, best.cost);
        bound = bound.max(priced_bound);
        for first in [First::Regret, First::Load] {
            let mut other = State::greedy(demands, capacities, &prices, first);
            other.improve();
            if other.better_than(&best) {
                best = other;
            }
        }
        proven = demands.len() <= DEPTH_MAX;
        if proven {
            let mut tree = Tree::new(demands, capacities, &prices, &best);
            tree.descend(0, 0.0, tree.start);
            proven = tree.nodes_left > 0;
            if let Some(chosen) = tree.found.take() {
                best = State::of(demands, capacities, chosen);
            }
        }
        if proven && best.excess <= 0.0 {
            bound = best.cost;
        }
    }
    Ok(best.finish(bound, proven))
}

/// Branch and bound over all assignments that fit.
struct Tree<'a> {
    demands: &'a [Demand],
    capacities: &'a [f64],
    prices: &'a [f64],
    /// Who needs most room first.
    order: Vec<usize>,
    /// By place in that order: what this one and those after it cost at least, with prices.
    rest: Vec<f64>,
    /// What prices pay back.
    start: f64,
    loads: Vec<f64>,
    chosen: Vec<usize>,
    /// What fits and costs as much or more is of no interest.
    cutoff: f64,
    found: Option<Vec<usize>>,
    nodes_left: usize,
}

impl<'a> Tree<'a> {
    fn new(
        demands: &'a [Demand],
        capacities: &'a [f64],
        prices: &'a [f64],
        best: &State<'_>,
    ) -> Self {
        let mut order: Vec<usize> = (0..demands.len()).collect();
        order.sort_by(|one, other| demands[*other].load.total_cmp(&demands[*one].load));
        let mut rest = vec![0.0; order.len() + 1];
        for (place, database) in order.iter().enumerate().rev() {
            let demand = &demands[*database];
            let costs = (0..demand.options.len()).map(|option| priced(demand, option, prices));
            rest[place] = rest[place + 1] + costs.fold(f64::INFINITY, f64::min);
        }
        let paid = capacities.iter().zip(prices).filter(|(_, price)| **price > 0.0);
        Self {
            demands,
            capacities,
            prices,
            order,
            rest,
            start: -paid.map(|(capacity, price)| capacity * price).sum::<f64>(),
            loads: vec![0.0; capacities.len()],
            chosen: vec![0; demands.len()],
            cutoff: if best.excess > 0.0 { f64::INFINITY } else { best.cost },
            found: None,
            nodes_left: NODES_MAX,
        }
    }

    /// Assigns the database at a place in the order and all after it; those before cost so much,
    /// without prices and with them.
    fn descend(&mut self, place: usize, cost: f64, with_prices: f64) {
        if self.nodes_left == 0 {
            return;
        }
        self.nodes_left -= 1;
        let Some(&database) = self.order.get(place) else {
            if cost < self.cutoff {
                (self.cutoff, self.found) = (cost, Some(self.chosen.clone()));
            }
            return;
        };
        let demand = &self.demands[database];
        let mut options: Vec<(f64, usize)> = (0..demand.options.len())
            .map(|option| (priced(demand, option, self.prices), option))
            .collect();
        options.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (price, option) in options {
            let bound = with_prices + price + self.rest[place + 1];
            if bound >= self.cutoff - ROUNDING * self.cutoff.abs().min(f64::MAX) {
                return; // and so for all that cost more
            }
            let Choice { site, cost: own } = demand.options[option];
            if fits(self.loads[site] + demand.load, self.capacities[site]) {
                let before = self.loads[site];
                self.loads[site] += demand.load;
                self.chosen[database] = option;
                self.descend(place + 1, cost + own, with_prices + price);
                self.loads[site] = before;
            }
        }
    }
}

/// Why no assignment can fit, whoever searches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum NoRoom {
    /// A database that is too much for each site that could lead it.
    Database {
        /// This one.
        database: usize,
        /// What its leader takes.
        load: f64,
        /// The most that one of its sites can take.
        capacity_max: f64,
    },
    /// All databases are more than all sites that could lead any of them.
    Together {
        /// What their leaders take.
        load: f64,
        /// What these sites can take.
        capacity: f64,
    },
}

/// The first reason why nothing can fit. That there is none does not say that something does.
///
/// # Errors
/// As [`assign`].
pub fn no_room(demands: &[Demand], capacities: &[f64]) -> Result<Option<NoRoom>, BadDemand> {
    check(demands, capacities)?;
    let mut is_option = vec![false; capacities.len()];
    for (database, Demand { load, options }) in demands.iter().enumerate() {
        options.iter().for_each(|choice| is_option[choice.site] = true);
        let room = options.iter().map(|choice| capacities[choice.site]);
        let capacity_max = room.fold(0.0, f64::max);
        if !fits(*load, capacity_max) {
            return Ok(Some(NoRoom::Database { database, load: *load, capacity_max }));
        }
    }
    let load: f64 = demands.iter().map(|demand| demand.load).sum();
    let some = capacities.iter().zip(is_option).filter(|(_, is_option)| *is_option);
    let capacity: f64 = some.map(|(capacity, _)| capacity).sum();
    Ok((!fits(load, capacity)).then_some(NoRoom::Together { load, capacity }))
}

fn check(demands: &[Demand], capacities: &[f64]) -> Result<(), BadDemand> {
    let sites = capacities.len();
    let bad = |value: f64| value.is_nan() || value < 0.0;
    if let Some(site) = capacities.iter().position(|capacity| bad(*capacity)) {
        let came = capacities[site];
        return Err(BadDemand::Number { database: None, site: Some(site), came });
    }
    for (database, demand) in demands.iter().enumerate() {
        let number = |site, came| BadDemand::Number { database: Some(database), site, came };
        if demand.options.is_empty() {
            return Err(BadDemand::NoOption { database });
        }
        if bad(demand.load) || demand.load.is_infinite() {
            return Err(number(None, demand.load));
        }
        for Choice { site, cost } in &demand.options {
            if *site >= sites {
                return Err(BadDemand::UnknownSite { database, site: *site, sites });
            }
            if bad(*cost) || cost.is_infinite() {
                return Err(number(Some(*site), *cost));
            }
        }
    }
    Ok(())
}

/// Prices of capacity, and the best lower bound that any prices gave.
fn prices(demands: &[Demand], capacities: &[f64], target: f64) -> (Vec<f64>, f64) {
    let mut prices = vec![0.0; capacities.len()];
    let (mut best, mut bound) = (prices.clone(), f64::NEG_INFINITY);
    let mut stride = 1.0;
    for _ in 0..PRICINGS {
        let state = State::cheapest(demands, capacities, &prices);
        // Infinite capacity has no price, and must not give 0 times infinity.
        let slack = |site: usize| state.loads[site] - capacities[site];
        let paid: f64 = (0..prices.len())
            .filter(|site| prices[*site] > 0.0)
            .map(|site| prices[site] * slack(site))
            .sum();
        if state.cost + paid > bound {
            (best, bound) = (prices.clone(), state.cost + paid);
        } else {
            stride *= 0.95;
        }
        let useful = |site: &usize| slack(*site) > 0.0 || prices[*site] > 0.0;
        let norm: f64 = (0..prices.len()).filter(useful).map(|site| slack(site).powi(2)).sum();
        if norm == 0.0 {
            break;
        }
        let gap = (target - state.cost - paid).abs().max(ROUNDING * target);
        let step = stride * gap / norm;
        for (site, price) in prices.iter_mut().enumerate() {
            if slack(site).is_finite() {
                *price = step.mul_add(slack(site), *price).max(0.0);
            }
        }
    }
    (best, bound)
}

/// An assignment in the making.
#[derive(Clone)]
struct State<'a> {
    demands: &'a [Demand],
    capacities: &'a [f64],
    /// By database: the option.
    chosen: Vec<usize>,
    /// By site: the databases whose leader it is, in rising order.
    led: Vec<Vec<usize>>,
    loads: Vec<f64>,
    cost: f64,
    /// Load above capacity, of all sites together.
    excess: f64,
}

impl<'a> State<'a> {
    fn of(demands: &'a [Demand], capacities: &'a [f64], chosen: Vec<usize>) -> Self {
        let mut state = Self {
            demands,
            capacities,
            chosen,
            led: vec![Vec::new(); capacities.len()],
            loads: vec![0.0; capacities.len()],
            cost: 0.0,
            excess: 0.0,
        };
        for (database, (demand, chosen)) in demands.iter().zip(&state.chosen).enumerate() {
            let choice = demand.options[*chosen];
            state.led[choice.site].push(database);
            state.loads[choice.site] += demand.load;
            state.cost += choice.cost;
        }
        state.excess = (0..capacities.len()).map(|site| state.over(site, 0.0)).sum();
        state
    }

    /// Everybody the cheapest at these prices, whether it fits or not.
    fn cheapest(demands: &'a [Demand], capacities: &'a [f64], prices: &[f64]) -> Self {
        let chosen = demands.iter().map(|demand| {
            let cost = |place: &usize| priced(demand, *place, prices);
            let places = 0..demand.options.len();
            places.min_by(|one, other| cost(one).total_cmp(&cost(other))).expect("one is there")
        });
        Self::of(demands, capacities, chosen.collect())
    }

    /// One after the other the cheapest that fits; what fits nowhere goes last, and where it
    /// exceeds least.
    fn greedy(demands: &'a [Demand], capacities: &'a [f64], prices: &[f64], first: First) -> Self {
        let mut loads = vec![0.0; capacities.len()];
        let mut chosen = vec![0; demands.len()];
        let offer = |database: usize, loads: &[f64]| {
            let room = |site: usize| fits(loads[site] + demands[database].load, capacities[site]);
            Offer::of(demands, database, prices, first, room)
        };
        let mut queue: BinaryHeap<Offer> =
            (0..demands.len()).filter_map(|database| offer(database, &loads)).collect();
        let no_room = |database: &usize| offer(*database, &loads).is_none();
        let mut nowhere: Vec<usize> = (0..demands.len()).filter(no_room).collect();
        while let Some(best) = queue.pop() {
            match offer(best.database, &loads) {
                Some(now) if now.place == best.place => {
                    let demand = &demands[now.database];
                    loads[demand.options[now.place].site] += demand.load;
                    chosen[now.database] = now.place;
                }
                Some(changed) => queue.push(changed),
                None => nowhere.push(best.database),
            }
        }
        for database in nowhere {
            let Demand { load, options } = &demands[database];
            let excess = |place: &usize| {
                let site = options[*place].site;
                loads[site] + load - capacities[site]
            };
            let least =
                (0..options.len()).min_by(|one, other| excess(one).total_cmp(&excess(other)));
            chosen[database] = least.expect("checked: there is an option");
            loads[options[chosen[database]].site] += load;
        }
        Self::of(demands, capacities, chosen)
    }

    fn better_than(&self, other: &Self) -> bool {
        let change = Change { excess: self.excess - other.excess, cost: self.cost - other.cost };
        change.improves(self)
    }

    /// How far a site with so much more load is above its capacity.
    fn over(&self, site: usize, more: f64) -> f64 {
        let load = self.loads[site] + more;
        if fits(load, self.capacities[site]) { 0.0 } else { load - self.capacities[site] }
    }

    /// What changes when a database gets another option, while loads of sites differ by `moved`.
    fn change(&self, database: usize, place: usize, moved: &[(usize, f64)]) -> Change {
        let demand = &self.demands[database];
        let (from, to) = (demand.options[self.chosen[database]], demand.options[place]);
        let extra = |site: usize| -> f64 {
            moved.iter().filter(|(moved, _)| *moved == site).map(|(_, load)| *load).sum()
        };
        let at = |site: usize, more: f64| self.over(site, extra(site) + more);
        let left = at(from.site, -demand.load) - at(from.site, 0.0);
        let came = at(to.site, demand.load) - at(to.site, 0.0);
        Change { excess: left + came, cost: to.cost - from.cost }
    }

    fn put(&mut self, database: usize, place: usize) {
        let demand = &self.demands[database];
        let change = self.change(database, place, &[]);
        let (from, to) = (demand.options[self.chosen[database]].site, demand.options[place].site);
        self.loads[from] -= demand.load;
        self.loads[to] += demand.load;
        if let Ok(at) = self.led[from].binary_search(&database) {
            self.led[from].remove(at);
        }
        if let Err(at) = self.led[to].binary_search(&database) {
            self.led[to].insert(at, database);
        }
        self.chosen[database] = place;
        self.cost += change.cost;
        self.excess = (self.excess + change.excess).max(0.0);
    }

    /// Moves, and pairs of moves, until none is better or the effort is spent.
    fn improve(&mut self) {
        let mut looks = LOOKS_MAX;
        loop {
            let mut improved = false;
            for database in 0..self.demands.len() {
                for place in 0..self.demands[database].options.len() {
                    if place != self.chosen[database] && looks > 0 {
                        improved |= self.try_move(database, place, &mut looks);
                    }
                }
            }
            if !improved || looks == 0 {
                return;
            }
        }
    }

    /// Moves a database there if that is better, or with one of those there moving on.
    fn try_move(&mut self, database: usize, place: usize, looks: &mut usize) -> bool {
        *looks -= 1;
        let first = self.change(database, place, &[]);
        if first.improves(self) {
            self.put(database, place);
            return true;
        }
        let demand = &self.demands[database];
        let from = demand.options[self.chosen[database]].site;
        let to = demand.options[place].site;
        // A move that exceeds nothing more and costs more gains nothing from room either.
        if self.over(from, 0.0) == 0.0 && first.cost >= 0.0 {
            return false;
        }
        let moved = [(from, -demand.load), (to, demand.load)];
        for other in self.led[to].clone() {
            for on in 0..self.demands[other].options.len() {
                if *looks == 0 {
                    return false;
                }
                *looks -= 1;
                let second = self.change(other, on, &moved);
                let both =
                    Change { excess: first.excess + second.excess, cost: first.cost + second.cost };
                if on != self.chosen[other] && both.improves(self) {
                    self.put(database, place);
                    self.put(other, on);
                    return true;
                }
            }
        }
        false
    }

    fn finish(self, bound: f64, proven: bool) -> Assignment {
        let exact = Self::of(self.demands, self.capacities, self.chosen);
        let site = |(demand, chosen): (&Demand, &usize)| demand.options[*chosen].site;
        let over = (0..exact.loads.len()).filter(|site| exact.over(*site, 0.0) > 0.0);
        Assignment {
            sites: exact.demands.iter().zip(&exact.chosen).map(site).collect(),
            cost: exact.cost,
            bound,
            proven,
            over: over
                .map(|site| Over {
                    site,
                    load: exact.loads[site],
                    capacity: exact.capacities[site],
                })
                .collect(),
            chosen: exact.chosen,
            loads: exact.loads,
        }
    }
}

/// What an option costs with the price of its capacity.
fn priced(demand: &Demand, place: usize, prices: &[f64]) -> f64 {
    let choice = demand.options[place];
    prices[choice.site].mul_add(demand.load, choice.cost)
}

/// Whether a load is within a capacity, rounding aside.
fn fits(load: f64, capacity: f64) -> bool {
    load <= capacity * (1.0 + ROUNDING)
}

/// By how much excess and cost change.
#[derive(Clone, Copy)]
struct Change {
    excess: f64,
    cost: f64,
}

impl Change {
    /// Whether that is better: less excess, or as much and less cost.
    fn improves(self, than: &State<'_>) -> bool {
        let noise = ROUNDING * (1.0 + than.excess);
        self.excess < -noise
            || (self.excess <= noise && self.cost < -ROUNDING * (1.0 + than.cost.abs()))
    }
}

/// Who is assigned first.
#[derive(Clone, Copy)]
enum First {
    /// Who loses most per operation without its best option: good for the cost.
    Regret,
    /// Who needs most room: good for fitting at all.
    Load,
}

/// The option that a database would take now, and how soon it is its turn.
struct Offer {
    rank: f64,
    load: f64,
    database: usize,
    place: usize,
}

impl Offer {
    /// What a database would take of the sites that have room; none if none has.
    fn of(
        demands: &[Demand],
        database: usize,
        prices: &[f64],
        first: First,
        room: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let demand = &demands[database];
        let (mut best, mut second) = ((f64::INFINITY, None), f64::INFINITY);
        for (place, choice) in demand.options.iter().enumerate() {
            if !room(choice.site) {
                continue;
            }
            let cost = priced(demand, place, prices);
            if best.1.is_none() || cost < best.0 {
                second = best.0;
                best = (cost, Some(place));
            } else {
                second = second.min(cost);
            }
        }
        let rank = match first {
            First::Regret => (second - best.0) / demand.load.max(f64::MIN_POSITIVE),
            First::Load => demand.load,
        };
        Some(Self { rank, load: demand.load, database, place: best.1? })
    }
}

impl Ord for Offer {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_rank = self.rank.total_cmp(&other.rank);
        let by_load = || self.load.total_cmp(&other.load);
        by_rank.then_with(by_load).then_with(|| other.database.cmp(&self.database))
    }
}

impl PartialOrd for Offer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Offer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Offer {}
