//! `cargo xtask histories`: clients of two fronts before three real duplicates, while everything
//! fails, and whether what they saw and what is there at the end can be.
//!
//! The story and the checkers are tests (`crates/tools/cli/tests/duplicates/soak.rs`, `deeds.rs`).
//! It is run by hand: a million operations and 500 failures take an hour.

use anyhow::Result;

use crate::drivers::run as run_in;
use crate::{UsageError, workspace};

const USAGE: &str = "\
usage: cargo xtask histories [OPTIONS]

  --operations N   operations of clients, at least (default 1000000)
  --faults N       failures, at least, of all kinds (default 500)
  --seed N         chance begins with this number (default 2)
  --seeds N        so many runs, with the numbers behind it too (default 1)
  --in-memory      the logs of the fronts are in memory
  --debug          the program without optimization, as other tests have it

example: cargo xtask histories --operations 100000 --faults 50 --seeds 4";

/// The test that runs it.
const TEST: &str = "whatever_fails_for_long_no_write_is_lost_and_duplicates_are_equal";

/// Runs histories until so much was done.
///
/// # Errors
/// When an option is unknown, or a history is wrong.
pub(crate) fn run(options: &[&str]) -> Result<()> {
    let mut variables = vec![("OPERATIONS", "1000000".to_owned()), ("FAULTS", "500".to_owned())];
    let (mut is_debug, mut words) = (false, options.iter());
    while let Some(&option) = words.next() {
        let name = match option {
            "--help" => {
                println!("{USAGE}");
                return Ok(());
            }
            "--debug" => {
                is_debug = true;
                continue;
            }
            "--in-memory" => {
                variables.push(("IN_MEMORY", "1".to_owned()));
                continue;
            }
            "--operations" => "OPERATIONS",
            "--faults" => "FAULTS",
            "--seed" => "SEED",
            "--seeds" => "SEEDS",
            _ => {
                return Err(UsageError::new(format!("unknown option `{option}`\n\n{USAGE}")).into());
            }
        };
        let number = words.next().and_then(|word| word.parse::<u64>().ok()).ok_or_else(|| {
            UsageError::new(format!("a number was expected behind {option}\n\n{USAGE}"))
        })?;
        variables.push((name, number.to_string()));
    }
    let mut command = workspace::cargo();
    command.args(["test", "-p", "evenkeel", "--test", "duplicates"]);
    if !is_debug {
        command.arg("--release");
    }
    command.args(["--", "--ignored", "--exact", "--nocapture", TEST]);
    for (name, value) in variables {
        command.env(format!("EVENKEEL_HISTORIES_{name}"), value);
    }
    run_in(&mut command, &workspace::root())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_option_or_number_is_said() {
        for (options, expected) in [
            (&["--seed"][..], "behind --seed"),
            (&["--faults", "many"], "behind --faults"),
            (&["--fault", "5"], "unknown option `--fault`"),
        ] {
            let error = run(options).unwrap_err();
            assert!(error.is::<UsageError>() && error.to_string().contains(expected), "{error}");
        }
    }
}
