//! The servers: three duplicates, etcd and two fronts; one plain Redis; and what faults do to them.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::faults::Fault;
use crate::bench::process::{child, free_ports, get};
use crate::needs;

/// How long it may take until all duplicates are live again.
const LIVE_MAX: Duration = Duration::from_secs(180);

/// Where clients go.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    /// Ports of Redis's protocol, of the first and the second process.
    pub(super) urls: [u16; 2],
    /// Ports of Sentinel's protocol; none at a plain Redis.
    pub(super) sentinels: Vec<u16>,
}

/// A process that can be killed and started again.
pub(super) struct Process {
    name: String,
    make: Box<dyn Fn() -> Command>,
    log: PathBuf,
    child: Option<Child>,
    ended: bool,
    started: Instant,
}

impl Process {
    /// Starts a command; what it prints goes into a file of `folder`.
    pub(super) fn start(
        name: &str,
        folder: &Path,
        make: impl Fn() -> Command + 'static,
    ) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let mut this = Self {
            name: name.to_owned(),
            make: Box::new(make),
            log,
            child: None,
            ended: false,
            started: Instant::now(),
        };
        this.restart()?;
        Ok(this)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn restart(&mut self) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = (self.make)();
        let spawned = command.stdout(log.try_clone()?).stderr(log).spawn();
        self.child = Some(spawned.with_context(|| format!("{} cannot be started", self.name))?);
        (self.ended, self.started) = (false, Instant::now());
        Ok(())
    }

    /// Whether it has ended by itself at least a second after it began.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        if let Some(child) = &mut self.child
            && child.try_wait()?.is_some()
        {
            self.ended = true;
        }
        Ok(self.ended && self.started.elapsed() > Duration::from_secs(1))
    }

    /// Whether it was last seen to have ended.
    pub(super) const fn is_gone(&self) -> bool {
        self.ended
    }

    /// Waits until it ends by itself.
    pub(super) fn wait(&mut self) -> Result<()> {
        let status = match &mut self.child {
            Some(child) => child.wait()?,
            None => return Ok(()),
        };
        if !status.success() {
            bail!("{} failed ({status}), see {:?}", self.name, self.log);
        }
        Ok(())
    }

    fn signal(&self, name: &str) {
        if let Some(child) = &self.child {
            signal(name, i64::from(child.id()));
        }
    }

    /// `kill -9`, and that it is gone.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail when it is gone, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            if matches!(child.try_wait(), Ok(None)) {
                signal("KILL", -i64::from(child.id())); // the group that an application leads
            }
            self.kill();
        }
    }
}

/// Sends a signal to a process or, if negative, to a group.
fn signal(name: &str, process: i64) {
    // Failure means that it is gone.
    let arguments = [format!("-{name}"), "--".to_owned(), process.to_string()];
    let _ = Command::new("kill").args(arguments).stderr(Stdio::null()).status();
}

/// A Redis that keeps everything in a file, in a folder of its own.
pub(super) fn redis(name: &str, folder: &Path, port: u16, more: &[&str]) -> Result<Process> {
    let data = folder.join(name);
    fs::create_dir_all(&data)?;
    let program = needs::require("redis-server")?;
    let more: Vec<String> = more.iter().map(|word| (*word).to_owned()).collect();
    let process = Process::start(name, folder, move || {
        let mut command = child(&program);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", "everysec"]).args(&more);
        command.arg("--dir").arg(&data);
        // It may have been wiped.
        let _ = fs::create_dir_all(&data);
        command
    })?;
    let began = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if began.elapsed() > LIVE_MAX {
            bail!("{name} does not listen on port {port}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(process)
}

/// All servers of a run.
pub(super) struct Servers {
    folder: PathBuf,
    fronts: [Process; 2],
    duplicates: Vec<Process>,
    _etcd: Process,
    plain: Process,
    plain_port: u16,
    ports: Vec<u16>,
    /// The front that a fault has hit.
    hit: Option<usize>,
}

impl Servers {
    pub(super) fn start(folder: &Path, program: &Path) -> Result<Self> {
        // Three duplicates, two of etcd, one plain; listen, admin and Sentinel of two fronts.
        let ports = free_ports(12)?;
        let settings = ["--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb"];
        let start =
            |index: usize| redis(&format!("duplicate-{index}"), folder, ports[index], &settings);
        let duplicates = (0..3).map(start).collect::<Result<Vec<_>>>()?;
        let etcd = etcd(folder, ports[3], ports[4])?;
        let plain = redis("plain-redis", folder, ports[5], &[])?;
        let fronts = [front(folder, program, 0, &ports)?, front(folder, program, 1, &ports)?];
        let folder = folder.to_owned();
        let plain_port = ports[5];
        let mut this =
            Self { folder, fronts, duplicates, _etcd: etcd, plain, plain_port, ports, hit: None };
        this.await_all_live(|servers| {
            std::thread::sleep(Duration::from_millis(100));
            servers.supervise()
        })?;
        Ok(this)
    }

    pub(super) fn addresses(&self) -> Addresses {
        let ports = &self.ports;
        Addresses { urls: [ports[6], ports[9]], sentinels: vec![ports[8], ports[11]] }
    }

    pub(super) fn plain_addresses(&self) -> Addresses {
        Addresses { urls: [self.plain_port; 2], sentinels: Vec::new() }
    }

    /// What a front says of its service, if it says something.
    fn state(&self, front: usize) -> Option<Value> {
        let answer = get(self.ports[7 + 3 * front], "/api/v1/duplicates").ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str::<Value>(body).ok()?.get(0).cloned()
    }

    /// The front that leads, with its state.
    fn leader(&self) -> Option<(usize, Value)> {
        let states = (0..2).filter_map(|front| Some((front, self.state(front)?)));
        states.into_iter().find(|(_, state)| state["role"] == "leads")
    }

    /// Waits until all duplicates are live again.
    pub(super) fn await_all_live(
        &mut self,
        mut pass_time: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let leader = self.leader();
            if leader.as_ref().is_some_and(|(_, state)| is_all_live(state)) {
                return Ok(());
            }
            if began.elapsed() > LIVE_MAX {
                let state = leader.map(|(_, state)| state["partitions"].to_string());
                bail!("not all duplicates are live after {LIVE_MAX:?}: {state:?}");
            }
            pass_time(self)?;
        }
    }

    /// Starts fronts again that ended by themselves: who was deposed does so.
    pub(super) fn supervise(&mut self) -> Result<()> {
        for front in &mut self.fronts {
            if front.has_ended()? {
                front.restart()?;
            }
        }
        Ok(())
    }

    /// Brings a fault about, and what compares with it at the plain Redis.
    pub(super) fn begin(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Kill(which) => self.duplicates[which].kill(),
            Fault::Wipe(which) => {
                self.duplicates[which].kill();
                let data = self.folder.join(format!("duplicate-{which}"));
                fs::remove_dir_all(&data).with_context(|| format!("cannot wipe {data:?}"))?;
            }
            Fault::Pause(which) => self.duplicates[which].signal("STOP"),
            Fault::KillFront | Fault::PauseFront => {
                let leader = self.leader().map_or(0, |(front, _)| front);
                self.hit = Some(leader);
                match fault {
                    Fault::KillFront => self.fronts[leader].kill(),
                    _ => self.fronts[leader].signal("STOP"),
                }
            }
        }
        match fault {
            Fault::Kill(_) | Fault::Wipe(_) | Fault::KillFront => self.plain.kill(),
            Fault::Pause(_) | Fault::PauseFront => self.plain.signal("STOP"),
        }
        Ok(())
    }

    /// Ends it.
    pub(super) fn end(&mut self, fault: Fault) -> Result<()> {
        let hit = self.hit.take().unwrap_or(0);
        match fault {
            Fault::Kill(which) | Fault::Wipe(which) => {
                self.duplicates[which].restart()?;
                self.plain.restart()
            }
            Fault::KillFront => {
                self.fronts[hit].restart()?;
                self.plain.restart()
            }
            Fault::Pause(which) => {
                self.duplicates[which].signal("CONT");
                self.plain.signal("CONT");
                Ok(())
            }
            Fault::PauseFront => {
                self.fronts[hit].signal("CONT");
                self.plain.signal("CONT");
                Ok(())
            }
        }
    }
}

fn is_all_live(state: &Value) -> bool {
    let partitions = state["partitions"].as_array().into_iter().flatten();
    let mut all = partitions.flat_map(|it| it["duplicates"].as_array().into_iter().flatten());
    state["failure"].is_null() && all.all(|duplicate| duplicate["state"] == "in-sync")
}

fn etcd(folder: &Path, port: u16, peers: u16) -> Result<Process> {
    let program = needs::require("etcd")?;
    let data = folder.join("etcd");
    Process::start("etcd", folder, move || {
        let [clients, peers] = [port, peers].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = child(&program);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}"), "--log-level", "error"]);
        command.arg("--data-dir").arg(&data);
        command
    })
}

fn front(folder: &Path, program: &Path, index: usize, ports: &[u16]) -> Result<Process> {
    let name = format!("front-{index}");
    let [listen, admin, sentinel] = [6, 7, 8].map(|offset| ports[offset + 3 * index]);
    let servers: Vec<String> =
        ports[..3].iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let configuration = format!(
        "[duplicates.apps]\nlisten = \"127.0.0.1:{listen}\"\ndirectory = {:?}\nstore = \"redis\"\n\
         partitions = [[{}]]\nstandby = true\nsentinel = \"127.0.0.1:{sentinel}\"\n\
         coordination = {{store = \"etcd\", endpoints = [\"http://127.0.0.1:{}\"], lease = \"2s\"}}\
         \n\n[admin]\naddress = \"127.0.0.1:{admin}\"\n",
        folder.join(&name),
        servers.join(", "),
        ports[3],
    );
    let file = folder.join(format!("{name}.toml"));
    fs::write(&file, configuration)?;
    let program = program.to_owned();
    Process::start(&name, folder, move || {
        let mut command = child(&program);
        command.arg("run").arg(&file);
        command
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_are_live_when_each_is_and_writes_are_taken() {
        let state = |failure: Value, states: [&str; 2]| {
            let duplicates = states.map(|state| json!({"state": state}));
            json!({"failure": failure, "partitions": [{"duplicates": duplicates}]})
        };
        assert!(is_all_live(&state(Value::Null, ["in-sync", "in-sync"])));
        assert!(!is_all_live(&state(Value::Null, ["in-sync", "filling"])));
        assert!(!is_all_live(&state(json!("no lease"), ["in-sync", "in-sync"])));
    }
}
