//! What a prediction of violations costs: `cargo bench -p evenkeel-core --bench duplicates`.
//!
//! The bar is 0.1 s for 200 000 accesses of four duplicates.

use std::hint::black_box;

use core::num::NonZeroU32;

use divan::Bencher;
use divan::counter::ItemsCount;
use evenkeel_core::rng::Rng;
use evenkeel_core::time::Duration;
use evenkeel_core::units::{Probability, Rate, Weight};
use evenkeel_planner::duplicates::policy::{Objective, Prices, candidates};
use evenkeel_planner::duplicates::{
    Effort, Law, Model, Question, Service, Times, predict_partition,
};

const ACCESSES: u64 = 200_000;

fn main() {
    divan::main();
}

fn formula() -> Times {
    let weight = |value| Weight::new(value).expect("it is above zero");
    let body = Law::LogNormal { mean: Duration::from_micros(2_120), cv: 0.383 };
    let minimum = Duration::from_micros(4_120);
    let tail = Law::Pareto { minimum, shape: 2.2, maximum: None };
    Times::mixed(&[(weight(0.98), body), (weight(0.02), tail)]).expect("two sound parts")
}

/// A window of 10 000 samples.
fn recorded() -> Times {
    let (formula, mut rng) = (formula(), Rng::seeded(1));
    let samples: Vec<Duration> =
        (0..10_000).map(|_| Duration::from_nanos(formula.draw(&mut rng))).collect();
    Times::recorded(&samples).expect("ten thousand samples")
}

fn question(service: &Service) -> Question<'_> {
    let rate = Rate::new(0.4e9 / service.of(0).mean_nanos()).expect("a rate");
    let effort = Effort { accesses: ACCESSES, accesses_max: ACCESSES, ..Effort::default() };
    Question { effort, ..Question::new(service, rate, Duration::from_millis(7)) }
}

fn lindley(bencher: Bencher<'_, '_>, times: Times, duplicates: u32) {
    let service = Service::alike(times);
    let question = question(&service);
    let duplicates = NonZeroU32::new(duplicates).expect("one or more");
    bencher.counter(ItemsCount::new(ACCESSES * u64::from(duplicates.get()))).bench_local(|| {
        predict_partition(Model::Lindley, black_box(&question), question.rate, duplicates)
    });
}

#[divan::bench(args = [1, 2, 4, 8])]
fn lindley_from_a_formula(bencher: Bencher<'_, '_>, duplicates: u32) {
    lindley(bencher, formula(), duplicates);
}

#[divan::bench(args = [1, 2, 4, 8])]
fn lindley_from_samples(bencher: Bencher<'_, '_>, duplicates: u32) {
    lindley(bencher, recorded(), duplicates);
}

/// Every policy of at most eight nodes by the paper's formula.
#[divan::bench]
fn paper_all_policies(bencher: Bencher<'_, '_>) {
    let service = Service::alike(recorded());
    let question = question(&service);
    let target = Probability::clamped(0.99);
    let objective = Objective { target, nodes_max: 8, prices: Prices::default() };
    bencher.bench_local(|| candidates(Model::Paper, black_box(&question), &objective));
}
