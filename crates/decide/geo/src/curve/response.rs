//! How likely a data centre is to spend a given part of the objective, at every load.

use core::num::NonZeroU32;

use super::isotonic::isotonic;
use super::profile::{LoadStep, Profile, ProfileError};
use super::queue::{Markov, general};
use super::residual::{RESIDUAL_BIN, Residual};
use crate::epoch::StableHash;
use evenkeel_core::distribution::{Bucket, Distribution, Empirical};
use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::{OutOfRange, Probability, Rate};

/// The longest objective that curves are made for.
pub const OBJECTIVE_MAX: Duration = Duration::from_secs(3_600);
/// Steps of latency in an objective at most.
const STEPS_MAX: u64 = 4_096;
/// Loads that formulas are evaluated at.
const FORMULA_LOADS: u32 = 64;

/// Response times of one data centre for one class of requests, as far as an objective asks: for
/// each profiled load and write share the probability that the objective, less what the way has
/// already taken, is missed.
///
/// Memory: 8 bytes for each load step and each 0.1 ms of the objective; longer objectives than
/// 0.4 s are held in longer steps, 4096 at most.
#[derive(Clone, PartialEq, Debug)]
pub struct ResponseCurves {
    objective: Duration,
    step_nanos: u64,
    servers: f64,
    slices: Vec<Slice>,
}

/// One write share. Loads are those of the profiled data centre, in requests per second.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Slice {
    pub(super) write_share: f64,
    /// From here on every request misses.
    pub(super) saturation: f64,
    /// Ascending, at least one.
    pub(super) loads: Vec<f64>,
    /// `misses[load][k]` is the probability of more than the objective less `k` steps.
    pub(super) misses: Vec<Vec<f64>>,
}

/// The two write shares around one, ascending, and how far it is from the first to the second.
/// Beyond the profiled shares the nearest counts.
pub(super) fn neighbours<T>(
    profiled: &[T],
    write_share: Probability,
    share_of: impl Fn(&T) -> f64,
) -> (&T, &T, f64) {
    let share = write_share.value();
    let after = profiled.partition_point(|one| share_of(one) <= share);
    let lower = &profiled[after.saturating_sub(1)];
    let upper = &profiled[after.min(profiled.len() - 1)];
    let width = share_of(upper) - share_of(lower);
    let part = if width > 0.0 { (share - share_of(lower)) / width } else { 0.0 };
    (lower, upper, part)
}

/// The saturation between two write shares: work for one request, its inverse, is a mean over reads
/// and writes.
pub(super) fn saturation(lower: f64, upper: f64, part: f64) -> f64 {
    1.0 / ((1.0 - part) / lower + part / upper)
}

/// A row before fitting: load, requests, and the probabilities of a miss.
struct Row {
    load: f64,
    weight: f64,
    misses: Vec<f64>,
}

impl ResponseCurves {
    /// The curves that a profile measured: isotonic in load, steps weighted by their requests.
    ///
    /// Steps at or past saturation are left out: how long requests take there depends on how long
    /// the step lasted.
    ///
    /// # Errors
    /// When the objective is zero or above [`OBJECTIVE_MAX`], there are no steps or too many, a
    /// step has no request, or a saturation belongs to no step.
    pub fn measured(objective: Duration, profile: &Profile) -> Result<Self, ProfileError> {
        profile.check()?;
        let step_nanos = step_nanos(objective)
            .map_err(|source| ProfileError { place: "objective".into(), source })?;
        let mut shares: Vec<f64> =
            profile.steps.iter().map(|step| step.write_share.value()).collect();
        shares.sort_unstable_by(f64::total_cmp);
        shares.dedup();
        let slices =
            shares.into_iter().map(|share| measured(objective, step_nanos, profile, share));
        let slices = slices.collect::<Result<_, _>>()?;
        Ok(Self { objective, step_nanos, servers: f64::from(profile.servers.get()), slices })
    }

    /// The curves of distributions that are known at some loads, the same for reads and writes.
    /// At `saturation` and beyond every request misses; between the last load and it, violations
    /// rise linearly.
    ///
    /// # Errors
    /// When the objective is zero or above [`OBJECTIVE_MAX`], or no load is below the saturation.
    pub fn of_laws(
        objective: Duration,
        servers: NonZeroU32,
        saturation: Rate,
        laws: &[(Rate, &dyn Distribution)],
    ) -> Result<Self, OutOfRange> {
        let step_nanos = step_nanos(objective)?;
        let mut rows: Vec<Row> = laws
            .iter()
            .map(|&(load, law)| Row {
                load: load.value(),
                weight: 1.0,
                misses: misses(objective, step_nanos, law),
            })
            .filter(|row| row.load < saturation.value())
            .collect();
        rows.sort_by(|a, b| a.load.total_cmp(&b.load));
        if rows.is_empty() {
            let expected = "a saturation above the load of at least one law";
            return Err(OutOfRange { came: saturation.value(), expected });
        }
        let slice = Slice::fitted(0.0, Some(saturation.value()), rows);
        Ok(Self { objective, step_nanos, servers: f64::from(servers.get()), slices: vec![slice] })
    }

    /// The curves of an M/M/c queue ([`Markov`]).
    ///
    /// # Errors
    /// When the objective is zero or above [`OBJECTIVE_MAX`], or the service time is zero.
    pub fn markov(
        objective: Duration,
        servers: NonZeroU32,
        service_mean: Duration,
    ) -> Result<Self, OutOfRange> {
        Self::of_queue(objective, servers, service_mean, |load| {
            Markov::new(servers, load, service_mean)
        })
    }

    /// The curves of an M/G/c queue ([`general`], an approximation).
    ///
    /// # Errors
    /// When the objective is zero or above [`OBJECTIVE_MAX`], or the mean service time is zero or
    /// infinite.
    pub fn general(
        objective: Duration,
        servers: NonZeroU32,
        service: &dyn Distribution,
    ) -> Result<Self, OutOfRange> {
        Self::of_queue(objective, servers, service.mean(), |load| {
            general(servers, load, service, objective)
        })
    }

    fn of_queue<Law: Distribution>(
        objective: Duration,
        servers: NonZeroU32,
        service_mean: Duration,
        law: impl Fn(Rate) -> Result<Law, OutOfRange>,
    ) -> Result<Self, OutOfRange> {
        if service_mean.is_zero() {
            return Err(OutOfRange { came: 0.0, expected: "a mean service time above zero" });
        }
        let saturation = f64::from(servers.get()) * 1e9 / nanos(service_mean) as f64;
        let loads: Vec<Rate> = (0..FORMULA_LOADS)
            .map(|k| Rate::new(saturation * formula_utilisation(k)))
            .collect::<Result<_, _>>()?;
        let laws = loads.iter().map(|&load| law(load)).collect::<Result<Vec<_>, _>>()?;
        let dynamic = laws.iter().map(|law| law as &dyn Distribution);
        let laws: Vec<_> = loads.iter().copied().zip(dynamic).collect();
        Self::of_laws(objective, servers, Rate::new(saturation)?, &laws)
    }

    /// The objective.
    pub fn objective(&self) -> Duration {
        self.objective
    }

    /// The steps that latency is held in; those of the way are rounded up to them.
    pub fn step(&self) -> Duration {
        Duration::from_nanos(self.step_nanos)
    }

    /// The servers of the profiled data centre.
    pub(in super::super) fn servers(&self) -> f64 {
        self.servers
    }

    /// The load of the profiled data centre, in requests per second, from which on every request
    /// misses.
    pub(in super::super) fn saturation(&self, write_share: Probability) -> f64 {
        let (lower, upper, part) = neighbours(&self.slices, write_share, |slice| slice.write_share);
        saturation(lower.saturation, upper.saturation, part)
    }

    pub(super) fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Adds all that a table is made from: sites with equal hashes compute equal tables.
    pub(in super::super) fn fingerprint(&self, hash: &mut StableHash) {
        let number = |hash: &mut StableHash, number: f64| hash.number(number.to_bits());
        hash.number(nanos(self.objective));
        hash.number(self.step_nanos);
        number(hash, self.servers);
        for slice in &self.slices {
            number(hash, slice.write_share);
            number(hash, slice.saturation);
            slice.loads.iter().for_each(|load| number(hash, *load));
            slice.misses.iter().flatten().for_each(|miss| number(hash, *miss));
        }
    }

    /// How many steps the objective has, with one for nothing left.
    pub(super) fn steps(&self) -> usize {
        self.slices[0].misses[0].len()
    }

    /// The residual latency's masses in these steps, each bin rounded up, and what is longer than
    /// the objective.
    pub(super) fn in_steps(&self, residual: &Residual) -> (Vec<f64>, f64) {
        let bins_per_step = (self.step_nanos / nanos(RESIDUAL_BIN)).max(1) as usize;
        let mut masses = vec![0_u64; self.steps()];
        let mut beyond = u64::from(residual.beyond_ppm());
        for (bin, &ppm) in residual.bins_ppm().iter().enumerate() {
            match masses.get_mut(bin.div_ceil(bins_per_step)) {
                Some(mass) => *mass += u64::from(ppm),
                None => beyond += u64::from(ppm),
            }
        }
        while masses.last() == Some(&0) {
            masses.pop();
        }
        let share = |ppm: u64| ppm as f64 / 1e6;
        (masses.into_iter().map(share).collect(), share(beyond))
    }
}

impl Slice {
    /// Fits rows of ascending load, all below the saturation when there is one.
    fn fitted(write_share: f64, saturation: Option<f64>, mut rows: Vec<Row>) -> Self {
        let weights: Vec<f64> = rows.iter().map(|row| row.weight).collect();
        for point in 0..rows[0].misses.len() {
            let mut column: Vec<f64> = rows.iter().map(|row| row.misses[point]).collect();
            isotonic(&mut column, &weights);
            rows.iter_mut().zip(column).for_each(|(row, fitted)| row.misses[point] = fitted);
        }
        if let Some(load) = saturation {
            let misses = vec![1.0; rows[0].misses.len()];
            rows.push(Row { load, weight: 1.0, misses });
        }
        let saturation = rows.last().expect("a slice has a row").load;
        let (loads, misses) = rows.into_iter().map(|row| (row.load, row.misses)).unzip();
        Self { write_share, saturation, loads, misses }
    }
}

/// Utilisations from 0 towards 1, denser near 1.
fn formula_utilisation(k: u32) -> f64 {
    let rest = 1.0 - f64::from(k) / f64::from(FORMULA_LOADS);
    1.0 - rest * rest.sqrt()
}

/// The shortest step of 1, 2, 5, 10, … times the bin of residuals with few enough in the objective.
fn step_nanos(objective: Duration) -> Result<u64, OutOfRange> {
    if objective.is_zero() || objective > OBJECTIVE_MAX {
        let expected = "an objective above zero and at most an hour (ns)";
        return Err(OutOfRange { came: nanos(objective) as f64, expected });
    }
    let bin = nanos(RESIDUAL_BIN);
    let decades = (0..8).map(|power| 10_u64.pow(power));
    let steps = decades.flat_map(|decade| [1, 2, 5].map(|factor| factor * decade * bin));
    let fits = |step: &u64| nanos(objective) / step <= STEPS_MAX;
    Ok(steps.into_iter().find(fits).expect("an hour fits into steps of a second"))
}

/// The probabilities of more than the objective less 0, 1, 2, … steps.
fn misses(objective: Duration, step_nanos: u64, law: &dyn Distribution) -> Vec<f64> {
    let steps = nanos(objective) / step_nanos;
    let left = |k: u64| Duration::from_nanos(nanos(objective) - k * step_nanos);
    (0..=steps).map(|k| law.cdf(left(k)).complement().value()).collect()
}

fn measured(
    objective: Duration,
    step_nanos: u64,
    profile: &Profile,
    share: f64,
) -> Result<Slice, ProfileError> {
    let place = || format!("write share {share}");
    let saturation = profile.saturations.iter().find(|of| of.write_share.value() == share);
    let saturation = saturation.map(|of| of.load.value());
    let mut steps: Vec<&LoadStep> = profile
        .steps
        .iter()
        .filter(|step| step.write_share.value() == share)
        .filter(|step| saturation.is_none_or(|saturation| step.load.value() < saturation))
        .collect();
    steps.sort_by(|a, b| a.load.value().total_cmp(&b.load.value()));
    if steps.is_empty() {
        let came = saturation.unwrap_or_default();
        let expected = "a saturation above the load of at least one step";
        return Err(ProfileError::new(place(), came, expected));
    }
    let equal_loads = steps.chunk_by(|a, b| a.load == b.load);
    let rows = equal_loads.map(|steps| measured_row(objective, step_nanos, steps)).collect();
    Ok(Slice::fitted(share, saturation, rows))
}

/// One row of all steps of one load, which have at least one request in all.
fn measured_row(objective: Duration, step_nanos: u64, steps: &[&LoadStep]) -> Row {
    let requests: f64 = steps.iter().map(|step| step.requests() as f64).sum();
    let buckets: Vec<Bucket> =
        steps.iter().flat_map(|step| step.latencies.iter().copied()).collect();
    let unanswered: f64 = steps.iter().map(|step| step.unanswered as f64).sum();
    let lost = unanswered / requests;
    let misses = match Empirical::from_buckets(buckets) {
        Ok(answered) => misses(objective, step_nanos, &answered)
            .into_iter()
            .map(|miss| lost + (1.0 - lost) * miss)
            .collect(),
        // Nothing was answered at all.
        Err(_) => vec![1.0; (nanos(objective) / step_nanos + 1) as usize],
    };
    Row { load: steps[0].load.value(), weight: requests, misses }
}
