//! `cargo xtask redis-apps`: real applications at a front with three duplicates and two processes,
//! and at one plain Redis beside it, under the same random faults.
//!
//! Each job leaves a trace at a server that no fault reaches. At the end jobs are counted that were
//! acknowledged and never done (lost) or done more than once (twice); those of which the library
//! itself made two, by sending again what gives one, are shown apart (given twice). It fails where
//! the front has more lost, or more of both of the others, than the plain Redis. Applications are
//! unchanged, of the versions in [`sources`]: RQ, Celery, BullMQ, django-redis, and the locks of
//! Redisson. One process of each uses the URL of a front, one that of the other, one asks Sentinel.
//! It is run by hand: it needs the network.

mod count;
mod faults;
mod load;
mod servers;
mod sources;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bench::process::lock;
use crate::{UsageError, workspace};
use count::{Tally, TallyRow};
use faults::Schedule;
use load::{App, Side};
use servers::Servers;

const HELP: &str = "\
usage: cargo xtask redis-apps [OPTIONS]

  --app NAME       rq, celery, bullmq, django or redisson (default: all)
  --minutes N      how long each runs under faults (default: 5)
  --seed N         of the faults (default: 1)
  --pace X         jobs are given at this share of the usual rate, up to 1 (default: 1); for
                   several applications at once on a small machine
  --no-faults      leave them out
  --program PATH   an evenkeel that is built already (default: builds that of packages)";

/// How long may be waited, after the last fault, for jobs that were not done yet. Longer than the
/// times after which applications take up again what was left behind.
const DRAIN_MAX: Duration = Duration::from_secs(90);

/// How long jobs that are done twice may take to show.
const SETTLE: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Debug, PartialEq)]
struct Options {
    apps: Vec<App>,
    minutes: f64,
    seed: u64,
    pace: f64,
    with_faults: bool,
    program: Option<PathBuf>,
}

impl Options {
    fn read(words: &[&str]) -> Result<Self> {
        let mut options = Self {
            apps: App::ALL.to_vec(),
            minutes: 5.0,
            seed: 1,
            pace: 1.0,
            with_faults: true,
            program: None,
        };
        let usage = |what: &str| UsageError::new(format!("redis-apps: {what}\n\n{HELP}"));
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if *word == "--no-faults" {
                options.with_faults = false;
                continue;
            }
            let value = *words.next().ok_or_else(|| usage(&format!("{word}: needs a value")))?;
            let wrong = || usage(&format!("{word} {value}: not a value of this option"));
            match *word {
                "--app" => options.apps = vec![App::named(value).ok_or_else(wrong)?],
                "--minutes" => {
                    let minutes = value.parse().ok().filter(|it| (0.1..=1_440.0).contains(it));
                    options.minutes = minutes.ok_or_else(wrong)?;
                }
                "--pace" => {
                    let pace = value.parse().ok().filter(|it| (0.01..=1.0).contains(it));
                    options.pace = pace.ok_or_else(wrong)?;
                }
                "--seed" => options.seed = value.parse().map_err(|_| wrong())?,
                "--program" => options.program = Some(PathBuf::from(value)),
                _ => return Err(usage(&format!("unknown option {word}")).into()),
            }
        }
        Ok(options)
    }
}

/// Where packages are installed and servers write.
fn folder() -> PathBuf {
    workspace::target().join("xtask").join("redis-apps")
}

/// Runs the applications that are asked for, one after the other.
///
/// # Errors
/// When something cannot be had or started, or an application loses or doubles more through the
/// front.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    if matches!(words, ["--help" | "-h"]) {
        println!("{HELP}");
        return Ok(());
    }
    let options = Options::read(words)?;
    let program = match &options.program {
        Some(program) => fs::canonicalize(program).with_context(|| format!("no {program:?}"))?,
        None => {
            workspace::build_dist()?;
            workspace::dist_binary()
        }
    };
    sources::install(&folder(), &options.apps)?;
    let mut rows = Vec::new();
    for &app in &options.apps {
        let tallies = run_app(app, &options, &program)
            .with_context(|| format!("{}: cannot be compared", app.name()))?;
        rows.push((app, tallies));
    }
    println!("\n{}", TallyRow::HEAD);
    let mut worse = Vec::new();
    for (app, tallies) in &rows {
        for (side, tally) in ["front", "plain"].iter().zip(tallies) {
            println!("{}", TallyRow { app: app.name(), side, tally });
        }
        worse.extend(tallies[0].worse_than(&tallies[1]).then_some(app.name()));
    }
    if !worse.is_empty() {
        bail!("worse through the front than at one plain Redis: {}", worse.join(", "));
    }
    Ok(())
}

/// What one application did at the front, and at the plain Redis.
fn run_app(app: App, options: &Options, program: &std::path::Path) -> Result<[Tally; 2]> {
    let name = app.name();
    let run = folder().join("run").join(name);
    fs::create_dir_all(folder().join("run"))?;
    let Some(_ours) = lock(&run.with_extension("lock"))? else {
        bail!("another redis-apps runs {name} in {run:?}: wait until it ends");
    };
    let _ = fs::remove_dir_all(&run);
    fs::create_dir_all(&run)?;
    println!("{name}: servers and logs in {}", run.display());
    let mut servers = Servers::start(&run, program)?;
    let mut sides = [
        Side::start((app, options.pace), "front", &run, &servers.addresses())?,
        Side::start((app, options.pace), "plain", &run, &servers.plain_addresses())?,
    ];
    let until = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let mut schedule = Schedule::new(options.seed);
    while Instant::now() < until {
        if !options.with_faults {
            tend(&mut servers, &mut sides, Duration::from_secs(1))?;
            continue;
        }
        let planned = schedule.next_fault();
        tend(&mut servers, &mut sides, planned.after)?;
        servers.await_all_live(|servers| tend(servers, &mut sides, Duration::from_millis(200)))?;
        println!("  {planned}");
        servers.begin(planned.fault)?;
        tend(&mut servers, &mut sides, planned.lasts)?;
        servers.end(planned.fault)?;
    }
    for side in &mut sides {
        side.stop_giving()?;
    }
    let began = Instant::now();
    while began.elapsed() < DRAIN_MAX && !sides.iter().all(Side::is_drained) {
        tend(&mut servers, &mut sides, Duration::from_secs(1))?;
    }
    tend(&mut servers, &mut sides, SETTLE)?;
    let [front, plain] = sides;
    Ok([front.finish()?, plain.finish()?])
}

/// Lets time pass, in which what ended by itself is started again, as by a supervisor.
fn tend(servers: &mut Servers, sides: &mut [Side; 2], time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    loop {
        servers.supervise()?;
        for side in sides.iter_mut() {
            side.supervise()?;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(500)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_what_is_wrong_is_named() {
        let read = Options::read(&["--app", "rq", "--minutes", "0.5", "--seed", "7"]).unwrap();
        assert_eq!((read.apps, read.minutes, read.seed), (vec![App::Rq], 0.5, 7));
        assert_eq!(Options::read(&[]).unwrap().apps.len(), 5);
        for wrong in [
            &["--app", "sidekiq"][..],
            &["--minutes", "0"],
            &["--pace", "2"],
            &["--seed"],
            &["--apps", "rq"],
        ] {
            let error = Options::read(wrong).unwrap_err();
            assert!(error.is::<UsageError>() && error.to_string().contains(wrong[0]), "{error}");
        }
    }
}
