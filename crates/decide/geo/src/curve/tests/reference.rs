//! The reference data centre of `research/kurma.md` section 3, and the paper's Fig. 4.

use super::*;
use crate::curve::{Axis, Class, NetworkPath, Residual, pair_table};
use evenkeel_core::distribution::{Distribution, LogNormal};
use evenkeel_core::units::Weight;

/// Utilisation in percent and the 95th percentile there in milliseconds; between them the logarithm
/// is linear.
const KNOTS: [(f64, f64); 6] =
    [(20.0, 2.5), (50.0, 4.5), (65.0, 8.0), (78.0, 30.0), (90.0, 200.0), (100.0, 2_000.0)];
/// Requests per second at 100 %.
const CAPACITY: f64 = 55_000.0;

fn p95_ms(percent: f64) -> f64 {
    let percent = percent.clamp(20.0, 100.0);
    let after = KNOTS.iter().position(|&(knot, _)| percent <= knot).unwrap().max(1);
    let ((a, from), (b, to)) = (KNOTS[after - 1], KNOTS[after]);
    from * ((percent - a) / (b - a) * (to / from).ln()).exp()
}

fn response(percent: f64) -> LogNormal {
    let sigma = (0.5 + 0.005 * percent).min(0.9);
    let median_ms = p95_ms(percent) / (1.645 * sigma).exp();
    LogNormal::with_median_sigma(millis(median_ms), sigma).unwrap()
}

/// Profiled at every percent; saturation beyond the percentages asked for.
fn data_centre() -> ResponseCurves {
    let laws: Vec<(Rate, LogNormal)> =
        (1..=100).map(f64::from).map(|p| (rate(p * 550.0), response(p))).collect();
    let laws: Vec<(Rate, &dyn Distribution)> =
        laws.iter().map(|(load, law)| (*load, law as &dyn Distribution)).collect();
    ResponseCurves::of_laws(millis(30.0), servers(5), rate(1.01 * CAPACITY), &laws).unwrap()
}

fn table(curves: &ResponseCurves, paths: &[NetworkPath]) -> Vec<u32> {
    let class = Class { weight: Weight::new(1.0).unwrap(), curves, round_trips: 1 };
    let axis = Axis::of(rate(550.0), 110);
    pair_table(&[class], paths, &axis, &as_profiled(5)).unwrap().misses_ppm
}

/// The five-point residual of the reference is not published; this one fits its remote curves at
/// 9.5, 12.5 and 24.5 ms within 500 ppm.
fn busy_path(ms: f64) -> NetworkPath {
    let mut weights = vec![0.0; 61];
    for (bin, weight) in [(0, 0.657), (5, 0.148), (10, 0.139), (20, 0.051), (60, 0.005)] {
        weights[bin] = weight;
    }
    NetworkPath { base: millis(ms), residual: Residual::from_weights(&weights, 0.0).unwrap() }
}

fn at_rtt(ms: f64) -> NetworkPath {
    NetworkPath { base: millis(ms), residual: Residual::none() }
}

#[test]
fn five_percent_lie_at_78_percent_near_and_at_65_percent_22_ms_away() {
    let curves = data_centre();
    let last_within = |table: &[u32]| table.partition_point(|&ppm| ppm <= 50_000).saturating_sub(1);
    assert_eq!(last_within(&table(&curves, &[NetworkPath::inside()])), 78);
    assert_eq!(last_within(&table(&curves, &[at_rtt(22.0)])), 65);
}

#[test]
fn local_violations_are_those_of_the_shared_instances() {
    // `curves_ppm[0][0]` of n3_paper_q1.json, which were computed independently; its 1 % steps of
    // 550 requests/s are ours.
    let expected = [
        (50, 15),
        (60, 202),
        (65, 583),
        (68, 2_149),
        (70, 4_635),
        (72, 9_278),
        (74, 17_323),
        (76, 30_322),
        (78, 49_985),
        (80, 97_888),
        (85, 338_930),
        (90, 678_286),
        (95, 959_257),
        (100, 998_742),
    ];
    let table = table(&data_centre(), &[NetworkPath::inside()]);
    for (percent, ppm) in expected {
        assert!(table[percent].abs_diff(ppm) <= 60, "{percent} %: {} not {ppm}", table[percent]);
    }
}

#[test]
fn a_residual_of_a_fraction_of_a_millisecond_costs_a_percent_at_the_knee() {
    let curves = data_centre();
    // Research section 3: 5.9 % at 65 % and 22 ms.
    let at_22 = table(&curves, &[busy_path(22.0)]);
    assert!(at_22[65].abs_diff(59_000) < 1_500, "{}", at_22[65]);
    let remote = [
        (9.5, 65, 2_880),
        (9.5, 78, 115_815),
        (9.5, 90, 817_363),
        (12.5, 65, 5_166),
        (12.5, 78, 155_145),
        (12.5, 90, 860_898),
        (24.5, 50, 40_183),
        (24.5, 65, 139_243),
        (24.5, 70, 302_956),
        (24.5, 78, 632_040),
    ];
    for (rtt, percent, ppm) in remote {
        let reported = table(&curves, &[busy_path(rtt)])[percent];
        // Half milliseconds are interpolated, which is too high where the curve is convex.
        let most = ppm + ppm / 17 + 700;
        assert!(
            (ppm - 700..=most).contains(&reported),
            "{rtt} ms, {percent} %: {reported} not {ppm}"
        );
    }
}

#[test]
fn a_millisecond_is_six_points_at_the_knee() {
    // Research section 7 (f): at 70 % load 16 % at 22 ms become 35 % at 25 ms.
    let curves = data_centre();
    let at_70 = |ms| f64::from(table(&curves, &[busy_path(ms)])[70]) / 1e4;
    assert!((at_70(22.0) - 16.0).abs() < 1.5, "{}", at_70(22.0));
    assert!((at_70(25.0) - 35.0).abs() < 1.5, "{}", at_70(25.0));
}

#[test]
fn equal_input_gives_equal_tables() {
    let paths = [at_rtt(22.3), at_rtt(27.1)];
    assert_eq!(table(&data_centre(), &paths), table(&data_centre(), &paths));
}
