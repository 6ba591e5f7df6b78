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
use evenkeel_server::process::{
    Manager, Outcome, Process, Reloaded, Signals, Wake, Watch, check_files,
};
use evenkeel_settings::Node;
use evenkeel_settings::address::ListenAddress;
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
/// On SIGUSR2 it starts its program anew with --take-over, to upgrade without a gap.
/// Example: evenkeel run evenkeel.toml
#[derive(Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// The configuration file; docs/configuration.md describes every key.
    config: PathBuf,
    /// Log level on stderr: error, warn (health checks), info, debug (every failed attempt).
    #[arg(long, default_value = "warn", value_name = "LEVEL")]
    log: Level,
    /// Replace the process that runs with this file: get its sockets, accept clients once ready,
    /// and let it drain and exit then. No client is refused meanwhile. If this one does not become
    /// ready, the other one goes on. Only for processes of the same user.
    #[arg(long)]
    take_over: bool,
    /// Reload whenever the file has changed, however it is written or replaced. A file that cannot
    /// be applied changes nothing; the problem is printed once.
    #[arg(long)]
    watch: bool,
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
    let watch = arguments.watch.then(|| Watch::new(&arguments.config));
    let config = Config::load(&arguments.config)?;
    let format = config.log.format;
    log_to_stderr(arguments.log, format);
    match start(arguments, config, watch) {
        Err(error) if format == LogFormat::Json => {
            say(Level::ERROR, &format!("{error:#}"));
            Ok(ExitCode::from(2))
        }
        ended => ended,
    }
}

fn start(
    arguments: &RunArguments,
    config: Config,
    watch: Option<Watch>,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::catch_with_reload().context("cannot catch signals")?;
    let manager = Manager::of_environment()?;
    inherited::inherit()?;
    let summary = describe(&config);
    tell_doubts(&config);
    let start = match arguments.take_over {
        true => Process::replace,
        false => Process::start_from,
    };
    let mut process = start(&arguments.config, config)?;
    let outcome = match signals.take_over(&mut process) {
        Ok(outcome) => outcome,
        Err(error) => {
            process.stop()?;
            return Err(error.into());
        }
    };
    tell_take_over(arguments, outcome);
    tell_addresses(&process);
    say(Level::INFO, &format!("{summary}; SIGTERM or Ctrl-C stops, SIGHUP reloads"));
    warn(manager.ready(&summary));
    serve(&mut signals, &process, &manager, watch);
    exit_at_next(signals)?;
    process.stop()?;
    Ok(ExitCode::SUCCESS)
}

fn tell_take_over(arguments: &RunArguments, outcome: Option<Outcome>) {
    match outcome {
        Some(Outcome::Replaced(other)) => {
            say(Level::INFO, &format!("replaced process {other}, which drains"));
        }
        Some(Outcome::Ended(other)) => {
            say(Level::INFO, &format!("process {other} ended: serving in its place"));
        }
        Some(Outcome::Silent(other)) => say(
            Level::WARN,
            &format!("process {other} does not say that it stops: stop it, both accept clients"),
        ),
        None if arguments.take_over => {
            say(Level::INFO, "no process to take over from: serving as the first one");
        }
        None => {}
    }
}

fn tell_addresses(process: &Process) {
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
    for address in process.places() {
        say(Level::INFO, &format!("listening on {}", url(&address)));
    }
    for address in process.agents() {
        say(Level::INFO, &format!("agent on http://{address}"));
    }
    for (address, state) in process.duplicates() {
        say(Level::INFO, &format!("{}: clients of Redis on {address}", state.borrow().name));
    }
    if let Some(address) = process.admin_place() {
        let url = url(address);
        say(Level::INFO, &format!("dashboard on {url}/, metrics on {url}/metrics"));
    }
}

/// Does as it is asked until it is to stop.
fn serve(signals: &mut Signals, process: &Process, manager: &Manager, mut watch: Option<Watch>) {
    let mut said = None;
    loop {
        match signals.wait_beside(process, watch.as_mut()) {
            wake @ (Wake::Reload | Wake::Changed) => {
                if let Some(watch) = &mut watch {
                    watch.look();
                }
                warn(manager.reloading());
                let result = process.reloader().reload_file();
                let level = if result.is_ok() { Level::INFO } else { Level::ERROR };
                if let Some(watch) = &mut watch {
                    watch.retry(matches!(result, Err(ReloadError::Unusable(_))));
                }
                let told = told_of(result);
                if wake == Wake::Reload || said.as_ref() != Some(&told) {
                    say(level, &told);
                }
                warn(manager.ready(&told));
                said = Some(told);
            }
            Wake::Upgrade => warn(start_successor()),
            Wake::Replaced(by) => {
                warn(manager.replaced_by(by));
                say(
                    Level::INFO,
                    &format!("replaced by process {by}: completing requests in flight"),
                );
                return;
            }
            Wake::Stop => {
                warn(manager.stopping());
                say(Level::INFO, "stopping: completing requests in flight");
                return;
            }
        }
    }
}

fn url(address: &ListenAddress) -> String {
    match address {
        ListenAddress::Inet(address) => format!("http://{address}"),
        ListenAddress::Unix { .. } => address.to_string(),
    }
}

/// Starts the program that is now where this one was, with the same arguments, to replace this one.
fn start_successor() -> std::io::Result<()> {
    const TAKE_OVER: &str = "--take-over";
    let mut arguments: Vec<_> = std::env::args_os().collect();
    if !arguments.iter().any(|argument| argument == TAKE_OVER) {
        arguments.push(TAKE_OVER.into());
    }
    let (program, arguments) = arguments.split_first().ok_or(std::io::ErrorKind::NotFound)?;
    let mut successor = std::process::Command::new(program).args(arguments).spawn()?;
    let number = successor.id();
    say(Level::INFO, &format!("started process {number}, which is to replace this one"));
    let wait = move || match successor.wait() {
        Ok(status) => {
            say(Level::INFO, &format!("process {number} ended ({status}): this one goes on"));
        }
        Err(error) => say(Level::WARN, &format!("cannot wait for process {number}: {error}")),
    };
    std::thread::Builder::new().name("successor".to_owned()).spawn(wait).map(drop)
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

/// What came of a reload.
fn told_of(result: Result<Reloaded, ReloadError>) -> String {
    match result {
        Ok(Reloaded { changed, .. }) if changed.is_empty() => "reloaded: no changes".to_owned(),
        Ok(Reloaded { generation, changed }) => {
            format!("reloaded: configuration {generation}; changed: {}", changed.join(", "))
        }
        Err(error) => format!("not reloaded, nothing changed:\n{error}"),
    }
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
fn exit_at_next(mut signals: Signals) -> std::io::Result<()> {
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
        let replicas = match (upstream.replicas.len(), upstream.sources.len()) {
            (_, 1..) => "discovered replicas".to_owned(),
            (1, 0) => "1 replica".to_owned(),
            (count, 0) => format!("{count} replicas"),
        };
        format!("{} ({replicas}, {})", upstream.name, upstream.policy.text())
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
        let groups = match service.group.of {
            1 => String::new(),
            groups => format!(" of {groups} groups"),
        };
        format!(", {name}: {duplicates} duplicates in {partitions} partition{s}{groups}")
    };
    let duplicates: String = config.duplicates.iter().map(service).collect();
    format!("{workers} workers, upstreams: {upstreams}{agents}{placement}{duplicates}")
}
