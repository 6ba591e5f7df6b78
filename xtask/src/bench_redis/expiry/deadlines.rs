//! What differs between duplicates whose clocks differ, when keys were used at their deadlines.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use super::duplicates::{DUPLICATES, Lane, Master, front, server};
use crate::bench::process::{Server, Workbench};
use crate::bench_redis::load::command;

const CLOCK: &str = include_str!("../../../../crates/tools/testkit/src/clock.c");
/// By how many ms the clocks are ahead.
const CLOCKS_MS: [i64; DUPLICATES] = [0, 25, -25];
const KEYS: u64 = 400;
/// One key begins after the other.
const EVERY_MS: u64 = 4;
const TTL_MS: u64 = 200;
/// Used so long before or behind the deadline, at most.
const AROUND_MS: u64 = 40;

/// Who writes to the duplicates.
enum Writer {
    /// All get the same: nobody sees to deadlines.
    Alone(Vec<Lane>),
    Front(Lane),
    /// What nobody removes by itself gets a `DEL` from here.
    Import(Vec<Lane>),
    Master(Master),
}

impl Writer {
    fn write(&mut self, words: &[&str]) -> Result<()> {
        match self {
            Self::Alone(lanes) | Self::Import(lanes) => {
                lanes.iter_mut().try_for_each(|lane| lane.ask(words).map(drop))
            }
            Self::Front(lane) => lane.ask(words).map(drop),
            Self::Master(master) => master.applied(command(words).as_bytes()),
        }
    }

    fn removes(&self) -> bool {
        matches!(self, Self::Import(_) | Self::Master(_))
    }
}

/// The table.
pub(super) fn differing(binary: &Path, redis: &Path, valkey: Option<&Path>) -> Result<String> {
    let mut text = format!(
        "Keys of {KEYS} that differ, used within {AROUND_MS} ms of their deadlines, clocks \
         {CLOCKS_MS:?} ms ahead\n"
    );
    for (name, program) in [
        ("1 streams, before they are mended", Some(redis)),
        ("shipped", Some(redis)),
        ("2 import mode (Valkey)", valkey),
        ("3 as replicas", Some(redis)),
    ] {
        let found = match program {
            Some(program) => {
                let found = one(name, binary, program).with_context(|| name.to_owned())?;
                found.to_string()
            }
            None => "not run: no --valkey".to_owned(),
        };
        let _ = writeln!(text, "{name:<35} {found:>5}");
    }
    Ok(text)
}

/// How many keys differ in the end.
fn one(name: &str, binary: &Path, program: &Path) -> Result<usize> {
    let bench = Workbench::create("expiry-clocks", DUPLICATES + 1)?;
    let (ports, own) = bench.ports().split_at(DUPLICATES);
    let library = library(bench.folder())?;
    let further: &[&str] = if name.starts_with('2') { &["--import-mode", "yes"] } else { &[] };
    let start =
        |(port, ms): (&u16, &i64)| server(&bench, *port, program, further, Some((&library, *ms)));
    let stores = ports.iter().zip(&CLOCKS_MS).map(start).collect::<Result<Vec<Server>>>()?;
    let mut lanes = super::connected(&stores)?;
    let mut fronts = None;
    let mut writer = match name.as_bytes()[0] {
        b'1' => Writer::Alone(super::connected(&stores)?),
        b'2' => {
            for lane in &mut lanes {
                lane.ask(&["CLIENT", "IMPORT-SOURCE", "ON"])?;
            }
            Writer::Import(std::mem::replace(&mut lanes, super::connected(&stores)?))
        }
        b'3' => Writer::Master(Master::of(&stores)?),
        _ => {
            let front = fronts.insert(front(&bench, binary, own[0], &stores)?);
            Writer::Front(Lane::to(front.port())?)
        }
    };
    use_at_deadlines(&mut writer)?;
    // All deadlines are over by all clocks.
    sleep(Duration::from_millis(500));
    let mut count = 0;
    for key in 0..KEYS {
        let name = format!("due:{key}");
        let held = lanes.iter_mut().map(|lane| lane.ask(&["GET", &name]));
        let held = held.collect::<Result<Vec<_>>>()?;
        count += usize::from(held.iter().any(|it| *it != held[0]));
    }
    Ok(count)
}

/// Sets keys and counts each once more near its deadline: where it is gone a new one begins.
fn use_at_deadlines(writer: &mut Writer) -> Result<()> {
    let begun = unix_ms()? + 100;
    let mut events: Vec<(u64, u8, u64)> = Vec::new();
    for key in 0..KEYS {
        let set = begun + key * EVERY_MS;
        // Evenly, in an order without a pattern.
        let used = set + TTL_MS - AROUND_MS + key * 37 % (2 * AROUND_MS + 1);
        events.extend([(set, 0, key), (used, 1, key)]);
        if writer.removes() {
            events.push((set + TTL_MS, 2, key));
        }
    }
    events.sort_unstable();
    for (at, kind, key) in events {
        sleep(Duration::from_millis(at.saturating_sub(unix_ms()?)));
        let name = format!("due:{key}");
        let deadline = (begun + key * EVERY_MS + TTL_MS).to_string();
        match kind {
            0 => writer.write(&["SET", &name, "1", "PXAT", &deadline])?,
            1 => writer.write(&["INCR", &name])?,
            // A later use has made a key of its own, if it came first: within one ms.
            _ => writer.write(&["DEL", &name])?,
        }
    }
    Ok(())
}

fn unix_ms() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis().try_into()?)
}

/// A clock for servers.
fn library(folder: &Path) -> Result<PathBuf> {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    std::fs::write(&source, CLOCK)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    let status = compiler.status().context("cc is missing (Debian package gcc)")?;
    ensure!(status.success(), "cc refuses {}", source.display());
    Ok(library)
}
