//! Where the suites come from: Debian and PyPI, into a folder below `target`.
//!
//! Redis's suite is changed in four places ([`CHANGES`]), for both servers alike: without that,
//! one refusal ends a whole file, or leaves its connection within `MULTI` for all tests behind it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::drivers::run as run_in;

/// File, what it says, and what it is to say.
const CHANGES: [(&str, &str, &str); 4] = [
    // What begins and ends a file may be refused.
    ("tests/support/server.tcl", "\n    r flushall\n", "\n    catch {r flushall}\n"),
    ("tests/support/server.tcl", "\n    r function flush\n", "\n    catch {r function flush}\n"),
    (
        "tests/support/server.tcl",
        "\n        r config set $param $val\n",
        "\n        catch {r config set $param $val}\n",
    ),
    // Who was left in the middle of a test begins the next one on a new connection.
    (
        "tests/support/test.tcl",
        "lappend details $::errorInfo\n            }\n            lappend ::tests_failed",
        "lappend details $::errorInfo\n            }\n            \
         if {$::external} {catch {reconnect}}\n            lappend ::tests_failed",
    ),
];

/// The folder of Redis's source, of the version that Debian has.
pub(super) fn tcl(folder: &Path) -> Result<PathBuf> {
    let source = folder.join("redis");
    if !source.join("tests/test_helper.tcl").is_file() {
        download_tcl(folder, &source)?;
    }
    for (file, from, to) in CHANGES {
        let file = source.join(file);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file:?}"))?;
        match text.contains(from) {
            true => fs::write(&file, text.replace(from, to))?,
            false if text.contains(to) => {}
            false => bail!("{file:?} does not say {from:?}: is it of another version?"),
        }
    }
    for program in ["redis-cli", "redis-server", "redis-benchmark"] {
        let _ = symlink(Path::new("/usr/bin").join(program), source.join("src").join(program));
    }
    Ok(source)
}

fn download_tcl(folder: &Path, source: &Path) -> Result<()> {
    let lists = folder.join("lists");
    fs::create_dir_all(lists.join("partial"))?;
    let release = fs::read_to_string("/etc/os-release").context("is this Debian?")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("/etc/os-release has no VERSION_CODENAME (is this Debian?)")?;
    let sources = folder.join("sources.list");
    fs::write(&sources, format!("deb-src http://deb.debian.org/debian {suite} main\n"))?;
    // Apart from the lists of the system, which stay as they are.
    let apt = || {
        let mut command = Command::new("apt-get");
        command.arg("-o").arg(format!("Dir::Etc::SourceList={}", sources.display()));
        command.args(["-o", "Dir::Etc::SourceParts=-", "-o", "APT::Sandbox::User=root"]);
        command.arg("-o").arg(format!("Dir::State::Lists={}", lists.display()));
        command
    };
    run_in(apt().arg("update"), folder)?;
    run_in(apt().args(["source", "--download-only", "redis"]), folder)?;
    let archive = archive(folder, "redis_", ".orig.tar.gz")?;
    fs::create_dir_all(source)?;
    let mut unpack = Command::new("tar");
    unpack.args(["--strip-components=1", "-C"]).arg(source).arg("-xzf").arg(archive);
    run_in(&mut unpack, folder)
}

/// The folder of redis-py, with an environment that has what its tests need.
pub(super) fn python(folder: &Path) -> Result<PathBuf> {
    let source = folder.join("redis-py");
    if source.join("venv/bin/pytest").is_file() {
        return Ok(source);
    }
    let mut download = Command::new("pip");
    download.args(["download", "-q", "--no-binary", "redis", "--no-deps", "redis"]);
    run_in(&mut download, folder)?;
    fs::create_dir_all(&source)?;
    let mut unpack = Command::new("tar");
    unpack.args(["--strip-components=1", "-C"]).arg(&source).arg("-xzf");
    run_in(unpack.arg(archive(folder, "redis-", ".tar.gz")?), folder)?;
    run_in(Command::new("python3").args(["-m", "venv", "venv"]), &source)?;
    let mut install = Command::new(source.join("venv/bin/pip"));
    install.args(["install", "-q", "--disable-pip-version-check", "."]);
    install.args(["pytest", "pytest-asyncio", "pytest-timeout", "mock", "numpy", "cachetools"]);
    run_in(&mut install, &source)?;
    Ok(source)
}

/// The file in this folder whose name begins and ends like this.
fn archive(folder: &Path, start: &str, end: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(start) && name.ends_with(end)
    };
    let found = entries.into_iter().map(|entry| entry.path()).find(is_it);
    found.with_context(|| format!("no {start}*{end} was downloaded"))
}
