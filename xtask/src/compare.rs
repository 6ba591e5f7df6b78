//! `cargo xtask compare`: what changes for users when Evenkeel stands where HAProxy, nginx or Envoy
//! stood, measured on the reader's own machine.
//!
//! All stand before the same five replicas, one after the other: the same seed gives each the same
//! arrivals, the same work and the same trouble. Replica 4 is `well`, `pauses` (100 to 300 ms, once
//! a second on average), is `slow` (four times) or `hangs` (takes requests and answers none). The
//! load is open ([`evenkeel load`](../../../crates/tools/load)): a request counts from when it was
//! due, so who is late is late for all that wait behind.
//!
//! Every round starts replicas and proxy anew, and takes the proxies in an order that rotates.
//! Ratios are of one round. All run before whatever else this machine does ([`first_child`]), have
//! one worker, the same health checks and the same timeout of an attempt ([`subjects`]); whatever
//! else is each one's default.

mod report;
mod subjects;

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::bench::process::{Workbench, first_child, free_ports};
use crate::bench::{ROUNDS_MIN, file, number, order, some_of, with_reference};
use crate::bench_http::proxies::Proxy;
use crate::{UsageError, workspace};
use report::{Cell, Report};
use subjects::{REFERENCE, SUBJECTS, WITH_AGENTS};

const USAGE: &str = "\
usage: cargo xtask compare [OPTIONS]

  --rounds N         rounds, each measuring every proxy once; at least 6, default 6
  --seconds N        length of one measurement, 2 to 60; default 6
  --rate N           requests per second, 10 to 3000; default 800
  --weather A,B,…    of well, pauses, slow, hangs; default all
  --proxies A,B,…    of haproxy (the reference), nginx, envoy, evenkeel, evenkeel+hedge,
                     evenkeel+adaptive, evenkeel+agents (the same before replicas with agents);
                     default all that are installed (cargo xtask needs)
  --binary FILE      this evenkeel, such as a package's, in place of a build with the profile dist
  --json             print one JSON document instead of the tables

example: cargo xtask compare --weather pauses --proxies haproxy,evenkeel";

/// What may become of one replica, as the example `replicas` knows it.
const WEATHERS: [&str; 4] = ["well", "pauses", "slow", "hangs"];

/// From the start of the replicas to the first request that counts: everybody has started, has
/// checked the replicas and has its connections.
const LEAD: Duration = Duration::from_millis(2500);
const WARM_UP: Duration = Duration::from_secs(1);
/// Trouble begins when this part of a measurement is over.
const CALM: u32 = 4;
/// When users give up.
const PATIENCE: &str = "5s";

/// Measures, and prints the result on standard output.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    if matches!(words, ["--help" | "-h"]) {
        println!("{USAGE}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let report = measure(&options)?;
    match options.json {
        true => println!("{}", report.json()),
        false => print!("{}", report.tables()),
    }
    Ok(())
}

/// What a user may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    rounds: usize,
    seconds: u64,
    rate: u64,
    weathers: Vec<&'static str>,
    /// All that are installed if none are named.
    proxies: Option<Vec<&'static str>>,
    binary: Option<PathBuf>,
    json: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, UsageError> {
        let mut options = Self {
            rounds: ROUNDS_MIN,
            seconds: 6,
            rate: 800,
            weathers: WEATHERS.to_vec(),
            proxies: None,
            binary: None,
            json: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--json" {
                options.json = true;
                continue;
            }
            let value = words.next().copied().unwrap_or_default();
            match *word {
                "--rounds" => options.rounds = number(word, value, ROUNDS_MIN as u64, 1000)?,
                "--seconds" => options.seconds = number(word, value, 2, 60)?,
                "--rate" => options.rate = number(word, value, 10, 3000)?,
                "--weather" => {
                    let chosen = some_of(word, value, &WEATHERS, |name| name)?;
                    options.weathers = chosen.into_iter().copied().collect();
                }
                "--proxies" => {
                    let name = |proxy: &Proxy| proxy.name;
                    let chosen = with_reference(word, value, &SUBJECTS, name, REFERENCE)?;
                    options.proxies = Some(chosen);
                }
                "--binary" => options.binary = Some(file(word, value)?),
                _ => return Err(UsageError::new(format!("unknown option `{word}`\n\n{USAGE}"))),
            }
        }
        Ok(options)
    }

    fn evenkeel(&self) -> PathBuf {
        self.binary.clone().unwrap_or_else(workspace::dist_binary)
    }

    fn program(&self, proxy: &Proxy) -> Result<PathBuf> {
        if proxy.is_ours() { Ok(self.evenkeel()) } else { (proxy.program)() }
    }

    /// Those that are measured. Who was named must be there; of the others, who is missing is said.
    fn subjects(&self) -> Result<Vec<&'static Proxy>> {
        let mut subjects = Vec::new();
        for proxy in &SUBJECTS {
            match (&self.proxies, self.program(proxy)) {
                (Some(named), _) if !named.contains(&proxy.name) => {}
                (None, Err(missing)) if proxy.name != REFERENCE => {
                    eprintln!("without {}: {missing:#}", proxy.name);
                }
                (_, Err(missing)) => return Err(missing),
                (_, Ok(_)) => subjects.push(proxy),
            }
        }
        Ok(subjects)
    }
}

fn measure(options: &Options) -> Result<Report> {
    let subjects = options.subjects()?;
    eprintln!("building evenkeel and the replicas");
    if options.binary.is_none() {
        workspace::build_dist()?;
    }
    // As parts of one build with the program, so that what `cargo run --release` made is used.
    let packages = ["-p", "evenkeel", "-p", "evenkeel-testkit"];
    let replicas = ["--features", "evenkeel-testkit/embedded", "--example", "replicas"];
    workspace::run_cargo(&[&["build", "--release"], &packages[..], &replicas].concat(), &[])?;
    let bench = Workbench::create("compare", 0)?;
    let mut report = Report::new(options.clone());
    for proxy in &subjects {
        report.describe(proxy.name, proxy.version_of(&options.program(proxy)?)?);
    }
    for round in 0..options.rounds {
        for weather in &options.weathers {
            eprintln!("round {} of {}, {weather}", round + 1, options.rounds);
            for index in order(round, subjects.len()) {
                let proxy = subjects[index];
                let cell = measure_one(&bench, options, proxy, weather, round)
                    .with_context(|| format!("{} before replicas: {weather}", proxy.name))?;
                report.add(weather, proxy.name, cell);
            }
        }
    }
    Ok(report)
}

fn measure_one(
    bench: &Workbench,
    options: &Options,
    proxy: &Proxy,
    weather: &str,
    round: usize,
) -> Result<Cell> {
    let length = Duration::from_secs(options.seconds);
    let began = Instant::now();
    let agents = if proxy.name == WITH_AGENTS { "agents" } else { "bare" };
    let replicas = Replicas::start(round, weather, LEAD + length / CALM, agents)?;
    // Behind the replicas, which take any ports that are free.
    let port = free_ports(1)?[0];
    let command = first_child(&options.program(proxy)?);
    let mut server = proxy.start_by(command, bench, port, &replicas.ports)?;
    load(options, port, WARM_UP, round + 1000)?;
    let left = LEAD.checked_sub(began.elapsed());
    sleep(left.context("the machine is too busy: the start took longer than 2.5 s")?);
    let before = server.cpu_ns()?;
    let document = load(options, port, length, round)?;
    server.check_alive()?;
    Cell::read(&document, server.cpu_ns()? - before)
}

/// What `evenkeel load` says of open-loop load on a proxy.
fn load(options: &Options, port: u16, length: Duration, seed: usize) -> Result<Value> {
    let mut command = first_child(&options.evenkeel());
    command
        .args(["load", &format!("http://127.0.0.1:{port}/item/{{n}}"), "--json"])
        .args(["--rate", &options.rate.to_string(), "--seed", &seed.to_string()])
        .args(["--duration", &format!("{}ms", length.as_millis()), "--timeout", PATIENCE]);
    let output = command.output().context("evenkeel load")?;
    // Status 1: not all were served, which is a figure here.
    if !matches!(output.status.code(), Some(0 | 1)) || output.stdout.is_empty() {
        bail!("evenkeel load: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("evenkeel load says no JSON")
}

/// The five, in a process of their own; killed when dropped.
struct Replicas {
    child: Child,
    ports: Vec<u16>,
}

impl Replicas {
    fn start(seed: usize, weather: &str, delay: Duration, agents: &str) -> Result<Self> {
        let program = workspace::target().join("release/examples/replicas");
        let mut command = first_child(&program);
        command.args([&seed.to_string(), weather, &delay.as_millis().to_string(), agents]);
        let child = command.stdout(Stdio::piped()).spawn().context("the replicas do not start")?;
        let mut replicas = Self { child, ports: Vec::new() };
        let lines = BufReader::new(replicas.child.stdout.take().context("it is piped")?).lines();
        for line in lines.take(5) {
            let line = line?;
            let port = line.rsplit(':').next().and_then(|port| port.parse().ok());
            replicas.ports.push(port.with_context(|| format!("no address: {line}"))?);
        }
        ensure!(replicas.ports.len() == 5, "the replicas ended by themselves");
        Ok(replicas)
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        // Fails when it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words = ["--rate", "100", "--weather", "slow,well", "--proxies", "evenkeel,haproxy"];
        let options = Options::parse(&words).unwrap();
        assert_eq!((options.rate, options.rounds, options.json), (100, 6, false));
        assert_eq!(options.weathers, ["slow", "well"]);
        assert_eq!(options.proxies.unwrap(), ["evenkeel", "haproxy"]);
    }

    #[test]
    fn wrong_options_say_what_came_and_what_was_expected() {
        for (words, expected) in [
            (&["--rounds", "5"][..], "--rounds: got `5`, expected a number from 6 to 1000"),
            (&["--weather", "rain"], "--weather: got `rain`, expected some of well, pauses"),
            (&["--proxies", "nginx"], "--proxies: `haproxy` must be among them"),
            (&["--binary", "no/such"], "--binary: got `no/such`, expected the path of a program"),
            (&["--jsn"], "unknown option `--jsn`"),
        ] {
            let error = Options::parse(words).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
