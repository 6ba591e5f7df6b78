//! Any bytes as the last segment of a log of duplicated writes, and logs that are cut and damaged.
//!
//! Promise: an error or records, never a panic; writes ascend; what was whole is still there, or an
//! error names the damage; what was recovered reads the same when it is opened again.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_wal::{Log, LogError, LogPlace, LogSettings, RecordKind, Sync};
use libfuzzer_sys::fuzz_target;

type Written = (u64, u16, RecordKind, Vec<u8>);

fn open(directory: &Path) -> Result<Log, LogError> {
    let (place, sync) = (LogPlace::Disk, Sync::Never);
    let settings = LogSettings { place, segment_bytes: 1 << 10, bytes_max: 1 << 30, sync };
    Ok(Log::open(directory, settings)?.0)
}

fn records(log: &Log) -> Vec<Written> {
    let mut reader = log.read_everything(None).expect("the oldest segment is there");
    let mut records: Vec<Written> = Vec::new();
    while let Some(record) = reader.next().expect("it was checked as it was opened") {
        records.push((record.sequence, record.shard, record.kind, record.command.to_vec()));
    }
    assert!(reader.is_at_end(), "nothing is passed over");
    let writes = records.iter().filter(|record| record.2 != RecordKind::State);
    assert!(writes.map(|record| record.0).is_sorted_by(|before, after| before < after));
    records
}

/// Makes a log of what the bytes say.
fn write(directory: &Path, mut plan: &[u8]) -> Vec<Written> {
    let mut log = open(directory).expect("an empty directory");
    let mut written: Vec<Written> = Vec::new();
    while let Some((&[what, length], rest)) = plan.split_first_chunk() {
        let (command, behind) = rest.split_at(rest.len().min(usize::from(length)));
        plan = behind;
        let (last, shard) = (log.last_sequence(), u16::from(what >> 3));
        let (sequence, kind) = match what % 8 {
            0..=2 => (last + 1, RecordKind::Idempotent),
            3 => (last + 1 + u64::from(what), RecordKind::Once),
            4 => (last / 2, RecordKind::State),
            5 => {
                log.begin_epoch(log.epoch() + 1).expect("it is sound");
                continue;
            }
            6 => {
                log.state_begins(last).expect("it is sound");
                continue;
            }
            _ => {
                log.commit().expect("it is sound");
                continue;
            }
        };
        log.append(sequence, (shard, shard), kind, command).expect("it is sound");
        written.push((sequence, shard, kind, command.to_vec()));
    }
    log.commit().expect("it is sound");
    assert_eq!(records(&log), written, "what is committed is read");
    written
}

/// The last segment.
fn last(directory: &Path) -> PathBuf {
    let entries = fs::read_dir(directory).expect("it is there").filter_map(Result::ok);
    let paths = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some());
    paths.max().expect("a log has a segment")
}

fuzz_target!(|data: &[u8]| {
    let Some((&[mode, low, high], rest)) = data.split_first_chunk() else { return };
    let directory = std::env::temp_dir().join(format!("evenkeel-fuzz-log-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory for a log");
    let mut written = None;
    if mode % 4 == 0 {
        fs::write(directory.join(format!("{:020}.log", 0)), rest).expect("a segment");
    } else {
        written = Some(write(&directory, rest));
        let path = last(&directory);
        let mut bytes = fs::read(&path).expect("it was written");
        let at = usize::from(u16::from_le_bytes([low, high])) % bytes.len();
        match mode % 4 {
            1 => bytes.truncate(at),
            2 => bytes[at] ^= 1 << (mode >> 5),
            _ => bytes.extend_from_slice(&rest[..rest.len().min(at)]),
        }
        fs::write(&path, bytes).expect("it can be written");
    }
    match open(&directory) {
        Ok(log) => {
            let found = records(&log);
            if let Some(written) = written {
                assert!(written.starts_with(&found), "a prefix of what was written");
            }
            drop(log);
            let again = open(&directory).expect("it was cut and can be opened");
            assert_eq!(records(&again), found);
        }
        Err(error) => {
            assert!(mode % 4 != 1, "a cut is no damage: {error}");
            assert!(!error.to_string().is_empty());
        }
    }
});
