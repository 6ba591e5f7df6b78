//! What a log keeps, over crashes, damage and pauses of its readers.

use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::proptest;

use super::segment::{decode, encode};
use super::*;

/// A directory that goes with the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("evenkeel-log-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A log that was closed a moment ago may still seem locked: a process that another test just
    /// started has its file open until it becomes another program.
    fn open(&self) -> (Log, Recovered) {
        for _ in 0..200 {
            match self.try_open() {
                Err(LogError::Locked { .. }) => thread::sleep(Duration::from_millis(5)),
                opened => return opened.unwrap(),
            }
        }
        self.try_open().unwrap()
    }

    fn try_open(&self) -> Result<(Log, Recovered), LogError> {
        Log::open(&self.0, small())
    }

    /// Files and their bytes, the oldest first.
    fn segments(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some()).collect();
        paths.sort();
        paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Segments of 1 KiB, so that a few records make several.
fn small() -> LogSettings {
    let sync = Sync::Never;
    LogSettings { segment_bytes: 1 << 10, bytes_max: 1 << 20, sync, ..LogSettings::default() }
}

type Owned = (u64, u16, RecordKind, Vec<u8>);

fn all(mut reader: Reader) -> Vec<Owned> {
    let mut records = Vec::new();
    while !reader.is_at_end() {
        while let Some(Record { sequence, shard, kind, command, .. }) = reader.next().unwrap() {
            records.push((sequence, shard, kind, command.to_vec()));
        }
    }
    records
}

fn write_some(log: &mut Log, sequences: impl Iterator<Item = u64>, length: usize) {
    for sequence in sequences {
        let command = vec![sequence as u8; length];
        log.append(
            sequence,
            (sequence as u16 % 3, sequence as u16 % 3),
            RecordKind::Idempotent,
            &command,
        )
        .unwrap();
        log.commit().unwrap();
    }
}

/// In these tests a shard is in the partition of its number.
fn part(partition: u16) -> Part {
    Part { partition, shards: (0..4).map(|shard| shard == partition).collect() }
}

fn sequences(reader: Reader) -> Vec<u64> {
    all(reader).into_iter().map(|record| record.0).collect()
}

/// What may be done with a log.
#[derive(Clone, Debug)]
enum Step {
    Write(u8, u16, bool, Vec<u8>),
    State(u8, u16, Vec<u8>),
    Commit,
    Epoch,
    WholeState,
    Truncate(u8),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let command = || vec(any::<u8>(), 0..200);
    let step = prop_oneof![
        8 => (1..4_u8, 0..4_u16, any::<bool>(), command())
            .prop_map(|(ahead, shard, once, command)| Step::Write(ahead, shard, once, command)),
        2 => (any::<u8>(), 0..4_u16, command())
            .prop_map(|(back, shard, command)| Step::State(back, shard, command)),
        4 => proptest::strategy::Just(Step::Commit),
        1 => proptest::strategy::Just(Step::Epoch),
        1 => proptest::strategy::Just(Step::WholeState),
        1 => any::<u8>().prop_map(Step::Truncate),
        1 => proptest::strategy::Just(Step::Reopen),
    ];
    vec(step, 0..80)
}

/// What a log should hold, as plainly as possible.
#[derive(Default)]
struct Model {
    records: Vec<Owned>,
    epochs: Vec<(u64, u64)>,
    last: u64,
    state: Option<u64>,
}

impl Model {
    fn writes_after(&self, sequence: u64, partition: Option<u16>) -> Vec<Owned> {
        let wanted = self.records.iter().filter(|&&(of, shard, kind, _)| {
            let is_wanted = partition.is_none_or(|partition| shard == partition);
            kind != RecordKind::State && of > sequence && is_wanted
        });
        wanted.cloned().collect()
    }
}

fn take(log: &mut Log, model: &mut Model, step: &Step) {
    match step {
        Step::Write(ahead, shard, once, command) => {
            model.last += u64::from(*ahead);
            let kind = if *once { RecordKind::Once } else { RecordKind::Idempotent };
            log.append(model.last, (*shard, *shard), kind, command).unwrap();
            model.records.push((model.last, *shard, kind, command.clone()));
        }
        Step::State(back, shard, command) => {
            let at = model.last.saturating_sub(u64::from(*back));
            log.append(at, (*shard, *shard), RecordKind::State, command).unwrap();
            model.records.push((at, *shard, RecordKind::State, command.clone()));
        }
        Step::Commit => log.commit().unwrap(),
        Step::Epoch => {
            let epoch = log.epoch() + 2;
            log.begin_epoch(epoch).unwrap();
            model.epochs.push((epoch, model.last + 1));
        }
        Step::WholeState => {
            log.state_begins(model.last).unwrap();
            log.state_ends(model.last).unwrap();
            model.state = Some(model.last);
        }
        Step::Truncate(back) => {
            log.truncate_before((model.last + 1).saturating_sub(u64::from(*back)));
        }
        Step::Reopen => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_is_committed_is_read(steps in steps(), partition in 0..4_u16) {
        let place = Place::new();
        let (mut log, _) = place.open();
        let mut model = Model::default();
        for step in steps.iter().chain([&Step::Reopen]) {
            take(&mut log, &mut model, step);
            if !matches!(step, Step::Reopen) {
                continue;
            }
            log.commit().unwrap();
            drop(log);
            let recovered;
            (log, recovered) = place.open();
            prop_assert_eq!(recovered.torn_bytes, 0);
            prop_assert_eq!(recovered.last_sequence, model.last);
            prop_assert!(model.epochs.ends_with(&recovered.epochs));
            prop_assert_eq!(log.epoch(), model.epochs.last().map_or(0, |last| last.0));
            // Whatever is truncated, what it was truncated for stays.
            prop_assert_eq!((recovered.state, log.state()), (model.state, model.state));
            let first = log.first_sequence();
            prop_assert_eq!(recovered.first_sequence, first);
            for after in [first - 1, (first + model.last) / 2, model.last] {
                let reader = log.read_after(after, None).unwrap();
                prop_assert_eq!(all(reader), model.writes_after(after, None));
                let reader = log.read_after(after, Some(&part(partition))).unwrap();
                prop_assert_eq!(all(reader), model.writes_after(after, Some(partition)));
            }
            // States too, from where the log begins.
            let everything = all(log.read_everything(None).unwrap());
            prop_assert!(model.records.ends_with(&everything));
            if first > 1 {
                prop_assert!(log.read_after(first - 2, None).is_err());
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found(byte in any::<proptest::sample::Index>(), bit in 0..8_u8) {
        let place = Place::new();
        let (mut log, _) = place.open();
        write_some(&mut log, 1..=30, 90);
        drop(log);
        let written = place.segments();
        let sizes: Vec<_> = written.iter().map(|(_, bytes)| bytes.len()).collect();
        let mut at = byte.index(sizes.iter().sum());
        let mut which = 0;
        while at >= sizes[which] {
            at -= sizes[which];
            which += 1;
        }
        let (path, mut bytes) = written[which].clone();
        bytes[at] ^= 1_u8 << bit;
        fs::write(&path, &bytes).unwrap();
        // Records have 22 bytes and the command, heads 56: see the format.
        let last_record = sizes[sizes.len() - 1] - 112;
        if which + 1 == written.len() && at >= last_record {
            let (_, recovered) = place.open();
            prop_assert_eq!(recovered.last_sequence, 29, "the end may have been torn");
            prop_assert_eq!(recovered.torn_bytes, 112);
            return Ok(());
        }
        let starts = if at < 56 { 0 } else { (at - 56) / 112 * 112 + 56 } as u64;
        match place.try_open().map(|_| ()).unwrap_err() {
            LogError::Damaged { path: named, offset, .. } => {
                prop_assert_eq!(named, path);
                prop_assert!(offset == starts || starts == 0 && offset < 56, "{offset} {starts}");
            }
            LogError::Version { path: named, .. } => {
                prop_assert_eq!(named, path);
                prop_assert!((8..12).contains(&at));
            }
            other => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn any_bytes_are_judged(bytes in vec(any::<u8>(), 0..400), salt in any::<u32>()) {
        for version in 1..=VERSION {
            let Ok(frame) = decode(&bytes, salt, version) else { continue };
            let mut again = Vec::new();
            encode(&mut again, salt, &frame);
            prop_assert_eq!(&again, &bytes[..again.len()]);
        }
        let _ = segment::survey(&bytes);
    }
}

#[test]
fn a_cut_at_any_byte_leaves_a_prefix() {
    let place = Place::new();
    let (mut log, _) = place.open();
    write_some(&mut log, 1..=12, 90);
    drop(log);
    let written = place.segments();
    let (last, whole) = written.last().unwrap();
    let records = (whole.len() - 56) / 112;
    assert!(records >= 2 && written.len() == 2);
    for length in (0..=whole.len()).rev() {
        fs::write(last, &whole[..length]).unwrap();
        let (mut log, recovered) = place.open();
        let kept = length.saturating_sub(56) / 112;
        let last_sequence = (12 - records + kept) as u64;
        assert_eq!(recovered.last_sequence, last_sequence, "of {length} bytes");
        let torn = if length < 56 { length } else { (length - 56) % 112 };
        assert_eq!(recovered.torn_bytes, torn as u64);
        let expected: Vec<u64> = (1..=last_sequence).collect();
        assert_eq!(sequences(log.read_after(0, None).unwrap()), expected);
        // And it goes on.
        write_some(&mut log, last_sequence + 1..=last_sequence + 1, 3);
        drop(log);
        let (log, recovered) = place.open();
        assert_eq!((recovered.last_sequence, recovered.torn_bytes), (last_sequence + 1, 0));
        drop(log);
        for (path, _) in place.segments() {
            fs::remove_file(path).unwrap();
        }
        for (path, bytes) in &written {
            fs::write(path, bytes).unwrap();
        }
    }
}

#[test]
fn the_format_is_this_one() {
    // Checksums by Python's zlib.crc32 over the bytes that struct.pack makes of these numbers.
    let mut bytes = Vec::new();
    let tag = Tag::Command(RecordKind::Once);
    let old = Frame { sequence: 7, shard: 5, partition: None, tag, command: b"abc" };
    encode(&mut bytes, 0x1234_5678, &old);
    let mut expected = 0x8b2a_66b1_u32.to_le_bytes().to_vec();
    expected.extend([3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 5, 0, 2, 0xe7, b'a', b'b', b'c']);
    assert_eq!(bytes, expected);
    bytes.clear();
    encode(&mut bytes, 0x1234_5678, &Frame { partition: Some(9), ..old });
    let mut expected = 0x9571_1bbc_u32.to_le_bytes().to_vec();
    expected.extend([3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 5, 0, 9, 0, 2, 0xe7, b'a', b'b', b'c']);
    assert_eq!(bytes, expected);
    let head =
        Head { version: 2, begins: 100, base: 6, epoch: 2, epoch_since: 5, salt: 0x1234_5678 };
    let bytes = head.encode();
    assert_eq!(bytes[..12], *b"EvKeeLog\x02\0\0\0");
    assert_eq!(bytes[12..16], 0x3efa_ad7e_u32.to_le_bytes());
    assert_eq!(Head::decode(&bytes), Ok(head));
}

#[test]
fn a_log_of_version_1_is_read_and_goes_on_in_the_present_one() {
    let place = Place::new();
    let salt = 0x1234_5678;
    let head = Head { version: 1, begins: 0, base: 0, epoch: 0, epoch_since: 1, salt };
    let mut bytes = head.encode().to_vec();
    let tag = Tag::Command(RecordKind::Idempotent);
    for (sequence, shard) in [(1, 0), (2, 1), (3, 0)] {
        let frame = Frame { sequence, shard, partition: None, tag, command: b"old" };
        encode(&mut bytes, salt, &frame);
    }
    fs::write(path_of(&place.0, 0), &bytes).unwrap();
    for _ in 0..2 {
        let (mut log, recovered) = place.open();
        assert_eq!((recovered.first_sequence, recovered.layout), (1, 0));
        let next = log.last_sequence() + 1;
        // The shard has moved: its stream is another partition's.
        log.append(next, (0, 1), RecordKind::Once, b"new").unwrap();
        log.commit().unwrap();
        let after_3 = sequences(log.read_after(3, Some(&part(1))).unwrap());
        assert_eq!(after_3, (4..=next).collect::<Vec<_>>());
        assert_eq!(sequences(log.read_after(0, Some(&part(0))).unwrap()), [1, 3]);
    }
    let (mut log, _) = place.open();
    log.begin_layout(7).unwrap();
    log.commit().unwrap();
    drop(log);
    assert_eq!(place.open().1.layout, 7);
}

/// What a reader that begins at the first record is told before each write: the time, if any was.
fn told(log: &Log, partition: u16) -> (bool, Vec<(u64, Option<i64>)>) {
    let mut reader = log.read_everything(Some(&part(partition))).unwrap();
    let (tells, mut told) = (reader.tells_time(), Vec::new());
    while let Some(record) = reader.next().unwrap() {
        told.push((record.sequence, record.passed_unix_ms));
    }
    (tells, told)
}

#[test]
fn every_stream_is_told_which_deadlines_had_passed_before_its_writes() {
    let place = Place::new();
    let (mut log, _) = place.open();
    write_some(&mut log, 1..=2, 10);
    log.tell_time(1_000).unwrap();
    write_some(&mut log, 3..=4, 10);
    log.tell_time(3_000).unwrap();
    log.tell_time(2_000).unwrap(); // it never goes back
    write_some(&mut log, 5..=5, 10);
    let expected = [(2, None), (5, Some(3_000))];
    assert_eq!(told(&log, 2), (true, expected.to_vec()));
    drop(log);
    let (mut log, recovered) = place.open();
    assert_eq!(recovered.last_sequence, 5, "a time is no write");
    assert_eq!(told(&log, 1), (true, vec![(1, None), (4, Some(1_000))]));
    // What is not committed was not told.
    log.tell_time(9_000).unwrap();
    log.discard();
    write_some(&mut log, 7..=7, 10);
    assert_eq!(told(&log, 1).1.last(), Some(&(7, Some(3_000))));
}

#[test]
fn a_log_of_an_earlier_release_tells_no_time() {
    for version in 1..VERSION {
        let place = Place::new();
        let head = Head { version, begins: 0, base: 0, epoch: 0, epoch_since: 1, salt: 7 };
        fs::write(path_of(&place.0, 0), head.encode()).unwrap();
        let (mut log, _) = place.open();
        log.tell_time(1_000).unwrap();
        write_some(&mut log, 1..=1, 10);
        assert_eq!(told(&log, 1), (false, vec![(1, Some(1_000))]), "version {version}");
    }
}

#[test]
fn a_log_is_written_by_one_process() {
    let place = Place::new();
    let held = place.open();
    let refused = place.try_open().map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
    drop(held);
    place.open();
}

#[test]
fn what_is_missing_in_the_middle_is_found() {
    let place = Place::new();
    let (mut log, _) = place.open();
    write_some(&mut log, 1..=40, 90);
    drop(log);
    let segments = place.segments();
    let (path, bytes) = &segments[1];
    // Cut at the end of a record: nothing in this segment is wrong.
    fs::write(path, &bytes[..bytes.len() - 112]).unwrap();
    let error = place.try_open().map(|_| ()).unwrap_err();
    assert!(matches!(&error, LogError::Damaged { path, .. } if *path == segments[2].0), "{error}");
    // Cut within one: only the last segment may end so.
    fs::write(path, &bytes[..bytes.len() - 10]).unwrap();
    let error = place.try_open().map(|_| ()).unwrap_err();
    assert!(matches!(&error, LogError::Damaged { path: at, .. } if at == path), "{error}");
    fs::remove_file(path).unwrap();
    let error = place.try_open().map(|_| ()).unwrap_err();
    assert!(matches!(&error, LogError::Damaged { path, .. } if *path == segments[2].0), "{error}");
}

#[test]
fn a_newer_version_is_not_read() {
    let place = Place::new();
    drop(place.open());
    let (path, mut bytes) = place.segments().pop().unwrap();
    bytes[8] = 4;
    fs::write(&path, bytes).unwrap();
    let error = place.try_open().map(|_| ()).unwrap_err();
    assert!(matches!(error, LogError::Version { found: 4, .. }), "{error}");
}

#[test]
fn after_a_failed_write_nothing_is_taken() {
    let place = Place::new();
    let (mut log, _) = place.open();
    write_some(&mut log, 1..=3, 10);
    log.medium.break_file(log.current().begins);
    log.append(4, (0, 0), RecordKind::Once, b"lost").unwrap();
    assert!(matches!(log.commit(), Err(LogError::System { .. })));
    let refused = log.append(5, (0, 0), RecordKind::Once, b"").unwrap_err();
    assert!(refused.to_string().contains("cannot write"), "{refused}");
    assert!(matches!(log.commit(), Err(LogError::Refuses(_))));
    drop(log);
    assert_eq!(place.open().1.last_sequence, 3);
}

#[test]
fn a_reader_sees_what_is_committed_meanwhile() {
    let place = Place::new();
    let (mut log, _) = place.open();
    let mut reader = log.read_after(0, None).unwrap();
    assert!(reader.next().unwrap().is_none() && reader.is_at_end());
    for sequence in 1..=100 {
        log.append(sequence, (0, 0), RecordKind::Once, &[7; 300]).unwrap();
        assert!(reader.next().unwrap().is_none(), "it is not committed");
        log.commit().unwrap();
        let record = reader.next().unwrap().unwrap();
        assert_eq!((record.sequence, record.command), (sequence, &[7; 300][..]));
        assert!(reader.is_at_end());
    }
}

#[test]
fn a_reader_pauses_among_what_is_not_wanted() {
    let place = Place::new();
    let settings = LogSettings { segment_bytes: 8 << 20, bytes_max: 64 << 20, ..small() };
    let (mut log, _) = Log::open(&place.0, settings).unwrap();
    for sequence in 1..=40 {
        log.append(sequence, (0, 0), RecordKind::Once, &vec![1; 100 << 10]).unwrap();
        log.commit().unwrap();
    }
    log.append(41, (1, 1), RecordKind::Once, b"here").unwrap();
    log.commit().unwrap();
    let mut reader = log.read_after(0, Some(&part(1))).unwrap();
    let mut pauses = 0;
    let found = loop {
        match reader.next().unwrap() {
            Some(record) => break record.sequence,
            None => pauses += 1,
        }
    };
    // 40 records of 100 KiB are 4 MB, a pause comes after at least 1 MiB.
    assert!(found == 41 && (3..=4).contains(&pauses), "{pauses} pauses");
    // A place near the end is found without reading all that is before.
    let reader = log.read_after(40, None).unwrap();
    assert!(reader.bytes_left() < 3 << 19, "{}", reader.bytes_left());
    assert_eq!(sequences(reader), [41]);
}

#[test]
fn what_is_removed_is_gone_and_said_to_be() {
    let place = Place::new();
    let (mut log, _) = place.open();
    write_some(&mut log, 1..=30, 90);
    let mut behind = log.read_after(0, None).unwrap();
    log.state_begins(30).unwrap();
    log.append(30, (0, 0), RecordKind::State, b"all").unwrap();
    write_some(&mut log, 31..=32, 90);
    log.state_ends(30).unwrap();
    let before = log.bytes();
    assert!(log.truncate_before(31) > 3000 && log.bytes() < before - 3000);
    assert_eq!(log.first_sequence(), 31);
    let everything = all(log.read_everything(None).unwrap());
    let kinds: Vec<_> = everything.iter().map(|record| (record.0, record.2)).collect();
    let expected =
        [(30, RecordKind::State), (31, RecordKind::Idempotent), (32, RecordKind::Idempotent)];
    assert_eq!(kinds, expected);
    assert!(matches!(log.read_after(29, None), Err(LogError::Gone { asked: 29, first: 31 })));
    drop(log); // waits until the files are removed
    let error = loop {
        match behind.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("segments after the open one are missing"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LogError::Gone { first: 31, .. }), "{error}");
    let (_log, recovered) = place.open();
    assert_eq!((recovered.first_sequence, recovered.last_sequence), (31, 32));
    assert_eq!(recovered.state, Some(30));
}

#[test]
fn a_log_is_bounded() {
    let place = Place::new();
    let settings = LogSettings { bytes_max: 4 << 10, ..small() };
    let (mut log, _) = Log::open(&place.0, settings).unwrap();
    for sequence in 1..=200 {
        write_some(&mut log, sequence..=sequence, 90);
        assert!(log.bytes() <= 5 << 10);
    }
    assert!(log.first_sequence() > 150);
    drop(log);
    let held: usize = place.segments().iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(held <= 5 << 10, "{held}");
    assert_eq!(place.open().1.last_sequence, 200);
}

/// Begins a state after so many writes and records so many keys of 100 bytes.
fn record_state(log: &mut Log, writes: u64, keys: usize) -> Vec<Vec<u8>> {
    write_some(log, log.last_sequence() + 1..=writes, 90);
    log.state_begins(writes).unwrap();
    let keys: Vec<_> = (0..keys).map(|key| format!("{key:0100}").into_bytes()).collect();
    for key in &keys {
        log.append(writes, (0, 0), RecordKind::State, key).unwrap();
        log.commit().unwrap();
    }
    keys
}

fn states(log: &Log) -> Vec<Vec<u8>> {
    let records = all(log.read_everything(None).unwrap()).into_iter();
    records.filter(|record| record.2 == RecordKind::State).map(|record| record.3).collect()
}

#[test]
fn a_state_of_many_segments_stays_whole() {
    let place = Place::new();
    let (mut log, _) = place.open();
    // No write meanwhile: all its segments begin after the same one.
    let keys = record_state(&mut log, 30, 40);
    log.state_ends(30).unwrap();
    assert!(log.truncate_before(31) > 3000);
    assert_eq!((log.state(), log.first_sequence()), (Some(30), 31));
    assert_eq!(states(&log), keys);
    drop(log);
    let (log, recovered) = place.open();
    assert_eq!((recovered.state, log.state()), (Some(30), Some(30)));
    assert_eq!(states(&log), keys);
}

#[test]
fn a_state_whose_beginning_was_dropped_is_none() {
    for reopens in [false, true] {
        let place = Place::new();
        let settings = LogSettings { bytes_max: 8 << 10, ..small() };
        let (mut log, _) = Log::open(&place.0, settings.clone()).unwrap();
        let keys = record_state(&mut log, 10, 40);
        log.state_ends(10).unwrap();
        log.truncate_before(11);
        assert_eq!((log.state(), states(&log)), (Some(10), keys.clone()));
        if reopens {
            drop(log);
            log = Log::open(&place.0, settings.clone()).unwrap().0;
            assert_eq!(log.state(), Some(10));
        }
        // More segments with the same place in the order, until the first one goes.
        while states(&log).starts_with(&keys) {
            assert_eq!(log.state(), Some(10));
            log.append(10, (0, 0), RecordKind::State, &[b'x'; 100]).unwrap();
            log.commit().unwrap();
        }
        assert_eq!((log.state(), log.first_sequence()), (None, 11));
        drop(log);
        let (log, recovered) = Log::open(&place.0, settings).unwrap();
        assert_eq!((recovered.state, log.state()), (None, None));
    }
}

#[test]
fn a_state_longer_than_the_log_does_not_end() {
    let place = Place::new();
    let settings = LogSettings { bytes_max: 4 << 10, ..small() };
    let (mut log, _) = Log::open(&place.0, settings.clone()).unwrap();
    record_state(&mut log, 10, 60);
    assert!(matches!(log.check_begun(), Err(LogError::StateGone { bytes_max: 4096 })));
    let error = log.state_ends(10).unwrap_err();
    assert!(error.to_string().contains("log_bytes_max, 4096 bytes, is less"), "{error}");
    assert_eq!(log.state(), None);
    // The log goes on, and a shorter state is one.
    record_state(&mut log, 20, 3);
    log.state_ends(20).unwrap();
    assert_eq!(log.state(), Some(20));
    drop(log);
    assert_eq!(Log::open(&place.0, settings).unwrap().1.state, Some(20));
}

#[test]
fn a_lost_log_begins_again_later() {
    let place = Place::new();
    let (mut log, _) = place.open();
    log.begin_epoch(3).unwrap();
    log.commit().unwrap();
    // Read before it is removed, which happens at any time from then on.
    let mut as_in_a_crash = place.segments();
    log.begin_after(5000).unwrap();
    assert_eq!(log.first_sequence(), 5001);
    let begun = path_of(&place.0, log.segments[log.segments.len() - 1].begins);
    as_in_a_crash.push((begun.clone(), fs::read(begun).unwrap()));
    write_some(&mut log, 5001..=5003, 90);
    drop(log);
    let (log, recovered) = place.open();
    assert_eq!((recovered.first_sequence, recovered.last_sequence), (5001, 5003));
    assert_eq!(recovered.epochs, [(3, 1)]);
    assert!(log.read_after(4999, None).is_err());
    drop(log);
    // Before the old segment was removed.
    for (path, bytes) in as_in_a_crash {
        fs::write(path, bytes).unwrap();
    }
    let (_log, recovered) = place.open();
    assert_eq!((recovered.first_sequence, recovered.last_sequence), (5001, 5000));
}

#[test]
fn what_a_client_sent_is_not_taken_for_a_record() {
    let place = Place::new();
    let (mut log, _) = place.open();
    write_some(&mut log, 1..=2, 10);
    // A value that holds records, as they would be with another salt.
    let mut value = Vec::new();
    let tag = Tag::Command(RecordKind::Once);
    for sequence in 1..20 {
        encode(
            &mut value,
            !log.salt,
            &Frame { sequence, shard: 0, partition: Some(0), tag, command: b"" },
        );
    }
    log.append(3, (0, 0), RecordKind::Once, &value).unwrap();
    log.commit().unwrap();
    drop(log);
    let (path, bytes) = place.segments().pop().unwrap();
    fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    let (_log, recovered) = place.open();
    assert_eq!(recovered.last_sequence, 2);
}

#[test]
fn it_is_synced_by_another_thread() {
    for sync in [Sync::Always, Sync::Every(Duration::from_millis(1))] {
        let place = Place::new();
        let (mut log, _) = Log::open(&place.0, LogSettings { sync, ..small() }).unwrap();
        write_some(&mut log, 1..=50, 90);
        drop(log);
        assert_eq!(place.open().1.last_sequence, 50);
    }
}

#[test]
fn what_is_removed_goes_at_once_however_rare_a_sync_is() {
    let place = Place::new();
    let sync = Sync::Every(Duration::from_secs(3600));
    let settings = LogSettings { bytes_max: 4 << 10, sync, ..small() };
    let (mut log, _) = Log::open(&place.0, settings).unwrap();
    write_some(&mut log, 1..=200, 90);
    let until = std::time::Instant::now() + Duration::from_secs(20);
    let held = || fs::read_dir(&place.0).unwrap().count();
    // At most five segments of 1 KiB, and the lock.
    while held() > 6 {
        assert!(std::time::Instant::now() < until, "{} files are there", held());
        thread::sleep(Duration::from_millis(5));
    }
    // Nor is the end waited for.
    drop(log);
    assert!(std::time::Instant::now() < until);
    assert_eq!(place.open().1.last_sequence, 200);
}

#[test]
fn settings_that_cannot_be_kept_are_refused() {
    let place = Place::new();
    for settings in [
        LogSettings { segment_bytes: 10, ..small() },
        LogSettings { bytes_max: 1 << 10, ..small() },
        LogSettings { sync: Sync::Every(Duration::ZERO), ..small() },
    ] {
        assert!(matches!(Log::open(&place.0, settings), Err(LogError::Settings(_))));
    }
}
