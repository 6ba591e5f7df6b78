//! One run: a proxy of its own, the round's load, the round's faults.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use evenkeel_testkit::http;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::story::nobody;
use serde_json::Value;

use crate::worlds::{Fault, Kind, REPLICAS, World, child, faults, limited, signal};

/// The policy of the day.
const RECORDED: &str = "least-outstanding";
/// Quantile and budget of hedges, as they are asked for.
const HEDGE: &str = "hedge = { quantile = 0.95, budget = '5%' }\n";
/// Processes are started until one explores in its first minute: one in twenty does.
const STARTS_MAX: usize = 400;
/// How long a process may take to tell whether it explores, and to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// Faults are waited for in steps of this.
const STEP: Duration = Duration::from_millis(5);

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// The day that is replayed: with slices and pairs.
    Recorded,
    /// The same policy, as every other arm runs.
    Again,
    C3,
    Hedged,
    TwoChoices,
    Fewer,
}

impl Arm {
    pub(crate) const ALL: [Self; 5] =
        [Self::Again, Self::C3, Self::Hedged, Self::TwoChoices, Self::Fewer];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Again => "again",
            Self::C3 => "c3",
            Self::Hedged => "c3+hedge",
            Self::TwoChoices => "two-choices",
            Self::Fewer => "fewer",
        }
    }

    /// What a replay of the recorded day is asked.
    pub(crate) fn asked(self) -> &'static [&'static str] {
        match self {
            Self::Recorded | Self::Again => &[],
            Self::C3 => &["policy=c3"],
            Self::Hedged => &["policy=c3", "hedge=5%", "hedge.quantile=0.95"],
            Self::TwoChoices => &["policy=two-choices"],
            Self::Fewer => &["replicas=2"],
        }
    }

    /// Whether this world can have it: a proxy finds all nodes of a cluster by itself.
    pub(crate) fn is_of(self, kind: Kind) -> bool {
        self != Self::Fewer || kind != Kind::Cassandra
    }

    fn policy(self) -> String {
        let policy = match self {
            Self::Recorded | Self::Again | Self::Fewer => RECORDED,
            Self::C3 | Self::Hedged => "c3",
            Self::TwoChoices => "two-choices",
        };
        let hedge = if self == Self::Hedged { HEDGE } else { "" };
        format!("policy = '{policy}'\n{hedge}")
    }
}

/// One run of a round.
pub(crate) struct Turn {
    pub(crate) arm: Arm,
    pub(crate) round: u64,
    pub(crate) seconds: u64,
    pub(crate) rate: u64,
}

/// What came of it.
pub(crate) struct Ran {
    /// The folder of its day.
    pub(crate) day: PathBuf,
    requests: f64,
    failed: f64,
    /// By how much too late the load sent, 99th percentile, ms.
    lag_ms: f64,
}

impl fmt::Display for Ran {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, failed, lag_ms, .. } = self;
        write!(out, "{requests} requests, {failed} failed, sent {lag_ms:.2} ms late (p99)")
    }
}

impl Turn {
    /// Runs it to its end. The first minute of a recorded day is its slice.
    pub(crate) fn take(&self, world: &World, folder: &Path, binary: &Path) -> Result<Ran> {
        let folder = folder.join(format!("{}-{}", self.arm.name(), self.round));
        fs::create_dir_all(&folder)?;
        let (proxy, admin) = (nobody(), nobody());
        let file = folder.join("run.toml");
        fs::write(&file, self.config(world, (proxy, admin), &folder))?;
        let running = self.start(&file, binary, (proxy, admin), &folder)?;
        let is_over = AtomicBool::new(false);
        let loaded = thread::scope(|scope| {
            let disturbing = scope.spawn(|| self.disturb(world, &is_over));
            let loaded = self.load(world, proxy, binary);
            is_over.store(true, Ordering::Relaxed);
            let disturbed = disturbing.join().ok().context("faults")?;
            disturbed.and(loaded)
        })?;
        end(running)?;
        let number = |name: &str| loaded[name].as_f64().with_context(|| format!("no `{name}`"));
        Ok(Ran {
            day: only(&folder.join("days/upstream.world"))?,
            requests: number("requests")?,
            failed: number("failed")? + number("timeouts")?,
            lag_ms: loaded["send_lag_p99_ms"].as_f64().unwrap_or(f64::NAN),
        })
    }

    fn config(
        &self,
        world: &World,
        (proxy, admin): (SocketAddr, SocketAddr),
        folder: &Path,
    ) -> String {
        let count = if self.arm == Arm::Fewer { REPLICAS - 1 } else { REPLICAS };
        let tries = if self.arm == Arm::Recorded { "explore = '5%'\npairs = '1%'\n" } else { "" };
        format!(
            "[process]\nworkers = 1\n[[listen]]\naddress = '{proxy}'\nupstream = 'world'\n\
             [admin]\naddress = '{admin}'\n[upstream.world]\n{}{}\
             [record]\ndirectory = '{}'\n{tries}",
            world.upstream(count),
            self.arm.policy(),
            folder.join("days").display(),
        )
    }

    /// A process that serves; one that is recorded explores now.
    fn start(
        &self,
        file: &Path,
        binary: &Path,
        (proxy, admin): (SocketAddr, SocketAddr),
        folder: &Path,
    ) -> Result<Program> {
        for _ in 0..STARTS_MAX {
            let log = fs::File::create(folder.join("run.log"))?;
            let mut command = child(binary);
            command.arg("run").arg(file).stdin(Stdio::null());
            let mut running = Program::start(command.stdout(log.try_clone()?).stderr(log));
            running.wait_listening(proxy);
            running.wait_listening(admin);
            if self.arm != Arm::Recorded || is_exploring(admin)? {
                return Ok(running);
            }
            running.kill();
            // What it wrote of a day that had no requests.
            let _ = fs::remove_dir_all(folder.join("days"));
        }
        bail!("none of {STARTS_MAX} processes explored in its first minute")
    }

    fn load(&self, world: &World, proxy: SocketAddr, binary: &Path) -> Result<Value> {
        let mut command = child(binary);
        command.arg("load").args(world.load(proxy)).args(["--json", "--timeout", "10s"]);
        command.args(["--rate", &self.rate.to_string(), "--seed", &self.round.to_string()]);
        command.args(["--duration", &format!("{}s", self.seconds)]);
        let output = command.output().context("evenkeel load")?;
        let document: Value = serde_json::from_slice(&output.stdout).with_context(|| {
            format!("evenkeel load: {}", String::from_utf8_lossy(&output.stderr))
        })?;
        Ok(document["runs"][0].clone())
    }

    /// Does the faults of the round, until they or the run are over.
    fn disturb(&self, world: &World, is_over: &AtomicBool) -> Result<()> {
        let began = Instant::now();
        for (at, replica, fault) in faults(world.kind, self.round, self.seconds) {
            if !wait_until(began + at, is_over) {
                return Ok(());
            }
            let process = world.process(replica)?;
            match fault {
                Fault::Stop(length) => {
                    signal(process, "-STOP")?;
                    thread::sleep((began + at + length).saturating_duration_since(Instant::now()));
                    signal(process, "-CONT")?;
                }
                Fault::Limit(length) => {
                    let limit = limited(process);
                    wait_until(began + at + length, is_over);
                    drop(limit);
                }
                Fault::Compact(length) => {
                    world.compact(replica);
                    wait_until(began + at + length, is_over);
                }
            }
        }
        Ok(())
    }
}

/// Whether the time came before the end.
fn wait_until(at: Instant, is_over: &AtomicBool) -> bool {
    while !is_over.load(Ordering::Relaxed) {
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(STEP));
    }
    false
}

fn is_exploring(admin: SocketAddr) -> Result<bool> {
    const NAME: &str = "evenkeel_record_exploring ";
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let metrics = http::try_get(admin, "/metrics").unwrap_or_default();
        if let Some(line) = metrics.lines().find(|line| line.starts_with(NAME)) {
            return Ok(line.ends_with('1'));
        }
        thread::sleep(STEP);
    }
    bail!("{admin} does not tell whether it explores")
}

/// Ends a process as systemd does, so that its day is whole.
fn end(mut running: Program) -> Result<()> {
    running.signal("-TERM");
    let began = Instant::now();
    while !running.has_ended() {
        ensure!(began.elapsed() < PATIENCE, "evenkeel run does not end");
        thread::sleep(STEP);
    }
    Ok(())
}

/// The only folder in this one.
fn only(folder: &Path) -> Result<PathBuf> {
    let found = fs::read_dir(folder).with_context(|| format!("no {}", folder.display()))?;
    let days: Vec<PathBuf> = found.map(|day| Ok(day?.path())).collect::<Result<_>>()?;
    match <[PathBuf; 1]>::try_from(days) {
        Ok([day]) => Ok(day),
        Err(days) => bail!("{}: got {} days, expected one", folder.display(), days.len()),
    }
}

/// Copies the files of a folder.
pub(crate) fn copy(folder: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for file in fs::read_dir(folder)? {
        let file = file?;
        fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}
