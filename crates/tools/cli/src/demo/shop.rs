//! The shop's program, which is not part of this one: its database would double what a stranger
//! waits for before the first demo.
//!
//! Packages put `evenkeel-shop` beside `evenkeel`. In a source tree cargo builds it where it is
//! missing or older than its sources.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context as _, bail, ensure};

const NAME: &str = "evenkeel-shop";
/// In a source tree.
const SOURCES: &str = "examples/shop";

/// The shop's program, ready to run.
#[derive(Clone, Debug)]
pub(super) struct Program(PathBuf);

impl Program {
    /// Finds it, or builds it.
    ///
    /// # Errors
    /// When there is neither a program nor its sources, or they do not compile.
    pub(super) fn find() -> anyhow::Result<Self> {
        let own = env::current_exe().context("this program has lost its file")?;
        let beside = own.with_file_name(NAME);
        if let Some(tree) = source_tree(&own) {
            if !is_current(&beside, &tree.join(SOURCES)) {
                build(&tree, &own)?;
            }
            return Ok(Self(beside));
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let places = env::split_paths(&path).map(|folder| folder.join(NAME));
        let found = [beside].into_iter().chain(places).find(|place| place.is_file());
        found.map(Self).with_context(|| {
            format!(
                "no {NAME} beside this program or in PATH; in a source tree: cargo install --path \
                 {SOURCES}"
            )
        })
    }

    pub(super) fn command(&self) -> Command {
        Command::new(&self.0)
    }

    /// Makes a catalogue of so many items.
    pub(super) fn generate(&self, database: &Path, items: u32) -> anyhow::Result<()> {
        let items = items.to_string();
        self.said(database, &["generate", "--seed", "1", "--items", &items]).map(drop)
    }

    fn said(&self, database: &Path, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
        let mut command = self.command();
        command.args(arguments).arg("--database").arg(database).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("cannot start {NAME}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{NAME} {}: {}", arguments[0], errors.trim());
        Ok(output.stdout)
    }
}

/// The source tree that `program` was built in, if cargo put it where it lies.
fn source_tree(program: &Path) -> Option<PathBuf> {
    let is_of_cargo = program.parent()?.join(".fingerprint").is_dir();
    let here = env::current_dir().ok();
    let above = program.ancestors().chain(here.iter().flat_map(|here| here.ancestors()));
    let mut trees = above.filter(|folder| folder.join(SOURCES).join("Cargo.toml").is_file());
    is_of_cargo.then(|| trees.next().map(Path::to_owned))?
}

/// Whether `program` is there and no source is younger.
fn is_current(program: &Path, sources: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|facts| facts.modified()).ok();
    changed(program).is_some_and(|built| Some(built) >= youngest(sources))
}

fn youngest(folder: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let times = entries.filter_map(|entry| {
        let facts = entry.metadata().ok()?;
        if facts.is_dir() { youngest(&entry.path()) } else { facts.modified().ok() }
    });
    times.max()
}

/// Builds the shop with the profile of `own`, into the folder where that lies.
fn build(tree: &Path, own: &Path) -> anyhow::Result<()> {
    let folder = own.parent().context("a program lies in a folder")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(profile) => profile,
        None => bail!("{}: the folder of a profile was expected", folder.display()),
    };
    eprintln!("Building the shop with its database, once; a minute or two …");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(["build", "--package", NAME, "--profile", profile, "--target-dir"]);
    command.args(folder.parent()).current_dir(tree).stdin(Stdio::null());
    let status = command.status().context("cargo, which builds the shop, cannot be started")?;
    ensure!(status.success(), "the shop was not built ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_is_current_until_a_source_changes() {
        let folder = env::temp_dir().join(format!("evenkeel-shop-{}", std::process::id()));
        let sources = folder.join(SOURCES);
        fs::create_dir_all(sources.join("src/page")).unwrap();
        let file = |path: PathBuf, age_s: u64| {
            let file = fs::File::create(path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
        };
        let program = folder.join(NAME);
        file(sources.join("Cargo.toml"), 100);
        assert!(!is_current(&program, &sources), "it is not there");
        file(program.clone(), 50);
        assert!(is_current(&program, &sources));
        file(sources.join("src/page/item.rs"), 10);
        assert!(!is_current(&program, &sources));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_source_tree_is_where_cargo_put_the_program() {
        let folder = env::temp_dir().join(format!("evenkeel-tree-{}", std::process::id()));
        let program = folder.join("target/release/evenkeel");
        fs::create_dir_all(folder.join("target/release")).unwrap();
        fs::create_dir_all(folder.join(SOURCES)).unwrap();
        fs::write(folder.join(SOURCES).join("Cargo.toml"), "").unwrap();
        assert_eq!(source_tree(&program), None, "somebody copied it there");
        fs::create_dir(folder.join("target/release/.fingerprint")).unwrap();
        assert_eq!(source_tree(&program), Some(folder.clone()));
        fs::remove_dir_all(folder).unwrap();
    }
}
