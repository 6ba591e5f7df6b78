//! Latency distributions: the one vocabulary of the request, site and placement loops.
//!
//! | file | what it is | who asks |
//! |---|---|---|
//! | `recorder.rs` | what was measured, with bounded relative error | reports, `/metrics` |
//! | `rolling.rs` | the same over the last one or two periods, with a cached quantile | hedging |
//! | `empirical.rs` | exact samples or weighted points | profiles, traces |
//! | `exponential.rs` `lognormal.rs` `pareto.rs` | formulas | simulated servers, references |
//! | `grid.rs` | equal steps: shift, mix, convolve, fastest of n, k-th fastest | planners |
//! | `combine.rs` | the same two last questions at one latency bound | service-level models |
//! | `divergence.rs` | have two windows the same distribution? | when to plan anew |
//!
//! **Conventions.** A latency is a whole number of nanoseconds. `quantile(p)` is the smallest
//! latency `t` with `cdf(t) >= p` (the Galois inequality: `quantile(p) <= t` exactly when
//! `p <= cdf(t)`), so it is always a latency that the distribution can take, never an
//! interpolation. `quantile(0)` is the lower end of the support. What is not a finite latency
//! (the mean of a Pareto distribution with shape 1, a quantile inside the mass beyond a grid) is
//! [`LONGEST`]. Formulas round up to the next nanosecond.
//!
//! **When they mislead.** Every combination here assumes independence. Copies of a request that
//! wait behind the same burst are not independent: a model that subtracts the mean wait from the
//! bound and multiplies (Zoolander's) promises violations 35 times too rare for two copies and
//! 20 000 times for four, at utilisation 0.4 (simulated M/G/1). Service levels with queueing need
//! a simulation of the shared arrivals, not a product.

pub mod combine;
mod counts;
pub mod divergence;
mod empirical;
mod exponential;
mod grid;
mod lognormal;
pub mod normal;
mod pareto;
mod recorder;
mod rolling;

#[cfg(test)]
mod laws;

pub use counts::{Bucket, RECORDED_MAX, RESOLUTION};
pub use divergence::Divergence;
pub use empirical::Empirical;
pub use exponential::Exponential;
pub use grid::{GRID_POINTS_MAX, Grid};
pub use lognormal::LogNormal;
pub use pareto::Pareto;
pub use recorder::Recorder;
pub use rolling::RollingRecorder;

use crate::rng::Rng;
use crate::time::Duration;
use crate::units::Probability;

/// The longest latency there is, 584 years: it stands for "no finite latency".
pub const LONGEST: Duration = Duration::from_nanos(u64::MAX);

/// How long something takes, as a probability for every bound.
pub trait Distribution {
    /// The probability of a latency of at most `at`. Never falls as `at` grows.
    fn cdf(&self, at: Duration) -> Probability;

    /// The smallest latency whose [`cdf`](Self::cdf) reaches `p`; for zero the lower end of the
    /// support, [`LONGEST`] where no finite latency reaches `p`.
    fn quantile(&self, p: Probability) -> Duration;

    /// The mean latency, [`LONGEST`] when it is infinite.
    fn mean(&self) -> Duration;

    /// Draws a latency: by inverse transform unless the type knows a faster way.
    fn sample(&self, rng: &mut Rng) -> Duration {
        self.quantile(Probability::clamped(rng.unit()))
    }
}

/// The whole nanoseconds at or above this number; NaN and negatives are zero, infinity saturates.
fn rounded_up(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.ceil() as u64)
}

/// The nearest whole nanoseconds; NaN and negatives are zero, infinity saturates.
fn rounded(nanos: f64) -> Duration {
    Duration::from_nanos(nanos.round() as u64)
}

/// Checks a length that must not be zero, and returns its nanoseconds.
fn positive(length: Duration, expected: &'static str) -> Result<f64, crate::units::OutOfRange> {
    if length.is_zero() {
        return Err(crate::units::OutOfRange { came: 0.0, expected });
    }
    Ok(crate::time::nanos(length) as f64)
}
