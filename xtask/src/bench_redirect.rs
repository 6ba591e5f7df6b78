//! `cargo xtask bench redirect`: CPU to a proven redistribution plan, beside MiniZinc with Gecode
//! (what the paper used) and HiGHS.
//!
//! Signal: user and system time of a whole process, children included, from its start to its
//! answer: everybody reads the same instance from a file and says whether the answer is proven.
//! Short runs are repeated ten times for a finer clock. Programs take turns in every round, and
//! what is compared is the ratio within a round. Whoever does not prove an answer within the cap
//! is not asked again.
//!
//! It says nothing about memory, other models or more cores. The rivals get the strongest models
//! we know: Gecode the paper's own with a search order, HiGHS one over load levels, whose
//! relaxation is nearly tight, with roles fixed for the cost objective.

#[path = "../../crates/decide/geo/src/tests/instances.rs"]
mod instances;
mod problem;
mod rival;

use anyhow::{Context, Result};

use crate::bench::process::Workbench;
use crate::bench::{number, statistics};
use crate::{UsageError, needs, workspace};
use instances::Family;
use problem::{Case, Files};
use rival::{Outcome, Rival};

const USAGE: &str = "\
usage: cargo xtask bench redirect [OPTIONS]

  --rounds N         rounds, each asking every program once; 1 to 50, default 3
  --cap-seconds N    how long one answer may take, by the clock; 1 to 600, default 20
  --sites A,B,…      numbers of data centres, each 2 to 32; default 3,5,8

example: cargo xtask bench redirect --sites 5,8 --rounds 5";

const FAMILIES: [(Family, &str); 6] = [
    (Family::Hot, "hot"),
    (Family::Tight, "tight"),
    (Family::Unequal, "unequal"),
    (Family::Mixed, "mixed"),
    (Family::Down, "down"),
    (Family::Overload, "overload"),
];
/// Families whose cost targets can be kept.
const FOR_COST: [&str; 3] = ["hot", "unequal", "mixed"];

/// Measures what `words` ask for and prints the result on standard output.
///
/// # Errors
/// When an option is wrong, a program is missing or fails, or two proven answers differ.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    if matches!(words, ["--help" | "-h"]) {
        println!("{USAGE}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let rivals = rivals()?;
    workspace::build_dist()?;
    let bench = Workbench::create("redirect", 0)?;
    problem::write_models(&bench)?;
    println!(
        "CPU of a whole process to a proven answer, quantum 1 %, {} rounds; `solve` is the solver \
         alone; >: no proof after {} s by the clock\n",
        options.rounds, options.cap_seconds
    );
    println!("{}", head(&rivals));
    let mut unsolved = Vec::new();
    for case in cases(&options) {
        let rows = measure(&case, &rivals, &options, &bench)?;
        agree(&case, &rivals, &rows)?;
        println!("{}", line(&case, &rows));
        for (rival, outcomes) in rivals.iter().zip(&rows) {
            if outcomes.iter().any(|outcome| !outcome.is_proven) {
                unsolved.push(format!("{} {}", rival.name(), case.name()));
            }
        }
    }
    let none = "none".to_owned();
    let unsolved = if unsolved.is_empty() { none } else { unsolved.join(", ") };
    println!("\nnot proven within {} s: {unsolved}", options.cap_seconds);
    Ok(())
}

/// What a user may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options {
    rounds: usize,
    cap_seconds: u64,
    sites: Vec<usize>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, UsageError> {
        let mut options = Self { rounds: 3, cap_seconds: 20, sites: vec![3, 5, 8] };
        for pair in words.chunks(2) {
            let value = pair.get(1).copied().unwrap_or_default();
            match pair[0] {
                "--rounds" => options.rounds = number(pair[0], value, 1, 50)?,
                "--cap-seconds" => options.cap_seconds = number(pair[0], value, 1, 600)?,
                "--sites" => {
                    let one = |value| number("--sites", value, 2, 32);
                    options.sites = value.split(',').map(one).collect::<Result<_, _>>()?;
                }
                word => return Err(UsageError::new(format!("unknown option `{word}`\n\n{USAGE}"))),
            }
        }
        Ok(options)
    }
}

fn rivals() -> Result<Vec<Rival>> {
    Ok(vec![
        Rival::Evenkeel(workspace::dist_binary()),
        Rival::Gecode(needs::require("minizinc")?),
        Rival::Highs(needs::highs_python()?),
    ])
}

/// One site is no question: what it takes is what starting and reading takes.
fn cases(options: &Options) -> Vec<Case> {
    let of = |family, label, sites, by_cost| Case { family, label, sites, by_cost };
    let mut cases = vec![of(Family::Hot, "start alone", 1, false)];
    for &sites in &options.sites {
        let all = FAMILIES.iter().map(|&(family, label)| of(family, label, sites, false));
        let cost = FAMILIES.iter().filter(|(_, label)| FOR_COST.contains(label));
        let cost = cost.map(|&(family, label)| of(family, label, sites, true));
        cases.extend(all.chain(cost));
    }
    cases
}

/// All rounds of every rival.
fn measure(
    case: &Case,
    rivals: &[Rival],
    options: &Options,
    bench: &Workbench,
) -> Result<Vec<Vec<Outcome>>> {
    let files = Files::write(case, bench)?;
    let mut rows: Vec<Vec<Outcome>> = vec![Vec::new(); rivals.len()];
    for round in 0..options.rounds {
        for turn in 0..rivals.len() {
            let place = (turn + round) % rivals.len();
            if rows[place].iter().all(|outcome| outcome.is_proven) {
                let rival = &rivals[place];
                let outcome = rival.ask(case, &files, options.cap_seconds);
                let outcome =
                    outcome.with_context(|| format!("{}, {}", rival.name(), case.name()))?;
                rows[place].push(outcome);
            }
        }
    }
    Ok(rows)
}

/// Proven answers are the same.
fn agree(case: &Case, rivals: &[Rival], rows: &[Vec<Outcome>]) -> Result<()> {
    let mut known: Option<(&Rival, Option<u64>)> = None;
    for (rival, outcomes) in rivals.iter().zip(rows) {
        for outcome in outcomes.iter().filter(|outcome| outcome.is_proven) {
            let (first, objective) = *known.get_or_insert((rival, outcome.objective));
            anyhow::ensure!(
                objective == outcome.objective,
                "{}: {} proves {objective:?}, {} proves {:?}",
                case.name(),
                first.name(),
                rival.name(),
                outcome.objective
            );
        }
    }
    Ok(())
}

fn head(rivals: &[Rival]) -> String {
    let mut head = format!("{:<22} {:>10} {:>10}", "instance", "solve", rivals[0].name());
    for rival in &rivals[1..] {
        head += &format!(" {:>10} {:>8}", rival.name(), "ratio");
    }
    head
}

fn line(case: &Case, rows: &[Vec<Outcome>]) -> String {
    let of = |row: &[Outcome], value: fn(&Outcome) -> f64| {
        statistics::median(&row.iter().map(value).collect::<Vec<_>>())
    };
    let own = &rows[0];
    let cpu_ms = |row: &[Outcome]| {
        let sign = if row.iter().all(|outcome| outcome.is_proven) { "" } else { "> " };
        format!("{sign}{}", milliseconds(of(row, |outcome| outcome.cpu_ms)))
    };
    let solve = milliseconds(of(own, |outcome| outcome.solve_ms));
    let mut line = format!("{:<22} {solve:>10} {:>10}", case.name(), cpu_ms(own));
    for row in &rows[1..] {
        let parts = row.iter().zip(own);
        let ratios: Vec<f64> = parts.map(|(other, own)| other.cpu_ms / own.cpu_ms).collect();
        let sign = if row.iter().all(|outcome| outcome.is_proven) { "" } else { "> " };
        let ratio = format!("{sign}{:.0}", statistics::median(&ratios));
        line += &format!(" {:>10} {ratio:>8}", cpu_ms(row));
    }
    line
}

fn milliseconds(ms: f64) -> String {
    match ms {
        ..10.0 => format!("{ms:.1} ms"),
        10.0..1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let options = Options::parse(&["--sites", "5,16", "--rounds", "2"]).unwrap();
        assert_eq!(options, Options { rounds: 2, cap_seconds: 20, sites: vec![5, 16] });
        let error = Options::parse(&["--sites", "5,99"]).unwrap_err().to_string();
        assert_eq!(error, "--sites: got `99`, expected a number from 2 to 32");
        assert!(Options::parse(&["--what", "1"]).is_err());
        assert!(Options::parse(&["--rounds"]).is_err());
    }

    #[test]
    fn a_ratio_is_of_the_same_round_and_a_cap_is_told() {
        let outcome =
            |cpu_ms, is_proven| Outcome { cpu_ms, solve_ms: 1.0, objective: Some(7), is_proven };
        let case = Case { family: Family::Hot, label: "hot", sites: 8, by_cost: true };
        let rows = [
            vec![outcome(2.0, true), outcome(4.0, true), outcome(4.0, true)],
            vec![outcome(20_000.0, false)],
            vec![outcome(20.0, true), outcome(40.0, true), outcome(48.0, true)],
        ];
        let words: Vec<String> = line(&case, &rows).split_whitespace().map(Into::into).collect();
        let words = words.join(" ");
        assert_eq!(words, "8 hot, cost 1.0 ms 4.0 ms > 20.0 s > 10000 40 ms 10");
    }
}
