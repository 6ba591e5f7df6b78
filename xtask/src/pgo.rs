//! `cargo xtask pgo`: the program of packages, compiled by a profile of its own work.
//!
//! What a request costs in user space is mostly code that is not in the processor's cache: hundreds
//! of functions, each once. The compiler lays out what is taken together if it knows that. So the
//! program is built with counters, does the work of every protocol for a while, and is built again
//! by what was counted. What is in no such work is compiled for size: whoever adds a protocol adds
//! it to [`train`].
//!
//! A profile is never the same twice, so neither are the bytes of such a program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{bench_cassandra, bench_http, bench_redis, workspace};

/// Files of counters, one for each process that has ended.
const COUNTS: &str = "counts";
const PROFILE: &str = "evenkeel.profdata";
const COUNTING: &str = "evenkeel-counting";

/// Builds the program for this machine and says where it is.
pub(crate) fn run() -> Result<()> {
    println!("\nthe program: {}", build(&host())?.display());
    Ok(())
}

/// Builds, trains and builds again, for `target`; where the program is.
pub(crate) fn build(target: &str) -> Result<PathBuf> {
    let folder = workspace::target().join("pgo");
    let counts = folder.join(COUNTS);
    let merger = merger()?;
    if counts.exists() {
        fs::remove_dir_all(&counts).with_context(|| format!("cannot empty {counts:?}"))?;
    }
    fs::create_dir_all(&counts).with_context(|| format!("cannot create {counts:?}"))?;
    // For the same target, with the same settings: they are in the names of functions, by which
    // counts are found.
    let flags = format!("-Cprofile-generate={}", counts.display());
    let counting = compile(target, &flags)?;
    let program = folder.join(COUNTING);
    fs::copy(&counting, &program).with_context(|| format!("cannot copy {counting:?}"))?;
    train(&program)?;
    let profile = merge(&merger, &counts, &folder.join(PROFILE))?;
    let built = compile(target, &format!("-Cprofile-use={}", profile.display()))?;
    let program = folder.join("evenkeel");
    fs::copy(&built, &program).with_context(|| format!("cannot copy {built:?}"))?;
    Ok(program)
}

/// The target of this machine.
pub(crate) fn host() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn compile(target: &str, flags: &str) -> Result<PathBuf> {
    let words = ["build", "--profile", "dist", "-p", "evenkeel", "--target", target];
    workspace::run_cargo(&words, &[("RUSTFLAGS", flags)])?;
    Ok(workspace::target().join(target).join("dist/evenkeel"))
}

/// The work by which it is known what is taken together.
fn train(program: &Path) -> Result<()> {
    let path = program.to_str().context("the path of the target folder is not UTF-8")?;
    let with_program =
        |words: &'static str| ["--binary", path].into_iter().chain(words.split(' ')).collect();
    let redis: Vec<&str> = with_program("--rounds 6 --subjects direct,evenkeel-1,evenkeel-2");
    let cassandra: Vec<&str> = with_program(
        "--scenarios calm --mixes update-heavy --seconds 2 --warm-up 2 \
         --ways default,adaptive-hedged,proxy",
    );
    bench_http::train(program)?;
    bench_redis::run(&redis)?;
    bench_cassandra::run(&cassandra)?;
    for scenario in ["demo", "brownout-shop", "redirect-demo"] {
        let file = workspace::root().join("scenarios").join(scenario).with_extension("toml");
        workspace::run_to_success(Command::new(program).arg("sim").arg(file), scenario)?;
    }
    Ok(())
}

/// The program that merges counts, which must be the compiler's own.
fn merger() -> Result<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(sysroot.context("rustc could not be started")?.stdout)?;
    let folder = Path::new(sysroot.trim()).join("lib/rustlib").join(host()).join("bin");
    let merger = folder.join("llvm-profdata");
    if !merger.exists() {
        bail!("{merger:?} is missing; rustup component add llvm-tools");
    }
    Ok(merger)
}

fn merge(merger: &Path, counts: &Path, profile: &Path) -> Result<PathBuf> {
    let mut command = Command::new(merger);
    command.arg("merge").arg("-o").arg(profile).arg(counts);
    workspace::run_to_success(&mut command, "llvm-profdata merge")?;
    Ok(profile.to_owned())
}
