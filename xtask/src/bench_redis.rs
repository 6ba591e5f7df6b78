//! `cargo xtask bench redis`: what duplicates of Redis cost beside Redis itself, Envoy's Redis
//! proxy and twemproxy.
//!
//! Signals, all from the same runs of a closed loop (`redis-benchmark`, or our own for a client
//! that is alone): CPU time that a proxy's processes spend for each command (user and system, from
//! the kernel's scheduler statistics), and what its Redis servers spend; commands per second; the
//! median latency of a lonely client. CPU for each command is what a proxy costs its owner and the
//! figure to trust here. Commands per second of a closed loop say what a *machine* does: where
//! client, proxy and Redis share two cores, whoever uses less CPU is quicker.
//!
//! As in `bench http`, all are plain children of this process, all run in every round in turns,
//! and what is compared is the ratio (for latency the difference) *within a round*, by its median
//! and a distribution-free interval. Everybody has Redis servers of its own, and every key has a
//! value.
//!
//! The proxies do not do the same work: the duplicates write every write into a log before it is
//! sent and keep one order of writes, Envoy and twemproxy forward bytes to one server, and what
//! that one holds is lost with it.
//!
//! It says nothing about large values, sessions that mix reads with writes, partitions, more cores
//! or a network that is not loopback.

pub(crate) mod expiry;
mod load;
mod report;
mod stumbles;
mod subjects;

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::bench::process::Workbench;
use crate::bench::{ROUNDS_MIN, file, number, order, some_of, with_reference};
use crate::{UsageError, needs, workspace};
use load::{LOADS, Load, Tool};
use report::{Measurement, Report};
use subjects::{Running, SUBJECTS, Subject};

const USAGE: &str = "\
usage: cargo xtask bench redis [OPTIONS]

  --rounds N         rounds, each measuring everybody once; at least 6, default 9
  --seconds N        length of one measurement, about; 1 to 60, default 1
  --subjects A,B,…   of direct (Redis, the reference), evenkeel-1, evenkeel-2 (one and two
                     duplicates), eventual-1, eventual-2 (their reads with `eventual`), envoy,
                     twemproxy; default all
  --loads A,B,…      of set_50x16, get_50x16, set_50x1, get_50x1, set_1x1, get_1x1, eval_1x1
                     (connections x pipeline; the last a script that sets); default all
  --binary PATH      the evenkeel to measure; default is to build target/dist/evenkeel
  --stumbles         instead: the 99.9th percentile of reads while one Redis stands still now and
                     then, with one duplicate, and with three of which are asked all, one, or one
                     and after a while another; without --subjects and --loads
  --json             print one JSON document instead of the tables

examples: cargo xtask bench redis --subjects direct,evenkeel-1,envoy --rounds 12
          cargo xtask bench redis --stumbles --rounds 12 --seconds 10";

/// Commands of the run that finds out how many make a measurement, for each connection.
const WARM_UP_COMMANDS: u64 = 2000;

/// Options without a value.
const FLAGS: [&str; 2] = ["--json", "--stumbles"];

/// Measures what `words` ask for and prints the result on standard output.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    if matches!(words, ["--help" | "-h"]) {
        println!("{USAGE}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    if options.is_stumbling {
        println!("{}", stumbles::run(&options, &binary(&options, true)?)?.trim_end());
        return Ok(());
    }
    let report = measure(&options)?;
    if options.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.tables());
    }
    Ok(())
}

/// What a user may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    rounds: usize,
    seconds: u64,
    subjects: Vec<&'static str>,
    loads: Vec<&'static str>,
    binary: Option<PathBuf>,
    json: bool,
    /// One Redis stands still now and then.
    is_stumbling: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, UsageError> {
        let subjects = SUBJECTS.iter().map(|subject| subject.name).collect();
        let loads = LOADS.iter().map(|load| load.key).collect();
        let [json, is_stumbling] = FLAGS.map(|flag| words.contains(&flag));
        let mut options =
            Self { rounds: 9, seconds: 1, subjects, loads, binary: None, json, is_stumbling };
        let mut words = words.iter().filter(|word| !FLAGS.contains(word));
        while let Some(word) = words.next() {
            let value = words.next().copied().unwrap_or_default();
            match *word {
                "--rounds" => options.rounds = number(word, value, ROUNDS_MIN as u64, 1000)?,
                "--seconds" => options.seconds = number(word, value, 1, 60)?,
                "--subjects" => {
                    let reference = subjects::REFERENCE;
                    options.subjects =
                        with_reference(word, value, &SUBJECTS, |one| one.name, reference)?;
                }
                "--loads" => {
                    let loads = some_of(word, value, &LOADS, |load| load.key)?;
                    options.loads = loads.iter().map(|load| load.key).collect();
                }
                "--binary" => options.binary = Some(file(word, value)?),
                _ => return Err(UsageError::new(format!("unknown option `{word}`\n\n{USAGE}"))),
            }
        }
        Ok(options)
    }
}

fn measure(options: &Options) -> Result<Report> {
    let tool = Tool { program: needs::require("redis-benchmark")? };
    let is_chosen = |subject: &&Subject| options.subjects.contains(&subject.name);
    let chosen: Vec<&'static Subject> = SUBJECTS.iter().filter(is_chosen).collect();
    let binary = binary(options, chosen.iter().any(|subject| subject.is_ours()))?;
    let port_count = chosen.iter().map(|subject| subject.port_count()).sum();
    let bench = Workbench::create("redis", port_count)?;
    let mut running = subjects::start_all(chosen.into_iter(), &bench, &binary)?;
    let mut report = Report::new(options.clone(), subjects::file_system(bench.folder()));
    for one in &running {
        report.describe(one.subject.name, one.subject.version(&binary)?);
    }
    measure_rounds(&tool, &mut running, options, &mut report)?;
    Ok(report)
}

/// The program to measure, built if it is needed and none was named.
fn binary(options: &Options, is_needed: bool) -> Result<PathBuf> {
    if let Some(binary) = &options.binary {
        return Ok(binary.clone());
    }
    if is_needed {
        // A stale binary would be measured without anyone noticing.
        eprintln!("building evenkeel");
        workspace::build_dist()?;
    }
    Ok(workspace::dist_binary())
}

fn measure_rounds(
    tool: &Tool,
    running: &mut [Running],
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let mut counts = Vec::new();
    for one in running.iter_mut() {
        let mut of_one = Vec::new();
        for load in &LOADS {
            let rate = if takes(options, one, load) {
                measure_one(tool, one, load, WARM_UP_COMMANDS * load.connections)?.commands_per_s
            } else {
                0.0
            };
            of_one.push((rate * options.seconds as f64) as u64);
        }
        counts.push(of_one);
    }
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for (number, load) in LOADS.iter().enumerate() {
            for index in order(round, running.len()) {
                if takes(options, &running[index], load) {
                    let count = counts[index][number];
                    let measurement = measure_one(tool, &mut running[index], load, count)?;
                    report.add(running[index].subject.name, number, measurement);
                }
            }
        }
    }
    Ok(())
}

fn takes(options: &Options, one: &Running, load: &Load) -> bool {
    options.loads.contains(&load.key) && one.subject.takes(load)
}

fn measure_one(tool: &Tool, one: &mut Running, load: &Load, commands: u64) -> Result<Measurement> {
    let before = one.cpu_ns()?;
    let outcome = tool.run(one.port(), load, commands);
    let outcome = outcome.with_context(|| format!("{} on {}", load.name, one.subject.name))?;
    one.check_alive()?;
    let after = one.cpu_ns()?;
    let each = |before: u64, after: u64| (after - before) as f64 / 1e3 / commands as f64;
    Ok(Measurement {
        commands_per_s: outcome.commands_per_s,
        p50_us: outcome.p50_us,
        p99_us: outcome.p99_us,
        cpu_us: each(before.proxy, after.proxy),
        store_cpu_us: each(before.stores, after.stores),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words = ["--rounds", "12", "--subjects", "envoy,direct", "--binary", "/bin/sh"];
        let options = Options::parse(&words).unwrap();
        assert_eq!((options.rounds, options.seconds, options.json), (12, 1, false));
        assert_eq!(options.subjects, ["envoy", "direct"]);
        assert!(options.binary.unwrap().is_absolute());
    }

    #[test]
    fn wrong_options_say_what_came_and_what_was_expected() {
        for (words, expected) in [
            (&["--rounds", "5"][..], "--rounds: got `5`, expected a number from 6 to 1000"),
            (&["--subjects", "direct,nginx"], "--subjects: got `nginx`, expected some of direct"),
            (&["--subjects", "envoy"], "--subjects: `direct` must be among them"),
            (&["--loads", "get_2x2"], "--loads: got `get_2x2`, expected some of set_50x16, get"),
            (&["--binary", "/no/such"], "--binary: got `/no/such`, expected the path of a program"),
            (&["--jsn"], "unknown option `--jsn`"),
        ] {
            let error = Options::parse(words).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
