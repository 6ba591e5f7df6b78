//! `evenkeel sim`: a scenario in virtual time.

use std::path::PathBuf;
use std::process::ExitCode;

use evenkeel_settings::Node;
use evenkeel_sim::Scenario;

/// Run a scenario in virtual time.
#[derive(Debug, clap::Args)]
pub(crate) struct SimArguments {
    /// The scenario's file.
    scenario: PathBuf,
    /// Set a parameter: `--set workload.utilisation=0.45`.
    #[arg(long)]
    set: Vec<String>,
}

pub(crate) fn run(arguments: &SimArguments) -> anyhow::Result<ExitCode> {
    let mut node = Node::load(&arguments.scenario)?;
    for set in &arguments.set {
        node.set(set)?;
    }
    let scenario = Scenario::read(&node)?;
    for policy in &scenario.run.policies {
        let start = cpu_time::ThreadTime::now();
        let mut report = evenkeel_sim::run(&scenario, policy, 1);
        let cpu = start.elapsed().as_secs_f64();
        report.requests_per_cpu_s = Some(scenario.workload.requests as f64 / cpu);
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(ExitCode::SUCCESS)
}
