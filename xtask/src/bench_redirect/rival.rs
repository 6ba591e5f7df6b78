//! The programs that are compared: how each is asked, and what it says.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::problem::{Case, Files, UNIT_PPM};

/// Runs shorter than this are repeated.
const SHORT_MS: f64 = 100.0;
const REPEATS: u32 = 10;
/// How much longer than its cap a program may live.
const GRACE_SECONDS: u64 = 30;

/// A program that proves plans.
#[derive(Clone, Debug)]
pub(super) enum Rival {
    /// Ours, by its path.
    Evenkeel(PathBuf),
    /// `minizinc`, by its path.
    Gecode(PathBuf),
    /// The Python that has `highspy`.
    Highs(PathBuf),
}

/// What one question took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    /// Of the whole process, with its children.
    pub(super) cpu_ms: f64,
    /// Of the solver alone, where it says so; 0 elsewhere.
    pub(super) solve_ms: f64,
    /// In units of [`UNIT_PPM`] or redirected quanta; `None` when the target cannot be kept.
    pub(super) objective: Option<u64>,
    pub(super) is_proven: bool,
}

impl Rival {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Evenkeel(_) => "evenkeel",
            Self::Gecode(_) => "Gecode",
            Self::Highs(_) => "HiGHS",
        }
    }

    pub(super) fn ask(&self, case: &Case, files: &Files, cap_seconds: u64) -> Result<Outcome> {
        let outcome = self.ask_times(1, case, files, cap_seconds)?;
        match outcome.cpu_ms < SHORT_MS {
            true => self.ask_times(REPEATS, case, files, cap_seconds),
            false => Ok(outcome),
        }
    }

    fn ask_times(&self, times: u32, case: &Case, files: &Files, cap: u64) -> Result<Outcome> {
        let (cpu_ms, said) = timed(times, &self.words(case, files, cap), files, cap)?;
        let mut outcome = match self {
            Self::Evenkeel(_) => ours(&said, case)?,
            Self::Gecode(_) => gecode(&said),
            Self::Highs(_) => highs(&said),
        };
        outcome.cpu_ms = cpu_ms / f64::from(times);
        Ok(outcome)
    }

    fn words(&self, case: &Case, files: &Files, cap_seconds: u64) -> Vec<String> {
        let path = |path: &PathBuf| path.display().to_string();
        let mut words = Vec::new();
        match self {
            Self::Evenkeel(program) => {
                words.extend([path(program), "plan".into(), "redirect".into(), path(&files.json)]);
                words.extend(["--json", "--objective", case.objective()].map(str::to_owned));
            }
            Self::Gecode(program) => {
                words.extend([path(program), "--solver".into(), "gecode".into()]);
                words.extend(["--time-limit".into(), (1000 * cap_seconds).to_string()]);
                words.extend([path(&files.model), path(&files.minizinc)]);
            }
            Self::Highs(python) => {
                words.extend([path(python), path(&files.levels), path(&files.json)]);
                words.extend([case.objective().to_owned(), cap_seconds.to_string()]);
            }
        }
        words
    }
}

/// CPU time of so many runs in milliseconds, and what the last one said. The shell's clock counts
/// children that were waited for, which is how a solver behind a front end is seen.
fn timed(times: u32, words: &[String], files: &Files, cap_seconds: u64) -> Result<(f64, String)> {
    const SCRIPT: &str = "TIMEFORMAT='cpu %3U %3S'; times=$1; limit=$2; shift 2; \
         time for ((k = 0; k < times; k++)); do timeout \"$limit\" \"$@\" >said 2>words; done";
    let output = Command::new("bash")
        .args(["-c", SCRIPT, "bench", &times.to_string()])
        .arg((cap_seconds + GRACE_SECONDS).to_string())
        .args(words)
        .current_dir(&files.folder)
        .stdin(Stdio::null())
        .output()
        .context("`bash` could not be started")?;
    let clock = String::from_utf8_lossy(&output.stderr);
    let line = clock.lines().find_map(|line| line.strip_prefix("cpu "));
    let parts = line.map(|line| line.split_whitespace().filter_map(|part| part.parse().ok()));
    let seconds: Vec<f64> = parts.map(Iterator::collect).unwrap_or_default();
    let [user, system] = seconds[..] else { bail!("bash's clock said `{}`", clock.trim()) };
    if !matches!(output.status.code(), Some(0 | 124)) {
        let words = std::fs::read_to_string(files.folder.join("words")).unwrap_or_default();
        bail!("it failed ({}) and said: {}", output.status, words.trim());
    }
    let said = std::fs::read_to_string(files.folder.join("said"))?;
    Ok((1000.0 * (user + system), said))
}

fn unproven() -> Outcome {
    Outcome { cpu_ms: 0.0, solve_ms: 0.0, objective: None, is_proven: false }
}

/// One JSON document, a field a line.
fn ours(said: &str, case: &Case) -> Result<Outcome> {
    let field = |name: &str| {
        let start = format!("\"{name}\": ");
        let value = said.lines().find_map(|line| line.trim().strip_prefix(&start));
        value.map(|value| value.trim_end_matches(',')).with_context(|| format!("no {name}: {said}"))
    };
    let objective: u64 = field("objective")?.parse()?;
    let unit = if case.by_cost { 1 } else { u64::from(UNIT_PPM) };
    let is_infeasible = field("status")? == "\"infeasible\"";
    Ok(Outcome {
        solve_ms: field("cpu_ms")?.parse()?,
        objective: (!is_infeasible).then_some(objective / unit),
        // Within a tolerance is not a proof here.
        is_proven: field("proven")? == "true" && field("status")? != "\"bounded\"",
        ..unproven()
    })
}

/// The last solution, and a line of `=` when it is the best.
fn gecode(said: &str) -> Outcome {
    let objective = said.lines().filter_map(|line| line.strip_prefix("objective ")).next_back();
    let is_infeasible = said.contains("=====UNSATISFIABLE=====");
    Outcome {
        objective: objective.and_then(|objective| objective.trim().parse().ok()),
        is_proven: is_infeasible || said.lines().any(|line| line.trim() == "=========="),
        ..unproven()
    }
}

fn highs(said: &str) -> Outcome {
    let objective = said.lines().find_map(|line| line.strip_prefix("objective "));
    Outcome {
        objective: objective.and_then(|objective| objective.trim().parse().ok()),
        is_proven: said.lines().any(|line| line == "proven"),
        ..unproven()
    }
}

#[cfg(test)]
mod tests {
    use super::super::instances::Family;
    use super::*;

    #[test]
    fn only_a_finished_search_is_a_proof() {
        let partial = gecode("objective 9\n----------\nobjective 7\n----------\n% Time limit\n");
        assert_eq!((partial.objective, partial.is_proven), (Some(7), false));
        let whole = gecode("objective 7\n----------\n==========\n");
        assert_eq!((whole.objective, whole.is_proven), (Some(7), true));
        let none = gecode("=====UNSATISFIABLE=====\n");
        assert_eq!((none.objective, none.is_proven), (None, true));
        assert!(!gecode("=====UNKNOWN=====\n").is_proven);
        assert!(!highs("").is_proven);
        assert_eq!(highs("objective 12\nproven\n").objective, Some(12));
    }

    #[test]
    fn our_document_is_read_in_everybodys_units() {
        let said = "{\n  \"objective\": 58100,\n  \"proven\": true,\n  \"status\": \"optimal\",\n  \
                    \"cpu_ms\": 0.5\n}";
        let case = Case { family: Family::Hot, label: "hot", sites: 3, by_cost: false };
        let outcome = ours(said, &case).unwrap();
        assert_eq!((outcome.objective, outcome.is_proven), (Some(581), true));
        assert_eq!(ours(said, &Case { by_cost: true, ..case }).unwrap().objective, Some(58_100));
        assert!(!ours(&said.replace("optimal", "bounded"), &case).unwrap().is_proven);
        assert!(ours("error", &case).is_err());
    }
}
