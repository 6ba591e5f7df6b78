//! `cargo xtask redis-clients`: libraries of Redis in other languages, at two fronts with real
//! duplicates and etcd: as plain clients, by Sentinel's protocol, and by Redis Cluster's. What they
//! must be able to do, and whether they go on when the front that leads is killed, and when one is
//! told to end; the last also at three fronts that lead groups of partitions, which they hand over.
//!
//! The scenarios are programs beside the test that runs them
//! (`crates/tools/cli/tests/duplicates/clients`); here are the libraries, by their versions. It is
//! run by hand: it needs the network. What cannot be had is left out, and said.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::drivers::run as run_in;
use crate::workspace;

const REDIS_PY: &str = "redis==8.1.0";
const OF_NODE: [&str; 2] = ["ioredis@6.0.0", "redis@6.3.1"];
const GO_REDIS: &str = "github.com/redis/go-redis/v9@v9.23.0";
const JARS: [(&str, &str, &str); 2] =
    [("redis.clients", "jedis", "8.0.2"), ("io.lettuce", "lettuce-core", "7.7.0.RELEASE")];
/// What the names of the tests have in common.
const TESTS: &str = "libraries";

/// Gets the libraries and runs the scenarios of those that could be had.
///
/// # Errors
/// When none could be had, or a scenario fails.
pub(crate) fn run() -> Result<()> {
    let folder = workspace::target().join("xtask").join("redis-clients");
    fs::create_dir_all(&folder)?;
    let mut had = 0;
    for (what, get) in [
        ("redis-py", python as fn(&Path) -> Result<()>),
        ("ioredis, node-redis", node),
        ("go-redis", go),
        ("Jedis, lettuce", java),
    ] {
        match get(&folder) {
            Ok(()) => had += 1,
            Err(error) => println!("{what}: SKIPPED: {error:#}"),
        }
    }
    if had == 0 {
        bail!("no library could be had");
    }
    let test = ["test", "-p", "evenkeel", "--test", "duplicates", "--"];
    let mut command = workspace::cargo();
    command.args(test).args(["--ignored", "--nocapture", "--test-threads=1", TESTS]);
    command.env("EVENKEEL_REDIS_CLIENTS", &folder);
    run_in(&mut command, &workspace::root())
}

fn scenario(name: &str) -> PathBuf {
    workspace::root().join("crates/tools/cli/tests/duplicates/clients").join(name)
}

/// A new folder of this name; what an earlier run left behind is removed.
fn fresh(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    if path.exists() {
        fs::remove_dir_all(&path).with_context(|| format!("cannot remove {path:?}"))?;
    }
    fs::create_dir_all(&path).with_context(|| format!("cannot create {path:?}"))?;
    Ok(path)
}

fn python(folder: &Path) -> Result<()> {
    let path = fresh(folder, "python")?;
    run_in(Command::new("python3").args(["-m", "venv"]).arg(&path), folder)?;
    let mut install = Command::new(path.join("bin/pip"));
    run_in(install.args(["install", "-q", "--disable-pip-version-check", REDIS_PY]), folder)
}

fn node(folder: &Path) -> Result<()> {
    let path = fresh(folder, "node")?;
    fs::write(path.join("package.json"), "{\"private\": true}")?;
    run_in(Command::new("npm").args(["install", "--silent"]).args(OF_NODE), &path)
}

fn go(folder: &Path) -> Result<()> {
    let path = fresh(folder, "go")?;
    for name in ["cluster", "plain"] {
        fs::create_dir_all(path.join(name))?;
        fs::copy(scenario(&format!("{name}.go")), path.join(name).join("main.go"))?;
    }
    run_in(Command::new("go").args(["mod", "init", "clients"]), &path)?;
    run_in(Command::new("go").args(["get", GO_REDIS]), &path)?;
    fs::create_dir_all(path.join("bin"))?;
    run_in(Command::new("go").args(["build", "-o", "bin/", "./..."]), &path)
}

fn java(folder: &Path) -> Result<()> {
    let path = fresh(folder, "java")?;
    let of = |(group, artifact, version): &(&str, &str, &str)| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        )
    };
    let project = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>evenkeel</groupId><artifactId>clients</artifactId><version>1</version>\
         <dependencies>{}</dependencies></project>",
        JARS.iter().map(of).collect::<String>()
    );
    fs::write(path.join("pom.xml"), project)?;
    let jars = "-DoutputDirectory=jars";
    run_in(Command::new("mvn").args(["-q", "dependency:copy-dependencies", jars]), &path)?;
    let mut compile = Command::new("javac");
    compile.args(["-nowarn", "-cp", "jars/*", "-d", "classes"]);
    let sources = ["Cluster.java", "Plain.java", "PlainJedis.java", "PlainLettuce.java"];
    run_in(compile.args(sources.map(scenario)), &path)
}
