//! Log-normal latencies: what most services' bodies look like (a product of many small factors).
//!
//! It has all moments, so it understates far tails that come from pauses: mix in a
//! [`Pareto`](super::Pareto) part for those.

use super::{Distribution, normal, positive, rounded, rounded_up};
use crate::rng::Rng;
use crate::time::{Duration, nanos};
use crate::units::{OutOfRange, Probability};

/// A latency whose logarithm is normal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LogNormal {
    /// The mean of the logarithm of the latency in nanoseconds.
    mu: f64,
    /// The standard deviation of the logarithm.
    sigma: f64,
}

impl LogNormal {
    /// The log-normal distribution of this median and this standard deviation `sigma` of the
    /// natural logarithm; a `sigma` of zero is a constant.
    ///
    /// # Errors
    /// When the median is zero or `sigma` is not between 0 and 100.
    pub fn with_median_sigma(median: Duration, sigma: f64) -> Result<Self, OutOfRange> {
        let mu = positive(median, "a median latency above zero")?.ln();
        if !(0.0..=100.0).contains(&sigma) {
            return Err(OutOfRange { came: sigma, expected: "a sigma between 0 and 100" });
        }
        Ok(Self { mu, sigma })
    }

    /// The log-normal distribution of this mean and coefficient of variation (standard deviation
    /// over mean); a coefficient of zero is a constant.
    ///
    /// # Errors
    /// When the mean is zero or the coefficient is not between 0 and 1e6.
    pub fn with_mean_cv(mean: Duration, cv: f64) -> Result<Self, OutOfRange> {
        let mean_nanos = positive(mean, "a mean latency above zero")?;
        if !(0.0..=1e6).contains(&cv) {
            let expected = "a coefficient of variation between 0 and 1e6";
            return Err(OutOfRange { came: cv, expected });
        }
        let variance = (cv * cv).ln_1p();
        Ok(Self { mu: mean_nanos.ln() - 0.5 * variance, sigma: variance.sqrt() })
    }

    fn at_normal(&self, deviation: f64) -> f64 {
        if self.sigma == 0.0 {
            // Zero times an infinite deviation would be NaN.
            return self.mu.exp();
        }
        (self.mu + self.sigma * deviation).exp()
    }
}

impl Distribution for LogNormal {
    fn cdf(&self, at: Duration) -> Probability {
        if self.sigma == 0.0 {
            let reached = at >= self.quantile(Probability::ONE);
            return if reached { Probability::ONE } else { Probability::ZERO };
        }
        Probability::clamped(normal::cdf(((nanos(at) as f64).ln() - self.mu) / self.sigma))
    }

    fn quantile(&self, p: Probability) -> Duration {
        if self.sigma == 0.0 {
            // exp(ln(mean)) is not quite the mean: rounding up would add a nanosecond.
            return self.mean();
        }
        rounded_up(self.at_normal(normal::quantile(p.value())))
    }

    fn mean(&self) -> Duration {
        rounded((self.mu + 0.5 * self.sigma * self.sigma).exp())
    }

    fn sample(&self, rng: &mut Rng) -> Duration {
        rounded(self.at_normal(rng.normal()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_cv_are_what_was_asked_for() {
        let mean = Duration::from_millis(10);
        let service = LogNormal::with_mean_cv(mean, 0.5).unwrap();
        assert_eq!(service.mean(), mean);
        let mut rng = Rng::seeded(3);
        let draws: Vec<f64> =
            (0..200_000).map(|_| crate::time::millis(service.sample(&mut rng))).collect();
        let average = draws.iter().sum::<f64>() / 2e5;
        let variance = draws.iter().map(|x| (x - average).powi(2)).sum::<f64>() / 2e5;
        // Standard errors: 0.011 of the mean, below 0.1 of the variance of 25.
        assert!((average - 10.0).abs() < 0.06, "{average}");
        assert!((variance - 25.0).abs() < 0.6, "{variance}");
    }

    #[test]
    fn median_and_p975_follow_the_formula() {
        let service = LogNormal::with_median_sigma(Duration::from_millis(1), 1.0).unwrap();
        assert!((service.cdf(Duration::from_millis(1)).value() - 0.5).abs() < 1e-14);
        let p975 = service.quantile(Probability::new(0.975).unwrap());
        let expected_nanos = 1e6 * 1.959_963_984_540_054_f64.exp();
        assert!((nanos(p975) as f64 - expected_nanos).abs() <= 1.0, "{p975:?}");
        assert_eq!(service.cdf(Duration::ZERO), Probability::ZERO);
    }

    #[test]
    fn no_variation_is_a_constant() {
        let mean = Duration::from_nanos(123_456_789);
        let constant = LogNormal::with_mean_cv(mean, 0.0).unwrap();
        assert_eq!(constant.quantile(Probability::ZERO), mean);
        assert_eq!(constant.quantile(Probability::ONE), mean);
        assert_eq!(constant.cdf(mean), Probability::ONE);
        assert_eq!(constant.cdf(mean - Duration::from_nanos(1)), Probability::ZERO);
        assert_eq!(constant.sample(&mut Rng::seeded(1)), mean);
    }

    #[test]
    fn nonsense_is_refused() {
        let second = Duration::from_secs(1);
        for bad in [f64::NAN, -1.0, f64::INFINITY] {
            assert!(LogNormal::with_mean_cv(second, bad).is_err());
            assert!(LogNormal::with_median_sigma(second, bad).is_err());
        }
        assert!(LogNormal::with_mean_cv(Duration::ZERO, 1.0).is_err());
        assert!(LogNormal::with_median_sigma(Duration::ZERO, 1.0).is_err());
    }
}
