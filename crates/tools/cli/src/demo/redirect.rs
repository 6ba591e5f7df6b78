//! The demo between data centres: three sites on this machine, each with replicas, a proxy and a
//! mesh of its own, and the distance between them by relays.
//!
//! First one site is profiled as `evenkeel profile` does; then every policy has its turn under the
//! same load; at the end one site is cut off while requests come.

mod day;
mod dimmed;
mod outcome;
mod sites;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_geo::epoch::SiteId;
use evenkeel_load::{
    Arrivals, Load, Outcome, Progress, Spacing, Stop, Target, Trace, TraceOptions,
};
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

/// Users of a site who wait at once, at most; the others wait for a connection.
const CONNECTIONS_MAX: usize = 4_000;

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
    if scenario.work.is_some() {
        return day::run(arguments, scenario, geography);
    }
    eprintln!("{}", scenario.description);
    let folder = Folder::make()?;
    let stop = Stop::new();
    stop_on_interrupt(&stop)?;
    let stage = Stage { scenario, geography, seed: arguments.seed, folder: &folder, stop };
    let mut runs: Vec<Run> = Vec::new();
    if !sites::profile(scenario, geography, arguments.seed, &folder.0, &stage.stop)? {
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
        Some(mode @ (Mode::PlannedCost | Mode::Relayed | Mode::Joint)) => Ok(mode),
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
        geography.rates.is_none() || scenario.work.is_some(),
        "series: the load of a demo without replicas that dim stays as it is; what varies runs in \
         `evenkeel sim`"
    );
    let is_priced = |policy: &&String| mode(policy) == Ok(Mode::Joint);
    anyhow::ensure!(
        scenario.work.is_some() || !scenario.run.policies.iter().any(|policy| is_priced(&policy)),
        "run.policies: a plan by price is for replicas that dim: write replicas and work"
    );
    anyhow::ensure!(
        scenario.faults.is_empty() || scenario.work.is_some(),
        "faults: they befall replicas that dim: write replicas and work, or use `evenkeel sim`"
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
        let outcomes = self.load_all(
            &[&sites],
            length,
            warm_up,
            |_, _| {},
            || {
                watch.look(began.elapsed(), began.elapsed() >= warm_up);
                canvas.draw(&watch.lines());
            },
        )?;
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
        let outcomes = self.load_all(
            &[&sites],
            2 * cut_after,
            Duration::ZERO,
            |_, _| {},
            || {
                let elapsed = began.elapsed();
                if elapsed >= cut_after && cut.begin(elapsed) {
                    sites.cut(victim);
                }
                watch.look(elapsed, true);
                cut.look(elapsed, &watch, victim);
            },
        )?;
        cut.end(&outcomes);
        sites.close()?;
        Ok(cut)
    }

    fn open(&self, policy: &str) -> anyhow::Result<Sites> {
        let mode = mode(policy)?;
        Sites::open(self.scenario, self.geography, policy, mode, self.seed, &self.folder.0)
    }

    /// Loads every site of these at once, by its users' rate; `look` is called again and again
    /// meanwhile, and `told` by each load, with its number, of how it goes.
    fn load_all(
        &self,
        all: &[&Sites],
        length: Duration,
        warm_up: Duration,
        told: impl Fn(usize, &Progress) + Sync,
        mut look: impl FnMut(),
    ) -> anyhow::Result<Vec<Outcome>> {
        let numbers = 0..self.geography.sites.len();
        let each = all.iter().flat_map(|sites| numbers.clone().map(move |number| (sites, number)));
        let load = |(sites, number): (&&Sites, usize)| -> anyhow::Result<Load> {
            let mut load = self.load(sites, number)?;
            load.plan.duration = Some(length);
            load.plan.warm_up = warm_up;
            Ok(load)
        };
        let loads = each.map(load).collect::<anyhow::Result<Vec<_>>>()?;
        std::thread::scope(|scope| {
            let running: Vec<_> = loads
                .into_iter()
                .enumerate()
                .map(|(number, load)| {
                    let (stop, told) = (self.stop.clone(), &told);
                    scope.spawn(move || load.run(&stop, |progress| told(number, progress)))
                })
                .collect();
            while running.iter().any(|load| !load.is_finished()) {
                look();
                std::thread::sleep(LOOK_EVERY);
            }
            let joined = running.into_iter().map(|load| {
                let ended = load.join().map_err(|_| anyhow::anyhow!("a load panicked"))?;
                ended.map_err(anyhow::Error::from)
            });
            joined.collect()
        })
    }

    /// The users of a site.
    fn load(&self, sites: &Sites, number: usize) -> anyhow::Result<Load> {
        let site = &self.geography.sites[number];
        let arrivals = match &self.geography.rates {
            None => {
                let shares: f64 = self.geography.sites.iter().map(|site| site.share).sum();
                Arrivals::poisson(self.scenario.rate() * site.share / shares)?
            }
            Some(series) => {
                let options = TraceOptions { step: Some(series.step), ..TraceOptions::default() };
                let rates: Vec<_> = series.rates[number].iter().map(f64::to_string).collect();
                let text = format!("rate\n{}\n", rates.join("\n"));
                let trace = Trace::read(&site.name, text.as_bytes(), &options)?;
                Arrivals::trace(trace, Spacing::Poisson)
            }
        };
        let url = format!("http://{}/item/{{n}}", sites.entrance(number));
        let mut load = Load::new(Target::new([url.as_str()])?, arrivals);
        load.plan.policy.clone_from(&site.name);
        load.plan.seed = self.seed * 1_000 + number as u64;
        load.plan.timeout = match self.scenario.workload.timeout {
            Duration::ZERO => Duration::from_secs(5),
            timeout => timeout,
        };
        load.connections_max = CONNECTIONS_MAX;
        Ok(load)
    }
}
