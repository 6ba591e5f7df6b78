//! Runs, folded into what is drawn: whether anything is claimed of it or not.

pub mod standing;

use core::time::Duration;

use evenkeel_settings::parse_duration;
use serde::Serialize;

use crate::claims::{Drawing, Experiment};
use crate::measure::{Asked, Measure, of_closed_loop};
use crate::plan::{Grid, Plan};
use crate::stats::{self, Interval};
use crate::unit::Unit;
use evenkeel_sim::fault::{Fault, Target, What};
use evenkeel_sim::report::RunReport;
use evenkeel_sim::scenario::Scenario;
use standing::StandingFigure;

/// What an experiment measured.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "drawing", rename_all = "kebab-case")]
pub enum Figure {
    /// A measure along an axis.
    Axis(AxisFigure),
    /// Measures over time.
    Time(TimeFigure),
    /// Measures of each policy, side by side.
    Measures(MeasuresFigure),
    /// How policies stand over many settings.
    Standing(StandingFigure),
}

/// What is measured, in words.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    /// The words.
    pub words: String,
    /// What it is counted in.
    pub unit: Unit,
}

/// A measure along an axis.
#[derive(Clone, Debug, Serialize)]
pub struct AxisFigure {
    /// The experiment.
    pub id: String,
    /// What the figure shows.
    pub title: String,
    /// What is measured.
    pub measure: Named,
    /// The axis's name.
    pub axis: String,
    /// The values along it, as people write them.
    pub points: Vec<String>,
    /// The same as numbers; durations in milliseconds.
    pub positions: Vec<f64>,
    /// The panels.
    pub panels: Vec<FigurePanel>,
}

/// One panel of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct FigurePanel {
    /// What tells it apart.
    pub label: String,
    /// A line for each policy.
    pub series: Vec<Series>,
}

/// One policy in a panel.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The policy.
    pub policy: String,
    /// Its short name.
    pub label: String,
    /// Mean over the seeds with its 95 % interval, for each value along the axis or each window;
    /// the geometric mean of latencies and ratios.
    pub values: Vec<Option<Interval>>,
}

/// Measures over time.
#[derive(Clone, Debug, Serialize)]
pub struct TimeFigure {
    /// The experiment.
    pub id: String,
    /// What the figure shows.
    pub title: String,
    /// The ends of the windows, seconds.
    pub until_s: Vec<f64>,
    /// The panels.
    pub panels: Vec<TimePanel>,
}

/// One panel of a figure in time.
#[derive(Clone, Debug, Serialize)]
pub struct TimePanel {
    /// What tells it apart.
    pub label: String,
    /// What happened when, in the order of time.
    pub phases: Vec<Phase>,
    /// One above the other.
    pub strips: Vec<Strip>,
}

/// A time in which replicas were missing or the load was another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Where it begins, seconds.
    pub from_s: f64,
    /// Where it ends.
    pub to_s: f64,
    /// What it is, in few words.
    pub label: String,
    /// How grave: 0 to 1.
    pub depth: f64,
}

/// One measure over time.
#[derive(Clone, Debug, Serialize)]
pub struct Strip {
    /// What is measured.
    pub measure: Named,
    /// A line for each policy.
    pub series: Vec<Series>,
}

/// Measures of each policy, side by side.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuresFigure {
    /// The experiment.
    pub id: String,
    /// What the figure shows.
    pub title: String,
    /// Whether the last measure is drawn over each of the others, a dot for each run.
    pub is_scatter: bool,
    /// What is measured.
    pub measures: Vec<Named>,
    /// A panel for each setting.
    pub panels: Vec<MeasuresPanel>,
}

/// The measures in one setting.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuresPanel {
    /// What tells it apart.
    pub label: String,
    /// The policies.
    pub rows: Vec<MeasuresRow>,
}

/// The measures of one policy.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuresRow {
    /// The policy.
    pub policy: String,
    /// Its short name.
    pub label: String,
    /// For each measure the mean over the seeds.
    pub means: Vec<Option<Interval>>,
    /// For each measure its value in each run, where all runs have one.
    pub runs: Vec<Vec<f64>>,
}

impl Figure {
    /// The experiment.
    pub fn id(&self) -> &str {
        match self {
            Self::Axis(figure) => &figure.id,
            Self::Time(figure) => &figure.id,
            Self::Measures(figure) => &figure.id,
            Self::Standing(figure) => &figure.id,
        }
    }

    /// The policies drawn, each once for every line or row, with their short names.
    pub fn policies(&self) -> Vec<(&str, &str)> {
        fn of<'a>(all: impl Iterator<Item = &'a Series>) -> Vec<(&'a str, &'a str)> {
            all.map(|series| (series.policy.as_str(), series.label.as_str())).collect()
        }
        match self {
            Self::Axis(figure) => of(figure.panels.iter().flat_map(|panel| &panel.series)),
            Self::Time(figure) => {
                let strips = figure.panels.iter().flat_map(|panel| &panel.strips);
                of(strips.flat_map(|strip| &strip.series))
            }
            Self::Measures(figure) => {
                let rows = figure.panels.iter().flat_map(|panel| &panel.rows);
                rows.map(|row| (row.policy.as_str(), row.label.as_str())).collect()
            }
            Self::Standing(figure) => {
                let rows = figure.panels.iter().flat_map(|panel| &panel.overall);
                rows.map(|row| (row.policy.as_str(), row.label.as_str())).collect()
            }
        }
    }
}

/// The mean of a measure over the seeds: the geometric one unless it is additive.
pub(crate) fn average(measure: Measure, values: &[f64]) -> Option<Interval> {
    if measure.is_additive() { stats::mean(values) } else { stats::geometric_mean(values) }
}

/// The reports of a plan's jobs.
#[derive(Clone, Copy)]
pub(crate) struct Runs<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) reports: &'a [RunReport],
}

impl<'a> Runs<'a> {
    /// What an experiment measured.
    pub(crate) fn figure(self, place: usize) -> Figure {
        let experiment = self.experiment(place);
        let scenario = self.plan.scenario(place, 0, 0);
        let is_in_time = scenario.is_some_and(|scenario| !scenario.run.window.is_zero());
        let unsaid =
            if is_in_time && experiment.axis.is_none() { Drawing::Time } else { Drawing::Axis };
        match experiment.drawing.unwrap_or(unsaid) {
            Drawing::Axis => Figure::Axis(self.axis(place)),
            Drawing::Time => Figure::Time(self.time(place)),
            Drawing::Scatter => Figure::Measures(self.measures(place, true)),
            Drawing::Table => Figure::Measures(self.measures(place, false)),
            Drawing::Standing => Figure::Standing(self.standing(place)),
        }
    }

    /// The measure of a policy in a setting, by seed; `None` when it has no value there.
    pub(crate) fn values(
        self,
        place: usize,
        panel: usize,
        point: usize,
        asked: &Asked,
        policy: &str,
    ) -> Option<Vec<f64>> {
        let policies = &self.experiment(place).policies;
        let policy = policies.iter().position(|known| known == policy)?;
        let grid = self.grid(place);
        if !asked.measure.is_along_axis() {
            let scenario = self.plan.scenario(place, panel, point);
            let joins = scenario.and_then(|scenario| scenario.workload.phases.first());
            let joins_at = joins.map_or(Duration::ZERO, |phase| phase.at);
            let reports = &self.reports[grid.jobs(panel, point, policy)];
            return reports.iter().map(|run| asked.of_run(run, joins_at)).collect();
        }
        let by_point: Vec<_> = (0..grid.points.len())
            .map(|point| {
                let scenario = self.plan.scenario(place, panel, point);
                let rate = scenario.map_or(0.0, Scenario::rate);
                (rate, &self.reports[grid.jobs(panel, point, policy)])
            })
            .collect();
        let curve = |seed: usize| -> Vec<(f64, &RunReport)> {
            by_point.iter().map(|(rate, runs)| (*rate, &runs[seed])).collect()
        };
        (0..self.plan.seeds.len())
            .map(|seed| of_closed_loop(&curve(seed), asked.measure, asked.threads))
            .collect()
    }

    pub(crate) fn experiment(self, place: usize) -> &'a Experiment {
        &self.plan.claims.experiments[place]
    }

    pub(crate) fn grid(self, place: usize) -> &'a Grid {
        &self.plan.grids[place]
    }

    fn axis(self, place: usize) -> AxisFigure {
        let (experiment, grid) = (self.experiment(place), self.grid(place));
        let measure = experiment.measures[0];
        let at_point = |panel: usize, point: usize, policy: &str| {
            let values = self.values(place, panel, point, &Asked::of(measure), policy)?;
            average(measure, &values)
        };
        let panel = |panel: usize| FigurePanel {
            label: grid.panels[panel].label.clone(),
            series: self.series(place, |policy| {
                (0..grid.points.len()).map(|point| at_point(panel, point, policy)).collect()
            }),
        };
        AxisFigure {
            id: experiment.id.clone(),
            title: experiment.title.clone(),
            measure: Named::of(measure),
            axis: experiment.axis.label.clone(),
            positions: grid.points.iter().map(|point| position(point)).collect(),
            points: grid.points.clone(),
            panels: (0..grid.panels.len()).map(panel).collect(),
        }
    }

    fn series(&self, place: usize, values: impl Fn(&str) -> Vec<Option<Interval>>) -> Vec<Series> {
        let policies = self.experiment(place).policies.iter();
        let series = |policy: &String| Series {
            label: self.plan.claims.label(policy).to_owned(),
            values: values(policy),
            policy: policy.clone(),
        };
        policies.map(series).collect()
    }

    fn time(self, place: usize) -> TimeFigure {
        let (experiment, grid) = (self.experiment(place), self.grid(place));
        let until_s = self.times(place);
        let strip = |panel: usize, point: usize, measure: Measure| Strip {
            measure: Named::of(measure),
            series: self.series(place, |policy| {
                self.over_time(place, panel, point, measure, policy, until_s.len())
            }),
        };
        let end_s = until_s.last().copied().unwrap_or_default();
        let panel = |(panel, point): (usize, usize)| TimePanel {
            label: self.label(place, panel, point),
            phases: self
                .plan
                .scenario(place, panel, point)
                .map_or(Vec::new(), |scenario| phases(scenario, end_s)),
            strips: experiment.measures.iter().map(|one| strip(panel, point, *one)).collect(),
        };
        TimeFigure {
            id: experiment.id.clone(),
            title: experiment.title.clone(),
            panels: grid.settings().map(panel).collect(),
            until_s,
        }
    }

    /// The ends of the windows that all runs of an experiment in time have.
    fn times(&self, place: usize) -> Vec<f64> {
        let grid = self.grid(place);
        let policies = 0..self.experiment(place).policies.len();
        let all = grid.settings().flat_map(|(panel, point)| {
            policies.clone().flat_map(move |policy| grid.jobs(panel, point, policy))
        });
        let shortest = all.map(|job| &self.reports[job].windows).min_by_key(|all| all.len());
        shortest.map_or(Vec::new(), |all| all.iter().map(|window| window.until_s).collect())
    }

    fn over_time(
        &self,
        place: usize,
        panel: usize,
        point: usize,
        measure: Measure,
        policy: &str,
        count: usize,
    ) -> Vec<Option<Interval>> {
        let scenario = self.plan.scenario(place, panel, point);
        let window = scenario.map_or(Duration::ZERO, |scenario| scenario.run.window);
        let length_s = window.as_secs_f64();
        let policies = &self.experiment(place).policies;
        let number = policies.iter().position(|known| known == policy).unwrap_or_default();
        let runs = &self.reports[self.grid(place).jobs(panel, point, number)];
        let at = |window: usize| -> Option<Interval> {
            let of = |run: &RunReport| measure.of_window(&run.windows[window], length_s);
            let values: Vec<f64> = runs.iter().map(of).collect::<Option<_>>()?;
            average(measure, &values)
        };
        (0..count).map(at).collect()
    }

    fn measures(self, place: usize, is_scatter: bool) -> MeasuresFigure {
        let (experiment, grid) = (self.experiment(place), self.grid(place));
        let row = |panel: usize, point: usize, policy: &String| {
            let all = experiment.measures.iter().map(|measure| {
                let runs = self.values(place, panel, point, &Asked::of(*measure), policy);
                let runs = runs.unwrap_or_default();
                (average(*measure, &runs), runs)
            });
            let (means, runs) = all.unzip();
            let label = self.plan.claims.label(policy).to_owned();
            MeasuresRow { policy: policy.clone(), label, means, runs }
        };
        let panel = |(panel, point): (usize, usize)| MeasuresPanel {
            label: self.label(place, panel, point),
            rows: experiment.policies.iter().map(|policy| row(panel, point, policy)).collect(),
        };
        MeasuresFigure {
            id: experiment.id.clone(),
            title: experiment.title.clone(),
            is_scatter,
            measures: experiment.measures.iter().map(|measure| Named::of(*measure)).collect(),
            panels: grid.settings().map(panel).collect(),
        }
    }

    /// What tells a setting apart from the others of its experiment.
    fn label(&self, place: usize, panel: usize, point: usize) -> String {
        let axis = &self.experiment(place).axis;
        let grid = self.grid(place);
        let (panel, point) = (&grid.panels[panel].label, &grid.points[point]);
        if axis.is_none() {
            return panel.clone();
        }
        let point = format!("{} {point}", axis.label);
        let comma = if panel.is_empty() { "" } else { ", " };
        format!("{panel}{comma}{}", point.trim_start())
    }
}

impl Named {
    pub(crate) fn of(measure: Measure) -> Self {
        Self { words: measure.words().to_owned(), unit: measure.unit() }
    }
}

/// The times in which replicas were missing, and those of another load than at the start.
fn phases(scenario: &Scenario, end_s: f64) -> Vec<Phase> {
    let mut phases = missing(&scenario.faults, scenario.cluster.servers, end_s);
    let mut changes: Vec<(f64, f64)> = scenario
        .workload
        .phases
        .iter()
        .filter_map(|phase| Some((phase.at.as_secs_f64(), phase.rate_factor?)))
        .collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(first) = changes.first().map(|(_, factor)| *factor) else { return phases };
    let ends = changes.iter().skip(1).map(|(at_s, _)| *at_s).chain([end_s]);
    for ((from_s, factor), to_s) in changes.iter().zip(ends) {
        if *factor > first {
            let label = format!("load × {:.2}", factor / first);
            phases.push(Phase { from_s: *from_s, to_s, label, depth: 1.0 - first / factor });
        }
    }
    phases
}

/// The times in which not all replicas live.
fn missing(faults: &[Fault], replicas: usize, end_s: f64) -> Vec<Phase> {
    let mut changes: Vec<(f64, usize, bool)> = faults
        .iter()
        .filter_map(|fault| match (fault.target, fault.what) {
            (Target::Server(server), What::Crash) => Some((server, false, fault)),
            (Target::Server(server), What::Restore) => Some((server, true, fault)),
            _ => None,
        })
        .map(|(server, lives, fault)| (fault.at.as_secs_f64(), server, lives))
        .collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut dead = std::collections::BTreeSet::new();
    let mut phases = Vec::new();
    for (number, (from_s, server, lives)) in changes.iter().enumerate() {
        let _ = if *lives { dead.remove(server) } else { dead.insert(*server) };
        let to_s = changes.get(number + 1).map_or(end_s, |(at_s, ..)| *at_s);
        if !dead.is_empty() && to_s > *from_s {
            let label = format!("{} of {replicas}", replicas - dead.len());
            let depth = dead.len() as f64 / replicas as f64;
            phases.push(Phase { from_s: *from_s, to_s, label, depth });
        }
    }
    phases
}

/// The place of a value on an axis: durations in milliseconds, anything else as it is.
fn position(point: &str) -> f64 {
    let number = point.parse::<f64>().ok();
    let duration = || parse_duration(point).ok().map(|length| length.as_secs_f64() * 1e3);
    number.or_else(duration).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{any_run, window};
    use crate::{Options, PAPERS};

    #[test]
    fn positions_are_numbers_or_milliseconds() {
        assert_eq!((position("0.45"), position("10ms"), position("1.5s")), (0.45, 10.0, 1_500.0));
    }

    fn fault(at_s: u64, server: usize, what: What) -> Fault {
        let (at, target) = (Duration::from_secs(at_s), Target::Server(server));
        Fault { at, every: Duration::ZERO, target, what }
    }

    #[test]
    fn phases_tell_how_many_replicas_are_left() {
        let faults = [
            fault(20, 0, What::Crash),
            fault(10, 3, What::Crash),
            fault(30, 3, What::Restore),
            fault(45, 0, What::Restore),
        ];
        let reported: Vec<_> = missing(&faults, 4, 60.0)
            .into_iter()
            .map(|phase| (phase.from_s, phase.to_s, phase.label, phase.depth))
            .collect();
        let truth = [
            (10.0, 20.0, "3 of 4".to_owned(), 0.25),
            (20.0, 30.0, "2 of 4".to_owned(), 0.5),
            (30.0, 45.0, "3 of 4".to_owned(), 0.25),
        ];
        assert_eq!(reported, truth);
    }

    /// Whatever the papers draw, each kind of figure holds what its experiment asks for.
    #[test]
    fn figures_hold_every_policy_and_measure() {
        for paper in PAPERS {
            let options = Options { seeds: vec![1, 2], quick: true, ..Options::default() };
            let plan = paper.plan(&options).unwrap();
            let windows: Vec<_> = (1..=3).map(|n| window(f64::from(n), [10, 9, 1, 2])).collect();
            let run = RunReport { windows, ..any_run() };
            let reports = vec![run; plan.jobs().len()];
            let runs = Runs { plan: &plan, reports: &reports };
            let planned = plan.grids.iter().map(|grid| !grid.is_empty());
            let all = plan.claims.experiments.iter().enumerate().zip(planned);
            for ((place, experiment), _) in all.filter(|(_, is_planned)| *is_planned) {
                let figure = runs.figure(place);
                assert_eq!(figure.id(), experiment.id);
                let policies = figure.policies();
                let drawn = |policy: &String| policies.iter().any(|(known, _)| known == policy);
                assert!(experiment.policies.iter().all(drawn), "{}", experiment.id);
                if let Figure::Time(time) = &figure {
                    assert_eq!(time.until_s, [1.0, 2.0, 3.0]);
                    assert_eq!(time.panels[0].strips.len(), experiment.measures.len());
                }
            }
        }
    }
}
