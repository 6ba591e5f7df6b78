//! What tests need, Debian does not have, and is made here with the tools of its language: Apache
//! Cassandra from Maven Central, the programs that speak to it through drivers of others, and one
//! with the validation of Kubernetes and Istio.
//!
//! Each part is made once, into a folder of `target/xtask`, and again when what it is made of
//! changes. Whatever cannot be made is named with the tests that pass by for want of it.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Something that is made here with the tools of its language.
struct Part {
    /// Its folder in `target/xtask`.
    name: &'static str,
    /// Where what it is made of lies, from the workspace's root.
    source: &'static str,
    /// What it is made of.
    files: &'static [&'static str],
    /// What makes it.
    tools: &'static [&'static str],
    used_by: &'static str,
    /// Whether CI makes it; what takes longer is made by hand, with `--install`.
    in_ci: bool,
    make: fn(&Workshop) -> Result<()>,
}

const PARTS: [Part; 7] = [
    Part {
        name: "cassandra/lib",
        source: "crates/tools/testkit/cassandra",
        files: &["pom.xml"],
        tools: &["java", "mvn"],
        used_by: "tests with a real Cassandra",
        in_ci: true,
        make: |shop| shop.jars(&shop.folder),
    },
    Part {
        name: "cassandra/python",
        source: "crates/serve/server/tests/cassandra/drivers/python",
        files: &["requirements.txt"],
        tools: &["python3"],
        used_by: "tests of Cassandra with the driver for Python",
        in_ci: true,
        make: make_python,
    },
    Part {
        name: "cassandra/gocql",
        source: "crates/serve/server/tests/cassandra/drivers/gocql",
        files: &["go.mod", "go.sum", "main.go"],
        tools: &["go"],
        used_by: "tests of Cassandra with gocql",
        in_ci: true,
        make: make_gocql,
    },
    Part {
        name: "cassandra/java",
        source: "crates/serve/server/tests/cassandra/drivers/java",
        files: &["pom.xml", "Driver.java"],
        tools: &["java", "javac", "mvn"],
        used_by: "tests of Cassandra with the driver for Java",
        in_ci: true,
        make: make_java,
    },
    Part {
        name: "cassandra/node",
        source: "crates/serve/server/tests/cassandra/drivers/node",
        files: &["package.json", "package-lock.json"],
        tools: &["node", "npm"],
        used_by: "tests of Cassandra with the driver for Node",
        in_ci: true,
        make: make_node,
    },
    Part {
        name: "cassandra/scylla",
        source: "crates/serve/server/tests/cassandra/drivers/scylla",
        files: &["Cargo.toml", "Cargo.lock", "src/main.rs"],
        tools: &["cargo"],
        used_by: "tests of Cassandra with scylla, the driver for Rust",
        in_ci: true,
        make: make_scylla,
    },
    Part {
        name: "objects",
        source: "crates/serve/mesh/tests/objects",
        files: &["go.mod", "go.sum", "main.go"],
        tools: &["go"],
        used_by: "tests of what Kubernetes and Istio are told, by their own validation",
        in_ci: false, // it takes 120 s of CPU
        make: make_objects,
    },
];

/// Copies what a `pom.xml` names and what that depends on; the version of the plugin is ours, so
/// that a new one does not change a build.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// What a part is made with.
struct Workshop {
    source: PathBuf,
    folder: PathBuf,
    log: PathBuf,
}

/// Makes what is missing or made of something else by now, and says what could not be made.
/// `all`: also what CI does not make.
///
/// # Errors
/// When a part could not be made: the first of them, after all were tried.
pub(super) fn install(all: bool) -> Result<()> {
    let mut first = Ok(());
    for part in PARTS.iter().filter(|part| (all || part.in_ci) && !part.is_ready()) {
        match part.install() {
            Ok(()) => println!("made {} for {}", part.folder().display(), part.used_by),
            Err(error) => {
                println!("not made: {}: {error:#}", part.name);
                first = first.and(Err(error));
            }
        }
    }
    first
}

/// Lines of the table of components, and after it of what is missing.
pub(super) fn rows() -> (String, Vec<String>) {
    let (mut rows, mut missing) = (String::new(), Vec::new());
    for part in &PARTS {
        let (name, used_by) = (part.name, part.used_by);
        let found = if part.is_ready() {
            part.folder().display().to_string()
        } else {
            "missing".to_owned()
        };
        let tools = part.tools.join(", ");
        rows.push_str(&format!("{name:<10} {tools:<18} {found:<22} {used_by}\n"));
        if !part.is_ready() {
            let way = "cargo xtask needs --install";
            missing.push(format!("MISSING {name}: skipped for want of it: {used_by}; {way}"));
        }
    }
    (rows, missing)
}

fn home() -> PathBuf {
    workspace::target().join("xtask")
}

impl Part {
    fn folder(&self) -> PathBuf {
        home().join(self.name)
    }

    /// The file that says of what the folder was made.
    fn stamp(&self) -> PathBuf {
        home().join(format!("{}.made-of", self.name))
    }

    fn is_ready(&self) -> bool {
        let made_of = fs::read_to_string(self.stamp()).unwrap_or_default();
        self.folder().is_dir() && fingerprint(self).is_some_and(|now| now == made_of)
    }

    fn install(&self) -> Result<()> {
        for tool in self.tools {
            super::require(tool)?;
        }
        if std::env::var_os("CARGO_NET_OFFLINE").is_some_and(|offline| offline == "true") {
            bail!("CARGO_NET_OFFLINE=true, and it is made of what registries have");
        }
        let made_of = fingerprint(self)
            .with_context(|| format!("{} is not in this checkout", self.source))?;
        let (folder, log) = (self.folder(), home().join(format!("{}.log", self.name)));
        let _ = fs::remove_file(self.stamp());
        let _ = fs::remove_file(&log);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder:?}"))?;
        let source = workspace::root().join(self.source);
        (self.make)(&Workshop { source, folder, log })?;
        fs::write(self.stamp(), made_of).context("cannot note of what it was made")
    }
}

/// Of names and contents. `None` when one of the files cannot be read.
fn fingerprint(part: &Part) -> Option<String> {
    let mut hasher = DefaultHasher::new();
    for name in part.files {
        name.hash(&mut hasher);
        fs::read(workspace::root().join(part.source).join(name)).ok()?.hash(&mut hasher);
    }
    Some(format!("{:016x}", hasher.finish()))
}

impl Workshop {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs a program in the folder of the source; what it says goes to the log.
    fn run(&self, program: impl AsRef<Path>, arguments: &[&dyn AsRef<Path>]) -> Result<()> {
        let program = program.as_ref();
        self.run_in(&self.source, Command::new(program).args(arguments.iter().map(AsRef::as_ref)))
    }

    fn run_in(&self, folder: &Path, command: &mut Command) -> Result<()> {
        let line = format!("{command:?}");
        command.current_dir(folder).env("PATH", workspace::search_path());
        super::run_logged(command, &line, &self.log)
    }

    fn copy(&self, names: &[&str]) -> Result<()> {
        for name in names {
            fs::copy(self.source.join(name), self.file(name))
                .with_context(|| (*name).to_owned())?;
        }
        Ok(())
    }

    /// The jars that the source's `pom.xml` asks for.
    fn jars(&self, folder: &Path) -> Result<()> {
        let to = format!("-DoutputDirectory={}", folder.display());
        self.run("mvn", &[&"-q", &"-B", &COPY, &to, &"-DincludeScope=runtime"])
    }
}

fn make_python(shop: &Workshop) -> Result<()> {
    shop.run(super::require("python3")?, &[&"-m", &"venv", &shop.folder])?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let mut command = Command::new(shop.file("bin/python"));
    shop.run_in(&shop.source, command.args(pip).args(["-r", "requirements.txt"]))
}

fn make_gocql(shop: &Workshop) -> Result<()> {
    shop.run("go", &[&"build", &"-o", &shop.file("driver"), &"."])
}

fn make_objects(shop: &Workshop) -> Result<()> {
    let quick = "-gcflags=all=-N -l"; // to build: what it reads is little
    shop.run("go", &[&"build", &quick, &"-o", &shop.file("objects"), &"."])
}

fn make_java(shop: &Workshop) -> Result<()> {
    let lib = shop.file("lib");
    shop.jars(&lib)?;
    let class_path = format!("{}/*", lib.display());
    shop.run("javac", &[&"-d", &shop.file("classes"), &"-cp", &class_path, &"Driver.java"])
}

fn make_node(shop: &Workshop) -> Result<()> {
    shop.copy(&["package.json", "package-lock.json"])?;
    let options = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
    shop.run_in(&shop.folder, Command::new("npm").args(options))
}

fn make_scylla(shop: &Workshop) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = shop.file("target");
    shop.run(cargo, &[&"build", &"--locked", &"--target-dir", &target])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_parts_are_made_of_is_in_the_checkout() {
        for part in &PARTS {
            assert!(fingerprint(part).is_some(), "{}", part.source);
        }
    }

    #[test]
    fn every_part_has_a_row() {
        let (rows, _) = rows();
        assert_eq!(rows.lines().count(), PARTS.len());
        assert!(rows.starts_with("cassandra/lib "), "{rows}");
    }
}
