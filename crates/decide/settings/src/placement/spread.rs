//! Distributions of round trips, for percentiles: samples, or a mean and a standard deviation.

use std::collections::BTreeMap;

use evenkeel_core::distribution::{Distribution, Empirical, Grid, LogNormal};
use evenkeel_core::time::Duration;
use evenkeel_core::units::{OutOfRange, Probability};
use evenkeel_planner::model::RoundTrips;
use evenkeel_planner::tail::Tails;

use super::tables::{MILLISECONDS, Rows};
use super::{RTT_MS_MAX, whole};
use crate::problem::{Mismatch, Problem, quoted};

/// Points of all distributions together at most, 8 bytes each: steps are as long as that needs.
const POINTS_MAX: f64 = 2e7;
/// Steps of one distribution at most, so that a way and two quorums fit on one grid.
const STEPS_MAX: f64 = 16_000.0;
/// What of a log-normal round trip is longer lies beyond all that is asked.
const BEYOND: f64 = 1e-7;

evenkeel_core::named! {
    /// What is known of how round trips vary.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Varying {
        /// Nothing: each always takes its mean.
        Constant = "constant",
        /// They were drawn from samples.
        Samples = "sampled",
        /// They are taken as log-normal, by mean and standard deviation.
        LogNormal = "log-normal",
    }
}

/// How round trips are distributed, by client and by site.
#[derive(Clone, PartialEq, Debug)]
pub struct Distributions {
    /// What they were made of.
    pub varying: Varying,
    from_clients: Vec<Vec<Shape>>,
    between_sites: Vec<Vec<Shape>>,
}

#[derive(Clone, PartialEq, Debug)]
enum Shape {
    Samples(Vec<Duration>),
    Formula(LogNormal),
}

impl Shape {
    /// Of at least one.
    fn samples(ms: &[f64]) -> Self {
        Self::Samples(ms.iter().map(|ms| Duration::from_secs_f64(ms / 1e3)).collect())
    }

    fn log_normal(mean_ms: f64, deviation_ms: f64) -> Result<Self, Mismatch> {
        if mean_ms == 0.0 || deviation_ms == 0.0 {
            return Ok(Self::samples(&[mean_ms]));
        }
        let mean = Duration::from_secs_f64(mean_ms / 1e3);
        LogNormal::with_mean_cv(mean, deviation_ms / mean_ms).map(Self::Formula).map_err(unsound)
    }

    fn law(&self) -> Result<Box<dyn Distribution>, OutOfRange> {
        Ok(match self {
            Self::Samples(samples) => Box::new(Empirical::from_samples(samples.clone())?),
            Self::Formula(law) => Box::new(*law),
        })
    }

    /// The longest that counts.
    fn end(&self) -> Duration {
        match self {
            Self::Samples(samples) => samples.iter().max().copied().unwrap_or_default(),
            Self::Formula(law) => law.quantile(Probability::clamped(1.0 - BEYOND)),
        }
    }
}

fn unsound(error: OutOfRange) -> Mismatch {
    Mismatch::new(format!("{}", error.came), error.expected)
}

impl Distributions {
    /// Round trips that always take as long as these.
    pub fn constant(trips: &RoundTrips) -> Self {
        let rows = |row: &[f64]| row.iter().map(|ms| Shape::samples(&[*ms])).collect();
        let from_clients = (0..trips.clients()).map(|client| rows(trips.from_client(client)));
        let between_sites = (0..trips.sites()).map(|site| rows(trips.from_site(site)));
        Self {
            varying: Varying::Constant,
            from_clients: from_clients.collect(),
            between_sites: between_sites.collect(),
        }
    }

    /// The same on equal steps, of 1 ms or as many as it takes to stay within memory; and the step
    /// in milliseconds.
    ///
    /// # Errors
    /// When no step is long enough.
    pub fn tails(&self) -> Result<(Tails, f64), Mismatch> {
        let all = || self.from_clients.iter().chain(&self.between_sites).flatten();
        let ends: Vec<f64> = all().map(|shape| shape.end().as_secs_f64() * 1e3).collect();
        let (sum, longest) = (ends.iter().sum::<f64>(), ends.iter().copied().fold(0.0, f64::max));
        let fits = |step: &f64| {
            longest / step <= STEPS_MAX && sum / step + ends.len() as f64 <= POINTS_MAX
        };
        let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
        let step_ms = steps.into_iter().find(fits).ok_or_else(|| {
            let came = format!("{} pairs, the longest round trip {longest:.0} ms", ends.len());
            Mismatch::new(came, "fewer or shorter ones for a percentile")
        })?;
        let step = Duration::from_secs_f64(step_ms / 1e3);
        let grid = |shape: &Shape| Grid::of(&*shape.law()?, step, shape.end());
        let rows = |rows: &[Vec<Shape>]| -> Result<Vec<Vec<Grid>>, _> {
            rows.iter().map(|row| row.iter().map(grid).collect()).collect()
        };
        let (from_clients, between) = (rows(&self.from_clients), rows(&self.between_sites));
        let (from_clients, between) = (from_clients.map_err(unsound)?, between.map_err(unsound)?);
        let tails = Tails::new(from_clients, between);
        let tails = tails.map_err(|error| Mismatch::new(error.to_string(), "a square matrix"))?;
        Ok((tails, step_ms))
    }
}

/// Parses distributions of round trips: columns `from`, `to` and either `rtt_ms`, with a row for
/// each sample, or `avg_ms` and the standard deviation `mdev_ms` (or `sd_ms`), with a row for each
/// pair. Every pair of a client and a site is needed; others are not looked at. A leader's own vote
/// is free, as in the matrix of means.
///
/// # Errors
/// The first thing wrong: a missing column or pair, a pair of mean and deviation twice, what is no
/// round trip.
pub fn parse_distributions(
    text: &str,
    file: &str,
    clients: &[String],
    sites: &[String],
) -> Result<Distributions, Problem> {
    let rows = Rows::read(text, file)?;
    let spread = rows.columns([&["from"], &["to"], &["avg_ms", "avg"], &["mdev_ms", "sd_ms"]]);
    let columns: Vec<usize> = match spread {
        Some(columns) => columns.to_vec(),
        None => rows.columns([&["from"], &["to"], &["rtt_ms", "rtt"]]).map(Vec::from).ok_or_else(
            || {
                let came = quoted(&rows.header().iter().collect::<Vec<_>>().join(","));
                let expected = "columns from,to,rtt_ms or from,to,avg_ms,mdev_ms";
                rows.problem(1, 0, Mismatch::new(came, expected))
            },
        )?,
    };
    let mut cells: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    for (line, record) in rows.body() {
        let place = |column: usize, names: &[String]| {
            let name = rows.field(line, record, column)?;
            Ok::<_, Problem>(names.iter().position(|known| known == name))
        };
        let pair = place(columns[0], clients)?.zip(place(columns[1], sites)?);
        let Some(pair) = pair else { continue };
        let cell = cells.entry(pair).or_default();
        if spread.is_some() && !cell.is_empty() {
            let came = format!("{} to {} again", quoted(&clients[pair.0]), quoted(&sites[pair.1]));
            return Err(rows.problem(line, columns[0], Mismatch::new(came, "each pair once")));
        }
        for &column in &columns[2..] {
            let text = rows.field(line, record, column)?;
            cell.push(rows.number(line, column, text, MILLISECONDS, RTT_MS_MAX)?);
        }
    }
    let shape = |client: usize, site: usize| {
        let cell = cells.get(&(client, site)).ok_or_else(|| {
            let came =
                format!("no row from {} to {}", quoted(&clients[client]), quoted(&sites[site]));
            let what = Mismatch::new(came, "every pair of a client and a site");
            whole(file, what.with_hint("was this pair never measured?"))
        })?;
        let shape = match (spread, &cell[..]) {
            (Some(_), &[mean, deviation]) => Shape::log_normal(mean, deviation),
            (_, samples) => Ok(Shape::samples(samples)),
        };
        shape.map_err(|what| whole(file, what))
    };
    let row = |client: usize| (0..sites.len()).map(|site| shape(client, site)).collect();
    let from_clients: Vec<Vec<Shape>> = (0..clients.len()).map(row).collect::<Result<_, _>>()?;
    let mut between_sites = Vec::with_capacity(sites.len());
    for (site, name) in sites.iter().enumerate() {
        let at = clients.iter().position(|client| client == name);
        let mut row = from_clients[at.expect("sites have a row among clients")].clone();
        row[site] = Shape::samples(&[0.0]);
        between_sites.push(row);
    }
    let varying = if spread.is_some() { Varying::LogNormal } else { Varying::Samples };
    Ok(Distributions { varying, from_clients, between_sites })
}
