//! `claims.toml`: what a paper claims, in words a machine can check.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_settings::{Mismatch, Node, Problems, Setting, Table};
use serde::Serialize;

use crate::paper::stats::{Range, Verdict};

/// Everything in a paper's `claims.toml`.
#[derive(Clone, Debug)]
pub struct Claims {
    /// The paper's title, authors and place.
    pub title: String,
    /// Short names of policies, for tables and figures.
    pub labels: BTreeMap<String, String>,
    /// What is run.
    pub experiments: Vec<Experiment>,
    /// What is claimed of it.
    pub claims: Vec<Claim>,
}

/// A scenario, run over a grid of settings with several policies.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The name that claims refer to.
    pub id: String,
    /// What its figure shows.
    pub title: String,
    /// The scenario's name.
    pub scenario: String,
    /// What its figure measures.
    pub measure: Measure,
    /// The policies to compare.
    pub policies: Vec<String>,
    /// `path=value`, applied to the scenario in every setting.
    pub set: Vec<String>,
    /// Requests of a run at least.
    pub requests: u64,
    /// Speed draws of each server in a run at least: a long interval takes a long run.
    pub draws: f64,
    /// What runs along the figure.
    pub axis: Axis,
    /// What tells its panels apart.
    pub panels: Vec<Axis>,
}

/// A parameter that takes several values.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The parameter, as `--set` names it; empty when there is none to vary.
    pub path: String,
    /// Its short name.
    pub label: String,
    /// The values, as `--set` takes them.
    pub values: Vec<String>,
    /// Those of them that a quick check visits.
    pub quick: Vec<String>,
}

/// What is measured in a run, or in the runs along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Mean latency, milliseconds.
    MeanMs,
    /// Median.
    P50Ms,
    /// 95th percentile.
    P95Ms,
    /// 99th percentile.
    P99Ms,
    /// 99.9th percentile.
    P999Ms,
    /// 99.9th percentile over median.
    TailOverMedian,
    /// Deviation over mean of a replica's load in time.
    LoadVariation,
    /// Load of the first replica over load of the second.
    QueueRatio,
    /// 99th percentile of a window, averaged over the windows before the first phase.
    BeforeP99Ms,
    /// The same, after the phase.
    AfterP99Ms,
    /// After over before.
    AfterOverBefore,
    /// Requests per second at which as many are in the system as a closed loop has threads.
    ClosedThroughput,
    /// 99.9th percentile at that rate.
    ClosedP999Ms,
    /// 99.9th percentile over median at that rate.
    ClosedTailOverMedian,
}

/// One claim.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its name.
    pub id: String,
    /// Where it is made.
    pub source: String,
    /// What is claimed, in words.
    pub claimed: String,
    /// How it is checked here, and how this differs from how the paper did.
    pub setting: String,
    /// The verdict on record: another one is an error.
    pub recorded: Verdict,
    /// Why this verdict; why there is nothing to measure.
    pub reason: String,
    /// What checks it.
    pub check: Check,
}

/// What checks a claim.
#[derive(Clone, Debug)]
pub enum Check {
    /// Nothing can.
    Nothing,
    /// Numbers of an experiment.
    Measured {
        /// The experiment.
        experiment: String,
        /// The settings, each as `path=value`; those not named are all meant.
        only: Vec<String>,
        /// What is measured.
        measure: Measure,
        /// Threads of the closed loop, where the measure asks for one.
        threads: f64,
        /// What is compared with what.
        comparisons: Vec<Comparison>,
    },
    /// Runs of the paper's own simulator: one group of rows by its strategies.
    Reference {
        /// The strategies, as the file names them.
        strategies: Vec<String>,
    },
}

/// A number that is claimed to lie in a range.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The policy.
    pub of: String,
    /// The policy it is divided by, if any.
    pub over: Option<String>,
    /// The range claimed.
    pub range: Range,
}

impl Claims {
    /// Takes the claims out of what was written.
    ///
    /// # Errors
    /// Every problem at once, each with its place.
    pub fn read(node: &Node) -> Result<Self, Problems> {
        node.read(|root| {
            let claims = Self {
                title: root.key("title").text().required(),
                labels: root
                    .key("labels")
                    .named(|_, label| label.text().required())
                    .or(BTreeMap::new()),
                experiments: tables(root.key("experiments"), Experiment::read),
                claims: tables(root.key("claims"), Claim::read),
            };
            claims.check(root);
            claims
        })
    }

    /// The short name of a policy.
    #[must_use]
    pub fn label<'a>(&'a self, policy: &'a str) -> &'a str {
        self.labels.get(policy).map_or(policy, String::as_str)
    }

    /// The experiment of this name.
    #[must_use]
    pub fn experiment(&self, id: &str) -> Option<&Experiment> {
        self.experiments.iter().find(|experiment| experiment.id == id)
    }

    fn check(&self, root: &mut Table<'_>) {
        if !root.is_sound() {
            return;
        }
        for claim in &self.claims {
            let Check::Measured { experiment, comparisons, only, .. } = &claim.check else {
                continue;
            };
            let Some(experiment) = self.experiment(experiment) else {
                let came = format!("experiment {experiment:?} of claim {:?}", claim.id);
                root.problem("claims", Mismatch::new(came, "an experiment of this file"));
                continue;
            };
            for comparison in comparisons {
                for policy in core::iter::once(&comparison.of).chain(&comparison.over) {
                    if !experiment.policies.contains(policy) {
                        let came = format!("policy {policy:?} in claim {:?}", claim.id);
                        let expected = format!("a policy of experiment {:?}", experiment.id);
                        root.problem("claims", Mismatch::new(came, expected));
                    }
                }
            }
            for setting in only.iter().filter(|setting| !experiment.visits(setting)) {
                let came = format!("setting {setting:?} of claim {:?}", claim.id);
                let expected = format!("a value along an axis of experiment {:?}", experiment.id);
                root.problem("claims", Mismatch::new(came, expected));
            }
        }
    }
}

fn tables<'a, T: 'a>(
    setting: Setting<'a>,
    shape: impl Fn(&mut Table<'a>) -> T + Copy + 'a,
) -> Vec<T> {
    setting.list(|item| item.table(shape).required()).required()
}

fn texts(setting: Setting<'_>) -> Vec<String> {
    setting.list(|item| item.text().required()).or(Vec::new())
}

impl Experiment {
    fn read(table: &mut Table<'_>) -> Self {
        Self {
            id: table.key("id").text().required(),
            title: table.key("title").text().required(),
            scenario: table.key("scenario").text().required(),
            measure: table.key("measure").variant(&Measure::NAMED).or(Measure::P99Ms),
            policies: texts(table.key("policies")),
            set: texts(table.key("set")),
            requests: table.key("requests").integer().between(1_000..=1_000_000_000).required(),
            draws: table.key("draws").number().between(0.0..=1e6).or(0.0),
            axis: table.key("axis").table(Axis::read).optional().unwrap_or_else(Axis::none),
            panels: table
                .key("panels")
                .list(|item| item.table(Axis::read).required())
                .or(Vec::new()),
        }
    }

    /// Whether `path=value` is a value along one of its axes.
    fn visits(&self, setting: &str) -> bool {
        let axes = self.panels.iter().chain([&self.axis]);
        let mut all = axes.flat_map(|axis| axis.values.iter().map(|value| axis.assignment(value)));
        all.any(|assignment| assignment == setting)
    }

    /// Virtual time a run takes at least.
    #[must_use]
    pub fn length_min(&self, interval: Duration) -> Duration {
        interval.mul_f64(self.draws)
    }
}

impl Axis {
    fn read(table: &mut Table<'_>) -> Self {
        let values = texts(table.key("values"));
        let quick = texts(table.key("quick"));
        let path = table.key("path").text().required();
        if table.is_sound() && !quick.iter().all(|value| values.contains(value)) {
            let came = "a value that is not among `values`";
            table.problem("quick", Mismatch::new(came, "some of `values`"));
        }
        let label = table.key("label").text().required();
        let quick = if quick.is_empty() { values.clone() } else { quick };
        Self { path, label, values, quick }
    }

    /// The axis of a figure that has none.
    fn none() -> Self {
        let once = vec![String::new()];
        Self { path: String::new(), label: String::new(), values: once.clone(), quick: once }
    }

    /// The values to visit.
    #[must_use]
    pub fn visited(&self, quick: bool) -> &[String] {
        if quick { &self.quick } else { &self.values }
    }

    /// `path=value`, or nothing to set.
    #[must_use]
    pub fn assignment(&self, value: &str) -> String {
        if self.path.is_empty() { String::new() } else { format!("{}={value}", self.path) }
    }
}

impl Measure {
    /// The measures by the names that people write.
    pub const NAMED: [(&'static str, Self); 14] = [
        ("mean_ms", Self::MeanMs),
        ("p50_ms", Self::P50Ms),
        ("p95_ms", Self::P95Ms),
        ("p99_ms", Self::P99Ms),
        ("p999_ms", Self::P999Ms),
        ("tail_over_median", Self::TailOverMedian),
        ("load_variation", Self::LoadVariation),
        ("queue_ratio", Self::QueueRatio),
        ("before_p99_ms", Self::BeforeP99Ms),
        ("after_p99_ms", Self::AfterP99Ms),
        ("after_over_before", Self::AfterOverBefore),
        ("closed_throughput", Self::ClosedThroughput),
        ("closed_p999_ms", Self::ClosedP999Ms),
        ("closed_tail_over_median", Self::ClosedTailOverMedian),
    ];

    /// The measure in words, and its unit.
    #[must_use]
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::MeanMs => ("mean latency", "ms"),
            Self::P50Ms => ("median latency", "ms"),
            Self::P95Ms => ("p95 latency", "ms"),
            Self::P99Ms => ("p99 latency", "ms"),
            Self::P999Ms => ("p99.9 latency", "ms"),
            Self::TailOverMedian => ("p99.9 over median", "times"),
            Self::LoadVariation => ("variation of a replica's load", "deviation / mean"),
            Self::QueueRatio => ("queue of the fast over the slow server", "times"),
            Self::BeforeP99Ms => ("p99 before the others join", "ms"),
            Self::AfterP99Ms => ("p99 after they joined", "ms"),
            Self::AfterOverBefore => ("p99 after over before", "times"),
            Self::ClosedThroughput => ("closed-loop throughput", "/s"),
            Self::ClosedP999Ms => ("p99.9 at the closed loop's rate", "ms"),
            Self::ClosedTailOverMedian => ("p99.9 over median at that rate", "times"),
        }
    }

    /// Whether it takes the runs along the whole axis.
    #[must_use]
    pub const fn is_along_axis(self) -> bool {
        matches!(self, Self::ClosedThroughput | Self::ClosedP999Ms | Self::ClosedTailOverMedian)
    }
}

impl Claim {
    fn read(table: &mut Table<'_>) -> Self {
        let check = Check::read(table);
        Self {
            id: table.key("id").text().required(),
            source: table.key("source").text().required(),
            claimed: table.key("claimed").text().required(),
            setting: table.key("setting").text().or(String::new()),
            recorded: table.key("verdict").variant(&Verdict::NAMED).required(),
            reason: table.key("reason").text().or(String::new()),
            check,
        }
    }
}

impl Check {
    fn read(table: &mut Table<'_>) -> Self {
        let strategies = texts(table.key("strategies"));
        if !strategies.is_empty() {
            return Self::Reference { strategies };
        }
        let experiment = table.key("experiment").text().optional();
        let only = texts(table.key("where"));
        let measure = table.key("measure").variant(&Measure::NAMED).or(Measure::P99Ms);
        let threads = table.key("threads").number().between(1.0..=1e6).or(1.0);
        let comparisons = table
            .key("compare")
            .list(|item| item.table(Comparison::read).required())
            .or(Vec::new());
        match experiment {
            Some(experiment) => Self::Measured { experiment, only, measure, threads, comparisons },
            None => Self::Nothing,
        }
    }
}

impl Comparison {
    fn read(table: &mut Table<'_>) -> Self {
        let range = Range {
            at_least: table.key("at_least").number().or(f64::NEG_INFINITY),
            at_most: table.key("at_most").number().or(f64::INFINITY),
        };
        let of = table.key("of").text().required();
        Self { of, over: table.key("over").text().optional(), range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        let head = "title = 'T'\n[[experiments]]\nid = 'e'\ntitle = 't'\nscenario = 's'\n\
                    requests = 1000\npolicies = ['random']\n\
                    axis = {path = 'x', label = 'x', values = ['1', '2']}\n\
                    [[claims]]\nid = 'c'\nsource = 's'\nclaimed = 'c'\nverdict = 'depends'\n";
        let node = Node::parse(&format!("{head}{text}"), "claims.toml").unwrap();
        Claims::read(&node).map_or_else(|problems| problems.to_string(), |_| String::new())
    }

    #[test]
    fn a_claim_about_what_is_not_run_is_an_error() {
        assert_eq!(problems("experiment = 'e'\nwhere = ['x=2']\ncompare = [{of = 'random'}]"), "");
        for (text, told) in [
            ("experiment = 'f'", "experiment \"f\" of claim \"c\""),
            ("experiment = 'e'\ncompare = [{of = 'c3'}]", "policy \"c3\" in claim \"c\""),
            ("experiment = 'e'\nwhere = ['x=3']", "setting \"x=3\" of claim \"c\""),
            ("measure = 'p98_ms'", "p98_ms"),
            ("treads = 3", "unknown key \"treads\""),
        ] {
            assert!(problems(text).contains(told), "{text}: {}", problems(text));
        }
    }
}
