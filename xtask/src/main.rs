//! The workspace's own commands: `cargo xtask ci`, `tidy`, `needs`, `schema`, `commands`,
//! `package`, `pgo`, `compare`, `replay-bars`, `drivers`, `histories`, `redis-apps`,
//! `redis-clients`, `redis-suites` and `bench`.
//!
//! Everything a contributor or a CI machine runs is Rust code here and in `tidy`, so that it is
//! read, formatted and tested like the rest and needs no tool beyond cargo.

mod bench;
mod bench_cassandra;
mod bench_http;
mod bench_redirect;
mod bench_redis;
mod bench_sites;
mod ci;
mod compare;
mod drivers;
mod histories;
mod lanes;
mod machine;
mod needs;
mod package;
mod pgo;
mod predict;
mod redis_apps;
mod redis_clients;
mod redis_suites;
mod suite;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci [--from STEP]      all checks for a change, fast ones first; --from STEP starts at the step of
                        that name, such as SDKs
  tidy [--sizes]        repository rules (size, order of crates, cycles of files, links, dead
                        files); --sizes: lines of each crate without tests
  test [OPTIONS]        tests as in ci, several binaries at once; for example -p evenkeel-core
  needs [--install | --for-tests]
                        the real servers for tests and benchmarks: found, missing; installs all
                        that are missing, or those for tests
  schema                the JSON Schema of configurations, docs/evenkeel.schema.json, from the
                        tables of docs/configuration.md
  commands              what becomes of each command of Redis before duplicates, in
                        docs/duplicates-commands.md, from the table of the code
  package [OPTIONS]     a Debian package, a container image, SBOM and checksums in
                        target/package; --help: options
  pgo                   the program of packages by a profile of its own work, which packages with
                        --pgo have: in target/pgo; takes 30 minutes and most of the real servers
  compare [OPTIONS]     latency, failed requests and CPU before five replicas of which one is well,
                        pauses, is slow or hangs, beside HAProxy, nginx and Envoy; --help: options
  predict [OPTIONS]     what the simulator foretells, beside what sockets show; fails when it is
                        wrong by more than a tenth; --help: options
  replay-bars --simulated|--random|--dimmer|--speed|--real [OPTIONS]
                        how often a rebuilt world foretells the tail under other policies, in
                        eight worlds whose truth is known; whether it names the best in worlds
                        drawn at random; other setpoints of the dimmer; what a long day costs;
                        days of nginx, a shop and Cassandra beside what really came; --help: options
  drivers NAME=FOLDER...
                        the integration suites of Cassandra drivers (gocql, scylla, python) from
                        checkouts, against a node and through Evenkeel
  redis-suites [SUITE...]
                        Redis's own tests and those of redis-py, at one plain Redis and through a
                        front with three duplicates; SUITE: redis-py, redis-py-caching (only where
                        it is asked for: EVENKEEL_REDIS_SERVER must be a Redis 7.4), or a unit of
                        Redis such as unit/multi
  redis-apps [OPTIONS]  RQ, Celery, BullMQ, django-redis and Redisson's locks under random faults,
                        through a front and at one plain Redis: jobs lost and done twice; --help:
                        options
  redis-clients         libraries of Redis Cluster (redis-py, go-redis, ioredis, Jedis, lettuce) at
                        two fronts, of which the leading one is killed and told to end
  histories [OPTIONS]   clients of two fronts before three duplicates of Redis, while everything
                        fails: whether what they saw can be; --help: options
  bench core            benchmarks of the decision code (cargo bench -p evenkeel-core)
  bench redirect [OPTIONS]
                        CPU for a proven redistribution plan, compared with Gecode and HiGHS
  bench http [OPTIONS]  CPU per proxied request, compared with HAProxy and nginx; --help: options
  bench instructions [OPTIONS]
                        instructions per proxied request beside those on record; --help: options
  bench agent [OPTIONS] CPU per request of an agent and its dimmer, compared with plain proxying
  bench record [OPTIONS] CPU per request and bytes on disk while the day is recorded
  bench redis [OPTIONS] CPU, throughput and latency of duplicates of Redis, compared with Envoy
                        and twemproxy
  bench expiry [OPTIONS]
                        what it costs that keys expire alike at all duplicates of Redis, and which
                        differ otherwise, by four ways; --help: options
  bench cassandra [OPTIONS]
                        tail latency, throughput and CPU, compared with drivers' default policies,
                        while nodes of a real Cassandra are paused, throttled and compacting
  bench sites [OPTIONS] late requests of three data centres of a real Cassandra: with plans,
                        without, and with fixed splits; --help: options

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
        ["ci"] => ci::run(None),
        ["ci", "--from", name] => ci::run(Some(name)),
        ["tidy"] => xtask_tidy::run(),
        ["tidy", "--sizes"] => xtask_tidy::print_sizes(),
        ["test", packages @ ..] => suite::run(packages, &[]),
        ["needs"] => needs::run(needs::Install::Never),
        ["needs", "--install"] => needs::run(needs::Install::Missing),
        ["needs", "--for-tests"] => needs::run(needs::Install::MissingForTests),
        ["package", options @ ..] => package::run(options),
        ["pgo"] => pgo::run(),
        ["schema"] => xtask_tidy::schema::write(),
        ["commands"] => workspace::run_cargo(
            &["test", "-p", "evenkeel-stores", "--lib", "the_page_in_the_documentation"],
            &[("EVENKEEL_WRITE_PAGE", "1")],
        ),
        ["compare", options @ ..] => compare::run(options),
        ["predict", options @ ..] => predict::run(options),
        ["replay-bars", "--real", options @ ..] => replay_real(options),
        ["replay-bars", options @ ..] => {
            let bars = ["run", "--release", "-p", "evenkeel-replay", "--example", "bars", "--"];
            workspace::run_cargo(&[&bars[..], options].concat(), &[])
        }
        ["drivers", suites @ ..] => drivers::run_suites(suites),
        ["histories", options @ ..] => histories::run(options),
        ["redis-clients"] => redis_clients::run(),
        ["redis-suites", suites @ ..] => redis_suites::run(suites),
        ["redis-apps", options @ ..] => redis_apps::run(options),
        ["bench", "core"] => workspace::run_cargo(
            &["bench", "-p", "evenkeel-core", "-p", "evenkeel-geo", "-p", "evenkeel-planner"],
            &[],
        ),
        ["bench", "redirect", options @ ..] => bench_redirect::run(options),
        ["bench", suite @ ("http" | "agent" | "record"), options @ ..] => {
            bench_http::run(suite, options)
        }
        ["bench", "instructions", options @ ..] => bench_http::instructions::run(options),
        ["bench", "redis", options @ ..] => bench_redis::run(options),
        ["bench", "expiry", options @ ..] => bench_redis::expiry::run(options),
        ["bench", "cassandra", options @ ..] => bench_cassandra::run(options),
        ["bench", "sites", options @ ..] => bench_sites::run(options),
        [] => Err(UsageError::new(format!("no command given\n\n{USAGE}")).into()),
        _ => {
            let command = words.join(" ");
            Err(UsageError::new(format!("unknown command `{command}`\n\n{USAGE}")).into())
        }
    }
}

/// Real servers behind the programs of this tree.
fn replay_real(options: &[&str]) -> Result<()> {
    let programs = ["build", "--release", "-p", "evenkeel", "-p", "evenkeel-shop", "--bins"];
    workspace::run_cargo(&programs, &[])?;
    let real = ["run", "--release", "-p", "evenkeel-replay", "--example", "real", "--"];
    workspace::run_cargo(&[&real[..], options].concat(), &[])
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
