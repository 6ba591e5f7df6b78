//! `evenkeel run` and `evenkeel check`: a configuration, started or only read.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::Context as _;
use evenkeel_mesh as redirect;
use evenkeel_proxy::requests::access::timestamp;
use evenkeel_runtime::accept::inherited;
use evenkeel_runtime::component::ReloadError;
use evenkeel_server::config::{Config, LogFormat};
use evenkeel_server::process::{Manager, Process, Reloaded, Wake, check_files};
use evenkeel_settings::Node;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::output;

/// Run the listeners, agents and control loops of a configuration.
///
/// Stops on SIGTERM or Ctrl-C: stops accepting, completes requests in flight, then exits.
/// Reloads on SIGHUP or POST /api/v1/reload: reads the file again and applies all of it without
/// losing a request. It applies nothing if the file is invalid or a change needs a restart.
/// Tells systemd when it is ready, reloads and stops (Type=notify), and listens on the sockets
/// that systemd opened, where they have an address of the configuration.
/// Example: evenkeel run evenkeel.toml
#[derive(Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// The configuration file; docs/configuration.md describes every key.
    config: PathBuf,
    /// Log level on stderr: error, warn (health checks), info, debug (every failed attempt).
    #[arg(long, default_value = "warn", value_name = "LEVEL")]
    log: Level,
    /// Listen beside another process on the same addresses, which you stop then: no client is
    /// refused meanwhile. Only for processes of the same user.
    #[arg(long)]
    take_over: bool,
}

/// Check a configuration and report all problems; start nothing.
///
/// Reads the file as `run` does, with the profiles and certificates of `[redirect]`. Exit 1 if
/// there is a problem; warnings (a certificate that expires within 14 days) do not change the exit
/// code.
/// Example: evenkeel check evenkeel.toml
#[derive(Debug, clap::Args)]
pub(crate) struct CheckArguments {
    /// The configuration file.
    config: PathBuf,
}

pub(crate) fn run(arguments: &RunArguments) -> anyhow::Result<ExitCode> {
    let config = Config::load(&arguments.config)?;
    let format = config.log.format;
    log_to_stderr(arguments.log, format);
    match serve(arguments, config) {
        Err(error) if format == LogFormat::Json => {
            say(Level::ERROR, &format!("{error:#}"));
            Ok(ExitCode::from(2))
        }
        ended => ended,
    }
}

fn serve(arguments: &RunArguments, config: Config) -> anyhow::Result<ExitCode> {
    let mut signals =
        evenkeel_server::process::Signals::catch_with_reload().context("cannot catch signals")?;
    let manager = Manager::of_environment()?;
    inherited::inherit()?;
    let summary = describe(&config);
    tell_doubts(&config);
    let start = match arguments.take_over {
        true => Process::take_over_from,
        false => Process::start_from,
    };
    let process = start(&arguments.config, config)?;
    if let Some(limit) = process.files() {
        say(Level::INFO, &limit.to_string());
    }
    if let Some(shortfall) = process.files_shortfall() {
        say(Level::WARN, shortfall);
    }
    for address in inherited::unused() {
        say(
            Level::WARN,
            &format!("nothing listens on the inherited socket {address}: clients wait there"),
        );
    }
    for address in process.listens() {
        say(Level::INFO, &format!("listening on http://{address}"));
    }
    for address in process.agents() {
        say(Level::INFO, &format!("agent on http://{address}"));
    }
    for (address, state) in process.duplicates() {
        say(Level::INFO, &format!("{}: clients of Redis on {address}", state.borrow().name));
    }
    if let Some(address) = process.admin() {
        say(
            Level::INFO,
            &format!("dashboard on http://{address}/, metrics on http://{address}/metrics"),
        );
    }
    say(Level::INFO, &format!("{summary}; SIGTERM or Ctrl-C stops, SIGHUP reloads"));
    warn(manager.ready(&summary));
    while signals.wait_beside(&process) == Wake::Reload {
        warn(manager.reloading());
        let told = tell_reload(process.reloader().reload_file());
        warn(manager.ready(&told));
    }
    warn(manager.stopping());
    say(Level::INFO, "stopping: completing requests in flight");
    exit_at_next(signals)?;
    process.stop()?;
    Ok(ExitCode::SUCCESS)
}

/// How what is said is written.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

#[derive(serde::Serialize)]
struct Said<'a> {
    timestamp: String,
    level: &'a str,
    message: &'a str,
    target: &'a str,
}

/// Says on stderr what happens to the process, whatever the level of the log: as that writes it.
fn say(level: Level, message: &str) {
    if FORMAT.get() == Some(&LogFormat::Json) {
        let (timestamp, level) = (timestamp(SystemTime::now()), level.as_str());
        let said = Said { timestamp, level, message, target: "evenkeel" };
        let line = serde_json::to_string(&said).expect("texts are always JSON");
        return eprintln!("{line}");
    }
    match level {
        Level::WARN => eprintln!("warning: {message}"),
        _ => eprintln!("{message}"),
    }
}

/// In colours where people read it and do not mind (<https://no-color.org>).
fn log_to_stderr(level: Level, format: LogFormat) {
    FORMAT.get_or_init(|| format);
    let wants_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level);
    // The library of HTTP/2 warns of what any client may do as often as it likes.
    let quiet = if level > Level::INFO { level.into() } else { LevelFilter::ERROR };
    let targets = Targets::new().with_default(level).with_target("h2", quiet);
    match format {
        LogFormat::Text => {
            let with_ansi = wants_colours && std::io::stderr().is_terminal();
            log.with_ansi(with_ansi).finish().with(targets).init();
        }
        LogFormat::Json => log.json().flatten_event(true).finish().with(targets).init(),
    }
}

/// Says what came of a reload, here and in the first line of what is returned.
fn tell_reload(result: Result<Reloaded, ReloadError>) -> String {
    let is_applied = result.is_ok();
    let told = match result {
        Ok(Reloaded { changed, .. }) if changed.is_empty() => "reloaded: no changes".to_owned(),
        Ok(Reloaded { generation, changed }) => {
            format!("reloaded: configuration {generation}; changed: {}", changed.join(", "))
        }
        Err(error) => format!("not reloaded, nothing changed:\n{error}"),
    };
    say(if is_applied { Level::INFO } else { Level::ERROR }, &told);
    told
}

/// Nothing else depends on what the service manager knows.
fn warn(told: std::io::Result<()>) {
    if let Err(error) = told {
        say(Level::WARN, &error.to_string());
    }
}

fn tell_doubts(config: &Config) {
    config.doubts().iter().for_each(|doubt| say(Level::WARN, doubt));
}

/// Who asks a second time does not want to wait for what is in flight.
fn exit_at_next(mut signals: evenkeel_server::process::Signals) -> std::io::Result<()> {
    let wait = move || {
        signals.wait();
        say(Level::INFO, "stopped at once: requests in flight were cut off");
        std::process::exit(130);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

pub(crate) fn check(arguments: &CheckArguments) -> anyhow::Result<ExitCode> {
    let read = Node::load(&arguments.config);
    let read = read.and_then(|file| Config::read(&file).map(|config| (config, file)));
    let (config, file) = match read {
        Ok(read) => read,
        Err(problems) => {
            eprintln!("{problems}");
            return Ok(ExitCode::from(1));
        }
    };
    let of_files = match config.redirect.as_ref().map(redirect::check).transpose() {
        Ok(doubts) => doubts.unwrap_or_default(),
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            return Ok(ExitCode::from(1));
        }
    };
    if let Err(error) = check_files(&config, &file) {
        eprintln!("{error}");
        return Ok(ExitCode::from(1));
    }
    output::line!("{}: valid: {}", arguments.config.display(), describe(&config))?;
    for note in config.notes() {
        output::line!("note: {note}")?;
    }
    tell_doubts(&config);
    of_files.iter().for_each(|doubt| eprintln!("warning: {doubt}"));
    Ok(ExitCode::SUCCESS)
}

/// The configuration in a line.
fn describe(config: &Config) -> String {
    let upstream = |upstream: &evenkeel_server::config::UpstreamEntry| {
        let upstream = &upstream.common;
        let (name, replicas) = (&upstream.name, upstream.replicas.len());
        format!("{name} ({replicas} replicas, {})", upstream.policy.text())
    };
    let upstreams: Vec<_> = config.upstreams.iter().map(upstream).collect();
    let (workers, agents) = (config.process.workers, config.agents.len());
    let agents = if agents == 0 { String::new() } else { format!(", {agents} agents") };
    let upstreams = if upstreams.is_empty() { "none".to_owned() } else { upstreams.join(", ") };
    let placement = config.placement.as_ref().map_or(String::new(), |placement| {
        let how = if placement.dry_run { "dry run" } else { "moves enabled" };
        format!(", placement of {} databases ({how})", placement.databases.len())
    });
    let service = |service: &evenkeel_duplicates::DuplicatesConfig| {
        let duplicates: usize = service.partitions.iter().map(Vec::len).sum();
        let (name, partitions) = (&service.name, service.partitions.len());
        let s = if partitions == 1 { "" } else { "s" };
        format!(", {name}: {duplicates} duplicates in {partitions} partition{s}")
    };
    let duplicates: String = config.duplicates.iter().map(service).collect();
    format!("{workers} workers, upstreams: {upstreams}{agents}{placement}{duplicates}")
}
