//! Welch's t-test: whether two sets of runs differ by more than their luck.
//!
//! **Why beside paired intervals**: the brownout paper compares with it, so that its words
//! "significantly better" and "similar" can be checked in its own terms. It asks less of the runs
//! than a paired interval (no common random numbers) and therefore sees less. **When it misleads**:
//! a small p says that a difference is there, not that it matters, and a large one does not say
//! that there is none: ten seeds simply may not show it.
//! **Source**: Welch 1947 (Biometrika 34); the distribution by DLMF 8.17 (incomplete beta).

use serde::Serialize;

use crate::stats::moments;

/// The paper's level: a smaller p is a significant difference.
pub const SIGNIFICANT: f64 = 0.01;

/// A two-sided test of the difference between two means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Welch {
    /// Difference of the means over its standard error; positive when the first is greater.
    pub t: f64,
    /// Welch and Satterthwaite's degrees of freedom.
    pub degrees_of_freedom: f64,
    /// How often luck alone gives a difference as large: 0 to 1.
    pub p: f64,
}

impl Welch {
    /// Tests `a` against `b`; `None` for fewer than two values on a side, or when no value differs
    /// from its mean.
    pub fn test(a: &[f64], b: &[f64]) -> Option<Self> {
        let ((mean_a, deviation_a), (mean_b, deviation_b)) = (moments(a)?, moments(b)?);
        let error =
            StandardError::of(deviation_a, a.len()).plus(StandardError::of(deviation_b, b.len()));
        let scale = error.variance.sqrt();
        if scale <= 0.0 || !scale.is_finite() {
            return None;
        }
        let (t, degrees_of_freedom) = ((mean_a - mean_b) / scale, error.degrees_of_freedom());
        Some(Self { t, degrees_of_freedom, p: two_sided(t, degrees_of_freedom) })
    }

    /// The test in the paper's words.
    pub fn words(&self) -> &'static str {
        match self.p < SIGNIFICANT {
            false => "similar",
            true if self.t > 0.0 => "higher",
            true => "lower",
        }
    }
}

/// The squared standard error of a mean or of a difference of means, and how well it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandardError {
    /// Its square.
    pub(crate) variance: f64,
    /// Sum of the squared parts, each over its own degrees of freedom.
    doubt: f64,
}

impl StandardError {
    /// Of the mean of `count` values with this standard deviation.
    ///
    /// # Panics
    /// When there are fewer than two values.
    pub(crate) fn of(deviation: f64, count: usize) -> Self {
        assert!(count >= 2, "a deviation takes two values");
        let variance = deviation * deviation / count as f64;
        Self { variance, doubt: variance * variance / (count as f64 - 1.0) }
    }

    /// Of the difference of two independent means.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { variance: self.variance + other.variance, doubt: self.doubt + other.doubt }
    }

    /// Welch and Satterthwaite's.
    pub(crate) fn degrees_of_freedom(self) -> f64 {
        self.variance * self.variance / self.doubt
    }
}

/// P(|T| ≥ |t|) of Student's distribution.
///
/// # Panics
/// When there are not more than 0 degrees of freedom.
pub fn two_sided(t: f64, degrees_of_freedom: f64) -> f64 {
    assert!(degrees_of_freedom > 0.0, "there is no distribution without degrees of freedom");
    let square = t * t;
    incomplete_beta(
        degrees_of_freedom / 2.0,
        0.5,
        degrees_of_freedom / (degrees_of_freedom + square),
        square / (degrees_of_freedom + square),
    )
}

/// The 97.5 % quantile of Student's t, also between whole degrees of freedom.
///
/// # Panics
/// As [`two_sided`].
pub fn quantile_975(degrees_of_freedom: f64) -> f64 {
    // 12.7 at one degree of freedom; fewer are hardly met.
    let (mut low, mut high) = (0.0_f64, 1e6_f64);
    while high - low > 1e-9 * high {
        let middle = low.midpoint(high);
        *(if two_sided(middle, degrees_of_freedom) > 0.05 { &mut low } else { &mut high }) = middle;
    }
    high
}

/// The regularised incomplete beta function Iₓ(a, b), with `rest` = 1 − x given apart so that it
/// keeps its digits when x is close to 1. The continued fraction converges quickly on one side of
/// the mean; on the other the function is one minus its mirror image.
fn incomplete_beta(a: f64, b: f64, x: f64, rest: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if rest <= 0.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, rest, x);
    }
    let constant = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b);
    (constant + a * x.ln() + b * rest.ln()).exp() / (a * continued_fraction(a, b, x))
}

/// DLMF 8.17.22: 1 + d₁/(1 + d₂/(1 + …)), from the front (Lentz's method, as Thompson and Barnett
/// put it).
fn continued_fraction(a: f64, b: f64, x: f64) -> f64 {
    const STEPS_MAX: u32 = 500;
    const NEVER_ZERO: f64 = 1e-300;
    let nonzero = |value: f64| if value.abs() < NEVER_ZERO { NEVER_ZERO } else { value };
    let (mut value, mut above, mut below) = (1.0, 1.0, 0.0);
    for step in 1..=STEPS_MAX {
        let part = beta_coefficient(a, b, x, step);
        below = 1.0 / nonzero(1.0 + part * below);
        above = nonzero(1.0 + part / above);
        let change = above * below;
        value *= change;
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// The coefficient dₙ of the fraction, n from 1.
fn beta_coefficient(a: f64, b: f64, x: f64, n: u32) -> f64 {
    let m = f64::from(n / 2);
    if n.is_multiple_of(2) {
        m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
    } else {
        -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Student's distribution in closed form for 1, 2 and 4 degrees of freedom.
    #[test]
    fn few_degrees_of_freedom_have_closed_forms() {
        for t in [0.01_f64, 0.3, 1.0, 2.5, 7.0, 40.0, 1e3, 1e5] {
            let cauchy = 2.0 / core::f64::consts::PI * (1.0 / t).atan();
            let root = (2.0 + t * t).sqrt();
            let two = 2.0 / (root * (root + t)); // = 1 − t/√(2+t²), without cancellation
            for (v, truth) in [(1.0, cauchy), (2.0, two)] {
                let reported = two_sided(t, v);
                assert!(
                    (reported / truth - 1.0).abs() < 1e-12,
                    "{reported} for {truth} at t = {t}"
                );
            }
            let u = t / (4.0 + t * t).sqrt();
            let four = 1.0 - (1.5 * u - 0.5 * u.powi(3));
            assert!((two_sided(t, 4.0) - four).abs() < 1e-14, "t = {t}");
        }
    }

    /// Two-sided critical values of printed t tables.
    #[test]
    fn printed_tables_agree() {
        for (v, t, p) in [
            (5.0, 2.571, 0.05),
            (5.0, 6.869, 0.001),
            (9.0, 2.262, 0.05),
            (10.0, 3.169, 0.01),
            (10.0, 4.587, 0.001),
            (30.0, 2.750, 0.01),
            (120.0, 3.373, 0.001),
        ] {
            let reported = two_sided(t, v);
            assert!((reported / p - 1.0).abs() < 2e-3, "{reported} for {p} with {v}");
        }
        assert!((quantile_975(9.0) - 2.262).abs() < 5e-4, "{}", quantile_975(9.0));
        assert!(quantile_975(9.0) > quantile_975(9.5) && quantile_975(9.5) > quantile_975(10.0));
        assert!((two_sided(1.959_964, 1e7) - 0.05).abs() < 1e-6, "the normal limit");
        assert_eq!((two_sided(0.0, 7.0), two_sided(f64::INFINITY, 7.0)), (1.0, 0.0));
    }

    #[test]
    fn far_tails_keep_their_digits() {
        // For large t the tail is a power: doubling t divides it by 2^v.
        let (near, far) = (two_sided(1e4, 9.0), two_sided(2e4, 9.0));
        assert!(near > 0.0 && near < 1e-30);
        assert!((near / far / 512.0 - 1.0).abs() < 1e-6, "{near} {far}");
    }

    /// Student's sleep data (1908), for which the textbooks' t.test says t = −1.8608,
    /// df = 17.776, p = 0.07939.
    #[test]
    fn students_drugs() {
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let test = Welch::test(&first, &second).unwrap();
        assert!((test.t + 1.8608).abs() < 5e-5, "{test:?}");
        assert!((test.degrees_of_freedom - 17.776).abs() < 5e-4, "{test:?}");
        assert!((test.p - 0.07939).abs() < 5e-6, "{test:?}");
        assert_eq!(test.words(), "similar");
    }

    /// Unequal sizes and variances: the worked example that encyclopaedias give for Welch's test,
    /// t = −2.22, ν = 24.5, p = 0.036.
    #[test]
    fn unequal_sizes() {
        let first = [19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0];
        let second = [
            28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7, 23.2, 17.5, 20.6, 18.0,
            23.9, 21.6, 24.3, 20.4, 24.0, 13.2,
        ];
        let test = Welch::test(&first, &second).unwrap();
        assert!((test.t + 2.22).abs() < 0.005, "{test:?}");
        assert!((test.degrees_of_freedom - 24.5).abs() < 0.05, "{test:?}");
        assert!((test.p - 0.036).abs() < 5e-4, "{test:?}");
        let mirrored = Welch::test(&second, &first).unwrap();
        assert_eq!((mirrored.t, mirrored.p), (-test.t, test.p));
    }

    #[test]
    fn equal_means_are_told_apart_about_once_in_a_hundred() {
        let mut rng = evenkeel_core::Rng::seeded(5);
        let mut normal = |scale: f64, count: usize| -> Vec<f64> {
            (0..count).map(|_| scale * rng.normal()).collect()
        };
        let significant = (0..20_000)
            .filter(|_| Welch::test(&normal(1.0, 10), &normal(3.0, 10)).unwrap().p < SIGNIFICANT)
            .count();
        // 20 000 trials at 1 %: 200 ± 14; the test is approximate, four deviations are allowed.
        assert!((144..=256).contains(&significant), "{significant}");
    }

    #[test]
    fn what_never_varies_cannot_be_tested() {
        assert_eq!(Welch::test(&[1.0, 1.0], &[2.0, 2.0]), None);
        assert_eq!(Welch::test(&[1.0], &[2.0, 3.0]), None);
    }
}
