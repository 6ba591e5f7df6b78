//! Tests, through cargo.
//!
//! Many of them measure real servers on sockets. On a machine that is busy with something else one
//! of hundreds may fail for that reason alone, so each test that fails is run once more, by itself,
//! and again for as long as it fails while the machine is robbed (see [`machine`]). What then
//! passes is named as *unsteady*, aloud and at the end. A test that is often on that list is a
//! defect, and so is more than a few of them on a machine that was left alone.

use std::io::{self, BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::machine::{self, Mark, Taken, Watch};
use crate::workspace;

/// Tests that may fail at first on a machine that was left alone; more of them are no accident.
const UNSTEADY_MAX: usize = 3;

/// Tests that are judged again at all: who fails everywhere is not measured, but broken.
const AGAIN_MAX: usize = 40;

/// How long failed tests are judged again, all together; a test that is under way is let end.
const AGAIN_TIME: Duration = Duration::from_secs(20 * 60);

/// A test that failed among the others.
#[derive(Clone, Debug, PartialEq)]
struct Failed {
    /// As cargo would be asked for its target, such as `-p evenkeel-net --test redirect`.
    target: String,
    name: String,
    taken: Taken,
}

impl Failed {
    /// Cargo's arguments for this test alone: of all the packages that `arguments` asked for, or
    /// cargo would build what they share for this one anew.
    fn alone<'a>(&'a self, arguments: &[&'a str]) -> Vec<&'a str> {
        let of_target = match arguments.contains(&"--workspace") {
            true => self.target.split(' ').skip(2).collect(),
            false => Vec::new(),
        };
        let asked = arguments.iter().copied().filter(|argument| *argument != "--no-fail-fast");
        // Some ask for the tests of one module already: its name would be a second filter.
        let asked = asked.filter(|argument| !argument.ends_with("::"));
        asked.chain(of_target).chain(["--", "--exact", &self.name]).collect()
    }
}

/// Runs the tests that cargo finds with `arguments`.
///
/// # Errors
/// When a test fails whatever the machine does, too many fail at once, or something does not
/// compile or crashes.
pub(crate) fn run(arguments: &[&str]) -> Result<()> {
    let mut reader = Reader::new(Watch::start());
    let passed = pass_on(arguments, |line| reader.read(line))?;
    if passed {
        return Ok(());
    }
    let failed = reader.failed;
    if failed.is_empty() || !reader.crashed.is_empty() {
        let crashed = reader.crashed.join(", ");
        bail!(
            "something did not compile, crashed or is a wrong example (see above): {crashed}{}",
            names(&failed)
        );
    }
    let unexcused = failed.iter().filter(|failed| !failed.taken.is_much()).count();
    if unexcused > UNSTEADY_MAX || failed.len() > AGAIN_MAX {
        bail!("{} tests failed: {}", failed.len(), names(&failed));
    }
    let began = Instant::now();
    for (index, again) in failed.iter().enumerate() {
        if began.elapsed() > AGAIN_TIME {
            bail!("{index} of these passed alone in {AGAIN_TIME:?}: {}", names(&failed));
        }
        machine::judge(&again.name, || run_alone(again, arguments))
            .with_context(|| format!("of {} failed tests: {}", failed.len(), names(&failed)))?;
    }
    println!("=== UNSTEADY: failed among the others, passed alone: {}", names(&failed));
    Ok(())
}

fn names(failed: &[Failed]) -> String {
    let names = failed
        .iter()
        .map(|Failed { target, name, taken }| format!("\n      {name} ({target}; {taken})"));
    names.collect()
}

fn run_alone(failed: &Failed, arguments: &[&str]) -> Result<()> {
    let alone = failed.alone(arguments);
    let line = format!("cargo {}", alone.join(" "));
    println!("=== failed among the others, once more by itself: {line}");
    let mut has_passed = false;
    let passed = pass_on(&alone, |line| {
        has_passed |= count_of(line, " passed").is_some_and(|count| count > 0);
    })?;
    if !passed || !has_passed {
        bail!("`{line}` failed");
    }
    Ok(())
}

/// Runs cargo, passes on what it and the tests say in the order in which they say it, and tells
/// whether all is well.
fn pass_on(arguments: &[&str], mut hear: impl FnMut(&str)) -> Result<bool> {
    let (told, ear) = io::pipe().context("a pipe for cargo's words")?;
    let mut cargo = workspace::cargo();
    cargo.args(arguments).current_dir(workspace::root());
    cargo.env("PATH", workspace::search_path()).env("CARGO_TERM_COLOR", "never");
    cargo.stdin(Stdio::null()).stdout(ear.try_clone().context("a pipe's end")?).stderr(ear);
    let mut running = cargo.spawn().context("cargo could not be started")?;
    // Holds the pipe's other end, which would otherwise never end.
    drop(cargo);
    let (tell, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(told).split(b'\n').map_while(Result::ok);
        lines.try_for_each(|line| tell.send(line))
    });
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line).into_owned();
                println!("{line}");
                hear(&line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if running.try_wait().context("cargo")?.is_some() {
                    println!("=== somebody whom the tests started outlives them");
                    break;
                }
            }
        }
    }
    Ok(running.wait().context("cargo")?.success())
}

/// Learns from the lines of cargo and the tests which failed, and what was taken from the machine
/// while their target ran.
struct Reader {
    watch: Watch,
    target_began: Mark,
    failing: Vec<String>,
    is_listing: bool,
    /// How many tests of the target failed by its own count.
    counted: usize,
    failed: Vec<Failed>,
    /// Targets that are not judged again: that did not tell of each test that failed, or are
    /// examples.
    crashed: Vec<String>,
}

impl Reader {
    fn new(watch: Watch) -> Self {
        let target_began = watch.mark();
        Self {
            watch,
            target_began,
            failing: Vec::new(),
            is_listing: false,
            counted: 0,
            failed: Vec::new(),
            crashed: Vec::new(),
        }
    }

    fn read(&mut self, line: &str) {
        if line.starts_with("     Running ") || line.starts_with("   Doc-tests ") {
            self.target_began = self.watch.mark();
            self.is_listing = false;
        } else if line == "failures:" {
            // Once before what the failed tests said, and once before the list of their names.
            self.is_listing = true;
            self.failing.clear();
        } else if let Some(count) = count_of(line, " failed") {
            self.is_listing = false;
            self.counted = count;
        } else if let (true, Some(name)) = (self.is_listing, line.strip_prefix("    ")) {
            self.failing.push(name.to_owned());
        } else if let Some(target) = failed_target(line) {
            let taken = self.watch.since(&self.target_began);
            let knows_all = !self.failing.is_empty() && self.failing.len() == self.counted;
            if !knows_all || target.ends_with("--doc") {
                self.crashed.push(target.to_owned());
            }
            self.counted = 0;
            self.failed.extend(self.failing.drain(..).map(|name| Failed {
                target: target.to_owned(),
                name,
                taken,
            }));
        }
    }
}

/// From "test result: FAILED. 12 passed; 1 failed; 0 ignored; …", for one of its words.
fn count_of(line: &str, what: &str) -> Option<usize> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    counts.split("; ").find_map(|count| count.strip_suffix(what))?.parse().ok()
}

/// Cargo's line after a target that failed: "error: test failed, to rerun pass `-p x --lib`".
fn failed_target(line: &str) -> Option<&str> {
    let (what, pass) = line.strip_prefix("error: ")?.split_once(" failed, to rerun pass `")?;
    ["test", "doctest"].contains(&what).then(|| pass.strip_suffix('`'))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Reader {
        let mut reader = Reader::new(Watch::start());
        text.lines().for_each(|line| reader.read(line));
        reader
    }

    const OUTPUT: &str = "     Running unittests src/lib.rs (target/debug/deps/keel-1)
test bow::is_bent ... FAILED

failures:

---- bow::is_bent stdout ----
    by the sea

failures:
    bow::is_bent

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
error: test failed, to rerun pass `-p keel --lib`
     Running tests/mast.rs (target/debug/deps/mast-1)
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
     Running tests/sail.rs (target/debug/deps/sail-1)
ready test rope::tears - should panic ... FAILED
failures:
    rope::tears
test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
error: test failed, to rerun pass `-p keel --test sail`
error: 2 targets failed:
    `-p keel --lib`
";

    #[test]
    fn failed_tests_are_found_with_their_targets() {
        let reader = read(OUTPUT);
        let found: Vec<_> = reader.failed.iter().map(|f| (&*f.target, &*f.name)).collect();
        let expected = [("-p keel --lib", "bow::is_bent"), ("-p keel --test sail", "rope::tears")];
        assert_eq!(found, expected);
        assert!(reader.crashed.is_empty());
    }

    #[test]
    fn a_crash_and_a_failing_example_are_not_judged_again() {
        let crash = "     Running tests/a.rs (x)\nerror: test failed, to rerun pass `-p k --lib`";
        assert_eq!(read(crash).crashed, ["-p k --lib"]);
        let unheard = OUTPUT.replace("1 passed; 1 failed", "0 passed; 2 failed");
        assert_eq!(read(&unheard).crashed, ["-p keel --lib", "-p keel --test sail"]);
        let example = OUTPUT.replace("--lib`", "--doc`");
        assert_eq!(read(&example).crashed, ["-p keel --doc"]);
    }

    #[test]
    fn a_test_alone_is_asked_for_with_the_same_packages() {
        let failed = &read(OUTPUT).failed[1];
        let alone = failed.alone(&["test", "--workspace", "--no-fail-fast"]).join(" ");
        assert_eq!(alone, "test --workspace --test sail -- --exact rope::tears");
        let alone = failed.alone(&["test", "-p", "keel", "--test", "sail", "rope::"]).join(" ");
        assert_eq!(alone, "test -p keel --test sail -- --exact rope::tears");
    }
}
