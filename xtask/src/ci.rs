//! `cargo xtask ci`: every check a change must pass. A CI machine runs this and nothing else.
//!
//! Steps run one after another, cheap ones first, and the first failure ends the run: its output
//! is then the last thing on the screen, above the command that repeats that step alone. What only
//! computes runs side by side.
//!
//! Everything but the release program is built once, with every feature and the profile `ci`, so
//! that clippy, documentation and tests share what they compile of others' crates.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::bench_http::instructions;
use crate::lanes::{self, Job};
use crate::{UsageError, machine, needs, package, suite, workspace};

/// One check.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    command: Run,
}

/// What a step does.
#[derive(Clone, Copy)]
enum Run {
    /// cargo with these arguments.
    Cargo(&'static [&'static str]),
    /// cargo with these arguments for the whole workspace as [`WHOLE`] says, then these of a tool.
    Whole(&'static [&'static str], &'static [&'static str]),
    /// The same with warnings of rustdoc denied.
    Documentation(&'static [&'static str]),
    /// A part of xtask; the text is what a person would type.
    Own(&'static str, fn() -> Result<()>),
    /// All tests.
    Tests,
    /// cargo with these arguments, which compile without a warning.
    Quiet(&'static [&'static str]),
    /// A shell script of the workspace, which tests real servers.
    Script(&'static str),
    /// The release binary with these arguments, in the workspace root. Exit 0 passes. It computes
    /// only: others run beside it.
    Evenkeel(&'static [&'static str]),
    /// The same on real sockets in real time, which says nothing of a machine that is robbed.
    Live(&'static [&'static str]),
}

/// Every crate with every feature that tests know, as one build.
const WHOLE: [&str; 4] = [
    "--profile=ci",
    "--workspace",
    "--features=evenkeel/parquet",
    "--features=evenkeel-scylla/driver",
];

/// With examples, which nobody reads as documents: cargo then asks the features of tests of what
/// others wrote, and documents by what clippy has compiled in place of half of it anew.
const DOCUMENTED: [&str; 8] =
    ["doc", "--no-deps", "--lib", "--bin", "evenkeel", "--bin", "xtask", "--examples"];

/// What acceptance runs. Most of it is built while tests wait.
const RELEASE: [&str; 6] = ["build", "--release", "-p", "evenkeel", "-p", "evenkeel-shop"];

/// Checked, not linked: so it needs neither the library of a fuzzer nor a C++ compiler.
const FUZZ_TARGETS: [&str; 6] = [
    "check",
    "--quiet",
    "--bins",
    "--manifest-path=fuzz/Cargo.toml",
    "--target-dir=target/fuzz",
    "--config=env.CUSTOM_LIBFUZZER_PATH='/not/linked/libfuzzer.a'",
];

const CHECKS: &[Step] = &[
    Step { name: "format", command: Run::Cargo(&["fmt", "--all", "--check"]) },
    Step { name: "tidy", command: Run::Own("cargo xtask tidy", xtask_tidy::run) },
    Step {
        name: "clippy",
        command: Run::Whole(&["clippy", "--all-targets"], &["--", "-D", "warnings"]),
    },
    Step { name: "documentation", command: Run::Documentation(&DOCUMENTED) },
    Step { name: "fuzz targets", command: Run::Cargo(&FUZZ_TARGETS) },
    Step {
        name: "real servers",
        command: Run::Own("cargo xtask needs --for-tests", || {
            needs::run(needs::Install::MissingForTests)
        }),
    },
    Step { name: "tests", command: Run::Tests },
    Step { name: "SDKs", command: Run::Script("sdk/test.sh") },
    Step { name: "release build", command: Run::Quiet(&RELEASE) },
    Step {
        name: "instructions",
        command: Run::Own("cargo xtask bench instructions", instructions::check),
    },
    Step {
        name: "package",
        command: Run::Own("cargo xtask package --program target/release/evenkeel --check", || {
            package::checked(&workspace::release_binary(), u64::MAX, &WHOLE)
        }),
    },
];

// ---------------------------------------------------------------------------------------------
// RELEASE ACCEPTANCE: what the release binary must do on this machine, after all checks passed.
// One line each, for example:
//     Step { name: "demo", command: Run::Live(&["demo"]) },
// ---------------------------------------------------------------------------------------------
const RELEASE_ACCEPTANCE: &[Step] = &[
    Step { name: "C3, quickly", command: Run::Evenkeel(&["paper", "c3", "--quick"]) },
    twice("demo.toml", &["sim", "scenarios/demo.toml", "--twice", FEW]),
    twice("nginx-paused.toml", &["sim", "scenarios/nginx-paused.toml", "--twice", FEW]),
    twice("c3-fluctuation.toml", &["sim", "scenarios/c3-fluctuation.toml", "--twice", FEW]),
    twice("hedge-objective.toml", &["sim", "scenarios/hedge-objective.toml", "--twice", FEW]),
    twice(
        "fan-out.toml",
        &["sim", "scenarios/fan-out.toml", "--twice", "--set=workload.requests=5000"],
    ),
    twice("c3-skew.toml", &["sim", "scenarios/c3-skew.toml", "--twice", FEW]),
    Step { name: "brownout, quickly", command: Run::Evenkeel(&["paper", "brownout", "--quick"]) },
    twice("brownout-crash.toml", &["sim", "scenarios/brownout-crash.toml", "--twice"]),
    twice(
        "brownout-heterogeneous.toml",
        &["sim", "scenarios/brownout-heterogeneous.toml", "--twice"],
    ),
    twice("brownout-step.toml", &["sim", "scenarios/brownout-step.toml", "--twice"]),
    twice("c3-dynamic.toml", &["sim", "scenarios/c3-dynamic.toml", "--twice", FEW]),
    Step { name: "Kurma, quickly", command: Run::Evenkeel(&["paper", "kurma", "--quick"]) },
    Step { name: "leader, quickly", command: Run::Evenkeel(&["paper", "leader", "--quick"]) },
    twice("leader-day.toml", &["sim", "scenarios/leader-day.toml", "--twice", FEW_DATABASES]),
    Step { name: "policies, quickly", command: Run::Evenkeel(&["paper", "adaptive", "--quick"]) },
    Step { name: "Zoolander, quickly", command: Run::Evenkeel(&["paper", "zoolander", "--quick"]) },
    twice("duplicates.toml", &["sim", "scenarios/duplicates.toml", "--twice", FEW_ACCESSES]),
    twice("redirect-demo.toml", &["sim", "scenarios/redirect-demo.toml", "--twice"]),
    twice("redirect-trace1.toml", &["sim", "scenarios/redirect-trace1.toml", "--twice", SHORT]),
    twice("redirect-trace2.toml", &["sim", "scenarios/redirect-trace2.toml", "--twice", SHORT]),
    twice("day.toml", &["sim", "scenarios/day.toml", "--twice"]),
    twice("joint-day.toml", &["sim", "scenarios/joint-day.toml", "--twice", SHORT]),
    twice("joint-quiet.toml", &["sim", "scenarios/joint-quiet.toml", "--twice", SHORT]),
    twice("joint-hot-site.toml", &["sim", "scenarios/joint-hot-site.toml", "--twice", SHORT]),
    twice(
        "joint-wrong-profile.toml",
        &["sim", "scenarios/joint-wrong-profile.toml", "--twice", SHORT],
    ),
    // The demo of three data centres is a test: `redirect` of the program.
    Step { name: "demo", command: Run::Live(&["demo"]) },
    Step { name: "demo brownout", command: Run::Live(&["demo", "brownout"]) },
];

/// Enough requests to meet every kind of event of a scenario.
const FEW: &str = "--set=workload.requests=60000";
/// A day is quick, tier 3 for two hundred databases is not.
const FEW_DATABASES: &str = "--set=fleet.databases=12";

/// Enough for queues, pauses and every hour of the day.
const FEW_ACCESSES: &str = "--set=workload.accesses=100000";

/// Long enough for plans to be made and followed.
const SHORT: &str = "--set=workload.duration=10s";

/// Same seed twice, byte-identical.
const fn twice(name: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { name, command: Run::Evenkeel(arguments) }
}

/// Runs all steps, or those from the one of this name on, and prints how long each took.
///
/// # Errors
/// When a step fails; the later ones are then not run.
pub(crate) fn run(from: Option<&str>) -> Result<()> {
    let mut steps: Vec<Step> = CHECKS.iter().chain(RELEASE_ACCEPTANCE).copied().collect();
    if let Some(name) = from {
        let first = steps.iter().position(|step| step.name == name).ok_or_else(|| {
            let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
            UsageError::new(format!("no step {name}, expected one of: {}", names.join(", ")))
        })?;
        steps.drain(..first);
    }
    let start = Instant::now();
    // What is behind costs only what is left of it.
    let mut fetching = from.is_none().then(|| thread::spawn(fetch));
    let mut times = Vec::new();
    let mut number = 1;
    for together in steps.chunk_by(|a, b| a.command.only_computes() && b.command.only_computes()) {
        if together.iter().any(|step| step.name == "real servers")
            && let Some(fetching) = fetching.take()
        {
            fetching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        if let [step] = together {
            times.push((step.name, run_step(step, number, steps.len())?));
        } else {
            run_together(together, number, steps.len(), &mut times)?;
        }
        number += together.len();
    }
    println!("\n{}", summary(&times, start.elapsed()));
    Ok(())
}

/// Brings what tests need from others' registries while the first steps compile: it is mostly
/// waited for. Success is not asked for: the steps that need it ask again, and are told then.
fn fetch() -> Result<()> {
    let mut needs = Command::new(std::env::current_exe().context("the name of this program")?);
    needs.args(["needs", "--for-tests"]);
    let mut sdks = Command::new("bash");
    sdks.args(["sdk/test.sh", "--install"]).current_dir(workspace::root());
    let jobs = [("cargo xtask needs --for-tests", needs), ("bash sdk/test.sh --install", sdks)];
    let jobs = jobs.map(|(name, command)| Job { name: name.to_owned(), command });
    let names = jobs.each_ref().map(|job| job.name.clone());
    lanes::run(Vec::from(jobs), 2, |done| {
        let elapsed = done.elapsed.as_secs_f64();
        println!("=== {}, beside the first steps, in {elapsed:.1} s", names[done.index]);
    })
}

fn run_step(step: &Step, number: usize, count: usize) -> Result<Duration> {
    let line = step.command.line();
    println!("\n=== {number}/{count} {}: {line}", step.name);
    let start = Instant::now();
    let outcome = step.command.run();
    let elapsed = start.elapsed();
    outcome.with_context(|| stopped_at(step, number, count, elapsed))?;
    println!("=== {} passed in {:.1} s", step.name, elapsed.as_secs_f64());
    Ok(elapsed)
}

fn stopped_at(step: &Step, number: usize, count: usize, elapsed: Duration) -> String {
    format!(
        "ci stopped at step {number} of {count}, {}, after {:.1} s; to repeat it alone: {}",
        step.name,
        elapsed.as_secs_f64(),
        step.command.line()
    )
}

/// Runs steps that only compute, one for each processor at once. All of them run, whichever fails.
fn run_together(
    steps: &[Step],
    number: usize,
    count: usize,
    times: &mut Vec<(&'static str, Duration)>,
) -> Result<()> {
    let jobs = steps.iter().filter_map(|step| {
        let command = step.command.program()?;
        Some(Job { name: step.name.to_owned(), command })
    });
    let jobs: Vec<Job> = jobs.collect();
    assert_eq!(jobs.len(), steps.len(), "what only computes is a program");
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut failed = None;
    lanes::run(jobs, cores, |done| {
        let (step, number) = (&steps[done.index], number + done.index);
        println!("\n=== {number}/{count} {}: {}", step.name, step.command.line());
        println!("{}", done.output.trim_end());
        if done.status.success() {
            println!("=== {} passed in {:.1} s", step.name, done.elapsed.as_secs_f64());
            times.push((step.name, done.elapsed));
        } else {
            println!("=== {} failed ({})", step.name, done.status);
            failed.get_or_insert_with(|| stopped_at(step, number, count, done.elapsed));
        }
    })?;
    failed.map_or(Ok(()), |failed| bail!(failed))
}

fn summary(times: &[(&str, Duration)], total: Duration) -> String {
    let rows =
        times.iter().map(|(name, time)| format!("{name:<24}{:>8.1} s\n", time.as_secs_f64()));
    let rows: String = rows.collect();
    format!("{rows}{:<24}{:>8.1} s\nci passed", "total", total.as_secs_f64())
}

impl Run {
    /// What a person would type to do the same.
    fn line(&self) -> String {
        match self {
            Self::Cargo(arguments) | Self::Quiet(arguments) => {
                format!("cargo {}", arguments.join(" "))
            }
            Self::Whole(arguments, rest) => format!("cargo {}", whole(arguments, rest).join(" ")),
            Self::Documentation(arguments) => {
                format!("RUSTDOCFLAGS='-D warnings' cargo {}", whole(arguments, &[]).join(" "))
            }
            Self::Own(line, _) => (*line).to_owned(),
            Self::Tests => format!("cargo xtask test {}", WHOLE.join(" ")),
            Self::Script(path) => format!("bash {path}"),
            Self::Evenkeel(arguments) | Self::Live(arguments) => {
                format!("target/release/evenkeel {}", arguments.join(" "))
            }
        }
    }

    fn run(&self) -> Result<()> {
        match self {
            Self::Cargo(arguments) => workspace::run_cargo(arguments, &[]),
            Self::Whole(arguments, rest) => workspace::run_cargo(&whole(arguments, rest), &[]),
            Self::Documentation(arguments) => {
                let deny = [("RUSTDOCFLAGS", "-D warnings")];
                workspace::run_cargo(&whole(arguments, &[]), &deny)
            }
            Self::Own(_, function) => function(),
            Self::Tests => suite::run(&WHOLE, &RELEASE),
            Self::Quiet(arguments) => without_warnings(arguments),
            Self::Script(path) => machine::judge(path, || {
                workspace::run_to_success(Command::new("bash").arg(path), &self.line())
            }),
            Self::Evenkeel(arguments) => {
                workspace::run_to_success(&mut evenkeel(arguments), &self.line())
            }
            Self::Live(arguments) => machine::judge(&self.line(), || {
                workspace::run_to_success(&mut evenkeel(arguments), &self.line())
            }),
        }
    }

    fn only_computes(&self) -> bool {
        self.program().is_some()
    }

    /// The program, if it only computes.
    fn program(&self) -> Option<Command> {
        let Self::Evenkeel(arguments) = self else { return None };
        let mut command = evenkeel(arguments);
        command.current_dir(workspace::root());
        Some(command)
    }
}

fn whole<'a>(arguments: &[&'a str], rest: &[&'a str]) -> Vec<&'a str> {
    [arguments, &WHOLE, rest].concat()
}

fn evenkeel(arguments: &[&str]) -> Command {
    let mut command = Command::new(workspace::release_binary());
    command.args(arguments);
    command
}

/// Clippy sees the code of all features; this one sees what is there without them.
fn without_warnings(arguments: &[&str]) -> Result<()> {
    let line = format!("cargo {}", arguments.join(" "));
    let mut command = workspace::cargo();
    command.args(arguments).current_dir(workspace::root());
    command.stdin(Stdio::null()).stderr(Stdio::piped()).env("CARGO_TERM_COLOR", "never");
    let mut cargo = command.spawn().context("cargo could not be started")?;
    let reported = BufReader::new(cargo.stderr.take().context("cargo's words")?);
    let mut warned = Vec::new();
    for words in reported.lines() {
        let words = words.context("cargo's words")?;
        println!("{words}");
        warned.extend(warned_of(&words).map(str::to_owned));
    }
    let status = cargo.wait().context("cargo")?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    if !warned.is_empty() {
        bail!("`{line}` warned of {}", warned.join(", "));
    }
    Ok(())
}

/// The package of "warning: `evenkeel` (bin "evenkeel") generated 1 warning": cargo says it of our
/// packages only, at every build.
fn warned_of(line: &str) -> Option<&str> {
    let (package, rest) = line.strip_prefix("warning: `")?.split_once('`')?;
    rest.contains(" generated ").then_some(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_says_which_and_how_to_repeat_it() {
        fn fail() -> Result<()> {
            anyhow::bail!("the keel is bent")
        }
        let step = Step { name: "keel", command: Run::Own("cargo xtask keel", fail) };
        let error = format!("{:#}", run_step(&step, 2, 7).unwrap_err());
        assert!(error.starts_with("ci stopped at step 2 of 7, keel, after 0.0 s;"), "{error}");
        assert!(
            error.ends_with("to repeat it alone: cargo xtask keel: the keel is bent"),
            "{error}"
        );
    }

    #[test]
    fn the_line_of_a_step_can_be_typed() {
        let step = Run::Whole(&["clippy"], &["--", "-D", "warnings"]);
        let line = step.line();
        assert!(line.starts_with("cargo clippy --profile=ci --workspace --features="), "{line}");
        assert!(line.ends_with(" -- -D warnings"), "{line}");
        assert_eq!(Run::Live(&["demo"]).line(), "target/release/evenkeel demo");
    }

    #[test]
    fn what_only_computes_runs_together_and_nothing_else() {
        let computes: Vec<bool> =
            RELEASE_ACCEPTANCE.iter().map(|step| step.command.only_computes()).collect();
        // Side by side are neighbours only.
        assert!(computes.is_sorted_by(|a, b| a >= b), "{computes:?}");
        assert!(computes.contains(&true) && computes.contains(&false));
        assert!(CHECKS.iter().all(|step| !step.command.only_computes()));
    }

    #[test]
    fn warnings_are_heard_of_packages() {
        let line = "warning: `evenkeel` (bin \"evenkeel\") generated 1 warning (run `cargo fix`)";
        assert_eq!(warned_of(line), Some("evenkeel"));
        for line in ["warning: unused variable: `x`", "    Finished `release` profile", ""] {
            assert_eq!(warned_of(line), None);
        }
    }

    #[test]
    fn the_summary_adds_a_total() {
        let text = summary(&[("format", Duration::from_millis(1250))], Duration::from_secs(3));
        let expected = "format                       1.2 s\ntotal                        3.0 s\n\
                        ci passed";
        assert_eq!(text, expected);
    }
}
