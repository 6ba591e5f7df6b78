//! `cargo xtask ci`: every check a change must pass. A CI machine runs this and nothing else.
//!
//! Steps run one after another, cheap ones first, and the first failure ends the run: its output
//! is then the last thing on the screen, above the command that repeats that step alone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{machine, needs, tests_step, tidy, workspace};

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
    /// cargo with these arguments and environment variables.
    CargoWith(&'static [&'static str], &'static [(&'static str, &'static str)]),
    /// A part of xtask; the text is what a person would type.
    Own(&'static str, fn() -> Result<()>),
    /// cargo with these arguments, which run tests.
    Tests(&'static [&'static str]),
    /// A shell script of the workspace, which tests real servers.
    Script(&'static str),
    /// The release binary with these arguments, in the workspace root. Exit 0 passes.
    Evenkeel(&'static [&'static str]),
    /// The same on real sockets in real time, which says nothing of a machine that is robbed.
    Live(&'static [&'static str]),
}

const CHECKS: &[Step] = &[
    Step { name: "format", command: Run::Cargo(&["fmt", "--all", "--check"]) },
    Step { name: "tidy", command: Run::Own("cargo xtask tidy", tidy::run) },
    Step {
        name: "clippy",
        command: Run::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    },
    Step {
        name: "documentation",
        command: Run::CargoWith(
            &["doc", "--workspace", "--no-deps"],
            &[("RUSTDOCFLAGS", "-D warnings")],
        ),
    },
    Step {
        name: "real servers",
        command: Run::Own("cargo xtask needs", || needs::run(needs::Install::MissingForTests)),
    },
    Step { name: "tests", command: Run::Tests(&["test", "--workspace", "--no-fail-fast"]) },
    Step {
        name: "Envoy, clippy",
        command: Run::Cargo(&[
            "clippy",
            "-p",
            "evenkeel-net",
            "--features",
            "envoy",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]),
    },
    Step {
        name: "Envoy, rooms",
        command: Run::Tests(&[
            "test",
            "-p",
            "evenkeel-net",
            "--features",
            "envoy",
            "--lib",
            "envoy::",
        ]),
    },
    Step {
        name: "Envoy",
        command: Run::Tests(&[
            "test",
            "-p",
            "evenkeel-net",
            "--features",
            "envoy",
            "--test",
            "envoy",
        ]),
    },
    Step {
        name: "Parquet",
        command: Run::Tests(&[
            "test",
            "-p",
            "evenkeel-settings",
            "--features",
            "parquet",
            "--lib",
            "placement::parquet",
        ]),
    },
    Step {
        name: "scylla policy, clippy",
        command: Run::Cargo(&[
            "clippy",
            "-p",
            "evenkeel-scylla",
            "--features",
            "driver",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]),
    },
    Step { name: "SDKs", command: Run::Script("sdk/test.sh") },
    Step { name: "release build", command: Run::Cargo(&["build", "--release"]) },
];

// ---------------------------------------------------------------------------------------------
// RELEASE ACCEPTANCE: what the release binary must do on this machine, after all checks passed.
// One line each, for example:
//     Step { name: "demo", command: Run::Live(&["demo"]) },
// ---------------------------------------------------------------------------------------------
const RELEASE_ACCEPTANCE: &[Step] = &[
    Step { name: "demo", command: Run::Live(&["demo"]) },
    Step { name: "demo brownout", command: Run::Live(&["demo", "brownout"]) },
    Step {
        name: "demo redirect",
        command: Run::Live(&["demo", "redirect", "--set=workload.duration=12s"]),
    },
    Step { name: "C3, quickly", command: Run::Evenkeel(&["paper", "c3", "--quick"]) },
    twice("demo.toml", &["sim", "scenarios/demo.toml", "--twice", FEW]),
    twice("nginx-paused.toml", &["sim", "scenarios/nginx-paused.toml", "--twice", FEW]),
    twice("c3-fluctuation.toml", &["sim", "scenarios/c3-fluctuation.toml", "--twice", FEW]),
    twice("hedge-objective.toml", &["sim", "scenarios/hedge-objective.toml", "--twice", FEW]),
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
    Step { name: "Zoolander, quickly", command: Run::Evenkeel(&["paper", "zoolander", "--quick"]) },
    twice("duplicates.toml", &["sim", "scenarios/duplicates.toml", "--twice", FEW_ACCESSES]),
    twice("redirect-demo.toml", &["sim", "scenarios/redirect-demo.toml", "--twice"]),
    twice("redirect-trace1.toml", &["sim", "scenarios/redirect-trace1.toml", "--twice", SHORT]),
    twice("redirect-trace2.toml", &["sim", "scenarios/redirect-trace2.toml", "--twice", SHORT]),
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

/// Runs all steps and prints how long each took.
///
/// # Errors
/// When a step fails; the later ones are then not run.
pub(crate) fn run() -> Result<()> {
    let steps: Vec<Step> = CHECKS.iter().chain(RELEASE_ACCEPTANCE).copied().collect();
    let start = Instant::now();
    let mut times = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        times.push((step.name, run_step(step, index + 1, steps.len())?));
    }
    println!("\n{}", summary(&times, start.elapsed()));
    Ok(())
}

fn run_step(step: &Step, number: usize, count: usize) -> Result<Duration> {
    let line = step.command.line();
    println!("\n=== {number}/{count} {}: {line}", step.name);
    let start = Instant::now();
    let outcome = step.command.run();
    let elapsed = start.elapsed();
    outcome.with_context(|| {
        format!(
            "ci stopped at step {number} of {count}, {}, after {:.1} s; to repeat it alone: {line}",
            step.name,
            elapsed.as_secs_f64()
        )
    })?;
    println!("=== {} passed in {:.1} s", step.name, elapsed.as_secs_f64());
    Ok(elapsed)
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
            Self::Cargo(arguments) | Self::Tests(arguments) => {
                format!("cargo {}", arguments.join(" "))
            }
            Self::CargoWith(arguments, environment) => {
                let variables =
                    environment.iter().map(|(name, value)| format!("{name}='{value}' "));
                format!("{}cargo {}", variables.collect::<String>(), arguments.join(" "))
            }
            Self::Own(line, _) => (*line).to_owned(),
            Self::Script(path) => format!("bash {path}"),
            Self::Evenkeel(arguments) | Self::Live(arguments) => {
                format!("target/release/evenkeel {}", arguments.join(" "))
            }
        }
    }

    fn run(&self) -> Result<()> {
        match self {
            Self::Cargo(arguments) => workspace::run_cargo(arguments, &[]),
            Self::CargoWith(arguments, environment) => workspace::run_cargo(arguments, environment),
            Self::Own(_, function) => function(),
            Self::Tests(arguments) => tests_step::run(arguments),
            Self::Script(path) => machine::judge(path, || {
                let mut command = std::process::Command::new("bash");
                workspace::run_to_success(command.arg(path), &self.line())
            }),
            Self::Evenkeel(arguments) => self.evenkeel(arguments),
            Self::Live(arguments) => machine::judge(&self.line(), || self.evenkeel(arguments)),
        }
    }

    fn evenkeel(&self, arguments: &[&str]) -> Result<()> {
        let mut command = std::process::Command::new(workspace::release_binary());
        workspace::run_to_success(command.args(arguments), &self.line())
    }
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
        let step = Run::CargoWith(&["doc"], &[("RUSTDOCFLAGS", "-D warnings")]);
        assert_eq!(step.line(), "RUSTDOCFLAGS='-D warnings' cargo doc");
        assert_eq!(Run::Live(&["demo"]).line(), "target/release/evenkeel demo");
    }

    #[test]
    fn the_summary_adds_a_total() {
        let text = summary(&[("format", Duration::from_millis(1250))], Duration::from_secs(3));
        let expected = "format                       1.2 s\ntotal                        3.0 s\n\
                        ci passed";
        assert_eq!(text, expected);
    }
}
