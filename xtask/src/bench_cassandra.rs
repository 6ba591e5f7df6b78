//! `cargo xtask bench cassandra`: drivers with their default policies beside the same drivers with
//! Evenkeel, on nodes of a real Cassandra that are paused, throttled, or compacting.
//!
//! Signals, all from the same turns: latency from the moment a request was due (open loop, so that
//! a stall counts for all who came meanwhile), answers per second, errors, and CPU time for each
//! request of the load's own process, of the proxy and of the nodes. The question is the tail, so
//! ratios are of percentiles: *within a round*, by their median and a distribution-free interval;
//! and, since the 99.9th percentile of one turn rests on a handful of requests, of all rounds
//! together with an interval from drawing rounds anew ([`crate::bench::statistics`]).
//!
//! All ways run against the same nodes, in turns in every round, in an order that rotates, with the
//! same requests and pauses of the same nodes at the same times. Cassandra's own dynamic snitch is
//! a setting of nodes: it is on, as it is by default, and helps all ways alike. So is the table's
//! speculative retry (`99p`). The proxy is a plain child with the configuration that
//! `docs/cassandra.md` tells users to write. Drivers send timestamps, java-driver unasked and
//! scylla with a generator set: what proves to a proxy that a write may be sent twice.
//!
//! It says nothing about nodes on machines of their own, larger data than memory, or saturation:
//! nodes, load and proxy share this machine, and how busy it was stands in the report.

mod copies;
pub(crate) mod generator;
mod report;
mod scenario;
mod ways;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::cassandra::Cluster;
use crate::bench::process::{Server, Workbench};
use crate::bench::{ROUNDS_MIN, file, number, order, some_of};
use crate::machine::Ticks;
use crate::{UsageError, workspace};
use copies::Copies;
use generator::{Driver, Generator};
use report::{Cell, Measurement, Report};
use scenario::{Disturbance, MIXES, Mix, Plan, SCENARIOS, Scenario};
use ways::{DEFAULT, WAYS, Way};

const USAGE: &str = "\
usage: cargo xtask bench cassandra [OPTIONS]

  --scenarios A,B,…  of lonely (one client: what the proxy adds), calm, paused, quota, compaction,
                     joining (writers from half time on), closed (throughput); default all
  --mixes A,B,…      of read-heavy (5 % updates), update-heavy (50 %), read-only; default all
                     (lonely and joining have their own)
  --ways A,B,…       of default (the reference), adaptive, adaptive-hedged, proxy, relay (HAProxy
                     passes bytes on), default-speculative, adaptive-speculative, java (a
                     reference), java-speculative, java-proxy; default all but relay and the
                     speculative ones. Bars are also held against a driver's speculative way
  --rounds N         rounds, each measuring every way once; at least 6, default 6
  --seconds N        length of one measurement, 2 to 300; default 15
  --warm-up N        seconds for which each way first asks as fast as it is answered, and then for
                     which it asks as it will be measured, 2 to 600; default 30: Java compiles
                     what has run often, and the tail is Java's meanwhile
  --rate N           requests per second in open loop, 10 to 100000; default 500
  --users N          clients in closed loop, 1 to 1000; default 16
  --records N        records, zipfian (0.99), 100 to 10000000; default 20000
  --bytes N          length of a record, 1 to 100000; default 1000
  --snitch on|off    the nodes' own dynamic snitch; default on, as is Cassandra's
  --quota N          in `quota`: the node's processor time, in per cent of what it uses when nothing
                     is wrong, 10 to 1000; default 120
  --binary PATH      the evenkeel to measure; default is to build target/dist/evenkeel
  --json             print one JSON document instead of the tables

example: cargo xtask bench cassandra --scenarios calm,paused --mixes read-heavy --rounds 12 \
         --ways default,default-speculative,proxy,java,java-speculative,java-proxy";

/// Of all nodes; they are seeds of each other and hold every record.
const NODES: usize = 3;
const DATA_CENTER: &str = "dc1";
/// Java's heap for each.
const HEAP_MIB: usize = 512;

/// How long nodes may work off what a turn left.
const SETTLE: Duration = Duration::from_millis(700);

/// Measures what `words` ask for and prints the result on standard output.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    if matches!(words, ["--help" | "-h"]) {
        println!("{USAGE}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let report = measure(&options)?;
    if options.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.tables());
    }
    Ok(())
}

/// What a user may choose.
#[derive(Clone, Debug)]
struct Options {
    scenarios: Vec<&'static Scenario>,
    mixes: Vec<&'static Mix>,
    ways: Vec<&'static Way>,
    rounds: usize,
    seconds: u64,
    warm_up: u64,
    rate: u32,
    users: u32,
    records: u32,
    bytes: u32,
    dynamic_snitch: bool,
    quota_percent: u32,
    binary: Option<PathBuf>,
    json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            scenarios: SCENARIOS.iter().collect(),
            mixes: MIXES.iter().collect(),
            ways: WAYS.iter().filter(|way| way.is_usual).collect(),
            rounds: ROUNDS_MIN,
            seconds: 15,
            warm_up: 30,
            rate: 500,
            users: 16,
            records: 20_000,
            bytes: 1_000,
            dynamic_snitch: true,
            quota_percent: 120,
            binary: None,
            json: false,
        }
    }
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, UsageError> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--json" {
                options.json = true;
                continue;
            }
            let value = words.next().copied().unwrap_or_default();
            match *word {
                "--scenarios" => {
                    options.scenarios = some_of(word, value, &SCENARIOS, |it| it.name)?;
                }
                "--mixes" => options.mixes = some_of(word, value, &MIXES, |it| it.name)?,
                "--ways" => options.ways = chosen_ways(value)?,
                "--rounds" => options.rounds = number(word, value, ROUNDS_MIN as u64, 1000)?,
                "--seconds" => options.seconds = number(word, value, 2, 300)?,
                "--warm-up" => options.warm_up = number(word, value, 2, 600)?,
                "--rate" => options.rate = number(word, value, 10, 100_000)?,
                "--users" => options.users = number(word, value, 1, 1000)?,
                "--records" => options.records = number(word, value, 100, 10_000_000)?,
                "--bytes" => options.bytes = number(word, value, 1, 100_000)?,
                "--quota" => options.quota_percent = number(word, value, 10, 1000)?,
                "--snitch" => options.dynamic_snitch = on_or_off(word, value)?,
                "--binary" => options.binary = Some(file(word, value)?),
                _ => return Err(UsageError::new(format!("unknown option `{word}`\n\n{USAGE}"))),
            }
        }
        Ok(options)
    }

    /// Each scenario with each of its mixes.
    fn cells(&self) -> Vec<(&'static Scenario, &'static Mix)> {
        let scenarios = self.scenarios.iter();
        let with_mixes = |scenario: &&'static Scenario| {
            let scenario = *scenario;
            scenario.mixes(&self.mixes).into_iter().map(move |mix| (scenario, mix))
        };
        scenarios.flat_map(with_mixes).collect()
    }

    /// Of a turn that is not counted.
    fn first_seconds(&self) -> u64 {
        (self.seconds / 2).clamp(2, 10)
    }

    fn minutes(&self) -> u64 {
        let rounds = self.rounds as u64 * (self.seconds + 1) + self.first_seconds() + 1;
        let seconds = 2 * self.warm_up + self.cells().len() as u64 * rounds;
        (seconds * self.ways.len() as u64).div_ceil(60)
    }
}

fn chosen_ways(value: &str) -> Result<Vec<&'static Way>, UsageError> {
    let ways = some_of("--ways", value, &WAYS, |way| way.name)?;
    for needed in ways.iter().map(|way| way.reference).chain([DEFAULT]) {
        if !ways.iter().any(|way| way.name == needed) {
            let message = format!("--ways: `{needed}` must be among them: ratios are to it");
            return Err(UsageError::new(message));
        }
    }
    Ok(ways)
}

fn on_or_off(option: &str, value: &str) -> Result<bool, UsageError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(UsageError::new(format!("{option}: got `{value}`, expected on or off"))),
    }
}

/// Everything that runs. What comes first ends first.
struct Stage<'a> {
    generators: Vec<Generator>,
    proxy: Option<Server>,
    relay: Option<Server>,
    cluster: Cluster,
    bench: &'a Workbench,
}

/// What processes have done so far.
struct Done {
    proxy_us: f64,
    nodes_us: f64,
    copies: Copies,
    machine: Ticks,
}

/// A turn that is to be taken.
struct Turn<'a> {
    way: &'static Way,
    words: &'a str,
    plan: &'a Plan,
    /// What the plan's node may use of a processor.
    quota: Option<f64>,
}

impl<'a> Stage<'a> {
    fn set_up(options: &Options, bench: &'a Workbench) -> Result<Self> {
        let is_proxied = options.ways.iter().any(|way| way.is_proxied);
        let binary = options.binary.clone().unwrap_or_else(workspace::dist_binary);
        if is_proxied && options.binary.is_none() {
            eprintln!("building evenkeel");
            workspace::build_dist()?;
        }
        // The first makes the records.
        let is_used = |driver: &Driver| options.ways.iter().any(|way| way.driver == *driver);
        let drivers: Vec<Driver> =
            [Driver::Scylla, Driver::Java].into_iter().filter(is_used).collect();
        for driver in &drivers {
            generator::build(*driver)?;
        }
        eprintln!("starting {NODES} nodes (compiling their rig first)");
        let words = format!(
            "nodes={NODES} dynamic_snitch={} optimized=true heap_mib={HEAP_MIB}",
            options.dynamic_snitch
        );
        let cluster = Cluster::start(&words, NODES)?;
        let start_proxy = || ways::start_proxy(bench, &cluster, &binary);
        let proxy = is_proxied.then(start_proxy).transpose()?;
        let is_relayed = options.ways.iter().any(|way| way.name == ways::RELAY);
        let relay = is_relayed.then(|| ways::start_relay(bench, &cluster)).transpose()?;
        eprintln!("connecting, and writing {} records", options.records);
        let mut stage = Self { generators: Vec::new(), proxy, relay, cluster, bench };
        for driver in drivers {
            let words = stage.connection_words(options, driver);
            stage.generators.push(Generator::start(driver, bench, &words)?);
        }
        Ok(stage)
    }

    /// Where a generator connects to, and what it asks for in all turns.
    fn connection_words(&self, options: &Options, driver: Driver) -> Vec<String> {
        let own = options.ways.iter().filter(|way| way.driver == driver);
        let ways: Vec<&str> = own.map(|way| way.word).collect();
        let mut words = vec![
            format!("node={}", self.cluster.addresses().join(",")),
            format!("ways={}", ways.join(",")),
            format!("keys={}", options.records),
            format!("bytes={}", options.bytes),
            "zipf=0.99".to_owned(),
            "speculative=99p".to_owned(),
        ];
        if let Some(proxy) = &self.proxy {
            words.push(format!("proxy=127.0.0.1:{}", proxy.port()));
        }
        if self.relay.is_some() {
            let ports = ways::relay_ports(self.bench).iter();
            let relays: Vec<String> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
            words.push(format!("relay={}", relays.join(",")));
        }
        words
    }

    fn done(&self, way: &Way) -> Result<Done> {
        let between = if way.name == ways::RELAY { &self.relay } else { &self.proxy };
        let proxy_ns = between.as_ref().map_or(Ok(0), Server::cpu_ns)?;
        let copies = match &self.proxy {
            Some(_) => Copies::of_proxy(self.bench)?,
            None => Copies::default(),
        };
        Ok(Done {
            proxy_us: proxy_ns as f64 / 1e3,
            nodes_us: self.cluster.cpu_s()? * 1e6,
            copies,
            machine: Ticks::now()?,
        })
    }

    fn take(&mut self, turn: &Turn<'_>) -> Result<Measurement> {
        let Turn { way, words, plan, quota } = turn;
        if let Some(share) = quota {
            self.cluster.tell(&format!("quota {} {share}", plan.node))?;
        }
        let before = self.done(way)?;
        let is_over = AtomicBool::new(false);
        let Self { generators, cluster, .. } = self;
        let generator = generators.iter_mut().find(|one| one.driver == way.driver);
        let generator = generator.expect("every driver of a way has its generator");
        let line = format!("way={} {words}", way.word);
        let (outcome, disturbed) = thread::scope(|scope| {
            let disturbing = scope.spawn(|| plan.carry_out(cluster, &is_over));
            let outcome = generator.take(&line);
            is_over.store(true, Relaxed);
            (outcome, disturbing.join().expect("it does not panic"))
        });
        disturbed?;
        let outcome = outcome?;
        let after = self.done(way)?;
        if quota.is_some() {
            self.cluster.tell(&format!("unlimited {}", plan.node))?;
        }
        for server in self.proxy.iter_mut().chain(&mut self.relay) {
            server.check_alive()?;
        }
        thread::sleep(SETTLE);
        let copies = match way.is_proxied {
            true => after.copies.since(before.copies),
            false => outcome.copies,
        };
        let processors = after.machine.since(before.machine);
        Ok(Measurement::new(
            outcome,
            report::Cost {
                proxy_us: after.proxy_us - before.proxy_us,
                nodes_us: after.nodes_us - before.nodes_us,
                copies,
                busy: processors.at_work,
                stolen: processors.stolen,
            },
        ))
    }
}

fn measure(options: &Options) -> Result<Report> {
    let bench = Workbench::create("cassandra", 2 + NODES)?;
    let mut stage = Stage::set_up(options, &bench)?;
    let mut report = Report::new(options.clone());
    eprintln!("about {} minutes; warming up", options.minutes());
    warm_up(&mut stage, options)?;
    for (scenario, mix) in options.cells() {
        let cell = measure_cell(&mut stage, options, scenario, mix);
        let cell = cell.with_context(|| format!("{}, {}", scenario.name, mix.name))?;
        eprint!("{}", report.table(&cell));
        report.add(cell);
    }
    Ok(report)
}

/// Lets Java compile the nodes' code, and that of its driver.
fn warm_up(stage: &mut Stage<'_>, options: &Options) -> Result<()> {
    let (users, seconds) = (options.users, options.warm_up);
    let hasty = format!("users={users} updates=0.5 seed=1 seconds={seconds}");
    let (scenario, mix) = options.cells()[0];
    let usual = scenario.turn(mix, options, 2, seconds);
    let plan = Plan::undisturbed(seconds);
    for words in [hasty, usual] {
        for way in &options.ways {
            stage.take(&Turn { way, words: &words, plan: &plan, quota: None })?;
        }
    }
    Ok(())
}

fn measure_cell(
    stage: &mut Stage<'_>,
    options: &Options,
    scenario: &'static Scenario,
    mix: &'static Mix,
) -> Result<Cell> {
    let mut cell = Cell::new(scenario, mix, &options.ways);
    let mut quota = None;
    if scenario.disturbance == Disturbance::Quota {
        let share = usual_share(stage, options, scenario, mix)?;
        let share = share * f64::from(options.quota_percent) / 100.0;
        cell.note = Some(format!("one node at a time has {share:.2} of a processor"));
        quota = Some(share);
    }
    for round in 0..=options.rounds {
        // The first is not counted.
        let seconds = if round == 0 { options.first_seconds() } else { options.seconds };
        eprintln!("{}, {}: round {round} of {}", scenario.name, mix.name, options.rounds);
        let seed = round as u64 + 100;
        let words = scenario.turn(mix, options, seed, seconds);
        let plan = Plan::new(scenario, round, seed, seconds);
        for index in order(round, options.ways.len()) {
            let way = options.ways[index];
            let measured = stage.take(&Turn { way, words: &words, plan: &plan, quota })?;
            if round > 0 {
                cell.add(index, measured);
            }
        }
    }
    Ok(cell)
}

/// What a node uses of a processor under this load when it has as much as it likes.
fn usual_share(
    stage: &mut Stage<'_>,
    options: &Options,
    scenario: &'static Scenario,
    mix: &'static Mix,
) -> Result<f64> {
    let seconds = options.first_seconds();
    let words = scenario.turn(mix, options, 99, seconds);
    let plan = Plan::new(scenario, 0, 99, seconds);
    let way = options.ways.iter().find(|way| way.name == DEFAULT);
    let way = way.expect("options without it are refused");
    let measured = stage.take(&Turn { way, words: &words, plan: &plan, quota: None })?;
    Ok(measured.cost.nodes_us / measured.elapsed_us / NODES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words = ["--ways", "proxy,default", "--snitch", "off", "--binary", "/bin/sh"];
        let options = Options::parse(&words).unwrap();
        let names: Vec<&str> = options.ways.iter().map(|way| way.name).collect();
        assert_eq!(names, ["proxy", "default"]);
        assert!(!options.dynamic_snitch && options.binary.unwrap().is_absolute());
    }

    #[test]
    fn mixes_are_crossed_with_scenarios_that_take_any() {
        let words = ["--scenarios", "lonely,paused", "--mixes", "read-only,update-heavy"];
        let cells = Options::parse(&words).unwrap().cells();
        let names: Vec<_> = cells.iter().map(|(scenario, mix)| (scenario.name, mix.name)).collect();
        let expected =
            [("lonely", "read-only"), ("paused", "read-only"), ("paused", "update-heavy")];
        assert_eq!(names, expected);
    }

    #[test]
    fn wrong_options_say_what_came_and_what_was_expected() {
        for (words, expected) in [
            (&["--rounds", "5"][..], "--rounds: got `5`, expected a number from 6 to 1000"),
            (&["--ways", "default,direct"], "--ways: got `direct`, expected some of default, ad"),
            (&["--ways", "proxy"], "--ways: `default` must be among them"),
            (&["--ways", "default,java-proxy"], "--ways: `java` must be among them"),
            (&["--mixes", "b"], "--mixes: got `b`, expected some of read-heavy, update-heavy"),
            (&["--scenarios", ""], "--scenarios: got ``, expected some of lonely, calm"),
            (&["--snitch", "yes"], "--snitch: got `yes`, expected on or off"),
            (&["--binary", "/no/such"], "--binary: got `/no/such`, expected the path of a program"),
            (&["--jsn"], "unknown option `--jsn`"),
        ] {
            let error = Options::parse(words).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
