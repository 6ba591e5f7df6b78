//! Have two windows of latencies the same distribution? If not, plans made from the first are
//! stale.
//!
//! Signal: the buckets of two recordings. Statistic: the *information gain*, in bits: how much a
//! latency tells about the window it came from. It is the entropy of both windows together less
//! their mean entropy, that is the Jensen–Shannon divergence weighted by sample counts: 0 when the
//! shares are equal, 1 when two windows of equal size have nothing in common, symmetric, finite
//! where a Kullback–Leibler divergence is not. Zoolander (ICAC'13, section 3.2) tracks "information
//! gain" between window CDFs and gives no formula; this is the usual meaning of the word.
//!
//! **Small samples.** Over the narrow buckets of a recorder any two windows look different: equal
//! distributions gain `(cells - 1) / (2 n ln 2)` bits on average, 0.36 bits with 100 cells and 200
//! samples in all. So the buckets are first joined to at most 9 cells, cut at quantiles of
//! both windows together: quarters for the body, 90 to 99.9 % because the tail is
//! what the plans are about, and none holds fewer than 16 samples. And `2 n ln 2` times the gain of
//! equal distributions is chi-squared with `cells - 1` degrees of freedom (Wilks), which gives
//! [`Divergence::noise_bits`], exceeded by chance once in a thousand comparisons.
//!
//! **Why not only Kolmogorov–Smirnov?** Its distance needs no cells and is reported too, but it
//! is blind where it matters here: a tail that grows from 1 % to 3 % moves it by 0.02, which is
//! noise below 19 000 samples in each window; the gain is significant half of the time with
//! 2 000 and nine times in ten with 4 000 (measured).
//!
//! **When it misleads.** Samples of one window must be nearly independent: a burst of requests
//! behind one pause counts as one observation, not a hundred, and looks like divergence. Record
//! a random sample of requests, or ask that several windows in a row diverge.

use super::Bucket;
use super::counts::side_by_side;
use crate::time::Duration;
use crate::units::Probability;

/// Where both windows together are cut into cells.
const CUTS: [f64; 8] = [0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999];
/// The fewest samples of a cell, both windows together: the chi-squared law needs about 5 of each.
const CELL_SAMPLES_MIN: u64 = 16;
/// The normal quantile of 99.9 %: one false alarm in a thousand.
const NOISE_NORMAL: f64 = 3.0902;

/// How much two windows of latencies differ, and how much of that may be chance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Divergence {
    /// The information gain in bits, from 0 (equal) to 1 (nothing in common).
    pub bits: f64,
    /// What windows of equal distribution and these sizes exceed once in a thousand times.
    pub noise_bits: f64,
    /// The Kolmogorov–Smirnov distance: the largest difference of the two cdfs.
    pub distance: Probability,
}

impl Divergence {
    /// Compares two recordings of equal precision, each in ascending buckets.
    ///
    /// `None` when either holds fewer than 16 samples: too few to tell.
    pub fn between(
        first: impl IntoIterator<Item = Bucket>,
        second: impl IntoIterator<Item = Bucket>,
    ) -> Option<Self> {
        let buckets: Vec<(Duration, u64, u64)> =
            side_by_side(first.into_iter(), second.into_iter()).collect();
        let counts = buckets.iter().fold([0, 0], |sum, &(_, a, b)| [sum[0] + a, sum[1] + b]);
        if counts.into_iter().min()? < CELL_SAMPLES_MIN {
            return None;
        }
        let cells = cells(&buckets, counts);
        Some(Self {
            bits: information_gain(&cells),
            noise_bits: noise_bits(cells.len(), counts[0] + counts[1]),
            distance: distance(&buckets, counts),
        })
    }

    /// Whether the difference is more than chance explains.
    pub fn is_significant(&self) -> bool {
        self.bits > self.noise_bits
    }
}

/// The information gain in bits of counts in common cells: how much the cell of a sample tells
/// about which of the two windows it came from. Zero when either window is empty.
pub fn information_gain(cells: &[[u64; 2]]) -> f64 {
    let total = |window: usize| cells.iter().map(|cell| cell[window] as f64).sum::<f64>();
    let windows = [total(0), total(1)];
    let all = windows[0] + windows[1];
    if windows[0] == 0.0 || windows[1] == 0.0 {
        return 0.0;
    }
    let term = |cell: &[u64; 2], window: usize| {
        let (here, both) = (cell[window] as f64, cell[0] as f64 + cell[1] as f64);
        if here == 0.0 { 0.0 } else { here / all * (here / both * (all / windows[window])).log2() }
    };
    let gain: f64 = cells.iter().map(|cell| term(cell, 0) + term(cell, 1)).sum();
    gain.clamp(0.0, 1.0)
}

/// Joins buckets to cells that end at the cuts and hold enough samples.
fn cells(buckets: &[(Duration, u64, u64)], counts: [u64; 2]) -> Vec<[u64; 2]> {
    let all = (counts[0] + counts[1]) as f64;
    let mut cells: Vec<[u64; 2]> = Vec::with_capacity(CUTS.len() + 1);
    let (mut cell, mut seen) = ([0, 0], 0);
    let mut cuts = CUTS.iter().peekable();
    for &(_, a, b) in buckets {
        cell = [cell[0] + a, cell[1] + b];
        seen += a + b;
        let mut passed = false;
        while cuts.next_if(|&&cut| seen as f64 >= cut * all).is_some() {
            passed = true;
        }
        if passed && cell[0] + cell[1] >= CELL_SAMPLES_MIN {
            cells.push(core::mem::take(&mut cell));
        }
    }
    if cell[0] + cell[1] >= CELL_SAMPLES_MIN || cells.is_empty() {
        cells.push(cell);
    } else if let Some(last) = cells.last_mut() {
        *last = [last[0] + cell[0], last[1] + cell[1]];
    }
    cells
}

/// The 99.9 % quantile of the gain of equal distributions, by Wilson and Hilferty's cube.
fn noise_bits(cells: usize, samples: u64) -> f64 {
    let freedom = (cells - 1) as f64;
    if freedom == 0.0 {
        return 0.0;
    }
    let spread = 2.0 / (9.0 * freedom);
    let chi_squared = freedom * (1.0 - spread + NOISE_NORMAL * spread.sqrt()).powi(3);
    chi_squared / (2.0 * samples as f64 * core::f64::consts::LN_2)
}

fn distance(buckets: &[(Duration, u64, u64)], counts: [u64; 2]) -> Probability {
    let (mut below, mut largest) = ([0, 0], 0.0_f64);
    for &(_, a, b) in buckets {
        below = [below[0] + a, below[1] + b];
        let share = |window: usize| below[window] as f64 / counts[window] as f64;
        largest = largest.max((share(0) - share(1)).abs());
    }
    Probability::clamped(largest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::{Distribution, Exponential, LogNormal, Recorder};
    use crate::rng::Rng;
    use proptest::prelude::*;

    fn window(latency: &dyn Distribution, samples: u32, rng: &mut Rng) -> Recorder {
        let mut recorder = Recorder::default();
        (0..samples).for_each(|_| recorder.record(latency.sample(rng)));
        recorder
    }

    fn compare(a: &Recorder, b: &Recorder) -> Divergence {
        Divergence::between(a.buckets(), b.buckets()).unwrap()
    }

    /// By the definition: entropy of the whole less the weighted entropies of the windows.
    fn gain_by_entropies(cells: &[[u64; 2]]) -> f64 {
        let entropy = |counts: Vec<f64>| {
            let all: f64 = counts.iter().sum();
            let terms = counts.iter().filter(|&&n| n > 0.0).map(|n| -n / all * (n / all).log2());
            (terms.sum::<f64>(), all)
        };
        let (both, all) = entropy(cells.iter().map(|c| (c[0] + c[1]) as f64).collect());
        let weighted = |window: usize| {
            let (bits, n) = entropy(cells.iter().map(|c| c[window] as f64).collect());
            if n == 0.0 { 0.0 } else { bits * n / all }
        };
        both - weighted(0) - weighted(1)
    }

    proptest! {
        #[test]
        fn gain_is_the_definition_symmetric_and_bounded(
            cells in prop::collection::vec((0..50_u64, 0..50_u64), 1..30),
        ) {
            let cells: Vec<[u64; 2]> = cells.into_iter().map(|(a, b)| [a, b]).collect();
            let swapped: Vec<[u64; 2]> = cells.iter().map(|c| [c[1], c[0]]).collect();
            let gain = information_gain(&cells);
            prop_assert!((0.0..=1.0).contains(&gain));
            prop_assert!((gain - information_gain(&swapped)).abs() < 1e-12);
            if cells.iter().any(|c| c[0] > 0) && cells.iter().any(|c| c[1] > 0) {
                prop_assert!((gain - gain_by_entropies(&cells)).abs() < 1e-12);
            }
        }

        #[test]
        fn gain_is_zero_exactly_for_equal_shares(
            counts in prop::collection::vec(1..50_u64, 2..20), times in 1..5_u64,
        ) {
            let mut cells: Vec<[u64; 2]> = counts.iter().map(|&n| [n, n * times]).collect();
            prop_assert!(information_gain(&cells) < 1e-14);
            cells[0][0] += 1;
            prop_assert!(information_gain(&cells) > 1e-9);
        }

        #[test]
        fn cells_keep_all_samples_and_none_is_small(
            counts in prop::collection::vec((0..9_u64, 0..9_u64), 40..200),
        ) {
            let counted = |(upper, (a, b))| (Duration::from_millis(upper), a, b);
            let buckets: Vec<_> = (1..).zip(counts).map(counted).collect();
            let sum = |cells: &[[u64; 2]], window: usize| -> u64 {
                cells.iter().map(|cell| cell[window]).sum()
            };
            let all: Vec<[u64; 2]> = buckets.iter().map(|&(_, a, b)| [a, b]).collect();
            let totals = [sum(&all, 0), sum(&all, 1)];
            let cells = cells(&buckets, totals);
            prop_assert_eq!([sum(&cells, 0), sum(&cells, 1)], totals);
            prop_assert!(cells.len() <= 9);
            prop_assert!(cells.iter().all(|cell| cell[0] + cell[1] >= 16), "{cells:?}");
        }

        #[test]
        fn comparison_is_symmetric(seed in 0..u64::MAX, n in 16..300_u32, m in 16..300_u32) {
            let mut rng = Rng::seeded(seed);
            let service = Exponential::with_mean(Duration::from_millis(3)).unwrap();
            let (a, b) = (window(&service, n, &mut rng), window(&service, m, &mut rng));
            let (forth, back) = (compare(&a, &b), compare(&b, &a));
            prop_assert!((forth.bits - back.bits).abs() < 1e-12);
            prop_assert_eq!((forth.noise_bits, forth.distance), (back.noise_bits, back.distance));
        }
    }

    #[test]
    fn nothing_in_common_is_one_bit_and_the_same_is_none() {
        let constant = |millis| {
            let latency = Duration::from_millis(millis);
            window(&LogNormal::with_mean_cv(latency, 0.0).unwrap(), 100, &mut Rng::seeded(1))
        };
        let apart = compare(&constant(1), &constant(5));
        assert!((apart.bits - 1.0).abs() < 1e-12 && apart.is_significant());
        assert_eq!(apart.distance, Probability::ONE);
        let same = compare(&constant(1), &constant(1));
        assert!(same.bits == 0.0 && !same.is_significant());
        let few = Bucket { upper: Duration::from_millis(1), count: 15 };
        assert!(Divergence::between(constant(1).buckets(), [few]).is_none());
        assert!(Divergence::between([], constant(1).buckets()).is_none());
    }

    #[test]
    fn equal_distributions_seldom_alarm_at_any_sample_size() {
        let service = LogNormal::with_mean_cv(Duration::from_millis(3), 1.0).unwrap();
        let mut rng = Rng::seeded(11);
        for (n, m) in [(30, 30), (100, 1_000), (1_000, 1_000)] {
            let alarms = (0..2_000)
                .filter(|_| {
                    let (a, b) = (window(&service, n, &mut rng), window(&service, m, &mut rng));
                    compare(&a, &b).is_significant()
                })
                .count();
            // Two are expected; eleven has a probability of 1e-5.
            assert!(alarms <= 10, "{alarms} alarms of 2000 with {n} and {m} samples");
        }
    }

    #[test]
    fn a_tail_from_1_to_3_percent_is_seen_by_the_gain_and_missed_by_the_distance() {
        let mut rng = Rng::seeded(5);
        let mut tailed = |slow_share: f64| {
            let slow = Probability::new(slow_share).unwrap();
            let mut recorder = Recorder::default();
            for _ in 0..4_000 {
                let millis = if rng.chance(slow) { 100.0 } else { 1.0 } + rng.unit();
                recorder.record(Duration::from_secs_f64(millis / 1e3));
            }
            recorder
        };
        let divergences: Vec<Divergence> =
            (0..100).map(|_| compare(&tailed(0.01), &tailed(0.03))).collect();
        let seen = divergences.iter().filter(|d| d.is_significant()).count();
        // The 99.9 % bound of Kolmogorov-Smirnov: 1.95 * sqrt(2 / n).
        let distant = divergences.iter().filter(|d| d.distance.value() > 0.0436).count();
        assert!(seen >= 85 && distant <= 10, "{seen} by gain, {distant} by distance");
    }
}
