//! `cargo xtask bench http --latency`: what a proxy adds to the latency of an answer at a fifth of
//! the load that HAProxy can carry.
//!
//! Signal: p50 and p99 of `evenkeel load` (open loop, Poisson arrivals, since a request left)
//! through each proxy, less those without a proxy in the same round. The order rotates, all have
//! the same arrivals in a round, and the comparison is the difference to HAProxy within a round,
//! summarised by its median with a distribution-free interval. All share the generator's lateness:
//! of one machine only differences say something.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Load, Options, Running, WARM_UP, measure_one};
use crate::bench::{order, process, statistics};

/// Of the load that the reference carries.
const SHARE: f64 = 0.2;
/// Without a proxy.
const DIRECT: &str = "none";

/// Latencies of one run, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// What was found by whom, round by round.
struct Series {
    name: &'static str,
    port: u16,
    rounds: Vec<Latency>,
}

/// Measures those that run, and a backend without them; the table.
pub(super) fn run(
    load: &Load,
    running: &mut [Running],
    backend_port: u16,
    (reference, program): (&str, &Path),
    options: &Options,
) -> Result<String> {
    let mut rate = 0.0;
    for one in running.iter_mut() {
        let carried = measure_one(load, one, WARM_UP)?.requests_per_second;
        if one.proxy.name == reference {
            rate = (carried * SHARE).round();
        }
    }
    let of = |one: &Running| (one.proxy.name, one.server.port());
    let all = running.iter().map(of).chain([(DIRECT, backend_port)]);
    let series = |(name, port)| Series { name, port, rounds: Vec::new() };
    let mut all: Vec<Series> = all.map(series).collect();
    let length = Duration::from_secs(options.seconds);
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for index in order(round, all.len()) {
            let Series { name, port, .. } = all[index];
            let measured = ask(program, port, rate, length, (round, options.connections));
            all[index].rounds.push(measured.with_context(|| format!("load on {name}"))?);
        }
    }
    Ok(table(&all, reference, rate, options))
}

/// Asks `port` this often.
fn ask(
    program: &Path,
    port: u16,
    rate: f64,
    length: Duration,
    (seed, connections): (usize, u32),
) -> Result<Latency> {
    let output = process::child(program)
        .args(["load", &format!("http://127.0.0.1:{port}/"), "--json"])
        .args(["--rate", &rate.to_string(), "--duration", &format!("{}s", length.as_secs())])
        .args(["--seed", &seed.to_string(), "--connections", &connections.to_string()])
        .output()
        .context("evenkeel load could not be started")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("evenkeel load: {}", String::from_utf8_lossy(&output.stderr));
    }
    parse(&text)
}

fn parse(text: &str) -> Result<Latency> {
    let report: Value = serde_json::from_str(text).context("evenkeel load's report")?;
    let run = &report["runs"][0];
    let us = |key: &str| {
        let ms = run[key].as_f64();
        ms.map(|ms| ms * 1e3).with_context(|| format!("no {key} in {text}"))
    };
    if run["served"] != run["requests"] {
        bail!("of {} requests {} were answered well", run["requests"], run["served"]);
    }
    Ok(Latency { p50: us("service_p50_ms")?, p99: us("service_p99_ms")? })
}

fn table(all: &[Series], reference: &str, rate: f64, options: &Options) -> String {
    let of = |name: &str| all.iter().find(|series| series.name == name);
    let (direct, reference) = (of(DIRECT), of(reference));
    let (direct, reference) = direct.zip(reference).expect("both are measured");
    let mut text = format!(
        "latency at {rate:.0} requests/s: {} rounds x {} s, up to {} connections, {} B bodies, one \
         worker each\n\n{:<10} {:>9} {:>9} {:>26} {:>9} {:>9} {:>26}\n",
        options.rounds,
        options.seconds,
        options.connections,
        options.bytes,
        "proxy",
        "p50 us",
        "added",
        format!("more than {} (95 %)", reference.name),
        "p99 us",
        "added",
        format!("more than {} (95 %)", reference.name),
    );
    for series in all {
        let _ = write!(text, "{:<10}", series.name);
        for of in [|it: &Latency| it.p50, |it: &Latency| it.p99] {
            let each: Vec<f64> = series.rounds.iter().map(of).collect();
            let less = |other: &Series| -> Vec<f64> {
                each.iter().zip(other.rounds.iter().map(of)).map(|(a, b)| a - b).collect()
            };
            let (all, added) = (statistics::median(&each), statistics::median(&less(direct)));
            let more = difference(&less(reference));
            let _ = write!(text, " {all:>9.1} {added:>9.1} {more:>26}");
        }
        text.push('\n');
    }
    text.push_str("\ndifferences are medians over rounds; an interval that holds 0 is a tie\n");
    text
}

/// The median with its interval.
pub(super) fn difference(values: &[f64]) -> String {
    let (low, high) = statistics::median_interval(values).expect("too few rounds are refused");
    format!("{:+.1} ({low:+.1} to {high:+.1})", statistics::median(values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_http::proxies::HTTP;

    #[test]
    fn percentiles_are_read_and_a_failed_request_spoils_them() {
        let report = |served| {
            let figures = r#""service_p50_ms":0.101,"service_p99_ms":0.25"#;
            format!(r#"{{"runs":[{{"requests":9,"served":{served},{figures}}}]}}"#)
        };
        assert_eq!(parse(&report(9)).unwrap(), Latency { p50: 101.0, p99: 250.0 });
        let error = parse(&report(6)).unwrap_err().to_string();
        assert_eq!(error, "of 9 requests 6 were answered well");
        assert!(parse("{}").is_err());
    }

    #[test]
    fn differences_are_those_within_a_round() {
        let options = Options::parse(&HTTP, &["--rounds", "6"]).unwrap();
        // The machine slows down round by round.
        let series = |name, more: f64| {
            let round = |round| Latency { p50: 50.0 + f64::from(round) + more, p99: 2.0 * more };
            Series { name, port: 0, rounds: (0..6).map(round).collect() }
        };
        let all = [series("haproxy", 10.0), series("evenkeel", 13.0), series(DIRECT, 0.0)];
        let table = table(&all, "haproxy", 4000.0, &options);
        let row = table.lines().find(|line| line.starts_with("evenkeel")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        let (p50, p99) = ("65.5 13.0 +3.0 (+3.0 to +3.0)", "26.0 26.0 +6.0 (+6.0 to +6.0)");
        assert_eq!(words[1..].join(" "), format!("{p50} {p99}"));
    }
}
