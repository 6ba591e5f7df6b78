//! The queues of all duplicates behind the same arrivals.
//!
//! Lindley's recursion: a duplicate whose unfinished work is `W` when an access arrives answers it
//! after `W + S`, and the next one, `a` later, finds `max(0, W + S - a)`. All duplicates of a
//! partition have the same `a` and their own `S`, so that their waits are as dependent as they are.
//!
//! **The estimate.** Not whether an access was late is counted, but how likely it was to be late
//! given the work that it found: `Π_d (1 - Φ_d(τ' - W_d))` with `τ' = τ - μ_net - N·μ_rep`. Its
//! mean is the same and its variance is that of the queues alone: without queues it is exact, and
//! violations of 1e-8 are seen without waiting for one. Rows that were recorded together have no
//! such product; there it is used when all queues are empty, and accesses are counted otherwise.
//!
//! **How long.** Where times have heavy tails, what makes an access late at *all* duplicates is a
//! rare coincidence of long services and bursts of arrivals: 200 000 accesses know a share of 2e-4
//! to a tenth or to a third, and most runs tell too little, a few far too much. More accesses are
//! the remedy, and the only one: drawing each duplicate's times several times behind the same
//! arrivals was tried, and was worth no more than what it cost. So a prediction goes on until its
//! standard error is small enough, as far as violations are not [`RARE`].
//!
//! **When it misleads.** Near ρ = 1 queues take longer to settle than the simulation looks, and
//! times without a variance make waits without a mean: the standard error says so, and more
//! accesses are the remedy ([`Effort`](super::Effort)). It is estimated from batches one after
//! another, so it knows that queues remember. A duplicate with ρ >= 1 never answers in time in the
//! long run and is left out.
//!
//! **Arithmetic** is in whole nanoseconds, so that equal seeds are equal on every machine as far as
//! the formulas of service times are.

use core::num::NonZeroU32;

use super::{Arrivals, Effort, Prediction, Question, Service, Times};
use evenkeel_core::rng::Rng;
use evenkeel_core::time::nanos;
use evenkeel_core::units::Rate;

/// Accesses that are simulated at a time.
const BLOCK: usize = 1_000;
/// Violations that are rarer than this are not looked for longer than [`RARE_TIMES`] as long as at
/// least: what few there are would not come in time for anybody.
const RARE: f64 = 1e-4;
const RARE_TIMES: u64 = 10;
/// Batches whose means say how sure the mean of all is.
const BATCHES: usize = 20;

pub(super) fn predict(question: &Question<'_>, rate: Rate, duplicates: NonZeroU32) -> Prediction {
    let service = question.service;
    let load = |n: &usize| rate.value() * service.of(*n).mean_nanos() / 1e9;
    let all = 0..duplicates.get() as usize;
    let stable: Vec<usize> = all.clone().filter(|n| load(n) < 1.0).collect();
    let without_queues = |violations| Prediction {
        violations,
        standard_error: 0.0,
        utilisation: all.clone().map(|n| load(&n)).fold(0.0, f64::max),
        accesses: 0,
    };
    let Some(left) = question.left_nanos(duplicates).filter(|_| !stable.is_empty()) else {
        return without_queues(1.0);
    };
    if rate.value() == 0.0 {
        return without_queues(service.all_late(&stable, left));
    }
    let mut gaps = Gaps::new(question, rate);
    let mut lanes = match service.rows() {
        None => Lanes::independent(service, &stable, question.effort.seed, left),
        Some(_) => Lanes::together(service, &stable, question.effort.seed, left),
    };
    let mut late = vec![0.0; BLOCK];
    let (sums, accesses) = simulate(question.effort, |room| {
        gaps.fill(room);
        lanes.run(room, &mut late)
    });
    let (violations, standard_error) = mean_and_error(&sums);
    Prediction { violations, standard_error, accesses, ..without_queues(0.0) }
}

/// The sum of each block's chances to be late, and how many accesses that is. `run` simulates as
/// many accesses as there is room for gaps, and says the sum of their chances.
pub(super) fn simulate(effort: Effort, mut run: impl FnMut(&mut [u64]) -> f64) -> (Vec<f64>, u64) {
    let blocks = |accesses: u64| (accesses.div_ceil(BLOCK as u64) as usize).max(BATCHES);
    let (fewest, most) = (blocks(effort.accesses), blocks(effort.accesses_max));
    let most_of_rare = most.min(blocks(effort.accesses.saturating_mul(RARE_TIMES)));
    let mut gaps = vec![0; BLOCK];
    for _ in 0..fewest.div_ceil(20) {
        run(&mut gaps);
    }
    let mut sums = Vec::with_capacity(fewest);
    loop {
        sums.push(run(&mut gaps));
        let looked = sums.len();
        if looked < fewest {
            continue;
        }
        // It is asked now and then only: each time looks at all that was summed.
        let is_enough = looked.is_multiple_of(fewest)
            && (is_sure(&sums, effort.precision)
                || looked >= most_of_rare && mean_and_error(&sums).0 < RARE);
        if looked >= most || is_enough {
            return (sums, (looked * BLOCK) as u64);
        }
    }
}

fn is_sure(sums: &[f64], precision: f64) -> bool {
    let (mean, error) = mean_and_error(sums);
    error <= precision * mean
}

/// The mean of accesses and its standard error, from sums of blocks one after another.
pub(super) fn mean_and_error(sums: &[f64]) -> (f64, f64) {
    let mean = sums.iter().sum::<f64>() / (sums.len() * BLOCK) as f64;
    let size = sums.len() / BATCHES;
    let batches = sums.chunks_exact(size).take(BATCHES);
    let batches = batches.map(|batch| batch.iter().sum::<f64>() / (size * BLOCK) as f64);
    let squares: f64 = batches.map(|batch| (batch - mean).powi(2)).sum();
    let error = (squares / (BATCHES * (BATCHES - 1)) as f64).sqrt();
    (mean.clamp(0.0, 1.0), error)
}

/// The gaps between accesses of one partition.
pub(super) struct Gaps<'a> {
    rng: Rng,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Poisson { mean_nanos: f64 },
    Recorded { gaps: &'a [evenkeel_core::time::Duration], next: usize, scale: f64, share: f64 },
}

impl<'a> Gaps<'a> {
    pub(super) fn new(question: &Question<'a>, rate: Rate) -> Self {
        let rng = Rng::stream(question.effort.seed, "arrivals");
        let kind = match question.arrivals {
            Arrivals::Recorded(gaps) if gaps.iter().any(|gap| !gap.is_zero()) => {
                let whole = question.rate.value().max(rate.value());
                let sum: f64 = gaps.iter().map(|&gap| nanos(gap) as f64).sum();
                let scale = 1e9 / whole * gaps.len() as f64 / sum;
                Kind::Recorded { gaps, next: 0, scale, share: rate.value() / whole }
            }
            _ => Kind::Poisson { mean_nanos: 1e9 / rate.value() },
        };
        Self { rng, kind }
    }

    pub(super) fn fill(&mut self, gaps_nanos: &mut [u64]) {
        for gap in gaps_nanos {
            *gap = match &mut self.kind {
                Kind::Poisson { mean_nanos } => (self.rng.exponential() * *mean_nanos) as u64,
                Kind::Recorded { gaps, next, scale, share } => {
                    let mut sum = 0.0;
                    loop {
                        sum += nanos(gaps[*next]) as f64 * *scale;
                        *next = (*next + 1) % gaps.len();
                        if self.rng.unit() < *share {
                            break sum as u64;
                        }
                    }
                }
            };
        }
    }
}

/// The duplicates of the partition.
enum Lanes<'a> {
    Independent { lanes: Vec<Lane<'a>>, left: u64 },
    Together { rng: Rng, rows: Vec<&'a [u64]>, lanes: Vec<(usize, u64)>, left: u64, all_late: f64 },
}

/// One duplicate that serves independently of the others.
struct Lane<'a> {
    times: &'a Times,
    /// One stream for each: that there is another duplicate changes nothing for those before it.
    rng: Rng,
    work: u64,
    /// The chance to be late behind an empty queue.
    late_idle: f64,
}

impl<'a> Lanes<'a> {
    fn independent(service: &'a Service, stable: &[usize], seed: u64, left: u64) -> Self {
        let lane = |&n: &usize| {
            let times = service.of(n);
            let rng = Rng::stream(seed, &format!("duplicate {n}"));
            Lane { times, rng, work: 0, late_idle: times.late(left) }
        };
        Self::Independent { lanes: stable.iter().map(lane).collect(), left }
    }

    fn together(service: &'a Service, stable: &[usize], seed: u64, left: u64) -> Self {
        Self::Together {
            rng: Rng::stream(seed, "rows"),
            rows: service.rows().into_iter().flatten().collect(),
            lanes: stable.iter().map(|&n| (n, 0)).collect(),
            left,
            all_late: service.all_late(stable, left),
        }
    }

    /// The sum over the next accesses of their chances to be late.
    fn run(&mut self, gaps: &[u64], late: &mut [f64]) -> f64 {
        match self {
            Self::Independent { lanes, left } => {
                late.fill(1.0);
                for lane in lanes {
                    lane.run(gaps, late, *left);
                }
                late.iter().sum()
            }
            Self::Together { rng, rows, lanes, left, all_late } => {
                let gaps = gaps.iter();
                gaps.map(|&gap| arrive(rng, rows, lanes, gap, *left, *all_late)).sum()
            }
        }
    }
}

impl Lane<'_> {
    /// Takes all accesses of a block, and multiplies in how likely it is late with each.
    fn run(&mut self, gaps: &[u64], late: &mut [f64], left: u64) {
        for (&gap, late) in gaps.iter().zip(late) {
            self.work = self.work.saturating_sub(gap);
            if self.work == 0 {
                *late *= self.late_idle;
            } else if self.work <= left && *late > 0.0 {
                *late *= self.times.late(left - self.work);
            }
            self.work = self.work.saturating_add(self.times.draw(&mut self.rng));
        }
    }
}

/// One access of duplicates that were recorded together: its chance to be late if nobody is busy,
/// else whether it is.
fn arrive(
    rng: &mut Rng,
    rows: &[&[u64]],
    lanes: &mut [(usize, u64)],
    gap: u64,
    left: u64,
    all_late: f64,
) -> f64 {
    let row = rows[rng.below(rows.len())];
    let (mut idle, mut late) = (true, true);
    for (column, work) in lanes {
        *work = work.saturating_sub(gap);
        idle &= *work == 0;
        *work = work.saturating_add(row[*column]);
        late &= *work > left;
    }
    match (idle, late) {
        (true, _) => all_late,
        (false, true) => 1.0,
        (false, false) => 0.0,
    }
}
