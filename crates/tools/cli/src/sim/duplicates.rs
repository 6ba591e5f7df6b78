//! Partitions of duplicated stores: every policy on the same accesses, beside what models expect.

use std::process::ExitCode;

use evenkeel_sim::RunReport;
use evenkeel_sim::duplicates::{DuplicatesReport, DuplicatesScenario};
use serde_json::json;

use super::{Pass, SimArguments, compare};
use crate::output;
use crate::sim_report;
use crate::terminal::{Table, ms};

pub(super) fn run(
    scenario: &DuplicatesScenario,
    arguments: &SimArguments,
) -> anyhow::Result<ExitCode> {
    let runs = simulate(scenario, arguments);
    if arguments.twice {
        let pass = |runs: &[RunReport]| -> anyhow::Result<Pass> {
            let events = runs.iter().map(|run| run.events).sum::<u64>();
            let what = format!("{} runs, {events} events", runs.len());
            Ok(Pass { what, bytes: serde_json::to_string_pretty(runs)? })
        };
        return compare(&pass(&runs)?, &pass(&simulate(scenario, arguments))?);
    }
    if let Some(file) = &arguments.html {
        let parameters = serde_json::to_string_pretty(&resolved(scenario))?;
        let page = sim_report::page_of(&scenario.description, &parameters, &runs);
        output::page("report", file, &page)?;
    }
    if arguments.json {
        let document = json!({ "runs": runs, "scenario": resolved(scenario) });
        output::json(&document)?;
    } else {
        output::text!("{}", table(&runs))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn simulate(scenario: &DuplicatesScenario, arguments: &SimArguments) -> Vec<RunReport> {
    super::simulate(&scenario.policies, &arguments.seeds, |policy, seed| {
        RunReport::of_duplicates(&scenario.deployment, policy, seed)
    })
}

fn table(runs: &[RunReport]) -> Table {
    let mut table = Table::of(
        "policy | seed | servers | busy | too late | nines | paper's model | lindley | p50 ms | \
         p99 | p99.9 | cost/h",
    );
    for run in runs {
        let Some(of) = &run.duplicates else { continue };
        table.row(cells(run, of));
    }
    table
}

fn cells(run: &RunReport, of: &DuplicatesReport) -> Vec<String> {
    let lindley = of.predicted.lindley.map_or_else(|| "–".to_owned(), late);
    let mut cells = vec![
        run.policy.clone(),
        run.seed.to_string(),
        of.servers.to_string(),
        format!("{:.0} %", 100.0 * of.utilisation),
        late(of.violation_ratio),
        format!("{:.2}", of.nines),
        late(of.predicted.paper),
        lindley,
    ];
    cells.extend([run.p50_ms, run.p99_ms, run.p999_ms].map(ms));
    cells.push(format!("{:.3}", of.cost_per_hour));
    cells
}

/// A share of violations: percent with two digits, however many nines there are.
fn late(share: f64) -> String {
    match share {
        0.0 => "0 %".to_owned(),
        small if small < 1e-4 => format!("{:.1e} %", 100.0 * small),
        share => format!("{:.*} %", if share < 0.01 { 3 } else { 1 }, 100.0 * share),
    }
}

/// Every parameter, as it was understood.
fn resolved(scenario: &DuplicatesScenario) -> serde_json::Value {
    use evenkeel_core::distribution::Distribution;
    use evenkeel_core::time::millis;
    let it = &scenario.deployment;
    let law = |of: &evenkeel_sim::duplicates::law::Law| {
        json!({
            "law": of.shape().name(),
            "mean_ms": millis(of.mean()),
            "variation": of.variation(),
        })
    };
    let phase =
        |(at, of): &(f64, evenkeel_sim::duplicates::law::Law)| json!({ "at": at, "law": law(of) });
    let workload = &it.workload;
    json!({
        "description": scenario.description,
        "store": {
            "phases": it.phases.iter().map(phase).collect::<Vec<_>>(),
            "reads": it.reading.as_ref().map(law),
            "known": it.known.as_ref().map(law),
            "bound_ms": millis(it.bound),
        },
        "workload": {
            "arrivals": workload.arrivals.name(),
            "rate_per_s": workload.rate,
            "mean_rate_per_s": it.mean_rate(),
            "batch": workload.batch,
            "reads": workload.reads,
            "shards": workload.shards,
            "accesses": workload.accesses,
            "warmup": workload.warmup,
            "factors": workload.factors,
        },
        "copies": {
            "one_way_ms": millis(it.copies.one_way),
            "repeat_ms": millis(it.copies.repeat),
            "prune_ms": millis(it.copies.prune),
            "cancel": it.copies.cancel,
        },
        "pauses": it.pauses.map(|pauses| json!({
            "every_ms": millis(pauses.every),
            "least_ms": millis(pauses.least),
            "most_ms": millis(pauses.most),
            "power": pauses.power,
            "together": pauses.together,
        })),
        "common": {
            "share": it.common.share,
            "least_ms": millis(it.common.least),
            "most_ms": millis(it.common.most),
        },
        "cost": { "per_node": it.cost.per_node, "per_violation": it.cost.per_violation },
        "observe": {
            "window": it.window,
            "pairs": it.compared,
            "lindley": it.lindley_accesses,
        },
        "run": { "policies": scenario.policies },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_violations_keep_their_digits() {
        let reported = [0.0, 3.2e-7, 0.00123, 0.25].map(late);
        assert_eq!(reported, ["0 %", "3.2e-5 %", "0.123 %", "25.0 %"]);
    }
}
