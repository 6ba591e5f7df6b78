//! `cargo xtask bench instructions`: what a proxied request costs in instructions of user space.
//!
//! CPU time moves with everything else on a machine, by a factor of two on a loaded one; the number
//! of instructions hardly moves (half a percent), so that CI can hold it. It is no CPU time: it
//! does not know the kernel, nor what waits for memory. Callgrind counts; the release program is
//! measured, which CI has built anyway. What is on record holds for one compiler.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::h2load;
use super::proxies::{self, BACKEND_PORTS, EVENKEEL, HTTP, Proxy, proxy_config};
use crate::bench::process::{self, Workbench};
use crate::bench::{file, number};
use crate::{UsageError, needs, workspace};

const USAGE: &str = "\
usage: cargo xtask bench instructions [OPTIONS]

Instructions of user space for each request, of the release program under callgrind, beside those on
record in xtask/instructions.json. Exit 1 where there are 3 % more.

  --binary PATH      the evenkeel to measure; default target/release/evenkeel
  --requests N       requests that are counted, 1000 to 1000000; default 12800
  --record           put the figures on record

example: cargo xtask bench instructions --record";

/// So many per cent more than on record fail.
const TOLERANCE: f64 = 3.0;
/// Before what is counted: connections, caches and estimates are there then.
const WARM_UP: u32 = 3_200;
const CONNECTIONS: u32 = 64;

/// What is measured: the default, with what users switch on.
const SUBJECTS: [Proxy; 4] = [
    Proxy { name: "c3", config_name: "c3.toml", ..EVENKEEL },
    Proxy {
        name: "c3, hedge",
        config_name: "hedge.toml",
        config: |_, port, backends| proxy_config(port, backends, "", "hedge = {}\n"),
        ..EVENKEEL
    },
    Proxy {
        name: "adaptive",
        config_name: "adaptive.toml",
        config: |_, port, backends| proxy_config(port, backends, "", "policy = \"adaptive\"\n"),
        ..EVENKEEL
    },
    Proxy { name: "record", config_name: "record.toml", config: proxies::recording, ..EVENKEEL },
];

/// Figures on record.
#[derive(Debug, Default)]
struct Recorded {
    /// As `rustc --version` says, and for which processors.
    compiler: String,
    per_request: BTreeMap<String, u64>,
}

impl Recorded {
    fn parse(text: &str) -> Option<Self> {
        let document: Value = serde_json::from_str(text).ok()?;
        let count = |(name, count): (&String, &Value)| Some((name.clone(), count.as_u64()?));
        let counts = document["per_request"].as_object()?.iter().map(count);
        let compiler = document["compiler"].as_str()?.to_owned();
        Some(Self { compiler, per_request: counts.collect::<Option<_>>()? })
    }

    fn text(&self) -> String {
        let document = json!({ "compiler": self.compiler, "per_request": self.per_request });
        format!("{document:#}\n")
    }
}

struct Options {
    binary: PathBuf,
    requests: u32,
    records: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, UsageError> {
        let binary = workspace::release_binary();
        let mut options = Self { binary, requests: 12_800, records: false };
        let mut words = words.iter();
        while let Some(option) = words.next() {
            let mut value = || {
                let wanted = || UsageError::new(format!("{option} needs a value\n\n{USAGE}"));
                words.next().copied().ok_or_else(wanted)
            };
            match *option {
                "--binary" => options.binary = file(option, value()?)?,
                "--requests" => options.requests = number(option, value()?, 1_000, 1_000_000)?,
                "--record" => options.records = true,
                _ => return Err(UsageError::new(format!("unknown option `{option}`\n\n{USAGE}"))),
            }
        }
        Ok(options)
    }
}

/// Counts, and compares with what is on record or puts it there.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    if matches!(words, ["--help" | "-h"]) {
        println!("{USAGE}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    let bench = Workbench::create("instructions", BACKEND_PORTS + SUBJECTS.len())?;
    let (backends, own) = bench.ports().split_at(BACKEND_PORTS);
    let _backend = proxies::start_backend(&bench, &HTTP, backends, proxies::BODY_BYTES)?;
    let mut found = Recorded { compiler: compiler()?, ..Recorded::default() };
    for (subject, port) in SUBJECTS.iter().zip(own) {
        let count = count(&bench, subject, *port, backends, &options)?;
        found.per_request.insert(subject.name.to_owned(), count);
    }
    let path = workspace::root().join("xtask/instructions.json");
    if options.records {
        std::fs::write(&path, found.text()).with_context(|| format!("cannot write {path:?}"))?;
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path:?}"))?;
    let words =
        || format!("{path:?}: expected `compiler` and `per_request`; `--record` writes both");
    let recorded = Recorded::parse(&text).with_context(words)?;
    let dearer = compare(&found, &recorded);
    if dearer.is_empty() {
        return Ok(());
    }
    bail!(
        "more than {TOLERANCE} % dearer than on record: {}. Make it cheaper, or say why it is \
         worth it and run `cargo xtask bench instructions --record`",
        dearer.join(", ")
    )
}

/// The same with the defaults; skipped, and said so, where a program is missing that counts.
pub(crate) fn check() -> Result<()> {
    let programs = ["nginx", "h2load", "valgrind", "callgrind_control"];
    if let Err(missing) = programs.iter().try_for_each(|name| needs::require(name).map(drop)) {
        println!("skipped: {missing:#}");
        return Ok(());
    }
    run(&[])
}

/// Prints what was found; the names of those that are dearer than on record.
fn compare(found: &Recorded, recorded: &Recorded) -> Vec<String> {
    let is_comparable = found.compiler == recorded.compiler;
    if !is_comparable {
        println!(
            "not compared: this is {}, what is on record is of {}",
            found.compiler, recorded.compiler
        );
    }
    println!("{:12} {:>12} {:>10} {:>8}", "instructions", "per request", "on record", "more");
    let mut dearer = Vec::new();
    for (name, &count) in &found.per_request {
        let Some(&before) = recorded.per_request.get(name) else {
            println!("{name:12} {count:>12} {:>10}", "none");
            continue;
        };
        let more = (count as f64 / before as f64 - 1.0) * 100.0;
        println!("{name:12} {count:>12} {before:>10} {more:>+7.1}%");
        if is_comparable && more > TOLERANCE {
            dearer.push(name.clone());
        }
    }
    dearer
}

/// Instructions for each request of a subject.
fn count(
    bench: &Workbench,
    subject: &Proxy,
    port: u16,
    backends: &[u16],
    options: &Options,
) -> Result<u64> {
    let output = bench.folder().join(format!("{}.callgrind", subject.config_name));
    let mut command = process::child(&needs::require("valgrind")?);
    command.arg("--tool=callgrind");
    command.arg(format!("--callgrind-out-file={}", output.display())).arg(&options.binary);
    let server = subject.start_by(command, bench, port, backends)?;
    let load = h2load::Load {
        program: needs::require("h2load")?,
        connections: CONNECTIONS,
        streams: None,
    };
    load.messages(port, WARM_UP)?;
    dump(server.id())?; // and begins at zero
    load.messages(port, options.requests)?;
    dump(server.id())?;
    let path = PathBuf::from(format!("{}.2", output.display()));
    Ok(total(&path)? / u64::from(options.requests))
}

/// Has callgrind write what it counted since the last time.
fn dump(process: u32) -> Result<()> {
    let mut control = Command::new(needs::require("callgrind_control")?);
    let output = control.args(["--dump", &process.to_string()]).output()?;
    if !output.status.success() {
        bail!("callgrind_control: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn total(path: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("no dump in {path:?}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("totals:"));
    let total = line.and_then(|line| line.trim().parse().ok());
    total.with_context(|| format!("{path:?} has no line `totals: NUMBER`"))
}

fn compiler() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("rustc")?;
    let version = String::from_utf8_lossy(&output.stdout);
    Ok(format!("{}, {}", version.trim(), std::env::consts::ARCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(compiler: &str, count: u64) -> Recorded {
        let per_request = BTreeMap::from([("c3".to_owned(), count)]);
        Recorded { compiler: compiler.to_owned(), per_request }
    }

    #[test]
    fn what_takes_three_percent_more_fails_unless_another_compiler_made_it() {
        let recorded = of("1.90", 30_000);
        assert!(compare(&of("1.90", 30_890), &recorded).is_empty());
        assert!(compare(&of("1.90", 20_000), &recorded).is_empty());
        assert_eq!(compare(&of("1.90", 30_910), &recorded), ["c3"]);
        assert!(compare(&of("1.91", 40_000), &recorded).is_empty());
        assert!(compare(&of("1.90", 40_000), &Recorded::default()).is_empty());
    }

    #[test]
    fn options_are_checked() {
        let parsed = Options::parse(&["--record", "--requests", "2000"]).unwrap();
        assert_eq!((parsed.records, parsed.requests), (true, 2_000));
        for wrong in [&["--requests"][..], &["--requests", "7"], &["--fast"], &["--binary", "/x"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_figure_on_record_is_of_a_subject() {
        let text = include_str!("../../instructions.json");
        let recorded = Recorded::parse(text).unwrap();
        assert_eq!(recorded.text(), text);
        let mut names: Vec<&str> = SUBJECTS.iter().map(|subject| subject.name).collect();
        names.sort_unstable();
        assert_eq!(recorded.per_request.keys().collect::<Vec<_>>(), names);
    }
}
