//! SLO curves: how likely a request is to miss the objective, as a function of the total load of
//! the data centre that serves it.
//!
//! Signal: response times *inside* a data centre at known loads, from a profile or a formula, and
//! the path between data centres as base and residual latency. Statistic: the probability of the
//! sum being longer than the objective. A percentile would not do: percentiles of response time
//! and of the way do not add up to the percentile of their sum.
//!
//! ```text
//! Profile / M/M/c / M/G/c ─► ResponseCurves ─┐
//!                 (load × write share)       ├─► Family ─► tabulate ─► Table, ppm per quantum
//! probes ─► wan ─► Residual ─────────────────┘     ▲
//!                  base latency ───────────────────┘
//! ```
//!
//! | room | does |
//! |---|---|
//! | `profile` | what a real data centre was measured to do |
//! | `queue` | formulas: M/M/c, M/G/c |
//! | `response` | both as one surface, isotonic in load |
//! | `residual` | what a way takes beyond its base |
//! | `family` | surface and residual together, for every base latency |
//! | `interference` | does the curve still hold, and which other explains what is measured? |
//! | `backlog` | are requests late for those that came before? |
//! | `learner` | what the curve is now, from the profile and from what is seen |
//!
//! **Scaling by servers.** Load counts per server: a data centre of twice the servers is taken to
//! feel twice the load alike. Real pools gain more by growing (more servers share their luck), so
//! scaling up errs to the safe side and scaling down to the unsafe one: profile the smallest size.
//!
//! **Load bias.** A curve that promises 10 % too much capacity costs 18 % more violations and lost
//! content, one that promises 5 % too little costs 2 % (`research/joint.md`, section 3.3, of
//! Evenkeel's design): [`LOAD_BIAS`] errs to the cheap side. Predictions that are compared with
//! measurements use a bias of 1.
//!
//! **Agreement.** Every data centre must compute the same tables. What goes in from a peer is
//! whole numbers ([`Residual`], base in nanoseconds); what comes out is rounded to whole parts per
//! million; between them are additions, multiplications and divisions in a fixed order.
//!
//! **When it misleads.** A curve is a steady state: just after a surge the queue is shorter than
//! it says, after an overload longer. Loads beyond the profile miss always ([`Table::saturation`]).
//!
//! Source: Bogdanov et al., "Fast and accurate load balancing for geo-distributed storage
//! systems" (Kurma), SoCC 2018, section 4.

mod backlog;
mod family;
mod interference;
mod isotonic;
mod learner;
mod profile;
mod queue;
mod residual;
mod response;

#[cfg(test)]
mod tests;

pub use family::{Family, ROUND_TRIPS_MAX};
pub use interference::{Candidate, Choice, Measured, Verdict, Watch, WatchConfig, substitute};
pub use isotonic::isotonic;
pub use learner::{CONTRADICTED, Learner, Prior, REQUESTS_MAX, Seen};
pub use profile::{LoadStep, Profile, ProfileError, STEPS_MAX, Saturation};
pub use queue::{Markov, erlang_c, general};
pub use residual::{NetworkPath, RESIDUAL_BIN, RESIDUAL_BINS_MAX, Residual};
pub use response::{OBJECTIVE_MAX, ResponseCurves};

use super::ALL_PPM;
use super::learnt::Learnt;
use evenkeel_core::time::Duration;
use evenkeel_core::units::{OutOfRange, Probability, Rate, Weight};

/// The default of [`Conditions::load_bias`].
pub const LOAD_BIAS: f64 = 1.04;
/// The largest load bias.
pub const LOAD_BIAS_MAX: f64 = 10.0;
/// Loads in a table at most.
pub const LEVELS_MAX: usize = 1 << 20;

/// The probability of a miss where nothing meets the objective.
const MISSES_ALWAYS: f64 = 1.0;

/// How the serving data centre is, beyond its load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Conditions {
    /// Its servers that serve; none means that every request misses.
    pub servers: u32,
    /// The share of writes in its load.
    pub write_share: Probability,
    /// Load that is there whatever is redirected, in requests per second: writes that every
    /// replica must do, for example.
    pub background: Rate,
    /// How many times its load is assumed to weigh, [`LOAD_BIAS`] by default; above 1 is cautious,
    /// below 1 is hopeful. Above zero, at most [`LOAD_BIAS_MAX`].
    pub load_bias: f64,
    /// How it differs from its profile.
    pub learnt: Learnt,
}

impl Conditions {
    /// With this many servers, reads only, nothing in the background, and the default bias.
    pub fn with_servers(servers: u32) -> Self {
        Self {
            servers,
            write_share: Probability::ZERO,
            background: Rate::new(0.0).expect("zero is a rate"),
            load_bias: LOAD_BIAS,
            learnt: Learnt::AS_PROFILED,
        }
    }

    /// The same without bias, to predict what will be measured.
    #[must_use]
    pub fn unbiased(self) -> Self {
        Self { load_bias: 1.0, ..self }
    }

    fn check(&self) -> Result<(), OutOfRange> {
        if self.load_bias > 0.0 && self.load_bias <= LOAD_BIAS_MAX {
            return Ok(());
        }
        Err(OutOfRange { came: self.load_bias, expected: "a load bias above 0 and up to 10" })
    }
}

/// The loads of a table: 0, 1, 2, … quanta.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Axis {
    /// Requests per second; above zero.
    pub quantum: Rate,
    /// How many loads, from that of no quanta on; 1 to [`LEVELS_MAX`].
    pub levels: usize,
    /// By how much every load is less than its quanta: what comes to a data centre was rounded up
    /// to whole ones.
    pub rounded_up: Rate,
}

impl Axis {
    /// The loads of whole quanta.
    pub fn of(quantum: Rate, levels: usize) -> Self {
        Self { quantum, levels, rounded_up: Rate::new(0.0).expect("zero is a rate") }
    }

    fn check(&self) -> Result<(), OutOfRange> {
        if self.quantum.value() <= 0.0 {
            let expected = "a quantum above zero requests per second";
            return Err(OutOfRange { came: self.quantum.value(), expected });
        }
        if !(1..=LEVELS_MAX).contains(&self.levels) {
            let expected = "1 to 1048576 loads in a table";
            return Err(OutOfRange { came: self.levels as f64, expected });
        }
        Ok(())
    }

    fn load(&self, level: usize) -> f64 {
        (self.quantum.value() * level as f64 - self.rounded_up.value()).max(0.0)
    }
}

/// One kind of requests between two data centres: of one size class, over one path.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// How many of all are of this kind.
    pub weight: Weight,
    /// Its curves.
    pub family: &'a Family,
    /// The base latency of its path; zero inside a data centre.
    pub base: Duration,
}

/// Violations for every load of a data centre.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// At `m` quanta of total load, so many parts per million of the requests miss the objective.
    /// Never falls.
    pub misses_ppm: Vec<u32>,
    /// The first load, in quanta, from which on every request misses and queues grow; it may lie
    /// beyond the table. `u32::MAX` when there is none below.
    pub saturation: u32,
}

impl Table {
    /// What every load costs where no request is ever served in time.
    pub fn unreachable(levels: usize) -> Self {
        Self { misses_ppm: vec![ALL_PPM; levels], saturation: 0 }
    }

    /// Raises violations to at least those of `local` at every load: no request gains by coming
    /// from further away, and the solver's bounds rely on it.
    pub fn raise_to(&mut self, local: &Self) {
        for (remote, &local) in self.misses_ppm.iter_mut().zip(&local.misses_ppm) {
            *remote = local.max(*remote);
        }
    }

    /// Without the entries after the first that equals all later ones: a curve's last value holds
    /// beyond its end.
    pub fn trim(&mut self) {
        if let Some(&last) = self.misses_ppm.last() {
            let end = self.misses_ppm.partition_point(|&ppm| ppm < last);
            self.misses_ppm.truncate(end + 1);
        }
    }
}

/// Requests of one size.
#[derive(Clone, Copy, Debug)]
pub struct Class<'a> {
    /// How many of all requests are of this size.
    pub weight: Weight,
    /// How long the serving data centre takes for them.
    pub curves: &'a ResponseCurves,
    /// Round trips that one takes, 1 to [`ROUND_TRIPS_MAX`].
    pub round_trips: u32,
}

/// The table of a pair of data centres: requests of these classes over each of these paths alike,
/// at no load with fewer violations than at the destination itself. Without a way (nothing was
/// heard over any) every request misses.
///
/// # Errors
/// When there is no class, or a class, the axis or the conditions are out of their ranges.
pub fn pair_table(
    classes: &[Class<'_>],
    paths: &[NetworkPath],
    axis: &Axis,
    conditions: &Conditions,
) -> Result<Table, OutOfRange> {
    let local = paths_table(classes, &[NetworkPath::inside()], axis, conditions)?;
    if paths.is_empty() {
        return Ok(Table::unreachable(axis.levels));
    }
    let mut table = paths_table(classes, paths, axis, conditions)?;
    table.raise_to(&local);
    Ok(table)
}

fn paths_table(
    classes: &[Class<'_>],
    paths: &[NetworkPath],
    axis: &Axis,
    conditions: &Conditions,
) -> Result<Table, OutOfRange> {
    let pairs = classes.iter().flat_map(|class| paths.iter().map(move |path| (class, path)));
    let families = pairs
        .clone()
        .map(|(class, path)| Family::through(class.curves, path, class.round_trips))
        .collect::<Result<Vec<_>, _>>()?;
    let parts: Vec<Part<'_>> = pairs
        .zip(&families)
        .map(|((class, path), family)| Part { weight: class.weight, family, base: path.base })
        .collect();
    tabulate(&parts, axis, conditions)
}

/// The table of a mixture of requests: size classes times paths.
///
/// Violations are averaged over the parts, never their latencies: of two equal-cost paths one may
/// meet the objective and the other not. Where any part saturates the data centre, all miss.
///
/// # Errors
/// When there is no part, or the axis or the conditions are out of their ranges.
pub fn tabulate(
    parts: &[Part<'_>],
    axis: &Axis,
    conditions: &Conditions,
) -> Result<Table, OutOfRange> {
    axis.check()?;
    conditions.check()?;
    let heaviest = parts.iter().map(|part| part.weight.value()).fold(0.0, f64::max);
    if parts.is_empty() {
        return Err(OutOfRange { came: 0.0, expected: "at least one part" });
    }
    let mut sum = vec![0.0; axis.levels];
    let mut saturation = u32::MAX;
    for part in parts {
        let weight = part.weight.value() / heaviest;
        saturation = saturation.min(saturated_level(part.family, axis, conditions));
        let mut view = part.family.view(part.base, conditions.write_share);
        for (level, sum) in sum.iter_mut().enumerate() {
            let load = part.family.profiled(axis.load(level), conditions);
            let miss = |load| conditions.learnt.miss(view.miss(load));
            *sum += weight * load.map_or(MISSES_ALWAYS, miss);
        }
    }
    let total: f64 = parts.iter().map(|part| part.weight.value() / heaviest).sum();
    let ppm = |(level, sum): (usize, &f64)| {
        let saturated = level as u64 >= u64::from(saturation);
        if saturated { ALL_PPM } else { ((sum / total * 1e6).round() as u32).min(ALL_PPM) }
    };
    let mut misses_ppm: Vec<u32> = sum.iter().enumerate().map(ppm).collect();
    never_falling(&mut misses_ppm);
    Ok(Table { misses_ppm, saturation })
}

/// The first level at or past the saturation, which may lie beyond the axis.
fn saturated_level(family: &Family, axis: &Axis, conditions: &Conditions) -> u32 {
    let saturation = family.saturation(conditions.write_share);
    let reached = |level: u32| {
        let load = family.profiled(axis.load(level as usize), conditions);
        load.is_none_or(|load| load >= saturation)
    };
    let (mut below, mut above) = (0, u32::MAX);
    while below < above {
        let middle = below + (above - below) / 2;
        if reached(middle) {
            above = middle;
        } else {
            below = middle + 1;
        }
    }
    above
}

/// Interpolation rounds; a last digit must not make a curve fall.
fn never_falling(misses_ppm: &mut [u32]) {
    let mut highest = 0;
    for ppm in misses_ppm {
        highest = highest.max(*ppm);
        *ppm = highest;
    }
}
