//! Sites whose replicas leave content out: applications with full and lean requests, which die and
//! come back, an agent with a dimmer before each, and what a site is told of plans by price.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::Context as _;
use evenkeel_core::Rng;
use evenkeel_settings::format_duration;
use evenkeel_sim::Scenario;
use evenkeel_sim::scenario::{Geography, Prices, Spelling, Work};
use evenkeel_sim::workload::CoreTime;
use evenkeel_testkit::embedded::{Draw, Draws, Embedded, EmbeddedConfig};

use super::super::brownout::{law, name_of};
use super::super::{embedded_config, mishaps};

/// What health checks ask for, which costs nothing.
const HEALTH: &str = "/healthz";

/// The applications of a site, to which happens what the scenario says.
pub(super) fn applications(
    scenario: &Scenario,
    geography: &Geography,
    work: &Work,
    site: usize,
    seed: u64,
) -> anyhow::Result<Embedded> {
    let servers = geography.sites[site].servers;
    let first: usize = geography.sites[..site].iter().map(|site| site.servers).sum();
    let here = mishaps(scenario, seed).filter_map(|mishap| {
        let replica = mishap.replica.checked_sub(first).filter(|number| *number < servers)?;
        Some(evenkeel_testkit::fault::Mishap { replica, ..mishap })
    });
    let config = embedded_config(scenario, servers, draws(work, seed));
    Ok(Embedded::start(EmbeddedConfig { agents: false, mishaps: here.collect(), ..config })?)
}

/// What a request costs: by its path and the replica, so that all sides of a story meet the same.
fn draws(work: &Work, seed: u64) -> Draws {
    let (times, mean_s) = (CoreTime::new(work), work.optional.as_secs_f64());
    Draws::by(move |path, replica| {
        if path == HEALTH {
            return Draw { work: 0.0, lean: Some(0.0), luck: 1.0 };
        }
        let seed = Rng::stream(seed, path).bits();
        let of = |is_full| times.nanos(seed, replica as u32, is_full) * 1e-9 / mean_s;
        Draw { work: of(true), lean: Some(of(false)), luck: 1.0 }
    })
}

/// What the upstream's table has more: retries, hedges, room for requests that wait.
pub(super) fn upstream(scenario: &Scenario, spelling: &Spelling<'_>) -> String {
    let retries = scenario.run.retries_max;
    let mut text =
        format!("retries_max = {retries}\n[upstream.app.pool]\nconnections_max = 10000\n");
    if let Some(hedge) = spelling.hedge(&scenario.run.hedge) {
        text += &format!("[upstream.app.hedge]\nbudget = {}\n", hedge.budget_share);
    }
    if !scenario.run.health_checks.is_zero() {
        // Who is slow is not down: only who refuses is.
        let every = format_duration(scenario.run.health_checks);
        text += &format!(
            "[upstream.app.health]\npath = \"{HEALTH}\"\ninterval = \"{every}\"\ntimeout = \
             \"30s\"\nfall = 1\nrise = 1\n"
        );
    }
    text
}

/// An agent with a dimmer before each application; nothing where nobody dims.
pub(super) fn agents(
    scenario: &Scenario,
    policy: &str,
    (agents, apps): (&[SocketAddr], &[SocketAddr]),
) -> anyhow::Result<String> {
    let mut text = String::new();
    let Some(law) = law(scenario, policy)? else { return Ok(text) };
    let dimmer = scenario.dimmer.as_ref().context("who dims has a dimmer")?;
    for (agent, app) in agents.iter().zip(apps) {
        write!(
            text,
            "\n[[agent]]\nlisten = \"{agent}\"\napp = \"{app}\"\nconcurrency = {}\nqueue_max = \
             10000\n[agent.dimmer]\nlaw = \"{}\"\nsetpoint = \"{}\"\npercentile = {}\n",
            scenario.cluster.concurrency,
            name_of(law),
            format_duration(dimmer.setpoint),
            dimmer.percentile,
        )?;
    }
    Ok(text)
}

/// What a plan by price goes by, in the table `[redirect]` and behind it.
pub(super) fn prices(prices: Option<&Prices>) -> String {
    let table = |it: &Prices| {
        let Prices { optional, wan, node } = it;
        format!("[redirect.prices]\noptional = {optional}\nwan = {wan}\nnode = {node}\n")
    };
    format!("aim = \"price\"\n{}", prices.map(table).unwrap_or_default())
}

/// What requests are at a site whose curves nobody measured.
pub(super) fn work(work: &Work) -> String {
    format!(
        "work = \"{}\"\nlean_work = \"{}\"\n",
        format_duration(work.optional),
        format_duration(work.mandatory)
    )
}
