//! When a curve counts as broken, and which one replaces it.

use super::*;
use crate::curve::{Candidate, Measured, Verdict, Watch, WatchConfig, substitute};
use evenkeel_core::distribution::{Distribution, Exponential};
use evenkeel_core::rng::Rng;

/// A period of so many requests of which each misses with this probability.
fn period(rng: &mut Rng, requests: u64, miss: f64) -> Measured {
    let missed = (0..requests).filter(|_| rng.unit() < miss).count() as u64;
    Measured { load: rate(1.0), requests, missed }
}

/// Periods until a verdict, or the limit.
fn periods_until(watch: &mut Watch, predicted: f64, true_miss: f64, seed: u64, limit: u32) -> u32 {
    let mut rng = Rng::seeded(seed);
    (1..=limit)
        .find(|_| {
            let measured = period(&mut rng, 200, true_miss);
            watch.observe(measured, share(predicted)) != Verdict::AsPredicted
        })
        .unwrap_or(limit)
}

#[test]
fn false_alarms_are_as_rare_as_stated() {
    let config = WatchConfig { periods_between_false_alarms: 100.0, ..WatchConfig::default() };
    for miss in [0.003, 0.05, 0.4] {
        let run = |seed| {
            let mut watch = Watch::new(config).unwrap();
            f64::from(periods_until(&mut watch, miss, miss, seed, 2_000))
        };
        let mean = (0..100).map(run).sum::<f64>() / 100.0;
        assert!(mean >= 100.0, "{miss}: one in {mean} periods");
    }
}

#[test]
fn doubled_odds_are_found_soon_and_small_differences_are_not() {
    // The expected evidence of a period at odds x2 from 5 %: 200 requests of 0.0145 nats; the
    // threshold is ln(2e6) = 14.5 nats.
    let (p, q): (f64, f64) = (0.05, 0.1 / 1.05);
    let nats = q * (q / p).ln() + (1.0 - q) * ((1.0 - q) / (1.0 - p)).ln();
    let expected = 2e6_f64.ln() / (200.0 * nats);
    let run = |true_miss, seed| {
        let mut watch = Watch::new(WatchConfig::default()).unwrap();
        f64::from(periods_until(&mut watch, 0.05, true_miss, seed, 5_000))
    };
    let mean = (0..40).map(|seed| run(q, seed)).sum::<f64>() / 40.0;
    assert!(mean < 1.4 * expected, "{mean} periods, not about {expected}");
    assert!(run(0.6, 1) <= 1.0, "one period of disaster is enough");
    assert_eq!(run(0.055, 1), 5_000.0, "a curve is no better than that");
}

#[test]
fn an_improvement_is_found_too_and_certain_curves_do_not_improve() {
    let mut watch = Watch::new(WatchConfig::default()).unwrap();
    let mut rng = Rng::seeded(3);
    let verdicts: Vec<Verdict> =
        (0..40).map(|_| watch.observe(period(&mut rng, 200, 0.02), share(0.2))).collect();
    assert_eq!(verdicts.last(), Some(&Verdict::Better));
    let mut watch = Watch::new(WatchConfig::default()).unwrap();
    for _ in 0..10_000 {
        let none = Measured { load: rate(1.0), requests: 10_000, missed: 0 };
        assert_eq!(watch.observe(none, share(0.000_1)), Verdict::AsPredicted);
        let all = Measured { missed: 10_000, ..none };
        assert_eq!(watch.observe(all, share(1.0)), Verdict::AsPredicted);
    }
}

#[test]
fn a_verdict_ends_soon_after_a_collapse_however_long_it_was() {
    // As predicted, 10 of 200 weigh 10 ln(0.0952 / 0.05) + 190 ln(0.9048 / 0.95) = -2.8 nats: one
    // threshold of 14.5 is gone after 6 such periods.
    let mut watch = Watch::new(WatchConfig::default()).unwrap();
    let period = |missed| Measured { load: rate(10.0), requests: 200, missed };
    let expected = Probability::clamped(0.05);
    for _ in 0..100 {
        watch.observe(period(200), expected);
    }
    assert_eq!(watch.verdict(), Verdict::Worse);
    let verdicts: Vec<Verdict> = (0..6).map(|_| watch.observe(period(10), expected)).collect();
    assert_eq!((verdicts[4], verdicts[5]), (Verdict::Worse, Verdict::AsPredicted));
}

#[test]
fn the_periods_since_the_change_are_told() {
    let mut watch = Watch::new(WatchConfig::default()).unwrap();
    let good = Measured { load: rate(10.0), requests: 200, missed: 6 };
    let bad = Measured { load: rate(20.0), requests: 200, missed: 30 };
    (0..30).for_each(|_| {
        watch.observe(good, share(0.05));
    });
    while watch.observe(bad, share(0.05)) == Verdict::AsPredicted {}
    let since: Vec<Measured> = watch.since_change().collect();
    assert!(since.len() > 1 && since.iter().all(|&period| period == bad), "{since:?}");
    watch.restart();
    assert_eq!((watch.verdict(), watch.since_change().count()), (Verdict::AsPredicted, 0));
}

#[test]
fn nonsense_says_nothing_and_memory_is_bounded() {
    let mut watch = Watch::new(WatchConfig::default()).unwrap();
    for requests in [0, 5] {
        let nonsense = Measured { load: rate(1.0), requests, missed: 10 };
        assert_eq!(watch.observe(nonsense, share(0.01)), Verdict::AsPredicted);
    }
    assert_eq!(watch.since_change().count(), 0);
    let normal = Measured { load: rate(1.0), requests: 100, missed: 1 };
    (0..1_000).for_each(|_| {
        watch.observe(normal, share(0.01));
    });
    assert_eq!(watch.since_change().count(), 64);
    let with = |config| Watch::new(config).is_err();
    let default = WatchConfig::default();
    assert!(with(WatchConfig { odds_ratio: 1.0, ..default }));
    assert!(with(WatchConfig { periods_between_false_alarms: f64::NAN, ..default }));
    assert!(with(WatchConfig { requests_max: 0, ..default }));
}

#[test]
fn the_substitute_is_the_curve_that_made_the_measurements() {
    let curves = |mean_ms: f64| {
        let laws: Vec<(Rate, Exponential)> = (1..=9)
            .map(|k| {
                let mean = millis(mean_ms / (1.0 - f64::from(k) / 10.0));
                (rate(f64::from(k) * 100.0), Exponential::with_mean(mean).unwrap())
            })
            .collect();
        let laws: Vec<(Rate, &dyn Distribution)> =
            laws.iter().map(|(load, law)| (*load, law as &dyn Distribution)).collect();
        ResponseCurves::of_laws(millis(30.0), servers(1), rate(1_000.0), &laws).unwrap()
    };
    let families = [2.0, 3.0, 4.0, 5.0].map(|mean| Family::local(&curves(mean)));
    let conditions = as_profiled(1);
    let candidates: Vec<Candidate<'_>> =
        families.iter().map(|family| Candidate { family, conditions }).collect();
    let mut rng = Rng::seeded(5);
    for (truth, family) in families.iter().enumerate() {
        let measured: Vec<Measured> = [300.0, 500.0, 600.0, 650.0, 700.0]
            .map(|load| {
                let miss = family.miss(Duration::ZERO, rate(load), &conditions).value();
                Measured { load: rate(load), ..period(&mut rng, 2_000, miss) }
            })
            .to_vec();
        let choice = substitute(&candidates, measured.clone()).unwrap();
        assert_eq!(choice.index, truth);
        // Five periods of 2000: a standard error of a percent at most.
        assert!(choice.error < 0.02, "{}", choice.error);
        assert_eq!(substitute(&candidates, measured), Some(choice));
    }
    // A bias is a candidate as well: load that weighs 1.5 times.
    let slowed = Conditions { load_bias: 1.5, ..conditions };
    let both =
        [conditions, slowed].map(|conditions| Candidate { family: &families[0], conditions });
    let miss = families[0].miss(Duration::ZERO, rate(600.0), &conditions).value();
    let measured =
        Measured { load: rate(400.0), requests: 100_000, missed: (miss * 1e5).round() as u64 };
    assert_eq!(substitute(&both, [measured]).unwrap().index, 1);
    let same = [both[0], both[0]];
    assert_eq!(substitute(&same, [measured]).unwrap().index, 0, "the first of equals");
    assert_eq!(substitute(&[], [measured]), None);
    assert_eq!(substitute(&both, []), None);
}
