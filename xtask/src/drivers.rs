//! `cargo xtask drivers NAME=FOLDER`: a driver's own integration suite, from a checkout of it, once
//! at the nodes of a real Cassandra and once through as many Evenkeels.
//!
//! Suites are written for clusters of their own making (ccm, docker), so that some of their tests
//! fail at nodes too; what counts is which tests pass at nodes and not through Evenkeel. Those are
//! asked two times more before they count, since the suites have tests that fail now and then, and
//! the few that cannot pass at any proxy are listed with the reason ([`Suite::differences`]).

mod suites;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::suites::{SUITES, Suite};
use crate::{UsageError, workspace};

/// How long a cluster may take, with the compilation of the tests that start it.
const START_MAX: Duration = Duration::from_secs(900);

/// How long a suite may take: several times what the longest takes with two cores to itself.
const LIMIT: Duration = Duration::from_secs(3600);

/// How often a test is tried through Evenkeel that passed at nodes.
const TRIES: usize = 3;

/// The tests that ran, and whether each passed.
pub(crate) type Verdicts = BTreeMap<String, bool>;

/// What is asked for: `python:5=FOLDER` for one version of the protocol, else all.
struct Asked {
    suite: &'static Suite,
    versions: Vec<u8>,
    folder: PathBuf,
}

/// Runs the suites that are named.
///
/// # Errors
/// When no cluster can be started, a suite runs no test, or a test that is not known to differ
/// passes at nodes only.
pub(crate) fn run_suites(words: &[&str]) -> Result<()> {
    let asked = words.iter().map(|word| read(word)).collect::<Result<Vec<_>>>()?;
    if asked.is_empty() {
        return Err(UsageError::new(format!("drivers: expected {}", expected())).into());
    }
    fs::create_dir_all(suites::folder())?;
    let mut only_at_nodes = 0;
    for Asked { suite, versions, folder } in &asked {
        (suite.prepare)(folder)?;
        for version in versions {
            only_at_nodes += suite.compare(folder, *version)?;
        }
    }
    if only_at_nodes > 0 {
        bail!("{only_at_nodes} tests pass at nodes only");
    }
    Ok(())
}

fn expected() -> String {
    let names: Vec<_> = SUITES.iter().map(|suite| format!("{}=FOLDER", suite.name)).collect();
    format!("{}, or NAME:4=FOLDER for one version of the protocol", names.join(", "))
}

fn read(word: &str) -> Result<Asked> {
    let unknown = || UsageError::new(format!("drivers: {word}: expected {}", expected()));
    let (what, folder) = word.split_once('=').ok_or_else(unknown)?;
    let (name, version) = match what.split_once(':') {
        Some((name, version)) => (name, Some(version.parse().map_err(|_| unknown())?)),
        None => (what, None),
    };
    let suite = SUITES.iter().find(|suite| suite.name == name).ok_or_else(unknown)?;
    let versions = match version {
        None => suite.versions.to_vec(),
        Some(version) if suite.versions.contains(&version) => vec![version],
        Some(_) => return Err(unknown().into()),
    };
    let folder = PathBuf::from(folder);
    let folder = folder.canonicalize().with_context(|| format!("no folder {folder:?}"))?;
    Ok(Asked { suite, versions, folder })
}

impl Suite {
    /// How many tests pass at nodes only and are not known for it.
    fn compare(&self, folder: &Path, version: u8) -> Result<usize> {
        let nodes = {
            let _cluster = Cluster::start("nodes")?;
            let (verdicts, ended) = self.verdicts(folder, version, "nodes", &[])?;
            if ended == Ended::CutOff {
                bail!("{}: what it did not come to at nodes cannot be compared", self.name);
            }
            verdicts
        };
        let _cluster = Cluster::start("proxies")?;
        let (mut proxies, _) = self.verdicts(folder, version, "proxies", &[])?;
        for again in 2..=TRIES {
            let missing: Vec<String> = missing(&nodes, &proxies).map(str::to_owned).collect();
            if missing.is_empty() {
                break;
            }
            // Those that hang for want of what others leave behind may leave no verdict at all.
            let whom = format!("proxies-{again}");
            if let Ok((more, _)) = self.verdicts(folder, version, &whom, &missing) {
                proxies.extend(more.into_iter().filter(|(_, passed)| *passed));
            }
        }
        Ok(self.report(version, &nodes, &proxies))
    }

    /// Prints what came of it; how many tests differ that are not known to.
    fn report(&self, version: u8, nodes: &Verdicts, proxies: &Verdicts) -> usize {
        let passed = |all: &Verdicts| all.values().filter(|passed| **passed).count();
        println!(
            "{} with version {version}: {} tests; pass at nodes: {}; through Evenkeel: {} of {}",
            self.name,
            nodes.len(),
            passed(nodes),
            passed(proxies),
            proxies.len()
        );
        let known: BTreeMap<_, _> = self.differences.iter().copied().collect();
        let mut unknown = 0;
        for name in missing(nodes, proxies) {
            if let Some(reason) = known.get(name) {
                println!("  differs: {name}: {reason}");
            } else {
                println!("  PASSES AT NODES ONLY: {name}");
                unknown += 1;
            }
        }
        for name in missing(proxies, nodes) {
            println!("  passes through Evenkeel only: {name}");
        }
        unknown
    }

    /// Which tests ran, and which of them passed. What they say goes to a file.
    fn verdicts(
        &self,
        folder: &Path,
        version: u8,
        whom: &str,
        only: &[String],
    ) -> Result<(Verdicts, Ended)> {
        let log = suites::folder().join(format!("{}-v{version}-{whom}.log", self.name));
        println!("{} with version {version} at {whom}; it says: {}", self.name, log.display());
        let file = fs::File::create(&log).with_context(|| format!("cannot write {log:?}"))?;
        let mut command = (self.command)(version, only);
        let child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .with_context(|| format!("`{command:?}` could not be started in {folder:?}"))?;
        let ended = wait(child, LIMIT)?;
        let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let mut verdicts = Verdicts::new();
        for (name, passed) in said.lines().filter_map(self.read) {
            // A test that passed may yet fail when it clears away.
            *verdicts.entry(name).or_insert(true) &= passed;
        }
        if verdicts.is_empty() {
            bail!("{}: no test ran; see {}", self.name, log.display());
        }
        Ok((verdicts, ended))
    }
}

/// The tests that pass among the first and not among the second.
pub(crate) fn missing<'a>(
    first: &'a Verdicts,
    second: &'a Verdicts,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let passed = |all: &'a Verdicts| -> BTreeSet<&'a str> {
        all.iter().filter(|(_, passed)| **passed).map(|(name, _)| name.as_str()).collect()
    };
    let second = passed(second);
    passed(first).into_iter().filter(move |name| !second.contains(name))
}

/// Runs what prepares a suite.
pub(crate) fn run(command: &mut Command, folder: &Path) -> Result<()> {
    let status = command.current_dir(folder).stdin(Stdio::null()).status();
    let status = status.with_context(|| format!("`{command:?}` could not be started"))?;
    if !status.success() {
        bail!("`{command:?}` in {folder:?} failed ({status})");
    }
    Ok(())
}

/// How a suite ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    ByItself,
    /// It took longer than it may, and may not have come to all of its tests.
    CutOff,
}

/// Waits for a suite, which leads a group of processes.
pub(crate) fn wait(mut child: Child, limit: Duration) -> Result<Ended> {
    let began = Instant::now();
    loop {
        if child.try_wait()?.is_some() {
            return Ok(Ended::ByItself);
        }
        if began.elapsed() > limit {
            let group = format!("-{}", child.id());
            Command::new("kill").args(["-KILL", "--", &group]).status()?;
            let _ = child.wait();
            println!("  cut off after {} s", limit.as_secs());
            return Ok(Ended::CutOff);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The cluster of the tests, for a suite.
struct Cluster {
    child: Child,
    file: PathBuf,
}

impl Cluster {
    /// One whose nodes, or whose proxies, are where suites look for them.
    fn start(whom: &str) -> Result<Self> {
        let file = suites::folder().join("cluster");
        let _ = fs::remove_file(&file);
        let test = ["test", "-p", "evenkeel-server", "--test", "cassandra", "--", "--ignored"];
        let child = workspace::cargo()
            .args(test)
            .args(["--exact", "hold::hold", "--nocapture"])
            .env("EVENKEEL_CASSANDRA_HOLD", &file)
            .env("EVENKEEL_CASSANDRA_HOLD_FOR", whom)
            .current_dir(workspace::root())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start a cluster")?;
        let mut this = Self { child, file };
        let began = Instant::now();
        while !this.file.exists() {
            if let Some(status) = this.child.try_wait()? {
                bail!("the cluster ended ({status}); `cargo xtask needs` says what is missing");
            }
            if began.elapsed() > START_MAX {
                bail!("the cluster does not start");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(this)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.file.exists() {
            let _ = self.child.kill(); // it has not come so far that it would see
        }
        // It stays as long as the file does.
        let _ = fs::remove_file(&self.file);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_driver_is_an_error_that_lists_the_known_ones() {
        for word in ["perl=/tmp", "gocql", "gocql:3=/tmp", "gocql:x=/tmp"] {
            let error = run_suites(&[word]).unwrap_err();
            assert!(error.is::<UsageError>(), "{word}");
            assert!(error.to_string().contains("gocql=FOLDER"), "{error}");
        }
    }

    #[test]
    fn one_version_is_asked_for_or_all() {
        let all = read("gocql=/").unwrap();
        assert_eq!((all.suite.name, &all.versions[..]), ("gocql", &[4, 5][..]));
        assert_eq!(read("gocql:5=/").unwrap().versions, [5]);
    }

    #[test]
    fn what_passes_at_nodes_only_is_missing() {
        let verdicts = |all: &[(&str, bool)]| -> Verdicts {
            all.iter().map(|(name, passed)| ((*name).to_owned(), *passed)).collect()
        };
        let nodes = verdicts(&[("a", true), ("b", true), ("c", false), ("d", true)]);
        let proxies = verdicts(&[("a", true), ("b", false), ("c", true)]);
        assert_eq!(missing(&nodes, &proxies).collect::<Vec<_>>(), ["b", "d"]);
        assert_eq!(missing(&proxies, &nodes).collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn a_suite_that_hangs_is_cut_off_with_what_it_started() {
        let mut command = Command::new("sh");
        let child = command.args(["-c", "sleep 60 & wait"]).process_group(0).spawn().unwrap();
        let began = Instant::now();
        assert_eq!(wait(child, Duration::from_millis(300)).unwrap(), Ended::CutOff);
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
