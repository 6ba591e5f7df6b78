//! Reads that go to one duplicate, and after a while to a second one.
//!
//! The load of a read is 1.05 copies in place of one for each duplicate. So queues are short where
//! sending to all would be busy with copies; but an access that meets a slow duplicate waits until
//! its copy leaves. Which of the two is better depends on the load: below some utilisation all
//! copies, above it hedges. Writes go to all in either case.
//!
//! **What is simulated** is what the product does with `read_copies = 1`, the policy
//! `least-outstanding` and an empty table `hedge`: the duplicate that owes the fewest replies, a
//! copy after the 95 % quantile of first replies to the one of the others that owes fewest, within
//! a [`Budget`] of 5 %; nothing is taken back. The quantile is that of the warm-up.
//!
//! **How.** The recursion of `lindley.rs`, with an event for each copy that is due. Late accesses
//! are counted one by one, so it looks longer than that for the same standard error.
//!
//! **When it misleads.** `c3` chooses better than the fewest replies owed. Sessions that must see
//! their own writes have fewer duplicates to choose from for a moment, which is not known here.

use core::num::NonZeroU32;
use std::collections::VecDeque;

use super::lindley::{Gaps, mean_and_error, simulate};
use super::{Prediction, Question, Service};
use evenkeel_core::Instant;
use evenkeel_core::request::redundancy::Budget;
use evenkeel_core::rng::Rng;
use evenkeel_core::units::Rate;

/// The share of reads that are answered before a copy leaves, copies as a share of reads, and how
/// many may leave in a burst: the product's defaults.
const QUANTILE: f64 = 0.95;
const BUDGET: f64 = 0.05;
const BURST_MAX: f64 = 10.0;
/// Reads whose first replies tell the quantile.
const WARM_UP: usize = 20_000;

pub(super) fn predict(question: &Question<'_>, rate: Rate, duplicates: NonZeroU32) -> Prediction {
    let (service, count) = (question.service, duplicates.get() as usize);
    let reads = question.read_share.value();
    let copies = (1.0 - reads) + reads * (1.0 + BUDGET) / count as f64;
    let load = |n: usize| rate.value() * copies * service.of(n).mean_nanos() / 1e9;
    let utilisation = (0..count).map(load).fold(0.0, f64::max);
    let nothing = Prediction { violations: 1.0, standard_error: 0.0, utilisation, accesses: 0 };
    let left = [1, 2, duplicates.get()]
        .map(|copies| question.left_nanos(NonZeroU32::new(copies).unwrap_or(NonZeroU32::MIN)));
    let [Some(alone), Some(hedged), Some(all)] = left else { return nothing };
    if utilisation >= 1.0 || rate.value() == 0.0 {
        return nothing;
    }
    let mut gaps = Gaps::new(question, rate);
    let mut world = World::new(service, count, question.effort.seed, reads, [alone, hedged, all]);
    world.learn_delay(&mut gaps);
    let (sums, accesses) = simulate(question.effort, |gap| world.run(&mut gaps, gap));
    let (violations, standard_error) = mean_and_error(&sums);
    Prediction { violations, standard_error, utilisation, accesses }
}

/// One duplicate.
struct Lane {
    /// When it will have done all that it owes.
    free_at: u64,
    /// When it will have done each of that.
    owed: VecDeque<u64>,
}

impl Lane {
    fn owes(&mut self, now: u64) -> usize {
        while self.owed.front().is_some_and(|&done| done <= now) {
            self.owed.pop_front();
        }
        self.owed.len()
    }

    /// When an access that comes now is answered.
    fn take(&mut self, now: u64, takes: u64) -> u64 {
        self.free_at = self.free_at.max(now).saturating_add(takes);
        self.owed.push_back(self.free_at);
        self.free_at
    }
}

/// A copy that is due unless the answer comes before.
struct Due {
    at: u64,
    came: u64,
    first: usize,
    answered: u64,
    /// The times of this access at each duplicate.
    times: Vec<u64>,
}

struct World<'a> {
    service: &'a Service,
    rows: Vec<&'a [u64]>,
    rng: Rng,
    lanes: Vec<Lane>,
    /// In the order in which they are due: all have the same delay.
    dues: VecDeque<Due>,
    budget: Budget,
    reads: f64,
    /// What is left of the bound for a read alone, with a copy, and for a write, in nanoseconds.
    left: [u64; 3],
    delay: u64,
    now: u64,
    late: f64,
}

impl<'a> World<'a> {
    fn new(service: &'a Service, count: usize, seed: u64, reads: f64, left: [u64; 3]) -> Self {
        Self {
            service,
            rows: service.rows().into_iter().flatten().collect(),
            rng: Rng::stream(seed, "hedged"),
            lanes: (0..count).map(|_| Lane { free_at: 0, owed: VecDeque::new() }).collect(),
            dues: VecDeque::new(),
            budget: Budget::share(BUDGET, BURST_MAX),
            reads,
            left,
            delay: u64::MAX,
            now: 0,
            late: 0.0,
        }
    }

    /// Runs without copies; then they leave after the quantile of what first replies took.
    fn learn_delay(&mut self, gaps: &mut Gaps<'_>) {
        let (mut took, mut gap) = (Vec::with_capacity(WARM_UP), [0]);
        while took.len() < WARM_UP {
            gaps.fill(&mut gap);
            took.push(self.access(gap[0]));
        }
        took.sort_unstable();
        self.delay = took[(QUANTILE * WARM_UP as f64) as usize];
        self.late = 0.0;
    }

    /// How many of so many accesses are late; those whose copy is not due yet count in the next.
    fn run(&mut self, gaps: &mut Gaps<'_>, block: &mut [u64]) -> f64 {
        gaps.fill(block);
        for &gap in &*block {
            self.access(gap);
        }
        core::mem::take(&mut self.late)
    }

    /// One access; after how long the first duplicate that was asked replies.
    fn access(&mut self, gap: u64) -> u64 {
        self.now += gap;
        while self.dues.front().is_some_and(|due| due.at <= self.now) {
            if let Some(due) = self.dues.pop_front() {
                self.copy(&due);
            }
        }
        let (now, times) = (self.now, self.draw());
        if self.rng.unit() >= self.reads {
            let lanes = self.lanes.iter_mut().zip(&times);
            let took = lanes.map(|(lane, &takes)| lane.take(now, takes) - now).min().unwrap_or(0);
            self.judge(took, 2);
            return took;
        }
        self.budget.deposit(Instant::from_nanos(now));
        let first = self.owes_fewest(now, None);
        let answered = self.lanes[first].take(now, times[first]);
        match now.checked_add(self.delay).filter(|&at| at < answered) {
            Some(at) => self.dues.push_back(Due { at, came: now, first, answered, times }),
            None => self.judge(answered - now, 0),
        }
        answered - now
    }

    /// A copy is due: it leaves if the budget allows.
    fn copy(&mut self, due: &Due) {
        if !self.budget.withdraw() {
            return self.judge(due.answered - due.came, 0);
        }
        let second = self.owes_fewest(due.at, Some(due.first));
        let answered = self.lanes[second].take(due.at, due.times[second]).min(due.answered);
        self.judge(answered - due.came, 1);
    }

    fn judge(&mut self, took: u64, kind: usize) {
        self.late += f64::from(u8::from(took > self.left[kind]));
    }

    /// Chance decides among equals.
    fn owes_fewest(&mut self, now: u64, but: Option<usize>) -> usize {
        let begin = self.rng.below(self.lanes.len());
        let count = self.lanes.len();
        let others = (0..count).map(|n| (begin + n) % count).filter(|&n| but != Some(n));
        others.min_by_key(|&n| self.lanes[n].owes(now)).unwrap_or(0)
    }

    fn draw(&mut self) -> Vec<u64> {
        match self.rows.len() {
            0 => (0..self.lanes.len()).map(|n| self.service.of(n).draw(&mut self.rng)).collect(),
            rows => self.rows[self.rng.below(rows)].to_vec(),
        }
    }
}
