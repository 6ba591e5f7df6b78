//! Programs that make load through a driver, a turn at a time: `compare` of `sdk/scylla`, and
//! `Load.java` beside this file. They understand the same words.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::copies::Copies;
use crate::bench::dialogue::Dialogue;
use crate::bench::process::{self, Workbench};
use crate::{needs, workspace};

/// Whose driver makes the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Scylla,
    Java,
}

/// A running one; it has a session for each of its ways.
pub(crate) struct Generator {
    pub(crate) driver: Driver,
    dialogue: Dialogue,
}

/// What came of the requests of a turn.
#[derive(Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Of what was due in the first half of the turn and in the second; sorted.
    pub(crate) halves_us: [Vec<u64>; 2],
    pub(crate) errors: u64,
    pub(crate) error: Option<String>,
    pub(crate) elapsed_us: u64,
    /// Of the generator's process.
    pub(crate) cpu_us: u64,
    /// The 99.9th percentile of how much too late requests were sent.
    pub(crate) late_us: u64,
    /// That our policy sent in the driver; none where it has none of ours.
    pub(crate) copies: Copies,
}

impl Generator {
    /// Starts one with these `name=value` words and waits until it is connected.
    pub(crate) fn start(driver: Driver, bench: &Workbench, words: &[String]) -> Result<Self> {
        let (name, mut command) = match driver {
            Driver::Scylla => {
                let program = workspace::target().join("dist/examples/compare");
                ("the load by scylla", process::first_child(&program))
            }
            Driver::Java => ("the load by java-driver", java(bench)?),
        };
        let mut dialogue = Dialogue::start(name, command.args(words).arg("commands=yes"))?;
        dialogue.answer("ready")?;
        Ok(Self { driver, dialogue })
    }

    /// Takes one turn with these words.
    pub(crate) fn take(&mut self, words: &str) -> Result<Outcome> {
        let answer = self.dialogue.ask(&format!("turn {words}"), "turn ")?;
        let outcome = read(&answer).with_context(|| {
            let start: String = answer.chars().take(200).collect();
            format!("`turn {words}`: got `{start}`")
        })?;
        if outcome.halves_us.iter().all(Vec::is_empty) {
            let error = outcome.error.as_deref().unwrap_or("nothing was asked");
            bail!("`turn {words}`: no answer at all: {error}");
        }
        Ok(outcome)
    }
}

/// Builds what is measured with; an old one would be used without anyone noticing.
pub(crate) fn build(driver: Driver) -> Result<()> {
    if driver == Driver::Scylla {
        let example = ["-p", "evenkeel-scylla", "--features", "driver", "--example", "compare"];
        workspace::run_cargo(&[&["build", "--profile", "dist"][..], &example].concat(), &[])?;
    }
    Ok(())
}

/// Java's own defaults but for the heap, which would be a quarter of the machine's memory.
fn java(bench: &Workbench) -> Result<Command> {
    let jars = workspace::target().join("xtask/cassandra/java/lib");
    if !jars.is_dir() {
        bail!("no java-driver in {}; `cargo xtask needs --install` brings it", jars.display());
    }
    let classes = bench.folder().join("classes");
    fs::create_dir_all(&classes).with_context(|| format!("cannot create {classes:?}"))?;
    let source = workspace::root().join("xtask/src/bench_cassandra/Load.java");
    let jars = format!("{}/*", jars.display());
    let mut compiler = Command::new(needs::require("javac")?);
    compiler.arg("-d").arg(&classes).args(["-cp", &jars]).arg(&source);
    workspace::run_to_success(&mut compiler, "javac Load.java")?;
    let mut command = process::first_child(&needs::require("java")?);
    command.args(["-Xmx256M", "-cp", &format!("{}:{jars}", classes.display()), "Load"]);
    Ok(command)
}

/// `errors=0 elapsed_us=… … error=words to the end`
fn read(answer: &str) -> Option<Outcome> {
    let (words, error) = match answer.split_once(" error=") {
        Some((words, error)) => (words, Some(error.to_owned())),
        None => (answer, None),
    };
    let words: BTreeMap<&str, &str> =
        words.split_whitespace().map(|word| word.split_once('=')).collect::<Option<_>>()?;
    let number = |name| words.get(name)?.parse().ok();
    let counted = |name| words.get(name).map_or(Some(0.0), |value| value.parse().ok());
    let list = |name| {
        let items = words.get(name)?.split(',').filter(|item| !item.is_empty());
        let mut list = items.map(|item| item.parse().ok()).collect::<Option<Vec<u64>>>()?;
        list.sort_unstable();
        Some(list)
    };
    Some(Outcome {
        halves_us: [list("first_us")?, list("second_us")?],
        errors: number("errors")?,
        error,
        elapsed_us: number("elapsed_us")?,
        cpu_us: number("cpu_us")?,
        late_us: number("late_us")?,
        copies: Copies {
            sent: counted("copies")?,
            won: counted("won")?,
            denied: counted("denied")?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let answer = "errors=2 elapsed_us=1000 cpu_us=300 late_us=9 first_us=5,3 second_us= \
                      error=a = b, c";
        let expected = Outcome {
            halves_us: [vec![3, 5], vec![]],
            errors: 2,
            error: Some("a = b, c".to_owned()),
            elapsed_us: 1000,
            cpu_us: 300,
            late_us: 9,
            copies: Copies::default(),
        };
        assert_eq!(read(answer), Some(expected));
        let copies = read(&format!("copies=7 won=5 denied=1 {answer}")).unwrap().copies;
        assert_eq!(copies, Copies { sent: 7.0, won: 5.0, denied: 1.0 });
        assert_eq!(read(&format!("copies=many {answer}")), None);
        assert_eq!(read("errors=2 elapsed_us=1000"), None);
    }
}
