//! A day of a fleet of databases: every strategy of placement on the same databases.

use std::process::ExitCode;

use anyhow::bail;
use evenkeel_sim::RunReport;
use evenkeel_sim::placement::day::PlacementReport;
use evenkeel_sim::placement::input::DayScenario;
use serde::Serialize;
use serde_json::json;

use super::{Pass, SimArguments, compare};
use crate::output;
use crate::terminal::{Table, ms};

/// What one strategy came to at one seed.
#[derive(Serialize)]
struct Row {
    policy: String,
    seed: u64,
    #[serde(flatten)]
    placement: PlacementReport,
}

pub(super) fn run(scenario: &DayScenario, arguments: &SimArguments) -> anyhow::Result<ExitCode> {
    if arguments.html.is_some() {
        bail!("--html: there is no page for a day of databases; evenkeel paper leader has charts");
    }
    let rows = simulate(scenario, arguments);
    if arguments.twice {
        let pass = |rows: &[Row]| -> anyhow::Result<Pass> {
            let what = format!("{} runs", rows.len());
            Ok(Pass { what, bytes: serde_json::to_string_pretty(rows)? })
        };
        return compare(&pass(&rows)?, &pass(&simulate(scenario, arguments))?);
    }
    if arguments.json {
        let document = json!({ "runs": rows, "scenario": resolved(scenario) });
        output::json(&document)?;
    } else {
        output::text!("{}", table(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn simulate(scenario: &DayScenario, arguments: &SimArguments) -> Vec<Row> {
    super::simulate(&scenario.strategies, &arguments.seeds, |policy, seed| {
        let report = RunReport::of_day(&scenario.day, policy, seed);
        let placement = report.placement.unwrap_or_default();
        Row { policy: policy.to_owned(), seed, placement }
    })
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::of(
        "strategy | seed | latency ms | over the oracle | saved | most | halved | saved < 1 % | \
         moves/day | over 13 replicas",
    );
    let share = |ratio: f64| format!("{:.1} %", 100.0 * ratio);
    for Row { policy, seed, placement: of } in rows {
        let mut cells = vec![policy.clone(), seed.to_string(), ms(of.latency_ms)];
        // Tier 3 is scored for the whole day: there is no oracle of an interval.
        let is_whole = of.over_thirteen_ratio.is_some();
        cells.push(if is_whole { String::new() } else { share(of.overhead_ratio) });
        let shares =
            [of.reduction_ratio, of.reduction_max_ratio, of.halved_share, of.hundredth_share];
        cells.extend(shares.map(share));
        cells.push(if is_whole { String::new() } else { format!("{:.1}", of.moves_per_day) });
        cells.push(of.over_thirteen_ratio.map_or_else(String::new, share));
        table.row(cells);
    }
    table
}

/// Every parameter, as it was understood.
fn resolved(scenario: &DayScenario) -> serde_json::Value {
    let (day, fleet) = (&scenario.day, &scenario.day.fleet);
    let continents = fleet.continents.iter().map(|continent| continent.name());
    json!({
        "description": scenario.description,
        "fleet": {
            "databases": fleet.databases,
            "intervals": fleet.intervals,
            "mixes": fleet.mixes,
            "continents": continents.collect::<Vec<_>>(),
            "replicas": fleet.replicas,
            "voters": fleet.voters,
            "spikes_per_day": fleet.spikes_per_day,
            "preferred_share": fleet.preferred_share,
            "voters_anywhere": fleet.voters_anywhere,
            "spread": fleet.spread,
            "sigma": fleet.sigma,
        },
        "placement": { "tau": day.tau, "route": day.route.name() },
        "run": { "policies": scenario.strategies },
    })
}
