//! Test binaries as cargo makes them, and how each is started.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace;

/// What a binary tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Lib,
    Bin,
    Test,
    Bench,
    Example,
}

/// One binary with tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binary {
    pub(super) package: String,
    pub(super) kind: Kind,
    pub(super) target: String,
    program: PathBuf,
    /// Of the package: tests run there.
    folder: PathBuf,
    source: PathBuf,
}

impl Binary {
    /// As cargo would be asked for it: `-p evenkeel-server --test redirect`.
    pub(super) fn asked(&self) -> String {
        let Self { package, target, .. } = self;
        match self.kind {
            Kind::Lib => format!("-p {package} --lib"),
            Kind::Bin => format!("-p {package} --bin {target}"),
            Kind::Test => format!("-p {package} --test {target}"),
            Kind::Bench => format!("-p {package} --bench {target}"),
            Kind::Example => format!("-p {package} --example {target}"),
        }
    }

    /// Cargo's line before it runs this.
    pub(super) fn heading(&self) -> String {
        let source = self.source.strip_prefix(&self.folder).unwrap_or(&self.source);
        let unit = if self.kind == Kind::Test { "" } else { "unittests " };
        let root = workspace::root();
        let program = self.program.strip_prefix(&root).unwrap_or(&self.program);
        format!("     Running {unit}{} ({})", source.display(), program.display())
    }

    /// The binary with these arguments, started as cargo does it.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        workspace::forget_cargo(&mut command);
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        command.env("PATH", workspace::search_path());
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_PKG_NAME", &self.package);
        command
    }

    /// From a line of `cargo test --no-run --message-format=json`, if it is about a binary with
    /// tests.
    fn read(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"] == true;
        let target = &message["target"];
        let kind = match target["kind"].get(0)?.as_str()? {
            "bin" => Kind::Bin,
            "test" => Kind::Test,
            "bench" => Kind::Bench,
            "example" => Kind::Example,
            _ => Kind::Lib,
        };
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let read = Self {
            package: package(message["package_id"].as_str()?).to_owned(),
            kind,
            target: target["name"].as_str()?.to_owned(),
            program: path(&message["executable"])?,
            folder: path(&message["manifest_path"])?.parent()?.to_path_buf(),
            source: path(&target["src_path"])?,
        };
        is_test.then_some(read)
    }

    #[cfg(test)]
    pub(super) fn made_up(package: &str, kind: Kind, target: &str) -> Self {
        Self {
            package: package.to_owned(),
            kind,
            target: target.to_owned(),
            program: PathBuf::from("true"),
            folder: workspace::root(),
            source: PathBuf::new(),
        }
    }
}

/// `keel` of `path+file:///a/b#keel@0.1.0`, and of `path+file:///a/keel#0.1.0`.
fn package(id: &str) -> &str {
    let (path, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.rsplit_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

/// Builds the tests that `arguments` ask for, and lists them in cargo's order.
pub(super) fn build(arguments: &[&str]) -> Result<Vec<Binary>> {
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics"]).args(arguments);
    cargo.current_dir(workspace::root()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = cargo.output().context("cargo could not be started")?;
    if !output.status.success() {
        bail!("the tests do not compile (see above)");
    }
    let lines = String::from_utf8(output.stdout).context("cargo's messages")?;
    let mut binaries: Vec<Binary> = lines.lines().filter_map(Binary::read).collect();
    // As cargo finishes them, which differs from run to run.
    binaries.sort_by_key(|binary| (binary.package.clone(), binary.asked()));
    Ok(binaries)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::*;

    const ARTIFACT: &str = r#"{"reason":"compiler-artifact",
        "package_id":"path+file:///x/crates/serve/server#evenkeel-server@0.1.0",
        "manifest_path":"/x/crates/serve/server/Cargo.toml",
        "target":{"kind":["KIND"],"name":"sail","src_path":"/x/crates/serve/server/tests/sail.rs"},
        "profile":{"test":true},"executable":"/x/target/ci/deps/sail-1"}"#;

    fn read(kind: &str) -> Binary {
        Binary::read(&ARTIFACT.replace("KIND", kind)).unwrap()
    }

    #[test]
    fn a_binary_is_asked_for_as_cargo_would_be() {
        for (kind, asked) in [
            ("test", "-p evenkeel-server --test sail"),
            ("lib", "-p evenkeel-server --lib"),
            ("bin", "-p evenkeel-server --bin sail"),
            ("proc-macro", "-p evenkeel-server --lib"),
        ] {
            assert_eq!(read(kind).asked(), asked);
        }
        assert_eq!(read("test").heading(), "     Running tests/sail.rs (/x/target/ci/deps/sail-1)");
        assert!(read("lib").heading().starts_with("     Running unittests tests/sail.rs ("));
    }

    #[test]
    fn a_binary_runs_where_its_package_is() {
        let command = read("test").command(&["--exact", "keel::is_bent"]);
        assert_eq!(command.get_current_dir(), Some(Path::new("/x/crates/serve/server")));
        let of = |name: &str| command.get_envs().find(|(key, _)| *key == name).and_then(|e| e.1);
        assert_eq!(of("CARGO_MANIFEST_DIR"), Some(OsStr::new("/x/crates/serve/server")));
        assert_eq!(of("CARGO_PKG_NAME"), Some(OsStr::new("evenkeel-server")));
        assert_eq!(of("CARGO_PKG_VERSION"), None);
    }

    #[test]
    fn other_messages_are_passed_over() {
        for line in [
            ARTIFACT.replace("\"test\":true", "\"test\":false"),
            ARTIFACT.replace("\"/x/target/ci/deps/sail-1\"", "null"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "not even JSON".to_owned(),
        ] {
            assert_eq!(Binary::read(&line), None, "{line}");
        }
    }

    #[test]
    fn a_package_is_named_in_two_ways() {
        assert_eq!(package("path+file:///a/b#keel@0.1.0"), "keel");
        assert_eq!(package("path+file:///a/keel#0.1.0"), "keel");
    }
}
