//! The tiers against a slow, obvious model, on random problems.

mod capacity;
mod domains;
mod history;
mod planner;
mod steady;
mod tail;
mod tier3;
mod tiers;

use std::sync::Arc;

use super::history::{History, Interval};
use super::model::{Counts, RoundTrips, Route};
use evenkeel_core::rng::Rng;

type Matrix = Vec<Vec<f64>>;

/// One interval as plain numbers.
#[derive(Clone)]
struct Plain {
    counts: Vec<[f64; 5]>,
    from_clients: Matrix,
    between: Matrix,
}

/// Equations 1 and 2 word for word, on plain numbers, oldest interval first.
struct Model {
    tau: f64,
    intervals: Vec<Plain>,
}

impl Model {
    /// Equation 2 with its denominator; none without operations.
    fn mean_ms(
        &self,
        leader: usize,
        voters: &[usize],
        replicas: &[usize],
        route: Route,
    ) -> Option<f64> {
        let (mut aggregate, mut operations) = (0.0, 0.0);
        for interval in &self.intervals {
            let q = median(voters.iter().map(|voter| interval.between[leader][*voter]));
            let (mut score, mut number) = (0.0, 0.0);
            for (counts, rtt) in interval.counts.iter().zip(&interval.from_clients) {
                let nearest = *replicas
                    .iter()
                    .min_by(|a, b| rtt[**a].partial_cmp(&rtt[**b]).unwrap().then(a.cmp(b)))
                    .unwrap();
                let over = |by: usize| rtt[by] + interval.between[by][leader];
                let bounded = match route {
                    Route::Nearest => over(nearest),
                    Route::BestPath => replicas.iter().map(|by| over(*by)).fold(1e99, f64::min),
                };
                score += counts[0] * rtt[nearest]
                    + counts[1] * bounded
                    + counts[2] * rtt[leader]
                    + counts[3] * (rtt[leader] + q)
                    + counts[4] * (rtt[leader] + 2.0 * q);
                number += counts.iter().sum::<f64>();
            }
            aggregate = aggregate / self.tau + score;
            operations = operations / self.tau + number;
        }
        (operations > 0.0).then(|| aggregate / operations)
    }
}

/// The ceil((n + 1) / 2)-th smallest of n.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    values[(values.len() + 1).div_ceil(2) - 1]
}

/// A random problem: few sites and clients, often with equal numbers, so that ties are common.
struct Case {
    model: Model,
    history: History,
    sites: usize,
}

impl Case {
    fn random(rng: &mut Rng) -> Self {
        let (sites, clients) = (1 + rng.below(7), 1 + rng.below(5));
        let tau = [1.0, 1.5, 2.0, 10.0, f64::INFINITY][rng.below(5)];
        let coarse = rng.below(2) == 0;
        let way = |rng: &mut Rng| {
            if coarse { rng.below(5) as f64 } else { rng.unit() * 100.0 }
        };
        let trips = |rng: &mut Rng| {
            let mut rows = |rows| -> Matrix {
                (0..rows).map(|_| (0..sites).map(|_| way(rng)).collect()).collect()
            };
            let (from_clients, mut between) = (rows(clients), rows(sites));
            (0..sites).for_each(|site| between[site][site] = 0.0);
            (from_clients, between)
        };
        let same_trips = rng.below(2) == 0;
        let mut current = trips(rng);
        let mut shared = shared(&current);
        let mut history = History::new(tau, 4).unwrap();
        let mut intervals = Vec::new();
        for _ in 0..=rng.below(4) {
            if !same_trips {
                current = trips(rng);
                shared = self::shared(&current);
            }
            let counts: Vec<[f64; 5]> =
                (0..clients).map(|_| [(); 5].map(|()| rng.below(4) as f64)).collect();
            let interval = Interval::new(Counts::new(counts.clone()).unwrap(), shared.clone());
            history.push(interval.unwrap()).unwrap();
            let (from_clients, between) = current.clone();
            intervals.push(Plain { counts, from_clients, between });
        }
        Self { model: Model { tau, intervals }, history, sites }
    }

    /// So many different sites, in rising order.
    fn some_sites(&self, rng: &mut Rng, count: usize) -> Vec<usize> {
        some_of(rng, &(0..self.sites).collect::<Vec<_>>(), count)
    }
}

fn shared((from_clients, between): &(Matrix, Matrix)) -> Arc<RoundTrips> {
    Arc::new(RoundTrips::new(from_clients, between).unwrap())
}

/// So many of these, in rising order.
fn some_of(rng: &mut Rng, of: &[usize], count: usize) -> Vec<usize> {
    let mut some = of.to_vec();
    rng.shuffle(&mut some);
    some.truncate(count);
    some.sort_unstable();
    some
}

/// Equal but for rounding.
fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-12 * one.abs().max(other.abs()).max(1.0)
}

/// Every set of so many of these, by counting in binary.
fn all_sets(of: &[usize], count: usize) -> Vec<Vec<usize>> {
    (0_u32..1 << of.len())
        .filter(|mask| mask.count_ones() as usize == count)
        .map(|mask| (0..of.len()).filter(|i| mask >> i & 1 == 1).map(|i| of[i]).collect())
        .collect()
}
