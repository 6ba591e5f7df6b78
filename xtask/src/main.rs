//! The workspace's own commands: `cargo xtask ci`, `tidy`, `needs`, `drivers` and `bench`.
//!
//! Everything a contributor or a CI machine runs is Rust code in this crate, so that it is read,
//! formatted and tested like the rest and needs no tool beyond cargo.

mod bench;
mod bench_cassandra;
mod bench_http;
mod bench_redirect;
mod bench_redis;
mod ci;
mod drivers;
mod machine;
mod needs;
mod tests_step;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci                    every check a change must pass, in the order that fails soonest
  tidy                  the house rules a compiler cannot check (size, layering, links, dead files)
  needs [--install]     the real servers that tests drive: what was found, what is missing
  drivers NAME=FOLDER...
                        the own integration suites of drivers of Cassandra (gocql, scylla, python)
                        from checkouts, at a node and through Evenkeel
  bench core            benchmarks of the decision code (cargo bench -p evenkeel-core)
  bench redirect [OPTIONS]
                        CPU to a proven redistribution plan beside Gecode and HiGHS
  bench http [OPTIONS]  CPU per proxied request beside HAProxy and nginx; --help lists the options
  bench agent [OPTIONS] CPU per request of an agent and its dimmer beside plain proxying
  bench redis [OPTIONS] CPU, throughput and latency of duplicates of Redis beside Envoy and
                        twemproxy
  bench cassandra [OPTIONS]
                        tail latency, throughput and CPU beside drivers' default policies, with
                        nodes of a real Cassandra paused, throttled and compacting

example: cargo xtask bench http --rounds 12 --json";

/// A command line that cannot be carried out; ends the program with status 2.
#[derive(Debug)]
pub(crate) struct UsageError(String);

impl UsageError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl std::fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

fn dispatch(words: &[&str]) -> Result<()> {
    match words {
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        ["ci"] => ci::run(),
        ["tidy"] => tidy::run(),
        ["needs"] => needs::run(needs::Install::Never),
        ["needs", "--install"] => needs::run(needs::Install::Missing),
        ["drivers", suites @ ..] => drivers::run_suites(suites),
        ["bench", "core"] => workspace::run_cargo(&["bench", "-p", "evenkeel-core"], &[]),
        ["bench", "redirect", options @ ..] => bench_redirect::run(options),
        ["bench", "http", options @ ..] => bench_http::run(options),
        ["bench", "agent", options @ ..] => bench_http::run_agent(options),
        ["bench", "redis", options @ ..] => bench_redis::run(options),
        ["bench", "cassandra", options @ ..] => bench_cassandra::run(options),
        [] => Err(UsageError::new(format!("no command given\n\n{USAGE}")).into()),
        _ => {
            let command = words.join(" ");
            Err(UsageError::new(format!("unknown command `{command}`\n\n{USAGE}")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_is_a_usage_error_that_repeats_it() {
        let error = dispatch(&["benhc", "http"]).unwrap_err();
        assert!(error.is::<UsageError>());
        assert!(error.to_string().starts_with("unknown command `benhc http`"));
    }

    #[test]
    fn no_command_is_a_usage_error() {
        assert!(dispatch(&[]).unwrap_err().is::<UsageError>());
    }
}
