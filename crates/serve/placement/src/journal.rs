//! The last moves, from the audit log: what was done outlives the process that did it, and what was
//! begun is finished by the next one.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde::Deserialize;

use super::act::audit::named;
use super::state::{LayoutState, MoveState};

/// Not read further back than this.
const BYTES_MAX: u64 = 4 << 20;
/// Moves of one database that are kept.
const MOVES_MAX: usize = 5;

#[derive(Deserialize)]
struct Line {
    at: String,
    cluster: String,
    event: String,
    from: Option<LayoutState>,
    goal: Option<LayoutState>,
    #[serde(default)]
    why: String,
    #[serde(default)]
    result: String,
}

/// What the log has of one database.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The last moves, the newest first.
    pub(super) moves: VecDeque<MoveState>,
    /// The last one, when it neither reached its goal nor went back.
    pub(super) unfinished: Option<Unfinished>,
    /// Since when one is under way, as long as no line says how it ended.
    since: Option<String>,
}

/// A move that was cut off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unfinished {
    /// Where it began.
    pub(super) from: LayoutState,
    /// Where it was to end.
    pub(super) goal: LayoutState,
    /// The reason that was given for it.
    pub(super) why: String,
}

impl Past {
    fn read(&mut self, line: Line) {
        let Line { at, event, from, goal, why, result, .. } = line;
        // Also of what could not be finished yet: its beginning may be too far back to be read.
        if let (Some(from), Some(goal)) = (from, goal) {
            self.unfinished = Some(Unfinished { from, goal, why: why.clone() });
        }
        match event.as_str() {
            "starts" => self.since = Some(at),
            "reached" | "stopped" | "unfinished" | "refused" => {
                if event != "refused" {
                    self.since = None;
                }
                if ["reached", "stopped"].contains(&event.as_str()) {
                    self.unfinished = None;
                }
                self.push(MoveState { at, event, why, result });
            }
            _ => {}
        }
    }

    fn push(&mut self, done: MoveState) {
        self.moves.push_front(done);
        self.moves.truncate(MOVES_MAX);
    }
}

/// What the log has of every database. Lines that are no lines of ours are passed over: the last
/// one may have been cut off by a crash.
///
/// # Errors
/// When it cannot be read, with its path.
pub(super) fn read(path: &Path) -> io::Result<BTreeMap<String, Past>> {
    let text = tail(path).map_err(|error| named(path, &error))?;
    let mut all: BTreeMap<String, Past> = BTreeMap::new();
    for line in text.lines() {
        if let Ok(line) = serde_json::from_str::<Line>(line) {
            all.entry(line.cluster.clone()).or_default().read(line);
        }
    }
    for past in all.values_mut() {
        if let (Some(at), Some(cut)) = (past.since.take(), &past.unfinished) {
            let result = "the process ended while it was under way".to_owned();
            let (event, why) = ("interrupted".to_owned(), cut.why.clone());
            past.push(MoveState { at, event, why, result });
        }
    }
    Ok(all)
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(leader: &str) -> LayoutState {
        let voters = vec!["a".to_owned(), "b".to_owned()];
        LayoutState { leader: leader.to_owned(), replicas: voters.clone(), voters }
    }

    /// What is read of these events, at times from 1 on, and of a line that was cut off.
    fn past(name: &str, events: &[&str]) -> Past {
        let pid = std::process::id();
        let path = std::env::temp_dir().join(format!("evenkeel-journal-{name}-{pid}"));
        let line = |(at, event): (usize, &&str)| {
            let mut line = serde_json::json!({"at": at.to_string(), "cluster": "orders"});
            line["event"] = serde_json::json!(event.split(',').next());
            if ["starts", "unfinished, with its ends"].contains(event) {
                line["from"] = serde_json::to_value(layout("a")).unwrap();
                line["goal"] = serde_json::to_value(layout("b")).unwrap();
            }
            format!("{line}\n")
        };
        let text: String = (1..).zip(events).map(line).collect();
        std::fs::write(&path, text + "{\"at\":\"9\",\"clu").unwrap();
        let past = read(&path).unwrap().remove("orders").unwrap();
        std::fs::remove_file(&path).unwrap();
        past
    }

    fn told(past: &Past) -> Vec<(&str, &str)> {
        past.moves.iter().map(|one| (one.at.as_str(), one.event.as_str())).collect()
    }

    #[test]
    fn a_move_that_was_cut_off_is_the_last_one_and_unfinished() {
        let cut = past("cut", &["starts", "begins", "reached", "starts", "begins"]);
        assert_eq!(told(&cut), [("4", "interrupted"), ("3", "reached")]);
        let (from, goal) = (layout("a"), layout("b"));
        assert_eq!(cut.unfinished, Some(Unfinished { from, goal, why: String::new() }));
        // Whoever could not finish it yet leaves it unfinished.
        for events in [&["starts", "unfinished"][..], &["starts", "unfinished", "refused"]] {
            let left = past("left", events);
            assert_eq!(told(&left).last(), Some(&("2", "unfinished")));
            assert!(left.unfinished.is_some());
        }
        // Its beginning is too far back to be read.
        let left = past("old", &["refused", "unfinished, with its ends"]);
        assert_eq!((told(&left)[0], left.unfinished.is_some()), (("2", "unfinished"), true));
        for end in ["reached", "stopped"] {
            let ended = past("ended", &["starts", "begins", "unfinished", "refused", "done", end]);
            assert_eq!((told(&ended)[0], &ended.unfinished), (("6", end), &None));
        }
    }
}
