//! The suites: how each is started, how what it prints is read, and where it may differ.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::workspace;

/// Where a cluster for suites is reached, be it nodes or proxies.
const HOSTS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

/// One driver's suite.
pub(super) struct Suite {
    pub(super) name: &'static str,
    /// The versions of the protocol that its driver is told to speak.
    pub(super) versions: &'static [u8],
    /// Brings what it needs beside its checkout.
    pub(super) prepare: fn(&Path) -> Result<()>,
    /// The command for a version of the protocol; of all tests, or of these alone.
    pub(super) command: fn(u8, &[String]) -> Command,
    /// The test that a line of its output tells of, and whether it passed.
    pub(super) read: fn(&str) -> Option<(String, bool)>,
    /// The tests that pass at nodes and need not pass at a proxy, and why.
    pub(super) differences: &'static [(&'static str, &'static str)],
}

pub(super) const SUITES: [Suite; 3] = [
    Suite {
        name: "gocql",
        versions: &[4, 5],
        prepare: |folder| super::run(Command::new("go").args(["mod", "download"]), folder),
        command: gocql,
        read: read_go,
        differences: &[],
    },
    Suite {
        name: "scylla",
        versions: &[4],
        prepare: |folder| super::run(scylla(4, &[]).args(["--list"]), folder),
        command: scylla,
        read: read_cargo,
        differences: &[(
            "session::pager::test_pager_retry_receives_current_consistency",
            "it asks for system.peers row by row, which Evenkeel answers on one page",
        )],
    },
    Suite {
        name: "python",
        versions: &[4, 5],
        prepare: prepare_python,
        command: python,
        read: read_pytest,
        differences: &PYTHON_DIFFERENCES,
    },
];

const PYTHON_DIFFERENCES: [(&str, &str); 8] = [
    (
        "tests/integration/standard/test_cluster.py::BetaProtocolTest::\
         test_valid_protocol_version_beta_options_connect",
        "it speaks version 6 of the protocol, which Evenkeel does not",
    ),
    (
        "tests/integration/standard/test_cluster.py::ClusterTests::test_replicas_are_queried",
        "it wants a coordinator that is no replica, and Evenkeel takes a replica",
    ),
    (
        "tests/integration/standard/test_control_connection.py::ControlConnectionTests::\
         test_control_connection_port_discovery",
        "it wants the port between nodes, and a proxy has but one port",
    ),
    (
        "tests/integration/standard/test_custom_protocol_handler.py::CustomProtocolHandlerTest::\
         test_protocol_divergence_v5_fail_by_flag_uses_int",
        "it sends flags that have no meaning, which nodes overlook and Evenkeel refuses",
    ),
    (
        "tests/integration/standard/test_metadata.py::AggregateMetadata::test_init_cond",
        "it speaks version 3 of the protocol, which Evenkeel does not",
    ),
    (
        "tests/integration/standard/test_metadata.py::SchemaMetadataTests::test_table_extensions",
        "it writes to each node's own tables in turn, and Evenkeel takes the nodes it likes best",
    ),
    (
        "tests/integration/standard/test_query.py::PreparedStatementArgTest::\
         test_prepare_batch_statement_after_alter",
        "it counts how often it has to prepare anew, and Evenkeel prepares anew by itself",
    ),
    (
        "tests/integration/standard/test_query.py::PreparedStatementMetdataTest::\
         test_prepared_metadata_generation",
        "it speaks versions 3 and 6 of the protocol, which Evenkeel does not",
    ),
];

/// As its `Makefile` has it, but for TLS, which has tests of its own here.
fn gocql(version: u8, only: &[String]) -> Command {
    let compressor = if version == 4 { "snappy" } else { "lz4" };
    let mut command = Command::new("go");
    command.args(["test", "-v", "-tags", "cassandra integration gocql_debug", "-timeout=0"]);
    if !only.is_empty() {
        command.arg(format!("-run=^({})$", only.join("|")));
    }
    command.args([".", &format!("-proto={version}"), &format!("-compressor={compressor}")]);
    command.args(["-gocql.timeout=60s", "-rf=3", "-clusterSize=3", "-autowait=2000ms"]);
    command.args(["-gocql.cversion=5.0.9", &format!("-cluster={}", HOSTS.join(","))]);
    command
}

/// As its continuous integration has it for Cassandra, but for OpenSSL, and without the tests for
/// which it makes clusters of its own.
fn scylla(_: u8, only: &[String]) -> Command {
    const FEATURES: &str = "full-serialization,rustls-023,metrics,unstable-testing,\
                            unstable-host-listener,unstable-reconnect-policy,\
                            unstable-client-routes";
    let mut command = workspace::cargo();
    command.args(["test", "-p", "scylla", "--features", FEATURES, "--test", "integration"]);
    command.args(["--", "--test-threads=4", "--skip=ccm::"]);
    if !only.is_empty() {
        command.arg("--exact").args(only);
    }
    command.env("RUSTFLAGS", "--cfg scylla_unstable --cfg cassandra_tests");
    command.env("CARGO_TARGET_DIR", folder().join("scylla"));
    command.env("CARGO_PROFILE_TEST_DEBUG", "0");
    for (name, host) in ["SCYLLA_URI", "SCYLLA_URI2", "SCYLLA_URI3"].into_iter().zip(HOSTS) {
        command.env(name, format!("{host}:9042"));
    }
    command
}

/// Its standard suite. The event loop is one of Python's own, up to 3.11.
fn python(version: u8, only: &[String]) -> Command {
    let mut command = Command::new(folder().join("python/bin/python"));
    command.args(["-m", "pytest", "-v", "--timeout=120", "-p", "no:cacheprovider"]);
    command.args(["--color=no", "--tb=short", "--show-capture=no"]);
    match only {
        [] => command.arg("tests/integration/standard"),
        only => command.args(only),
    };
    command.env("USE_CASS_EXTERNAL", "1").env("CLUSTER_IP", HOSTS[0]);
    command.env("PROTOCOL_VERSION", version.to_string()).env("EVENT_LOOP_MANAGER", "asyncore");
    command.env("CASSANDRA_VERSION", "5.0.9").env("MAPPED_CASSANDRA_VERSION", "5.0.9");
    command
}

fn prepare_python(checkout: &Path) -> Result<()> {
    let home = folder().join("python");
    let python = home.join("bin/python");
    if !python.is_file() {
        super::run(Command::new("python3").args(["-m", "venv"]).arg(&home), checkout)?;
    }
    let mut install = Command::new(python);
    install.args(["-m", "pip", "install", "-q", "--disable-pip-version-check"]);
    install.args(["-r", "requirements.txt", "ccm", "cryptography", "futurist", "lz4"]);
    install.args(["packaging", "pure-sasl", "pytest", "pytest-timeout", "pytz", "scales"]);
    super::run(&mut install, checkout)
}

/// Where suites have what is not in their checkouts.
pub(super) fn folder() -> PathBuf {
    workspace::target().join("xtask").join("drivers")
}

/// `--- PASS: TestBatch (0.21s)`; parts of a test are its own affair.
fn read_go(line: &str) -> Option<(String, bool)> {
    let rest = line.strip_prefix("--- ")?;
    let (verdict, rest) = rest.split_once(": ")?;
    let name = rest.split(' ').next()?.to_owned();
    matches!(verdict, "PASS" | "FAIL").then(|| (name, verdict == "PASS"))
}

/// `test statements::batch::test_batch ... ok`
fn read_cargo(line: &str) -> Option<(String, bool)> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    match verdict.trim_end() {
        "ok" => Some((name.to_owned(), true)),
        "FAILED" => Some((name.to_owned(), false)),
        _ => None,
    }
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
        assert_eq!(read_cargo("test tablets::test_move ... ignored"), None);
        let read = read_pytest("tests/a.py::QueryTests::test_query PASSED [  3%]").unwrap();
        assert_eq!(read, ("tests/a.py::QueryTests::test_query".to_owned(), true));
        assert_eq!(read_pytest("tests/a.py::QueryTests::test_query SKIPPED (DSE) [  3%]"), None);
    }

    #[test]
    fn single_tests_are_asked_for_by_their_names() {
        let only = ["TestA".to_owned(), "TestB".to_owned()];
        let command = format!("{:?}", gocql(5, &only));
        assert!(command.contains("-run=^(TestA|TestB)$"), "{command}");
        assert!(!format!("{:?}", gocql(5, &[])).contains("-run"));
    }
}
