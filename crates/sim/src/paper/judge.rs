//! Runs, folded into figures and verdicts.

use core::time::Duration;

use evenkeel_settings::parse_duration;
use serde::Serialize;

use crate::paper::claims::{Axis, Check, Claim, Comparison, Measure};
use crate::paper::plan::{Grid, Plan};
use crate::paper::reference::CLOSE;
use crate::paper::stats::{self, Interval, Range, SEEDS_MIN, Verdict};
use crate::report::RunReport;

/// What became of a paper.
#[derive(Clone, Debug, Serialize)]
pub struct PaperReport {
    /// The name users type.
    pub paper: String,
    /// Title, authors, place.
    pub title: String,
    /// The seeds that were run.
    pub seeds: Vec<u64>,
    /// Whether this was a quick check.
    pub quick: bool,
    /// Whether every verdict is the one on record.
    pub as_recorded: bool,
    /// The claims, in the order of `claims.toml`.
    pub claims: Vec<ClaimReport>,
    /// What was measured, whether claimed or not.
    pub figures: Vec<Figure>,
}

/// What became of a claim.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimReport {
    /// Its name.
    pub id: String,
    /// Where it is made.
    pub source: String,
    /// What is claimed.
    pub claimed: String,
    /// How it is checked.
    pub setting: String,
    /// What is measured.
    pub measure: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The verdict on record.
    pub recorded: Verdict,
    /// Whether the two agree, as far as these seeds can tell.
    pub as_recorded: bool,
    /// Why this verdict is on record.
    pub reason: String,
    /// Each number behind it.
    pub findings: Vec<Finding>,
}

/// One number of a claim.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What is looked at: a policy, or one over another.
    pub what: String,
    /// The panel's setting.
    pub panel: String,
    /// The value along the axis.
    pub point: String,
    /// The measure of the first policy.
    pub of: Option<Interval>,
    /// The measure of the policy it is divided by.
    pub over: Option<Interval>,
    /// What is judged; absent when a measure has no value here.
    pub result: Option<Interval>,
    /// The range claimed.
    pub claimed: Range,
    /// The verdict on this number alone.
    pub verdict: Verdict,
}

/// What an experiment measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The experiment.
    pub id: String,
    /// What the figure shows.
    pub title: String,
    /// What is measured, in words.
    pub measure: String,
    /// Its unit.
    pub unit: String,
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
    /// Geometric mean over the seeds with its 95 % interval, for each value along the axis.
    pub values: Vec<Option<Interval>>,
}

impl Plan {
    /// Says what became of the claims, given the reports of all jobs in their order.
    ///
    /// # Panics
    /// When there is not one report for each job.
    #[must_use]
    pub fn judge(&self, reports: &[RunReport]) -> PaperReport {
        assert_eq!(reports.len(), self.jobs().len(), "a report for each job");
        let judge = Judge { plan: self, reports };
        let claims: Vec<_> = self.claims.claims.iter().map(|claim| judge.claim(claim)).collect();
        PaperReport {
            paper: self.name.to_owned(),
            title: self.claims.title.clone(),
            seeds: self.seeds.clone(),
            quick: self.quick,
            as_recorded: claims.iter().all(|claim| claim.as_recorded),
            claims,
            figures: (0..self.grids.len()).map(|experiment| judge.figure(experiment)).collect(),
        }
    }

    /// Whether the seeds and settings are those that a recorded verdict rests on.
    fn is_full(&self) -> bool {
        !self.quick && self.seeds.len() >= SEEDS_MIN
    }
}

struct Judge<'a> {
    plan: &'a Plan,
    reports: &'a [RunReport],
}

impl Judge<'_> {
    fn claim(&self, claim: &Claim) -> ClaimReport {
        let (measure, findings) = match &claim.check {
            Check::Nothing => (String::new(), Vec::new()),
            Check::Reference { strategies } => {
                ("mean and p99 latency, ms".to_owned(), self.beside_reference(strategies))
            }
            Check::Measured { experiment, only, measure, threads, comparisons } => {
                let asked = Asked { only, measure: *measure, threads: *threads };
                let (words, unit) = measure.words();
                (format!("{words}, {unit}"), self.findings(experiment, &asked, comparisons))
            }
        };
        let verdict = Verdict::together(findings.iter().map(|finding| finding.verdict));
        let agrees = if verdict == Verdict::NotMeasured {
            true // not applicable, or the reference is not here
        } else if self.plan.is_full() {
            verdict == claim.recorded
        } else {
            !verdict.contradicts(claim.recorded)
        };
        ClaimReport {
            id: claim.id.clone(),
            source: claim.source.clone(),
            claimed: claim.claimed.clone(),
            setting: claim.setting.clone(),
            measure,
            verdict,
            recorded: claim.recorded,
            as_recorded: agrees,
            reason: claim.reason.clone(),
            findings,
        }
    }

    fn findings(
        &self,
        experiment: &str,
        asked: &Asked<'_>,
        comparisons: &[Comparison],
    ) -> Vec<Finding> {
        let all = &self.plan.claims.experiments;
        let place = all.iter().position(|known| known.id == experiment);
        let place = place.expect("claims name experiments that exist, checked when read");
        let (grid, axis) = (&self.plan.grids[place], &all[place].axis);
        let mut findings = Vec::new();
        for comparison in comparisons {
            for panel in 0..grid.panels.len() {
                for point in asked.points(grid, axis, panel) {
                    findings.push(self.finding(place, panel, point, asked, comparison));
                }
            }
        }
        findings
    }

    fn finding(
        &self,
        experiment: usize,
        panel: usize,
        point: usize,
        asked: &Asked<'_>,
        comparison: &Comparison,
    ) -> Finding {
        let label = |policy: &str| self.plan.claims.label(policy).to_owned();
        let values = |policy: &str| self.values(experiment, panel, point, asked, policy);
        let of = values(&comparison.of);
        let over = comparison.over.as_deref().map(values);
        let result = match (&of, &over) {
            (Some(of), None) => stats::geometric_mean(of),
            (Some(of), Some(Some(over))) => stats::ratio(of, over),
            _ => None,
        };
        let what = match &comparison.over {
            Some(over) => format!("{} / {}", label(&comparison.of), label(over)),
            None => label(&comparison.of),
        };
        let grid = &self.plan.grids[experiment];
        let is_along = asked.measure.is_along_axis();
        let point = if is_along { String::new() } else { grid.points[point].clone() };
        let mean = |values: Option<Vec<f64>>| stats::geometric_mean(&values?);
        Finding {
            what,
            panel: grid.panels[panel].label.clone(),
            point,
            of: mean(of),
            over: mean(over.flatten()),
            result,
            claimed: comparison.range,
            verdict: result
                .map_or(Verdict::NotMeasured, |result| Verdict::of(&result, &comparison.range)),
        }
    }

    /// The measure of a policy in a setting, by seed; `None` when it has no value there.
    fn values(
        &self,
        experiment: usize,
        panel: usize,
        point: usize,
        asked: &Asked<'_>,
        policy: &str,
    ) -> Option<Vec<f64>> {
        let policies = &self.plan.claims.experiments[experiment].policies;
        let policy = policies.iter().position(|known| known == policy)?;
        let grid = &self.plan.grids[experiment];
        if !asked.measure.is_along_axis() {
            let joins_at = self.joins_at(experiment, panel, point);
            let reports = &self.reports[grid.jobs(panel, point, policy)];
            return reports.iter().map(|run| of_run(run, asked.measure, joins_at)).collect();
        }
        let by_point: Vec<_> = (0..grid.points.len())
            .map(|point| {
                let rate = self.plan.scenario(experiment, panel, point).rate();
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

    fn joins_at(&self, experiment: usize, panel: usize, point: usize) -> Duration {
        let phases = &self.plan.scenario(experiment, panel, point).workload.phases;
        phases.first().map_or(Duration::ZERO, |phase| phase.at)
    }

    fn beside_reference(&self, strategies: &[String]) -> Vec<Finding> {
        let Some(reference) = &self.plan.reference else { return Vec::new() };
        let groups = reference.groups.iter().filter(|group| strategies.contains(&group.strategy));
        groups
            .filter_map(|group| Some((group, group.beside(self.reports)?)))
            .flat_map(|(group, beside)| {
                [("mean", beside[0]), ("p99", beside[1])].map(|(statistic, beside)| {
                    let one = |value| Interval { mean: value, low: value, high: value, seeds: 1 };
                    Finding {
                        what: format!("{} {statistic}", group.strategy),
                        panel: group.label.clone(),
                        point: String::new(),
                        of: Some(beside.ours_ms),
                        over: Some(one(beside.theirs_ms)),
                        result: Some(beside.ratio()),
                        claimed: CLOSE,
                        verdict: beside.verdict(),
                    }
                })
            })
            .collect()
    }

    fn figure(&self, place: usize) -> Figure {
        let experiment = &self.plan.claims.experiments[place];
        let grid = &self.plan.grids[place];
        let (measure, unit) = experiment.measure.words();
        let is_in_time = !self.plan.scenario(place, 0, 0).run.window.is_zero();
        let times = if is_in_time { self.times(place) } else { Vec::new() };
        let panel = |panel: usize| FigurePanel {
            label: grid.panels[panel].label.clone(),
            series: (0..experiment.policies.len())
                .map(|policy| self.series(place, panel, policy, times.len()))
                .collect(),
        };
        Figure {
            id: experiment.id.clone(),
            title: experiment.title.clone(),
            measure: if is_in_time { "p99 latency".to_owned() } else { measure.to_owned() },
            unit: if is_in_time { "ms".to_owned() } else { unit.to_owned() },
            axis: if is_in_time { "time, s".to_owned() } else { experiment.axis.label.clone() },
            positions: if is_in_time {
                times.clone()
            } else {
                grid.points.iter().map(|point| position(point)).collect()
            },
            points: if is_in_time {
                times.iter().map(|time| format!("{time}s")).collect()
            } else {
                grid.points.clone()
            },
            panels: (0..grid.panels.len()).map(panel).collect(),
        }
    }

    /// The ends of the windows that all runs of an experiment in time have.
    fn times(&self, place: usize) -> Vec<f64> {
        let grid = &self.plan.grids[place];
        let policies = 0..self.plan.claims.experiments[place].policies.len();
        let runs = policies.flat_map(|policy| &self.reports[grid.jobs(0, 0, policy)]);
        let shortest = runs.min_by_key(|run| run.windows.len());
        shortest.map_or(Vec::new(), |run| run.windows.iter().map(|w| w.until_s).collect())
    }

    fn series(&self, place: usize, panel: usize, policy: usize, windows: usize) -> Series {
        let experiment = &self.plan.claims.experiments[place];
        let grid = &self.plan.grids[place];
        let mean = |values: Option<Vec<f64>>| stats::geometric_mean(&values?);
        let at_window = |window: usize| {
            let runs = &self.reports[grid.jobs(panel, 0, policy)];
            mean(Some(runs.iter().map(|run| run.windows[window].p99_ms).collect()))
        };
        let at_point = |point: usize| {
            let runs = self.reports[grid.jobs(panel, point, policy)].iter();
            mean(runs.map(|run| of_run(run, experiment.measure, Duration::ZERO)).collect())
        };
        let policy = experiment.policies[policy].clone();
        Series {
            label: self.plan.claims.label(&policy).to_owned(),
            policy,
            values: if windows > 0 {
                (0..windows).map(at_window).collect()
            } else {
                (0..grid.points.len()).map(at_point).collect()
            },
        }
    }
}

/// What a claim asks of an experiment.
struct Asked<'a> {
    only: &'a [String],
    measure: Measure,
    threads: f64,
}

impl Asked<'_> {
    /// The points of a panel that are meant; none when the panel is not. A quick check may visit
    /// none of them.
    fn points(&self, grid: &Grid, axis: &Axis, panel: usize) -> Vec<usize> {
        let path = |assignment: &str| assignment.split('=').next().unwrap_or_default().to_owned();
        let is_meant = |assignment: &String| {
            let of_path = || self.only.iter().filter(|setting| path(setting) == path(assignment));
            of_path().next().is_none() || of_path().any(|setting| setting == assignment)
        };
        if !grid.panels[panel].assignments.iter().all(is_meant) {
            return Vec::new();
        }
        if self.measure.is_along_axis() {
            return vec![0];
        }
        let points = 0..grid.points.len();
        points.filter(|point| is_meant(&axis.assignment(&grid.points[*point]))).collect()
    }
}

/// A measure of one run.
fn of_run(run: &RunReport, measure: Measure, joins_at: Duration) -> Option<f64> {
    let before = || window_p99_ms(run, Duration::ZERO, joins_at);
    let after = || window_p99_ms(run, joins_at, Duration::MAX);
    match measure {
        Measure::MeanMs => Some(run.mean_ms),
        Measure::P50Ms => Some(run.p50_ms),
        Measure::P95Ms => Some(run.p95_ms),
        Measure::P99Ms => Some(run.p99_ms),
        Measure::P999Ms => Some(run.p999_ms),
        Measure::TailOverMedian => Some(run.p999_ms / run.p50_ms),
        Measure::LoadVariation => run.load.as_ref().map(|load| load.variation),
        Measure::QueueRatio => {
            let means = &run.load.as_ref()?.means;
            Some(means.first()? / means.get(1)?)
        }
        Measure::BeforeP99Ms => before(),
        Measure::AfterP99Ms => after(),
        Measure::AfterOverBefore => Some(after()? / before()?),
        Measure::ClosedThroughput | Measure::ClosedP999Ms | Measure::ClosedTailOverMedian => None,
    }
}

/// The mean over the windows that lie within a time; the first window is of the start.
fn window_p99_ms(run: &RunReport, from: Duration, to: Duration) -> Option<f64> {
    let (from, to) = (from.as_secs_f64(), to.as_secs_f64());
    let starts = core::iter::once(0.0).chain(run.windows.iter().map(|window| window.until_s));
    let within: Vec<f64> = run
        .windows
        .iter()
        .zip(starts)
        .skip(1)
        .filter(|(window, start)| *start >= from && window.until_s <= to)
        .map(|(window, _)| window.p99_ms)
        .collect();
    (!within.is_empty()).then(|| within.iter().sum::<f64>() / within.len() as f64)
}

/// What a closed loop of `threads` without pauses would see, read off runs at rising rates.
///
/// By Little's law as many requests are in the system as come per second times the seconds each
/// stays; the loop settles where that number is its threads. Between two rates the number grows
/// about exponentially, and so do the percentiles. `None` when the runs do not enclose that rate.
/// It is an approximation: a closed loop also sends less while it waits, which spares its tail.
fn of_closed_loop(curve: &[(f64, &RunReport)], measure: Measure, threads: f64) -> Option<f64> {
    let inside = |(rate, run): (f64, &RunReport)| rate * run.mean_ms / 1e3;
    let step =
        curve.windows(2).find(|pair| inside(pair[0]) <= threads && threads < inside(pair[1]));
    let &[low, high] = step? else { return None };
    let share = (threads / inside(low)).ln() / (inside(high) / inside(low)).ln();
    let between = |low: f64, high: f64| low * (high / low).powf(share);
    let p50_ms = between(low.1.p50_ms, high.1.p50_ms);
    let p999_ms = between(low.1.p999_ms, high.1.p999_ms);
    match measure {
        Measure::ClosedThroughput => Some(low.0 + (high.0 - low.0) * share),
        Measure::ClosedP999Ms => Some(p999_ms),
        Measure::ClosedTailOverMedian => Some(p999_ms / p50_ms),
        _ => None,
    }
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
    use crate::paper::{Options, c3};
    use crate::sampler::WindowReport;

    fn run_of(plan: &Plan, number: usize) -> RunReport {
        RunReport {
            policy: plan.jobs()[number].policy.clone(),
            seed: plan.jobs()[number].seed,
            requests: 1,
            served: 1,
            failed: 0,
            timeouts: 0,
            optional: 0,
            mean_ms: 1.0,
            p50_ms: 1.0,
            p95_ms: 1.0,
            p99_ms: 1.0,
            p999_ms: 1.0,
            max_ms: 1.0,
            held: 0,
            retries: 0,
            hedges: 0,
            attempts: 1,
            virtual_s: 1.0,
            events: 1,
            digest: String::new(),
            requests_per_cpu_s: None,
            windows: vec![],
            load: None,
        }
    }

    fn any_run() -> RunReport {
        let options = Options { seeds: vec![1], quick: true, reference: None };
        run_of(&c3::PAPER.plan(&options).unwrap(), 0)
    }

    /// An M/M/1 server at rate λ with service rate µ holds λ/(µ−λ): a closed loop of n threads
    /// runs at µ·n/(n+1).
    #[test]
    fn a_closed_loop_settles_where_littles_law_says() {
        let (service, threads) = (1_000.0, 4.0);
        let rates: Vec<f64> = (1..=18).map(|n| 50.0 * f64::from(n)).collect();
        let runs: Vec<RunReport> = rates
            .iter()
            .map(|rate| {
                let mean_ms = 1e3 / (service - rate);
                RunReport { mean_ms, p999_ms: mean_ms * 6.9, p50_ms: mean_ms * 0.69, ..any_run() }
            })
            .collect();
        let curve: Vec<_> = rates.iter().copied().zip(&runs).collect();
        let of = |measure| of_closed_loop(&curve, measure, threads).unwrap();
        let truth = service * threads / (threads + 1.0);
        let told = of(Measure::ClosedThroughput);
        assert!((told / truth - 1.0).abs() < 0.02, "{told} for {truth}");
        assert!((of(Measure::ClosedP999Ms) / (6.9 * 1e3 / (service - truth)) - 1.0).abs() < 0.05);
        assert!((of(Measure::ClosedTailOverMedian) - 10.0).abs() < 1e-9);
        assert_eq!(of_closed_loop(&curve, Measure::ClosedThroughput, 1e4), None);
        assert_eq!(of_closed_loop(&curve, Measure::ClosedThroughput, 1e-4), None);
    }

    #[test]
    fn before_and_after_leave_the_start_and_the_window_of_the_change_out() {
        let window = |until_s: f64, p99_ms: f64| WindowReport {
            until_s,
            served: 1,
            p50_ms: 1.0,
            p99_ms,
            p999_ms: 1.0,
        };
        let windows = vec![
            window(1.0, 900.0),
            window(2.0, 10.0),
            window(3.0, 30.0),
            window(4.0, 777.0), // the change is within it
            window(5.0, 60.0),
        ];
        let run = RunReport { windows, ..any_run() };
        let of = |measure| of_run(&run, measure, Duration::from_millis(3_500));
        assert_eq!(of(Measure::BeforeP99Ms), Some(20.0));
        assert_eq!(of(Measure::AfterP99Ms), Some(60.0));
        assert_eq!(of(Measure::AfterOverBefore), Some(3.0));
        assert_eq!(of_run(&any_run(), Measure::AfterOverBefore, Duration::ZERO), None);
    }

    /// Reports in which every policy is alike except for the oracle, at half the latency.
    #[test]
    fn a_verdict_off_the_record_is_told() {
        let options = Options { seeds: (1..=10).collect(), quick: false, reference: None };
        let plan = c3::PAPER.plan(&options).unwrap();
        let reports: Vec<_> = (0..plan.jobs().len())
            .map(|number| {
                let run = run_of(&plan, number);
                let p99_ms = if run.policy == "oracle" { 0.5 } else { 1.0 };
                RunReport { p99_ms, ..run }
            })
            .collect();
        let report = plan.judge(&reports);
        let claim = |id: &str| report.claims.iter().find(|claim| claim.id == id).unwrap();
        let order = claim("order-t500");
        assert!(!order.as_recorded && !report.as_recorded);
        for finding in &order.findings {
            let result = finding.result.unwrap();
            let truth = if finding.what.starts_with("oracle /") { 0.5 } else { 1.0 };
            assert!((result.mean - truth).abs() < 1e-12, "{finding:?}");
        }
        assert!(report.figures.iter().any(|figure| figure.panels.len() == 4));
    }

    #[test]
    fn positions_are_numbers_or_milliseconds() {
        assert_eq!((position("0.45"), position("10ms"), position("1.5s")), (0.45, 10.0, 1_500.0));
    }
}
