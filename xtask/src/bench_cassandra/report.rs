//! What was measured, as tables for people and as one JSON document.

mod words;

use super::Options;
use super::copies::Copies;
use super::generator::Outcome;
use super::scenario::{Mix, Scenario};
use super::ways::Way;
use crate::bench::{load_average, processors, statistics};

/// The percentile that the bars are about.
const TAIL: f64 = 0.999;

/// A percentile of more than this is the load's own lateness, not that of nodes.
const LATE_US_MAX: u64 = 5_000;

/// With more of the processors' time taken away, one request in a thousand waits for that.
const STOLEN_MAX: f64 = 0.001;

/// One way in one turn.
#[derive(Debug)]
pub(super) struct Measurement {
    /// Of all requests, sorted.
    latencies_us: Vec<u64>,
    /// Of those that were due in the first half, and in the second.
    halves_us: [Vec<u64>; 2],
    errors: u64,
    error: Option<String>,
    pub(super) elapsed_us: f64,
    /// CPU time of the load's process with the driver.
    driver_us: f64,
    /// By how much too late requests were sent, 99.9th percentile.
    late_us: u64,
    pub(super) cost: Cost,
}

/// What a turn took besides.
#[derive(Debug, Default)]
pub(super) struct Cost {
    /// CPU time of the proxy.
    pub(super) proxy_us: f64,
    /// CPU time of all nodes.
    pub(super) nodes_us: f64,
    pub(super) copies: Copies,
    /// The share of all processors' time that anything on this machine used.
    pub(super) busy: f64,
    /// The share that was wanted and that the machine's host gave to other machines.
    pub(super) stolen: f64,
}

impl Measurement {
    pub(super) fn new(outcome: Outcome, cost: Cost) -> Self {
        let mut latencies_us = outcome.halves_us.concat();
        latencies_us.sort_unstable();
        Self {
            latencies_us,
            halves_us: outcome.halves_us,
            errors: outcome.errors,
            error: outcome.error,
            elapsed_us: outcome.elapsed_us as f64,
            driver_us: outcome.cpu_us as f64,
            late_us: outcome.late_us,
            cost,
        }
    }

    fn answered(&self) -> f64 {
        self.latencies_us.len() as f64
    }

    fn answered_per_s(&self) -> f64 {
        self.answered() / self.elapsed_us * 1e6
    }

    fn quantile_us(&self, share: f64) -> f64 {
        quantile_us(&[&self.latencies_us], share)
    }

    fn was_late(&self) -> bool {
        self.late_us > LATE_US_MAX
    }

    fn was_robbed(&self) -> bool {
        self.cost.stolen > STOLEN_MAX
    }

    /// Whether its tail is that of what was measured, as far as the machine tells.
    fn was_alone(&self) -> bool {
        !self.was_late() && !self.was_robbed()
    }
}

fn quantile_us(sorted: &[&[u64]], share: f64) -> f64 {
    statistics::pooled_quantile(sorted, share).map_or(f64::NAN, |us| us as f64)
}

/// All rounds of one way under one load.
struct Series {
    way: &'static Way,
    rounds: Vec<Measurement>,
}

impl Series {
    /// Of all rounds together.
    fn quantile_us(&self, share: f64) -> f64 {
        let all: Vec<usize> = (0..self.rounds.len()).collect();
        self.quantile_of_us(&all, share)
    }

    fn quantile_of_us(&self, rounds: &[usize], share: f64) -> f64 {
        let lists = rounds.iter().map(|round| self.rounds[*round].latencies_us.as_slice());
        quantile_us(&lists.collect::<Vec<_>>(), share)
    }

    fn half_quantile_us(&self, half: usize, share: f64) -> f64 {
        let lists = self.rounds.iter().map(|round| round.halves_us[half].as_slice());
        quantile_us(&lists.collect::<Vec<_>>(), share)
    }

    /// Of all rounds together, for each answered request.
    fn each(&self, value: fn(&Measurement) -> f64) -> f64 {
        let sum = |value: fn(&Measurement) -> f64| self.rounds.iter().map(value).sum::<f64>();
        sum(value) / sum(Measurement::answered)
    }

    fn values(&self, value: impl Fn(&Measurement) -> f64) -> Vec<f64> {
        self.rounds.iter().map(value).collect()
    }

    fn errors(&self) -> u64 {
        self.rounds.iter().map(|round| round.errors).sum()
    }
}

/// A value that summarizes rounds, and between what it lies with 95 % probability.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    value: f64,
    interval: (f64, f64),
}

impl Estimate {
    /// The middle of what each round says.
    fn of_rounds(values: &[f64]) -> Self {
        let interval = statistics::median_interval(values);
        let interval = interval.expect("options with too few rounds are refused");
        Self { value: statistics::median(values), interval }
    }
}

/// One load on all ways.
pub(super) struct Cell {
    scenario: &'static Scenario,
    mix: &'static Mix,
    /// What a reader must know besides.
    pub(super) note: Option<String>,
    series: Vec<Series>,
}

impl Cell {
    pub(super) fn new(
        scenario: &'static Scenario,
        mix: &'static Mix,
        ways: &[&'static Way],
    ) -> Self {
        let series = ways.iter().map(|way| Series { way, rounds: Vec::new() }).collect();
        Self { scenario, mix, note: None, series }
    }

    /// Adds the next round of the way with this place.
    pub(super) fn add(&mut self, place: usize, measured: Measurement) {
        self.series[place].rounds.push(measured);
    }

    /// Whom the bars hold a way against: its driver by itself, and with the driver's own copies.
    fn rivals(&self, series: &Series) -> Vec<&Series> {
        let own = |one: &&Series| one.way.driver == series.way.driver && one.way.is_speculative();
        [self.reference(series)].into_iter().chain(self.series.iter().filter(own)).collect()
    }

    fn reference(&self, series: &Series) -> &Series {
        let reference = self.series.iter().find(|one| one.way.name == series.way.reference);
        reference.expect("options without it are refused")
    }

    /// In each round, this way's value beside its reference's.
    fn within_rounds(
        &self,
        series: &Series,
        value: impl Fn(&Measurement) -> f64,
        compare: fn(f64, f64) -> f64,
    ) -> Estimate {
        beside(series, self.reference(series), value, compare)
    }

    /// By how much the proxy makes the median later, in us: beside the driver's default policy, and
    /// beside a way that chooses alike.
    fn added_us(&self, series: &Series) -> Vec<(&'static str, Estimate)> {
        let names = [Some(series.way.reference), series.way.without_proxy];
        let others = names.into_iter().flatten().filter_map(|name| {
            let other = self.series.iter().find(|other| other.way.name == name)?;
            let median = |round: &Measurement| round.quantile_us(0.5);
            Some((name, beside(series, other, median, |own, other| own - other)))
        });
        others.collect()
    }

    fn all_rounds(&self) -> Vec<usize> {
        let rounds = self.series.iter().map(|series| series.rounds.len()).min().unwrap_or(0);
        (0..rounds).collect()
    }

    /// The rounds in which the machine was the benchmark's alone, by what was not measured of it:
    /// latencies have no say.
    fn own_rounds(&self) -> Vec<usize> {
        let is_own = |round: &usize| self.series.iter().all(|one| one.rounds[*round].was_alone());
        self.all_rounds().into_iter().filter(is_own).collect()
    }

    /// The ratio of a percentile of all these rounds together to the reference's.
    fn pooled(&self, series: &Series, rounds: &[usize], share: f64) -> Estimate {
        pooled(series, self.reference(series), rounds, share)
    }
}

/// The ratio of a percentile of all these rounds together to another way's.
fn pooled(series: &Series, other: &Series, rounds: &[usize], share: f64) -> Estimate {
    let ratio = |drawn: &[usize]| {
        let drawn: Vec<usize> = drawn.iter().map(|&place| rounds[place]).collect();
        series.quantile_of_us(&drawn, share) / other.quantile_of_us(&drawn, share)
    };
    let all: Vec<usize> = (0..rounds.len()).collect();
    let interval = statistics::bootstrap_interval(all.len(), ratio);
    Estimate { value: ratio(&all), interval: interval.unwrap_or((0.0, f64::INFINITY)) }
}

/// In each round, a way's value beside another's.
fn beside(
    own: &Series,
    other: &Series,
    value: impl Fn(&Measurement) -> f64,
    compare: fn(f64, f64) -> f64,
) -> Estimate {
    let pairs = own.values(&value).into_iter().zip(other.values(&value));
    let compared: Vec<f64> = pairs.map(|(own, other)| compare(own, other)).collect();
    Estimate::of_rounds(&compared)
}

/// A whole benchmark.
pub(super) struct Report {
    options: Options,
    load_average_before: String,
    processors: String,
    cells: Vec<Cell>,
}

impl Report {
    pub(super) fn new(options: Options) -> Self {
        let (load_average_before, processors) = (load_average(), processors());
        Self { options, load_average_before, processors, cells: Vec::new() }
    }

    pub(super) fn add(&mut self, cell: Cell) {
        self.cells.push(cell);
    }
}
