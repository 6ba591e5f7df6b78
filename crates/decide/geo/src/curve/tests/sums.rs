//! Response time plus way, against enumeration and against the grid's convolution.

use super::*;
use crate::curve::{Axis, Class, NetworkPath, Part, Residual, Table, pair_table, tabulate};
use evenkeel_core::distribution::{Distribution, Grid};
use evenkeel_core::units::Weight;
use proptest::prelude::*;

/// One load step below and one at 100 requests/s, of one server, with these response times.
fn curves_of(objective: Duration, low: &Empirical, high: &Empirical) -> ResponseCurves {
    let laws: [(Rate, &dyn Distribution); 2] = [(rate(50.0), low), (rate(100.0), high)];
    ResponseCurves::of_laws(objective, servers(1), rate(200.0), &laws).unwrap()
}

/// The residual of these numbers of bins, alike.
fn residual_of(bins: &[usize]) -> Residual {
    let mut weights = vec![0.0; bins.iter().max().unwrap() + 1];
    bins.iter().for_each(|&bin| weights[bin] += 1.0);
    Residual::from_weights(&weights, 0.0).unwrap()
}

proptest! {
    #[test]
    fn a_miss_is_counted_over_all_pairs_of_response_and_residual(
        responses in prop::collection::vec(0..40_u32, 1..12),
        bins in prop::collection::vec(0..400_usize, 1..12),
        base in 0..35_u32,
        objective_tenths in 1..400_u32,
    ) {
        let objective = millis(0.1 * f64::from(objective_tenths));
        let response = samples(&responses);
        let curves = curves_of(objective, &response, &response);
        let family = Family::new(&curves, &residual_of(&bins), 1).unwrap();
        let base = millis(f64::from(base));
        let late = responses.iter().flat_map(|&ms| bins.iter().map(move |&bin| (ms, bin)));
        let late = late.filter(|&(ms, bin)| {
            millis(f64::from(ms)) + base + millis(0.1 * bin as f64) > objective
        });
        let expected = late.count() as f64 / (responses.len() * bins.len()) as f64;
        let reported = family.miss(base, rate(100.0), &as_profiled(1)).value();
        // Shares of bins are whole parts per million.
        prop_assert!((reported - expected).abs() < 13e-6, "{reported} {expected}");
    }

    #[test]
    fn a_miss_is_what_the_grid_says(
        responses in prop::collection::vec(0..40_u32, 1..12),
        bins in prop::collection::vec(0..200_usize, 1..12),
        base in 0..35_u32,
    ) {
        let step = millis(0.1);
        let response = samples(&responses);
        let residuals = bins.iter().map(|&bin| millis(0.1 * bin as f64)).collect();
        let residuals = Empirical::from_samples(residuals).unwrap();
        let path = Grid::of(&residuals, step, millis(20.0)).unwrap();
        let sum = Grid::of(&response, step, millis(40.0)).unwrap().convolve(&path).unwrap();
        let sum = sum.shift(millis(f64::from(base)));
        let expected = sum.cdf(millis(30.0)).complement().value();
        let curves = curves_of(millis(30.0), &response, &response);
        let family = Family::new(&curves, &residual_of(&bins), 1).unwrap();
        let reported = family.miss(millis(f64::from(base)), rate(50.0), &as_profiled(1)).value();
        prop_assert!((reported - expected).abs() < 13e-6, "{reported} {expected}");
    }

    #[test]
    fn several_round_trips_are_counted_over_all_tuples(
        responses in prop::collection::vec(0..30_u32, 1..6),
        bins in prop::collection::vec(0..100_usize, 1..6),
        base in 0..10_u32,
    ) {
        let response = samples(&responses);
        let curves = curves_of(millis(30.0), &response, &response);
        let family = Family::new(&curves, &residual_of(&bins), 2).unwrap();
        let mut late = 0;
        for &ms in &responses {
            for &first in &bins {
                for &second in &bins {
                    let path = 0.1 * (first + second) as f64 + 2.0 * f64::from(base);
                    late += usize::from(millis(f64::from(ms)) + millis(path) > millis(30.0));
                }
            }
        }
        let expected = late as f64 / (responses.len() * bins.len() * bins.len()) as f64;
        let reported = family.miss(millis(f64::from(base)), rate(100.0), &as_profiled(1)).value();
        prop_assert!((reported - expected).abs() < 26e-6, "{reported} {expected}");
    }

    #[test]
    fn further_and_fuller_is_never_better(
        low in prop::collection::vec(0..40_u32, 1..12),
        high in prop::collection::vec(0..40_u32, 1..12),
        bins in prop::collection::vec(0..400_usize, 1..12),
        bases_us in prop::collection::vec(0..40_000_u64, 2..6),
        bias in 1.0..1.2_f64,
    ) {
        let curves = curves_of(millis(30.0), &samples(&low), &samples(&high));
        let axis = Axis::of(rate(3.0), 80);
        let conditions = Conditions { load_bias: bias, ..as_profiled(1) };
        let class = Class { weight: Weight::new(1.0).unwrap(), curves: &curves, round_trips: 1 };
        let table = |base, residual| {
            let paths = [NetworkPath { base, residual }];
            pair_table(&[class], &paths, &axis, &conditions).unwrap()
        };
        let mut bases_us = bases_us;
        bases_us.sort_unstable();
        let mut nearer = table(Duration::ZERO, Residual::none());
        for base in bases_us.into_iter().map(Duration::from_micros) {
            let further = table(base, residual_of(&bins));
            prop_assert!(further.misses_ppm.is_sorted());
            let pairs = nearer.misses_ppm.iter().zip(&further.misses_ppm);
            prop_assert!(pairs.clone().all(|(near, far)| near <= far), "{pairs:?}");
            prop_assert_eq!(nearer.saturation, further.saturation);
            nearer = further;
        }
    }
}

#[test]
fn equal_misses_at_two_distances_are_the_same_number() {
    // Found by CI: 20 ms and 22.501 ms miss alike, and sums in another order were 1 ppm apart.
    let high = [11, 3, 11, 11, 11, 11, 3, 11, 3, 11, 11];
    let curves = curves_of(millis(30.0), &samples(&[11]), &samples(&high));
    let axis = Axis::of(rate(3.0), 80);
    let class = Class { weight: Weight::new(1.0).unwrap(), curves: &curves, round_trips: 1 };
    let residual = residual_of(&[71, 71, 71, 101, 101, 0, 101, 102, 71]);
    let table = |ms| {
        let paths = [NetworkPath { base: millis(ms), residual: residual.clone() }];
        pair_table(&[class], &paths, &axis, &as_profiled(1)).unwrap()
    };
    let (near, far) = (table(20.0), table(22.501));
    assert!(near.misses_ppm.iter().zip(&far.misses_ppm).all(|(near, far)| near <= far));
}

#[test]
fn between_milliseconds_it_is_the_mean_of_both() {
    let response = samples(&[5, 10, 20, 25, 29]);
    let curves = curves_of(millis(30.0), &response, &response);
    let family = Family::local(&curves);
    let at = |base| family.miss(millis(base), rate(10.0), &as_profiled(1)).value();
    for (base, expected) in [(1.0, 0.0), (2.0, 0.2), (5.0, 0.2), (6.0, 0.4), (10.0, 0.4)] {
        assert!((at(base) - expected).abs() < 1e-12, "{base}");
    }
    assert!((at(1.5) - 0.1).abs() < 1e-12 && (at(5.25) - 0.25).abs() < 1e-12);
    assert_eq!([at(30.0), at(31.0), at(1e9)], [1.0, 1.0, 1.0]);
}

#[test]
fn long_objectives_take_longer_steps_and_stay_cautious() {
    let response = samples(&[4_000, 8_000]);
    let laws: [(Rate, &dyn Distribution); 1] = [(rate(1.0), &response)];
    let objective = Duration::from_secs(9);
    let curves = ResponseCurves::of_laws(objective, servers(1), rate(2.0), &laws).unwrap();
    assert_eq!(curves.step(), millis(5.0), "9 s in at most 4096 steps");
    let residual = residual_of(&[0, 1]);
    let family = Family::new(&curves, &residual, 1).unwrap();
    let at = |base| family.miss(millis(base), rate(0.5), &as_profiled(1)).value();
    assert_eq!(at(995.0), 0.0, "8 s + 995 ms + 5 ms for a bin of 0.1 ms");
    assert_eq!(at(1_000.0), 0.25);
    assert_eq!(at(1_005.0), 0.5);
}

#[test]
fn paths_average_violations_and_classes_their_shares() {
    let (small, large) = (samples(&[5]), samples(&[25]));
    let small = curves_of(millis(30.0), &small, &small);
    let large = curves_of(millis(30.0), &large, &large);
    let class = |weight, curves, round_trips| Class {
        weight: Weight::new(weight).unwrap(),
        curves,
        round_trips,
    };
    let path = |ms| NetworkPath { base: millis(ms), residual: Residual::none() };
    let axis = Axis::of(rate(10.0), 5);
    let table = |classes: &[Class<'_>], paths: &[NetworkPath]| {
        pair_table(classes, paths, &axis, &as_profiled(1)).unwrap().misses_ppm[2]
    };
    assert_eq!(table(&[class(1.0, &small, 1)], &[path(22.0), path(27.0)]), 500_000);
    assert_eq!(table(&[class(1.0, &small, 1)], &[path(24.5)]), 0, "latencies must not average");
    let both = [class(3.0, &small, 1), class(1.0, &large, 1)];
    assert_eq!(table(&both, &[path(4.0)]), 0);
    assert_eq!(table(&both, &[path(6.0)]), 250_000);
    assert_eq!(table(&[class(1.0, &small, 2)], &[path(13.0)]), 1_000_000, "5 + 2 * 13 > 30");
    assert_eq!(table(&both, &[]), 1_000_000, "nothing heard");
}

#[test]
fn servers_background_and_bias_scale_the_load() {
    let laws: Vec<(Rate, Empirical)> = (0..=10)
        .map(|k| {
            let late = (0..10).map(|i| if i < k { 40 } else { 10 }).collect::<Vec<_>>();
            (rate(f64::from(k) * 100.0), samples(&late))
        })
        .collect();
    let laws: Vec<(Rate, &dyn Distribution)> =
        laws.iter().map(|(load, law)| (*load, law as &dyn Distribution)).collect();
    // Violations are load / 1000, up to the saturation at 1100.
    let curves = ResponseCurves::of_laws(millis(30.0), servers(4), rate(1_100.0), &laws).unwrap();
    let at = |load, conditions: &Conditions| miss(&curves, load, conditions);
    let base = as_profiled(4);
    assert!((at(250.0, &base) - 0.25).abs() < 1e-12);
    assert!((at(250.0, &as_profiled(8)) - 0.125).abs() < 1e-12);
    assert!((at(250.0, &as_profiled(2)) - 0.5).abs() < 1e-12);
    assert_eq!(at(0.0, &as_profiled(0)), 1.0, "a data centre that is down");
    let background = Conditions { background: rate(100.0), ..base };
    assert!((at(250.0, &background) - 0.35).abs() < 1e-12);
    let biased = Conditions { load_bias: 1.04, ..base };
    assert!((at(250.0, &biased) - 0.26).abs() < 1e-12);
    assert_eq!(Conditions::with_servers(4).load_bias, 1.04);

    let family = Family::local(&curves);
    let part = Part { weight: Weight::new(1.0).unwrap(), family: &family, base: Duration::ZERO };
    let table = |quantum, levels, conditions: &Conditions| {
        let axis = Axis::of(rate(quantum), levels);
        tabulate(&[part], &axis, conditions)
    };
    let full = table(100.0, 13, &base).unwrap();
    assert_eq!(
        (full.misses_ppm[3], full.misses_ppm[10], full.saturation),
        (300_000, 1_000_000, 11)
    );
    assert_eq!(table(100.0, 2, &base).unwrap().saturation, 11, "beyond the table");
    assert_eq!(table(100.0, 13, &as_profiled(8)).unwrap().saturation, 22);
    assert_eq!(table(100.0, 3, &as_profiled(0)).unwrap(), Table::unreachable(3));
    let mut trimmed = full.clone();
    trimmed.trim();
    let mut raised = Table { misses_ppm: vec![5, 5, 5], saturation: 3 };
    raised.raise_to(&Table { misses_ppm: vec![0, 7, 9, 9], saturation: 2 });
    assert_eq!(raised.misses_ppm, [5, 7, 9]);
    assert_eq!(trimmed.misses_ppm, full.misses_ppm[..=10]);
    assert!(table(0.0, 13, &base).is_err() && table(1.0, 0, &base).is_err());
    assert!(table(1.0, 1, &Conditions { load_bias: f64::NAN, ..base }).is_err());
    assert!(tabulate(&[], &Axis::of(rate(1.0), 1), &base).is_err());
}

#[test]
fn residuals_are_whole_parts_that_sum_to_all() {
    let thirds = Residual::from_weights(&[1.0, 1.0, 1.0, 0.0], 0.0).unwrap();
    assert_eq!(thirds.bins_ppm(), [333_333, 333_334, 333_333]);
    assert_eq!(Residual::from_weights(&[0.0], 0.0), None);
    assert_eq!(Residual::from_weights(&[f64::INFINITY], 0.0), None);
    let floored = thirds.with_beyond_at_least(100);
    assert_eq!(floored.beyond_ppm(), 100);
    assert_eq!(floored.bins_ppm().iter().sum::<u32>(), 999_900);
    assert_eq!(floored.with_beyond_at_least(50), floored);
    assert!(Residual::new(vec![500_000], 400_000).is_err());
    assert!(Residual::new(vec![u32::MAX; 2], 2).is_err(), "a sum that wraps in 32 bits");
    assert!(Residual::new(vec![0; 4_097], 1_000_000).is_err());
    assert_eq!(Residual::new(vec![333_333, 333_334, 333_333, 0], 0).unwrap(), thirds);
    assert_eq!(Residual::bin(Duration::ZERO), Some(0));
    assert_eq!(Residual::bin(Duration::from_nanos(1)), Some(1));
    assert_eq!(Residual::bin(Duration::from_micros(100)), Some(1));
    assert_eq!(Residual::bin(Duration::from_secs(1)), None);
}
