//! `evenkeel plan duplicates`: how many partitions of how many duplicates.

mod page;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use evenkeel_core::units::OutOfRange;
use evenkeel_planner::duplicates::correlation::Correlation;
use evenkeel_planner::duplicates::moves::{Outlook, Planner, Steadiness, Step};
use evenkeel_planner::duplicates::night::Setup;
use evenkeel_planner::duplicates::policy::{Candidate, Objective, Prices, best, judge, policies};
use evenkeel_planner::duplicates::{Effort, Model, Policy, Question};
use evenkeel_settings::duplicates::{Input, MODELS};
use evenkeel_settings::{Node, Problems};
use serde::Serialize;

use crate::flag::FlagError;
use crate::jobs::run_all;
use crate::output;
use crate::terminal::Progress;

/// Steps from the arrangement of today that are told at most.
const STEPS_MAX: usize = 32;
/// Accesses at most of a simulation that compares arrangements.
const STEP_ACCESSES_MAX: u64 = 50_000;

/// Compute the number of partitions and duplicates that keep a target at the lowest cost.
///
/// INPUT is a TOML file: the target and its latency bound, the rate, service times (recorded in
/// CSV, or a formula), nodes, prices. The model simulates the queues of duplicates (lindley), or is
/// that of the Zoolander paper (paper), or both. With tables today and night the output also has
/// the steps from today's layout to a better one, and the use of idle nodes at night. Formats:
/// docs/plan-duplicates.md.
///
/// Example: evenkeel plan duplicates plans/duplicates-store.toml --model both
#[derive(Debug, clap::Args)]
pub(crate) struct DuplicatesArguments {
    /// The input file.
    input: PathBuf,
    /// The model, instead of the one in INPUT: lindley, paper, both.
    #[arg(long, value_name = "NAME", value_parser = models)]
    model: Option<Models>,
    /// Change a setting of the input, such as rate=500; repeatable.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// Write a page with charts to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
struct Models(&'static [Model]);

fn models(name: &str) -> Result<Models, FlagError> {
    let found = MODELS.iter().find(|(known, _)| *known == name);
    let known = MODELS.map(|(name, _)| name).join(", ");
    let wrong = || FlagError::came(name, format!("one of {known}"));
    found.map(|(_, models)| Models(models)).ok_or_else(wrong)
}

/// A policy, as `--json` prints it.
#[derive(Serialize)]
struct Line {
    partitions: u32,
    duplicates: u32,
    nodes: u64,
    service_level: f64,
    violations: f64,
    standard_error: f64,
    /// Null where no violation is expected.
    nines: f64,
    utilisation: f64,
    cost: f64,
    meets: bool,
    sure: bool,
    /// To whom reads go: all, hedged.
    reads: &'static str,
    /// The share of violations if reads went the other way; left out where no access is a read.
    #[serde(skip_serializing_if = "Option::is_none")]
    violations_otherwise: Option<f64>,
}

#[derive(Serialize)]
struct Verdict {
    model: &'static str,
    policies: Vec<Line>,
    best: Option<Line>,
}

#[derive(Serialize)]
struct SweepLine {
    per_violation: f64,
    cheapest: String,
    best: Option<String>,
}

#[derive(Serialize)]
struct StepLine<'a> {
    why: &'a str,
    violations: f64,
    nodes: u64,
    cost: f64,
    copies: u64,
}

#[derive(Serialize)]
struct NightLine {
    setup: &'static str,
    nodes: u64,
    violations: f64,
    late: f64,
    copies_down: u64,
    copies_back: u64,
    cost: f64,
    cost_with_migration: f64,
}

#[derive(Serialize)]
struct Document<'a> {
    title: &'a str,
    #[serde(flatten)]
    verdict: Verdict,
    /// The other model, where both were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<Verdict>,
    /// What a cost is for.
    cost_per_s: f64,
    sweep: Vec<SweepLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outliers: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    today: Option<Vec<StepLine<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    night: Option<Vec<NightLine>>,
}

/// What a model says of every policy.
struct Judged {
    model: Model,
    candidates: Vec<Candidate>,
    best: Option<Candidate>,
}

/// An input and what is said of it; the first model decides.
struct Plan {
    title: String,
    input: Input,
    judged: Vec<Judged>,
    outliers: Option<Correlation>,
    today: Option<(Outlook, Vec<Step>)>,
    night: Option<Vec<Setup>>,
}

pub(crate) fn run(arguments: &DuplicatesArguments) -> anyhow::Result<ExitCode> {
    let mut input = load(arguments)?;
    if let Some(Models(models)) = arguments.model {
        input.models = models.to_vec();
    }
    let file = arguments.input.display();
    let title = input.title.clone().unwrap_or_else(|| file.to_string());
    let plan = Plan::of(title, input).map_err(|error| anyhow::anyhow!("{file}: {error}"))?;
    if let Some(file) = &arguments.html {
        output::page("page", file, &page::page(&plan))?;
    }
    if arguments.json {
        output::json(&plan.document())?;
    } else {
        output::text!("{}", text::describe(&plan))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn load(arguments: &DuplicatesArguments) -> Result<Input, Problems> {
    let node = Node::load_with(&arguments.input, &arguments.set)?;
    Input::read(&node, arguments.input.parent().unwrap_or(Path::new("")))
}

impl Plan {
    fn of(title: String, input: Input) -> Result<Self, OutOfRange> {
        let judged = judged(&input)?;
        let model = judged.first().map_or(Model::Lindley, |judged| judged.model);
        let outliers =
            input.together.as_deref().and_then(|rows| Correlation::beyond_bound(rows, input.bound));
        let today = today(&input, model)?;
        let night = match input.night()? {
            Some(night) => Some(night.setups(model)?),
            None => None,
        };
        Ok(Self { title, input, judged, outliers, today, night })
    }

    /// What the deciding model says.
    fn first(&self) -> &Judged {
        &self.judged[0]
    }

    /// The other model, where both were asked.
    fn other(&self) -> Option<&Judged> {
        self.judged.get(1)
    }

    /// A cost in a second as the file counts it.
    fn cost(&self, per_s: f64) -> f64 {
        per_s * self.input.per.as_secs_f64()
    }

    fn line(&self, candidate: &Candidate) -> Line {
        Line {
            partitions: candidate.policy.partitions.get(),
            duplicates: candidate.policy.duplicates.get(),
            nodes: candidate.policy.nodes(),
            service_level: candidate.prediction.service_level().value(),
            violations: candidate.prediction.violations,
            standard_error: candidate.prediction.standard_error,
            nines: candidate.prediction.nines(),
            utilisation: candidate.prediction.utilisation,
            cost: self.cost(candidate.cost),
            meets: candidate.meets,
            sure: candidate.is_sure,
            reads: candidate.reads.name(),
            violations_otherwise: candidate.otherwise.map(|it| it.violations),
        }
    }

    fn verdict(&self, judged: &Judged) -> Verdict {
        Verdict {
            model: judged.model.name(),
            policies: judged.candidates.iter().map(|candidate| self.line(candidate)).collect(),
            best: judged.best.as_ref().map(|candidate| self.line(candidate)),
        }
    }

    /// The cheapest policy, and the cheapest that meets the target, at every price of the sweep.
    fn sweep(&self) -> Vec<(f64, Candidate, Option<Candidate>)> {
        let at = |per_violation: f64| {
            let prices = Prices { per_violation, ..self.input.objective.prices };
            let objective = Objective { prices, ..self.input.objective };
            let priced = |one: &Candidate| one.priced(self.input.rate, &objective);
            let all: Vec<Candidate> = self.first().candidates.iter().map(priced).collect();
            let cost = |a: &&Candidate, b: &&Candidate| a.cost.total_cmp(&b.cost);
            let cheapest = all.iter().min_by(cost).expect("a node allows a policy");
            (per_violation, *cheapest, best(&all).copied())
        };
        self.input.sweep.iter().map(|&per_violation| at(per_violation)).collect()
    }

    fn document(&self) -> Document<'_> {
        let sweep = self.sweep().into_iter().map(|(per_violation, cheapest, best)| SweepLine {
            per_violation,
            cheapest: cheapest.policy.to_string(),
            best: best.map(|best| best.policy.to_string()),
        });
        let step = |step: &'_ Step| -> (f64, u64, f64) {
            (step.after.violations, step.after.nodes, self.cost(step.after.cost))
        };
        let steps = self.today.as_ref().map(|(_, steps)| {
            let line = |one| {
                let (violations, nodes, cost) = step(one);
                StepLine { why: &one.why, violations, nodes, cost, copies: one.copies }
            };
            steps.iter().map(line).collect()
        });
        Document {
            title: &self.title,
            verdict: self.verdict(self.first()),
            beside: self.other().map(|other| self.verdict(other)),
            cost_per_s: self.input.per.as_secs_f64(),
            sweep: sweep.collect(),
            outliers: self.outliers.as_ref().map(Correlation::describe),
            today: steps,
            night: self.night.as_ref().map(|setups| setups.iter().map(night_line).collect()),
        }
    }
}

fn night_line(setup: &Setup) -> NightLine {
    NightLine {
        setup: setup.idea.name(),
        nodes: setup.nodes,
        violations: setup.violations,
        late: setup.late,
        copies_down: setup.copies_down,
        copies_back: setup.copies_back,
        cost: setup.cost,
        cost_with_migration: setup.cost_with_migration,
    }
}

/// Every policy by every model that was asked, on all cores.
fn judged(input: &Input) -> Result<Vec<Judged>, OutOfRange> {
    let (question, objective) = (input.question(), input.objective);
    let all = policies(objective.nodes_max, input.service.duplicates_max());
    let models = input.models.iter();
    let jobs: Vec<(Model, Policy)> =
        models.flat_map(|&model| all.iter().map(move |&policy| (model, policy))).collect();
    let progress = Progress::new("predicting", jobs.len());
    progress.show(0);
    let work = |&(model, policy): &(Model, Policy)| judge(model, &question, &objective, policy);
    let done = run_all(&jobs, work, |done| progress.show(done));
    progress.clear();
    let done: Vec<Candidate> = done.into_iter().collect::<Result<_, _>>()?;
    let of = |(&model, candidates): (&Model, &[Candidate])| Judged {
        model,
        candidates: candidates.to_vec(),
        best: best(candidates).copied(),
    };
    Ok(input.models.iter().zip(done.chunks(all.len())).map(of).collect())
}

/// What is expected of today's arrangement, and the steps from there.
fn today(input: &Input, model: Model) -> Result<Option<(Outlook, Vec<Step>)>, OutOfRange> {
    let Some(today) = &input.today else { return Ok(None) };
    // Curves of many rates are simulated: each as long as needed to compare, not to promise.
    let accesses = input.effort.accesses.min(STEP_ACCESSES_MAX);
    let effort = Effort { accesses, accesses_max: accesses, ..input.effort };
    let planner = Planner {
        model,
        question: Question { effort, ..input.question() },
        target: input.objective.target,
        nodes_max: input.objective.nodes_max,
        prices: input.objective.prices,
        steadiness: Steadiness::default(),
        duplicates_min: core::num::NonZeroU32::MIN,
    };
    let now = planner.outlook(&today.arrangement, &today.rates)?;
    let steps = planner.plan(&today.arrangement, &today.rates, STEPS_MAX)?;
    Ok(Some((now, steps)))
}

#[cfg(test)]
mod tests;
