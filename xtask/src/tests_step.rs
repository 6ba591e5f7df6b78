//! The tests of the workspace.
//!
//! Many of them measure real servers on sockets. On a machine that is busy with something else one
//! of hundreds may fail for that reason alone, so what fails is run once more, by itself: what then
//! passes is named as *unsteady*, aloud and at the end, and what fails again ends the run. A test
//! that is often on that list is a defect.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};

use crate::workspace;

/// Targets that may fail at first; with more of them it is no accident.
const UNSTEADY_MAX: usize = 3;

/// Runs all tests.
///
/// # Errors
/// When a target fails twice, too many fail at once, or something does not compile.
pub(crate) fn run() -> Result<()> {
    let (passed, failed) = all()?;
    if passed {
        return Ok(());
    }
    if failed.is_empty() {
        bail!("the tests did not run to their end (see above)");
    }
    if failed.len() > UNSTEADY_MAX {
        bail!("{} targets failed: {}", failed.len(), failed.join(", "));
    }
    for target in &failed {
        println!("=== failed among the others, once more by itself: cargo test {target}");
        let arguments: Vec<&str> = ["test"].into_iter().chain(target.split(' ')).collect();
        workspace::run_cargo(&arguments, &[])?;
    }
    println!("=== UNSTEADY: failed among the others, passed alone: {}", failed.join(", "));
    Ok(())
}

/// Whether all passed, and the targets that did not as cargo would be asked for them.
fn all() -> Result<(bool, Vec<String>)> {
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]).current_dir(workspace::root());
    cargo.env("PATH", workspace::search_path()).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut running = cargo.spawn().context("cargo test")?;
    let told = running.stderr.take().context("cargo's errors")?;
    let mut lines = Vec::new();
    for line in BufReader::new(told).lines() {
        let line = line.context("cargo's errors")?;
        eprintln!("{line}");
        lines.push(line);
    }
    let status = running.wait().context("cargo test")?;
    Ok((status.success(), failed_targets(&lines)))
}

/// Cargo's list at the end: lines such as "    `-p evenkeel --test profile`".
fn failed_targets(lines: &[String]) -> Vec<String> {
    let start = lines.iter().rposition(|line| {
        line.starts_with("error: ") && line.contains("target") && line.contains("failed:")
    });
    let after = start.map_or(&[][..], |start| &lines[start + 1..]);
    let target = |line: &String| {
        let inner = line.trim().strip_prefix('`')?.strip_suffix('`')?;
        inner.starts_with("-p ").then(|| inner.to_owned())
    };
    after.iter().map_while(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_targets_are_those_of_cargos_list() {
        let text = "warning: `-p nothing`\nerror: 2 targets failed:\n    `-p evenkeel --test \
                    profile`\n    `-p evenkeel-net --lib`\n";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(failed_targets(&lines), ["-p evenkeel --test profile", "-p evenkeel-net --lib"]);
        let broken = ["error: could not compile `x`".to_owned()];
        assert!(failed_targets(&broken).is_empty());
    }
}
