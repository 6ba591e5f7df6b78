//! The house rules that neither the compiler nor clippy checks.
//!
//! All rules look at one snapshot of the tree (`Tree`: every file git tracks or would track) and
//! report every violation at once, as `file:line: what, limit, what to do`. They work on text, not
//! on a syntax tree: comments and literals are blanked first (`source`), which is exact enough
//! for code that rustfmt has formatted and keeps this crate's build at seconds.

mod circles;
mod crates;
mod documents;
mod failures;
mod layers;
mod machine;
mod places;
mod product;
mod references;
mod rust;
pub mod schema;
mod source;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crates::LAW;

/// Every rule, in the order of its report.
const RULES: [fn(&Tree, &mut Vec<Violation>); 10] = [
    rust::check,
    |tree, violations| layers::check(&LAW, tree, violations),
    |tree, violations| circles::check(&LAW, tree, violations),
    |tree, violations| places::check(&LAW, tree, violations),
    references::check,
    documents::check,
    documents::check_schema,
    failures::check,
    machine::check,
    machine::check_whitespace,
];

/// Checks the whole tree and prints each violation on its own line.
///
/// # Errors
/// When there are violations, or the tree cannot be read.
pub fn run() -> Result<()> {
    let tree = Tree::read()?;
    let violations = check(&tree);
    for violation in &violations {
        println!("{violation}");
    }
    if !violations.is_empty() {
        bail!("tidy: {} violations in {} files", violations.len(), tree.files.len());
    }
    println!("tidy: {} files, no violation", tree.files.len());
    Ok(())
}

/// Prints the lines of each crate, tests left out; in total also what only tests use.
///
/// # Errors
/// When the tree cannot be read.
pub fn print_sizes() -> Result<()> {
    let sizes = layers::sizes(&Tree::read()?);
    let product = sizes.iter().filter(|(package, _)| *package != "evenkeel-testkit");
    let total: usize = product.map(|(_, lines)| lines).sum();
    for (package, lines) in sizes.into_iter().chain([("total", total)]) {
        println!("{package:<24}{lines:>8}");
    }
    Ok(())
}

fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for rule in RULES {
        rule(tree, &mut violations);
    }
    violations
}

/// One broken rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    file: String,
    line: usize,
    what: String,
}

impl Violation {
    /// `line` counts from 1; `what` says what was found, the limit and what to do.
    fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// A text file; `path` is relative to the workspace root and uses `/`.
#[derive(Debug)]
pub(crate) struct File {
    path: String,
    text: String,
}

impl File {
    fn has_extension(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, found)| found == extension)
    }

    /// Lines with their number, from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.split('\n').enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// Every file that git tracks, or would track if it were added.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    /// Text files with their content.
    files: Vec<File>,
    /// Files that are not UTF-8: they can be linked to, and nothing else is checked.
    binaries: Vec<String>,
}

impl Tree {
    fn read() -> Result<Self> {
        let root = root();
        let mut paths = listed_by_git()?;
        paths.sort();
        paths.dedup();
        let mut tree = Self::default();
        for path in paths {
            let file = root.join(&path);
            // A file deleted but not yet committed is still listed.
            if !file.is_file() {
                continue;
            }
            let bytes = std::fs::read(&file).with_context(|| format!("cannot read {path}"))?;
            match String::from_utf8(bytes) {
                Ok(text) => tree.files.push(File { path, text }),
                Err(_) => tree.binaries.push(path),
            }
        }
        Ok(tree)
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        Self { files, binaries: Vec::new() }
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Files whose name ends with `.extension`.
    fn with_extension(&self, extension: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| file.has_extension(extension))
    }

    /// Whether `path` is a file of the tree or a folder that holds one.
    fn holds(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self
                .files
                .iter()
                .map(|file| &file.path)
                .chain(&self.binaries)
                .any(|known| known == path || known.starts_with(&folder))
    }
}

/// The folder of the workspace: where the source that runs is, also when it was built elsewhere.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let of_this = manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf();
    // Cargo says whose command it runs: that of xtask, a folder of the workspace.
    let asked = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let asked = asked.and_then(|folder| Some(folder.parent()?.to_path_buf()));
    asked.filter(|folder| folder.join("Cargo.lock").is_file()).unwrap_or(of_this)
}

fn listed_by_git() -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .context("tidy asks git which files belong to the project, and git could not be started")?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("git ls-files failed ({}): {}", output.status, reason.trim());
    }
    let listing = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Runs one rule over small files and returns its report as text.
#[cfg(test)]
fn report(rule: fn(&Tree, &mut Vec<Violation>), files: &[(&str, &str)]) -> Vec<String> {
    let mut violations = Vec::new();
    rule(&Tree::of(files), &mut violations);
    violations.iter().map(Violation::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_holds_its_files_and_their_folders() {
        let mut tree = Tree::of(&[("papers/c3/README.md", "")]);
        tree.binaries.push("papers/c3/figure.png".to_owned());
        for path in ["papers/c3/README.md", "papers/c3/figure.png", "papers/c3", "papers", ""] {
            assert!(tree.holds(path), "{path}");
        }
        for path in ["papers/c", "README.md", "papers/c3/README"] {
            assert!(!tree.holds(path), "{path}");
        }
    }

    #[test]
    fn git_lists_this_file() {
        let tree = Tree::read().unwrap();
        assert!(tree.file("xtask/tidy/src/lib.rs").is_some());
        assert!(tree.files.iter().all(|file| !file.path.starts_with("target/")));
    }

    #[test]
    fn violations_of_several_rules_are_reported_together() {
        let standing = LAW.standing(&Tree::read().unwrap());
        let core = standing.iter().find(|row| row.package == "evenkeel-core").unwrap();
        let source = format!("{}/src/lib.rs", core.folder);
        let text = "fn f() { std::fs::read(p); } \n";
        let tree = Tree::of(&[(&core.manifest(), ""), (&source, text)]);
        let report: Vec<String> = check(&tree).iter().map(Violation::to_string).collect();
        let has = |part: &str| report.iter().any(|line| line.contains(part));
        assert!(has("module doc") && has("std::fs") && has("trailing space"), "{report:?}");
        assert!(has("README.md:1"), "{report:?}");
    }
}
