//! Violations over load, for any number of servers.

use std::collections::BTreeMap;

use evenkeel_core::units::{Rate, Weight};
use evenkeel_geo::QUANTA_MAX;
use evenkeel_geo::curve::{Axis, Class, Conditions, NetworkPath, Residual, Table, pair_table};

use super::{Capacity, InputError};

/// Values that are remembered at most: 64 MB.
const VALUES_MAX: usize = 16_000_000;

/// Tables by origin, destination and servers there, made when they are asked for.
#[derive(Debug)]
pub(super) struct Curves<'a> {
    capacity: &'a Capacity,
    axis: Axis,
    tables: BTreeMap<(usize, usize, u32), Table>,
}

impl<'a> Curves<'a> {
    /// # Errors
    /// When the quantum is not above zero, or so small that the demand has too many.
    pub(super) fn new(capacity: &'a Capacity) -> Result<Self, InputError> {
        let refuse = |came: String, expected: &str| InputError::new("quantum", came, expected);
        let quantum = Rate::new(capacity.quantum).ok().filter(|quantum| quantum.value() > 0.0);
        let Some(quantum) = quantum else {
            return Err(refuse(capacity.quantum.to_string(), "a rate above zero"));
        };
        let total = |step: usize| {
            let of_site = |rates: &Vec<f64>| (rates[step] / quantum.value()).ceil();
            capacity.demand.rates.iter().map(of_site).sum::<f64>()
        };
        let most = (0..capacity.demand.steps()).map(total).fold(0.0, f64::max);
        if most > f64::from(QUANTA_MAX) {
            let came = format!("{} requests/s, of which one step has {most}", quantum.value());
            return Err(refuse(came, &format!("one that demand has at most {QUANTA_MAX} of")));
        }
        let axis = Axis::of(quantum, most as usize + 1);
        let curves = Self { capacity, axis, tables: BTreeMap::new() };
        curves.make(0, 0, 1).map_err(|error| InputError::new("curves", error, "a usable curve"))?;
        Ok(curves)
    }

    /// The table of requests of `from` at `to` while that has `servers`.
    pub(super) fn table(&mut self, from: usize, to: usize, servers: u32) -> &Table {
        let key = (from, to, servers);
        if self.tables.len() >= (VALUES_MAX / self.axis.levels).max(64)
            && !self.tables.contains_key(&key)
        {
            self.tables.clear();
        }
        if !self.tables.contains_key(&key) {
            let table = self.make(from, to, servers).expect("checked for other servers");
            self.tables.insert(key, table);
        }
        &self.tables[&key]
    }

    fn make(
        &self,
        from: usize,
        to: usize,
        servers: u32,
    ) -> Result<Table, evenkeel_core::units::OutOfRange> {
        let weight = Weight::new(1.0).expect("one is a weight");
        let class = Class { weight, curves: &self.capacity.curves, round_trips: 1 };
        let way = if from == to {
            NetworkPath::inside()
        } else {
            NetworkPath { base: self.capacity.round_trips[from][to], residual: Residual::none() }
        };
        let load_bias = self.capacity.load_bias;
        let conditions = Conditions { load_bias, ..Conditions::with_servers(servers) };
        pair_table(&[class], &[way], &self.axis, &conditions)
    }

    /// Parts per million of requests that miss the objective where they arrive.
    pub(super) fn at_home_ppm(&mut self, demand: u32, servers: u32) -> u32 {
        self.table(0, 0, servers).misses_ppm[demand as usize]
    }

    /// The most quanta that `servers` serve within a target; none when it is missed without load.
    pub(super) fn room(&mut self, servers: u32, target_ppm: u32) -> u32 {
        let table = self.table(0, 0, servers);
        let within = table.misses_ppm.partition_point(|&ppm| ppm <= target_ppm);
        within.saturating_sub(1) as u32
    }
}
