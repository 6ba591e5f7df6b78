//! A share of a processor for one process: by the kernel where we may tell it, else by stopping and
//! continuing the process in turn.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// By what means a process is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A control group of version 2: `cpu.max`.
    Group2,
    /// A control group of version 1: `cpu.cfs_quota_us`.
    Group1,
    /// Stopped and continued every 50 ms: coarser, it stops all threads at once.
    DutyCycle,
}

/// The period of quotas where nobody says another: the kernel's own default.
pub(super) const PERIOD: Duration = Duration::from_millis(100);
/// The most of each version. What a limited process lacks shall be its quota, not what others here
/// leave it.
const WEIGHT: &str = "10000";
const SHARES: &str = "262144";
/// The kernel takes no less.
const QUOTA_US_MIN: u64 = 1_000;
const DUTY_CYCLE: Duration = Duration::from_millis(50);

/// A limit on one process, lifted when dropped.
#[derive(Debug)]
pub struct Quota {
    /// By what means.
    pub way: Way,
    group: Option<PathBuf>,
    cycle: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
    process: u32,
}

impl Quota {
    /// Limits a process to a share of one processor.
    pub fn new(process: u32, share: f64) -> Self {
        Self::of(process, share, PERIOD)
    }

    /// The same with a period, from a millisecond on: a process that has used up its share waits
    /// for the rest of it, with all its threads.
    pub fn of(process: u32, share: f64, period: Duration) -> Self {
        assert!(share > 0.0, "a share of {share} is a pause");
        let quota_us = ((share * period.as_secs_f64() * 1e6) as u64).max(QUOTA_US_MIN);
        let period_us = period.as_micros();
        let name = format!("evenkeel-{process}");
        let second = Path::new("/sys/fs/cgroup").join(&name);
        let has_cpu = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control");
        if has_cpu.is_ok_and(|controllers| controllers.split(' ').any(|one| one.trim() == "cpu")) {
            let files = [("cpu.max", format!("{quota_us} {period_us}"))];
            if grouped(&second, &files, process) {
                let _ = fs::write(second.join("cpu.weight"), WEIGHT);
                return Self { way: Way::Group2, group: Some(second), cycle: None, process };
            }
        }
        let first = Path::new("/sys/fs/cgroup/cpu").join(&name);
        let files = [
            ("cpu.cfs_period_us", period_us.to_string()),
            ("cpu.cfs_quota_us", quota_us.to_string()),
        ];
        if grouped(&first, &files, process) {
            let _ = fs::write(first.join("cpu.shares"), SHARES);
            return Self { way: Way::Group1, group: Some(first), cycle: None, process };
        }
        let cycle = Some(duty_cycle(process, share.min(1.0)));
        Self { way: Way::DutyCycle, group: None, cycle, process }
    }
}

/// Makes a control group of one process.
fn grouped(folder: &Path, files: &[(&str, String)], process: u32) -> bool {
    let make = || -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        for (name, value) in files {
            fs::write(folder.join(name), value)?;
        }
        fs::write(folder.join("cgroup.procs"), process.to_string())
    };
    let made = make().is_ok();
    if !made {
        let _ = fs::remove_dir(folder);
    }
    made
}

fn duty_cycle(process: u32, share: f64) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let ends = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ends);
    let runs = DUTY_CYCLE.mul_f64(share);
    let thread = std::thread::spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            signal(process, Signal::STOP);
            std::thread::sleep(DUTY_CYCLE - runs);
            signal(process, Signal::CONT);
            std::thread::sleep(runs);
        }
    });
    (ends, thread)
}

/// Sends a signal to a process of ours; one that has ended needs none.
pub(super) fn signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).expect("a process");
    let _ = kill_process(process, signal);
}

impl Drop for Quota {
    fn drop(&mut self) {
        if let Some((ends, thread)) = self.cycle.take() {
            ends.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
        if let Some(group) = self.group.take() {
            let parent = group.parent().expect("groups have parents");
            let _ = fs::write(parent.join("cgroup.procs"), self.process.to_string());
            let _ = fs::remove_dir(group);
        }
    }
}
