//! `cargo xtask redis-suites`: the tests of Redis itself and of redis-py, once at a plain Redis and
//! once through a front with three duplicates of the same version.
//!
//! What counts is what passes at the plain one only. The sources come from where the programs come
//! from (Debian, PyPI) into a folder below `target`; nothing of them is changed but that two
//! commands which begin each file of Redis's suite may fail, so that the tests after them run. Some
//! need a server of their own (replication, DEBUG, a restart) and are left out by their tags. It is
//! run by hand: it needs the network, and takes minutes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::drivers::{Verdicts, missing, run as run_in, wait};
use crate::{UsageError, workspace};

/// The tests of redis-py, as they are asked for.
const REDIS_PY: &str = "redis-py";

/// Of redis-py those that ask one server.
const REDIS_PY_FILES: [&str; 4] = [
    "tests/test_commands.py",
    "tests/test_pipeline.py",
    "tests/test_connection_pool.py",
    "tests/test_encoding.py",
];

/// Files of Redis's suite that make sense at a server that is not started by it.
const UNITS: [&str; 24] = [
    "unit/type/hash",
    "unit/type/incr",
    "unit/type/string",
    "unit/type/set",
    "unit/type/list",
    "unit/type/list-2",
    "unit/type/zset",
    "unit/type/stream",
    "unit/type/stream-cgroups",
    "unit/multi",
    "unit/expire",
    "unit/keyspace",
    "unit/scan",
    "unit/sort",
    "unit/bitops",
    "unit/bitfield",
    "unit/geo",
    "unit/hyperloglog",
    "unit/dump",
    "unit/info",
    "unit/introspection",
    "unit/other",
    "unit/pubsub",
    "unit/scripting",
];

/// What one server alone can do is left out, and what takes minutes.
const TAGS: &str = "-needs:repl -needs:debug -needs:config-maxmemory -needs:pfdebug -needs:save \
                    -needs:reset -slow";

/// How long the servers may take to start, with the compilation of what starts them.
const START_MAX: Duration = Duration::from_secs(1_800);

/// How long one suite may take.
const LIMIT: Duration = Duration::from_secs(900);

/// How long may be waited for one test.
const TEST_TIMEOUT_S: &str = "60";

/// Runs these suites, or all.
///
/// # Errors
/// When sources cannot be had or no servers can be started.
pub(crate) fn run(suites: &[&str]) -> Result<()> {
    let asked: Vec<&str> = match suites {
        [] => std::iter::once(REDIS_PY).chain(UNITS).collect(),
        suites => suites.to_vec(),
    };
    let unknown = asked.iter().find(|suite| **suite != REDIS_PY && !suite.starts_with("unit/"));
    if let Some(unknown) = unknown {
        let units = UNITS.join(", ");
        let text =
            format!("redis-suites: {unknown}: expected {REDIS_PY}, or a unit such as {units}");
        return Err(UsageError::new(text).into());
    }
    fs::create_dir_all(folder())?;
    let tcl = asked.iter().any(|suite| *suite != REDIS_PY).then(tcl_source).transpose()?;
    let python = asked.contains(&REDIS_PY).then(python_source).transpose()?;
    let servers = Servers::start()?;
    let mut total = [0; 2];
    for suite in asked {
        let ask = |port: u16, whom: &str| match (suite, &tcl, &python) {
            (REDIS_PY, _, Some(python)) => ask_python(python, port, whom),
            (unit, Some(tcl), _) => ask_tcl(tcl, unit, port, whom),
            _ => unreachable!("its source was fetched"),
        };
        let (direct, front) = (ask(servers.plain, "direct")?, ask(servers.front, "front")?);
        let passed = [&direct, &front].map(|it| it.values().filter(|passed| **passed).count());
        println!("{suite}: direct {}, through the front {}", passed[0], passed[1]);
        missing(&direct, &front).for_each(|name| println!("  PASSES DIRECTLY ONLY: {name}"));
        total = [total[0] + passed[0], total[1] + passed[1]];
    }
    println!("all: direct {}, through the front {}", total[0], total[1]);
    Ok(())
}

fn folder() -> PathBuf {
    workspace::target().join("xtask").join("redis-suites")
}

/// The folder of Redis's source, of the version that Debian has.
fn tcl_source() -> Result<PathBuf> {
    let source = folder().join("redis");
    if source.join("tests/test_helper.tcl").is_file() {
        return Ok(source);
    }
    let lists = folder().join("lists");
    fs::create_dir_all(lists.join("partial"))?;
    let release = fs::read_to_string("/etc/os-release").context("is this Debian?")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("/etc/os-release has no VERSION_CODENAME (is this Debian?)")?;
    let sources = folder().join("sources.list");
    fs::write(&sources, format!("deb-src http://deb.debian.org/debian {suite} main\n"))?;
    // Apart from the lists of the system, which stay as they are.
    let apt = || {
        let mut command = Command::new("apt-get");
        command.arg("-o").arg(format!("Dir::Etc::SourceList={}", sources.display()));
        command.args(["-o", "Dir::Etc::SourceParts=-", "-o", "APT::Sandbox::User=root"]);
        command.arg("-o").arg(format!("Dir::State::Lists={}", lists.display()));
        command
    };
    run_in(apt().arg("update"), &folder())?;
    run_in(apt().args(["source", "--download-only", "redis"]), &folder())?;
    let archive = archive("redis_", ".orig.tar.gz")?;
    fs::create_dir_all(&source)?;
    let mut unpack = Command::new("tar");
    unpack.args(["--strip-components=1", "-C"]).arg(&source).arg("-xzf").arg(archive);
    run_in(&mut unpack, &folder())?;
    let server = source.join("tests/support/server.tcl");
    let text = fs::read_to_string(&server)?;
    let text = text.replace("    r flushall\n", "    catch {r flushall}\n");
    fs::write(&server, text.replace("    r function flush\n", "    catch {r function flush}\n"))?;
    for program in ["redis-cli", "redis-server", "redis-benchmark"] {
        let _ = symlink(Path::new("/usr/bin").join(program), source.join("src").join(program));
    }
    Ok(source)
}

/// The folder of redis-py, with an environment that has what its tests need.
fn python_source() -> Result<PathBuf> {
    let source = folder().join("redis-py");
    if source.join("venv/bin/pytest").is_file() {
        return Ok(source);
    }
    let mut download = Command::new("pip");
    download.args(["download", "-q", "--no-binary", "redis", "--no-deps", "redis"]);
    run_in(&mut download, &folder())?;
    fs::create_dir_all(&source)?;
    let mut unpack = Command::new("tar");
    unpack.args(["--strip-components=1", "-C"]).arg(&source).arg("-xzf");
    run_in(unpack.arg(archive("redis-", ".tar.gz")?), &folder())?;
    run_in(Command::new("python3").args(["-m", "venv", "venv"]), &source)?;
    let mut install = Command::new(source.join("venv/bin/pip"));
    install.args(["install", "-q", "--disable-pip-version-check", "."]);
    install.args(["pytest", "pytest-asyncio", "pytest-timeout", "mock", "numpy", "cachetools"]);
    run_in(&mut install, &source)?;
    Ok(source)
}

/// The file in our folder whose name begins and ends like this.
fn archive(start: &str, end: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder())?.collect::<Result<Vec<_>, _>>()?;
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(start) && name.ends_with(end)
    };
    let found = entries.into_iter().map(|entry| entry.path()).find(is_it);
    found.with_context(|| format!("no {start}*{end} was downloaded"))
}

fn ask_tcl(source: &Path, unit: &str, port: u16, whom: &str) -> Result<Verdicts> {
    let mut command = Command::new("tclsh");
    command.args(["tests/test_helper.tcl", "--host", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--singledb", "--ignore-encoding", "--ignore-digest", "--durable"]);
    command.args(["--timeout", TEST_TIMEOUT_S, "--tags", TAGS, "--single", unit]);
    verdicts(command, source, &format!("{}-{whom}", unit.replace('/', "-")), read_tcl)
}

fn ask_python(source: &Path, port: u16, whom: &str) -> Result<Verdicts> {
    let mut command = Command::new(source.join("venv/bin/python"));
    command.args(["-m", "pytest", "-v", "-p", "no:cacheprovider", "--color=no", "--tb=line"]);
    command.arg(format!("--timeout={TEST_TIMEOUT_S}"));
    command.arg(format!("--redis-url=redis://127.0.0.1:{port}/0"));
    command.args(["-m", "not redismod and not cp_integration and not onlycluster"]);
    command.args(REDIS_PY_FILES);
    verdicts(command, source, &format!("{REDIS_PY}-{whom}"), read_pytest)
}

/// What a suite's output says of its tests. A suite that breaks off has those that came before.
fn verdicts(
    mut command: Command,
    source: &Path,
    name: &str,
    read: fn(&str) -> Option<(String, bool)>,
) -> Result<Verdicts> {
    let log = folder().join(format!("{name}.log"));
    let file = fs::File::create(&log).with_context(|| format!("cannot write {log:?}"))?;
    let child = command
        .current_dir(source)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0)
        .spawn()
        .with_context(|| format!("`{command:?}` could not be started in {source:?}"))?;
    wait(child, LIMIT)?;
    let said = without_colours(&String::from_utf8_lossy(&fs::read(&log)?));
    let mut verdicts: BTreeMap<String, bool> = BTreeMap::new();
    for (name, passed) in said.lines().filter_map(read) {
        *verdicts.entry(name).or_insert(true) &= passed;
    }
    Ok(verdicts)
}

/// Redis's suite paints its verdicts for a terminal, wherever they go.
fn without_colours(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

/// `[ok]: MULTI / EXEC basics (1 ms)`, `[err]: MULTI / EXEC basics in tests/unit/multi.tcl`
fn read_tcl(line: &str) -> Option<(String, bool)> {
    let (verdict, name) = line.split_once(": ")?;
    match verdict {
        "[ok]" => {
            let end = name.rfind(" (").unwrap_or(name.len());
            Some((name[..end].to_owned(), true))
        }
        "[err]" => {
            let end = name.rfind(" in tests/").unwrap_or(name.len());
            Some((name[..end].to_owned(), false))
        }
        _ => None,
    }
}

/// `tests/test_commands.py::TestRedisCommands::test_get PASSED [ 3%]`
fn read_pytest(line: &str) -> Option<(String, bool)> {
    let (name, rest) = line.split_once(' ').filter(|(name, _)| name.contains("::"))?;
    match rest.split_whitespace().next()? {
        "PASSED" => Some((name.to_owned(), true)),
        "FAILED" | "ERROR" => Some((name.to_owned(), false)),
        _ => None,
    }
}

/// A plain Redis and a front with three duplicates.
struct Servers {
    child: Child,
    file: PathBuf,
    plain: u16,
    front: u16,
}

impl Servers {
    fn start() -> Result<Self> {
        let file = folder().join("servers");
        let _ = fs::remove_file(&file);
        let test = ["test", "-p", "evenkeel-duplicates", "--test", "duplicates", "--"];
        let child = workspace::cargo()
            .args(test)
            .args(["--ignored", "--exact", "hold::hold", "--nocapture"])
            .env("EVENKEEL_DUPLICATES_HOLD", &file)
            .current_dir(workspace::root())
            .stdin(Stdio::null())
            .spawn()
            .context("cannot start the servers")?;
        let mut this = Self { child, file, plain: 0, front: 0 };
        let began = Instant::now();
        loop {
            let written = fs::read_to_string(&this.file).unwrap_or_default();
            if let Some([plain, front]) = ports(&written) {
                (this.plain, this.front) = (plain, front);
                return Ok(this);
            }
            if let Some(status) = this.child.try_wait()? {
                bail!("the servers ended ({status}); `cargo xtask needs` says what is missing");
            }
            if began.elapsed() > START_MAX {
                bail!("the servers do not start");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// `PLAIN FRONT` and the end of a line.
fn ports(text: &str) -> Option<[u16; 2]> {
    let (plain, front) = text.strip_suffix('\n')?.split_once(' ')?;
    Some([plain.parse().ok()?, front.parse().ok()?])
}

impl Drop for Servers {
    fn drop(&mut self) {
        if !self.file.exists() {
            let _ = self.child.kill(); // it has not come so far that it would see
        }
        // They stay as long as the file does.
        let _ = fs::remove_file(&self.file);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_of_both_suites_are_read() {
        let of = |name: &str, passed| Some((name.to_owned(), passed));
        assert_eq!(
            read_tcl("[ok]: EXEC fails (quickly) (12 ms)"),
            of("EXEC fails (quickly)", true)
        );
        let line = "[err]: MULTI with SAVE in tests/unit/multi.tcl";
        assert_eq!(read_tcl(line), of("MULTI with SAVE", false));
        assert_eq!(read_tcl("[ignore]: SAVE: external:skip"), None);
        let painted = "[\u{1b}[0;32;49mok\u{1b}[0m]: MULTI (1 ms)";
        assert_eq!(read_tcl(&without_colours(painted)), of("MULTI", true));
        let line = "tests/test_commands.py::TestRedis::test_get PASSED [ 3%]";
        assert_eq!(read_pytest(line), of("tests/test_commands.py::TestRedis::test_get", true));
        assert_eq!(read_pytest("tests/a.py::T::t SKIPPED (no) [ 3%]"), None);
        assert_eq!(ports("7000 7001\n"), Some([7000, 7001]));
        assert_eq!(ports("7000 70"), None, "it is still being written");
    }

    #[test]
    fn an_unknown_suite_is_an_error_that_lists_the_known_ones() {
        let error = run(&["jedis"]).unwrap_err();
        assert!(error.is::<UsageError>() && error.to_string().contains("unit/multi"), "{error}");
    }
}
