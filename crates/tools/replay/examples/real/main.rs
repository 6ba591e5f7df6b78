//! `cargo xtask replay-bars --real`: days of real servers, replayed, beside what really happened.
//!
//! A day is recorded under one policy. Then the same load and the same faults really run under the
//! others: each answer is compared with the run that it foretold. The recorded policy runs a second
//! time, too: what two real runs differ by is the floor below which nobody can be right. All run in
//! turns in every round, in an order that rotates.
//!
//! **What the machine must not decide.** Replicas of one machine share its cores, and a replay
//! refuses those that do so, rightly. So here a replica's time is its own: it sleeps for most of it
//! (nginx), holds its thread as a slower machine would (the shop), or is asked for little
//! (Cassandra). Proxy, load, nginx and shop run before all else (`SCHED_RR`), the nodes after them.
//! It says nothing of replicas that fill their cores.

mod report;
mod turn;
mod worlds;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use evenkeel_testkit::folder::Folder;

use report::Report;
use turn::{Arm, Turn};
use worlds::{Kind, World};

const USAGE: &str = "\
usage: cargo xtask replay-bars --real [OPTIONS]

  --world NAME    nginx (three servers with one slot each, which sleep), shop (three shops with a
                  database each, as on slower machines) or cassandra (three nodes; takes Java);
                  default: one after the other
  --rounds N      rounds, each with a recorded day and a real run of every arm; 1 to 100, default 5
  --seconds N     length of a run, 75 to 600, of which the first 60 are the slice; default 120
  --rate N        requests per second, 50 to 2000; default: the world's own
  --arms A,B,…    of again (the recorded policy once more), c3, c3+hedge, two-choices, fewer (a
                  replica less); default all
  --binary FILE   this evenkeel, in place of a build with the profile release
  --days FOLDER   leaves the recorded days there

p99.9 is told where a run has 100,000 answers.";

/// The first minute of a process explores.
const SLICE_S: u64 = 60;
/// A few more than a replay needs, as arrivals are random.
const ANSWERS_MIN: u64 = 10_500;

/// What a user may choose.
struct Options {
    worlds: Vec<Kind>,
    rounds: u64,
    seconds: u64,
    rate: Option<u64>,
    arms: Vec<Arm>,
    binary: PathBuf,
    days: Option<PathBuf>,
}

impl Options {
    fn read(words: &[String]) -> Result<Self> {
        let mut options = Self {
            worlds: Kind::ALL.to_vec(),
            rounds: 5,
            seconds: 120,
            rate: None,
            arms: Arm::ALL.to_vec(),
            binary: beside()?,
            days: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("{word}: got nothing\n\n{USAGE}"))?;
            let number = |from: u64, to: u64| {
                let number = value.parse().ok().filter(|number| (from..=to).contains(number));
                number.with_context(|| {
                    format!("{word}: got `{value}`, expected a number from {from} to {to}")
                })
            };
            match word.as_str() {
                "--world" => options.worlds = vec![named(word, value, &Kind::ALL, Kind::name)?],
                "--rounds" => options.rounds = number(1, 100)?,
                "--seconds" => options.seconds = number(75, 600)?,
                "--rate" => options.rate = Some(number(50, 2_000)?),
                "--arms" => {
                    let arms = value.split(',').map(|one| named(word, one, &Arm::ALL, Arm::name));
                    options.arms = arms.collect::<Result<_>>()?;
                }
                "--binary" => {
                    let file = std::fs::canonicalize(value);
                    options.binary = file.with_context(|| format!("--binary: got `{value}`"))?;
                }
                "--days" => options.days = Some(PathBuf::from(value)),
                _ => bail!("unknown option `{word}`\n\n{USAGE}"),
            }
        }
        Ok(options)
    }
}

fn named<T: Copy>(option: &str, value: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T> {
    let known: Vec<&str> = all.iter().map(|one| name(*one)).collect();
    let found = all.iter().copied().find(|one| name(*one) == value);
    found.with_context(|| format!("{option}: got `{value}`, expected {}", known.join(", ")))
}

/// The program that was built with this example.
fn beside() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.ancestors().nth(2).context("an example is in a folder of the target")?;
    Ok(folder.join("evenkeel"))
}

/// Whether this process, and those that it starts, run before all others; where that is not
/// allowed, nothing changes, and how late the load was shows it.
fn run_first(is_first: bool) {
    let (class, priority) = if is_first { ("--rr", "1") } else { ("--other", "0") };
    let process = std::process::id().to_string();
    let mut command = Command::new("chrt");
    command.args(["--all-tasks", class, "--pid", priority, &process]);
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

fn measure(options: &Options, kind: Kind) -> Result<()> {
    let rate = options.rate.unwrap_or_else(|| kind.rate());
    let answers = (options.seconds - SLICE_S) * rate;
    ensure!(
        answers >= ANSWERS_MIN,
        "{} requests/s for {} s: got {answers} behind the first minute, expected at least \
         {ANSWERS_MIN}, as a replay needs 10,000 under the recorded policy",
        rate,
        options.seconds
    );
    let folder = Folder::new(&format!("replay-real-{}", kind.name()));
    run_first(kind.is_first());
    let world = World::start(kind, folder.path(), &options.binary)?;
    let mut report = Report::new(kind, options.seconds, rate);
    println!("{}", report.beginning(options.rounds));
    for round in 1..=options.rounds {
        let mut taken = Vec::new();
        // The recorded day is one of the turns; it has its place among them.
        let mut arms = vec![Arm::Recorded];
        arms.extend(options.arms.iter().filter(|arm| arm.is_of(kind)));
        let first = round as usize % arms.len();
        arms.rotate_left(first);
        run_first(true);
        for arm in arms {
            let turn = Turn { arm, round, seconds: options.seconds, rate };
            let ran = turn.take(&world, folder.path(), &options.binary);
            let ran = ran.with_context(|| format!("round {round}, {}", arm.name()))?;
            eprintln!("  round {round}, {:<11} {ran}", arm.name());
            taken.push((arm, ran));
        }
        run_first(false);
        let day = taken.iter().find(|(arm, _)| *arm == Arm::Recorded);
        let day = &day.context("every round has a day")?.1.day;
        report.judge(round, day, &taken)?;
        if let Some(kept) = &options.days {
            turn::copy(day, &kept.join(format!("{}-{round}", kind.name())))?;
        }
    }
    print!("{}", report.summary());
    Ok(())
}

fn run(words: &[String]) -> Result<()> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return Ok(());
    }
    let options = Options::read(words)?;
    ensure!(options.binary.is_file(), "{}: no such program", options.binary.display());
    options.worlds.iter().try_for_each(|kind| measure(&options, *kind))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("replay-bars: {error:#}");
            ExitCode::FAILURE
        }
    }
}
