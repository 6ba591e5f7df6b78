//! `cargo xtask replay-bars --simulated`: how often replays of known worlds are right.

use std::io::Write as _;
use std::process::ExitCode;

use evenkeel_replay::bars::{Outcome, WORLDS, ask, summary};

const USAGE: &str = "\
usage: cargo xtask replay-bars --simulated [--requests N] [--seeds N] [--world NAME]

Records each of eight worlds, rebuilds it from the rows, replays it under other policies and
compares with the world itself under these. Without options: 1,000,000 requests, 10 seeds.";

struct Options {
    requests: u64,
    seeds: u64,
    world: Option<String>,
}

fn options(words: &[String]) -> Option<Options> {
    let mut options = Options { requests: 1_000_000, seeds: 10, world: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--simulated" => {}
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
    for (off, floor, is_held) in &outcome.errors {
        let is_held = if *is_held { "held" } else { "out" };
        write!(out, " {:+7.1} % (coins {:4.1}, {is_held:4})", 100.0 * off.exp_m1(), 100.0 * floor)?;
    }
    let right = if outcome.is_right() { "right" } else { "WRONG" };
    match &outcome.refusal {
        None => writeln!(out, "  {right}"),
        Some(refusal) => writeln!(out, "  refused ({right}): {refusal}"),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = options(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
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
