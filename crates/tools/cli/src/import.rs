//! `evenkeel import`: a log of another proxy, or spans, as a recorded day.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use evenkeel_records::DayWriter;
use evenkeel_replay::day::Ready;
use evenkeel_replay::import::{Format, Options, import};

use crate::flag::FlagError;
use crate::output;
use crate::replay::REFUSED;

/// Make a recorded day of a log, for `evenkeel replay`: nginx, haproxy, envoy, otlp.
///
/// It says what the format suffices for. Logs of slow requests and sampled spans are refused (exit
/// 3): whether a request waits depends on all others. Which fields a log needs is in
/// docs/replay.md. Of addresses only their number is kept.
///
/// Example: evenkeel import nginx access.log DAY --policy round-robin
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArguments {
    /// nginx, haproxy, envoy, otlp (also known and refused: cassandra-slow, redis-slowlog).
    #[arg(value_parser = format)]
    format: Format,
    /// The log; - for stdin.
    log: PathBuf,
    /// The directory of the day, which must not have one yet.
    day: PathBuf,
    /// The policy that the log ran under, where its lines name none (policy=NAME): round-robin,
    /// least-outstanding, two-choices, …
    #[arg(long)]
    policy: Option<String>,
}

fn format(name: &str) -> Result<Format, FlagError> {
    let names = || Format::ALL.map(Format::name).join(", ");
    Format::named(name).ok_or_else(|| FlagError::Expected(format!("one of {}", names())))
}

fn open(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Box::new(BufReader::new(file)))
}

pub(crate) fn run(arguments: &ImportArguments) -> anyhow::Result<ExitCode> {
    let options = Options { policy: arguments.policy.clone() };
    let imported = match import(arguments.format, open(&arguments.log)?, &options) {
        Ok(imported) => imported,
        Err(error) if error.is_refusal() => {
            eprintln!("evenkeel: {error}");
            return Ok(ExitCode::from(REFUSED));
        }
        Err(error) => {
            return Err(anyhow::Error::new(error).context(arguments.log.display().to_string()));
        }
    };
    Ready::check(&imported.manifest)?;
    let totals = DayWriter::write(&arguments.day, &imported.manifest, &imported.day)?;
    output::line!(
        "{} copies to {} replicas, of {} lines ({} without a replica, {} wrong), in {}\n\
         suffices for: {}",
        totals.rows,
        imported.manifest.replicas.len(),
        imported.lines,
        imported.skipped,
        imported.wrong,
        arguments.day.display(),
        arguments.format.suffices_for()
    )?;
    match &imported.manifest.policies[..] {
        [] => output::line!("nobody knows the day's policy: import with --policy to replay it")?,
        [_] => output::line!(
            "no line ran under another policy: answers are ranges, with --unproven (docs/replay.md)"
        )?,
        [policy, explored, ..] => output::line!("{policy}, slices under {explored}")?,
    }
    Ok(ExitCode::SUCCESS)
}
