//! What a run showed, beside what the models of core predict of it.
//!
//! The models are told what a manager knows: the law of service times (or, where there are pauses,
//! the service times that were recorded), the mean delay of the network, what the multicast costs,
//! and the rate. They are not told what an access met.
//!
//! **Nines** are `-log10` of the share of violations. A run of n accesses without one says no more
//! than log10(n), so that is what it counts as; a prediction has at most [`NINES_MAX`].

use core::num::NonZeroU32;

use evenkeel_core::Duration;
use evenkeel_core::time::nanos;
use evenkeel_core::units::{OutOfRange, Rate, Weight};
use evenkeel_planner::duplicates::{Effort, Model, Question, Service, Times, predict_partition};
use serde::Serialize;

use super::deployment::{Arrivals, Deployment};
use super::law::Law;
use super::layout::{Layout, Partition};
use super::notes::{Monitor, Notes};

/// The most nines that a prediction counts as.
pub const NINES_MAX: f64 = 16.0;

/// What a run showed of duplicates.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct DuplicatesReport {
    /// Servers in all.
    pub servers: u64,
    /// Accesses per server and second that were served, copies included.
    pub copies_per_server_s: f64,
    /// Share of the time in which a server serves, averaged over them.
    pub utilisation: f64,
    /// Copies that were dropped before they were served, as a share of all.
    pub cancelled_ratio: f64,
    /// Share of violations.
    pub violation_ratio: f64,
    /// The same in nines.
    pub nines: f64,
    /// Nodes and violations of an hour.
    pub cost_per_hour: f64,
    /// The same, as the paper's model expects it.
    pub paper_cost_per_hour: f64,
    /// Share of violations that models expect.
    pub predicted: Predictions,
    /// Whether outliers are heavy and independent, where that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principles: Option<Principles>,
    /// How windows of service times differ, where there are windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divergences: Option<Divergences>,
}

/// Windows of service times, each compared with the one before: figure 5 (B).
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Divergences {
    /// The information gain, bits.
    pub bits: Vec<f64>,
    /// The same over what chance explains: above 1 they differ.
    pub over_noise: Vec<f64>,
    /// Of the windows in which nothing changed, the share that differ from the one before.
    pub calm_ratio: f64,
    /// Of the changes, the share that a window shows.
    pub found_ratio: f64,
    /// The most windows in a row that differ because of one change.
    pub lasts_windows: u64,
}

/// Share of violations that models expect: those of table 3, and ours.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Predictions {
    /// One duplicate by the law known from before, without queues.
    pub single: f64,
    /// As many as there are by that law: the geometric series.
    pub series: f64,
    /// The same by the law that there is: the sliding window.
    pub window: f64,
    /// The full model of the paper: mean waits, network and multicast deducted.
    pub paper: f64,
    /// Queues behind shared arrivals; where it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lindley: Option<f64>,
}

/// Section 2.1.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Principles {
    /// Coefficient of variation of the accesses up to the 70th percentile.
    pub body_variation: f64,
    /// Of all.
    pub variation: f64,
    /// Share within three means.
    pub within_three_means: f64,
    /// The 99.99th percentile over the mean.
    pub last_over_mean: f64,
    /// Accesses slow or fast (against the median) on two duplicates: the share in the emptiest of
    /// the four quarters.
    pub emptiest_quarter: f64,
    /// Of the slowest tenth on the first duplicate, the share among the slowest tenth on the
    /// second.
    pub slow_on_both: f64,
}

/// What a layout of duplicated stores showed.
pub(crate) fn of_notes(
    deployment: &Deployment,
    layout: &Layout,
    notes: &Notes,
    seed: u64,
) -> DuplicatesReport {
    let end_s = notes.end.as_secs_f64().max(1e-9);
    let servers = layout.servers() as f64;
    let busy: u64 = notes.busy_nanos.iter().sum();
    let copies = (notes.served + notes.skipped).max(1);
    let violation_ratio = notes.violations as f64 / notes.batches.max(1) as f64;
    let predicted = predictions(deployment, layout, notes, seed)
        .expect("deployments and layouts are checked when read");
    DuplicatesReport {
        servers: layout.servers() as u64,
        copies_per_server_s: notes.served as f64 / end_s / servers,
        utilisation: busy as f64 * 1e-9 / end_s / servers,
        cancelled_ratio: notes.skipped as f64 / copies as f64,
        violation_ratio,
        nines: -(notes.violations.max(1) as f64 / notes.batches.max(1) as f64).log10(),
        cost_per_hour: cost_per_hour(deployment, layout, violation_ratio),
        paper_cost_per_hour: cost_per_hour(deployment, layout, predicted.paper),
        predicted,
        principles: Principles::of(&notes.pairs),
        divergences: notes.monitor.as_ref().map(|of| Divergences::of(of, deployment, servers)),
    }
}

/// `N · cpn + λ_vio · cpv` of section 4, for an hour.
pub(crate) fn cost_per_hour(deployment: &Deployment, layout: &Layout, violations: f64) -> f64 {
    let workload = &deployment.workload;
    let per_hour = 3_600.0 * deployment.mean_rate() / workload.batch as f64;
    let cost = &deployment.cost;
    layout.servers() as f64 * cost.per_node + violations * per_hour * cost.per_violation
}

/// A share of violations in nines: `-log10`, at most [`NINES_MAX`].
pub fn nines(violations: f64) -> f64 {
    (-violations.log10()).min(NINES_MAX)
}

fn predictions(
    deployment: &Deployment,
    layout: &Layout,
    notes: &Notes,
    seed: u64,
) -> Result<Predictions, OutOfRange> {
    let service = match notes.services.as_slice() {
        [] => Service::alike(times(deployment, deployment.law())?),
        recorded => {
            let recorded: Vec<Duration> =
                recorded.iter().map(|nanos| Duration::from_nanos(*nanos)).collect();
            Service::alike(Times::recorded(&recorded)?)
        }
    };
    let known = match &deployment.known {
        Some(law) => Service::alike(times(deployment, law)?),
        None => service.clone(),
    };
    let bound = nanos(deployment.bound);
    let late = |service: &Service, duplicates: usize| {
        service.of(0).late(bound).powi(i32::try_from(duplicates).unwrap_or(i32::MAX))
    };
    let of = |chance: &dyn Fn(&Partition) -> f64| in_batches(deployment, layout, chance);
    let mut question = question(deployment, &service)?;
    question.effort = Effort {
        accesses: deployment.lindley_accesses,
        accesses_max: deployment.lindley_accesses,
        seed,
        ..Effort::default()
    };
    let lindley = deployment.lindley_accesses > 0;
    Ok(Predictions {
        single: of(&|_| late(&known, 1)),
        series: of(&|one| late(&known, one.duplicates)),
        window: of(&|one| late(&service, one.duplicates)),
        paper: modelled(deployment, layout, &question, Model::Paper)?,
        lindley: match lindley {
            true => Some(modelled(deployment, layout, &question, Model::Lindley)?),
            false => None,
        },
    })
}

/// The model's violations, over all partitions and times of the day.
fn modelled(
    deployment: &Deployment,
    layout: &Layout,
    question: &Question<'_>,
    model: Model,
) -> Result<f64, OutOfRange> {
    let workload = &deployment.workload;
    let factors = if workload.factors.is_empty() { &[1.0][..] } else { &workload.factors };
    let mut sum = 0.0;
    for factor in factors {
        let mut asked: Vec<(Partition, f64)> = Vec::new();
        for one in &layout.partitions {
            if asked.iter().any(|(known, _)| known == one) {
                continue;
            }
            let share = one.shards as f64 / workload.shards as f64;
            let rate = Rate::new(question.rate.value() * factor * share)?;
            let duplicates = NonZeroU32::new(one.duplicates as u32);
            let duplicates = duplicates.expect("a partition has a duplicate");
            let predicted = predict_partition(model, question, rate, duplicates)?;
            asked.push((*one, predicted.violations));
        }
        sum += in_batches(deployment, layout, &|one| {
            asked.iter().find(|(known, _)| known == one).map_or(1.0, |(_, late)| *late)
        });
    }
    Ok(sum / factors.len() as f64)
}

/// The chance that a batch is late when its accesses are, each for itself.
fn in_batches(deployment: &Deployment, layout: &Layout, chance: &dyn Fn(&Partition) -> f64) -> f64 {
    let workload = &deployment.workload;
    let late: f64 = layout.partitions.iter().map(|one| one.shards as f64 * chance(one)).sum();
    let late = (late / workload.shards as f64).min(1.0);
    if workload.batch == 1 {
        return late;
    }
    -(workload.batch as f64 * (-late).ln_1p()).exp_m1()
}

fn question<'a>(deployment: &Deployment, service: &'a Service) -> Result<Question<'a>, OutOfRange> {
    let (copies, common) = (&deployment.copies, &deployment.common);
    // One after another there is no queue.
    let is_open = deployment.workload.arrivals == Arrivals::Poisson;
    let rate = if is_open { deployment.workload.rate } else { 0.0 };
    let mut question = Question::new(service, Rate::new(rate)?, deployment.bound);
    let ratio = nanos(common.most) as f64 / nanos(common.least).max(1) as f64;
    let common_mean = common.least.mul_f64(common.share * (1.0 + ratio.max(1.0).ln()));
    question.net = copies.one_way * 2 + common_mean;
    question.repeat = copies.repeat + copies.prune;
    Ok(question)
}

fn times(deployment: &Deployment, law: &Law) -> Result<Times, OutOfRange> {
    let reads = deployment.workload.reads;
    let mut parts = Vec::new();
    for (share, law) in [(1.0 - reads, law), (reads, deployment.reading.as_ref().unwrap_or(law))] {
        for (weight, formula) in law.formulas() {
            if share * weight > 0.0 {
                parts.push((Weight::new(share * weight)?, formula));
            }
        }
    }
    Times::mixed(&parts)
}

impl Divergences {
    /// Of windows that all servers fill, each equally.
    fn of(monitor: &Monitor, deployment: &Deployment, servers: f64) -> Self {
        let all = &monitor.divergences;
        let over_noise: Vec<f64> = all.iter().map(|one| one.bits / one.noise_bits).collect();
        let differs = |at: usize| over_noise.get(at).is_some_and(|over| *over > 1.0);
        // A change falls into a window, which then differs from the one before, and so may the
        // next one from it.
        let served = deployment.workload.accesses as f64 * servers;
        let window = |share: f64| (share * served / deployment.window as f64) as usize;
        let changes: Vec<usize> =
            deployment.phases[1..].iter().map(|(at, _)| window(*at)).collect();
        let is_near = |at: usize| changes.iter().any(|change| (at..=at + 1).contains(change));
        let calm: Vec<usize> = (0..all.len()).filter(|at| !is_near(*at)).collect();
        let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
        let first = |change: usize| change.saturating_sub(1);
        let found =
            changes.iter().filter(|change| (first(**change)..=**change).any(differs)).count();
        let lasts = |change: &usize| {
            let from = (first(*change)..=*change).find(|at| differs(*at)).unwrap_or(usize::MAX);
            (0..all.len()).take_while(|more| differs(from.saturating_add(*more))).count()
        };
        Self {
            bits: all.iter().map(|one| one.bits).collect(),
            calm_ratio: share(calm.iter().filter(|at| differs(**at)).count(), calm.len()),
            found_ratio: share(found, changes.len()),
            lasts_windows: changes.iter().map(lasts).max().unwrap_or_default() as u64,
            over_noise,
        }
    }
}

impl Principles {
    /// What the same accesses took on two duplicates; `None` without two.
    fn of(pairs: &[[u64; 2]]) -> Option<Self> {
        let pairs: Vec<[f64; 2]> = pairs
            .iter()
            .filter(|pair| pair.iter().all(|took| *took > 0))
            .map(|pair| pair.map(|took| took as f64))
            .collect();
        if pairs.len() < 100 {
            return None;
        }
        let sorted = |which: usize| {
            let mut all: Vec<f64> = pairs.iter().map(|pair| pair[which]).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (first, second) = (sorted(0), sorted(1));
        let at = |all: &[f64], share: f64| all[(all.len() as f64 * share) as usize];
        let mean = first.iter().sum::<f64>() / first.len() as f64;
        let count = pairs.len() as f64;
        let share = |passes: &dyn Fn(&[f64; 2]) -> bool| {
            pairs.iter().filter(|pair| passes(pair)).count() as f64 / count
        };
        let middle = [at(&first, 0.5), at(&second, 0.5)];
        let slow = [at(&first, 0.9), at(&second, 0.9)];
        let quarter = |sides: [bool; 2]| {
            share(&|pair| (0..2).all(|which| (pair[which] > middle[which]) == sides[which]))
        };
        let quarters = [[false, false], [false, true], [true, false], [true, true]].map(quarter);
        let both = share(&|pair| (0..2).all(|which| pair[which] >= slow[which]));
        Some(Self {
            body_variation: variation(&first[..(first.len() * 7).div_ceil(10)]),
            variation: variation(&first),
            within_three_means: share(&|pair| pair[0] <= 3.0 * mean),
            last_over_mean: at(&first, 0.9999) / mean,
            emptiest_quarter: quarters.into_iter().fold(1.0, f64::min),
            slow_on_both: both / share(&|pair| pair[0] >= slow[0]),
        })
    }
}

fn variation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (squares / count).sqrt() / mean
}
