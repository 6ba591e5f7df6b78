//! `cargo xtask bench sites`: Kurma's question on real nodes. Three data centres of one Cassandra
//! cluster, users who ask one of them for more than it can serve, and ways between that take time:
//! how many requests are late with Evenkeel's plans, with none, and with splits that are fixed.
//!
//! Signal: the share of requests that failed or were answered later than the objective, from the
//! moment they were due (open loop). All arms run in turns in every round, in an order that
//! rotates, with the same arrivals, on the same nodes; ratios are *within a round*. The curves are
//! what `evenkeel profile` measures of one site in the same run; the fixed split is what `evenkeel
//! plan redirect` computes from them and from the demand, which no site could know as well.
//!
//! Each node has a share of a processor by the kernel's quota, so that three fit in one machine,
//! and it shall behave as a machine that is so much slower. Two things make it so. Periods are
//! short beside the objective: in those of 100 ms, the default, a node that has used its 25 ms is
//! deaf for up to 75 ms. And each node keeps to one processor: the kernel hands out quotas in
//! slices of 5 ms to each processor, so that a node's thread waited for the next period because
//! another thread's processor held what was left, and a request waits several times. Proxies and
//! loads run first (`SCHED_RR`) and the nodes' groups have the most weight, as if on machines of
//! their own.
//!
//! It says nothing about nodes that are larger, data that does not fit in memory, or other demand.

mod arms;
mod drivers;
mod report;
mod turn;
mod world;

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::process::Workbench;
use crate::bench::{ROUNDS_MIN, file, number, order, with_reference};
use crate::{UsageError, workspace};
use arms::{ARMS, Arm, LOCAL};
use report::Report;
use turn::Demand;
use world::World;

const USAGE: &str = "\
usage: cargo xtask bench sites [OPTIONS]

  --arms A,B,…       of local (each request is served where it comes: the reference), uniform (each
                     site sends a third to each), split (a fixed split, computed from the profile
                     and the true demand), plan (evenkeel's plans), blank (plans without a profile:
                     curves are learnt), fixed (plans by the profile as it is); default: not blank
  --rounds N         rounds, each measuring every arm once; at least 6, default 20
  --seconds N        measured time of a turn, 4 to 300; default 12
  --settle N         seconds for which the same load runs before, 2 to 120; default 5
  --demand A,B,C     what each site's users ask for, in per cent of the highest load of the profile
                     at which most requests are in time, each 1 to 300; default 105,40,40
  --near MS          round trip between the first two sites, 0 to 1000; default 10
  --far MS           round trip to the third, 0 to 1000; default 120
  --objective MS     later is late, 2 to 10000; default 150
  --share N          of a processor for each node, in per cent, 5 to 100; default 25
  --quota-period MS  in which a node may use it, 5 to 1000; default 10
  --epoch MS         time between plans, 100 to 60000; default 1000
  --warm-up N        seconds of load before anything is measured, 5 to 600; default 45
  --users NAME       who asks: load (evenkeel load) or java (java-driver 4 at each site; arms local
                     and plan); default load
  --profile new|last measures a profile, or takes that of the last run with these nodes; default new
  --binary PATH      the evenkeel to measure; default is to build target/dist/evenkeel
  --json             print one JSON document instead of the tables

example: cargo xtask bench sites --rounds 6 --arms local,uniform,plan";

/// Between turns: nodes work off what the last one left.
const REST: Duration = Duration::from_secs(2);

/// Measures what `words` ask for and prints the result on standard output.
///
/// # Errors
/// When an option is wrong, a program is missing or fails, or the profile is not usable.
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
    arms: Vec<&'static Arm>,
    rounds: usize,
    seconds: u64,
    settle: u64,
    demand_percent: [u32; 3],
    near_ms: u64,
    far_ms: u64,
    objective_ms: u64,
    share_percent: u32,
    quota_period_ms: u64,
    epoch_ms: u64,
    warm_up: u64,
    is_driven: bool,
    is_profiled: bool,
    binary: Option<PathBuf>,
    json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            arms: ARMS.iter().filter(|arm| arm.is_usual).collect(),
            rounds: 20,
            seconds: 12,
            settle: 5,
            demand_percent: [105, 40, 40],
            near_ms: 10,
            far_ms: 120,
            objective_ms: 150,
            share_percent: 25,
            quota_period_ms: 10,
            epoch_ms: 1_000,
            warm_up: 45,
            is_driven: false,
            is_profiled: false,
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
                "--arms" => options.arms = chosen_arms(value)?,
                "--rounds" => options.rounds = number(word, value, ROUNDS_MIN as u64, 1_000)?,
                "--seconds" => options.seconds = number(word, value, 4, 300)?,
                "--settle" => options.settle = number(word, value, 2, 120)?,
                "--demand" => options.demand_percent = demand(word, value)?,
                "--near" => options.near_ms = number(word, value, 0, 1_000)?,
                "--far" => options.far_ms = number(word, value, 0, 1_000)?,
                "--objective" => options.objective_ms = number(word, value, 2, 10_000)?,
                "--share" => options.share_percent = number(word, value, 5, 100)?,
                "--quota-period" => options.quota_period_ms = number(word, value, 5, 1_000)?,
                "--epoch" => options.epoch_ms = number(word, value, 100, 60_000)?,
                "--warm-up" => options.warm_up = number(word, value, 5, 600)?,
                "--users" => options.is_driven = is_second(word, value, ["load", "java"])?,
                "--profile" => options.is_profiled = is_second(word, value, ["new", "last"])?,
                "--binary" => options.binary = Some(file(word, value)?),
                _ => return Err(UsageError::new(format!("unknown option `{word}`\n\n{USAGE}"))),
            }
        }
        options.arms.retain(|arm| !options.is_driven || arm.is_at_home());
        Ok(options)
    }

    /// The round trip between two sites.
    const fn way_ms(&self, from: usize, to: usize) -> u64 {
        match (from, to) {
            (0, 0) | (1, 1) | (2, 2) => 0,
            (0, 1) | (1, 0) => self.near_ms,
            _ => self.far_ms,
        }
    }

    fn share(&self) -> f64 {
        f64::from(self.share_percent) / 100.0
    }

    /// Of the rounds alone; starting, warming up and profiling take some five more.
    fn minutes(&self) -> u64 {
        let turn = self.seconds + self.settle + REST.as_secs();
        ((self.rounds + 1) as u64 * turn * self.arms.len() as u64).div_ceil(60)
    }
}

fn chosen_arms(value: &str) -> Result<Vec<&'static Arm>, UsageError> {
    let names = with_reference("--arms", value, &ARMS, |arm| arm.name, LOCAL)?;
    Ok(ARMS.iter().filter(|arm| names.contains(&arm.name)).collect())
}

/// Whether a word is the second of two.
fn is_second(option: &str, value: &str, words: [&str; 2]) -> Result<bool, UsageError> {
    let place = words.iter().position(|word| *word == value);
    let [first, second] = words;
    place.map(|place| place == 1).ok_or_else(|| {
        UsageError::new(format!("{option}: got `{value}`, expected {first} or {second}"))
    })
}

fn demand(option: &str, value: &str) -> Result<[u32; 3], UsageError> {
    let parts: Vec<u32> =
        value.split(',').map(|part| number(option, part, 1, 300)).collect::<Result<_, _>>()?;
    parts.try_into().map_err(|_| {
        UsageError::new(format!("{option}: got `{value}`, expected a number for each of 3 sites"))
    })
}

fn measure(options: &Options) -> Result<Report> {
    let binary = options.binary.clone().unwrap_or_else(workspace::dist_binary);
    if options.binary.is_none() {
        eprintln!("building evenkeel");
        workspace::build_dist()?;
    }
    let bench = Workbench::create("sites", world::PORTS)?;
    eprintln!("starting three nodes (compiling their rig first)");
    let mut world = World::start(options, &bench, &binary)?;
    eprintln!("warming up for {} s", options.warm_up);
    world.warm_up(options.warm_up)?;
    world.limit(options)?;
    let profile = world.profile(options)?;
    let demand = Demand::of(options, &profile);
    let split = world.best_split(options, &profile, &demand)?;
    world.start_planning(options)?;
    if options.is_driven {
        world.start_drivers()?;
    }
    let mut report = Report::new(options.clone(), profile, demand, split);
    eprintln!("{}about {} minutes", report.beginning(), options.minutes());
    for round in 0..=options.rounds {
        let mut measured = Vec::new();
        for index in order(round, options.arms.len()) {
            let arm = options.arms[index];
            let taken = world.take(options, arm, &report.demand, &report.split, round as u64);
            let taken = taken.with_context(|| format!("round {round}, {}", arm.name))?;
            eprintln!("round {round} of {}: {:9} {taken}", options.rounds, arm.name);
            measured.push((index, taken));
            sleep(REST);
        }
        // The first is not counted: sites have seen nothing of each other yet.
        if round > 0 {
            measured.sort_by_key(|(index, _)| *index);
            report.add(measured.into_iter().map(|(_, taken)| taken).collect());
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words = ["--arms", "plan,local", "--demand", "110,30,20", "--far", "90", "--json"];
        let options = Options::parse(&words).unwrap();
        let names: Vec<&str> = options.arms.iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["local", "plan"]);
        assert_eq!(options.demand_percent, [110, 30, 20]);
        assert_eq!((options.way_ms(0, 1), options.way_ms(2, 0), options.way_ms(1, 1)), (10, 90, 0));
        assert!(options.json);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        for (words, expected) in [
            (["--demand", "110,30"], "expected a number for each of 3 sites"),
            (["--demand", "110,30,x"], "got `x`"),
            (["--arms", "plan"], "`local` must be among them"),
            (["--rounds", "5"], "expected a number from 6"),
            (["--quota-period", "1"], "expected a number from 5"),
            (["--profile", "old"], "--profile: got `old`, expected new or last"),
        ] {
            let error = Options::parse(&words).unwrap_err().to_string();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }
}
