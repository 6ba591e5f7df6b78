//! `evenkeel plan capacity`: what serving a trace costs, with and without redirects.

mod page;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_settings::{Node, Problems, format_duration};
use evenkeel_sim::capacity::{Capacity, InputError, Outcome, Strategy};
use serde::Serialize;

use crate::jobs::run_all;
use crate::output;
use crate::terminal::{Progress, Table, count};

/// Compute the cost of serving a trace, with and without sharing load between sites.
///
/// INPUT is a TOML file with sites and their round trips, the objective, curves (a profile, a
/// queue, or percentiles), a trace, the autoscaler, prices, and billing units; see
/// plans/capacity.toml. Savings are relative to each site alone, scaled by its own violations
/// (`local`).
///
/// Example: evenkeel plan capacity plans/capacity.toml --html capacity.html
#[derive(Debug, clap::Args)]
pub(crate) struct CapacityArguments {
    /// The input file.
    input: PathBuf,
    /// Change a setting of the input, such as controller.boot=5m; repeatable.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Write a report with charts to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the trace to this file, as CSV, as it was used.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    sites: &'a [String],
    steps: usize,
    step_s: f64,
    rate_peak: f64,
    rate_mean_total: f64,
    results: Vec<Line<'a>>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    saving: f64,
}

pub(crate) fn run(arguments: &CapacityArguments) -> anyhow::Result<ExitCode> {
    let capacity = load(arguments)?;
    if let Some(file) = &arguments.trace {
        let written = std::fs::File::create(file)
            .and_then(|sink| capacity.demand.write(&capacity.names, sink));
        written.with_context(|| format!("cannot write {}", file.display()))?;
    }
    let outcomes = simulated(&capacity)
        .map_err(|error| anyhow::anyhow!("{}: {error}", arguments.input.display()))?;
    if let Some(file) = &arguments.html {
        output::page("report", file, &page::page(&capacity, &outcomes))?;
    }
    if arguments.json {
        output::json(&document(&capacity, &outcomes))?;
    } else {
        output::text!("{}", table(&capacity, &outcomes))?;
        output::line!("\n{}", summary(&outcomes))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn load(arguments: &CapacityArguments) -> Result<Capacity, Problems> {
    let node = Node::load_with(&arguments.input, &arguments.set)?;
    let folder = arguments.input.parent().unwrap_or(std::path::Path::new(""));
    Capacity::read(&node, folder)
}

/// Every strategy with every billing unit, on all cores.
fn simulated(capacity: &Capacity) -> Result<Vec<Outcome>, InputError> {
    let strategies = || Strategy::ALL.into_iter();
    let units = capacity.billing.iter();
    let jobs: Vec<(Strategy, Duration)> =
        units.flat_map(|&unit| strategies().map(move |strategy| (strategy, unit))).collect();
    let progress = Progress::new("simulating", jobs.len());
    progress.show(0);
    let work = |(strategy, unit): &(Strategy, Duration)| capacity.simulate(*strategy, *unit);
    let outcomes = run_all(&jobs, work, |done| progress.show(done));
    progress.clear();
    outcomes.into_iter().collect()
}

/// The outcome of `strategy` with the billing unit of `other`.
fn beside<'a>(outcomes: &'a [Outcome], other: &Outcome, strategy: Strategy) -> &'a Outcome {
    let is_it = |outcome: &&Outcome| {
        outcome.strategy == strategy.name() && outcome.billing_s == other.billing_s
    };
    outcomes.iter().find(is_it).expect("every strategy was simulated with every unit")
}

fn saving(outcomes: &[Outcome], outcome: &Outcome) -> f64 {
    outcome.saving(beside(outcomes, outcome, Strategy::Local))
}

fn document<'a>(capacity: &'a Capacity, outcomes: &'a [Outcome]) -> Document<'a> {
    let line = |outcome| Line { outcome, saving: saving(outcomes, outcome) };
    Document {
        sites: &capacity.names,
        steps: capacity.demand.steps(),
        step_s: capacity.demand.step.as_secs_f64(),
        rate_peak: capacity.demand.peak(),
        rate_mean_total: capacity.demand.mean_total(),
        results: outcomes.iter().map(line).collect(),
    }
}

fn unit(outcome: &Outcome) -> String {
    format_duration(Duration::from_secs_f64(outcome.billing_s))
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn table(capacity: &Capacity, outcomes: &[Outcome]) -> Table {
    let mut table = Table::of(
        "strategy | billing | cost/day | saving | server-hours | orders | for servers | for WAN | \
         redirected | late | within target",
    );
    let requests = capacity.demand.mean_total() * capacity.demand.duration().as_secs_f64();
    for outcome in outcomes {
        let redirected = outcome.wan_requests / requests.max(1.0);
        table.row([
            outcome.strategy.to_owned(),
            unit(outcome),
            format!("{:.3}", outcome.cost_per_day),
            percent(saving(outcomes, outcome)),
            count(outcome.server_hours),
            outcome.orders.to_string(),
            format!("{:.2}", outcome.server_cost),
            format!("{:.2}", outcome.wan_cost),
            percent(redirected),
            percent(outcome.violations),
            percent(outcome.steps_within_target),
        ]);
    }
    table
}

/// A sentence for each billing unit.
fn summary(outcomes: &[Outcome]) -> String {
    let locals = outcomes.iter().filter(|outcome| outcome.strategy == Strategy::Local.name());
    let sentence = |local: &Outcome| {
        let of = |strategy| percent(saving(outcomes, beside(outcomes, local, strategy)));
        format!(
            "billed by {}: redirecting saves {} of what each site alone costs; one pool without \
             any way would save {}",
            unit(local),
            of(Strategy::Redirect),
            of(Strategy::Shared),
        )
    };
    locals.map(sentence).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../../../plans/capacity.toml");

    fn example(set: &[&str]) -> Capacity {
        let mut node = Node::parse(EXAMPLE, "capacity.toml").unwrap();
        set.iter().for_each(|assignment| node.set(assignment).unwrap());
        Capacity::read(&node, std::path::Path::new("")).unwrap()
    }

    #[test]
    fn the_shipped_example_is_simulated_and_told() {
        let capacity = example(&["trace.generate_length=1h"]);
        let outcomes = simulated(&capacity).unwrap();
        assert_eq!(outcomes.len(), 10);
        let json = serde_json::to_value(document(&capacity, &outcomes)).unwrap();
        assert_eq!(json["results"][1]["strategy"], "local");
        assert_eq!(json["results"][1]["saving"], 0.0);
        assert_eq!((&json["steps"], &json["step_s"]), (&60.into(), &60.0.into()));
        let text = table(&capacity, &outcomes).to_string();
        assert_eq!(text.lines().count(), 11, "{text}");
        assert!(text.contains("redirect-violations"), "{text}");
        assert!(summary(&outcomes).starts_with("billed by 1m: redirecting saves "));
        let page = page::page(&capacity, &outcomes);
        assert!(!page.contains("http") && !page.contains("<script") && !page.contains("NaN"));
    }

    #[test]
    fn what_is_wrong_with_an_input_is_said_with_its_place() {
        let error = |text: &str| {
            let node = Node::parse(text, "c.toml").unwrap();
            Capacity::read(&node, std::path::Path::new("")).unwrap_err().to_string()
        };
        let text = EXAMPLE.replace("\"24.5ms\", \"0ms\"],", "\"24.5ms\"],");
        assert!(error(&text).contains("expected 3 rows of 3 durations"), "{}", error(&text));
        let text = EXAMPLE.replace("match-days", "match-dais");
        assert!(error(&text).contains("did you mean \"match-days\""), "{}", error(&text));
        let text = EXAMPLE.replace("quantum = \"100/s\"", "quantum = \"1/s\"");
        assert!(error(&text).contains("at most 20000 of"), "{}", error(&text));
        let text = EXAMPLE.replace("generate = \"match-days\"", "file = \"none.csv\"");
        assert!(error(&text).contains("no readable file"), "{}", error(&text));
    }
}
