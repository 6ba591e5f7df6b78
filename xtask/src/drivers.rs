//! `cargo xtask drivers NAME=FOLDER`: a driver's own integration suite, from a checkout of it, once
//! at a node of a real Cassandra and once through Evenkeel.
//!
//! Suites are written for clusters of their own making (ccm, docker), so that some of their tests
//! fail at a plain node too; what counts is which tests pass at the node and not through Evenkeel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{UsageError, workspace};

/// How long a cluster may take, with the compilation of the tests that start it.
const START_MAX: Duration = Duration::from_secs(900);

/// One driver's suite.
struct Suite {
    name: &'static str,
    /// The command for a contact point.
    command: fn(&str) -> Command,
    /// The test that a line of its output tells of, and whether it passed.
    read: fn(&str) -> Option<(String, bool)>,
}

const SUITES: [Suite; 3] = [
    Suite { name: "gocql", command: gocql, read: read_go },
    Suite { name: "scylla", command: scylla, read: read_cargo },
    Suite { name: "python", command: python, read: read_pytest },
];

fn gocql(host: &str) -> Command {
    let mut command = Command::new("go");
    command.args(["test", "-tags", "cassandra integration", "-timeout", "30m", "-v", "."]);
    command.args(["-proto=5", "-rf=1", "-clusterSize=1", "-autowait=2000ms"]);
    command.args(["-runauth=false", "-gocql.timeout=20s", &format!("-cluster={host}")]);
    command
}

fn scylla(host: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args(["test", "-p", "scylla", "--test", "integration", "--", "--test-threads=2"]);
    for name in ["SCYLLA_URI", "SCYLLA_URI2", "SCYLLA_URI3"] {
        command.env(name, format!("{host}:9042"));
    }
    command
}

fn python(host: &str) -> Command {
    let folder = workspace::target().join("xtask/cassandra/python/bin/python");
    let mut command = Command::new(folder);
    command.args(["-m", "pytest", "-v", "-p", "no:cacheprovider", "tests/integration/standard"]);
    command.env("USE_CASS_EXTERNAL", "1").env("CASSANDRA_IP", host).env("PROTOCOL_VERSION", "5");
    command.env("CASSANDRA_VERSION", "5.0.9").env("MAPPED_CASSANDRA_VERSION", "5.0.9");
    command
}

/// `--- PASS: TestBatch (0.21s)`; parts of a test are its own affair.
fn read_go(line: &str) -> Option<(String, bool)> {
    let rest = line.strip_prefix("--- ")?;
    let (verdict, rest) = rest.split_once(": ")?;
    let name = rest.split(' ').next()?.to_owned();
    (verdict != "SKIP").then(|| (name, verdict == "PASS"))
}

/// `test statements::batch::test_batch ... ok`
fn read_cargo(line: &str) -> Option<(String, bool)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    (!verdict.starts_with("ignored")).then(|| (name.to_owned(), verdict.starts_with("ok")))
}

/// `tests/integration/standard/test_query.py::QueryTests::test_query PASSED [ 3%]`
fn read_pytest(line: &str) -> Option<(String, bool)> {
    let mut words = line.split_whitespace();
    let name = words.next().filter(|name| name.contains("::"))?;
    match words.next()? {
        "PASSED" => Some((name.to_owned(), true)),
        "FAILED" | "ERROR" => Some((name.to_owned(), false)),
        _ => None,
    }
}

/// Runs the suites that are named.
///
/// # Errors
/// When no cluster can be started, a suite runs no test, or a test passes at a node only.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let known = "gocql=FOLDER, scylla=FOLDER, python=FOLDER";
    let mut asked = Vec::new();
    for word in words {
        let suite = word.split_once('=').and_then(|(name, folder)| {
            Some((SUITES.iter().find(|suite| suite.name == name)?, PathBuf::from(folder)))
        });
        let unknown = || UsageError::new(format!("drivers: {word}: expected {known}"));
        asked.push(suite.ok_or_else(unknown)?);
    }
    if asked.is_empty() {
        return Err(UsageError::new(format!("drivers: expected one of {known}")).into());
    }
    let cluster = Cluster::start()?;
    let mut only_direct = 0;
    for (suite, folder) in asked {
        let direct = suite.passed(&folder, &cluster.node)?;
        let proxied = suite.passed(&folder, &cluster.proxy)?;
        let both = direct.1.intersection(&proxied.1).count();
        println!("{}: {} tests; pass at a node: {}; ", suite.name, direct.0, direct.1.len());
        println!("  through Evenkeel: {} of {}; both: {both}", proxied.1.len(), proxied.0);
        for name in direct.1.difference(&proxied.1) {
            println!("  passes at a node only: {name}");
            only_direct += 1;
        }
        for name in proxied.1.difference(&direct.1) {
            println!("  passes through Evenkeel only: {name}");
        }
    }
    if only_direct > 0 {
        bail!("{only_direct} tests pass at a node only");
    }
    Ok(())
}

impl Suite {
    /// How many tests ran, and which of them passed. What they say goes to a file.
    fn passed(&self, folder: &Path, host: &str) -> Result<(usize, BTreeSet<String>)> {
        let log = workspace::target().join("xtask").join(format!("drivers-{}-{host}", self.name));
        println!("{} at {host}; its output: {}", self.name, log.display());
        let file = fs::File::create(&log).with_context(|| format!("cannot write {log:?}"))?;
        let mut command = (self.command)(host);
        let status = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .status()
            .with_context(|| format!("`{command:?}` could not be started in {folder:?}"))?;
        let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let verdicts: Vec<(String, bool)> = said.lines().filter_map(self.read).collect();
        if verdicts.is_empty() {
            bail!("{}: no test ran ({status}); see {}", self.name, log.display());
        }
        let passed = verdicts.iter().filter(|(_, passed)| *passed).map(|(name, _)| name.clone());
        Ok((verdicts.len(), passed.collect()))
    }
}

/// The cluster of the tests, and an Evenkeel before it.
struct Cluster {
    child: Child,
    file: PathBuf,
    node: String,
    proxy: String,
}

impl Cluster {
    fn start() -> Result<Self> {
        let file = workspace::target().join("xtask").join("cassandra.held");
        let _ = fs::remove_file(&file);
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let test = ["test", "-p", "evenkeel-net", "--test", "cassandra", "--", "--ignored"];
        let child = Command::new(cargo)
            .args(test)
            .args(["--exact", "hold::hold", "--nocapture"])
            .env("EVENKEEL_CASSANDRA_HOLD", &file)
            .current_dir(workspace::root())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start a cluster")?;
        let (node, proxy) = (String::new(), String::new());
        let mut this = Self { child, file, node, proxy };
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
        let text = fs::read_to_string(&this.file)?;
        let host = |line: Option<&str>| {
            line.and_then(|line| line.split(':').next()).unwrap_or_default().to_owned()
        };
        this.node = host(text.lines().next());
        this.proxy = host(text.lines().last());
        Ok(this)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It stays as long as the file does.
        let _ = fs::remove_file(&self.file);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_of_suites_are_read() {
        let (name, passed) = read_go("--- PASS: TestBatch (0.21s)").unwrap();
        assert_eq!((name.as_str(), passed), ("TestBatch", true));
        assert_eq!(read_go("    --- PASS: TestBatch/part (0.21s)"), None);
        assert_eq!(read_go("--- SKIP: TestUDF (0.00s)"), None);
        let read = read_cargo("test statements::batch::test_batch ... FAILED").unwrap();
        assert_eq!(read, ("statements::batch::test_batch".to_owned(), false));
        let read = read_pytest("tests/a.py::QueryTests::test_query PASSED [  3%]").unwrap();
        assert_eq!(read, ("tests/a.py::QueryTests::test_query".to_owned(), true));
    }

    #[test]
    fn an_unknown_driver_is_an_error_that_lists_the_known_ones() {
        let error = run(&["perl=/tmp"]).unwrap_err();
        assert!(error.is::<UsageError>());
        assert!(error.to_string().contains("gocql=FOLDER"), "{error}");
    }
}
