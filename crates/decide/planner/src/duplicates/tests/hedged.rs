//! Reads to one duplicate and late copies, against a list of events that has nothing in common with
//! the model but what is simulated: queues of accesses, departures one by one, tokens counted here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::queues::Draws;
use super::{ask, at, ms, rate, share, store};
use crate::duplicates::policy::{Objective, Prices, judge};
use crate::duplicates::{Law, Model, Policy, Question, Reads, Service, predict, predict_hedged};

/// What happens, the earliest first: times in nanoseconds, so that they have an order.
type Events = BinaryHeap<Reverse<(u64, What)>>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrival,
    Departure(usize),
    CopyOf(usize),
}

fn nanos(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

/// A store's duplicates; all accesses are reads, but for a share of writes.
struct Store {
    draws: Draws,
    events: Events,
    /// By duplicate: the accesses that it owes.
    queues: Vec<VecDeque<usize>>,
    /// By access: when it came, its first duplicate, and how long it took.
    accesses: Vec<(u64, usize, Option<u64>)>,
}

impl Store {
    fn send(&mut self, now: u64, access: usize, duplicate: usize) {
        self.queues[duplicate].push_back(access);
        if self.queues[duplicate].len() == 1 {
            let done = now + nanos(self.draws.store());
            self.events.push(Reverse((done, What::Departure(duplicate))));
        }
    }

    fn shortest(&mut self, but: Option<usize>) -> usize {
        let mut others: Vec<usize> = (0..self.queues.len()).filter(|&it| Some(it) != but).collect();
        let shortest = others.iter().map(|&it| self.queues[it].len()).min().unwrap();
        others.retain(|&it| self.queues[it].len() == shortest);
        others[(self.draws.unit() * others.len() as f64) as usize]
    }

    /// How long accesses took; copies leave after `delay`.
    fn run(&mut self, load: f64, writes: f64, delay: Option<f64>, count: usize) -> Vec<f64> {
        let (mean_gap, mut tokens) = (store().mean_nanos() / 1e6 / load, 10.0_f64);
        self.events.push(Reverse((0, What::Arrival)));
        while let Some(Reverse(event)) = self.events.pop() {
            match event {
                (now, What::Arrival) => {
                    let access = self.accesses.len();
                    if self.draws.unit() < writes {
                        self.accesses.push((now, 0, None));
                        (0..self.queues.len()).for_each(|it| self.send(now, access, it));
                    } else {
                        tokens = (tokens + 0.05).min(10.0);
                        let first = self.shortest(None);
                        self.accesses.push((now, first, None));
                        self.send(now, access, first);
                        if let Some(delay) = delay {
                            let due = now + nanos(delay);
                            self.events.push(Reverse((due, What::CopyOf(access))));
                        }
                    }
                    if self.accesses.len() < count {
                        let next = now + nanos(mean_gap * self.draws.exponential());
                        self.events.push(Reverse((next, What::Arrival)));
                    }
                }
                (now, What::CopyOf(access)) => {
                    let (_, first, took) = self.accesses[access];
                    if took.is_none() && tokens >= 1.0 {
                        tokens -= 1.0;
                        let second = self.shortest(Some(first));
                        self.send(now, access, second);
                    }
                }
                (now, What::Departure(duplicate)) => {
                    let access = self.queues[duplicate].pop_front().unwrap();
                    let (came, _, took) = &mut self.accesses[access];
                    took.get_or_insert(now - *came);
                    if !self.queues[duplicate].is_empty() {
                        let done = now + nanos(self.draws.store());
                        self.events.push(Reverse((done, What::Departure(duplicate))));
                    }
                }
            }
        }
        self.accesses[count / 20..].iter().filter_map(|it| it.2).map(|it| it as f64 / 1e6).collect()
    }
}

fn by_events(duplicates: usize, load: f64, writes: f64, bound: f64) -> f64 {
    let begin = |seed| Store {
        draws: Draws(seed),
        events: Events::new(),
        queues: vec![VecDeque::new(); duplicates],
        accesses: Vec::new(),
    };
    let mut alone = begin(3).run(load, writes, None, 100_000);
    alone.sort_by(f64::total_cmp);
    let took = begin(4).run(load, writes, Some(alone[alone.len() * 95 / 100]), 200_000);
    took.iter().filter(|&&it| it > bound).count() as f64 / took.len() as f64
}

fn hedged<'a>(service: &'a Service, load: f64, reads: f64, bound: f64) -> Question<'a> {
    let question = ask(service, at(load, &store()), ms(bound), 200_000);
    Question { read_share: share(reads), ..question }
}

#[test]
fn the_model_agrees_with_a_list_of_events() {
    let service = Service::alike(store());
    // Loads of one duplicate that had all reads alone.
    for (duplicates, load, writes, bound) in
        [(2, 0.4, 0.0, 8.0), (3, 1.5, 0.0, 10.0), (3, 0.6, 0.3, 9.0), (4, 2.4, 0.0, 9.0)]
    {
        let question = hedged(&service, load, 1.0 - writes, bound);
        let policy = Policy::new(1, duplicates).unwrap();
        let told = predict_hedged(&question, policy).unwrap();
        let seen = by_events(duplicates as usize, load, writes, bound);
        let chance = 3.0 * (told.standard_error.powi(2) * 2.0).sqrt();
        let apart = (told.violations - seen).abs();
        assert!(apart <= 0.1 * seen + chance, "{policy} {load}: {told:?} told, {seen} seen");
    }
}

/// Without queues a read is late when its first duplicate needs longer than the bound, and its copy
/// longer than what the quantile leaves of it, or the budget is spent.
#[test]
fn without_load_it_is_what_two_tries_miss() {
    let times = Law::Exponential { mean: ms(1.0) }.times().unwrap();
    let service = Service::alike(times);
    let question =
        Question { read_share: share(1.0), ..ask(&service, rate(0.5), ms(5.0), 1_000_000) };
    let told = predict_hedged(&question, Policy::new(1, 2).unwrap()).unwrap();
    let (first, copy) = ((-5.0_f64).exp(), (-(5.0 - 20.0_f64.ln())).exp());
    let denied = 0.1; // of the copies, at most: the share that is due is that of the budget
    let most = first * (copy * (1.0 - denied) + denied);
    let (low, high) = told.interval();
    assert!(high >= first * copy && low <= most, "{told:?}: {} to {most}", first * copy);
}

#[test]
fn load_decides_between_copies_to_all_and_hedges() {
    let service = Service::alike(store());
    let objective = Objective { target: share(0.999), nodes_max: 3, prices: Prices::default() };
    let chosen = |load| {
        let question = hedged(&service, load, 1.0, 8.0);
        judge(Model::Lindley, &question, &objective, Policy::new(1, 3).unwrap()).unwrap()
    };
    let (calm, busy) = (chosen(0.1), chosen(0.8));
    assert_eq!((calm.reads, busy.reads), (Reads::All, Reads::Hedged));
    for one in [calm, busy] {
        assert!(one.prediction.violations < one.otherwise.unwrap().violations, "{one:?}");
    }
    assert!((busy.prediction.utilisation - 0.8 * 1.05 / 3.0).abs() < 1e-12);
    // Where writes are most, there is nothing to choose.
    let question = hedged(&service, 0.8, 0.0, 8.0);
    let policy = Policy::new(1, 3).unwrap();
    assert_eq!(predict_hedged(&question, policy), None);
    let one = judge(Model::Lindley, &question, &objective, policy).unwrap();
    assert_eq!(one.prediction, predict(Model::Lindley, &question, policy).unwrap());
    assert_eq!(predict_hedged(&hedged(&service, 0.8, 1.0, 8.0), Policy::new(3, 1).unwrap()), None);
}
