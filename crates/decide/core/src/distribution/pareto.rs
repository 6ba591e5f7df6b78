//! Pareto latencies: tails that fall as a power, as pauses and compactions make them.

use super::{Distribution, LONGEST, positive, rounded, rounded_up};
use crate::time::{Duration, nanos};
use crate::units::{OutOfRange, Probability};

/// `P(latency > t) = (minimum / t)^shape` from a minimum on, optionally cut at a maximum.
///
/// Without a maximum the mean is infinite for a shape of at most 1 and the variance for one of at
/// most 2; averages of samples then do not settle.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pareto {
    minimum_nanos: f64,
    /// Infinite for the classic form.
    maximum_nanos: f64,
    shape: f64,
}

impl Pareto {
    /// The classic Pareto distribution.
    ///
    /// # Errors
    /// When the minimum is zero or the shape is not positive and finite.
    pub fn new(minimum: Duration, shape: f64) -> Result<Self, OutOfRange> {
        let minimum_nanos = positive(minimum, "a minimum latency above zero")?;
        if !(shape > 0.0 && shape.is_finite()) {
            return Err(OutOfRange { came: shape, expected: "a shape above 0" });
        }
        Ok(Self { minimum_nanos, maximum_nanos: f64::INFINITY, shape })
    }

    /// The Pareto distribution given that the latency is at most `maximum`.
    ///
    /// # Errors
    /// As [`new`](Self::new), and when `maximum` is not above `minimum`.
    pub fn bounded(minimum: Duration, maximum: Duration, shape: f64) -> Result<Self, OutOfRange> {
        let classic = Self::new(minimum, shape)?;
        let maximum_nanos = nanos(maximum) as f64;
        if maximum_nanos <= classic.minimum_nanos {
            let expected = "a maximum latency (ns) above the minimum";
            return Err(OutOfRange { came: maximum_nanos, expected });
        }
        Ok(Self { maximum_nanos, ..classic })
    }

    /// The share of the classic distribution that lies below the maximum: `1 - (L/H)^exponent`.
    fn below_maximum(&self, exponent: f64) -> f64 {
        -(exponent * (self.minimum_nanos / self.maximum_nanos).ln()).exp_m1()
    }
}

impl Distribution for Pareto {
    fn cdf(&self, at: Duration) -> Probability {
        let at_nanos = nanos(at) as f64;
        if at_nanos <= self.minimum_nanos {
            return Probability::ZERO;
        }
        // Latencies beyond the longest that can be told are told as the longest.
        if at_nanos >= self.maximum_nanos || at >= LONGEST {
            return Probability::ONE;
        }
        let within = -(self.shape * (self.minimum_nanos / at_nanos).ln()).exp_m1();
        Probability::clamped(within / self.below_maximum(self.shape))
    }

    fn quantile(&self, p: Probability) -> Duration {
        let log_tail = (-p.value() * self.below_maximum(self.shape)).ln_1p();
        let at_nanos = self.minimum_nanos * (-log_tail / self.shape).exp();
        rounded_up(at_nanos.min(self.maximum_nanos))
    }

    fn mean(&self) -> Duration {
        let excess = self.shape - 1.0;
        let factor = if excess == 0.0 {
            (self.maximum_nanos / self.minimum_nanos).ln()
        } else {
            self.shape * self.below_maximum(excess) / excess
        };
        rounded(self.minimum_nanos * factor / self.below_maximum(self.shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::LONGEST;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn a_tail_beyond_all_time_ends_at_the_longest_latency() {
        // P(X > 584 years) is 0.09 at this shape: the quantile is the end, and the end is certain.
        let pareto = Pareto::new(Duration::from_millis(468), 0.1).unwrap();
        let end = pareto.quantile(Probability::clamped(0.97));
        assert_eq!(pareto.cdf(end), Probability::ONE);
        assert!(pareto.cdf(end / 2).value() < 0.95);
    }

    #[test]
    fn classic_follows_the_formula() {
        let pareto = Pareto::new(MILLISECOND, 2.0).unwrap();
        assert!((pareto.cdf(Duration::from_millis(10)).value() - 0.99).abs() < 1e-14);
        let p99 = pareto.quantile(Probability::new(0.99).unwrap());
        assert!(nanos(p99).abs_diff(10_000_000) <= 1, "{p99:?}");
        assert_eq!(pareto.mean(), Duration::from_millis(2));
        assert_eq!(pareto.quantile(Probability::ZERO), MILLISECOND);
        assert_eq!(pareto.quantile(Probability::ONE), LONGEST);
        for heavy in [1.0, 0.5] {
            assert_eq!(Pareto::new(MILLISECOND, heavy).unwrap().mean(), LONGEST);
        }
    }

    /// The mean is the integral of the tail: `L + ∫ (1 - F)`, here by the midpoint rule.
    #[test]
    fn bounded_mean_is_the_integral_of_its_tail() {
        let maximum = Duration::from_millis(50);
        for shape in [0.3, 1.0, 1.000_001, 1.5, 4.0] {
            let pareto = Pareto::bounded(MILLISECOND, maximum, shape).unwrap();
            let step = Duration::from_nanos(1_000);
            let tail = |k: u32| {
                let middle = MILLISECOND + step * k + step / 2;
                pareto.cdf(middle).complement().value()
            };
            let integral = 1e6 + 1e3 * (0..49_000).map(tail).sum::<f64>();
            let error = nanos(pareto.mean()) as f64 / integral - 1.0;
            assert!(error.abs() < 1e-5, "shape {shape}: {error}");
            assert_eq!(pareto.quantile(Probability::ONE), maximum);
            assert_eq!(pareto.cdf(maximum), Probability::ONE);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Pareto::new(Duration::ZERO, 1.0).is_err());
        for shape in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Pareto::new(MILLISECOND, shape).is_err());
        }
        assert!(Pareto::bounded(MILLISECOND, MILLISECOND, 1.0).is_err());
    }
}
