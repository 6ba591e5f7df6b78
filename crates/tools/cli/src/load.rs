//! `evenkeel load`: open-loop load on a URL.

mod cassandra;

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use evenkeel_load::{
    Arrivals, CassandraTarget, LatencyFigures, Load, Outcome, Parameters, Plan, Report, Scale,
    Spacing, Stop, Target, Trace, TraceOptions, TraceStart,
};
use evenkeel_settings::{parse_duration, parse_rate};
use serde::Serialize;

use cassandra::CassandraArguments;

use crate::output;
use crate::terminal::{Progress, Table, ms, ms_if_known};

/// Send open-loop load to a URL: requests leave on schedule, whatever happened to earlier ones.
///
/// Latency counts from the moment a request was due, so a pause shows in all delayed requests.
/// Examples: evenkeel load http://127.0.0.1:8080/item/{key} --keys 1000 --rate 500/s --duration 30s
/// evenkeel load cql://127.0.0.1/shop --workload b --fill --rate 500/s --duration 30s
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArguments {
    /// The URL: `http://…`, where `{key}` is a random key for each request and an `n` in braces
    /// its number, or `cql://host:port/keyspace`.
    url: String,
    /// Requests per second, as in `500` or `30k/s`. With a trace: its mean rate.
    #[arg(long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// Duration. Default 10 s, or the length of the trace.
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Timeout of a request, from the time it was due.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
    /// Report the share of requests slower than this, including failures.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    objective: Option<Duration>,
    /// Send at equal intervals instead of Poisson arrivals.
    #[arg(long)]
    constant: bool,
    /// A CSV file of request rates over time.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Start at the row with this time, as written in the file.
    #[arg(long, value_name = "TIME", requires = "trace")]
    trace_from: Option<String>,
    /// Speed of the trace: 60 plays an hour in a minute.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "trace")]
    trace_speed: f64,
    /// Number of keys for `{key}`, counted from 0. Default 1.
    #[arg(long)]
    keys: Option<u64>,
    /// Zipf exponent of the keys: 0 is uniform (the default), 0.99 is YCSB's.
    #[arg(long)]
    skew: Option<f64>,
    /// The HTTP method. Default GET.
    #[arg(long)]
    method: Option<String>,
    /// A header, `Name: value`; repeatable.
    #[arg(long)]
    header: Vec<String>,
    /// A body, with `{key}` or an `n` in braces as in the URL.
    #[arg(long)]
    body: Option<String>,
    /// Maximum connections. Default 1,000; for Cassandra 4, shared by requests.
    #[arg(long)]
    connections: Option<usize>,
    /// Random seed of arrivals and keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Write the latency distribution to this file, in HdrHistogram's percentile format.
    #[arg(long, value_name = "FILE")]
    histogram: Option<PathBuf>,
    #[command(flatten)]
    cassandra: CassandraArguments,
}

impl LoadArguments {
    /// An argument that only HTTP understands, if one is given.
    fn first_of_http(&self) -> Option<&'static str> {
        let given = [
            ("--keys", self.keys.is_some()),
            ("--method", self.method.is_some()),
            ("--header", !self.header.is_empty()),
            ("--body", self.body.is_some()),
        ];
        given.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }
}

#[derive(Serialize)]
struct Document<'a> {
    runs: [&'a Report; 1],
    scenario: &'a Parameters,
}

/// Requests per second when nothing is said.
const RATE_DEFAULT: f64 = 100.0;

pub(crate) fn run(arguments: &LoadArguments) -> anyhow::Result<ExitCode> {
    let stop = Stop::new();
    let _ = evenkeel_runtime::files::raise(); // else what opens no connection says so
    let percent = Progress::new("loading", 100);
    let on_progress = |progress: &evenkeel_load::Progress| {
        let end = progress.end.unwrap_or(progress.elapsed);
        let share = progress.elapsed.as_secs_f64() / end.as_secs_f64().max(1e-9);
        percent.show((share * 100.0).min(100.0) as usize);
    };
    let (parameters, outcome) = if CassandraTarget::is_meant(&arguments.url) {
        let load = cassandra::prepare(arguments)?;
        stop_on_interrupt(&stop)?;
        cassandra::fill(&load, arguments, &stop)?;
        (load.parameters(), load.run(&stop, on_progress)?)
    } else {
        let load = prepare(arguments)?;
        stop_on_interrupt(&stop)?;
        (load.parameters(), load.run(&stop, on_progress)?)
    };
    percent.clear();
    if let Some(path) = &arguments.histogram {
        let written =
            File::create(path).and_then(|mut file| outcome.latency.write_percentiles(&mut file));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.json {
        let document = Document { runs: [&outcome.report], scenario: &parameters };
        output::json(&document)?;
    } else {
        output::text!("{}", words(&outcome, parameters.objective_ms))?;
    }
    Ok(exit_code(&outcome.report))
}

fn exit_code(report: &Report) -> ExitCode {
    match report {
        report if report.cancelled => ExitCode::from(130),
        report if report.served == report.requests => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    }
}

fn prepare(arguments: &LoadArguments) -> anyhow::Result<Load> {
    if let Some(name) = arguments.cassandra.first_given() {
        bail!("{name} is for cql://, not for http://");
    }
    let mut target = Target::new([arguments.url.as_str()])?;
    let method = arguments.method.as_deref().unwrap_or("GET");
    target.method = method.parse().context("--method")?;
    target.keys.count = arguments.keys.unwrap_or(1);
    target.keys.skew = arguments.skew.unwrap_or(0.0);
    for line in &arguments.header {
        target.header(line)?;
    }
    if let Some(body) = &arguments.body {
        target.body(body);
    }
    let mut load = Load::new(target, plan(arguments)?);
    load.connections_max = arguments.connections.unwrap_or(load.connections_max);
    Ok(load)
}

fn plan(arguments: &LoadArguments) -> anyhow::Result<Plan> {
    let default = arguments.trace.is_none().then_some(Duration::from_secs(10));
    Ok(Plan {
        seed: arguments.seed,
        timeout: arguments.timeout,
        objective: arguments.objective,
        duration: arguments.duration.or(default),
        ..arrivals(arguments)?.into()
    })
}

fn arrivals(arguments: &LoadArguments) -> anyhow::Result<Arrivals> {
    let Some(file) = &arguments.trace else {
        let rate = arguments.rate.unwrap_or(RATE_DEFAULT);
        let make = if arguments.constant { Arrivals::constant } else { Arrivals::poisson };
        return Ok(make(rate)?);
    };
    let start = arguments.trace_from.clone().map(TraceStart::Time);
    let options = TraceOptions {
        start: start.unwrap_or(TraceStart::Row(0)),
        compression: arguments.trace_speed,
        scale: arguments.rate.map_or(Scale::Factor(1.0), Scale::Mean),
        ..TraceOptions::default()
    };
    let spacing = if arguments.constant { Spacing::Even } else { Spacing::Poisson };
    Ok(Arrivals::trace(Trace::open(file, &options)?, spacing))
}

/// Ends the load on Ctrl-C, so that what was measured until then is kept; and everything at once
/// when it comes again.
pub(crate) fn stop_on_interrupt(stop: &Stop) -> anyhow::Result<()> {
    let mut signals = evenkeel_server::process::Signals::catch().context("cannot catch signals")?;
    let stop = stop.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        signals.wait();
        stop.stop();
        signals.wait();
        std::process::exit(130);
    })?;
    Ok(())
}

fn words(outcome: &Outcome, objective_ms: Option<f64>) -> String {
    let report = &outcome.report;
    let mut table = Table::new(&["latency ms", "mean", "p50", "p95", "p99", "p99.9", "max"]);
    let mut row = |name: String, it: &LatencyFigures| {
        let figures = [it.mean_ms, it.p50_ms, it.p95_ms, it.p99_ms, it.p999_ms, it.max_ms];
        table.row([name].into_iter().chain(figures.map(ms_if_known)));
    };
    row("from due time".to_owned(), &report.latency);
    row("from sending".to_owned(), &outcome.service.figures());
    for one in &report.operations {
        row(format!("{} × {}", one.requests, one.operation), &one.latency);
    }
    let mut text = format!(
        "{} requests in {:.1} s ({:.0}/s asked, {:.0}/s served): {} served, {} failed, \
         {} timed out\n{table}",
        report.requests,
        report.duration_s,
        report.offered_rate,
        report.achieved_rate,
        report.served,
        report.failed,
        report.timeouts,
    );
    if let (Some(share), Some(objective_ms)) = (report.missed_share, objective_ms) {
        let late = share * 100.0;
        text += &format!("{late:.2} % missed the objective of {} ms\n", ms(objective_ms));
    }
    for failure in &report.failures {
        text += &format!("{:>8} × {}\n", failure.count, failure.message);
    }
    if let Some(doubt) = report.doubt() {
        text += &format!("Note: {doubt}\n");
    }
    text
}
