//! The models against formulas, against a simulation that works differently, and against the
//! figures of the paper; decisions against all that could have been decided.

mod correlation;
mod hedged;
mod model;
mod moves;
mod night;
mod policy;
mod queues;
mod quiet;
mod window;

use core::num::NonZeroU32;

use super::{Effort, Law, Question, Service, Times};
use evenkeel_core::time::{Duration, from_millis_f64};
use evenkeel_core::units::{Probability, Rate, Weight};

pub(super) fn rate(per_s: f64) -> Rate {
    Rate::new(per_s).unwrap()
}

pub(super) fn share(value: f64) -> Probability {
    Probability::new(value).unwrap()
}

pub(super) fn count(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).unwrap()
}

pub(super) fn ms(millis: f64) -> Duration {
    from_millis_f64(millis)
}

/// A log-normal body with 2 % of a Pareto tail of shape 2.2: Cv² 0.76, 90 % within 3.3 ms.
pub(super) fn store() -> Times {
    let sigma: f64 = 0.37;
    let mean = ms(1.98 * (0.5 * sigma * sigma).exp());
    let cv = (sigma * sigma).exp_m1().sqrt();
    let tail = Law::Pareto { minimum: ms(4.12), shape: 2.2, maximum: None };
    let weight = |value| Weight::new(value).unwrap();
    let parts = [(weight(0.98), Law::LogNormal { mean, cv }), (weight(0.02), tail)];
    Times::mixed(&parts).unwrap()
}

/// The rate at which one duplicate is this busy.
pub(super) fn at(utilisation: f64, times: &Times) -> Rate {
    rate(utilisation * 1e9 / times.mean_nanos())
}

pub(super) fn quick(accesses: u64) -> Effort {
    Effort { accesses, accesses_max: accesses, ..Effort::default() }
}

pub(super) fn ask(service: &Service, rate: Rate, bound: Duration, accesses: u64) -> Question<'_> {
    Question { effort: quick(accesses), ..Question::new(service, rate, bound) }
}
