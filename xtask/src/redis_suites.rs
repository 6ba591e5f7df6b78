//! `cargo xtask redis-suites`: the tests of Redis itself and of redis-py, once at a plain Redis and
//! once through a front with three duplicates of the same version.
//!
//! What counts is what passes at the plain one only: such a test has an excuse with its reason
//! ([`excuses`]), or the command fails. Each suite has servers of its own, and one that hangs,
//! breaks off or cannot be run does not stop the others: a test that hangs has failed, and the
//! others are asked again without it. What fails through the front is asked twice. Tests that need
//! a server of their own (replication, DEBUG, a restart) are left out by their tags. It is run by
//! hand: it needs the network, and takes half an hour.

mod excuses;
mod servers;
mod sources;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::drivers::{Ended, Verdicts, missing, wait};
use crate::{UsageError, workspace};
use servers::Servers;

/// The tests of redis-py, as they are asked for.
const REDIS_PY: &str = "redis-py";

/// Those of its clients that keep what they read, which need a Redis 7.4
/// (`EVENKEEL_REDIS_SERVER`): only where they are asked for.
const REDIS_PY_CACHING: &str = "redis-py-caching";

/// Of redis-py those that ask one server.
const REDIS_PY_FILES: [&str; 4] = [
    "tests/test_commands.py",
    "tests/test_pipeline.py",
    "tests/test_connection_pool.py",
    "tests/test_encoding.py",
];
const REDIS_PY_CACHING_FILES: [&str; 1] = ["tests/test_cache.py"];

/// Files of Redis's suite that make sense at a server that is not started by it.
const UNITS: [&str; 24] = [
    "unit/type/hash",
    "unit/type/incr",
    "unit/type/string",
    "unit/type/set",
    "unit/type/list",
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
    "unit/introspection",
    "unit/other",
    "unit/pause",
    "unit/pubsub",
    "unit/tracking",
    "unit/scripting",
];

/// What one server alone can do is left out, and what takes minutes.
const TAGS: &str = "-needs:repl -needs:debug -needs:config-maxmemory -needs:pfdebug -needs:save \
                    -needs:reset -slow";

/// How long one suite may take.
const LIMIT: Duration = Duration::from_secs(900);

/// How long may be waited for one test.
const TEST_TIMEOUT_S: &str = "60";

/// Tests of one suite that may hang.
const HANGS_MAX: usize = 8;

/// Where the sources are of the suites that are asked for.
struct Sources {
    tcl: Option<PathBuf>,
    python: Option<PathBuf>,
}

/// How many tests passed.
#[derive(Default)]
struct Total {
    direct: usize,
    front: usize,
    excused: usize,
    /// Pass directly only, without an excuse.
    missing: Vec<String>,
    /// Suites of which nothing is known.
    not_run: Vec<String>,
}

/// Runs these suites, or all.
///
/// # Errors
/// When sources cannot be had, a suite cannot be run, or a test without an excuse passes at a plain
/// Redis only.
pub(crate) fn run(suites: &[&str]) -> Result<()> {
    let asked: Vec<&str> = match suites {
        [] => std::iter::once(REDIS_PY).chain(UNITS).collect(),
        suites => suites.to_vec(),
    };
    let is_unknown = |suite: &&&str| !is_python(suite) && !suite.starts_with("unit/");
    let unknown = asked.iter().find(is_unknown);
    if let Some(unknown) = unknown {
        let units = UNITS.join(", ");
        let text = format!(
            "redis-suites: {unknown}: expected {REDIS_PY}, {REDIS_PY_CACHING} (needs a Redis 7.4), \
             or a unit such as {units}"
        );
        return Err(UsageError::new(text).into());
    }
    fs::create_dir_all(folder())?;
    let tcl = asked.iter().any(|suite| !is_python(suite));
    let python = asked.iter().any(|suite| is_python(suite));
    let sources = Sources {
        tcl: tcl.then(|| sources::tcl(&folder())).transpose()?,
        python: python.then(|| sources::python(&folder())).transpose()?,
    };
    let mut totals = [(REDIS_PY, Total::default()), ("Redis's own", Total::default())];
    for suite in asked {
        let total = &mut totals[usize::from(!is_python(suite))].1;
        match sources.compare(suite) {
            Ok((direct, front)) => total.add(suite, &direct, &front),
            Err(error) => {
                println!("{suite}: NOT RUN: {error:#}");
                total.not_run.push(suite.to_owned());
            }
        }
    }
    println!();
    totals.iter().for_each(|(name, total)| total.print(name));
    let count = |of: fn(&Total) -> usize| totals.iter().map(|(_, total)| of(total)).sum::<usize>();
    match (count(|it| it.missing.len()), count(|it| it.not_run.len())) {
        (0, 0) => Ok(()),
        (missing, broken) => bail!("{missing} tests pass directly only, {broken} suites not run"),
    }
}

fn is_python(suite: &str) -> bool {
    [REDIS_PY, REDIS_PY_CACHING].contains(&suite)
}

fn folder() -> PathBuf {
    workspace::target().join("xtask").join("redis-suites")
}

impl Total {
    /// Counts and prints what became of a suite.
    fn add(&mut self, suite: &str, direct: &Verdicts, front: &Verdicts) {
        let passed = [direct, front].map(|it| it.values().filter(|passed| **passed).count());
        println!("{suite}: direct {}, through the front {}", passed[0], passed[1]);
        self.direct += passed[0];
        self.front += passed[1];
        for test in missing(direct, front) {
            if let Some(excuse) = excuses::find(suite, test) {
                println!("  excused: {test}: {}", excuse.reason);
                self.excused += 1;
            } else {
                println!("  PASSES DIRECTLY ONLY: {test}");
                self.missing.push(format!("{suite}: {test}"));
            }
        }
        let passed = front.iter().filter(|(_, passed)| **passed);
        for (test, _) in passed.filter(|(test, _)| excuses::find(suite, test).is_some()) {
            println!("  NEEDS NO EXCUSE: {test}");
        }
    }

    fn print(&self, name: &str) {
        let Self { direct, front, excused, missing, not_run } = self;
        if *direct == 0 && not_run.is_empty() {
            return;
        }
        let percent = 100.0 * (*direct - missing.len() - excused) as f64 / (*direct).max(1) as f64;
        println!(
            "{name}: direct {direct}, through the front {front}; of those that pass directly \
             {percent:.1} % pass, {excused} are excused, {} are not",
            missing.len()
        );
        missing.iter().for_each(|test| println!("  PASSES DIRECTLY ONLY: {test}"));
        not_run.iter().for_each(|suite| println!("  NOT RUN: {suite}"));
    }
}

impl Sources {
    /// What passes directly and through the front, where what fails without an excuse is asked
    /// twice.
    fn compare(&self, suite: &str) -> Result<(Verdicts, Verdicts)> {
        let servers = Servers::start(&folder())?;
        let direct = self.ask(suite, servers.plain, "direct")?;
        if !direct.values().any(|passed| *passed) {
            bail!("nothing passes at a plain Redis, see {:?}", folder());
        }
        let mut front = self.ask(suite, servers.front, "front")?;
        drop(servers);
        let unexcused = missing(&direct, &front).any(|it| excuses::find(suite, it).is_none());
        if unexcused {
            let servers = Servers::start(&folder())?;
            for (test, _) in self.ask(suite, servers.front, "again")?.into_iter().filter(|it| it.1)
            {
                if front.insert(test.clone(), true) == Some(false) {
                    println!("  UNSTEADY: {suite}: {test}");
                }
            }
        }
        Ok((direct, front))
    }

    /// What passes at this port.
    fn ask(&self, suite: &str, port: u16, whom: &str) -> Result<Verdicts> {
        match (&self.python, &self.tcl) {
            (Some(source), _) if is_python(suite) => ask_python(source, suite, port, whom),
            (_, Some(source)) => ask_tcl(source, suite, port, whom),
            _ => bail!("its source was not fetched"),
        }
    }
}

fn ask_tcl(source: &Path, unit: &str, port: u16, whom: &str) -> Result<Verdicts> {
    let (mut verdicts, mut hung) = (Verdicts::new(), Vec::<String>::new());
    loop {
        let mut command = Command::new("tclsh");
        command.args(["tests/test_helper.tcl", "--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--singledb", "--ignore-encoding", "--ignore-digest", "--durable"]);
        command.args(["--timeout", TEST_TIMEOUT_S, "--tags", TAGS, "--single", unit]);
        command.args(hung.iter().flat_map(|test| ["--skiptest", test]));
        let name = format!("{}-{whom}{}", unit.replace('/', "-"), "+".repeat(hung.len()));
        let said = output(command, source, &name)?;
        verdicts.extend(read_verdicts(&said, read_tcl));
        let Some(test) = hanging(&said) else { return Ok(verdicts) };
        println!("  {unit}, {whom}: hangs: {test}");
        verdicts.insert(test.to_owned(), false);
        if hung.iter().any(|it| it == test) || hung.len() == HANGS_MAX {
            return Ok(verdicts);
        }
        hung.push(test.to_owned());
    }
}

fn ask_python(source: &Path, suite: &str, port: u16, whom: &str) -> Result<Verdicts> {
    let mut command = Command::new(source.join("venv/bin/python"));
    command.args(["-m", "pytest", "-v", "-p", "no:cacheprovider", "--color=no", "--tb=line"]);
    command.arg(format!("--timeout={TEST_TIMEOUT_S}"));
    command.arg(format!("--redis-url=redis://127.0.0.1:{port}/0"));
    command.args(["-m", "not redismod and not cp_integration and not onlycluster"]);
    match suite {
        REDIS_PY_CACHING => command.args(REDIS_PY_CACHING_FILES),
        _ => command.args(REDIS_PY_FILES),
    };
    let said = output(command, source, &format!("{suite}-{whom}"))?;
    Ok(read_verdicts(&said, read_pytest))
}

/// What a suite prints. One that breaks off, or is cut off, has said something of its first tests.
fn output(mut command: Command, source: &Path, name: &str) -> Result<String> {
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
    if wait(child, LIMIT)? == Ended::CutOff {
        println!("  {name}: cut off, see {log:?}");
    }
    Ok(without_colours(&String::from_utf8_lossy(&fs::read(&log)?)))
}

/// By test, whether it passed each time.
fn read_verdicts(said: &str, read: fn(&str) -> Option<(String, bool)>) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for (name, passed) in said.lines().filter_map(read) {
        *verdicts.entry(name).or_insert(true) &= passed;
    }
    verdicts
}

/// The test of Redis's suite that was waited for in vain: `sock5 => (IN PROGRESS) BLPOP`
fn hanging(said: &str) -> Option<&str> {
    let (_, report) = said.split_once("[TIMEOUT]")?;
    report.lines().find_map(|line| Some(line.split_once("(IN PROGRESS) ")?.1.trim_end()))
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
    }

    #[test]
    fn a_test_that_hangs_is_named_and_one_that_failed_once_has_failed() {
        let said = "[ok]: A (1 ms)\n[err]: A in tests/unit/a.tcl\n[ok]: B (1 ms)\n";
        let of = |name: &str, passed| (name.to_owned(), passed);
        let expected = Verdicts::from([of("A", false), of("B", true)]);
        assert_eq!(read_verdicts(said, read_tcl), expected);
        assert_eq!(hanging(said), None);
        let report = "[TIMEOUT]: clients state report follows.\nsock1 => (IN PROGRESS) C (1)\n";
        assert_eq!(hanging(&format!("{said}{report}")), Some("C (1)"));
    }

    #[test]
    fn what_passes_directly_only_counts_unless_it_is_excused() {
        let verdicts = |all: &[(&str, bool)]| -> Verdicts {
            all.iter().map(|(name, passed)| ((*name).to_owned(), *passed)).collect()
        };
        let direct = verdicts(&[("a", true), ("b", true), ("c", false)]);
        let mut total = Total::default();
        total.add("unit/none", &direct, &verdicts(&[("a", true), ("c", false)]));
        total.add("unit/none", &direct, &direct);
        assert_eq!((total.direct, total.front), (4, 3));
        assert_eq!(total.missing, ["unit/none: b"]);
    }

    #[test]
    fn an_unknown_suite_is_an_error_that_lists_the_known_ones() {
        let error = run(&["jedis"]).unwrap_err();
        assert!(error.is::<UsageError>() && error.to_string().contains("unit/multi"), "{error}");
    }
}
