//! `cargo xtask bench http`: CPU per proxied request of evenkeel beside HAProxy and nginx.
//!
//! Signal: CPU time (user and system, from the kernel's scheduler statistics) that a proxy's
//! processes spend while `wrk` sends through it, divided by the requests answered. CPU per request
//! is what a proxy costs its owner; requests per second would mostly measure who shares the cores.
//!
//! It moves with everything else on the machine, by a factor of two on a loaded one. Therefore all
//! proxies run in every round, in an order that rotates, and the comparison is the *ratio within
//! a round*, summarised by its median and a distribution-free interval
//! ([`crate::bench::statistics`]). All proxies are plain children of this process: the kernel
//! groups tasks by session for scheduling, and a proxy in a session of its own gets other wake-ups
//! and other figures.
//!
//! `cargo xtask bench agent` measures in the same way what an agent costs beside plain proxying
//! (`[[listen]]` to one replica), without a dimmer, with one, and with one held at lean. The bar
//! for an agent with a dimmer is 1.3 times plain proxying.
//!
//! It says nothing about latency, TLS, large bodies, more cores, or a network that is not
//! loopback.

pub(crate) mod proxies;
mod report;
mod wrk;

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::bench::process::{Server, Workbench};
use crate::bench::{ROUNDS_MIN, number, order, with_reference};
use crate::{UsageError, needs, workspace};
use proxies::{AGENT, HTTP, Proxy, Suite};
use report::{Measurement, Report};

const USAGE: &str = "\
usage: cargo xtask bench http|agent [OPTIONS]

  --rounds N         rounds, each measuring every proxy once; at least 6, default 9
  --seconds N        length of one measurement, 1 to 60; default 2
  --connections N    keep-alive connections of wrk, 1 to 1000; default 64
  --proxies A,B,…    `http`: of haproxy (the reference), nginx, evenkeel; `agent`: of plain (the
                     reference), agent, dimmer, lean; default all
  --json             print one JSON document instead of the table

example: cargo xtask bench http --proxies haproxy,nginx --rounds 12 --json";

const WARM_UP: Duration = Duration::from_secs(1);

/// Measures what `words` ask for in a suite, `http` or `agent`, and prints the result on standard
/// output.
pub(crate) fn run(suite: &str, words: &[&str]) -> Result<()> {
    let suite = if suite == AGENT.name { &AGENT } else { &HTTP };
    if matches!(words, ["--help" | "-h"]) {
        println!("{USAGE}");
        return Ok(());
    }
    let options = Options::parse(suite, words)?;
    let report = measure(suite, &options)?;
    if options.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table());
    }
    Ok(())
}

/// What a user may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    rounds: usize,
    seconds: u64,
    connections: u32,
    proxies: Vec<&'static str>,
    json: bool,
}

impl Options {
    fn parse(suite: &Suite, words: &[&str]) -> Result<Self, UsageError> {
        let proxies = suite.proxies.iter().map(|proxy| proxy.name).collect();
        let mut options = Self { rounds: 9, seconds: 2, connections: 64, proxies, json: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--json" {
                options.json = true;
                continue;
            }
            let value = words.next().copied().unwrap_or_default();
            match *word {
                "--rounds" => options.rounds = number(word, value, ROUNDS_MIN as u64, 1000)?,
                "--seconds" => options.seconds = number(word, value, 1, 60)?,
                "--connections" => options.connections = number(word, value, 1, 1000)?,
                "--proxies" => {
                    let name = |proxy: &Proxy| proxy.name;
                    options.proxies =
                        with_reference(word, value, suite.proxies, name, suite.reference)?;
                }
                _ => return Err(UsageError::new(format!("unknown option `{word}`\n\n{USAGE}"))),
            }
        }
        Ok(options)
    }
}

/// A started proxy.
struct Running {
    proxy: &'static Proxy,
    server: Server,
}

fn measure(suite: &'static Suite, options: &Options) -> Result<Report> {
    let wrk = needs::require("wrk")?;
    let is_chosen = |proxy: &&Proxy| options.proxies.contains(&proxy.name);
    let chosen: Vec<&'static Proxy> = suite.proxies.iter().filter(is_chosen).collect();
    if chosen.iter().any(|proxy| proxy.is_ours()) {
        eprintln!("building evenkeel");
        workspace::build_dist()?;
    }
    let bench = Workbench::create(suite.name, proxies::BACKEND_PORTS + chosen.len())?;
    let (backend_ports, proxy_ports) = bench.ports().split_at(proxies::BACKEND_PORTS);
    let backend = proxies::start_backend(&bench, backend_ports)?;
    let mut running = Vec::new();
    for (proxy, port) in chosen.into_iter().zip(proxy_ports) {
        let server = proxy.start(&bench, *port, backend_ports)?;
        running.push(Running { proxy, server });
    }
    let mut report = Report::new(suite, options.clone());
    for one in &running {
        report.describe(one.proxy.name, one.proxy.version()?, proxies::check(suite, &one.server)?);
    }
    let load = wrk::Load { program: wrk, connections: options.connections };
    measure_rounds(&load, &mut running, options, &mut report)?;
    drop(backend);
    Ok(report)
}

fn measure_rounds(
    load: &wrk::Load,
    running: &mut [Running],
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    for one in running.iter_mut() {
        measure_one(load, one, WARM_UP)?;
    }
    let length = Duration::from_secs(options.seconds);
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for index in order(round, running.len()) {
            let measurement = measure_one(load, &mut running[index], length)?;
            report.add(running[index].proxy.name, measurement);
        }
    }
    Ok(())
}

fn measure_one(load: &wrk::Load, one: &mut Running, length: Duration) -> Result<Measurement> {
    let name = one.proxy.name;
    let before = one.server.cpu_ns()?;
    let outcome = load.run(one.server.port(), length).with_context(|| format!("load on {name}"))?;
    one.server.check_alive()?;
    let cpu_ns = one.server.cpu_ns()? - before;
    if outcome.requests == 0 {
        bail!("{name} answered no request in {length:?}");
    }
    Ok(Measurement {
        requests: outcome.requests,
        requests_per_second: outcome.requests_per_second,
        cpu_us_per_request: cpu_ns as f64 / 1e3 / outcome.requests as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words = ["--rounds", "12", "--proxies", "nginx,haproxy", "--json"];
        let options = Options::parse(&HTTP, &words).unwrap();
        let proxies = vec!["nginx", "haproxy"];
        let expected = Options { rounds: 12, seconds: 2, connections: 64, proxies, json: true };
        assert_eq!(options, expected);
    }

    #[test]
    fn wrong_options_say_what_came_and_what_was_expected() {
        for (words, expected) in [
            (&["--rounds", "5"][..], "--rounds: got `5`, expected a number from 6 to 1000"),
            (&["--seconds"], "--seconds: got ``, expected a number from 1 to 60"),
            (&["--proxies", "haproxy,envoy"], "--proxies: got `envoy`, expected some of"),
            (&["--proxies", "nginx"], "--proxies: `haproxy` must be among them"),
            (&["--jsn"], "unknown option `--jsn`"),
        ] {
            let error = Options::parse(&HTTP, words).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
