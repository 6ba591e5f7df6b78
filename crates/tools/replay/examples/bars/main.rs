//! `cargo xtask replay-bars`: how often replays of known worlds are right, and what they cost.

mod speed;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use evenkeel_replay::bars::{Outcome, WORLDS, ask, summary};
use evenkeel_replay::{dimmed, random};

const USAGE: &str = "\
usage: cargo xtask replay-bars --simulated [--requests N] [--seeds N] [--world NAME]

Records each of eight worlds, rebuilds it from the rows, replays it under other policies and
compares with the world itself under these. Without options: 1,000,000 requests, 10 seeds.

       cargo xtask replay-bars --speed [--requests N]

Records a day of the first world and replays it: CPU time and memory. Without options: 10,000,000
requests.

       cargo xtask replay-bars --dimmer [--requests N] [--seeds N]

Records worlds that dim, and asks what share of their answers would have been served in full, and
with which p95, at other setpoints. Without options: 1,000,000 requests, 10 seeds.

       cargo xtask replay-bars --random [--requests N] [--seeds N]

Draws a world from each seed, records its day under the shipped default, lets a replay name the best
of five policies with hedges and without, and says how far that is from the truly best. Without
options: 1,000,000 requests, 10 seeds.";

struct Options {
    is_random: bool,
    is_dimmed: bool,
    requests: u64,
    seeds: u64,
    world: Option<String>,
}

fn options(words: &[String]) -> Option<Options> {
    let mut options =
        Options { is_random: false, is_dimmed: false, requests: 1_000_000, seeds: 10, world: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--simulated" => {}
            "--random" => options.is_random = true,
            "--dimmer" => options.is_dimmed = true,
            "--requests" => options.requests = words.next()?.parse().ok()?,
            "--seeds" => options.seeds = words.next()?.parse().ok()?,
            "--world" => options.world = Some(words.next()?.clone()),
            _ => return None,
        }
    }
    let is_known = |name: &String| WORLDS.iter().any(|world| world.name == name);
    (options.world.as_ref().is_none_or(is_known)).then_some(options)
}

fn print(out: &mut impl std::io::Write, outcome: &Outcome) -> std::io::Result<()> {
    write!(out, "  {:<24}", outcome.policy)?;
    for (off, floor, is_held, width) in &outcome.errors {
        let is_held = if *is_held { "held" } else { "out" };
        let (off, floor, width) = (100.0 * off.exp_m1(), 100.0 * floor, 100.0 * width);
        write!(out, " {off:+7.1} % (coins {floor:4.1}, {is_held:4} in {width:4.1})")?;
    }
    let right = if outcome.is_right() { "right" } else { "WRONG" };
    match &outcome.refusal {
        None => writeln!(out, "  {right}"),
        Some(refusal) => writeln!(out, "  refused ({right}): {refusal}"),
    }
}

/// What is asked of the cost alone; `None` if it is not.
fn of_speed(words: &[String]) -> Option<ExitCode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["--speed"] => speed::measure(10_000_000),
        ["--speed", "--requests", count] => speed::measure(count.parse().ok()?),
        [what @ ("--record" | "--replay"), directory, count] => {
            speed::part(what, Path::new(directory), count.parse().ok()?).map(|()| true)
        }
        _ => return None,
    };
    match done {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => Some(ExitCode::FAILURE),
        Err(error) => {
            eprintln!("{error}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn choices(options: &Options) -> ExitCode {
    let mut all = Vec::new();
    for seed in 1..=options.seeds {
        match random::choose(seed, options.requests) {
            Ok(choice) => {
                println!("{}", choice.told());
                all.push(choice);
            }
            Err(problems) => {
                eprintln!("{problems}");
                return ExitCode::FAILURE;
            }
        }
    }
    print!("{}", random::summary(&all));
    ExitCode::SUCCESS
}

fn setpoints(options: &Options) -> ExitCode {
    let mut all = Vec::new();
    for seed in 1..=options.seeds {
        for (name, sets) in dimmed::WORLDS {
            match dimmed::ask((name, sets), options.requests, seed) {
                Ok((mut asked, notes)) => {
                    println!("{name} seed {seed}: {notes}");
                    asked.iter().for_each(|one| println!("  {}", one.told()));
                    all.append(&mut asked);
                }
                Err(problems) => {
                    eprintln!("{problems}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    print!("{}", dimmed::summary(&all));
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(code) = of_speed(&words) {
        return code;
    }
    let Some(options) = options(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if options.is_dimmed {
        return setpoints(&options);
    }
    if options.is_random {
        return choices(&options);
    }
    let mut out = std::io::stdout().lock();
    let mut all = Vec::new();
    for seed in 1..=options.seeds {
        for world in &WORLDS {
            if options.world.as_ref().is_some_and(|name| name != world.name) {
                continue;
            }
            let (outcomes, notes) = match ask(world, options.requests, seed) {
                Ok(asked) => asked,
                Err(problems) => {
                    eprintln!("{problems}");
                    return ExitCode::FAILURE;
                }
            };
            let _ = writeln!(out, "{} seed {seed}: {notes}", world.name);
            for outcome in &outcomes {
                let _ = print(&mut out, outcome);
            }
            all.extend(outcomes);
        }
    }
    let _ = write!(out, "{}", summary(&all));
    ExitCode::SUCCESS
}
