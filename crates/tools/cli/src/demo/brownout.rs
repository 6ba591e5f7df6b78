//! The demo on shops: some are killed and started again, without brownout and with it.
//!
//! Without it the proxy asks the shops themselves for full pages. With it an agent stands before
//! each, lets in as many requests as the shop has threads, and decides what each is served.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_core::dimmer::Law;
use evenkeel_http_proxy::agent_state::AgentStates;
use evenkeel_http_proxy::config::{AgentConfig, DimmerConfig, Inbound, Switch};
use evenkeel_load::{Arrivals, Latencies, Load, Stop, Target};
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_sim::fault::{Fault, Target as Struck, What};
use evenkeel_sim::guard::Kind;
use evenkeel_sim::scenario::{Dimmer, Replica, Spelling};
use evenkeel_sim::weather::RequestDraws;
use evenkeel_sim::{RunReport, Scenario};
use serde::Serialize;

use super::course::{Course, Second, Totals, timeline, worst};
use super::ground::{Folder, free_addresses};
use super::shop::Program;
use super::shops::{Shops, ShopsConfig, items_for, threads};
use super::{DemoArguments, SERVER_LIMITS, UPSTREAM_LIMITS, agent_entry, proxy_config};
use crate::load::stop_on_interrupt;
use crate::output;
use crate::terminal::{Canvas, Table, ms, ms_if_known, percent, sparkline};

/// Share of requests that must be served with brownout.
const SERVED_MIN: f64 = 0.99;

/// What was measured of one policy, and what the simulator had foretold.
#[derive(Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    measured: evenkeel_load::Report,
    served_ratio: f64,
    optional_ratio: f64,
    /// Quantiles of the served alone, as the simulator has them.
    served_p50_ms: Option<f64>,
    served_p95_ms: Option<f64>,
    served_p99_ms: Option<f64>,
    /// The law of the agents; `null` without brownout.
    law: Option<&'static str>,
    /// By agent, the work of a full page as it was measured there.
    full_work_ms: Vec<Option<f64>>,
    series: Vec<Second>,
    simulated: RunReport,
}

#[derive(Serialize)]
struct Document<'a> {
    runs: &'a [Run],
    scenario: &'a Scenario,
}

/// What every run has in common.
struct Stage<'a> {
    scenario: &'a Scenario,
    replicas: &'a [Replica],
    dimmer: &'a Dimmer,
    seed: u64,
    shops: ShopsConfig,
    agents: Vec<SocketAddr>,
    proxy: SocketAddr,
    admin: SocketAddr,
    stop: Stop,
}

pub(super) fn run(arguments: &DemoArguments, scenario: &Scenario) -> anyhow::Result<ExitCode> {
    check(scenario)?;
    eprintln!("{}", scenario.description);
    let folder = Folder::make()?;
    let stage = Stage::set(scenario, arguments.seed, &folder)?;
    eprintln!("Open http://{}/item/17 and watch the recommendations go.", stage.proxy);
    eprintln!("Dashboard: http://{}/", stage.admin);
    let mut runs: Vec<Run> = Vec::new();
    let is_cut_short = |runs: &[Run]| runs.last().is_some_and(|run| run.measured.cancelled);
    for policy in &scenario.run.policies {
        let run = stage.play(policy);
        runs.push(run.with_context(|| format!("the demo of {policy} could not run"))?);
        if is_cut_short(&runs) {
            break;
        }
    }
    if arguments.json {
        let document = Document { runs: &runs, scenario };
        output::json(&document)?;
    } else {
        output::text!("{}", closing_words(scenario, &runs))?;
    }
    Ok(if is_cut_short(&runs) { ExitCode::from(130) } else { verdict(&runs) })
}

/// What cannot be done to shops must not be left out in silence.
fn check(scenario: &Scenario) -> anyhow::Result<()> {
    for (number, replica) in scenario.replicas.iter().enumerate() {
        anyhow::ensure!(
            threads(replica) == replica.cores,
            "replicas: {} workers on {} cores in replica {number}; a shop has a core for each \
             thread: write as many workers as cores",
            threads(replica),
            replica.cores
        );
    }
    for Fault { at, every, target, what } in &scenario.faults {
        let is_possible = matches!(what, What::Crash | What::Restore)
            && matches!(target, Struck::Server(_))
            && every.is_zero();
        anyhow::ensure!(
            is_possible,
            "faults: at {at:?}: {} of {target:?}; shops crash and are restored, by their number, \
             once each time it is written",
            what.name()
        );
    }
    let phases = &scenario.workload.phases;
    anyhow::ensure!(phases.is_empty(), "workload.phases: with shops the load stays as it is");
    scenario.run.policies.iter().try_for_each(|policy| law(scenario, policy).map(drop))
}

/// The law by which agents dim under this policy; `None` without agents.
pub(super) fn law(scenario: &Scenario, policy: &str) -> anyhow::Result<Option<Law>> {
    let Some(dimmer) = &scenario.dimmer else { return Ok(None) };
    match Spelling::of(policy).guard.unwrap_or_else(|| dimmer.guard()) {
        Kind::Full => Ok(None),
        Kind::Brownout(law) => Ok(Some(law)),
        Kind::Gradient | Kind::Admission | Kind::Shed => anyhow::bail!(
            "run.policies: {policy:?}: before real servers stands a dimmer or nothing; what else \
             there is runs in `evenkeel sim`"
        ),
    }
}

impl<'a> Stage<'a> {
    fn set(scenario: &'a Scenario, seed: u64, folder: &Folder) -> anyhow::Result<Self> {
        let stop = Stop::new();
        stop_on_interrupt(&stop)?;
        let replicas = &scenario.replicas;
        let mut addresses = free_addresses(2 * replicas.len() + 2)?.into_iter();
        let (proxy, admin) = (addresses.next(), addresses.next());
        let database = folder.0.join("shop.db");
        let items = items_for(scenario.workload.requests)?;
        let draws = RequestDraws::new(scenario, seed);
        let costs = (0..scenario.workload.requests).map_while(|it| draws.core_times(it)).collect();
        let shops = ShopsConfig {
            program: Program::find()?,
            database,
            addresses: addresses.by_ref().take(replicas.len()).collect(),
            replicas: replicas.clone(),
            costs,
        };
        eprintln!("Making a catalogue of {items} items …");
        shops.program.generate(&shops.database, items)?;
        Ok(Self {
            scenario,
            replicas,
            dimmer: scenario.dimmer.as_ref().context("a scenario with work has a dimmer")?,
            seed,
            shops,
            agents: addresses.collect(),
            proxy: proxy.context("as many addresses as were asked for")?,
            admin: admin.context("as many addresses as were asked for")?,
            stop,
        })
    }

    fn play(&self, policy: &str) -> anyhow::Result<Run> {
        let law = law(self.scenario, policy)?;
        let simulated = evenkeel_sim::run(self.scenario, policy, self.seed);
        let shops = Shops::start(self.shops.clone())?;
        let process = Process::start(self.config(policy, law)?)?;
        let states = Arc::clone(process.upstreams());
        let agents = Arc::clone(process.agent_states());
        let state = || (shops.alive(), dimmers(&agents, law, self.replicas.len()));
        let mut course = Course::default();
        let mut view = View { canvas: Canvas::new(), stage: self, policy };
        let plan = shops.follow(&self.scenario.faults)?;
        let outcome = self.load(policy)?.run(&self.stop, |progress| {
            course.note(Totals::of(progress, states.stats(0).seen.full), state);
            view.show(course.seconds());
        })?;
        view.canvas.clear();
        plan.end()?;
        let series = course.end(Totals::at_the_end(&outcome.report), state());
        let full_work_ms = full_works_ms(&agents, law, self.replicas.len());
        drop(shops);
        process.stop()?;
        let (measured, latency) = (outcome.report, outcome.latency);
        let share = |count: u64| count as f64 / measured.requests.max(1) as f64;
        Ok(Run {
            served_ratio: share(measured.served),
            optional_ratio: share(measured.optional),
            served_p50_ms: served_quantile_ms(&latency, measured.served, 0.5),
            served_p95_ms: served_quantile_ms(&latency, measured.served, 0.95),
            served_p99_ms: served_quantile_ms(&latency, measured.served, 0.99),
            law: law.map(name_of),
            full_work_ms,
            series,
            simulated,
            measured,
        })
    }

    /// The proxy, and the agents if there are any.
    fn config(&self, policy: &str, law: Option<Law>) -> anyhow::Result<Config> {
        let behind = if law.is_some() { &self.agents } else { &self.shops.addresses };
        let mut config = proxy_config(self.scenario, policy, behind)?;
        config.listens[0].address = self.proxy.into();
        if let Some(admin) = &mut config.admin {
            admin.address = self.admin.into();
        }
        if let Some(law) = law {
            let places = self.agents.iter().zip(&self.shops.addresses).zip(self.replicas);
            let agent = |((address, app), replica): ((&SocketAddr, &SocketAddr), &Replica)| {
                self.agent(*address, *app, threads(replica), law)
            };
            config.agents = places.map(agent).map(agent_entry).collect();
        }
        Ok(config)
    }

    fn agent(&self, address: SocketAddr, app: SocketAddr, threads: u32, law: Law) -> AgentConfig {
        let dimmer = DimmerConfig {
            brownout: self.dimmer.brownout(law, threads),
            parts: Vec::new(),
            session: None,
            inbound: Inbound::Decide,
            routes: vec!["/item".to_owned()],
            switch: Switch::Auto,
        };
        AgentConfig {
            address,
            app: app.into(),
            concurrency: Some(threads),
            queue_max: 10_000,
            queue_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(60),
            dimmer: Some(dimmer),
            udp_probes: true,
            limits: SERVER_LIMITS,
            upstream_limits: UPSTREAM_LIMITS,
            tls: None,
            app_tls: None,
        }
    }

    fn load(&self, policy: &str) -> anyhow::Result<Load> {
        let workload = &self.scenario.workload;
        let target = Target::new([format!("http://{}/item/{{n}}1", self.proxy).as_str()])?;
        let mut load = Load::new(target, Arrivals::poisson(self.scenario.rate())?);
        policy.clone_into(&mut load.plan.policy);
        load.plan.seed = self.seed;
        load.plan.requests_max = Some(workload.requests); // the simulator's, no more and no fewer
        if !workload.timeout.is_zero() {
            load.plan.timeout = workload.timeout;
        }
        Ok(load)
    }
}

pub(super) fn name_of(law: Law) -> &'static str {
    let named = Kind::NAMES.iter().find(|(_, kind)| *kind == Kind::Brownout(law));
    named.map_or("a law without a name", |(name, _)| name)
}

fn dimmers(agents: &AgentStates, law: Option<Law>, replicas: usize) -> Vec<Option<f64>> {
    let dimmer = |agent| agents.state(agent).brownout.map(|it| it.state.dimmer.value());
    (0..replicas).map(|agent| law.and_then(|_| dimmer(agent))).collect()
}

fn full_works_ms(agents: &AgentStates, law: Option<Law>, replicas: usize) -> Vec<Option<f64>> {
    let state = |agent| agents.state(agent).brownout.map(|it| it.state);
    let work = |agent| state(agent)?.full_work.map(|work| work.as_secs_f64() * 1e3);
    (0..replicas).map(|agent| law.and_then(|_| work(agent))).collect()
}

/// A quantile of the served alone: timeouts are the longest latencies of all.
fn served_quantile_ms(latency: &Latencies, served: u64, share: f64) -> Option<f64> {
    (served > 0).then(|| latency.quantile_ms(share * served as f64 / latency.count() as f64))?
}

/// The live view.
struct View<'a> {
    canvas: Canvas,
    stage: &'a Stage<'a>,
    policy: &'a str,
}

impl View<'_> {
    fn show(&mut self, seconds: &[Second]) {
        const BAR: usize = 20;
        let (true, Some(last)) = (self.canvas.is_seen(), seconds.last()) else { return };
        let end = self.stage.scenario.workload.duration;
        let end = end.map_or_else(String::new, |end| format!(" of {:.0}", end.as_secs_f64()));
        let mut lines = vec![
            format!("\x1b[1m{}\x1b[0m  {:.0}{end} s", self.policy, last.until_s),
            format!(
                "  served {:>3.0}/s   in full {:>3.0} %   timeouts {:>3.0}/s",
                last.rate(last.served),
                last.full_share() * 100.0,
                last.rate(last.timeouts)
            ),
        ];
        lines.extend(timeline(seconds, worst(seconds).max(1.0)));
        for (replica, (lives, dimmer)) in last.alive.iter().zip(&last.dimmers).enumerate() {
            let life = if *lives { "alive" } else { "\x1b[31mdead\x1b[0m " };
            let dimmer = dimmer.filter(|_| *lives).map_or_else(String::new, |dimmer| {
                let bar = "█".repeat((dimmer * BAR as f64).round() as usize);
                format!("  dimmer {dimmer:.2} {bar}")
            });
            lines.push(format!("  replica {replica}  {life}{dimmer}"));
        }
        let (proxy, admin) = (self.stage.proxy, self.stage.admin);
        lines.push(format!("  \x1b[2mhttp://{proxy}/item/17   dashboard: http://{admin}/\x1b[0m"));
        self.canvas.draw(&lines);
    }
}

fn closing_words(scenario: &Scenario, runs: &[Run]) -> String {
    let mut table = Table::of(
        "policy | served | in full | timeouts/s | p50 ms | p95 | simulated served | in full | \
         timeouts/s | p50 ms | p95",
    );
    for run in runs {
        let mut cells = vec![run.measured.policy.clone()];
        cells.extend([run.served_ratio, run.optional_ratio].map(percent));
        cells.push(format!("{:.0}", worst(&run.series)));
        let quantiles = [run.served_p50_ms, run.served_p95_ms];
        cells.extend(quantiles.map(ms_if_known));
        let simulated = &run.simulated;
        cells.extend([simulated.served_ratio, simulated.optional_ratio].map(percent));
        cells.push(format!("{:.0}", simulated_worst(scenario, simulated)));
        cells.extend([simulated.p50_ms, simulated.p95_ms].map(ms));
        table.row(cells);
    }
    let mut text = format!(
        "\n{} shops, {:.0} requests/s, the same arrivals for every policy. Shares are of all \
         requests, timeouts\nthose of the worst second, latencies those of the served. The last \
         five columns are the\nsimulator's results for the same scenario.\n\n{table}\n",
        scenario.replicas.len(),
        scenario.rate(),
    );
    let highest = runs.iter().map(|run| worst(&run.series)).fold(1.0, f64::max);
    for run in runs {
        text += &format!("{}\n", run.measured.policy);
        text += &timeline(&run.series, highest).join("\n");
        text += &simulated_row(scenario, &run.simulated, highest);
    }
    let doubt = runs.iter().find_map(|run| run.measured.doubt());
    text += &doubt.map_or_else(String::new, |doubt| format!("Note: {doubt}\n"));
    text + &conclusion(runs)
}

fn simulated_rates(scenario: &Scenario, run: &RunReport) -> Vec<f64> {
    let seconds = scenario.run.window.as_secs_f64();
    run.windows.iter().map(|window| window.timeouts as f64 / seconds).collect()
}

fn simulated_worst(scenario: &Scenario, run: &RunReport) -> f64 {
    simulated_rates(scenario, run).into_iter().fold(0.0, f64::max)
}

/// The simulator's timeouts, where its windows are seconds.
fn simulated_row(scenario: &Scenario, run: &RunReport, highest: f64) -> String {
    if scenario.run.window != Duration::from_secs(1) {
        return "\n\n".to_owned();
    }
    let rates = simulated_rates(scenario, run);
    format!("\n            {}  timeouts as simulated\n\n", sparkline(rates, highest))
}

/// What the numbers say, in a sentence.
fn conclusion(runs: &[Run]) -> String {
    let with = runs.iter().find(|run| run.law.is_some());
    let without = runs.iter().find(|run| run.law.is_none());
    let with = with.map(|run| {
        let (served, full) = (percent(run.served_ratio), percent(run.optional_ratio));
        format!("with brownout {served} of the requests were served and {full} in full")
    });
    let without = without.map(|run| {
        let (served, last) = (percent(run.served_ratio), percent(served_at_last(&run.series)));
        format!("without it {served} were served, and {last} in the last five seconds")
    });
    let said: Vec<String> = [with, without].into_iter().flatten().collect();
    if said.is_empty() { String::new() } else { format!("Result: {}.\n", said.join("; ")) }
}

/// Share that was served of what ended in the last five seconds of arrivals.
fn served_at_last(seconds: &[Second]) -> f64 {
    let arriving: Vec<&Second> = seconds.iter().filter(|second| second.requests > 0).collect();
    let last = &arriving[arriving.len().saturating_sub(5)..];
    let served: u64 = last.iter().map(|second| second.served).sum();
    let ended: u64 =
        last.iter().map(|second| second.served + second.failed + second.timeouts).sum();
    served as f64 / ended.max(1) as f64
}

fn verdict(runs: &[Run]) -> ExitCode {
    // A load generator that was late itself says nothing of who else was.
    let broken = |run: &&Run| {
        run.law.is_some() && run.served_ratio < SERVED_MIN && run.measured.doubt().is_none()
    };
    let Some(run) = runs.iter().find(broken) else { return ExitCode::SUCCESS };
    eprintln!(
        "evenkeel: {} served {} of the requests with brownout, expected {} or more (is the \
         machine busy with something else?)",
        run.measured.policy,
        percent(run.served_ratio),
        percent(SERVED_MIN)
    );
    ExitCode::from(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_served_leave_timeouts_out() {
        let mut latency = Latencies::default();
        (1..=100).for_each(|ms| latency.record(Duration::from_millis(ms)));
        (0..300).for_each(|_| latency.record(Duration::from_secs(4)));
        let p95_ms = served_quantile_ms(&latency, 100, 0.95).unwrap();
        assert!((p95_ms - 95.0).abs() < 0.2, "{p95_ms}");
        assert_eq!(served_quantile_ms(&Latencies::default(), 0, 0.95), None);
    }

    #[test]
    fn the_last_five_seconds_are_those_with_arrivals() {
        let second =
            |requests, served, timeouts| Second { requests, served, timeouts, ..Second::default() };
        let mut seconds = vec![second(10, 10, 0); 20];
        seconds.extend(vec![second(10, 2, 8); 5]);
        seconds.extend(vec![second(0, 0, 10); 4]);
        assert!((served_at_last(&seconds) - 0.2).abs() < 1e-12);
        assert_eq!(served_at_last(&[]), 0.0);
    }
}
