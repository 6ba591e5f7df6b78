//! Programs side by side: which one starts when, and what each said, whole.
//!
//! Output goes to a file and is shown when its program has ended, so that two of them never mix and
//! nobody waits for a pipe that a grandchild holds open.

use std::fs::{self, File};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::machine::{Taken, Watch};
use crate::workspace;

/// How many outputs were kept: the next one's name.
static FILES: AtomicU32 = AtomicU32::new(0);

/// After so long without an end it is said who still runs.
const SILENCE: Duration = Duration::from_secs(60);

/// Who runs for so long is killed, and has failed: a test that waits for ever.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// A program to run.
pub(crate) struct Job {
    /// What people call it.
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// What became of a job.
pub(crate) struct Done {
    /// Its place in the list of jobs.
    pub(crate) index: usize,
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
    pub(crate) elapsed: Duration,
    /// What was taken from the machine meanwhile.
    pub(crate) taken: Taken,
}

/// Runs all jobs in this order, as many at once as there are `lanes`, and tells `ended` of each
/// when it ends.
///
/// # Errors
/// When a program cannot be started or its output not be kept. Those that run are let end.
pub(crate) fn run(jobs: Vec<Job>, lanes: usize, mut ended: impl FnMut(&Done)) -> Result<()> {
    assert!(lanes > 0, "no job would ever start");
    let watch = Watch::start();
    let folder = workspace::target().join("xtask/lanes");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let names: Vec<String> = jobs.iter().map(|job| job.name.clone()).collect();
    let mut commands: Vec<Option<Command>> = jobs.into_iter().map(|j| Some(j.command)).collect();
    let mut pending = 0..commands.len();
    let mut running = Vec::new();
    let (tell, ends) = mpsc::channel();
    while !pending.is_empty() || !running.is_empty() {
        while running.len() < lanes
            && let Some(index) = pending.next()
        {
            // Two sets of lanes may run beside each other.
            let number = FILES.fetch_add(1, Ordering::Relaxed);
            let file = folder.join(format!("{}-{number}.log", std::process::id()));
            let mut command = commands[index].take().expect("each job is next once");
            let output = File::create(&file).context("a file for a program's output")?;
            command.stdout(output.try_clone()?).stderr(output).stdin(Stdio::null());
            let (began, mark) = (Instant::now(), watch.mark());
            let child = command.spawn();
            let mut child = child.with_context(|| format!("cannot start {}", names[index]))?;
            let tell = tell.clone();
            let id = child.id();
            thread::spawn(move || tell.send((index, child.wait())));
            running.push((index, file, began, mark, id));
        }
        let (index, status) = match ends.recv_timeout(SILENCE) {
            Ok(end) => end,
            Err(RecvTimeoutError::Timeout) => {
                for (_, _, began, _, id) in &running {
                    if began.elapsed() > PATIENCE {
                        let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
                    }
                }
                let names: Vec<_> = running.iter().map(|(index, ..)| &*names[*index]).collect();
                println!("=== still running: {}", names.join(", "));
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => unreachable!("`tell` lives here"),
        };
        let place = running.iter().position(|(running, ..)| *running == index);
        let (_, file, began, mark, _) = running.swap_remove(place.expect("who ends was running"));
        let output = fs::read(&file).context("the output of a program")?;
        let _ = fs::remove_file(&file); // nobody looks for it
        ended(&Done {
            index,
            status: status.context("cannot wait for a program")?,
            output: String::from_utf8_lossy(&output).into_owned(),
            elapsed: began.elapsed(),
            taken: watch.since(&mark),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: script.to_owned(), command }
    }

    #[test]
    fn all_jobs_run_and_their_words_come_whole() {
        let jobs = (0..5).map(|n| shell(&format!("echo out {n}; echo err {n} >&2; exit {n}")));
        let mut found = Vec::new();
        run(jobs.collect(), 2, |done| {
            found.push((done.index, done.status.code(), done.output.clone()));
        })
        .unwrap();
        found.sort();
        let expected = (0..5).map(|n| (n, Some(n as i32), format!("out {n}\nerr {n}\n")));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }

    #[test]
    fn as_many_run_at_once_as_fit_and_no_more() {
        // Each says who else is there; the file system is their only way to know.
        let folder = std::env::temp_dir().join(format!("evenkeel-lanes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let script = |n: usize| {
            let folder = folder.display();
            format!("touch {folder}/{n}; sleep 0.1; ls {folder} | wc -l; rm {folder}/{n}")
        };
        let jobs = (0..5).map(|n| shell(&script(n)));
        let mut seen = [0; 5];
        run(jobs.collect(), 2, |done| seen[done.index] = done.output.trim().parse().unwrap())
            .unwrap();
        assert!(seen.iter().all(|at_once| (1..=2).contains(at_once)), "{seen:?}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_with_its_name() {
        let command = Command::new("evenkeel-no-such-program");
        let job = Job { name: "the keel".to_owned(), command };
        let error = run(vec![job], 1, |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "cannot start the keel");
    }
}
