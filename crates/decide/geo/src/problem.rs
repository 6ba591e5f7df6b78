//! What is given: demand, curves, and what a pair of data centres may carry.

use std::fmt;

use super::pairs::Pairs;

/// Data centres at most.
pub const SITES_MAX: usize = 64;
/// Quanta of demand at most, over all data centres: 200 of them at a quantum of 1 %.
pub const QUANTA_MAX: u32 = 20_000;
/// The highest price of one redirected quantum.
pub const PRICE_MAX: u32 = 10_000;
/// All requests, in parts per million.
pub const ALL_PPM: u32 = 1_000_000;
/// The highest cost of one request in priced curves: a thousand violations.
pub(super) const COST_PPM_MAX: u32 = 1_000 * ALL_PPM;
/// Values in all curves together at most.
pub(super) const CURVE_VALUES_MAX: usize = 16 << 20;

/// Why numbers are no redistribution problem.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: got {came}, expected {expected}")]
pub struct ProblemError {
    /// Where: `demand`, `curve 0 1 at load 17`, …
    pub place: String,
    /// What came there.
    pub came: String,
    /// What was expected.
    pub expected: String,
}

impl ProblemError {
    fn new(place: impl Into<String>, came: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self { place: place.into(), came: came.to_string(), expected: expected.to_string() }
    }
}

/// Demand of every data centre in quanta, and for every pair how many requests miss the objective
/// at which load. Data centres are numbered from 0; matrices are `[origin][destination]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    demand: Vec<u32>,
    curves: Pairs<Vec<u32>>,
    limit: Pairs<u32>,
    movable: Vec<u32>,
    price: Pairs<u32>,
    distance: Pairs<u32>,
    saturation: Vec<u32>,
    bound: Vec<u32>,
}

impl Problem {
    /// `demand[i]` quanta arrive at data centre `i`; of those served at `j` while the total load
    /// of `j` is `m` quanta, `curves[i][j][m]` parts per million miss the objective. Beyond the
    /// end of a curve its last value holds.
    ///
    /// # Errors
    /// When there are no data centres or more than [`SITES_MAX`], when the demand is more than
    /// [`QUANTA_MAX`], or when a curve is missing, empty, falls, or passes [`ALL_PPM`].
    pub fn new(demand: Vec<u32>, curves: Vec<Vec<Vec<u32>>>) -> Result<Self, ProblemError> {
        let sites = demand.len();
        if !(1..=SITES_MAX).contains(&sites) {
            let expected = format!("1 to {SITES_MAX} data centres");
            return Err(ProblemError::new("demand", format!("{sites} values"), expected));
        }
        let total: u64 = demand.iter().map(|&quanta| u64::from(quanta)).sum();
        if total > u64::from(QUANTA_MAX) {
            let expected = format!("at most {QUANTA_MAX} in all (is the quantum too small?)");
            return Err(ProblemError::new("demand", format!("{total} quanta"), expected));
        }
        let curves = pairs_of(sites, curves, ALL_PPM)?;
        Ok(Self {
            curves,
            limit: Pairs::filled(sites, u32::MAX),
            price: Pairs::from_fn(sites, |from, to| u32::from(from != to)),
            distance: Pairs::from_fn(sites, |from, to| from.abs_diff(to) as u32),
            saturation: vec![u32::MAX; sites],
            movable: vec![u32::MAX; sites],
            bound: vec![u32::MAX; sites],
            demand,
        })
    }

    /// At most `limit[i][j]` quanta of `i` may be served at `j`: partial replication. The diagonal
    /// does not count, a data centre may always serve its own.
    ///
    /// # Errors
    /// When it is not a square of the right size.
    pub fn with_limits(mut self, limit: &[Vec<u32>]) -> Result<Self, ProblemError> {
        self.limit = square("limit", self.sites(), limit, u32::MAX)?;
        for site in 0..self.sites() {
            self.limit[(site, site)] = u32::MAX;
        }
        Ok(self)
    }

    /// At most `movable[i]` quanta of `i` may be served elsewhere, at all others together: some of
    /// its requests (writes) stay where they come. All of them unless said.
    ///
    /// # Errors
    /// When there is not one value for every data centre.
    pub fn with_movable(mut self, movable: Vec<u32>) -> Result<Self, ProblemError> {
        check_length("movable", self.sites(), movable.len())?;
        self.movable = movable;
        Ok(self)
    }

    /// What one quantum of `i` served at `j` costs, 1 unless said; the diagonal is free.
    ///
    /// # Errors
    /// When it is not a square of the right size or a price is above [`PRICE_MAX`].
    pub fn with_prices(mut self, price: &[Vec<u32>]) -> Result<Self, ProblemError> {
        self.price = square("price", self.sites(), price, PRICE_MAX)?;
        for site in 0..self.sites() {
            self.price[(site, site)] = 0;
        }
        Ok(self)
    }

    /// How far data centres are from each other, in any unit: among equally good answers the one
    /// that sends to nearer ones is taken. Unless said, the difference of their numbers.
    ///
    /// # Errors
    /// When it is not a square of the right size.
    pub fn with_distances(mut self, distance: &[Vec<u32>]) -> Result<Self, ProblemError> {
        self.distance = square("distance", self.sites(), distance, u32::MAX)?;
        Ok(self)
    }

    /// The load from which on the queues of a data centre grow without end, in quanta.
    ///
    /// # Errors
    /// When there is not one value for every data centre.
    pub fn with_saturation(mut self, saturation: Vec<u32>) -> Result<Self, ProblemError> {
        check_length("saturation", self.sites(), saturation.len())?;
        self.saturation = saturation;
        Ok(self)
    }

    /// The load up to which each data centre is sent requests of others; unless said, any.
    ///
    /// # Errors
    /// When there is not one value for every data centre.
    pub fn with_bounds(mut self, bound: Vec<u32>) -> Result<Self, ProblemError> {
        check_length("bounds", self.sites(), bound.len())?;
        self.bound = bound;
        Ok(self)
    }

    /// With costs in place of its curves: up to [`COST_PPM_MAX`], in millionths of a violation.
    pub(super) fn with_costs(mut self, costs: Vec<Vec<Vec<u32>>>) -> Result<Self, ProblemError> {
        self.curves = pairs_of(self.sites(), costs, COST_PPM_MAX)?;
        Ok(self)
    }

    /// How many data centres there are.
    pub fn sites(&self) -> usize {
        self.demand.len()
    }

    /// Quanta that arrive at each data centre.
    pub fn demand(&self) -> &[u32] {
        &self.demand
    }

    /// All demand, in quanta.
    pub fn demand_total(&self) -> u32 {
        self.demand.iter().sum()
    }

    /// The load from which on queues grow, in quanta; `u32::MAX` where it is unknown.
    pub fn saturation(&self) -> &[u32] {
        &self.saturation
    }

    /// The load up to which each data centre is sent requests of others; `u32::MAX` for any.
    pub fn bounds(&self) -> &[u32] {
        &self.bound
    }

    /// Parts per million that miss the objective, of the requests of `from` served at `to` while
    /// the load of `to` is `load` quanta.
    pub fn violation_ppm(&self, from: usize, to: usize, load: u32) -> u32 {
        let curve = self.curve(from, to);
        let last = curve.len() - 1;
        curve[(load as usize).min(last)]
    }

    pub(super) fn curve(&self, from: usize, to: usize) -> &[u32] {
        &self.curves[(from, to)]
    }

    pub(super) fn limit(&self, from: usize, to: usize) -> u32 {
        self.limit[(from, to)]
    }

    /// What of this demand of an origin must stay there.
    pub(super) fn kept(&self, site: usize, demand: u32) -> u32 {
        demand.saturating_sub(self.movable[site])
    }

    pub(super) fn price(&self, from: usize, to: usize) -> u32 {
        self.price[(from, to)]
    }

    pub(super) fn distance(&self, from: usize, to: usize) -> u32 {
        self.distance[(from, to)]
    }
}

fn pairs_of(
    sites: usize,
    curves: Vec<Vec<Vec<u32>>>,
    max: u32,
) -> Result<Pairs<Vec<u32>>, ProblemError> {
    check_curves(sites, &curves, max)?;
    let mut rows: Vec<_> = curves.into_iter().map(Vec::into_iter).collect();
    Ok(Pairs::from_fn(sites, |from, _| rows[from].next().unwrap_or_default()))
}

fn check_curves(sites: usize, curves: &[Vec<Vec<u32>>], max: u32) -> Result<(), ProblemError> {
    check_length("curves", sites, curves.len())?;
    let mut values = 0;
    for (from, row) in curves.iter().enumerate() {
        check_length(&format!("curves {from}"), sites, row.len())?;
        for (to, curve) in row.iter().enumerate() {
            check_curve(from, to, curve, max)?;
            values += curve.len();
        }
    }
    if values > CURVE_VALUES_MAX {
        let expected = format!("at most {CURVE_VALUES_MAX}");
        return Err(ProblemError::new("curves", format!("{values} values"), expected));
    }
    Ok(())
}

fn check_curve(from: usize, to: usize, curve: &[u32], max: u32) -> Result<(), ProblemError> {
    let place = |load: usize| format!("curve {from} {to} at load {load}");
    if curve.is_empty() {
        return Err(ProblemError::new(place(0), "nothing", "at least one value"));
    }
    if let Some(load) = curve.iter().position(|&ppm| ppm > max) {
        let expected = format!("parts per million, at most {max}");
        return Err(ProblemError::new(place(load), curve[load], expected));
    }
    match curve.windows(2).position(|pair| pair[0] > pair[1]) {
        None => Ok(()),
        Some(before) => {
            let expected = format!("at least {}, the value before it", curve[before]);
            Err(ProblemError::new(place(before + 1), curve[before + 1], expected))
        }
    }
}

fn check_length(place: &str, sites: usize, came: usize) -> Result<(), ProblemError> {
    if came == sites {
        return Ok(());
    }
    let expected = format!("{sites}, one for each data centre");
    Err(ProblemError::new(place, format!("{came} values"), expected))
}

fn square(
    name: &str,
    sites: usize,
    rows: &[Vec<u32>],
    max: u32,
) -> Result<Pairs<u32>, ProblemError> {
    check_length(name, sites, rows.len())?;
    for (from, row) in rows.iter().enumerate() {
        check_length(&format!("{name} {from}"), sites, row.len())?;
        if let Some(to) = row.iter().position(|&value| value > max) {
            let place = format!("{name} {from} {to}");
            return Err(ProblemError::new(place, row[to], format!("at most {max}")));
        }
    }
    Ok(Pairs::from_fn(sites, |from, to| rows[from][to]))
}
