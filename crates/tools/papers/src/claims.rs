//! `claims.toml`: what a paper claims, in words a machine can check.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_settings::{Mismatch, Node, Problems, Setting, Table};

use crate::drawn;
use crate::measure::{Asked, Measure};
use crate::stats::{Range, Verdict};

/// Everything in a paper's `claims.toml`.
#[derive(Clone, Debug)]
pub struct Claims {
    /// The paper's title, authors and place.
    pub title: String,
    /// Whether its claims are bars that were set for ourselves: held or missed.
    pub bars: bool,
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
    /// Whether it is run only by those who ask for it by its name.
    pub on_request: bool,
    /// The scenario's name.
    pub scenario: String,
    /// How its figure is drawn; without a word an experiment in time that has no axis is drawn
    /// over time.
    pub drawing: Option<Drawing>,
    /// What its figure measures.
    pub measures: Vec<Measure>,
    /// The policy that all are held against where the figure is a standing.
    pub yardstick: Option<String>,
    /// Added to each seed: runs that share no seed with those of other experiments.
    pub seeds_after: u64,
    /// The policies to compare.
    pub policies: Vec<String>,
    /// `path=value`, applied to the scenario in every setting.
    pub set: Vec<String>,
    /// Requests of a run at least; as many as the scenario says without.
    pub requests: Option<u64>,
    /// What a quick check sets beyond that.
    pub quick_set: Vec<String>,
    /// Whether the scenario is an input of `evenkeel plan capacity` and its policies strategies.
    pub is_bill: bool,
    /// Speed draws of each server in a run at least: a long interval takes a long run.
    pub draws: f64,
    /// What runs along the figure.
    pub axis: Axis,
    /// What tells its panels apart.
    pub panels: Vec<Axis>,
}

/// What takes several values: a parameter, or cases that set several parameters each.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The parameter, as `--set` names it, or what claims call the cases; empty when nothing
    /// varies.
    pub path: String,
    /// Its short name.
    pub label: String,
    /// The values, as `--set` takes them, or the names of the cases.
    pub values: Vec<String>,
    /// Those of them that a quick check visits.
    pub quick: Vec<String>,
    /// For each value what is set, as `path=value`.
    pub sets: Vec<Vec<String>>,
}

/// A case of an axis.
struct Case {
    name: String,
    set: Vec<String>,
}

evenkeel_core::named! {
    /// How an experiment is drawn.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Drawing {
        /// One measure along the axis.
        Axis = "axis",
        /// Measures over time, one above the other.
        Time = "time",
        /// A dot for each run: the last measure over each of the others.
        Scatter = "scatter",
        /// A row for each policy, a column for each measure.
        Table = "table",
        /// The same with ratios to the yardstick and to the best peer in each setting, and over
        /// all settings.
        Standing = "standing",
    }
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
        asked: Asked,
        /// What is compared with what.
        comparisons: Vec<Comparison>,
        /// How its settings are taken together.
        across: Across,
        /// Whether Welch's test is shown beside each comparison of two policies.
        welch: bool,
    },
    /// Runs of the paper's own simulator: one group of rows by its strategies.
    Reference {
        /// The strategies, as the file names them.
        strategies: Vec<String>,
    },
}

evenkeel_core::named! {
    /// How a claim takes settings together.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Across {
        /// Not at all: it must hold in each.
        Each = "each",
        /// Their mean in each panel, the geometric one of ratios.
        Mean = "mean",
        /// The worst of each panel.
        Worst = "worst",
    }
}

/// What claims write in place of a policy: of the others, the one that is best in the setting.
/// Variants of the policy itself are not its peers, nor is the yardstick.
pub const BEST_PEER: &str = "best-peer";

/// A number that is claimed to lie in a range.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The policy.
    pub of: String,
    /// The policy it is compared with, if any.
    pub with: Option<(Operation, String)>,
    /// The settings, beside those of the claim.
    pub only: Vec<String>,
    /// Where along the axis the other policy is looked at, as `path=value`; without, where the
    /// first one is.
    pub with_at: Option<String>,
    /// The range claimed.
    pub range: Range,
}

/// How two policies are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// One over the other.
    Over,
    /// One less the other.
    Less,
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
                bars: root.key("bars").boolean().or(false),
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
    pub fn label<'a>(&'a self, policy: &'a str) -> &'a str {
        self.labels.get(policy).map_or(policy, String::as_str)
    }

    /// The experiment of this name.
    pub fn experiment(&self, id: &str) -> Option<&Experiment> {
        self.experiments.iter().find(|experiment| experiment.id == id)
    }

    fn check(&self, root: &mut Table<'_>) {
        if !root.is_sound() {
            return;
        }
        for experiment in &self.experiments {
            let known = |policy: &String| experiment.policies.contains(policy);
            let is_sound = match &experiment.yardstick {
                Some(yardstick) => known(yardstick),
                None => experiment.drawing != Some(Drawing::Standing),
            };
            if !is_sound {
                let came = format!("{:?} of experiment {:?}", experiment.yardstick, experiment.id);
                let expected = "yardstick: one of its policies, in each standing";
                root.problem("experiments", Mismatch::new(came, expected));
            }
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
                let other = comparison.with.as_ref().map(|(_, other)| other);
                let other = other.filter(|other| *other != BEST_PEER);
                for policy in core::iter::once(&comparison.of).chain(other) {
                    if !experiment.policies.contains(policy) {
                        let came = format!("policy {policy:?} in claim {:?}", claim.id);
                        let expected = format!("a policy of experiment {:?}", experiment.id);
                        root.problem("claims", Mismatch::new(came, expected));
                    }
                }
            }
            let of_comparisons =
                comparisons.iter().flat_map(|one| one.only.iter().chain(&one.with_at));
            let only = only.iter().chain(of_comparisons);
            for setting in only.filter(|setting| !experiment.visits(setting)) {
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
            on_request: table.key("on_request").boolean().or(false),
            scenario: table.key("scenario").text().required(),
            drawing: table.key("drawing").variant(&Drawing::NAMED).optional(),
            measures: measures(table),
            yardstick: table.key("yardstick").text().optional(),
            seeds_after: table.key("seeds_after").integer().between(0..=1_000_000).or(0),
            policies: texts(table.key("policies")),
            set: texts(table.key("set")),
            requests: table.key("requests").integer().between(1_000..=1_000_000_000).optional(),
            quick_set: texts(table.key("quick_set")),
            is_bill: table.key("bill").boolean().or(false),
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
    pub fn length_min(&self, interval: Duration) -> Duration {
        interval.mul_f64(self.draws)
    }
}

/// One `measure`, or several `measures`.
fn measures(table: &mut Table<'_>) -> Vec<Measure> {
    let one = table.key("measure").variant(&Measure::named()).optional();
    let several = table.key("measures");
    let several = several.list(|item| item.variant(&Measure::named()).required()).or(Vec::new());
    match (one, several.is_empty()) {
        (Some(one), _) => core::iter::once(one).chain(several).collect(),
        (None, true) => vec![Measure::of("p99_ms")],
        (None, false) => several,
    }
}

impl Axis {
    fn read(table: &mut Table<'_>) -> Self {
        let cases = table.key("cases").list(|item| item.table(Case::read).required());
        let mut cases = cases.or(Vec::new());
        let drawn = table.key("drawn").integer().between(0..=1_000).or(0);
        let seed = table.key("drawn_from").integer().between(0..=u64::MAX >> 1).or(1);
        let settings = drawn::settings(drawn, seed).into_iter();
        cases.extend(settings.map(|(name, set)| Case { name, set }));
        let values = texts(table.key("values"));
        let quick = texts(table.key("quick"));
        let path = table.key("path").text().required();
        let label = table.key("label").text().required();
        if table.is_sound() && values.is_empty() == cases.is_empty() {
            let came = if cases.is_empty() { "neither" } else { "both" };
            table.problem("values", Mismatch::new(came, "either `values` or `cases`"));
        }
        let (values, sets) = if cases.is_empty() {
            let sets = values.iter().map(|value| vec![format!("{path}={value}")]).collect();
            (values, sets)
        } else {
            cases.into_iter().map(|case| (case.name, case.set)).unzip()
        };
        if table.is_sound() && !quick.iter().all(|value| values.contains(value)) {
            let came = "a value that is not among `values`";
            table.problem("quick", Mismatch::new(came, "some of `values`"));
        }
        let quick = match (quick.is_empty(), drawn) {
            (false, _) => quick,
            (true, 0) => values.clone(),
            (true, _) => values.iter().take(1).cloned().collect(),
        };
        Self { path, label, values, quick, sets }
    }

    /// The axis of a figure that has none.
    fn none() -> Self {
        let once = vec![String::new()];
        let (path, label) = (String::new(), String::new());
        Self { path, label, values: once.clone(), quick: once, sets: vec![vec![]] }
    }

    /// Whether there is anything along it.
    pub const fn is_none(&self) -> bool {
        self.path.is_empty()
    }

    /// The values to visit.
    pub fn visited(&self, quick: bool) -> &[String] {
        if quick { &self.quick } else { &self.values }
    }

    /// `path=value`, as claims name the setting; empty when nothing varies.
    pub fn assignment(&self, value: &str) -> String {
        if self.is_none() { String::new() } else { format!("{}={value}", self.path) }
    }

    /// What is set for a value.
    ///
    /// # Panics
    /// When it is none of the axis's values.
    pub fn sets(&self, value: &str) -> &[String] {
        let place = self.values.iter().position(|known| known == value);
        &self.sets[place.expect("a value of this axis")]
    }
}

impl Case {
    fn read(table: &mut Table<'_>) -> Self {
        Self { name: table.key("name").text().required(), set: texts(table.key("set")) }
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
        let asked = Asked::read(table);
        let across = table.key("across").variant(&Across::NAMED).or(Across::Each);
        let welch = table.key("welch").boolean().or(false);
        let comparisons = table.key("compare");
        let comparisons = comparisons.list(|item| item.table(Comparison::read).required());
        let comparisons = comparisons.or(Vec::new());
        match experiment {
            Some(experiment) => {
                Self::Measured { experiment, only, asked, comparisons, across, welch }
            }
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
        let over = table.key("over").text().optional();
        let less = table.key("less").text().optional();
        if over.is_some() && less.is_some() {
            table.problem("less", Mismatch::new("`less` beside `over`", "one of the two"));
        }
        let with = match (over, less) {
            (Some(over), _) => Some((Operation::Over, over)),
            (None, less) => less.map(|less| (Operation::Less, less)),
        };
        let with_at = table.key("at").text().optional();
        Self { of, with, only: texts(table.key("where")), with_at, range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        let axis = "path = 'x', label = 'x', values = ['1', '2']";
        problems_with(axis, text)
    }

    fn problems_with(axis: &str, text: &str) -> String {
        let head = "title = 'T'\n[[experiments]]\nid = 'e'\ntitle = 't'\nscenario = 's'\n\
                    requests = 1000\npolicies = ['random']\n\
                    axis = {AXIS}\n\
                    [[claims]]\nid = 'c'\nsource = 's'\nclaimed = 'c'\nverdict = 'depends'\n";
        let text = format!("{}{text}", head.replace("AXIS", axis));
        let node = Node::parse(&text, "claims.toml").unwrap();
        Claims::read(&node).map_or_else(|problems| problems.to_string(), |_| String::new())
    }

    #[test]
    fn a_claim_about_what_is_not_run_is_an_error() {
        assert_eq!(problems("experiment = 'e'\nwhere = ['x=2']\ncompare = [{of = 'random'}]"), "");
        for (text, reported) in [
            ("experiment = 'f'", "experiment \"f\" of claim \"c\""),
            ("experiment = 'e'\ncompare = [{of = 'c3'}]", "policy \"c3\" in claim \"c\""),
            ("experiment = 'e'\nwhere = ['x=3']", "setting \"x=3\" of claim \"c\""),
            ("measure = 'p98_ms'", "p98_ms"),
            ("treads = 3", "unknown key \"treads\""),
            ("experiment = 'e'\ncompare = [{of = 'random', where = ['x=3']}]", "\"x=3\" of claim"),
            ("compare = [{of = 'a', over = 'b', less = 'c'}]", "one of the two"),
            ("during = '3s'", "a span such as 300s..400s"),
            ("across = 'all'", "one of each, mean, worst"),
        ] {
            assert!(problems(text).contains(reported), "{text}: {}", problems(text));
        }
    }

    #[test]
    fn an_axis_has_values_or_cases() {
        let cases = "cases = [{name = 'one', set = ['x=1']}, {name = 'two', set = ['x=2', 'y=2']}]";
        let axis = format!("path = 'case', label = 'case', {cases}");
        let claim = "experiment = 'e'\nwhere = ['case=two']\ncompare = [{of = 'random'}]";
        assert_eq!(problems_with(&axis, claim), "");
        let both = format!("{axis}, values = ['1']");
        assert!(problems_with(&both, "").contains("either `values` or `cases`"));
        assert!(problems_with("path = 'x', label = 'x'", "").contains("neither"));
        let quick = format!("{axis}, quick = ['three']");
        assert!(problems_with(&quick, "").contains("some of `values`"));
    }
}
