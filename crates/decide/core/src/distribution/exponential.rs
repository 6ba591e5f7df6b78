//! Exponential latencies: memoryless service, and the reference of every queueing formula.

use super::{Distribution, positive, rounded, rounded_up};
use crate::rng::Rng;
use crate::time::{Duration, nanos};
use crate::units::{OutOfRange, Probability};

/// `P(latency <= t) = 1 - exp(-t / mean)`; the coefficient of variation is 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exponential {
    mean_nanos: f64,
}

impl Exponential {
    /// The exponential distribution of this mean.
    ///
    /// # Errors
    /// When the mean is zero.
    pub fn with_mean(mean: Duration) -> Result<Self, OutOfRange> {
        Ok(Self { mean_nanos: positive(mean, "a mean latency above zero")? })
    }
}

impl Distribution for Exponential {
    fn cdf(&self, at: Duration) -> Probability {
        Probability::clamped(-(-(nanos(at) as f64) / self.mean_nanos).exp_m1())
    }

    fn quantile(&self, p: Probability) -> Duration {
        rounded_up(-self.mean_nanos * (-p.value()).ln_1p())
    }

    fn mean(&self) -> Duration {
        rounded(self.mean_nanos)
    }

    fn sample(&self, rng: &mut Rng) -> Duration {
        rounded(self.mean_nanos * rng.exponential())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::LONGEST;

    #[test]
    fn follows_the_formula() {
        let service = Exponential::with_mean(Duration::from_millis(4)).unwrap();
        let within_mean = service.cdf(Duration::from_millis(4)).value();
        assert!((within_mean - (1.0 - 1.0 / core::f64::consts::E)).abs() < 1e-15);
        let median = service.quantile(Probability::new(0.5).unwrap());
        assert_eq!(median, Duration::from_nanos(2_772_589), "4 ms * ln 2, rounded up");
        assert_eq!(service.quantile(Probability::ONE), LONGEST);
        assert!(Exponential::with_mean(Duration::ZERO).is_err());
    }
}
