//! How policies stand over many settings: beside a yardstick that no real policy can be, and beside
//! the best of the others in each setting.
//!
//! A policy that wins where its author looked says little. So the measure is its ratio to the
//! yardstick at each setting, the geometric mean of these over all settings, and the worst of them;
//! and that no other policy, chosen afterwards for each setting, beats it.

use serde::Serialize;

use crate::claims::{Experiment, Operation};
use crate::figure::{Named, Runs, average};
use crate::measure::{Asked, Measure};
use crate::stats::{self, Interval};
use crate::unit::Unit;

/// How policies stand.
#[derive(Clone, Debug, Serialize)]
pub struct StandingFigure {
    /// The experiment.
    pub id: String,
    /// What the figure shows.
    pub title: String,
    /// The policy that all are held against.
    pub yardstick: String,
    /// The latencies, of which there are ratios.
    pub latencies: Vec<Named>,
    /// What else is measured.
    pub costs: Vec<Named>,
    /// The panels.
    pub panels: Vec<StandingPanel>,
}

/// One panel of it.
#[derive(Clone, Debug, Serialize)]
pub struct StandingPanel {
    /// What tells it apart.
    pub label: String,
    /// Each setting.
    pub settings: Vec<StandingSetting>,
    /// All of them together, for each policy.
    pub overall: Vec<Overall>,
}

/// One setting.
#[derive(Clone, Debug, Serialize)]
pub struct StandingSetting {
    /// Its name.
    pub name: String,
    /// A row for each policy.
    pub rows: Vec<StandingRow>,
}

/// A policy in a setting.
#[derive(Clone, Debug, Serialize)]
pub struct StandingRow {
    /// The policy.
    pub policy: String,
    /// Its short name.
    pub label: String,
    /// In the order of the figure's latencies.
    pub latencies: Vec<Latency>,
    /// In the order of the figure's costs.
    pub costs: Vec<Option<Interval>>,
}

/// A latency of a policy in a setting.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Its geometric mean.
    pub value: Option<Interval>,
    /// Over the yardstick's.
    pub over_yardstick: Option<Interval>,
    /// The best of the other policies.
    pub best_peer: Option<String>,
    /// Over the best peer's.
    pub over_best_peer: Option<Interval>,
}

/// A policy over all settings of a panel.
#[derive(Clone, Debug, Serialize)]
pub struct Overall {
    /// The policy.
    pub policy: String,
    /// Its short name.
    pub label: String,
    /// In the order of the figure's latencies.
    pub latencies: Vec<OverallLatency>,
    /// Means, in the order of the figure's costs.
    pub costs: Vec<Option<Interval>>,
}

/// A latency over all settings of a panel.
#[derive(Clone, Debug, Serialize)]
pub struct OverallLatency {
    /// Geometric mean of the ratio to the yardstick.
    pub over_yardstick: Option<Interval>,
    /// The setting with the largest such ratio.
    pub worst: Option<Extreme>,
    /// Geometric mean of the ratio to the best peer of each setting.
    pub over_best_peer: Option<Interval>,
    /// The setting with the largest such ratio.
    pub worst_beside_peer: Option<Extreme>,
}

/// The setting with the largest ratio.
#[derive(Clone, Debug, Serialize)]
pub struct Extreme {
    /// The setting.
    pub setting: String,
    /// The ratio there.
    pub ratio: Interval,
}

/// Values of a policy and of what it is compared with, by setting and seed.
pub(crate) type Pairs = Vec<(Vec<f64>, Option<(Operation, Vec<f64>)>)>;

/// The mean over settings for each seed: of ratios the geometric one.
pub(crate) fn across(measure: Measure, settings: &Pairs) -> Option<Interval> {
    let seeds = settings.first()?.0.len();
    let is_ratio = settings.iter().any(|one| matches!(one.1, Some((Operation::Over, _))));
    let is_geometric = is_ratio || (settings[0].1.is_none() && !measure.is_additive());
    let of_seed = |seed: usize| {
        let value = |(of, with): &(Vec<f64>, Option<(Operation, Vec<f64>)>)| match with {
            None => of[seed],
            Some((Operation::Over, with)) => of[seed] / with[seed],
            Some((Operation::Less, with)) => of[seed] - with[seed],
        };
        let values = settings.iter().map(value);
        let count = settings.len() as f64;
        if is_geometric {
            (values.map(f64::ln).sum::<f64>() / count).exp()
        } else {
            values.sum::<f64>() / count
        }
    };
    let by_seed: Vec<f64> = (0..seeds).map(of_seed).collect();
    if !by_seed.iter().all(|value| value.is_finite()) {
        return None;
    }
    if is_geometric { stats::geometric_mean(&by_seed) } else { stats::mean(&by_seed) }
}

/// The policy without its parameters and suffixes.
fn base(policy: &str) -> &str {
    policy.split([':', '+']).next().unwrap_or(policy)
}

impl Runs<'_> {
    /// The best of the other policies in a setting, with its values.
    pub(crate) fn best_peer(
        self,
        place: usize,
        (panel, point): (usize, usize),
        asked: &Asked,
        policy: &str,
    ) -> Option<(String, Vec<f64>)> {
        let Experiment { policies, yardstick, .. } = self.experiment(place);
        let is_peer =
            |other: &&String| base(other) != base(policy) && yardstick.as_ref() != Some(*other);
        let with_values = policies.iter().filter(is_peer).filter_map(|other| {
            let values = self.values(place, panel, point, asked, other)?;
            let mean = average(asked.measure, &values)?.mean;
            Some((mean, other.clone(), values))
        });
        let best = with_values.min_by(|a, b| a.0.total_cmp(&b.0));
        best.map(|(_, other, values)| (other, values))
    }

    /// How the policies of an experiment stand.
    pub(crate) fn standing(self, place: usize) -> StandingFigure {
        let experiment = self.experiment(place);
        let grid = self.grid(place);
        let table = Standing::of(self, place);
        let panel = |panel: usize| StandingPanel {
            label: grid.panels[panel].label.clone(),
            settings: (0..grid.points.len()).map(|point| table.setting(panel, point)).collect(),
            overall: experiment
                .policies
                .iter()
                .map(|policy| table.overall(panel, policy))
                .collect(),
        };
        let named = |all: &[Measure]| all.iter().map(|measure| Named::of(*measure)).collect();
        StandingFigure {
            id: experiment.id.clone(),
            title: experiment.title.clone(),
            yardstick: table.yardstick.to_owned(),
            latencies: named(&table.latencies),
            costs: named(&table.costs),
            panels: (0..grid.panels.len()).map(panel).collect(),
        }
    }
}

/// What a standing is made of.
struct Standing<'a> {
    runs: Runs<'a>,
    place: usize,
    yardstick: &'a str,
    latencies: Vec<Measure>,
    costs: Vec<Measure>,
}

impl<'a> Standing<'a> {
    fn of(runs: Runs<'a>, place: usize) -> Self {
        let experiment = runs.experiment(place);
        let yardstick = experiment.yardstick.as_deref().unwrap_or_default();
        let is_latency = |measure: &Measure| measure.unit() == Unit::Ms;
        let (latencies, costs) = experiment.measures.iter().copied().partition(is_latency);
        Self { runs, place, yardstick, latencies, costs }
    }

    fn values(&self, (panel, point): (usize, usize), measure: Measure, policy: &str) -> Vec<f64> {
        let asked = Asked::of(measure);
        self.runs.values(self.place, panel, point, &asked, policy).unwrap_or_default()
    }

    fn label(&self, policy: &str) -> String {
        self.runs.plan.claims.label(policy).to_owned()
    }

    fn latency(&self, at: (usize, usize), measure: Measure, policy: &str) -> Latency {
        let values = self.values(at, measure, policy);
        let over = |other: &[f64]| {
            (values.len() == other.len()).then(|| stats::ratio(&values, other)).flatten()
        };
        let peer = self.runs.best_peer(self.place, at, &Asked::of(measure), policy);
        Latency {
            value: average(measure, &values),
            over_yardstick: over(&self.values(at, measure, self.yardstick)),
            over_best_peer: peer.as_ref().and_then(|(_, values)| over(values)),
            best_peer: peer.map(|(name, _)| self.label(&name)),
        }
    }

    fn setting(&self, panel: usize, point: usize) -> StandingSetting {
        let at = (panel, point);
        let row = |policy: &String| StandingRow {
            policy: policy.clone(),
            label: self.label(policy),
            latencies: self.latencies.iter().map(|one| self.latency(at, *one, policy)).collect(),
            costs: self
                .costs
                .iter()
                .map(|one| average(*one, &self.values(at, *one, policy)))
                .collect(),
        };
        let policies = &self.runs.experiment(self.place).policies;
        StandingSetting {
            name: self.runs.grid(self.place).points[point].clone(),
            rows: policies.iter().map(row).collect(),
        }
    }

    fn overall(&self, panel: usize, policy: &str) -> Overall {
        let points = 0..self.runs.grid(self.place).points.len();
        let cost = |measure: &Measure| {
            let of = |point| (self.values((panel, point), *measure, policy), None);
            across(*measure, &points.clone().map(of).collect())
        };
        Overall {
            policy: policy.to_owned(),
            label: self.label(policy),
            latencies: self
                .latencies
                .iter()
                .map(|measure| self.overall_latency(panel, *measure, policy))
                .collect(),
            costs: self.costs.iter().map(cost).collect(),
        }
    }

    fn overall_latency(&self, panel: usize, measure: Measure, policy: &str) -> OverallLatency {
        let points = 0..self.runs.grid(self.place).points.len();
        let pair = |point: usize, other: Option<Vec<f64>>| {
            let other = other.filter(|values| !values.is_empty())?;
            let of = self.values((panel, point), measure, policy);
            Some((of, Some((Operation::Over, other))))
        };
        let yardstick =
            |point| pair(point, Some(self.values((panel, point), measure, self.yardstick)));
        let peer = |point| {
            let asked = Asked::of(measure);
            let best = self.runs.best_peer(self.place, (panel, point), &asked, policy);
            pair(point, best.map(|(_, values)| values))
        };
        let together = |pairs: Option<Pairs>| across(measure, &pairs?);
        let worst = |ratio: fn(&Latency) -> Option<Interval>| {
            let each = points.clone().filter_map(|point| {
                let ratio = ratio(&self.latency((panel, point), measure, policy))?;
                Some(Extreme { setting: self.runs.grid(self.place).points[point].clone(), ratio })
            });
            each.max_by(|a, b| a.ratio.mean.total_cmp(&b.ratio.mean))
        };
        OverallLatency {
            over_yardstick: together(points.clone().map(yardstick).collect()),
            worst: worst(|latency| latency.over_yardstick),
            over_best_peer: together(points.clone().map(peer).collect()),
            worst_beside_peer: worst(|latency| latency.over_best_peer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Figure;
    use crate::fixtures::any_run;
    use crate::{Choice, Job, Options, Plan, adaptive};
    use evenkeel_sim::report::RunReport;

    /// Three settings and four policies: the p99 of a policy in a setting is made up.
    fn plan() -> Plan {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let choice = Choice {
            experiments: owned(&["suite"]),
            settings: owned(&["T10", "T100", "pause"]),
            policies: owned(&["adaptive", "adaptive+hedge", "random"]),
        };
        let seeds = (1..=10).collect();
        adaptive::PAPER.plan(&Options { seeds, choice, ..Options::default() }).unwrap()
    }

    fn report(plan: &Plan) -> crate::PaperReport {
        let settings = ["T10", "T100", "pause"];
        let p99_ms = |place: usize, job: &Job| {
            let luck = 1.0 + job.seed as f64 / 100.0; // the same for all: pairs cancel it
            luck * match (job.policy.as_str(), settings[place]) {
                ("oracle", _) => 10.0,
                ("adaptive", "T10") => 20.0,
                ("adaptive", "T100") => 40.0,
                ("adaptive", _) => 10.0,
                ("adaptive+hedge", _) => 5.0,
                (_, "pause") => 8.0,
                _ => 80.0,
            }
        };
        let per_setting = plan.jobs().len() / 6;
        let run = |(number, job): (usize, &Job)| {
            let p99_ms = p99_ms(number / per_setting % 3, job);
            RunReport { policy: job.policy.clone(), seed: job.seed, p99_ms, ..any_run() }
        };
        plan.judge(&plan.jobs().iter().enumerate().map(run).collect::<Vec<_>>())
    }

    #[test]
    fn policies_stand_beside_the_yardstick_and_the_best_of_the_others() {
        let plan = plan();
        let report = report(&plan);
        let [Figure::Standing(figure)] = &report.figures[..] else { panic!("one standing") };
        let panel = &figure.panels[0];
        let p99 = figure.latencies.iter().position(|one| one.words == "p99 latency").unwrap();
        let adaptive = panel.overall.iter().find(|row| row.policy == "adaptive").unwrap();
        let of_p99 = &adaptive.latencies[p99];
        // 2, 4 and 1 times the oracle; 1/4, 1/2 and 10/8 of `random`: `adaptive+hedge` is no peer.
        let close = |reported: Interval, truth: f64| {
            assert!((reported.mean / truth - 1.0).abs() < 1e-9, "{reported:?} for {truth}");
            assert!(reported.high / reported.low < 1.0 + 1e-9, "the luck of pairs cancels");
        };
        close(of_p99.over_yardstick.unwrap(), 2.0);
        close(of_p99.over_best_peer.unwrap(), (0.25_f64 * 0.5 * 1.25).cbrt());
        let worst = of_p99.worst.as_ref().unwrap();
        assert_eq!(worst.setting, "T100");
        close(worst.ratio, 4.0);
        let beside = of_p99.worst_beside_peer.as_ref().unwrap();
        assert_eq!(beside.setting, "pause");
        close(beside.ratio, 1.25);
        let random = panel.settings[0].rows.iter().find(|row| row.policy == "random").unwrap();
        assert_eq!(random.latencies[p99].best_peer.as_deref(), Some("adaptive + hedge"));
    }

    #[test]
    fn bars_are_judged_over_all_settings() {
        let report = report(&plan());
        let finding = |id: &str| {
            let claim = report.claims.iter().find(|claim| claim.id == id).unwrap();
            claim.findings.iter().map(|found| found.result.unwrap().mean).collect::<Vec<_>>()
        };
        let [mean] = finding("p99")[..] else { panic!("one mean") };
        assert!((mean - 2.0).abs() < 1e-9, "{mean}");
        let [worst] = finding("p99-worst")[..] else { panic!("one setting") };
        assert!((worst - 4.0).abs() < 1e-9, "{worst}");
        assert_eq!(finding("p99-peer").len(), 3);
        assert!(finding("drawn-p99").is_empty(), "they were not run");
    }
}
