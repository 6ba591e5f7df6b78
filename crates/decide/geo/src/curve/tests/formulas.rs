//! Queues against independent formulas and against simulation.

use super::*;
use crate::curve::{Markov, erlang_c, general};
use evenkeel_core::distribution::{Distribution, Exponential, LogNormal};
use evenkeel_core::rng::Rng;
use proptest::prelude::*;

/// Response times of a first-come-first-served queue, one per arrival, from an empty start.
fn simulated(
    count: usize,
    arrivals: f64,
    service: &dyn Distribution,
    requests: usize,
    seed: u64,
) -> Vec<f64> {
    let mut rng = Rng::seeded(seed);
    let mut free_at = vec![0.0_f64; count];
    let (mut now, mut responses) = (0.0, Vec::with_capacity(requests));
    for _ in 0..requests {
        now += rng.exponential() / arrivals;
        let first = (0..count).min_by(|&a, &b| free_at[a].total_cmp(&free_at[b])).unwrap();
        let done = free_at[first].max(now) + service.sample(&mut rng).as_secs_f64();
        free_at[first] = done;
        responses.push(done - now);
    }
    // The empty start is not the steady state.
    responses.split_off(requests / 10)
}

fn beyond(responses: &[f64], at: Duration) -> f64 {
    let late = responses.iter().filter(|&&response| response > at.as_secs_f64());
    late.count() as f64 / responses.len() as f64
}

proptest! {
    #[test]
    fn erlang_c_is_its_sum(count in 1..60_u32, utilisation in 0.01..0.99_f64) {
        let offered = utilisation * f64::from(count);
        // a^k / k! for k below and at the servers.
        let mut term = 1.0;
        let mut idle = 0.0;
        for k in 0..count {
            idle += term;
            term *= offered / f64::from(k + 1);
        }
        let queued = term / (1.0 - utilisation);
        let expected = queued / (idle + queued);
        prop_assert!((erlang_c(servers(count), offered) / expected - 1.0).abs() < 1e-12);
    }

    #[test]
    fn one_server_is_the_exponential(utilisation in 0.0..0.999_f64, t_ms in 0.0..500.0_f64) {
        let queue = Markov::new(servers(1), rate(utilisation * 200.0), millis(5.0)).unwrap();
        let at = millis(t_ms);
        let expected = (-(200.0 - utilisation * 200.0) * at.as_secs_f64()).exp();
        prop_assert!((queue.exceeds(at).value() - expected).abs() < 1e-12);
    }

    /// A wait with probability `C`, exponential at rate `cμ - λ`, and then a service: the textbook
    /// sum of two exponentials, which is singular where the rates are equal.
    #[test]
    fn many_servers_are_wait_plus_service(
        count in 1..40_u32,
        utilisation in 0.05..0.99_f64,
        t_ms in 0.0..100.0_f64,
    ) {
        let (mu, count_f) = (200.0, f64::from(count));
        let lambda = utilisation * count_f * mu;
        let theta = count_f * mu - lambda;
        prop_assume!((theta - mu).abs() > 1e-3 * mu);
        let at = millis(t_ms);
        let t = at.as_secs_f64();
        let waits = erlang_c(servers(count), lambda / mu);
        let both = (theta * (-mu * t).exp() - mu * (-theta * t).exp()) / (theta - mu);
        let expected = (1.0 - waits) * (-mu * t).exp() + waits * both;
        let queue = Markov::new(servers(count), rate(lambda), millis(5.0)).unwrap();
        prop_assert!((queue.exceeds(at).value() - expected).abs() < 1e-10);
    }
}

#[test]
fn equal_rates_are_no_singularity() {
    // 4 servers, 3 Erlang: the wait ends at the rate of one service. The limit is C x e^-x.
    let queue = Markov::new(servers(4), rate(600.0), millis(5.0)).unwrap();
    let waits = erlang_c(servers(4), 3.0);
    for x in [0.0_f64, 0.5, 1.0, 4.0, 20.0] {
        let expected = (-x).exp() * (1.0 + waits * x);
        assert!((queue.exceeds(millis(5.0 * x)).value() - expected).abs() < 1e-12, "{x}");
    }
    let p95 = queue.quantile(share(0.95));
    assert!(queue.cdf(p95).value() >= 0.95);
    assert!(queue.cdf(p95 - Duration::from_nanos(1)).value() < 0.95);
    let mean_ms = 5.0 + waits * 5.0 / (4.0 - 3.0);
    assert_eq!(queue.mean(), millis(mean_ms));
}

#[test]
fn markov_queue_is_as_simulated() {
    let service = Exponential::with_mean(millis(10.0)).unwrap();
    for (count, utilisation) in [(1, 0.7), (4, 0.8), (10, 0.85)] {
        let arrivals = utilisation * f64::from(count) * 100.0;
        let responses = simulated(count as usize, arrivals, &service, 400_000, 1);
        let queue = Markov::new(servers(count), rate(arrivals), millis(10.0)).unwrap();
        for at in [10.0, 20.0, 40.0, 80.0].map(millis) {
            let (reported, seen) = (queue.exceeds(at).value(), beyond(&responses, at));
            // Busy periods make some 10 000 independent observations of 360 000.
            assert!(
                (reported - seen).abs() < 0.015,
                "{count} {utilisation} {at:?}: {reported} {seen}"
            );
        }
    }
}

#[test]
fn general_queue_is_as_simulated_within_its_stated_error() {
    let cases = [(1, 0.3), (1, 1.0), (1, 2.0), (4, 0.3), (4, 2.0), (16, 0.3), (16, 2.0)];
    // What the module's text states, and the noise of this many requests: it grows with load.
    for (utilisation, noise) in [(0.5, 0.003), (0.7, 0.006), (0.9, 0.02)] {
        for (count, cv) in cases {
            let service = LogNormal::with_mean_cv(millis(10.0), cv).unwrap();
            let arrivals = utilisation * f64::from(count) * 100.0;
            let responses = simulated(count as usize, arrivals, &service, 500_000, 2);
            let law = general(servers(count), rate(arrivals), &service, millis(80.0)).unwrap();
            for at in [20.0, 40.0, 80.0].map(millis) {
                let (reported, seen) = (law.cdf(at).complement().value(), beyond(&responses, at));
                let stated = if cv > 1.0 { 0.013 } else { 0.006 };
                let what = format!("{count} {cv} {utilisation} {at:?}: {reported} {seen}");
                assert!((reported - seen).abs() < stated + noise, "{what}");
            }
        }
    }
}

/// Pollaczek and Khinchine: the mean wait of M/G/1 is `λ E[S²] / (2 (1 - ρ))`.
#[test]
fn one_general_server_has_the_mean_of_pollaczek_and_khinchine() {
    for (cv, utilisation) in [(0.0, 0.8), (0.5, 0.5), (1.0, 0.8), (1.2, 0.6)] {
        let service = LogNormal::with_mean_cv(millis(10.0), cv).unwrap();
        let arrivals = utilisation * 100.0;
        let law = general(servers(1), rate(arrivals), &service, millis(1_024.0)).unwrap();
        let second_moment = 1e-4 * (1.0 + cv * cv);
        let wait = arrivals * second_moment / (2.0 * (1.0 - utilisation));
        let reported = law.mean().as_secs_f64();
        // Service is rounded up to steps of 1 ms.
        assert!(
            (-0.0002..0.001).contains(&(reported - 0.010 - wait)),
            "{cv} {utilisation}: {reported}"
        );
    }
}

#[test]
fn general_queue_with_exponential_service_is_the_markov_queue() {
    let service = Exponential::with_mean(millis(10.0)).unwrap();
    for (count, utilisation) in [(1, 0.5), (4, 0.8), (16, 0.95)] {
        let arrivals = rate(utilisation * f64::from(count) * 100.0);
        let exact = Markov::new(servers(count), arrivals, millis(10.0)).unwrap();
        let law = general(servers(count), arrivals, &service, millis(100.0)).unwrap();
        for at in [10.0, 30.0, 100.0].map(millis) {
            let error = law.cdf(at).value() - exact.cdf(at).value();
            assert!(error.abs() < 0.005, "{count} {utilisation} {at:?}: {error}");
        }
    }
}

#[test]
fn saturated_queues_are_refused() {
    let service = Exponential::with_mean(millis(10.0)).unwrap();
    assert!(Markov::new(servers(2), rate(200.0), millis(10.0)).is_err());
    assert!(Markov::new(servers(2), rate(1.0), Duration::ZERO).is_err());
    assert!(general(servers(2), rate(200.0), &service, millis(80.0)).is_err());
    assert_eq!(erlang_c(servers(2), 2.0), 1.0);
    assert_eq!(erlang_c(servers(2), f64::NAN), 0.0);
}

#[test]
fn curves_of_queues_end_at_their_capacity() {
    let curves = ResponseCurves::markov(millis(30.0), servers(10), millis(2.0)).unwrap();
    for utilisation in [0.1, 0.5, 0.8, 0.9, 0.95] {
        let load = utilisation * 5_000.0;
        let exact = Markov::new(servers(10), rate(load), millis(2.0)).unwrap();
        let expected = exact.exceeds(millis(30.0)).value();
        let reported = miss(&curves, load, &as_profiled(10));
        // Linear between 64 loads: above a convex curve, by a third at most.
        assert!(
            reported >= expected - 1e-12 && reported <= 1.4 * expected + 1e-6,
            "{reported} {expected}"
        );
    }
    assert_eq!(miss(&curves, 5_000.0, &as_profiled(10)), 1.0);
    assert!(miss(&curves, 4_999.0, &as_profiled(10)) < 1.0);
    let service = LogNormal::with_mean_cv(millis(2.0), 1.5).unwrap();
    let general = ResponseCurves::general(millis(30.0), servers(10), &service).unwrap();
    assert!(miss(&general, 4_500.0, &as_profiled(10)) > miss(&curves, 4_500.0, &as_profiled(10)));
}
