//! Prices: first ones from an allocation, and between the bound's whole numbers and the master's
//! duals.

use super::bound::Prices;
use super::model::{Flow, Model, loads};

/// Prices of requests stay below this, so that no sum of two of them overflows.
const SERVED_PRICE_MAX: i64 = 1 << 60;
/// Violations in the master's rows are in requests, so that they are about as large as quanta.
pub(super) const SIDE_SCALE: f64 = 1e6;

/// Duals of the tying rows, in units of the objective: demand first, then the target's rows.
pub(super) fn to_duals(prices: &Prices, model: &Model) -> Vec<f64> {
    let unit = model.unit as f64;
    let served = prices.served.iter().map(|&price| price as f64 / unit);
    let violation = prices.violation.iter().map(|&price| -price as f64 / unit * SIDE_SCALE);
    served.chain(violation).collect()
}

/// Whole prices. Violations never cost more than excess does: the bound would not hold.
pub(super) fn from_duals(duals: &[f64], model: &Model) -> Prices {
    let unit = model.unit as f64;
    let most = model.side.as_ref().map_or(0, |side| side.price_max);
    let (served, violation) = duals.split_at(model.sites);
    let whole = |value: f64, least: i64, most: i64| (value.round() as i64).clamp(least, most);
    let served = served.iter().map(|dual| whole(dual * unit, -SERVED_PRICE_MAX, SERVED_PRICE_MAX));
    let violation = violation.iter().map(|dual| whole(-dual * unit / SIDE_SCALE, 0, most));
    Prices { served: served.collect(), violation: violation.collect() }
}

/// Prices at which an allocation looks good to every data centre: who sends pays what one more
/// quantum costs where it goes; who does not, the least at which it keeps all of its own.
pub(super) fn first_prices(model: &Model, flow: &Flow) -> Prices {
    let priced = PricedAllocation::new(model, flow);
    let mut served: Vec<i64> =
        (0..model.sites).map(|origin| priced.marginal_price(origin)).collect();
    if !model.relay {
        let keeps = |site: &usize| flow[(*site, *site)] == model.demand[*site];
        for site in (0..model.sites).filter(keeps) {
            served[site] = priced.keeping_price(&served, site);
        }
    }
    Prices { served, violation: priced.violation }
}

/// An allocation and what violations are worth in it.
struct PricedAllocation<'a> {
    model: &'a Model,
    flow: &'a Flow,
    loads: Vec<u32>,
    violation: Vec<i64>,
    /// What one more quantum at a destination costs those who are there already.
    rises: Vec<i64>,
}

impl<'a> PricedAllocation<'a> {
    fn new(model: &'a Model, flow: &'a Flow) -> Self {
        let loads = loads(model.sites, flow);
        let violation = vec![0; model.side_rows()];
        let mut priced = Self { model, flow, loads, violation, rises: Vec::new() };
        priced.violation = priced.violation_prices();
        priced.rises = (0..model.sites).map(|to| priced.rise(to)).collect();
        priced
    }

    /// With a price for excess, that price where there is excess. Without, what it costs to avoid
    /// a violation by sending the last quantum that is kept.
    fn violation_prices(&self) -> Vec<i64> {
        let Some(side) = &self.model.side else { return Vec::new() };
        let mut prices = vec![0; side.budget.len()];
        let spent = self.model.spent(self.flow);
        for origin in 0..self.model.sites {
            let row = side.row[origin];
            prices[row] = match side.excess_price {
                Some(price) if spent[row] > side.budget[row] => price,
                Some(_) => 0,
                None => prices[row].max(self.avoiding_price(origin)),
            };
            prices[row] = prices[row].min(side.price_max);
        }
        prices
    }

    fn avoiding_price(&self, origin: usize) -> i64 {
        let model = self.model;
        let load = self.loads[origin];
        let goes = |&to: &usize| to != origin && self.flow[(origin, to)] > 0;
        let ppm = |to: usize, load: u32| i64::from(model.ppm(origin, to, load));
        let avoided = |to: usize| {
            let last = i64::from(load) * (ppm(origin, load + 1) - ppm(origin, load));
            let side = model.side.as_ref().map_or(1, |side| side.weight[origin]);
            side * (ppm(origin, load) + last - ppm(to, self.loads[to]))
        };
        let price = |to: usize| model.fixed[(origin, to)] / avoided(to).max(1);
        (0..model.sites).filter(goes).map(price).min().unwrap_or(0)
    }

    fn unit_price(&self, origin: usize, to: usize, load: u32) -> i64 {
        let price = self.model.unit_price(origin, to, load);
        let Some(side) = &self.model.side else { return price };
        let worth = side.weight[origin] * self.violation[side.row[origin]];
        price.saturating_add(worth.saturating_mul(i64::from(self.model.ppm(origin, to, load))))
    }

    fn rise(&self, to: usize) -> i64 {
        let load = self.loads[to];
        let more = (load + 1).min(self.model.range[to].1).max(load);
        let one = |origin: usize| {
            let step = self.unit_price(origin, to, more) - self.unit_price(origin, to, load);
            step.saturating_mul(i64::from(self.flow[(origin, to)]))
        };
        (0..self.model.sites).map(one).fold(0, i64::saturating_add)
    }

    /// What one more quantum of an origin costs where it is cheapest of the places it goes to.
    fn marginal_price(&self, origin: usize) -> i64 {
        let at =
            |to: usize| self.unit_price(origin, to, self.loads[to]).saturating_add(self.rises[to]);
        let goes = |&to: &usize| to == origin || self.flow[(origin, to)] > 0;
        (0..self.model.sites).filter(goes).map(at).min().unwrap_or(0).min(SERVED_PRICE_MAX)
    }

    /// The least price at which a data centre that serves all of its own is not better off
    /// sending.
    fn keeping_price(&self, served: &[i64], site: usize) -> i64 {
        let (demand, load) = (self.model.demand[site], self.loads[site]);
        let guests = (0..self.model.sites).filter(|&origin| origin != site);
        let gain = |origin: usize| {
            let profit =
                i128::from(self.unit_price(origin, site, load)) - i128::from(served[origin]);
            i128::from(self.flow[(origin, site)]) * profit
        };
        let own = i128::from(demand) * i128::from(self.unit_price(site, site, load));
        let value = own + guests.map(gain).sum::<i128>();
        let price = |kept: u32| {
            let cost = i128::from(kept) * i128::from(self.unit_price(site, site, kept));
            (value - cost).div_euclid(i128::from(demand - kept))
        };
        let least = (self.model.range[site].0..demand).map(price).max().unwrap_or(0);
        let most = i128::from(SERVED_PRICE_MAX);
        least.clamp(-most, most) as i64
    }
}
