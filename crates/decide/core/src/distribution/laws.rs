//! Laws that hold for every distribution, and the grid against formulas.

use core::num::NonZeroU32;

use proptest::prelude::*;

use super::{
    Distribution, Empirical, Exponential, GRID_POINTS_MAX, Grid, LONGEST, LogNormal, Pareto,
    Recorder, RollingRecorder,
};
use crate::rng::Rng;
use crate::time::{Duration, Instant, nanos};
use crate::units::{Probability, Weight};

const STEP: Duration = Duration::from_micros(100);

/// One of each kind, from a length and a shape number.
fn all_kinds(
    length: Duration,
    shape: f64,
    seed: u64,
) -> Vec<(&'static str, Box<dyn Distribution>)> {
    let exponential = Exponential::with_mean(length).unwrap();
    let mut rng = Rng::seeded(seed);
    let samples: Vec<Duration> = (0..50).map(|_| exponential.sample(&mut rng)).collect();
    let mut recorder = Recorder::default();
    let mut rolling = RollingRecorder::new(Duration::from_secs(1), 1).unwrap();
    for (index, &sample) in samples.iter().enumerate() {
        recorder.record(sample);
        rolling.record(Instant::from_millis(40 * index as u64), sample);
    }
    vec![
        ("empirical", Box::new(Empirical::from_samples(samples).unwrap())),
        ("recorder", Box::new(recorder)),
        ("rolling", Box::new(rolling)),
        ("grid", Box::new(Grid::of(&exponential, length.max(STEP) / 7, 3 * length).unwrap())),
        ("exponential", Box::new(exponential)),
        ("log-normal", Box::new(LogNormal::with_mean_cv(length, shape).unwrap())),
        ("pareto", Box::new(Pareto::new(length, shape).unwrap())),
        ("bounded", Box::new(Pareto::bounded(length, 9 * length, shape).unwrap())),
    ]
}

fn probability(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

fn exponential(mean_millis: u64) -> Exponential {
    Exponential::with_mean(Duration::from_millis(mean_millis)).unwrap()
}

fn on_grid(latency: &dyn Distribution) -> Grid {
    Grid::of(latency, STEP, Duration::from_millis(200)).unwrap()
}

proptest! {
    /// `quantile(p) <= t` exactly when `p <= cdf(t)`: exactly for step functions, and for
    /// formulas up to their rounding (relative 1e-12 of the probability and of the latency).
    #[test]
    fn quantile_and_cdf_are_a_galois_connection(
        length in 1_000..1_000_000_000_u64, shape in 0.1..5.0_f64, p in 1e-6..0.999_999_f64,
        at in 0.0..4.0_f64, seed in 0..1_000_u64,
    ) {
        let length = Duration::from_nanos(length);
        for (index, (kind, latency)) in all_kinds(length, shape, seed).into_iter().enumerate() {
            let at = length.mul_f64(at);
            if index < 4 {
                let reached = probability(p) <= latency.cdf(at);
                prop_assert_eq!(latency.quantile(probability(p)) <= at, reached, "{}", kind);
                let p = latency.cdf(at);
                prop_assert!(p == Probability::ZERO || latency.quantile(p) <= at, "{kind}");
            }
            let quantile = latency.quantile(probability(p));
            prop_assert!(latency.cdf(quantile).value() >= p * (1.0 - 1e-9), "{kind} {quantile:?}");
            if quantile < LONGEST {
                let shorter = quantile.saturating_sub(Duration::from_nanos(1));
                let just_below = shorter.mul_f64(1.0 - 1e-9);
                let cdf_below = latency.cdf(just_below).value();
                prop_assert!(cdf_below < p * (1.0 + 1e-9), "{kind} {cdf_below}");
            }
        }
    }

    #[test]
    fn cdfs_and_quantiles_never_fall(
        length in 1_000..1_000_000_000_u64, shape in 0.1..5.0_f64, seed in 0..1_000_u64,
        mut latencies in prop::collection::vec(0..5_000_000_000_u64, 2..20),
        mut shares in prop::collection::vec(0.0..=1.0_f64, 2..20),
    ) {
        latencies.sort_unstable();
        shares.sort_unstable_by(f64::total_cmp);
        for (kind, latency) in all_kinds(Duration::from_nanos(length), shape, seed) {
            let cdf = latencies.iter().map(|&at| latency.cdf(Duration::from_nanos(at)));
            prop_assert!(cdf.is_sorted(), "{kind}");
            let quantiles = shares.iter().map(|&p| latency.quantile(probability(p)));
            prop_assert!(quantiles.is_sorted(), "{kind}");
        }
    }

    #[test]
    fn extremes_never_panic(length in 1..=u64::MAX, shape in 1e-9..1e5_f64) {
        let length = Duration::from_nanos(length);
        let zero = Duration::ZERO;
        let kinds: Vec<Box<dyn Distribution>> = vec![
            Box::new(Exponential::with_mean(length).unwrap()),
            Box::new(LogNormal::with_mean_cv(length, shape).unwrap()),
            Box::new(Pareto::new(length, shape).unwrap()),
            Box::new(Empirical::from_samples(vec![zero, length, Duration::MAX]).unwrap()),
        ];
        for latency in &kinds {
            for at in [zero, Duration::from_nanos(1), length, LONGEST, Duration::MAX] {
                latency.cdf(at);
            }
            for p in [0.0, f64::MIN_POSITIVE, 0.5, 1.0 - f64::EPSILON, 1.0] {
                latency.quantile(probability(p));
            }
            latency.mean();
            latency.sample(&mut Rng::seeded(length.as_secs()));
            let grid = Grid::of(&**latency, length, length).unwrap();
            let sum = grid.convolve(&grid.shift(Duration::MAX)).unwrap();
            prop_assert!(sum.mean() >= grid.shift(zero).mean());
            prop_assert!(sum.points().count() <= GRID_POINTS_MAX);
        }
    }

    #[test]
    fn the_mean_of_a_mixture_is_the_mixture_of_the_means(
        weights in prop::collection::vec(0.001..1_000.0_f64, 1..6),
    ) {
        let means = 1..=weights.len() as u64;
        let grids: Vec<Grid> = means.map(|mean| on_grid(&exponential(mean))).collect();
        let parts: Vec<(Weight, &Grid)> =
            weights.iter().zip(&grids).map(|(&w, grid)| (Weight::new(w).unwrap(), grid)).collect();
        let mixed = nanos(Grid::mix(&parts).unwrap().mean()) as f64;
        let total: f64 = weights.iter().sum();
        let expected: f64 =
            weights.iter().zip(&grids).map(|(w, grid)| w / total * nanos(grid.mean()) as f64).sum();
        prop_assert!((mixed - expected).abs() < 2.0, "{mixed} is not {expected}");
    }

    /// The k-th fastest of drawn latencies is the sorted draw; its cdf by counting subsets.
    #[test]
    fn kth_fastest_equals_the_enumeration_of_subsets(
        means in prop::collection::vec(1..20_u64, 1..6), k in 1..6_usize, at in 0..2_000_u32,
    ) {
        let grids: Vec<Grid> = means.iter().map(|&mean| on_grid(&exponential(mean))).collect();
        let parts: Vec<&Grid> = grids.iter().collect();
        let quorum = Grid::kth_fastest(&parts, k);
        prop_assume!(k <= parts.len() || quorum.is_err());
        let Ok(quorum) = quorum else { return Ok(()) };
        let at = STEP * at;
        let expected: f64 = (0_u32..1 << means.len())
            .filter(|subset| subset.count_ones() as usize >= k)
            .map(|subset| {
                let arrives = |i: usize| subset >> i & 1 == 1;
                means.iter().enumerate().map(|(i, &mean)| {
                    let within = exponential(mean).cdf(at).value();
                    if arrives(i) { within } else { 1.0 - within }
                }).product::<f64>()
            })
            .sum();
        prop_assert!((quorum.cdf(at).value() - expected).abs() < 1e-12);
    }

    /// Shares like 1/7 do not add up to 1 exactly; the longest sum must keep all of the rest.
    #[test]
    fn no_probability_gets_lost_beyond_the_end_of_a_sum(
        a in prop::collection::vec(0..40_u32, 1..30), b in prop::collection::vec(0..40_u32, 1..30),
    ) {
        let end = STEP * 40;
        let grid = |steps: &[u32]| {
            let samples = steps.iter().map(|&steps| STEP * steps).collect();
            Grid::of(&Empirical::from_samples(samples).unwrap(), STEP, end).unwrap()
        };
        let sum = grid(&a).convolve(&grid(&b)).unwrap();
        prop_assert_eq!(sum.beyond(), Probability::ZERO);
        let longest = a.iter().max().unwrap() + b.iter().max().unwrap();
        let nearly_all = sum.quantile(probability(1.0 - 1e-12));
        prop_assert_eq!(nearly_all, STEP * longest);
    }

    /// The stated bound, with sums of two exponentials: Erlang for equal means.
    #[test]
    fn a_convolution_of_exponentials_is_erlang_within_one_step(
        mean in 2..20_u64, at in 2..2_000_u32,
    ) {
        let part = on_grid(&exponential(mean));
        let sum = part.convolve(&part).unwrap();
        let erlang = |t: Duration| {
            let x = nanos(t) as f64 / (mean as f64 * 1e6);
            1.0 - (1.0 + x) * (-x).exp()
        };
        let at = STEP * at;
        let told = sum.cdf(at).value();
        prop_assert!(told <= erlang(at) + 1e-12, "{told} above {}", erlang(at));
        prop_assert!(told >= erlang(at - STEP) - 1e-12, "{told} below {}", erlang(at - STEP));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn samples_follow_the_cdf(shape in 0.3..3.0_f64, seed in 0..100_u64) {
        let mut rng = Rng::seeded(seed);
        for (kind, latency) in all_kinds(Duration::from_millis(5), shape, seed) {
            let at = latency.quantile(probability(0.7));
            let within = latency.cdf(at).value();
            let hits = (0..4_000).filter(|_| latency.sample(&mut rng) <= at).count();
            // A standard deviation is below 0.008: five of them.
            prop_assert!((hits as f64 / 4e3 - within).abs() < 0.04, "{kind}");
        }
    }
}

#[test]
fn a_convolution_of_step_functions_is_the_sum_of_all_pairs() {
    let millis = |values: &[u64]| values.iter().map(|&v| Duration::from_millis(v)).collect();
    let (a, b) = ([1, 4, 9, 9], [2, 3, 150]);
    let grid = |values: &[u64]| on_grid(&Empirical::from_samples(millis(values)).unwrap());
    let sum = grid(&a).convolve(&grid(&b)).unwrap();
    let pairs: Vec<u64> = a.iter().flat_map(|x| b.iter().map(move |y| x + y)).collect();
    let expected = Empirical::from_samples(millis(&pairs)).unwrap();
    for (at, told) in sum.points() {
        assert!((told.value() - expected.cdf(at).value()).abs() < 1e-12, "{at:?}");
    }
    assert_eq!(sum.mean(), expected.mean());
    assert_eq!(sum.quantile(Probability::ONE), Duration::from_millis(159));
}

#[test]
fn the_fastest_of_n_exponentials_is_n_times_as_fast() {
    let copies = NonZeroU32::new(5).unwrap();
    let slow = on_grid(&exponential(20));
    let fastest = slow.fastest_of(copies);
    let parts = [&slow; 5];
    let one_by_one = Grid::fastest(&parts).unwrap();
    let expected = exponential(4);
    for (at, told) in fastest.points() {
        assert!((told.value() - expected.cdf(at).value()).abs() < 1e-12, "{at:?}");
        assert!((told.value() - one_by_one.cdf(at).value()).abs() < 1e-12, "{at:?}");
    }
}

#[test]
fn a_grid_is_exact_at_its_points_and_less_than_a_step_long() {
    let service = LogNormal::with_mean_cv(Duration::from_millis(10), 1.0).unwrap();
    let grid = on_grid(&service);
    grid.points().for_each(|(at, told)| assert_eq!(told, service.cdf(at)));
    for p in [0.001, 0.5, 0.9, 0.99, 0.999].map(probability) {
        let (told, truth) = (grid.quantile(p), service.quantile(p));
        assert!(told >= truth && told < truth + STEP, "{told:?} for {truth:?}");
    }
    let excess = grid.mean().checked_sub(service.mean()).unwrap();
    assert!(excess < STEP, "{excess:?}");
    let by = Duration::from_micros(22_050);
    let shifted = grid.shift(by).quantile(probability(0.5));
    assert_eq!(shifted, grid.quantile(probability(0.5)) + Duration::from_micros(22_100));
}

#[test]
fn mass_beyond_the_end_stays_beyond() {
    let short = Grid::of(&exponential(10), STEP, Duration::from_millis(10)).unwrap();
    let beyond = short.beyond().value();
    assert!((beyond - (-1.0_f64).exp()).abs() < 1e-12);
    assert_eq!(short.quantile(probability(0.7)), LONGEST);
    assert_eq!(short.cdf(LONGEST), Probability::ONE);
    let sum = short.convolve(&short).unwrap();
    assert!((sum.beyond().value() - (1.0 - (1.0 - beyond).powi(2))).abs() < 1e-12);
    assert_eq!(sum.end(), Duration::from_millis(20));
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let service = exponential(1);
    let (fine, coarse) = (on_grid(&service), Grid::of(&service, 2 * STEP, 3 * STEP).unwrap());
    assert_eq!(fine.convolve(&coarse).unwrap_err().came, 200_000.0);
    assert!(Grid::kth_fastest(&[&fine, &coarse], 1).is_err());
    assert!(Grid::kth_fastest(&[&fine], 0).is_err() && Grid::kth_fastest(&[&fine], 2).is_err());
    assert!(Grid::kth_fastest(&[], 1).is_err() && Grid::mix(&[]).is_err());
    assert!(Grid::of(&service, Duration::ZERO, STEP).is_err());
    assert!(Grid::of(&service, Duration::from_nanos(1), Duration::MAX).is_err());
}
