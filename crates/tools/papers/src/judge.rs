//! Runs, folded into verdicts.

use serde::Serialize;

use crate::claims::{Across, Axis, BEST_PEER, Check, Claim, Comparison, Operation};
use crate::figure::standing;
use crate::figure::{Figure, Runs, average};
use crate::measure::{Asked, Measure};
use crate::plan::{Grid, Plan};
use crate::reference::{Beside, Group};
use crate::stats::{self, Interval, Range, SEEDS_MIN, Verdict};
use crate::unit::Unit;
use crate::welch::Welch;
use evenkeel_sim::report::RunReport;

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
    /// Whether it is a bar that was set for ourselves: held or missed.
    pub is_bar: bool,
    /// How it is checked.
    pub setting: String,
    /// What is measured, with its unit and time.
    pub measure: String,
    /// What its values are counted in; nothing when nothing is measured.
    pub unit: Option<Unit>,
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
    /// The measure of what it is compared with.
    pub over: Option<Interval>,
    /// What the result is.
    pub kind: Kind,
    /// What is judged; absent when a measure has no value here.
    pub result: Option<Interval>,
    /// Welch's test of the two, where the claim asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub welch: Option<Welch>,
    /// The range claimed.
    pub claimed: Range,
    /// The verdict on this number alone.
    pub verdict: Verdict,
}

/// What a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The measure itself.
    Value,
    /// One measure over another.
    Ratio,
    /// One measure less another.
    Difference,
}

impl From<Operation> for Kind {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Over => Self::Ratio,
            Operation::Less => Self::Difference,
        }
    }
}

impl Plan {
    /// Says what became of the claims, given the reports of all jobs in their order.
    ///
    /// # Panics
    /// When there is not one report for each job.
    pub fn judge(&self, reports: &[RunReport]) -> PaperReport {
        assert_eq!(reports.len(), self.jobs().len(), "a report for each job");
        let runs = Runs { plan: self, reports };
        let judge = Judge { plan: self, runs };
        let claims: Vec<_> = self.claims.claims.iter().map(|claim| judge.claim(claim)).collect();
        PaperReport {
            paper: self.name.to_owned(),
            title: self.claims.title.clone(),
            seeds: self.seeds.clone(),
            quick: self.quick,
            as_recorded: claims.iter().all(|claim| claim.as_recorded),
            claims,
            figures: (0..self.grids.len())
                .filter(|&place| !self.grids[place].is_empty())
                .map(|place| runs.figure(place))
                .collect(),
        }
    }

    /// Whether the seeds and settings are those that a recorded verdict rests on.
    fn is_full(&self) -> bool {
        !self.quick && self.seeds.len() >= SEEDS_MIN
    }
}

struct Judge<'a> {
    plan: &'a Plan,
    runs: Runs<'a>,
}

/// A check that can be measured.
struct Measured<'a> {
    experiment: usize,
    only: &'a [String],
    asked: &'a Asked,
    across: Across,
    welch: bool,
}

/// What a comparison compares in one setting, by seed.
struct Compared {
    of: Option<Vec<f64>>,
    /// What it is compared with, by its short name.
    with: Option<(String, Option<Vec<f64>>)>,
}

impl Judge<'_> {
    fn claim(&self, claim: &Claim) -> ClaimReport {
        let (measure, unit, findings) = match &claim.check {
            Check::Nothing => (String::new(), None, Vec::new()),
            Check::Reference { strategies } => {
                let (unit, findings) = self.beside_reference(strategies);
                ("another program's runs beside ours".to_owned(), unit, findings)
            }
            Check::Measured { experiment, only, asked, comparisons, across, welch } => {
                let all = &self.plan.claims.experiments;
                let place = all.iter().position(|known| known.id == *experiment);
                let experiment =
                    place.expect("claims name experiments that exist, checked when read");
                let (across, welch) = (*across, *welch);
                let check = Measured { experiment, only, asked, across, welch };
                (asked.words(), Some(asked.measure.unit()), self.findings(&check, comparisons))
            }
        };
        let verdict = Verdict::together(findings.iter().map(|finding| finding.verdict));
        ClaimReport {
            id: claim.id.clone(),
            source: claim.source.clone(),
            claimed: claim.claimed.clone(),
            is_bar: self.plan.claims.bars,
            setting: claim.setting.clone(),
            measure,
            unit,
            verdict,
            recorded: claim.recorded,
            as_recorded: self.agrees(verdict, claim, findings.is_empty()),
            reason: claim.reason.clone(),
            findings,
        }
    }

    /// Whether a verdict agrees with the record, as far as these runs can tell. Where nothing was
    /// asked for (not applicable, or the reference is not here) there is nothing to disagree with,
    /// nor where settings are taken together of which some were left out.
    fn agrees(&self, verdict: Verdict, claim: &Claim, is_empty: bool) -> bool {
        let recorded = claim.recorded;
        let is_of_all =
            matches!(&claim.check, Check::Measured { across, .. } if *across != Across::Each);
        if is_empty || self.plan.partial || (self.plan.quick && is_of_all) {
            true
        } else if self.plan.is_full() {
            verdict == recorded
        } else {
            !verdict.contradicts(recorded)
        }
    }

    fn findings(&self, check: &Measured<'_>, comparisons: &[Comparison]) -> Vec<Finding> {
        let grid = &self.plan.grids[check.experiment];
        let axis = &self.plan.claims.experiments[check.experiment].axis;
        let mut findings = Vec::new();
        for comparison in comparisons {
            let meant = Meant { claim: check.only, comparison: &comparison.only };
            for panel in 0..grid.panels.len() {
                let points = meant.points(grid, axis, panel, check.asked.measure);
                let each = || points.iter().map(|&at| self.finding(check, comparison, panel, at));
                let mean = |found: &Finding| found.result.map_or(f64::INFINITY, |it| it.mean);
                match check.across {
                    Across::Each => findings.extend(each()),
                    Across::Mean => findings.extend(self.mean(check, comparison, panel, &points)),
                    Across::Worst => {
                        findings.extend(each().max_by(|a, b| mean(a).total_cmp(&mean(b))));
                    }
                }
            }
        }
        findings
    }

    /// What a comparison compares in one setting.
    fn compared(
        &self,
        check: &Measured<'_>,
        comparison: &Comparison,
        panel: usize,
        point: usize,
    ) -> Compared {
        let values = |policy: &str, point: usize| {
            self.runs.values(check.experiment, panel, point, check.asked, policy)
        };
        let with = comparison.with.as_ref().map(|(_, policy)| {
            if policy == BEST_PEER {
                let (at, of) = ((panel, point), &comparison.of);
                return match self.runs.best_peer(check.experiment, at, check.asked, of) {
                    Some((peer, values)) => (self.label(&peer), Some(values)),
                    None => ("best peer".to_owned(), None),
                };
            }
            let point = self.other_point(check.experiment, comparison, point);
            (self.label(policy), point.and_then(|point| values(policy, point)))
        });
        Compared { of: values(&comparison.of, point), with }
    }

    /// The mean of a comparison over settings of a panel.
    fn mean(
        &self,
        check: &Measured<'_>,
        comparison: &Comparison,
        panel: usize,
        points: &[usize],
    ) -> Option<Finding> {
        let operation = comparison.with.as_ref().map(|(operation, _)| *operation);
        let one = |&point: &usize| {
            let compared = self.compared(check, comparison, panel, point);
            let with = compared.with.map(|(_, values)| values);
            match (operation, with) {
                (Some(operation), Some(with)) => Some((compared.of?, Some((operation, with?)))),
                _ => Some((compared.of?, None)),
            }
        };
        if points.is_empty() {
            return None;
        }
        let settings: Option<standing::Pairs> = points.iter().map(one).collect();
        let result = settings.and_then(|all| standing::across(check.asked.measure, &all));
        let with = comparison.with.as_ref().map(|(_, policy)| self.label(policy));
        Some(Finding {
            what: self.what(comparison, with.as_deref()),
            panel: self.plan.grids[check.experiment].panels[panel].label.clone(),
            point: format!("mean of {}", points.len()),
            of: None,
            over: None,
            kind: operation.map_or(Kind::Value, Kind::from),
            result,
            welch: None,
            claimed: comparison.range,
            verdict: result
                .map_or(Verdict::NotMeasured, |result| Verdict::of(&result, &comparison.range)),
        })
    }

    fn finding(
        &self,
        check: &Measured<'_>,
        comparison: &Comparison,
        panel: usize,
        point: usize,
    ) -> Finding {
        let measure = check.asked.measure;
        let Compared { of, with } = self.compared(check, comparison, panel, point);
        let operation = comparison.with.as_ref().map(|(operation, _)| *operation);
        let (other, with) = with.unzip();
        let with = with.flatten();
        let result = match (&of, &with, operation) {
            (Some(of), _, None) => average(measure, of),
            (Some(of), Some(with), Some(Operation::Over)) => stats::ratio(of, with),
            (Some(of), Some(with), Some(Operation::Less)) => stats::difference(of, with),
            _ => None,
        };
        let tested = of.as_ref().zip(with.as_ref()).filter(|_| check.welch);
        let grid = &self.plan.grids[check.experiment];
        let point = if measure.is_along_axis() { "" } else { &grid.points[point] };
        Finding {
            what: self.what(comparison, other.as_deref()),
            panel: grid.panels[panel].label.clone(),
            point: point.to_owned(),
            of: of.as_ref().and_then(|of| average(measure, of)),
            over: with.as_ref().and_then(|with| average(measure, with)),
            kind: operation.map_or(Kind::Value, Kind::from),
            result,
            welch: tested.and_then(|(of, with)| Welch::test(of, with)),
            claimed: comparison.range,
            verdict: result
                .map_or(Verdict::NotMeasured, |result| Verdict::of(&result, &comparison.range)),
        }
    }

    /// Where along the axis the other policy of a comparison is looked at; `None` when these runs
    /// were not there.
    fn other_point(&self, place: usize, with: &Comparison, point: usize) -> Option<usize> {
        let Some(at) = &with.with_at else { return Some(point) };
        let axis = &self.plan.claims.experiments[place].axis;
        let mut points = self.plan.grids[place].points.iter();
        points.position(|value| axis.assignment(value) == *at)
    }

    fn label(&self, policy: &str) -> String {
        if policy == BEST_PEER {
            return "best peer".to_owned();
        }
        self.plan.claims.label(policy).to_owned()
    }

    fn what(&self, comparison: &Comparison, other: Option<&str>) -> String {
        let at = comparison.with_at.as_ref().and_then(|at| at.split_once('='));
        let at = at.map_or_else(String::new, |(_, value)| format!(" at {value}"));
        let (of, other) = (self.label(&comparison.of), other.unwrap_or_default());
        match &comparison.with {
            Some((Operation::Over, _)) => format!("{of} / {other}{at}"),
            Some((Operation::Less, _)) => format!("{of} − {other}{at}"),
            None => of,
        }
    }

    fn beside_reference(&self, strategies: &[String]) -> (Option<Unit>, Vec<Finding>) {
        let Some(reference) = &self.plan.reference else { return (None, Vec::new()) };
        let groups = reference.groups.iter().filter(|group| strategies.contains(&group.strategy));
        let findings: Vec<(Measure, Finding)> = groups
            .flat_map(|group| {
                let all = group.beside(self.runs.reports).into_iter();
                all.map(|beside| (beside.measure, beside_finding(group, &beside)))
            })
            .collect();
        let unit = findings.first().map(|(measure, _)| measure.unit());
        (unit, findings.into_iter().map(|(_, finding)| finding).collect())
    }
}

fn beside_finding(group: &Group, beside: &Beside) -> Finding {
    let one = |value| Interval { mean: value, low: value, high: value, seeds: 1 };
    let is_share = beside.measure.unit() == Unit::Share;
    let measure = match group.statistics.len() {
        1 => String::new(),
        _ => format!(", {}", beside.measure.words()),
    };
    Finding {
        what: format!("{}{measure}", group.name),
        panel: group.label.clone(),
        point: String::new(),
        of: Some(beside.ours),
        over: Some(one(beside.theirs)),
        kind: if is_share { Kind::Difference } else { Kind::Ratio },
        result: Some(beside.result),
        welch: None,
        claimed: beside.close,
        verdict: beside.verdict,
    }
}

/// The settings a comparison is about; what it says itself goes before what its claim says.
struct Meant<'a> {
    claim: &'a [String],
    comparison: &'a [String],
}

impl Meant<'_> {
    /// The points of a panel that are meant; none when the panel is not. A quick check may visit
    /// none of them.
    fn points(&self, grid: &Grid, axis: &Axis, panel: usize, measure: Measure) -> Vec<usize> {
        if !grid.panels[panel].assignments.iter().all(|assignment| self.is_meant(assignment)) {
            return Vec::new();
        }
        if measure.is_along_axis() {
            return vec![0];
        }
        let points = 0..grid.points.len();
        points.filter(|point| self.is_meant(&axis.assignment(&grid.points[*point]))).collect()
    }

    fn is_meant(&self, assignment: &str) -> bool {
        let path = |assignment: &str| assignment.split('=').next().unwrap_or_default().to_owned();
        for only in [self.comparison, self.claim] {
            let mut of_path = only.iter().filter(|one| path(one) == path(assignment)).peekable();
            if of_path.peek().is_some() {
                return of_path.any(|one| one == assignment);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::any_run;
    use crate::{Options, c3};

    fn full() -> Plan {
        let options = Options { seeds: (1..=10).collect(), quick: false, ..Options::default() };
        c3::PAPER.plan(&options).unwrap()
    }

    /// Reports in which every policy is alike except for the oracle, at half the latency.
    #[test]
    fn a_verdict_off_the_record_is_told() {
        let plan = full();
        let run = |job: &crate::Job| {
            let p99_ms = if job.policy == "oracle" { 0.5 } else { 1.0 };
            RunReport { policy: job.policy.clone(), seed: job.seed, p99_ms, ..any_run() }
        };
        let reports: Vec<_> = plan.jobs().iter().map(run).collect();
        let report = plan.judge(&reports);
        let claim = |id: &str| report.claims.iter().find(|claim| claim.id == id).unwrap();
        let order = claim("order-t500");
        assert!(!order.as_recorded && !report.as_recorded);
        for finding in &order.findings {
            let result = finding.result.unwrap();
            let truth = if finding.what.starts_with("oracle /") { 0.5 } else { 1.0 };
            assert!((result.mean - truth).abs() < 1e-12, "{finding:?}");
        }
    }

    /// A claim whose measure has no value in any run must not pass unseen.
    #[test]
    fn a_full_run_without_values_is_not_as_on_record() {
        let plan = full();
        let run = RunReport { p99_ms: 0.0, ..any_run() }; // has no logarithm
        let report = plan.judge(&vec![run; plan.jobs().len()]);
        let order = report.claims.iter().find(|claim| claim.id == "order-t500").unwrap();
        assert_eq!(order.verdict, Verdict::NotMeasured);
        assert!(!order.as_recorded);
        let absent = report.claims.iter().find(|claim| claim.findings.is_empty()).unwrap();
        assert!(absent.as_recorded, "there is no reference here");
    }

    #[test]
    fn a_comparison_says_its_setting_before_its_claim_does() {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let (claim, comparison) = (owned(&["x=1", "y=1"]), owned(&["x=2"]));
        let meant = Meant { claim: &claim, comparison: &comparison };
        let reported = ["x=1", "x=2", "y=1", "y=2", "z=9"].map(|setting| meant.is_meant(setting));
        assert_eq!(reported, [false, true, true, false, true]);
    }
}
