//! Curves against formulas, simulations and the figures of the paper.

mod formulas;
mod interference;
mod learning;
mod profiles;
mod reference;
mod sums;

use core::num::NonZeroU32;

use super::{Conditions, Family, ResponseCurves};
use evenkeel_core::distribution::{Bucket, Empirical};
use evenkeel_core::time::Duration;
use evenkeel_core::units::{Probability, Rate};

fn millis(millis: f64) -> Duration {
    Duration::from_nanos((millis * 1e6).round() as u64)
}

fn rate(per_second: f64) -> Rate {
    Rate::new(per_second).unwrap()
}

fn share(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

fn servers(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

/// As profiled: as many servers, reads only, no bias.
fn as_profiled(count: u32) -> Conditions {
    Conditions::with_servers(count).unbiased()
}

fn samples(of_ms: &[u32]) -> Empirical {
    let samples = of_ms.iter().map(|&ms| millis(f64::from(ms)));
    Empirical::from_samples(samples.collect()).unwrap()
}

fn buckets(of_ms: &[(f64, u64)]) -> Vec<Bucket> {
    of_ms.iter().map(|&(ms, count)| Bucket { upper: millis(ms), count }).collect()
}

fn miss(curves: &ResponseCurves, load: f64, conditions: &Conditions) -> f64 {
    Family::local(curves).miss(Duration::ZERO, rate(load), conditions).value()
}
