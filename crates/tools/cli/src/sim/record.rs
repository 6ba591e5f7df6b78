//! `evenkeel sim --record`: a simulated run as a recorded day. And the way back: the world of a
//! recorded day as a scenario.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use evenkeel_records::{DayWriter, Manifest};
use evenkeel_replay::day::Ready;
use evenkeel_replay::world::{Change, scenario};
use evenkeel_settings::Node;
use evenkeel_sim::Scenario;
use evenkeel_sim::world::{RecordConfig, record, windows};

use super::SimArguments;
use crate::output;

/// Share of the day in windows that explore.
const EXPLORED_SHARE: f64 = 0.05;

/// Runs the first policy and writes what was recorded of it.
pub(super) fn record_day(
    scenario: &Scenario,
    arguments: &SimArguments,
    directory: &Path,
) -> anyhow::Result<ExitCode> {
    if scenario.geography.is_some() || !scenario.tiers.is_empty() {
        bail!("--record: got a scenario with sites or tiers, expected one site and one tier");
    }
    if !(0.0..=0.5).contains(&arguments.pairs) {
        bail!("--pairs: got {}, expected a share from 0 to 0.5", arguments.pairs);
    }
    let [policy] = &scenario.run.policies[..] else {
        let policies = scenario.run.policies.join(", ");
        bail!(
            "--record: got the policies {policies}, expected one: a day has one policy (add --set \
             run.policies=[{}])",
            scenario.run.policies.first().map_or("c3", String::as_str)
        );
    };
    let seed = *arguments.seeds.start();
    let mut policies = vec![policy.clone()];
    policies.extend(arguments.explore.clone());
    let length_s = scenario.workload.requests as f64 / scenario.rate();
    let explored = windows(length_s, EXPLORED_SHARE, seed);
    let config = RecordConfig {
        explore: arguments.explore.clone().map(|policy| (policy, explored)),
        pairs: arguments.pairs,
        ..RecordConfig::default()
    };
    let text = fs::read_to_string(&arguments.scenario)
        .with_context(|| format!("cannot read {}", arguments.scenario.display()))?;
    let manifest = Manifest {
        pairs: arguments.pairs,
        group_size: scenario.cluster.replication_factor,
        like: text,
        set: arguments.set.clone(),
        ..Manifest::new("evenkeel sim", policies, scenario.cluster.servers)
    };
    if let Some(explored) = &arguments.explore {
        // An unknown policy is told as one of the scenario's would be.
        let mut node = Node::load_with(&arguments.scenario, &arguments.set)?;
        node.set(&format!("run.policies=[{explored:?}]"))?;
        Scenario::read(&node)?;
    }
    let day = record(scenario, policy, seed, config);
    let totals = DayWriter::write(directory, &manifest, &day)?;
    output::line!(
        "{} copies of {} requests in {}, {:.1} bytes each",
        totals.rows,
        scenario.workload.requests,
        directory.display(),
        totals.bytes as f64 / totals.rows.max(1) as f64
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The world of a recorded day as a scenario; what is set is set at what is known of the proxy.
pub(super) fn recorded(directory: &Path, sets: &[String]) -> anyhow::Result<Scenario> {
    let ready = Ready::read(directory)?.with(sets)?;
    let policy = ready.manifest.policies.first().map_or("c3", String::as_str);
    Ok(scenario(&ready.twin, &ready.like, &Change::policy(policy), 0, false))
}
