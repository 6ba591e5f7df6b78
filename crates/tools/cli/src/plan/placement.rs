//! `evenkeel plan placement`: where leader, voters and replicas should be.

mod asked;
mod fleet;
mod fleet_document;
mod fleet_page;
mod page;
mod percentile;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use evenkeel_placement::act::statements::System;
use evenkeel_planner::model::Route;
use evenkeel_planner::replicas::{Method, Question};
use evenkeel_settings::placement::{Fleet, Input};
use serde::Serialize;

use asked::{Line, Plan};
use percentile::Percentile;

use crate::flag::FlagError;
use crate::output;

/// Compute the best sites for leader, voters and replicas of a database.
///
/// INPUT is an instance in JSON, a TOML file that names tables of round trips and operations, a
/// folder with rtt.csv, counts.csv and optionally domains.csv, or a folder of such TOML files, one
/// for each database, and optionally capacity.csv. Tier 1 selects the leader among today's voters,
/// tier 2 leader and voters among today's replicas, tier 3 everything. Formats:
/// docs/plan-placement.md.
///
/// Examples:
///   evenkeel plan placement plans/placement-follow-the-sun.toml --worth 9
///   evenkeel plan placement plans/placement-follow-the-sun.toml --tier 2 --percentile 99
///   evenkeel plan placement plans/placement-fleet --tier 1
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct PlacementArguments {
    /// The input file or folder.
    input: PathBuf,
    /// What may change: 1 the leader, 2 also the voters, 3 also the replicas.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    tier: u8,
    /// The search of tier 3: with proof, by swaps, or with the paper's heuristics (best is the
    /// better of kq and qk).
    #[arg(long, default_value = "exact", value_parser = method)]
    method: Method,
    /// The replica for reads: the nearest, or for bounded reads the one on the shortest path to the
    /// leader.
    #[arg(long, default_value = "nearest", value_parser = route)]
    route: Route,
    /// Number of replicas, instead of the one in INPUT.
    #[arg(long)]
    replicas: Option<usize>,
    /// Number of voters, instead of the one in INPUT.
    #[arg(long)]
    voters: Option<usize>,
    /// CSV with columns site and domain, instead of the domains in INPUT.
    #[arg(long, value_name = "FILE")]
    failure_domains: Option<PathBuf>,
    /// Minimum number of domains with voters. Default: as today.
    #[arg(long, value_name = "N")]
    voter_domains: Option<usize>,
    /// Rank by this percentile of all operations, such as 99 or 99.9, instead of the mean; tier 3
    /// optimises the mean and reports the percentile of its results.
    #[arg(long, value_name = "P", value_parser = Percentile::parse)]
    percentile: Option<Percentile>,
    /// Also plan for every number of replicas up to this: the value of one more.
    #[arg(long, value_name = "N")]
    worth: Option<usize>,
    /// Maximum nodes of the exact search.
    #[arg(long, default_value_t = Question::NODES_MAX)]
    nodes: u64,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Print the statements for the best result instead: cockroachdb, yugabytedb or tidb. Sites
    /// have the names of their regions, for yugabytedb cloud.region.zone.
    #[arg(long, value_name = "SYSTEM", conflicts_with = "json", value_parser = System::parse)]
    statements: Option<System>,
    /// The database of --statements; yugabytedb places all.
    #[arg(long, value_name = "NAME", requires = "statements")]
    database: Option<String>,
    /// With --statements tidb: an existing table; repeatable.
    #[arg(long = "table", value_name = "NAME", requires = "statements")]
    tables: Vec<String>,
    /// With --statements yugabytedb: its masters, host:port,host:port,...
    #[arg(long, value_name = "LIST", requires = "statements")]
    masters: Option<String>,
    /// Write a page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn method(name: &str) -> Result<Method, FlagError> {
    let found = Method::named(name);
    let known = Method::ALL.map(Method::name).join(", ");
    found.ok_or_else(|| FlagError::came(name, format!("one of {known}")))
}

fn route(name: &str) -> Result<Route, FlagError> {
    Route::named(name).ok_or_else(|| FlagError::came(name, "nearest or bestpath"))
}

#[derive(Serialize)]
struct Document<'a> {
    title: &'a str,
    tier: u8,
    route: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    percentile: Option<percentile::PercentileReport>,
    sites: &'a [String],
    operations: f64,
    today: Option<&'a Line>,
    results: &'a [Line],
    worth: &'a [Line],
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
        output::page("page", file, &page::page(&plan, today.as_ref(), &results, &worth))?;
    }
    if let Some(system) = arguments.statements {
        output::text!("{}", plan.statements(system, &results)?)?;
    } else if arguments.json {
        let document = Document {
            title: &plan.title,
            tier: arguments.tier,
            route: arguments.route.name(),
            percentile: plan.percentile_report(),
            sites: &plan.input.sites,
            operations: plan.past().operations(),
            today: today.as_ref(),
            results: &results,
            worth: &worth,
        };
        output::json(&document)?;
    } else {
        output::text!("{}", text::describe(&plan, today.as_ref(), &results, &worth))?;
    }
    Ok(ExitCode::SUCCESS)
}
