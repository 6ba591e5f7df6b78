//! One node: its process, what it logs, and what is done to it.

use std::fs::{self, OpenOptions};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use super::files::Java;
use super::quota::{Quota, Way, signal};

/// The unit of processor times in proc(5), per second.
const USER_HZ: u64 = 100;

/// A node, running or not.
#[derive(Debug)]
pub(super) struct Node {
    home: PathBuf,
    address: Ipv4Addr,
    java: Java,
    child: Option<Child>,
    quota: Option<Quota>,
}

impl Node {
    pub(super) fn new(home: PathBuf, address: Ipv4Addr, java: Java) -> Self {
        Self { home, address, java, child: None, quota: None }
    }

    pub(super) fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs", self.address);
        let out = OpenOptions::new().create(true).append(true).open(self.home.join("out")).unwrap();
        let child = Command::new("java")
            .args(self.java.daemon(&self.home))
            .current_dir(&self.home)
            // An interrupt of the tests is for the tests: they end the nodes.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    pub(super) fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Ends the test with what the node said when it has ended by itself.
    pub(super) fn expect_running(&mut self) {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
        if let Some(status) = ended {
            let out = fs::read_to_string(self.home.join("out")).unwrap_or_default();
            let log = self.log();
            let errors = log.lines().filter(|line| line.contains(" ERROR "));
            let said: Vec<&str> = errors.chain(out.lines()).collect();
            let last = said[said.len().saturating_sub(20)..].join("\n");
            panic!("{} ended: {status}\n{last}", self.address);
        }
    }

    pub(super) fn log(&self) -> String {
        let bytes = fs::read(self.home.join("logs/system.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn pause(&self) {
        let process = self.process().expect("it runs");
        signal(process, Signal::STOP);
        crate::program::wait_stopped(process);
    }

    pub(super) fn resume(&self) {
        if let Some(process) = self.process() {
            signal(process, Signal::CONT);
        }
    }

    pub(super) fn kill(&mut self) {
        self.quota = None;
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(super) fn limit(&mut self, share: f64, period: Duration) -> Way {
        self.quota = None;
        let quota = Quota::of(self.process().expect("it runs"), share, period);
        self.quota.insert(quota).way
    }

    pub(super) fn unlimited(&mut self) {
        self.quota = None;
    }

    pub(super) fn nodetool(&self, folder: &Path) -> Command {
        let mut command = Command::new("java");
        command.args(self.java.nodetool(folder)).current_dir(folder).stdin(Stdio::null());
        command
    }
}

/// User and system time that a process has used.
pub fn processor_time(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // After the name, which may contain anything: state is field 3, times are 14 and 15.
    let (_, fields) = stat.rsplit_once(") ").expect("proc(5)");
    let ticks = fields.split(' ').skip(11).take(2).map(|one| one.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 1_000 / USER_HZ)
}
