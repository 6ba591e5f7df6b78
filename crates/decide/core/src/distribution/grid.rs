//! A distribution on equal steps, for the arithmetic of planners: sums of latencies, mixtures,
//! the fastest of several, the k-th fastest (a quorum).
//!
//! **Error.** A latency is rounded up to the next grid point. A grid therefore never promises a
//! latency that the truth does not keep, and all operations preserve that order:
//! with `F` the true cdf and `G` the grid's, at every grid point up to the end
//!
//! - made of a distribution, mixed, fastest, k-th fastest: `G(t) = F(t)`, exactly (rounding aside);
//! - shifted, or the convolution of two: `F(t - step) <= G(t) <= F(t)`; each further one adds a
//!   step (a shift by a multiple of the step adds none).
//!
//! Between grid points the cdf keeps the value of the point before, so a quantile is less than
//! the same number of steps, plus one, too long. What lies beyond the end has no latency:
//! quantiles inside it are [`LONGEST`], the mean counts it at the end (a lower bound), and in a
//! sum it makes the sum lie beyond the end.
//!
//! **Cost.** Linear in the points, times `k * parts` for the k-th fastest; a convolution takes the
//! product of both lengths (1 000 points each: below a millisecond), exactly rather than
//! approximately as by Fourier transform, whose rounding noise of 1e-16 hides tails.

use super::combine::at_least_in;
use super::{Distribution, LONGEST, positive, rounded};
use crate::time::{Duration, nanos};
use crate::units::{OutOfRange, Probability, Weight};

/// The most steps a grid may have (512 KiB); longer results are cut, their rest lies beyond.
pub const GRID_POINTS_MAX: usize = 65_536;

/// The probability of a latency of at most 0, 1, 2, … steps, and of one beyond the last.
#[derive(Clone, PartialEq, Debug)]
pub struct Grid {
    step_nanos: u64,
    /// `below[k]` is the probability of at most `k` steps; never empty, never falling.
    below: Vec<f64>,
}

impl Grid {
    /// The distribution `latency` on steps of `step` up to `end` (or the first step after it).
    ///
    /// # Errors
    /// When the step is zero or there would be more than [`GRID_POINTS_MAX`] points.
    pub fn of(
        latency: &dyn Distribution,
        step: Duration,
        end: Duration,
    ) -> Result<Self, OutOfRange> {
        positive(step, "a grid step above zero")?;
        let step_nanos = nanos(step);
        let steps = nanos(end).div_ceil(step_nanos);
        if steps >= GRID_POINTS_MAX as u64 {
            let expected = "fewer than 65536 grid steps (end / step): use a longer step";
            return Err(OutOfRange { came: steps as f64, expected });
        }
        let at = |k: u64| Duration::from_nanos(k.saturating_mul(step_nanos));
        let below = (0..=steps).map(|k| latency.cdf(at(k)).value());
        Ok(Self { step_nanos, below: below.collect() })
    }

    /// The distance of neighbouring grid points.
    pub fn step(&self) -> Duration {
        Duration::from_nanos(self.step_nanos)
    }

    /// The last grid point.
    pub fn end(&self) -> Duration {
        self.at(self.below.len() - 1)
    }

    /// The probability of a latency beyond the end.
    pub fn beyond(&self) -> Probability {
        Probability::clamped(self.whole()).complement()
    }

    /// Every grid point with the probability of a latency of at most that, for curves.
    pub fn points(&self) -> impl Iterator<Item = (Duration, Probability)> + '_ {
        let point = |(k, &below)| (self.at(k), Probability::clamped(below));
        self.below.iter().enumerate().map(point)
    }

    /// The distribution of a latency that is `by` longer, rounded up to whole steps.
    #[must_use]
    pub fn shift(&self, by: Duration) -> Self {
        let steps = nanos(by).div_ceil(self.step_nanos).min(GRID_POINTS_MAX as u64) as usize;
        let below = core::iter::repeat_n(0.0, steps).chain(self.below.iter().copied());
        Self { step_nanos: self.step_nanos, below: below.take(GRID_POINTS_MAX).collect() }
    }

    /// The distribution of a latency that comes from each part as often as its weight says.
    ///
    /// # Errors
    /// When there is no part, or the parts' steps differ.
    pub fn mix(parts: &[(Weight, &Self)]) -> Result<Self, OutOfRange> {
        let heaviest = parts.iter().map(|(weight, _)| weight.value()).fold(0.0, f64::max);
        let total: f64 = parts.iter().map(|(weight, _)| weight.value() / heaviest).sum();
        let shares: Vec<(f64, &Self)> =
            parts.iter().map(|&(weight, grid)| (weight.value() / heaviest / total, grid)).collect();
        let (step_nanos, points) = common(parts.iter().map(|&(_, grid)| grid))?;
        let mixed = |k| shares.iter().map(|(share, grid)| share * grid.below_at(k)).sum::<f64>();
        Ok(Self::rising(step_nanos, (0..points).map(mixed)))
    }

    /// The distribution of the sum of two independent latencies.
    ///
    /// Reaches to the sum of both ends, cut at [`GRID_POINTS_MAX`] points. Costs the product of
    /// both lengths; points without probability in `self` cost nothing.
    ///
    /// # Errors
    /// When the steps differ.
    pub fn convolve(&self, other: &Self) -> Result<Self, OutOfRange> {
        let (step_nanos, _) = common([self, other].into_iter())?;
        let points = self.below.len() + other.below.len() - 1;
        let mut masses = vec![0.0; points.min(GRID_POINTS_MAX)];
        let added: Vec<f64> = other.masses().collect();
        for (k, mass) in self.masses().enumerate().take(masses.len()) {
            if mass > 0.0 {
                let sums = masses[k..].iter_mut().zip(&added);
                sums.for_each(|(sum, &other_mass)| *sum += mass * other_mass);
            }
        }
        let mut below = 0.0;
        let cumulative = masses.iter().map(|mass| {
            below += mass;
            below
        });
        let whole = self.whole() * other.whole();
        let mut sum = Self::rising(step_nanos, cumulative.map(|below| below.min(whole)));
        if points <= GRID_POINTS_MAX {
            // All that is not beyond lies on the grid: what rounding lost belongs to the end.
            *sum.below.last_mut().expect("a grid has a point") = whole;
        }
        Ok(sum)
    }

    /// The distribution of the fastest of independent copies of this latency: `1 - (1 - F)^n`.
    #[cfg(test)]
    #[must_use]
    pub fn fastest_of(&self, copies: core::num::NonZeroU32) -> Self {
        let copies = f64::from(copies.get());
        let fastest = self.below.iter().map(|below| -(copies * (-below).ln_1p()).exp_m1());
        Self::rising(self.step_nanos, fastest)
    }

    /// The distribution of the fastest of different independent latencies.
    ///
    /// # Errors
    /// When there is no part, or the parts' steps differ.
    pub fn fastest(parts: &[&Self]) -> Result<Self, OutOfRange> {
        Self::kth_fastest(parts, 1)
    }

    /// The distribution of the moment when `k` of these independent latencies have passed: how
    /// long a quorum of `k` takes.
    ///
    /// # Errors
    /// When `k` is not between 1 and the number of parts, or the parts' steps differ.
    pub fn kth_fastest(parts: &[&Self], k: usize) -> Result<Self, OutOfRange> {
        let (step_nanos, points) = common(parts.iter().copied())?;
        if !(1..=parts.len()).contains(&k) {
            let expected = "a k between 1 and the number of parts";
            return Err(OutOfRange { came: k as f64, expected });
        }
        let mut reached = vec![0.0; k + 1];
        let mut quorum_at = |point: usize| {
            at_least_in(&mut reached, parts.iter().map(|part| part.below_at(point))).value()
        };
        Ok(Self::rising(step_nanos, (0..points).map(&mut quorum_at)))
    }

    /// Collects a cdf, smoothing away falls and excesses that rounding may have left.
    fn rising(step_nanos: u64, below: impl Iterator<Item = f64>) -> Self {
        let mut highest = 0.0_f64;
        let below = below.map(|value| {
            highest = highest.max(value.min(1.0));
            highest
        });
        Self { step_nanos, below: below.collect() }
    }

    fn at(&self, point: usize) -> Duration {
        Duration::from_nanos((point as u64).saturating_mul(self.step_nanos))
    }

    /// The cdf at a point that may lie past the end.
    fn below_at(&self, point: usize) -> f64 {
        self.below.get(point).copied().unwrap_or(self.whole())
    }

    /// The probability of a latency up to the end.
    fn whole(&self) -> f64 {
        *self.below.last().expect("a grid has a point")
    }

    fn masses(&self) -> impl Iterator<Item = f64> + '_ {
        let mut before = 0.0;
        self.below.iter().map(move |&below| below - core::mem::replace(&mut before, below))
    }
}

/// The common step of the parts and the length of the longest.
fn common<'a>(
    mut parts: impl Iterator<Item = &'a Grid> + Clone,
) -> Result<(u64, usize), OutOfRange> {
    let points = parts.clone().map(|part| part.below.len()).max();
    let points = points.ok_or(OutOfRange { came: 0.0, expected: "at least one grid" })?;
    let step_nanos = parts.next().expect("there is a longest part").step_nanos;
    if let Some(other) = parts.find(|part| part.step_nanos != step_nanos) {
        let expected = "the step of the first grid (ns)";
        return Err(OutOfRange { came: other.step_nanos as f64, expected });
    }
    Ok((step_nanos, points))
}

impl Distribution for Grid {
    fn cdf(&self, at: Duration) -> Probability {
        if at >= LONGEST {
            return Probability::ONE;
        }
        let point = (nanos(at) / self.step_nanos).min(GRID_POINTS_MAX as u64);
        Probability::clamped(self.below_at(point as usize))
    }

    fn quantile(&self, p: Probability) -> Duration {
        // For p = 0 the lower end of the support: the first point with any probability.
        let p = p.value().max(f64::MIN_POSITIVE);
        let point = self.below.partition_point(|&below| below < p);
        if point < self.below.len() { self.at(point) } else { LONGEST }
    }

    fn mean(&self) -> Duration {
        let steps: f64 = self.masses().enumerate().map(|(k, mass)| k as f64 * mass).sum();
        let beyond = self.beyond().value() * (self.below.len() - 1) as f64;
        rounded((steps + beyond) * self.step_nanos as f64)
    }
}
