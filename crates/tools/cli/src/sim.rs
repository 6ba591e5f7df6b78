//! `evenkeel sim`: a scenario in virtual time.

mod day;
mod duplicates;
mod record;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use evenkeel_settings::Node;
use evenkeel_sim::duplicates::DuplicatesScenario;
use evenkeel_sim::placement::input::DayScenario;
use evenkeel_sim::redirect::SiteReport;
use evenkeel_sim::report::TierReport;
use evenkeel_sim::{Priced, RunReport, Scenario};
use serde::Serialize;

use crate::flag::FlagError;
use crate::jobs::run_all;
use crate::output;
use crate::terminal::{Progress, Table, count, ms};

/// Simulate a scenario: every policy with the same requests, for each seed.
///
/// A recorded day (a directory, see `evenkeel replay`) is a scenario too: the world that was
/// rebuilt from it.
///
/// Example: evenkeel sim scenarios/c3-fluctuation.toml --set workload.clients=300 --seeds 1..10
#[derive(Debug, clap::Args)]
pub(crate) struct SimArguments {
    /// The scenario file, or the directory of a recorded day.
    scenario: PathBuf,
    /// Set a parameter of the scenario, as in `workload.utilisation=0.45`; repeatable.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// The random seed, or a range with both ends included.
    #[arg(long, default_value = "1", value_name = "N|FROM..TO", value_parser = seeds)]
    seeds: RangeInclusive<u64>,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Run everything twice and compare the results byte for byte; exit 1 if they differ.
    #[arg(long)]
    twice: bool,
    /// Write a report with charts to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Record the scenario's one policy at the first seed as a day in this directory, for `evenkeel
    /// replay`; not of a recorded day, and without --json, --html and --twice.
    #[arg(long, value_name = "DAY", conflicts_with_all = ["json", "html", "twice"])]
    record: Option<PathBuf>,
    /// The policy that windows of the recorded day explore: 5 % of it.
    #[arg(long, value_name = "POLICY", requires = "record")]
    explore: Option<String>,
    /// Share of the recorded requests that are sent to two replicas.
    #[arg(long, value_name = "SHARE", default_value_t = 0.005, requires = "record")]
    pairs: f64,
}

/// `7` or `1..10`.
pub(crate) fn seeds(text: &str) -> Result<RangeInclusive<u64>, FlagError> {
    let number = |text: &str| text.trim().parse::<u64>();
    let range = match text.split_once("..") {
        Some((from, to)) => number(from).and_then(|from| Ok(from..=number(to)?)),
        None => number(text).map(|one| one..=one),
    };
    match range {
        Ok(range) if !range.is_empty() && range.end() - range.start() < 10_000 => Ok(range),
        _ => Err(FlagError::Expected(
            "a number or a range like 1..10, of at most 10000 seeds".to_owned(),
        )),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    runs: &'a [RunReport],
    scenario: &'a Scenario,
}

pub(crate) fn run(arguments: &SimArguments) -> anyhow::Result<ExitCode> {
    if arguments.scenario.is_dir() {
        if arguments.record.is_some() {
            bail!(
                "--record: got the recorded day {}, expected a scenario file: what is rebuilt from \
                 a day is not recorded again",
                arguments.scenario.display()
            );
        }
        return simulated(&record::recorded(&arguments.scenario, &arguments.set)?, arguments);
    }
    let node = Node::load_with(&arguments.scenario, &arguments.set)?;
    if let Some(day) = &arguments.record {
        return record::record_day(&Scenario::read(&node)?, arguments, day);
    }
    if DayScenario::is_meant(&node) {
        return day::run(&DayScenario::read(&node)?, arguments);
    }
    if DuplicatesScenario::is_meant(&node) {
        return duplicates::run(&DuplicatesScenario::read(&node)?, arguments);
    }
    simulated(&Scenario::read(&node)?, arguments)
}

fn simulated(scenario: &Scenario, arguments: &SimArguments) -> anyhow::Result<ExitCode> {
    let mut runs = run_scenario(scenario, &arguments.seeds);
    if arguments.twice {
        let again = run_scenario(scenario, &arguments.seeds);
        return compare(&timeless(runs)?, &timeless(again)?);
    }
    if let Some(file) = &arguments.html {
        output::page("report", file, &crate::sim_report::page(scenario, &runs))?;
    }
    if arguments.json {
        output::json(&Document { runs: &runs, scenario })?;
    } else {
        runs.sort_by_key(|run| run.seed);
        output::text!("{}", table(scenario, &runs))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every policy at every seed, on all cores.
pub(crate) fn run_scenario(scenario: &Scenario, seeds: &RangeInclusive<u64>) -> Vec<RunReport> {
    simulate(&scenario.run.policies, seeds, |policy, seed| run_one(scenario, policy, seed))
}

fn simulate<T: Send>(
    policies: &[String],
    seeds: &RangeInclusive<u64>,
    run: impl Fn(&str, u64) -> T + Sync,
) -> Vec<T> {
    let jobs: Vec<(&String, u64)> =
        seeds.clone().flat_map(|seed| policies.iter().map(move |policy| (policy, seed))).collect();
    let progress = Progress::new("simulating", jobs.len());
    progress.show(0);
    let runs = run_all(&jobs, |(policy, seed)| run(policy, *seed), |done| progress.show(done));
    progress.clear();
    runs
}

fn run_one(scenario: &Scenario, policy: &str, seed: u64) -> RunReport {
    let start = cpu_time::ThreadTime::now();
    let mut report = evenkeel_sim::run(scenario, policy, seed);
    let cpu_s = start.elapsed().as_secs_f64();
    report.requests_per_cpu_s = Some(scenario.workload.requests as f64 / cpu_s);
    report
}

fn table(scenario: &Scenario, runs: &[RunReport]) -> Table {
    let has_content = scenario.work.is_some();
    let mut header = vec!["policy", "seed", "requests", "served"];
    if has_content {
        header.extend(["optional", "timeouts", "failed"]);
    }
    if scenario.geography.is_some() {
        header.extend(["late", "elsewhere"]);
    }
    let has_prices = runs.iter().any(|run| run.priced.is_some());
    if has_prices {
        header.extend(["lean", "cost"]);
    }
    header.extend(["mean ms", "p50", "p95", "p99", "p99.9", "max"]);
    // Of one part of each tier, for comparison with the whole request.
    let tiers = (1..=scenario.tiers.len()).flat_map(|tier| {
        ["p50", "p99", "p99.9"].map(|quantile| format!("{quantile} of tier {tier}"))
    });
    let tiers: Vec<String> = tiers.collect();
    header.extend(tiers.iter().map(String::as_str));
    header.push("req/cpu-s");
    let mut table = Table::new(&header);
    for run in runs {
        let mut cells = vec![run.policy.clone(), run.seed.to_string(), run.requests.to_string()];
        if has_content {
            let share = |ratio: f64| format!("{:.1} %", 100.0 * ratio);
            cells.extend([run.served_ratio, run.optional_ratio].map(share));
            cells.extend([run.timeouts, run.failed].map(|number| number.to_string()));
        } else {
            cells.push(run.served.to_string());
        }
        if let Some(redirect) = &run.redirect {
            let sum = |of: &dyn Fn(&SiteReport) -> u64| redirect.sites.iter().map(of).sum::<u64>();
            let (late, all) = (sum(&|site| site.violations), sum(&|site| site.requests));
            let late = late as f64 / all.max(1) as f64;
            cells
                .extend([late, redirect.redirected_ratio].map(|it| format!("{:.2} %", 100.0 * it)));
        }
        if let Some(Priced { lean, cost, .. }) = run.priced {
            cells.extend([format!("{:.2} %", 100.0 * lean), format!("{cost:.2}")]);
        }
        let quantiles = [run.mean_ms, run.p50_ms, run.p95_ms, run.p99_ms, run.p999_ms, run.max_ms];
        cells.extend(quantiles.map(ms));
        let of_tier = |tier: &TierReport| [tier.p50_ms, tier.p99_ms, tier.p999_ms].map(ms);
        cells.extend(run.tiers.iter().flat_map(of_tier));
        cells.push(run.requests_per_cpu_s.map_or_else(String::new, count));
        table.row(cells);
    }
    table
}

/// Runs as bytes, CPU time apart: it is the machine's, not the run's.
fn timeless(runs: Vec<RunReport>) -> anyhow::Result<Pass> {
    let (count, events) = (runs.len(), runs.iter().map(|run| run.events).sum::<u64>());
    let timeless = runs.into_iter().map(|run| RunReport { requests_per_cpu_s: None, ..run });
    let bytes = serde_json::to_string_pretty(&timeless.collect::<Vec<_>>())?;
    Ok(Pass { what: format!("{count} runs, {events} events"), bytes })
}

/// All results of one pass.
struct Pass {
    what: String,
    bytes: String,
}

/// Compares two passes byte for byte.
fn compare(first: &Pass, second: &Pass) -> anyhow::Result<ExitCode> {
    if first.bytes == second.bytes {
        output::line!("identical: {}, {} bytes of results", first.what, first.bytes.len())?;
        return Ok(ExitCode::SUCCESS);
    }
    let differing = first.bytes.lines().zip(second.bytes.lines()).find(|(a, b)| a != b);
    let (a, b) = differing.unwrap_or(("(nothing more)", "(nothing more)"));
    output::line!("different: first pass {}, second pass {}", a.trim(), b.trim())?;
    Ok(ExitCode::from(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_one_or_a_range_with_both_ends() {
        assert_eq!(seeds("7"), Ok(7..=7));
        assert_eq!(seeds("1..10"), Ok(1..=10));
        assert!(seeds("10..1").is_err() && seeds("x").is_err() && seeds("0..99999").is_err());
    }
}
