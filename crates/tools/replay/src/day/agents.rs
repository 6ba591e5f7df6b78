//! Days of agents, found in folders and joined with the day of a proxy.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use evenkeel_records::manifest::{self, BY_AGENT};
use evenkeel_records::{Manifest, Recorded, RecordsError, read, read_manifest};
use evenkeel_twin::join::Join;

use super::ReadyError;

/// How each line of an agent's `like` begins.
const DIMMER: &str = "dimmer.";
/// `DIRECTORY/agent.1/20261128T210507Z`: a folder is looked into so deep.
const DEPTH_MAX: usize = 2;

/// A day with what the agents saw whose days are in these folders, and how many days that were.
///
/// # Errors
/// When a folder has nothing of it, or all have too little.
pub(super) fn joined(
    recorded: Recorded,
    folders: &[PathBuf],
) -> Result<(Recorded, usize), ReadyError> {
    if folders.is_empty() {
        return Ok((recorded, 0));
    }
    let Recorded { mut manifest, day, mut unfinished } = recorded;
    let (mut join, mut days) = (Join::new(day), 0);
    let mut dimmers = BTreeSet::new();
    for folder in folders {
        let mut found = Vec::new();
        find(folder, DEPTH_MAX, &mut found)?;
        let count = found.len();
        let mut its = 0;
        for path in found {
            let agent = read(&path)?;
            if join.add(&agent.day.rows).is_some() {
                (its, unfinished) = (its + 1, unfinished + agent.unfinished);
                dimmers.insert(agent.manifest.like);
            }
        }
        if its == 0 {
            let came = format!("{count} days of agents, none with a request of this day");
            let hint = "did they record at the same time as the proxy, and is this its day?";
            return Err(ReadyError::Agents(folder.display().to_string(), came, hint));
        }
        days += its;
    }
    // A scenario has one dimmer for all replicas.
    if let (1, Some(dimmer)) = (dimmers.len(), dimmers.first()) {
        dim(&mut manifest, dimmer)?;
    }
    Ok((Recorded { manifest, day: join.finish()?, unfinished }, days))
}

/// Sets what agents say of their dimmer beside what the proxy says. With it a scenario needs
/// replicas and their work, in place of which rebuilt worlds have their own.
fn dim(manifest: &mut Manifest, dimmer: &str) -> Result<(), ReadyError> {
    if dimmer.is_empty() {
        return Ok(());
    }
    for line in dimmer.lines() {
        if !line.starts_with(DIMMER) {
            return Err(ReadyError::Dimmer(line.to_owned(), DIMMER));
        }
        manifest.set.push(line.to_owned());
    }
    let replicas = vec!["1"; manifest.replicas.len()].join(",");
    let more = [&*format!("replicas=[{replicas}]"), "work.optional=1ms", "work.mandatory=1ms"];
    manifest.set.extend(more.map(str::to_owned));
    Ok(())
}

/// The days of agents in a folder, or below it.
fn find(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), RecordsError> {
    let failed = |source: io::Error| {
        let doing = "looking for days of agents: is it a folder of [record]?";
        RecordsError::Io { file: folder.to_owned(), doing, source }
    };
    if folder.join(manifest::NAME).exists() {
        if read_manifest(folder)?.by == BY_AGENT {
            found.push(folder.to_owned());
        }
        return Ok(());
    }
    let mut below = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if depth > 0 && path.is_dir() {
            below.push(path);
        }
    }
    below.sort();
    below.iter().try_for_each(|path| find(path, depth - 1, found))
}
