//! What ten runs say about a claim: means, intervals, verdicts.
//!
//! **Which statistic**: latencies of different policies are compared as *ratios of paired runs*.
//! Policies at one seed meet the same arrivals, the same work and the same fluctuations, so most of
//! the luck of a seed cancels in the ratio, and a tail that doubles weighs the same whether it
//! doubles from 20 ms or from 200 ms. The logarithms of the ratios are close to normal even when
//! the latencies are skewed; their mean gets Student's 95 % interval, and both are shown as ratios
//! again. **When it misleads**: an interval covers the luck of seeds and nothing else, neither a
//! wrong model nor a run too short for its slowest fluctuation; and of a hundred true intervals
//! five miss. With fewer than [`SEEDS_MIN`] seeds nothing is called settled.
//! **Source**: Student 1908; for common random numbers Law, *Simulation Modeling and Analysis*.

use serde::Serialize;

/// Seeds a verdict needs.
pub const SEEDS_MIN: usize = 10;

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The mean: arithmetic for differences, geometric for ratios and latencies.
    pub mean: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Values it rests on.
    pub seeds: usize,
}

/// What a claim says of a number: it lies between these, the ends excluded. An open end is
/// infinite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Lower end; minus infinity (JSON: null) when there is none.
    pub at_least: f64,
    /// Upper end; infinity (JSON: null) when there is none.
    pub at_most: f64,
}

evenkeel_core::named! {
    /// What became of a claim.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict {
        /// The interval lies wholly inside what was claimed.
        Reproduced = "reproduced",
        /// The interval lies wholly outside.
        NotReproduced = "not-reproduced",
        /// Neither: the interval crosses the edge, or the claim holds in some settings only.
        Depends = "depends",
        /// Nothing was measured: not applicable here, or skipped.
        NotMeasured = "not-measured",
    }
}

impl Verdict {
    /// The verdict in words: on a claim of others, or on a bar that was set for ourselves.
    pub const fn words(self, is_bar: bool) -> &'static str {
        match self {
            Self::Reproduced if is_bar => "held",
            Self::NotReproduced if is_bar => "missed",
            Self::Reproduced => "reproduced",
            Self::NotReproduced => "not reproduced",
            Self::Depends => "depends",
            Self::NotMeasured => "not measured",
        }
    }

    /// Judges an interval by a range: inside, outside or across an edge. Two policies that are
    /// exactly alike are at the edge: neither is better.
    pub fn of(interval: &Interval, range: &Range) -> Self {
        if interval.low > range.at_least && interval.high < range.at_most {
            Self::Reproduced
        } else if interval.high < range.at_least || interval.low > range.at_most {
            Self::NotReproduced
        } else {
            Self::Depends
        }
    }

    /// The verdict over several settings: theirs when they agree, otherwise it depends. What was
    /// not measured has no say.
    pub fn together(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts.into_iter().fold(Self::NotMeasured, |all, next| match (all, next) {
            (Self::NotMeasured, one) | (one, Self::NotMeasured) => one,
            (one, other) if one == other => one,
            _ => Self::Depends,
        })
    }

    /// Whether two verdicts cannot both be true: one says yes, the other no.
    pub fn contradicts(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Reproduced, Self::NotReproduced) | (Self::NotReproduced, Self::Reproduced)
        )
    }
}

/// The mean of differences `a − b` of paired runs; `None` for fewer than two pairs.
///
/// # Panics
/// When the two have different lengths: they are not pairs.
pub fn difference(a: &[f64], b: &[f64]) -> Option<Interval> {
    assert_eq!(a.len(), b.len(), "pairs come in pairs");
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    mean(&differences)
}

/// The geometric mean of ratios `a / b` of paired runs; `None` for fewer than two pairs or when a
/// value is not positive.
///
/// # Panics
/// When the two have different lengths: they are not pairs.
pub fn ratio(a: &[f64], b: &[f64]) -> Option<Interval> {
    assert_eq!(a.len(), b.len(), "pairs come in pairs");
    let positive = |values: &[f64]| values.iter().all(|value| *value > 0.0);
    if !positive(a) || !positive(b) {
        return None;
    }
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
    geometric_mean(&ratios)
}

/// The arithmetic mean with its 95 % interval; `None` for fewer than two values.
pub fn mean(values: &[f64]) -> Option<Interval> {
    let (mean, deviation) = moments(values)?;
    let seeds = values.len();
    let half = t_quantile_975(seeds - 1) * deviation / (seeds as f64).sqrt();
    Some(Interval { mean, low: mean - half, high: mean + half, seeds })
}

/// The geometric mean with its 95 % interval; `None` for fewer than two values or when one is not
/// positive.
pub fn geometric_mean(values: &[f64]) -> Option<Interval> {
    if values.iter().any(|value| *value <= 0.0) {
        return None;
    }
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    Some(exponential(mean(&logarithms)?))
}

/// Where, with 95 % certainty, the geometric mean of `future` further positive values of the same
/// kind lies; `None` as for [`geometric_mean`] or when `future` is 0.
///
/// This, not the interval of our own mean, is what one or two runs of another program are
/// compared with: they have luck of their own.
pub fn prediction(values: &[f64], future: usize) -> Option<Interval> {
    if future == 0 || values.iter().any(|value| *value <= 0.0) {
        return None;
    }
    let logarithms: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let (mean, deviation) = moments(&logarithms)?;
    let seeds = values.len();
    let spread = (1.0 / seeds as f64 + 1.0 / future as f64).sqrt();
    let half = t_quantile_975(seeds - 1) * deviation * spread;
    Some(exponential(Interval { mean, low: mean - half, high: mean + half, seeds }))
}

fn exponential(interval: Interval) -> Interval {
    let Interval { mean, low, high, seeds } = interval;
    Interval { mean: mean.exp(), low: low.exp(), high: high.exp(), seeds }
}

/// Mean and sample standard deviation; `None` for fewer than two values.
pub(crate) fn moments(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < 2 {
        return None;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    Some((mean, (squares / (count - 1.0)).sqrt()))
}

/// Student's t: the 97.5 % quantile for 1 to 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The normal distribution's.
const Z_975: f64 = 1.959_964;

/// The 97.5 % quantile of Student's t. Above 30 degrees of freedom the first terms of its
/// expansion around the normal quantile (Abramowitz and Stegun 26.7.5).
///
/// # Panics
/// With 0 degrees of freedom, where there is no distribution.
pub fn t_quantile_975(degrees_of_freedom: usize) -> f64 {
    assert!(degrees_of_freedom > 0, "a deviation takes two values");
    if let Some(quantile) = T_975.get(degrees_of_freedom - 1) {
        return *quantile;
    }
    let (z, v) = (Z_975, degrees_of_freedom as f64);
    let (z3, z5) = (z.powi(3), z.powi(5));
    z + (z3 + z) / (4.0 * v) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * v * v)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P(|t| ≤ x) by Simpson's rule over the density, whose constant Γ((v+1)/2) / (√(vπ) Γ(v/2))
    /// follows from the same integral: the whole must be 1. The substitution x = tan(θ)·√v turns
    /// the density into cos^(v−1)(θ) on (−π/2, π/2).
    fn probability_within(x: f64, v: f64) -> f64 {
        let integral = |end: f64| {
            let steps = 20_000;
            let width = end / f64::from(steps);
            let weight = |i: i32| match i {
                0 => 1.0,
                i if i == steps => 1.0,
                i if i % 2 == 1 => 4.0,
                _ => 2.0,
            };
            let height = |i: i32| (f64::from(i) * width).cos().abs().powf(v - 1.0);
            (0..=steps).map(|i| weight(i) * height(i)).sum::<f64>() * width / 3.0
        };
        integral((x / v.sqrt()).atan()) / integral(core::f64::consts::FRAC_PI_2)
    }

    #[test]
    fn quantiles_enclose_95_percent_of_students_density() {
        for v in (1..=30).chain([31, 45, 99, 1000]) {
            let inside = probability_within(t_quantile_975(v), v as f64);
            assert!((inside - 0.95).abs() < 1e-4, "{inside} at {v} degrees of freedom");
        }
    }

    #[test]
    fn quantiles_above_the_table_are_those_of_the_textbook() {
        for (v, textbook) in [(40, 2.021), (60, 2.000), (120, 1.980), (1_000_000, 1.960)] {
            assert!((t_quantile_975(v) - textbook).abs() < 6e-4, "{v}");
        }
    }

    #[test]
    fn students_own_example() {
        // Student 1908: additional hours of sleep by two drugs, ten patients; difference 1.58,
        // 95 % interval 0.70 to 2.46.
        let first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let interval = difference(&second, &first).unwrap();
        assert!((interval.mean - 1.58).abs() < 1e-9);
        assert!((interval.low - 0.70).abs() < 0.005, "{interval:?}");
        assert!((interval.high - 2.46).abs() < 0.005, "{interval:?}");
    }

    #[test]
    fn a_ratio_is_the_difference_of_logarithms_and_ignores_the_unit() {
        let (a, b) = ([2.0, 6.0, 4.0], [1.0, 2.0, 4.0]);
        let ln = |values: [f64; 3]| values.map(f64::ln);
        let (ratio, logs) = (ratio(&a, &b).unwrap(), difference(&ln(a), &ln(b)).unwrap());
        for (reported, truth) in
            [(ratio.mean, logs.mean), (ratio.low, logs.low), (ratio.high, logs.high)]
        {
            assert!((reported.ln() - truth).abs() < 1e-12);
        }
        let scaled = super::ratio(&a.map(|x| x * 1e6), &b.map(|x| x * 1e6)).unwrap();
        assert!((scaled.high / ratio.high - 1.0).abs() < 1e-12);
        assert!((ratio.mean - 6.0_f64.cbrt()).abs() < 1e-12, "cube root of 2 · 3 · 1");
    }

    #[test]
    fn intervals_cover_the_truth_about_95_times_in_100() {
        let mut rng = evenkeel_core::Rng::seeded(11);
        let (mut covered, mut predicted) = (0, 0);
        for _ in 0..4_000 {
            let values: Vec<f64> = (0..10).map(|_| (0.3 * rng.normal()).exp()).collect();
            let interval = geometric_mean(&values).unwrap();
            covered += u32::from(interval.low <= 1.0 && 1.0 <= interval.high);
            let future = (0.3 * (rng.normal() + rng.normal()) / 2.0).exp();
            let interval = prediction(&values, 2).unwrap();
            predicted += u32::from(interval.low <= future && future <= interval.high);
        }
        // 4 000 trials at 95 %: 3 800 ± 14; five deviations are allowed.
        assert!((3_730..=3_870).contains(&covered), "{covered}");
        assert!((3_730..=3_870).contains(&predicted), "{predicted}");
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(mean(&[1.0]), None);
        assert_eq!(ratio(&[1.0, 2.0], &[0.0, 1.0]), None);
        assert_eq!(geometric_mean(&[1.0, -1.0]), None);
        assert_eq!(prediction(&[1.0, 2.0], 0), None);
    }

    #[test]
    fn verdicts_look_at_the_whole_interval() {
        let interval = |low, high| Interval { mean: 1.0, low, high, seeds: 10 };
        let below_one = Range { at_least: f64::NEG_INFINITY, at_most: 1.0 };
        assert_eq!(Verdict::of(&interval(0.5, 0.9), &below_one), Verdict::Reproduced);
        assert_eq!(Verdict::of(&interval(0.9, 1.1), &below_one), Verdict::Depends);
        assert_eq!(Verdict::of(&interval(1.1, 1.2), &below_one), Verdict::NotReproduced);
        assert_eq!(Verdict::of(&interval(1.0, 1.0), &below_one), Verdict::Depends);
        let twice_to_thrice = Range { at_least: 2.0, at_most: 3.0 };
        assert_eq!(Verdict::of(&interval(3.1, 9.0), &twice_to_thrice), Verdict::NotReproduced);
        assert_eq!(Verdict::of(&interval(2.1, 2.9), &twice_to_thrice), Verdict::Reproduced);
        assert_eq!(Verdict::of(&interval(1.0, 9.0), &twice_to_thrice), Verdict::Depends);
    }

    #[test]
    fn settings_that_disagree_make_it_depend() {
        use Verdict::{Depends, NotMeasured, NotReproduced, Reproduced};
        for (verdicts, together) in [
            (vec![], NotMeasured),
            (vec![Reproduced, NotMeasured, Reproduced], Reproduced),
            (vec![NotReproduced, NotReproduced], NotReproduced),
            (vec![Reproduced, NotReproduced], Depends),
            (vec![Reproduced, Depends], Depends),
            (vec![Depends, NotMeasured, Depends, Reproduced], Depends),
        ] {
            assert_eq!(Verdict::together(verdicts), together);
        }
        assert!(Reproduced.contradicts(NotReproduced) && !Depends.contradicts(Reproduced));
    }
}
