//! Tests: cargo builds all of them at once, and their binaries run as [`schedule`] says.
//!
//! No test is forgiven on a machine that is left alone. Those of real servers say something only
//! of a machine that runs them: one that fails while the machine is robbed (see [`machine`]) is
//! judged again by itself, and if it then passes it is named as *unsteady*, aloud and at the end.

mod binary;
mod schedule;

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use self::binary::Binary;
use crate::lanes::{self, Done, Job};
use crate::machine::{self, Taken};
use crate::workspace;

/// Tests that are judged again at all: who fails everywhere is not measured, but broken.
const AGAIN_MAX: usize = 40;

/// How long failed tests are judged again, all together; a test that is under way is let end.
const AGAIN_TIME: Duration = Duration::from_secs(20 * 60);

/// How many of the longest binaries are named at the end.
const LONGEST: usize = 12;

/// Characters that are kept of a panic's words.
const WORDS_MAX: usize = 400;

/// A test that failed.
#[derive(Clone, Debug, PartialEq)]
struct Failed {
    /// Index of its binary.
    binary: usize,
    name: String,
    /// Where it panicked, and with what words.
    why: String,
    /// From the machine while its binary ran.
    taken: Taken,
}

/// What the tests came to.
#[derive(Debug, Default)]
struct Outcome {
    passed: usize,
    failed: Vec<Failed>,
    /// Binaries that failed without telling of each test that did.
    crashed: Vec<usize>,
    times: Vec<(Duration, usize)>,
}

/// Runs the tests that cargo finds with `arguments`, such as `-p evenkeel-core`, examples in the
/// documentation last. While tests wait, cargo does `beside`, if that is anything; whoever needs it
/// asks again.
///
/// # Errors
/// When a test fails that is not excused, or something does not compile or crashes.
pub(crate) fn run(arguments: &[&str], beside: &[&str]) -> Result<()> {
    let began = Instant::now();
    let binaries = binary::build(arguments)?;
    println!("=== {} test binaries built in {:.0} s", binaries.len(), seconds(began.elapsed()));
    let outcome = run_binaries(&binaries, beside)?;
    println!("{}", outcome.longest(&binaries));
    let judged = outcome.judge(&binaries);
    // Wrong examples are to be seen in the same run.
    let examples = workspace::run_cargo(&[&["test", "--doc"], arguments].concat(), &[]);
    judged.and(examples)
}

fn run_binaries(binaries: &[Binary], beside: &[&str]) -> Result<Outcome> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let schedule = schedule::schedule(binaries);
    let outcome = Mutex::new(Outcome::default());
    let run = |what: &str, lanes, jobs: Vec<(usize, Job)>| {
        let began = Instant::now();
        let (indices, jobs): (Vec<usize>, Vec<Job>) = jobs.into_iter().unzip();
        lanes::run(jobs, lanes, |done| {
            let index = indices[done.index];
            let mut outcome = outcome.lock().expect("nobody panics while it counts");
            println!("{}", reported(&binaries[index], done));
            outcome.note(index, done);
        })?;
        let (count, seconds) = (indices.len(), seconds(began.elapsed()));
        println!("=== {count} binaries that {what}: {seconds:.0} s");
        anyhow::Ok(())
    };
    let jobs = |indices: &[usize]| -> Vec<(usize, Job)> {
        let job = |&index: &usize| {
            let (name, command) = (binaries[index].asked(), binaries[index].command(&[]));
            (index, Job { name, command })
        };
        indices.iter().map(job).collect()
    };
    let computing = jobs(&schedule.compute).into_iter().map(last_in_line).collect();
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            // Two: each has a thread for each processor, but not until its end.
            run("compute", 2, computing)?;
            build_beside(beside)
        });
        let waited = run("wait", 2 * cores, jobs(&schedule.wait))
            .and_then(|()| run("wait for stores", 2, jobs(&schedule.pairs)))
            .and_then(|()| run("wait for clusters", 1, jobs(&schedule.in_turn)));
        let computed = others.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        waited.and(computed)
    })?;
    run("measure", 1, jobs(&schedule.measure))?;
    Ok(outcome.into_inner().expect("nobody panics while it counts"))
}

/// The same job with the least priority.
fn last_in_line((index, job): (usize, Job)) -> (usize, Job) {
    (index, Job { command: workspace::with_least_priority(&job.command), ..job })
}

/// Success is not asked for: whoever needs what is built builds it again, and is told then.
fn build_beside(arguments: &[&str]) -> Result<()> {
    if arguments.is_empty() {
        return Ok(());
    }
    let name = format!("cargo {}", arguments.join(" "));
    let mut cargo = workspace::cargo();
    cargo.args(arguments).current_dir(workspace::root());
    let command = workspace::with_least_priority(&cargo);
    lanes::run(vec![Job { name: name.clone(), command }], 1, |done| {
        println!("=== {name}, beside the tests, in {:.1} s", seconds(done.elapsed));
    })
}

/// What a binary said, between what cargo would say.
fn reported(binary: &Binary, done: &Done) -> String {
    let asked = binary.asked();
    let verdict = match done.status.success() {
        true => String::new(),
        false => format!("error: test failed, to rerun pass `{asked}` ({})\n", done.status),
    };
    format!(
        "{}\n{}\n{verdict}=== {asked} in {:.1} s\n",
        binary.heading(),
        done.output.trim_end(),
        seconds(done.elapsed)
    )
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

impl Outcome {
    fn note(&mut self, binary: usize, done: &Done) {
        let names = failing(&done.output);
        let counted: usize = done.output.lines().filter_map(|line| count_of(line, " failed")).sum();
        let passed = done.output.lines().filter_map(|line| count_of(line, " passed"));
        self.passed += passed.sum::<usize>();
        self.times.push((done.elapsed, binary));
        if !done.status.success() && (names.is_empty() || names.len() != counted) {
            self.crashed.push(binary);
        }
        let taken = done.taken;
        self.failed.extend(names.into_iter().map(|name| {
            let why = panic_of(&done.output, &name);
            Failed { binary, name, why, taken }
        }));
    }

    /// The longest binaries, so that the schedule can be kept true.
    fn longest(&self, binaries: &[Binary]) -> String {
        let mut times = self.times.clone();
        times.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        let rows = times.iter().take(LONGEST);
        let rows = rows.map(|(time, index)| {
            format!("{:>8.1} s  {}\n", seconds(*time), binaries[*index].asked())
        });
        let all: Duration = times.iter().map(|(time, _)| *time).sum();
        format!(
            "=== {} tests passed, {} failed, in {} binaries; these would take {:.0} s one after \
             another, and the longest of them:\n{}",
            self.passed,
            self.failed.len(),
            times.len(),
            seconds(all),
            rows.collect::<String>()
        )
    }

    /// Judges again what may be, and fails for the rest.
    fn judge(&self, binaries: &[Binary]) -> Result<()> {
        if !self.crashed.is_empty() {
            let crashed = self.crashed.iter().map(|index| binaries[*index].asked());
            let crashed: Vec<String> = crashed.collect();
            bail!("crashed: {}{}", crashed.join(", "), names(&self.failed, binaries));
        }
        let is_excused = |failed: &Failed| {
            failed.taken.is_much() && schedule::has_servers(&binaries[failed.binary], &failed.name)
        };
        if !self.failed.iter().all(is_excused) || self.failed.len() > AGAIN_MAX {
            bail!("{} tests failed: {}", self.failed.len(), names(&self.failed, binaries));
        }
        let began = Instant::now();
        for (index, again) in self.failed.iter().enumerate() {
            if began.elapsed() > AGAIN_TIME {
                let names = names(&self.failed, binaries);
                bail!("{index} of these passed alone in {AGAIN_TIME:?}: {names}");
            }
            let alone = || run_alone(&binaries[again.binary], &again.name);
            machine::judge(&again.name, alone)
                .with_context(|| format!("of failed tests: {}", names(&self.failed, binaries)))?;
        }
        if !self.failed.is_empty() {
            let names = names(&self.failed, binaries);
            println!("=== UNSTEADY: failed on a robbed machine, passed alone: {names}");
        }
        Ok(())
    }
}

fn names(failed: &[Failed], binaries: &[Binary]) -> String {
    let names = failed.iter().map(|Failed { binary, name, why, taken }| {
        format!("\n      {name} ({}; {taken}){why}", binaries[*binary].asked())
    });
    names.collect()
}

fn run_alone(binary: &Binary, name: &str) -> Result<()> {
    let line = format!("cargo test {} -- --exact {name}", binary.asked());
    println!("=== failed on a robbed machine, once more by itself: {line}");
    let command = binary.command(&["--exact", name]);
    let mut has_passed = false;
    lanes::run(vec![Job { name: name.to_owned(), command }], 1, |done| {
        println!("{}", reported(binary, done));
        let mut passed = done.output.lines().filter_map(|line| count_of(line, " passed"));
        has_passed = done.status.success() && passed.any(|count| count > 0);
    })?;
    if !has_passed {
        bail!("`{line}` failed");
    }
    Ok(())
}

/// The tests that a binary names as failed: the list is the last under `failures:`.
fn failing(output: &str) -> Vec<String> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else { return Vec::new() };
    let names = list.lines().map_while(|line| line.strip_prefix("    "));
    names.map(str::to_owned).collect()
}

/// Where and with what words a test panicked first, to be read where a long output was cut off.
fn panic_of(output: &str, name: &str) -> String {
    let thread = format!("thread '{name}' ");
    let mut lines = output.lines().skip_while(|line| !line.starts_with(&thread));
    let place = lines.next().and_then(|line| line.split_once("panicked at "));
    let Some((_, place)) = place else { return String::new() };
    let words = lines.next().unwrap_or_default();
    format!(": {place} {}", words.chars().take(WORDS_MAX).collect::<String>())
}

/// From "test result: FAILED. 12 passed; 1 failed; 0 ignored; …", for one of its words.
fn count_of(line: &str, what: &str) -> Option<usize> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    counts.split("; ").find_map(|count| count.strip_suffix(what))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::binary::Kind;
    use super::*;

    const FAILED: &str = "
running 2 tests
test bow::is_bent ... FAILED
test bow::is_dry ... ok

failures:

---- bow::is_bent stdout ----
    by the sea

thread 'bow::is_bent' (71) panicked at bow.rs:3:9:
too dry
note: run with `RUST_BACKTRACE=1`

failures:
    bow::is_bent

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
";

    const QUIET: Taken = Taken::of(0.0, 0.0);
    const ROBBED: Taken = Taken::of(0.5, 0.0);

    fn binaries() -> Vec<Binary> {
        let of = |target| Binary::made_up("evenkeel-server", Kind::Test, target);
        vec![of("proxy"), of("cassandra")]
    }

    fn outcome(binary: usize, output: &str, taken: Taken) -> Outcome {
        let mut outcome = Outcome::default();
        let is_well = !output.contains("FAILED");
        let status = ExitStatus::from_raw(if is_well { 0 } else { 101 << 8 });
        let (output, elapsed) = (output.to_owned(), Duration::from_secs(3));
        outcome.note(binary, &Done { index: 0, status, output, elapsed, taken });
        outcome
    }

    #[test]
    fn failed_tests_are_found_and_passed_ones_counted() {
        let found = outcome(0, FAILED, QUIET);
        assert_eq!(found.passed, 1);
        let (name, why) = ("bow::is_bent".to_owned(), ": bow.rs:3:9: too dry".to_owned());
        let expected = Failed { binary: 0, name, why, taken: QUIET };
        assert_eq!((found.failed, found.crashed), (vec![expected], vec![]));
        let passed = outcome(0, "test result: ok. 7 passed; 0 failed; 1 ignored", QUIET);
        assert_eq!((passed.passed, passed.failed.len(), passed.crashed.len()), (7, 0, 0));
        passed.judge(&binaries()).unwrap();
    }

    #[test]
    fn a_test_is_forgiven_on_a_robbed_machine_with_real_servers_only() {
        for (binary, taken) in [(0, QUIET), (0, ROBBED), (1, QUIET)] {
            let error = outcome(binary, FAILED, taken).judge(&binaries()).unwrap_err().to_string();
            assert!(error.starts_with("1 tests failed: \n      bow::is_bent (-p "), "{error}");
        }
        // The made-up program says nothing: it is asked, and its silence is no pass.
        let error = outcome(1, FAILED, ROBBED).judge(&binaries()).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("-p evenkeel-server --test cassandra -- --exact bow::is_bent` failed")
        );
    }

    #[test]
    fn a_crash_is_not_judged_again() {
        for output in ["FAILED", &FAILED.replace("1 failed", "2 failed")] {
            let error = outcome(1, output, ROBBED).judge(&binaries()).unwrap_err().to_string();
            assert!(error.starts_with("crashed: -p evenkeel-server --test cassandra"), "{error}");
        }
    }

    #[test]
    fn the_longest_binaries_are_named() {
        let text = outcome(1, "test result: ok. 7 passed; 0 failed", QUIET).longest(&binaries());
        assert!(text.starts_with("=== 7 tests passed, 0 failed, in 1 binaries; "), "{text}");
        assert!(text.ends_with("\n     3.0 s  -p evenkeel-server --test cassandra\n"), "{text}");
    }
}
