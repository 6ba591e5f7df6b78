//! How long duplicates serve an access, without any queue.
//!
//! **Recorded** times are what the models are for: a window of sampled accesses, each as likely as
//! another. They know nothing beyond the longest that was seen, so a bound near it is predicted
//! from a handful of samples; record a hundred times as many accesses as the target has violations.
//! **Formulas** are for reproduction and for questions before there is anything to measure; a
//! log-normal body with a Pareto part is the usual shape of a store (Zoolander, figure 2).
//! **Together**: rows in which the times of all duplicates for the same access were recorded keep
//! how their outliers depend on each other, which the paper assumes away.

use evenkeel_core::distribution::{Distribution, Exponential, LogNormal, Pareto};
use evenkeel_core::rng::Rng;
use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::{OutOfRange, Probability, Weight};

/// A formula for service times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Law {
    /// Always the same, above 0.
    Constant(Duration),
    /// Memoryless.
    Exponential {
        /// The mean.
        mean: Duration,
    },
    /// The body of most services.
    LogNormal {
        /// The mean.
        mean: Duration,
        /// Standard deviation over mean, 0 to 1e6.
        cv: f64,
    },
    /// Tails that fall as a power: pauses, compactions.
    Pareto {
        /// The shortest time.
        minimum: Duration,
        /// The power, above 0. The variance is infinite up to 2 unless there is a maximum, and then
        /// the paper's model promises nothing at any load.
        shape: f64,
        /// The longest time.
        maximum: Option<Duration>,
    },
}

/// A formula, checked.
#[derive(Clone, Copy, Debug)]
enum Sound {
    Exponential(Exponential),
    LogNormal(LogNormal),
    Pareto(Pareto),
}

impl Sound {
    fn distribution(&self) -> &dyn Distribution {
        match self {
            Self::Exponential(law) => law,
            Self::LogNormal(law) => law,
            Self::Pareto(law) => law,
        }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        nanos(match self {
            Self::Exponential(law) => law.sample(rng),
            Self::LogNormal(law) => law.sample(rng),
            Self::Pareto(law) => law.sample(rng),
        })
    }
}

impl Law {
    /// The service times of this formula alone.
    ///
    /// # Errors
    /// When a parameter is out of its range.
    pub fn times(self) -> Result<Times, OutOfRange> {
        Times::mixed(&[(Weight::new(1.0)?, self)])
    }

    fn sound(self) -> Result<Sound, OutOfRange> {
        Ok(match self {
            Self::Constant(time) => Sound::LogNormal(LogNormal::with_mean_cv(time, 0.0)?),
            Self::Exponential { mean } => Sound::Exponential(Exponential::with_mean(mean)?),
            Self::LogNormal { mean, cv } => Sound::LogNormal(LogNormal::with_mean_cv(mean, cv)?),
            Self::Pareto { minimum, shape, maximum: None } => {
                Sound::Pareto(Pareto::new(minimum, shape)?)
            }
            Self::Pareto { minimum, shape, maximum: Some(maximum) } => {
                Sound::Pareto(Pareto::bounded(minimum, maximum, shape)?)
            }
        })
    }

    /// The mean in nanoseconds, infinite where it is.
    fn mean_nanos(self) -> f64 {
        match self {
            Self::Constant(mean) | Self::Exponential { mean } | Self::LogNormal { mean, .. } => {
                nanos(mean) as f64
            }
            Self::Pareto { minimum, shape, maximum } => {
                pareto_moment(1.0, nanos(minimum) as f64, maximum, shape)
            }
        }
    }

    /// The mean of the square, in square nanoseconds; infinite where it is.
    fn square_nanos(self) -> f64 {
        let squared = |time: Duration| (nanos(time) as f64).powi(2);
        match self {
            Self::Constant(time) => squared(time),
            Self::Exponential { mean } => 2.0 * squared(mean),
            Self::LogNormal { mean, cv } => squared(mean) * (1.0 + cv * cv),
            Self::Pareto { minimum, shape, maximum } => {
                pareto_moment(2.0, nanos(minimum) as f64, maximum, shape)
            }
        }
    }
}

/// `E[X^k]` of a Pareto distribution from `low` on: the integral of `x^k · a·L^a·x^(-a-1)`.
fn pareto_moment(k: f64, low: f64, maximum: Option<Duration>, shape: f64) -> f64 {
    let excess = shape - k;
    let Some(high) = maximum.map(|high| nanos(high) as f64) else {
        return if excess > 0.0 { shape / excess * low.powf(k) } else { f64::INFINITY };
    };
    let log_ratio = (low / high).ln();
    let below = -(shape * log_ratio).exp_m1();
    let integral = if excess == 0.0 { -log_ratio } else { -(excess * log_ratio).exp_m1() / excess };
    shape * low.powf(k) * integral / below
}

/// How long one duplicate serves an access.
#[derive(Clone, Debug)]
pub struct Times {
    kind: Kind,
    mean_nanos: f64,
    cv_squared: f64,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Nanoseconds, ascending; at least one.
    Recorded(Vec<u64>),
    /// Each with the share of it and all before it, and its own share.
    Mixed(Vec<(f64, f64, Sound)>),
}

impl Times {
    /// Times that were recorded, each as likely as another, in any order.
    ///
    /// # Errors
    /// When there is none.
    pub fn recorded(samples: &[Duration]) -> Result<Self, OutOfRange> {
        Self::of_nanos(samples.iter().map(|&sample| nanos(sample)).collect())
    }

    fn of_nanos(mut samples: Vec<u64>) -> Result<Self, OutOfRange> {
        if samples.is_empty() {
            return Err(OutOfRange { came: 0.0, expected: "at least one service time" });
        }
        samples.sort_unstable();
        let count = samples.len() as f64;
        let mean_nanos = samples.iter().map(|&time| time as f64).sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|&time| (time as f64 - mean_nanos).powi(2)).sum();
        let cv_squared =
            if mean_nanos > 0.0 { squares / count / (mean_nanos * mean_nanos) } else { 0.0 };
        Ok(Self { kind: Kind::Recorded(samples), mean_nanos, cv_squared })
    }

    /// A time is of one of these kinds, by weight: a body, and a tail that is seldom.
    ///
    /// # Errors
    /// When there is none, or a parameter is out of its range.
    pub fn mixed(parts: &[(Weight, Law)]) -> Result<Self, OutOfRange> {
        let total: f64 = parts.iter().map(|(weight, _)| weight.value()).sum();
        if parts.is_empty() || !total.is_finite() {
            let came = if parts.is_empty() { 0.0 } else { total };
            return Err(OutOfRange { came, expected: "some parts with a finite sum of weights" });
        }
        let (mut mean_nanos, mut square, mut before) = (0.0, 0.0, 0.0);
        let mut mixed = Vec::with_capacity(parts.len());
        for &(weight, law) in parts {
            let share = weight.value() / total;
            before += share;
            mixed.push((before, share, law.sound()?));
            mean_nanos += share * law.mean_nanos();
            square += share * law.square_nanos();
        }
        let cv_squared = if mean_nanos.is_infinite() {
            f64::INFINITY
        } else if mean_nanos > 0.0 {
            (square / (mean_nanos * mean_nanos) - 1.0).max(0.0)
        } else {
            0.0
        };
        Ok(Self { kind: Kind::Mixed(mixed), mean_nanos, cv_squared })
    }

    /// The mean in nanoseconds: μ_n of table 1. Infinite where it is.
    pub const fn mean_nanos(&self) -> f64 {
        self.mean_nanos
    }

    /// C_v²: variance over the square of the mean; 1 for exponential times, 0 for constant ones.
    /// (The paper's "COV in a normal distribution is 1" is a slip: it is 1 for the exponential.)
    pub const fn cv_squared(&self) -> f64 {
        self.cv_squared
    }

    /// `1 - Φ(bound)`: the share of times that are longer.
    pub fn late(&self, bound_nanos: u64) -> f64 {
        match &self.kind {
            Kind::Recorded(samples) => {
                let within = samples.partition_point(|&time| time <= bound_nanos);
                (samples.len() - within) as f64 / samples.len() as f64
            }
            Kind::Mixed(parts) => {
                let bound = Duration::from_nanos(bound_nanos);
                let late = |sound: &Sound| sound.distribution().cdf(bound).complement().value();
                parts.iter().map(|(_, share, sound)| share * late(sound)).sum()
            }
        }
    }

    /// Draws a time, in nanoseconds.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match &self.kind {
            Kind::Recorded(samples) => samples[rng.below(samples.len())],
            Kind::Mixed(parts) => {
                let (last, others) = parts.split_last().expect("a mixture has parts");
                if others.is_empty() {
                    return last.2.draw(rng);
                }
                let which = rng.unit();
                let part = others.iter().find(|(until, ..)| which < *until).unwrap_or(last);
                part.2.draw(rng)
            }
        }
    }
}

impl Distribution for Times {
    fn cdf(&self, at: Duration) -> Probability {
        Probability::clamped(1.0 - self.late(nanos(at)))
    }

    fn quantile(&self, p: Probability) -> Duration {
        let (mut low, mut high) = (0, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            let cdf = self.cdf(Duration::from_nanos(middle));
            let is_reached = cdf >= p && cdf > Probability::ZERO;
            (low, high) = if is_reached { (low, middle) } else { (middle + 1, high) };
        }
        Duration::from_nanos(low)
    }

    fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean_nanos.round() as u64)
    }

    fn sample(&self, rng: &mut Rng) -> Duration {
        Duration::from_nanos(self.draw(rng))
    }
}

/// Service times of all duplicates of a partition.
#[derive(Clone, Debug)]
pub struct Service {
    kind: Duplicates,
}

#[derive(Clone, Debug)]
enum Duplicates {
    Alike(Times),
    Each(Vec<Times>),
    Together { marginals: Vec<Times>, rows: Vec<u64> },
}

impl Service {
    /// All duplicates serve alike and independently, as many as one likes.
    pub const fn alike(times: Times) -> Self {
        Self { kind: Duplicates::Alike(times) }
    }

    /// Each duplicate has its own times, independently: a policy of `d` duplicates has the first
    /// `d` of these.
    ///
    /// # Errors
    /// When there is none.
    pub fn each(times: Vec<Times>) -> Result<Self, OutOfRange> {
        if times.is_empty() {
            return Err(OutOfRange { came: 0.0, expected: "the times of at least one duplicate" });
        }
        Ok(Self { kind: Duplicates::Each(times) })
    }

    /// Times that were recorded together: a row is what each duplicate took for the same access.
    /// [`Model::Lindley`](super::Model) draws whole rows, so that outliers that coincide go on
    /// coinciding; [`Model::Paper`](super::Model) sees each duplicate alone.
    ///
    /// # Errors
    /// When there is no row, or rows differ in length.
    pub fn together(rows: &[Vec<Duration>]) -> Result<Self, OutOfRange> {
        let columns = rows.first().map_or(0, Vec::len);
        if columns == 0 {
            return Err(OutOfRange { came: 0.0, expected: "at least one row of service times" });
        }
        if let Some(row) = rows.iter().find(|row| row.len() != columns) {
            let expected = "rows with a time of every duplicate";
            return Err(OutOfRange { came: row.len() as f64, expected });
        }
        let column = |n: usize| Times::of_nanos(rows.iter().map(|row| nanos(row[n])).collect());
        let marginals = (0..columns).map(column).collect::<Result<_, _>>()?;
        let rows = rows.iter().flatten().map(|&time| nanos(time)).collect();
        Ok(Self { kind: Duplicates::Together { marginals, rows } })
    }

    /// How many duplicates' times are known; none when all are alike.
    pub fn duplicates_max(&self) -> Option<usize> {
        match &self.kind {
            Duplicates::Alike(_) => None,
            Duplicates::Each(times) => Some(times.len()),
            Duplicates::Together { marginals, .. } => Some(marginals.len()),
        }
    }

    /// The times of one duplicate, from 0, whatever the others do.
    ///
    /// # Panics
    /// When the times of so many are not known.
    pub fn of(&self, duplicate: usize) -> &Times {
        match &self.kind {
            Duplicates::Alike(times) => times,
            Duplicates::Each(times) => &times[duplicate],
            Duplicates::Together { marginals, .. } => &marginals[duplicate],
        }
    }

    /// Rows of service times in nanoseconds, if they were recorded together.
    pub(super) fn rows(&self) -> Option<core::slice::ChunksExact<'_, u64>> {
        match &self.kind {
            Duplicates::Together { marginals, rows } => Some(rows.chunks_exact(marginals.len())),
            _ => None,
        }
    }

    /// The share of accesses that every one of these duplicates serves in more than this, without
    /// any queue: the paper's base model, or what was recorded where they were recorded together.
    pub(super) fn all_late(&self, duplicates: &[usize], bound_nanos: u64) -> f64 {
        match self.rows() {
            None => duplicates.iter().map(|&n| self.of(n).late(bound_nanos)).product(),
            Some(rows) => {
                let count = rows.len() as f64;
                let late = |row: &&[u64]| duplicates.iter().all(|&n| row[n] > bound_nanos);
                rows.filter(late).count() as f64 / count
            }
        }
    }
}
