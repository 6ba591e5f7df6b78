//! The models against formulas and against what the research measured.

use proptest::prelude::*;

use super::{ask, at, count, ms, rate, share, store};
use crate::duplicates::{
    Law, Model, Policy, Question, Service, Times, mean_wait, predict, predict_partition,
};
use evenkeel_core::distribution::Distribution as _;
use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::{Rate, Weight};

fn exponential(mean_ms: f64) -> Times {
    Law::Exponential { mean: ms(mean_ms) }.times().unwrap()
}

fn violations(model: Model, question: &Question<'_>, rate: Rate, duplicates: u32) -> f64 {
    predict_partition(model, question, rate, count(duplicates)).unwrap().violations
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Section 2.2 without queues, as the paper writes it: a sum over who saves the access.
    #[test]
    fn without_queues_both_are_the_papers_sum(
        means in prop::collection::vec(0.1..5.0_f64, 1..9), bound_ms in 0.1..20.0_f64,
    ) {
        let times: Vec<Times> = means.iter().map(|&mean| exponential(mean)).collect();
        let service = Service::each(times).unwrap();
        let question = Question::new(&service, rate(0.0), ms(bound_ms));
        // ŝ = Σ Φ_n(τ) Π_{i<n} (1 - Φ_i(τ)), with the bound in whole nanoseconds.
        let bound = nanos(ms(bound_ms)) as f64 / 1e6;
        let (mut level, mut missed) = (0.0, 1.0);
        for mean in &means {
            let within = -(-bound / (nanos(ms(*mean)) as f64 / 1e6)).exp_m1();
            level += within * missed;
            missed *= 1.0 - within;
        }
        let policy = Policy::new(1, u32::try_from(means.len()).unwrap()).unwrap();
        for model in Model::ALL {
            let told = predict(model, &question, policy).unwrap();
            prop_assert!((told.service_level().value() - level).abs() < 1e-12, "{told:?} {level}");
            prop_assert!((told.violations - missed).abs() < 1e-12, "{told:?} {missed}");
            prop_assert_eq!((told.standard_error, told.accesses), (0.0, 0));
        }
    }

    /// All duplicates have all accesses, so a further one can only mask: to the last bit, since the
    /// others see the same draws.
    #[test]
    fn a_further_duplicate_never_harms_where_multicast_is_free(
        load in 0.0..0.95_f64, bound_ms in 0.5..20.0_f64, seed in 0..1_000_u64,
    ) {
        let service = Service::alike(store());
        let mut question = ask(&service, at(load, &store()), ms(bound_ms), 4_000);
        question.effort.seed = seed;
        for model in Model::ALL {
            let told: Vec<f64> =
                (1..5).map(|n| violations(model, &question, question.rate, n)).collect();
            prop_assert!(told.is_sorted_by(|fewer, more| more <= fewer), "{told:?}");
        }
    }

    /// More load, more violations: again to the last bit, since all rates see the same draws.
    #[test]
    fn violations_rise_with_the_rate(
        low in 0.0..0.9_f64, more in 0.0..0.3_f64, duplicates in 1..4_u32, seed in 0..1_000_u64,
    ) {
        let service = Service::alike(store());
        let mut question = ask(&service, rate(1.0), ms(6.0), 4_000);
        question.effort.seed = seed;
        for model in Model::ALL {
            let of = |load| violations(model, &question, at(load, &store()), duplicates);
            // Without load the answer is exact, not estimated.
            let (low, high) = (of(low.max(0.001)), of(low.max(0.001) + more));
            prop_assert!(high >= low - 1e-12, "{model:?}: {low} then {high}");
        }
    }

    #[test]
    fn extremes_never_panic(
        per_s in prop::sample::select(vec![0.0, 1e-300, 1e-9, 1.0, 1e9, 1e300, f64::MAX]),
        bound in prop::sample::select(vec![0, 1, 1_000_000, u64::MAX]),
        net in prop::sample::select(vec![0, 1, u64::MAX]), duplicates in 1..4_u32,
    ) {
        let parts = [0, 1, 1_000, u64::MAX].map(Duration::from_nanos);
        let heavy = Law::Pareto { minimum: ms(1.0), shape: 0.5, maximum: None }.times().unwrap();
        let services = [
            Service::alike(Times::recorded(&parts).unwrap()),
            Service::alike(heavy),
            Service::together(&[parts.to_vec(), vec![ms(0.0); 4]]).unwrap(),
        ];
        for service in &services {
            let mut question = ask(service, rate(per_s), Duration::from_nanos(bound), 2_000);
            question.net = Duration::from_nanos(net);
            question.repeat = Duration::from_nanos(net);
            for model in Model::ALL {
                let told = violations(model, &question, rate(per_s), duplicates);
                prop_assert!((0.0..=1.0).contains(&told), "{told}");
            }
        }
    }

    #[test]
    fn quantiles_of_mixtures_reach_their_share(p in 0.001..0.999_f64) {
        let times = store();
        let quantile = times.quantile(share(p));
        prop_assert!(times.cdf(quantile).value() >= p);
        prop_assert!(times.cdf(quantile - Duration::from_nanos(1)).value() < p);
    }
}

#[test]
fn the_bound_is_what_the_deductions_leave() {
    // Constant service of 1 ms at half load: the mean wait is 0.5 · 1/(1) · 1 ms = 0.5 ms.
    let constant = Law::Constant(ms(1.0)).times().unwrap();
    assert!((mean_wait(&constant, rate(500.0)) - 0.5e6).abs() < 1e-3);
    // Exponential (M/M/1): ρ/(1-ρ) · μ; at ρ = 0.8 four times the mean.
    assert!((mean_wait(&exponential(2.0), rate(400.0)) - 8e6).abs() < 1e-2);
    assert_eq!(mean_wait(&exponential(2.0), rate(500.0)), f64::INFINITY);
    let service = Service::alike(exponential(2.0));
    let question = Question {
        net: ms(0.25),
        repeat: ms(0.125),
        ..Question::new(&service, rate(50.0), ms(6.0))
    };
    // ρ = 0.1: a ninth of 2 ms of wait, 0.25 ms of network, 3 · 0.125 ms of multicast.
    let left: f64 = 6.0 - 2.0 / 9.0 - 0.25 - 0.375;
    let told = violations(Model::Paper, &question, rate(50.0), 3);
    assert!((told / (-3.0 * left / 2.0).exp() - 1.0).abs() < 1e-5, "{told}");
    // Nothing is left: nobody is in time.
    let short = Question { bound: ms(0.6), ..question };
    for model in Model::ALL {
        assert_eq!(violations(model, &short, rate(0.0), 3), 1.0);
    }
    assert_eq!(violations(Model::Paper, &question, rate(500.0), 3), 1.0);
    assert_eq!(violations(Model::Lindley, &question, rate(500.0), 3), 1.0);
}

/// For one exponential server the response time is exponential too: `e^(-(1-ρ)·t/μ)` is late.
#[test]
fn one_exponential_server_is_m_m_1() {
    let service = Service::alike(exponential(2.0));
    for load in [0.1, 0.5, 0.8] {
        let mut question = ask(&service, at(load, service.of(0)), ms(10.0), 200_000);
        question.effort.accesses_max = 1_000_000;
        let told = predict_partition(Model::Lindley, &question, question.rate, count(1)).unwrap();
        let expected = (-(1.0 - load) * 5.0_f64).exp();
        let error = (told.violations - expected).abs();
        assert!(error < 4.0 * told.standard_error, "{told:?} is not {expected}");
        assert!(told.standard_error < 0.06 * expected, "{told:?}");
    }
}

/// The mean response of one server is service and Pollaczek and Khinchine's wait: the integral of
/// violations over the bound.
#[test]
fn the_mean_wait_is_pollaczek_and_khinchines() {
    let parts = [
        (Weight::new(0.9).unwrap(), Law::Exponential { mean: ms(1.0) }),
        (Weight::new(0.1).unwrap(), Law::Exponential { mean: ms(6.0) }),
    ];
    let times = Times::mixed(&parts).unwrap();
    // Mean 1.5 ms, mean square 0.9·2 + 0.1·72 = 9 ms²: Cv² = 3.
    assert!((times.mean_nanos() - 1.5e6).abs() < 1.0);
    assert!((times.cv_squared() - 3.0).abs() < 1e-9);
    let service = Service::alike(times.clone());
    let at_load = at(0.5, &times);
    let step = 0.5;
    let integral: f64 = (0..240)
        .map(|n| {
            let question = ask(&service, at_load, ms((f64::from(n) + 0.5) * step), 20_000);
            violations(Model::Lindley, &question, at_load, 1) * step
        })
        .sum();
    let expected = 1.5 + mean_wait(&times, at_load) / 1e6;
    assert!((expected - 4.5).abs() < 1e-9);
    // All bounds see the same 20 000 accesses, whose mean wait has a standard error of 5 %.
    assert!((integral / expected - 1.0).abs() < 0.1, "{integral} is not {expected}");
}

#[test]
fn moments_of_formulas_are_those_of_their_samples() {
    let pareto = |shape, maximum| Law::Pareto { minimum: ms(1.0), shape, maximum };
    for law in [
        Law::LogNormal { mean: ms(2.0), cv: 0.7 },
        pareto(5.0, None),
        pareto(1.5, Some(ms(30.0))),
        pareto(2.0, Some(ms(30.0))),
        pareto(1.0, Some(ms(30.0))),
    ] {
        let times = law.times().unwrap();
        let mut rng = evenkeel_core::rng::Rng::seeded(4);
        let draws: Vec<Duration> = (0..100_000).map(|_| times.sample(&mut rng)).collect();
        let seen = Times::recorded(&draws).unwrap();
        assert!((seen.mean_nanos() / times.mean_nanos() - 1.0).abs() < 0.02, "{law:?}");
        assert!((seen.cv_squared() / times.cv_squared() - 1.0).abs() < 0.06, "{law:?}");
        assert!((times.mean_nanos() / nanos(times.mean()) as f64 - 1.0).abs() < 1e-6);
    }
    assert_eq!(pareto(2.0, None).times().unwrap().cv_squared(), f64::INFINITY);
    assert_eq!(pareto(1.0, None).times().unwrap().mean_nanos(), f64::INFINITY);
    let constant = Law::Constant(ms(3.0)).times().unwrap();
    assert_eq!((constant.mean_nanos(), constant.cv_squared()), (3e6, 0.0));
}

/// How far the paper's model is off, measured with another program (1.5 million arrivals in C++)
/// for such a store. Its exact parameters were not noted, so neither are its numbers expected here,
/// but their size: (bound, ρ, duplicates, violations, how many times too rare the paper's are).
#[test]
fn the_papers_model_is_as_wrong_as_was_measured() {
    let times = store();
    assert!((times.cv_squared() - 0.76).abs() < 0.02, "{}", times.cv_squared());
    assert!((times.late(3_300_000) - 0.1).abs() < 0.005, "{}", times.late(3_300_000));
    let service = Service::alike(times.clone());
    let measured = [
        (3.3, 0.05, 2, 0.0232, 1.76),
        (3.3, 0.05, 4, 5.8e-3, 33.0),
        (3.3, 0.20, 1, 0.199, 1.0),
        (3.3, 0.20, 2, 0.0761, 1.95),
        (3.3, 0.20, 4, 0.0344, 23.0),
        (7.0, 0.40, 2, 0.0164, 35.0),
        (7.0, 0.40, 4, 4.8e-3, 20_000.0),
    ];
    for (bound_ms, load, duplicates, seen, factor) in measured {
        let question = ask(&service, at(load, &times), ms(bound_ms), 100_000);
        let ours = violations(Model::Lindley, &question, question.rate, duplicates);
        let papers = violations(Model::Paper, &question, question.rate, duplicates);
        let case = format!("{bound_ms} ms, {load}, {duplicates}: {ours} and {papers}");
        assert!((0.6..1.6).contains(&(ours / seen)), "{case}, measured {seen}");
        // Tails of single duplicates that differ by a factor of two differ by 2^n here.
        let apart = (ours / papers / factor).log2().abs();
        assert!(apart < f64::from(duplicates), "{case}, measured {factor}");
    }
    // The cliff that is none: at ρ = 0.6 the paper lets nobody be in time.
    let question = ask(&service, at(0.6, &times), ms(3.3), 100_000);
    let [paper, ours] =
        [Model::Paper, Model::Lindley].map(|model| violations(model, &question, question.rate, 4));
    assert!(paper > 0.99 && (0.15..0.4).contains(&ours), "{paper} {ours}");
}

/// Table 3's base model, 16 duplicates whose 60th percentile is the bound: 1 - 0.4^16. The paper
/// prints an error of 0.0835 points against 99.916 %; the formula's is 0.0840. Its "1 node CDF"
/// cell, 60.0000, is the predicted level, not the error, which is 39.9 points.
#[test]
fn table_3_is_its_formula_but_for_two_slips() {
    let samples: Vec<Duration> = (1..=100).map(Duration::from_micros).collect();
    let service = Service::alike(Times::recorded(&samples).unwrap());
    let question = Question::new(&service, rate(0.0), Duration::from_micros(60));
    let level =
        |duplicates| 100.0 * (1.0 - violations(Model::Paper, &question, rate(0.0), duplicates));
    assert!((level(1) - 60.0).abs() < 1e-9);
    let error = level(16) - 99.916;
    assert!((error - 0.0840).abs() < 5e-5, "{error}");
    assert!((error - 0.0835).abs() > 4e-4, "the paper's cell would be right");
}

#[test]
fn equal_seeds_are_equal_and_others_differ_by_chance() {
    let service = Service::alike(store());
    let mut question = ask(&service, at(0.3, &store()), ms(5.0), 20_000);
    let of = |question: &Question<'_>| {
        predict_partition(Model::Lindley, question, question.rate, count(2)).unwrap()
    };
    let first = of(&question);
    assert_eq!(first, of(&question));
    question.effort.seed = 2;
    let second = of(&question);
    let apart = (first.violations - second.violations).abs();
    assert!(apart > 0.0 && apart < 5.0 * first.standard_error.hypot(second.standard_error));
}

#[test]
fn it_looks_until_it_is_sure_but_not_for_ever() {
    let service = Service::alike(store());
    let mut question = ask(&service, at(0.4, &store()), ms(15.0), 20_000);
    question.effort.accesses_max = 100_000;
    question.effort.precision = 0.5;
    let told = predict_partition(Model::Lindley, &question, question.rate, count(1)).unwrap();
    assert!(told.standard_error <= 0.5 * told.violations && told.accesses < 100_000, "{told:?}");
    question.effort.precision = 1e-6;
    let told = predict_partition(Model::Lindley, &question, question.rate, count(1)).unwrap();
    assert_eq!(told.accesses, 100_000);
}

#[test]
fn what_makes_no_sense_is_refused() {
    assert!(Policy::new(0, 1).is_err() && Policy::new(1, 0).is_err());
    assert!(Times::recorded(&[]).is_err() && Times::mixed(&[]).is_err());
    assert!(Service::each(Vec::new()).is_err() && Service::together(&[]).is_err());
    assert!(Service::together(&[vec![ms(1.0)], vec![ms(1.0); 2]]).is_err());
    assert!(Law::Constant(Duration::ZERO).times().is_err());
    let two = Service::each(vec![exponential(1.0); 2]).unwrap();
    let question = Question::new(&two, rate(1.0), ms(1.0));
    let error = predict(Model::Paper, &question, Policy::new(1, 3).unwrap()).unwrap_err();
    assert_eq!(
        (error.came, error.expected),
        (3.0, "no more duplicates than there are service times of")
    );
    assert_eq!(Policy::new(2, 3).unwrap().to_string(), "2p/3d");
}
