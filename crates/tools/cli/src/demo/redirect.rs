//! The demo between data centres: three sites on this machine, each with replicas, a proxy and a
//! mesh of its own, and the distance between them by relays.
//!
//! First one site is profiled as `evenkeel profile` does; then every policy has its turn under the
//! same load; at the end one site is cut off while requests come.

mod outcome;
mod sites;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_geo::epoch::SiteId;
use evenkeel_load::{Arrivals, Load, Outcome, Stop, Target};
use evenkeel_sim::Scenario;
use evenkeel_sim::redirect::Mode;
use evenkeel_sim::scenario::{Geography, Spelling};

use super::DemoArguments;
use super::ground::Folder;
use crate::load::stop_on_interrupt;
use crate::output;
use crate::terminal::Canvas;
use outcome::{Cut, Document, Run, Watch, closing_words};
use sites::Sites;

/// How often sites are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the last act takes: some epochs before the cut, and after it.
const CUT_EPOCHS: u32 = 6;

/// What every run has in common.
struct Stage<'a> {
    scenario: &'a Scenario,
    geography: &'a Geography,
    seed: u64,
    folder: &'a Folder,
    stop: Stop,
}

pub(super) fn run(arguments: &DemoArguments, scenario: &Scenario) -> anyhow::Result<ExitCode> {
    let geography = scenario.geography.as_ref().context("a demo of sites has [[sites]]")?;
    check(scenario, geography)?;
    eprintln!("{}", scenario.description);
    let folder = Folder::make()?;
    let stop = Stop::new();
    stop_on_interrupt(&stop)?;
    let stage = Stage { scenario, geography, seed: arguments.seed, folder: &folder, stop };
    let mut runs: Vec<Run> = Vec::new();
    if !sites::profile(scenario, geography, arguments.seed, &folder, &stage.stop)? {
        return Ok(ExitCode::from(130));
    }
    for policy in &scenario.run.policies {
        let run = stage.play(policy);
        runs.push(run.with_context(|| format!("the demo of {policy} could not run"))?);
        if stage.stop.is_stopped() {
            break;
        }
    }
    let shared = scenario.run.policies.iter().find(|policy| mode(policy) != Ok(Mode::Local));
    let cut = match shared.filter(|_| !stage.stop.is_stopped()) {
        Some(policy) => Some(stage.cut_off(policy).context("the last act could not run")?),
        None => None,
    };
    let document = Document { runs: &runs, cut: cut.as_ref(), scenario };
    if arguments.json {
        output::json(&document)?;
    } else {
        output::text!("{}", closing_words(&document))?;
    }
    if stage.stop.is_stopped() {
        return Ok(ExitCode::from(130));
    }
    Ok(if document.all_agreed() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// How a policy shares load.
fn mode(policy: &str) -> Result<Mode, NotOnSockets> {
    match Spelling::of(policy).sharing {
        None | Some(Mode::Local) => Ok(Mode::Local),
        Some(mode @ (Mode::Kurma | Mode::KurmaCost | Mode::Planned)) => Ok(mode),
        Some(mode @ (Mode::PlannedCost | Mode::Relayed)) => Ok(mode),
        Some(mode) => Err(NotOnSockets { policy: policy.to_owned(), mode }),
    }
}

/// A policy that shares load in a way that only the simulator has.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "run.policies: {policy:?}: real sites share load by a plan or not at all; +{} runs in \
     `evenkeel sim`",
    .mode.name()
)]
struct NotOnSockets {
    policy: String,
    mode: Mode,
}

/// What cannot be done with real sites must not be left out in silence.
fn check(scenario: &Scenario, geography: &Geography) -> anyhow::Result<()> {
    scenario.run.policies.iter().try_for_each(|policy| mode(policy).map(drop))?;
    anyhow::ensure!(
        geography.rates.is_none(),
        "series: the demo's load stays as it is; what varies runs in `evenkeel sim`"
    );
    let is_varying = |way: &evenkeel_sim::scenario::WanWay| way.rtt[0] != way.rtt[1];
    anyhow::ensure!(
        !geography.wan.ways.iter().any(is_varying),
        "wan.ways: the demo's ways stay as long as they are: write the same round trip twice"
    );
    let first = &geography.sites[0];
    anyhow::ensure!(
        geography.sites.iter().all(|site| site.servers == first.servers && site.clients == 1),
        "sites: the demo profiles one for all: write as many servers for each, and one client"
    );
    Ok(())
}

impl Stage<'_> {
    /// One policy's turn.
    fn play(&self, policy: &str) -> anyhow::Result<Run> {
        let simulated = evenkeel_sim::run(self.scenario, policy, self.seed);
        let sites = self.open(policy)?;
        let length = self.scenario.workload.duration.context("workload.duration is there")?;
        let warm_up = length.mul_f64(self.scenario.run.warmup);
        let mut watch = Watch::new(&sites, self.geography, policy);
        let mut canvas = Canvas::new();
        let began = Instant::now();
        let outcomes = self.load_all(&sites, length, warm_up, |_| {
            watch.look(began.elapsed(), began.elapsed() >= warm_up);
            canvas.draw(&watch.lines());
        })?;
        canvas.clear();
        let run = watch.end(self.scenario, &outcomes, simulated);
        sites.close()?;
        Ok(run)
    }

    /// The last site is cut off in the middle of a run.
    fn cut_off(&self, policy: &str) -> anyhow::Result<Cut> {
        let sites = self.open(policy)?;
        let period = self.geography.redirect.period;
        let cut_after = period * CUT_EPOCHS;
        let victim = SiteId::new(self.geography.sites.len() - 1);
        let mut watch = Watch::new(&sites, self.geography, policy);
        let mut cut = Cut::new(&self.geography.sites[victim.index()].name, period);
        let began = Instant::now();
        let outcomes = self.load_all(&sites, 2 * cut_after, Duration::ZERO, |_| {
            let elapsed = began.elapsed();
            if elapsed >= cut_after && cut.begin(elapsed) {
                sites.cut(victim);
            }
            watch.look(elapsed, true);
            cut.look(elapsed, &watch, victim);
        })?;
        cut.end(&outcomes);
        sites.close()?;
        Ok(cut)
    }

    fn open(&self, policy: &str) -> anyhow::Result<Sites> {
        let mode = mode(policy)?;
        Sites::open(self.scenario, self.geography, policy, mode, self.seed, self.folder)
    }

    /// Loads every site at once, by its users' rate; `look` is called again and again meanwhile.
    fn load_all(
        &self,
        sites: &Sites,
        length: Duration,
        warm_up: Duration,
        mut look: impl FnMut(&Sites),
    ) -> anyhow::Result<Vec<Outcome>> {
        let shares: f64 = self.geography.sites.iter().map(|site| site.share).sum();
        let mut loads = Vec::new();
        for (number, site) in self.geography.sites.iter().enumerate() {
            let url = format!("http://{}/item/{{n}}", sites.entrance(number));
            let rate = self.scenario.rate() * site.share / shares;
            let mut load = Load::new(Target::new([url.as_str()])?, Arrivals::poisson(rate)?);
            load.plan.policy.clone_from(&site.name);
            load.plan.seed = self.seed * 1_000 + number as u64;
            load.plan.duration = Some(length);
            load.plan.warm_up = warm_up;
            load.plan.timeout = Duration::from_secs(5);
            loads.push(load);
        }
        std::thread::scope(|scope| {
            let running: Vec<_> = loads
                .into_iter()
                .map(|load| {
                    let stop = self.stop.clone();
                    scope.spawn(move || load.run(&stop, |_| {}))
                })
                .collect();
            while running.iter().any(|load| !load.is_finished()) {
                look(sites);
                std::thread::sleep(LOOK_EVERY);
            }
            let joined = running.into_iter().map(|load| {
                let ended = load.join().map_err(|_| anyhow::anyhow!("a load panicked"))?;
                ended.map_err(anyhow::Error::from)
            });
            joined.collect()
        })
    }
}
