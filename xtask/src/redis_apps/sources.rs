//! The applications, of these versions, from PyPI, npm and Maven Central, below `target`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::load::App;
use crate::drivers::run;
use crate::{needs, workspace};

const PYTHON: [&str; 6] = [
    "celery==5.7.0",
    "django-redis==7.0.0",
    "django==5.2.19",
    "packaging==26.4", // kombu imports it and does not name it
    "redis==8.1.0",
    "rq==3.0.0",
];
const NODE: [&str; 2] = ["bullmq@6.7.0", "ioredis@6.0.0"];
/// Group, artifact and version.
const JAVA: [[&str; 3]; 2] =
    [["org.redisson", "redisson", "4.7.0"], ["org.slf4j", "slf4j-simple", "2.0.17"]];

/// The programs that use the applications.
const LOADS: [&str; 6] = [
    "trace_jobs.py",
    "rq_load.py",
    "celery_load.py",
    "django_load.py",
    "bullmq_load.mjs",
    "Locks.java",
];

/// Gets what these applications need, unless it is there, and our programs.
pub(super) fn install(folder: &Path, apps: &[App]) -> Result<()> {
    fs::create_dir_all(folder)?;
    for app in apps {
        match app {
            App::Rq | App::Celery | App::Django => {
                once(folder, "python", &PYTHON.join(" "), || python(folder))?;
            }
            App::Bullmq => once(folder, "node", &NODE.join(" "), || node(folder))?,
            App::Redisson => once(folder, "java", &JAVA.concat().join(" "), || java(folder))?,
        }
    }
    let from = workspace::root().join("xtask/src/redis_apps/apps");
    for load in LOADS {
        fs::copy(from.join(load), folder.join(load)).with_context(|| format!("no {load}"))?;
    }
    Ok(())
}

/// Does it unless it was done for the same versions.
fn once(folder: &Path, what: &str, versions: &str, get: impl FnOnce() -> Result<()>) -> Result<()> {
    let mark = folder.join(format!("{what}.versions"));
    if fs::read_to_string(&mark).is_ok_and(|done| done == versions) {
        return Ok(());
    }
    println!("getting {versions}");
    get()?;
    Ok(fs::write(mark, versions)?)
}

fn python(folder: &Path) -> Result<()> {
    run(Command::new(needs::require("python3")?).args(["-m", "venv", "python"]), folder)?;
    let mut install = Command::new(folder.join("python/bin/pip"));
    install.args(["install", "-q", "--disable-pip-version-check"]).args(PYTHON);
    run(&mut install, folder)
}

fn node(folder: &Path) -> Result<()> {
    let mut install = Command::new(needs::require("npm")?);
    install.args(["install", "--silent", "--no-save", "--no-audit", "--prefix", "."]).args(NODE);
    run(&mut install, folder)
}

fn java(folder: &Path) -> Result<()> {
    let dependencies = JAVA.map(|[group, artifact, version]| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        )
    });
    let project = format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\
         <groupId>evenkeel</groupId><artifactId>redis-apps</artifactId><version>1</version>\
         <dependencies>{}</dependencies></project>",
        dependencies.concat()
    );
    fs::write(folder.join("pom.xml"), project)?;
    let mut copy = Command::new(needs::require("mvn")?);
    copy.args(["-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]);
    run(&mut copy, folder)
}
