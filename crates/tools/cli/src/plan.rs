//! `evenkeel plan`: decisions of the slower loops, for numbers in a file.

mod capacity;
mod duplicates;
mod forecast;
mod instance;
mod page;
mod placement;
mod priced;
mod redirect;
mod snapshot;
mod violations;

use std::process::ExitCode;

/// Compute a plan from the numbers in a file.
///
/// Example: evenkeel plan redirect instance.json --objective cost
#[derive(Debug, clap::Args)]
pub(crate) struct PlanArguments {
    #[command(subcommand)]
    question: PlanQuestion,
}

#[derive(Debug, clap::Subcommand)]
enum PlanQuestion {
    Redirect(redirect::RedirectArguments),
    Placement(placement::PlacementArguments),
    Capacity(capacity::CapacityArguments),
    Duplicates(duplicates::DuplicatesArguments),
    Forecast(forecast::ForecastArguments),
}

pub(crate) fn run(arguments: &PlanArguments) -> anyhow::Result<ExitCode> {
    match &arguments.question {
        PlanQuestion::Redirect(arguments) => redirect::run(arguments),
        PlanQuestion::Placement(arguments) => placement::run(arguments),
        PlanQuestion::Capacity(arguments) => capacity::run(arguments),
        PlanQuestion::Duplicates(arguments) => duplicates::run(arguments),
        PlanQuestion::Forecast(arguments) => forecast::run(arguments),
    }
}
