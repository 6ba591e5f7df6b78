//! `evenkeel plan placement`: where leader, voters and replicas should be.

mod asked;
mod fleet;
mod fleet_page;
mod page;
mod percentile;
mod told;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use evenkeel_core::placement::model::Route;
use evenkeel_core::placement::replicas::{Method, Question};
use evenkeel_net::placement::act::statements::System;
use evenkeel_settings::placement::{Fleet, Input};
use serde::Serialize;

use asked::{Line, Plan};
use percentile::Percentile;

use crate::output;

/// Say where leader, voters and replicas should be.
///
/// INPUT is an instance in JSON, a TOML file that names tables of round trips and operations beside
/// it, a folder with rtt.csv, counts.csv and perhaps domains.csv, or a folder of such TOML files,
/// one for each database, and perhaps capacity.csv. Tier 1 chooses the leader among the voters of
/// today, tier 2 leader and voters among the replicas of today, tier 3 everything. Formats:
/// docs/plan-placement.md.
///
/// Examples:
///   evenkeel plan placement plans/placement-follow-the-sun.toml --worth 9
///   evenkeel plan placement plans/placement-follow-the-sun.toml --tier 2 --percentile 99
///   evenkeel plan placement plans/placement-fleet --tier 1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct PlacementArguments {
    /// The file or folder.
    input: PathBuf,
    /// What may change: 1 the leader, 2 the voters too, 3 the replicas too.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    tier: u8,
    /// How tier 3 searches: with proof, by swaps, or by the paper's heuristics (best is the better
    /// of kq and qk).
    #[arg(long, default_value = "exact", value_parser = method)]
    method: Method,
    /// Which replica reads go to: the nearest, or for bounded reads the one with the shortest way
    /// over it to the leader.
    #[arg(long, default_value = "nearest", value_parser = route)]
    route: Route,
    /// How many replicas, instead of what INPUT says.
    #[arg(long)]
    replicas: Option<usize>,
    /// How many voters, instead of what INPUT says.
    #[arg(long)]
    voters: Option<usize>,
    /// CSV with columns site and domain, instead of what INPUT says.
    #[arg(long, value_name = "FILE")]
    failure_domains: Option<PathBuf>,
    /// Voters are in at least so many domains; without it, in as many as today's.
    #[arg(long, value_name = "N")]
    voter_domains: Option<usize>,
    /// Rank by this percentile of all operations, such as 99 or 99.9, instead of by their mean;
    /// tier 3 places by the mean and says the percentile of its answers.
    #[arg(long, value_name = "P", value_parser = Percentile::parse)]
    percentile: Option<Percentile>,
    /// Also place every number of replicas up to this: what is a further one worth?
    #[arg(long, value_name = "N")]
    worth: Option<usize>,
    /// Nodes that the exact search examines at most.
    #[arg(long, default_value_t = Question::NODES_MAX)]
    nodes: u64,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Print instead what an administrator types for the first result: cockroachdb, yugabytedb or
    /// tidb. Sites are named by their region, for yugabytedb as cloud.region.zone.
    #[arg(long, value_name = "SYSTEM", conflicts_with = "json", value_parser = System::parse)]
    statements: Option<System>,
    /// The database that --statements place; yugabytedb places all.
    #[arg(long, value_name = "NAME", requires = "statements")]
    database: Option<String>,
    /// With --statements tidb: a table that is there already; again for each.
    #[arg(long = "table", value_name = "NAME", requires = "statements")]
    tables: Vec<String>,
    /// With --statements yugabytedb: its masters, host:port,host:port,...
    #[arg(long, value_name = "LIST", requires = "statements")]
    masters: Option<String>,
    /// Write a page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn method(name: &str) -> Result<Method, String> {
    let found = Method::ALL.into_iter().find(|method| method.name() == name);
    let known = Method::ALL.map(Method::name).join(", ");
    found.ok_or_else(|| format!("came {name}, expected one of {known}"))
}

fn route(name: &str) -> Result<Route, String> {
    match name {
        "nearest" => Ok(Route::Nearest),
        "bestpath" => Ok(Route::BestPath),
        _ => Err(format!("came {name}, expected nearest or bestpath")),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    title: &'a str,
    tier: u8,
    route: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<percentile::Told>,
    sites: &'a [String],
    operations: f64,
    today: Option<&'a Line>,
    results: &'a [Line],
    worth: &'a [Line],
}

const fn route_name(route: Route) -> &'static str {
    match route {
        Route::Nearest => "nearest",
        Route::BestPath => "bestpath",
    }
}

pub(crate) fn run(arguments: &PlacementArguments) -> anyhow::Result<ExitCode> {
    if Fleet::is_in(&arguments.input) {
        return fleet::run(arguments);
    }
    let plan = Plan::new(arguments, Input::load(&arguments.input)?, &arguments.input)?;
    let results = match arguments.tier {
        3 => plan.tier3()?,
        tier => plan.ranked(tier)?,
    };
    let worth = plan.worth()?;
    let today = plan.today();
    if let Some(file) = &arguments.html {
        write_page(file, &page::page(&plan, today.as_ref(), &results, &worth))?;
    }
    if let Some(system) = arguments.statements {
        output::text!("{}", plan.statements(system, &results)?)?;
    } else if arguments.json {
        let document = Document {
            title: &plan.title,
            tier: arguments.tier,
            route: route_name(arguments.route),
            percentile: plan.percentile_told(),
            sites: &plan.input.sites,
            operations: plan.past().operations(),
            today: today.as_ref(),
            results: &results,
            worth: &worth,
        };
        output::line!("{}", serde_json::to_string_pretty(&document)?)?;
    } else {
        output::text!("{}", told::told(&plan, today.as_ref(), &results, &worth))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write_page(file: &std::path::Path, page: &str) -> anyhow::Result<()> {
    std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("page written to {}", file.display());
    Ok(())
}
