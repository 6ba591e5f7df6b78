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
//! `cargo xtask bench record` measures in the same way what `[record]` adds, how many bytes of
//! files a copy of a request is, and how many are missing. The bars are 1 % and 8 bytes.
//!
//! With `--http2` clients speak HTTP/2 (`h2load`), to replicas of HTTP/1.1 and then of HTTP/2,
//! beside HAProxy and, if it is here, Envoy. With `--tls` they speak TLS 1.3, on kept connections
//! (`wrk`) and then on new ones, a request on each (`h2load`, which resumes no session).
//!
//! `--attacks` measures what hostile clients of HTTP/2 cost ([`attacks`]).
//!
//! `--latency` measures what a proxy adds to the latency of an answer ([`latency`]), `--idle` what
//! idle connections cost ([`idle`]).
//!
//! It says nothing about more cores, or a network that is not loopback.

mod attacks;
mod h2load;
mod idle;
pub(crate) mod instructions;
mod latency;
pub(crate) mod proxies;
mod report;
mod wrk;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::bench::process::{Server, Workbench};
use crate::bench::{ROUNDS_MIN, file, number, order, with_reference};
use crate::{UsageError, needs, workspace};
use proxies::{
    ADMIN, AGENT, BACKEND_PORTS, Clients, HTTP, HTTP_AGENTS, HTTP_IDLE, HTTP_NEW, HTTP2, Proxy,
    RECORD, Suite, TLS,
};
use report::{Measurement, Report};

const USAGE: &str = "\
usage: cargo xtask bench http|agent|record [OPTIONS]

  --rounds N         rounds, each measuring every proxy once; at least 6, default 9
  --seconds N        length of one measurement, 1 to 60; default 2
  --connections N    connections of clients, 1 to 1000; default 64, with --http2 16
  --streams N        with --http2, requests of a connection at once, 1 to 100; default 4
  --bytes N          `http`: length of a body, 1 to 1000000; default 150
  --new              `http`: a connection for each request
  --agents           `http`: replicas are behind agents, which report their load
  --http2            `http`: clients speak HTTP/2, replicas HTTP/1.1, and then HTTP/2 as well
  --tls              `http`: clients speak TLS, on kept connections and then on new ones
  --attacks          `http`: what hostile clients of HTTP/2 cost, once; without rounds
  --latency          `http`: what each adds to p50 and p99 at a fifth of HAProxy's load
  --idle N           `http`: memory of so many idle connections, 1000 to 60000, and latency on them
  --binary PATH      this evenkeel, in place of one that is built with the profile dist
  --proxies A,B,…    `http`: of haproxy (the reference), nginx (with neither --http2 nor --tls),
                     envoy (not with --tls; where it is installed), evenkeel (c3); and, with
                     neither --http2 nor --tls, hedge (c3 with hedging), logged (that with an
                     access log of 1 %), adaptive, least (least-outstanding), two (c3 with two
                     workers), hyper; with --agents haproxy, evenkeel, least, adaptive;
                     with --idle haproxy, hedge;
                     `agent`: of plain (the reference), agent,
                     dimmer, lean; `record`: of plain (the reference), again (the same, for the
                     noise), record; default all
  --json             print one JSON document instead of the table

example: cargo xtask bench http --http2 --proxies haproxy,evenkeel --rounds 12 --json";

const ATTACKS: &str = "--attacks";
const LATENCY: &str = "--latency";

const WARM_UP: Duration = Duration::from_secs(1);

/// Measures what `words` ask for in a suite, `http` or `agent`, and prints the result on standard
/// output.
pub(crate) fn run(suite: &str, words: &[&str]) -> Result<()> {
    if matches!(words, ["--help" | "-h"]) {
        println!("{USAGE}");
        return Ok(());
    }
    let (suites, words) = suites(suite, words);
    let options = Options::parse(&suites[0], &words)?;
    for suite in suites {
        let report = match measure(suite, &options)? {
            Found::Table(table) => {
                print!("{table}");
                continue;
            }
            Found::Report(report) => report,
        };
        if options.json {
            println!("{}", report.json());
        } else {
            println!("{}", report.table());
        }
    }
    Ok(())
}

/// Has this evenkeel do all that is measured, for a moment each, without measuring it.
pub(crate) fn train(program: &Path) -> Result<()> {
    let of_http = [(&HTTP, 1_000), (&HTTP, 64_000), (&HTTP_NEW, 1_000), (&HTTP_AGENTS, 1_000)];
    let further = [&AGENT].into_iter().chain(&HTTP2).chain(&TLS).map(|suite| (suite, 1_000));
    for (suite, bytes) in of_http.into_iter().chain(further) {
        let mut options = Options::parse(suite, &[])?;
        let ours = suite.proxies.iter().filter(|proxy| proxy.is_ours());
        options.proxies = ours.map(|proxy| proxy.name).collect();
        (options.rounds, options.seconds, options.bytes) = (1, 1, bytes);
        options.binary = Some(program.to_owned());
        measure(suite, &options)?;
    }
    Ok(())
}

/// What a suite has found.
enum Found {
    Report(Report),
    /// Of attacks, of latencies.
    Table(String),
}

/// What is measured, one after the other, and the words that are left.
fn suites<'a>(suite: &str, words: &[&'a str]) -> (&'static [Suite], Vec<&'a str>) {
    let (suites, flag): (&[Suite], _) = match suite {
        _ if suite == AGENT.name => (&[AGENT], ""),
        _ if suite == RECORD.name => (&[RECORD], ""),
        _ if words.contains(&"--http2") => (&HTTP2, "--http2"),
        _ if words.contains(&"--tls") => (&TLS, "--tls"),
        _ if words.contains(&"--new") => (&[HTTP_NEW], "--new"),
        _ if words.contains(&"--agents") => (&[HTTP_AGENTS], "--agents"),
        _ if words.contains(&"--idle") => (&[HTTP_IDLE], ""),
        _ if words.contains(&ATTACKS) => (&HTTP2[..1], ""),
        _ => (&[HTTP], ""),
    };
    (suites, words.iter().copied().filter(|word| *word != flag).collect())
}

/// What a user may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    rounds: usize,
    seconds: u64,
    connections: u32,
    streams: u32,
    /// Of an answer's body.
    bytes: usize,
    proxies: Vec<&'static str>,
    /// In place of one that is built.
    binary: Option<PathBuf>,
    has_attacks: bool,
    has_latency: bool,
    /// Connections.
    idle: Option<usize>,
    json: bool,
}

impl Options {
    fn parse(suite: &Suite, words: &[&str]) -> Result<Self, UsageError> {
        let at_hand = suite.proxies.iter().filter(|proxy| proxy.is_at_hand());
        let proxies = at_hand.map(|proxy| proxy.name).collect();
        let connections = if suite.clients == Clients::Streams { 16 } else { 64 };
        let (rounds, seconds, streams, json) = (9, 2, 4, false);
        let (bytes, binary) = (proxies::BODY_BYTES, None);
        let (has_attacks, has_latency, idle) = (false, false, None);
        let mut options = Self {
            rounds,
            seconds,
            connections,
            streams,
            bytes,
            proxies,
            binary,
            has_attacks,
            has_latency,
            idle,
            json,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--json" {
                options.json = true;
                continue;
            }
            if *word == ATTACKS && suite.clients == Clients::Streams {
                options.has_attacks = true;
                options.proxies.retain(|name| *name != "envoy");
                continue;
            }
            if *word == LATENCY && suite.name == HTTP.name {
                options.has_latency = true;
                continue;
            }
            let value = words.next().copied().unwrap_or_default();
            match *word {
                "--rounds" => options.rounds = number(word, value, ROUNDS_MIN as u64, 1000)?,
                "--seconds" => options.seconds = number(word, value, 1, 60)?,
                "--connections" => options.connections = number(word, value, 1, 1000)?,
                "--streams" if suite.clients == Clients::Streams => {
                    options.streams = number(word, value, 1, 100)?;
                }
                "--bytes" if suite.name != AGENT.name => {
                    options.bytes = number(word, value, 1, 1_000_000)?;
                }
                "--idle" if suite.name == HTTP_IDLE.name => {
                    options.idle = Some(number(word, value, 1000, 60_000)?);
                }
                "--binary" => options.binary = Some(file(word, value)?),
                "--proxies" => {
                    let name = |proxy: &Proxy| proxy.name;
                    options.proxies =
                        with_reference(word, value, suite.proxies, name, suite.reference)?;
                }
                _ => return Err(UsageError::new(format!("unknown option `{word}`\n\n{USAGE}"))),
            }
        }
        let has_table = options.has_attacks || options.has_latency || options.idle.is_some();
        if options.json && has_table {
            let words =
                "--json: expected without --attacks, --idle and --latency, which print tables";
            return Err(UsageError::new(words));
        }
        Ok(options)
    }
}

/// What generates load.
enum Load {
    Wrk(wrk::Load),
    H2load(h2load::Load),
}

impl Load {
    fn of(suite: &Suite, options: &Options) -> Result<Self> {
        let (connections, streams) = (options.connections, options.streams);
        let clients = suite.clients;
        let (is_encrypted, is_once) = (clients == Clients::Tls, clients == Clients::MessagesOnce);
        Ok(match clients {
            Clients::Messages | Clients::MessagesOnce | Clients::Tls => {
                let program = needs::require("wrk")?;
                Self::Wrk(wrk::Load { program, connections, is_encrypted, is_once })
            }
            Clients::Streams | Clients::TlsOnce => {
                let streams = (clients == Clients::Streams).then_some(streams);
                let program = needs::require("h2load")?;
                Self::H2load(h2load::Load { program, connections, streams })
            }
        })
    }

    fn run(&self, port: u16, length: Duration) -> Result<Outcome> {
        match self {
            Self::Wrk(load) => load.run(port, length),
            Self::H2load(load) => load.run(port, length),
        }
    }
}

/// What one run of load says.
#[derive(Debug, PartialEq)]
struct Outcome {
    requests: u64,
    requests_per_second: f64,
}

/// A started proxy.
struct Running {
    proxy: &'static Proxy,
    server: Server,
}

fn measure(suite: &'static Suite, options: &Options) -> Result<Found> {
    let load = Load::of(suite, options)?;
    let is_chosen = |proxy: &&Proxy| options.proxies.contains(&proxy.name);
    let chosen: Vec<&'static Proxy> = suite.proxies.iter().filter(is_chosen).collect();
    if options.binary.is_none() && chosen.iter().any(|proxy| proxy.is_ours()) {
        eprintln!("building evenkeel");
        workspace::build_dist()?;
    }
    // Two for each where it runs twice.
    let bench = Workbench::create(suite.name, 2 * BACKEND_PORTS + 2 * chosen.len())?;
    let (backend_ports, ports) = bench.ports().split_at(BACKEND_PORTS);
    let (agent_ports, proxy_ports) = ports.split_at(BACKEND_PORTS);
    let backend = proxies::start_backend(&bench, suite, backend_ports, options.bytes)?;
    proxies::certify(&bench, suite)?;
    let ours = options.binary.as_deref();
    let agents = (suite.has_agents)
        .then(|| proxies::start_agents(&bench, (agent_ports, backend_ports), ours))
        .transpose()?;
    let backend_ports = if agents.is_some() { agent_ports } else { backend_ports };
    if let Some(count) = options.idle {
        let ports = (backend_ports, proxy_ports);
        return Ok(Found::Table(idle::run(&bench, &chosen, ports, count, options)?));
    }
    let mut running = Vec::new();
    for (proxy, port) in chosen.into_iter().zip(proxy_ports) {
        let server = proxy.start(&bench, *port, backend_ports, ours)?;
        running.push(Running { proxy, server });
    }
    if options.has_attacks {
        return Ok(Found::Table(attacks::run(&mut running)?));
    }
    if options.has_latency {
        let program = ours.map_or_else(workspace::dist_binary, Path::to_path_buf);
        let by = (suite.reference, &*program);
        return Ok(Found::Table(latency::run(&load, &mut running, backend_ports[0], by, options)?));
    }
    let mut report = Report::new(suite, options.clone());
    for one in &running {
        let note = proxies::check(suite, &one.server, options.bytes)?;
        let note = note.or_else(|| one.proxy.note.map(str::to_owned));
        report.describe(one.proxy.name, one.proxy.version(ours)?, note);
    }
    measure_rounds(&load, &mut running, options, &mut report)?;
    if running.iter().any(|one| one.proxy.name == RECORD.name) {
        report.note_files(recorded(&bench.folder().join(ADMIN))?);
    }
    drop((running, agents, backend));
    Ok(Found::Report(report))
}

fn measure_rounds(
    load: &Load,
    running: &mut [Running],
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    for one in &mut *running {
        measure_one(load, one, WARM_UP)?;
    }
    let length = Duration::from_secs(options.seconds);
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for index in order(round, running.len()) {
            report.add(running[index].proxy.name, measure_one(load, &mut running[index], length)?);
        }
    }
    Ok(())
}

/// What was recorded so far, in files that are closed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Recorded {
    bytes_per_copy: f64,
    /// Copies that are missing.
    lost: u64,
    windows: u64,
    /// Of these, those that lack some.
    dropped: u64,
}

/// Asks who records, at its admin address.
fn recorded(admin: &Path) -> Result<Recorded> {
    let mut stream = UnixStream::connect(admin).context("connecting to the admin address")?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics)?;
    let sum = |name: &str| -> u64 {
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    let (rows, bytes) = (sum("evenkeel_record_rows_total"), sum("evenkeel_record_bytes_total"));
    if rows == 0 {
        bail!("no file was closed: measure for longer than ten seconds in all");
    }
    Ok(Recorded {
        bytes_per_copy: bytes as f64 / rows as f64,
        lost: sum("evenkeel_record_rows_lost_total"),
        windows: sum("evenkeel_record_windows_total"),
        dropped: sum("evenkeel_record_windows_total{state=\"dropped\"}"),
    })
}

fn measure_one(load: &Load, one: &mut Running, length: Duration) -> Result<Measurement> {
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
        let default = Options::parse(&HTTP, &["--proxies", "haproxy"]).unwrap();
        assert_eq!((default.rounds, default.seconds, default.connections), (9, 2, 64));
        let (rounds, proxies, json) = (12, vec!["nginx", "haproxy"], true);
        let expected = Options { rounds, proxies, json, ..default };
        assert_eq!(options, expected);
    }

    #[test]
    fn clients_of_other_protocols_are_suites_of_their_own() {
        let names = |suite, words: &[&'static str]| {
            let (suites, words) = suites(suite, words);
            (suites.iter().map(|suite| suite.name).collect::<Vec<_>>(), words)
        };
        let rounds = vec!["--rounds", "6"];
        for (flag, expected) in
            [("--http2", ["http2", "http2-http2"]), ("--tls", ["tls", "tls-new"])]
        {
            assert_eq!(
                names("http", &[flag, "--rounds", "6"]),
                (expected.to_vec(), rounds.clone())
            );
            assert_eq!(names("agent", &[flag]), (vec!["agent"], vec![flag]), "which is refused");
        }
        assert_eq!(names("http", &["--new"]), (vec!["http-new"], vec![]));
        assert_eq!(names("http", &rounds), (vec!["http"], rounds.clone()));
    }

    #[test]
    fn wrong_options_say_what_came_and_what_was_expected() {
        for (words, expected) in [
            (&["--rounds", "5"][..], "--rounds: got `5`, expected a number from 6 to 1000"),
            (&["--seconds"], "--seconds: got ``, expected a number from 1 to 60"),
            (&["--proxies", "haproxy,squid"], "--proxies: got `squid`, expected some of"),
            (&["--bytes", "0"], "--bytes: got `0`, expected a number from 1 to 1000000"),
            (&["--proxies", "nginx"], "--proxies: `haproxy` must be among them"),
            (&["--jsn"], "unknown option `--jsn`"),
        ] {
            let error = Options::parse(&HTTP, words).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
