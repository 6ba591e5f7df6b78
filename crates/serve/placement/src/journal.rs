//! The last moves, from the audit log: what was done outlives the process that did it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use serde::Deserialize;

use super::state::MoveState;

/// Not read further back than this.
const BYTES_MAX: u64 = 1 << 20;
/// Moves of one database that are kept.
const MOVES_MAX: usize = 5;
/// What begins one.
const BEGINS: &str = "begins";
/// What ends a plan.
const ENDS: [&str; 3] = ["reached", "stopped", "refused"];

#[derive(Deserialize)]
struct Line {
    at: String,
    cluster: String,
    event: String,
    #[serde(default)]
    why: String,
    #[serde(default)]
    result: String,
}

/// The last moves of every database, the newest first; none where the log cannot be read. Lines
/// that are no lines of ours are passed over: the last one may have been cut off by a crash.
pub(super) fn moves(path: &Path) -> BTreeMap<String, Vec<MoveState>> {
    let text = tail(path).unwrap_or_default();
    let mut moves: BTreeMap<String, VecDeque<MoveState>> = BTreeMap::new();
    let mut begun: BTreeMap<String, MoveState> = BTreeMap::new();
    for line in text.lines() {
        let Ok(Line { at, cluster, event, why, result }) = serde_json::from_str(line) else {
            continue;
        };
        if event == BEGINS {
            let result = "the process ended while it was under way".to_owned();
            let event = "interrupted".to_owned();
            begun.insert(cluster, MoveState { at, event, why, result });
        } else if ENDS.contains(&event.as_str()) {
            begun.remove(&cluster);
            let of = moves.entry(cluster).or_default();
            of.push_front(MoveState { at, event, why, result });
            of.truncate(MOVES_MAX);
        }
    }
    for (cluster, cut_off) in begun {
        let of = moves.entry(cluster).or_default();
        of.push_front(cut_off);
        of.truncate(MOVES_MAX);
    }
    moves.into_iter().map(|(name, moves)| (name, moves.into())).collect()
}

fn tail(path: &Path) -> std::io::Result<String> {
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

    #[test]
    fn a_move_that_was_cut_off_is_the_last_one() {
        let path = std::env::temp_dir().join(format!("evenkeel-journal-{}", std::process::id()));
        let line = |at: &str, event: &str| {
            format!("{{\"at\":\"{at}\",\"cluster\":\"orders\",\"event\":\"{event}\"}}\n")
        };
        let text = [line("1", "begins"), line("2", "reached"), line("3", "begins")].concat();
        std::fs::write(&path, text + "{\"at\":\"4\",\"clu").unwrap();
        let reported = moves(&path);
        std::fs::remove_file(&path).unwrap();
        let reported: Vec<_> =
            reported["orders"].iter().map(|one| (one.at.as_str(), one.event.as_str())).collect();
        assert_eq!(reported, [("3", "interrupted"), ("2", "reached")]);
    }
}
