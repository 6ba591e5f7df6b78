//! Days are written, read back, damaged and refused.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_core::Rng;
use evenkeel_records::{DayWriter, Limits, Manifest, RecordsError, read, read_parts};
use evenkeel_twin::rows::{Day, End, Row, Served, Why};

/// A directory that is removed at the end of its test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("evenkeel-records-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let entries =
            fs::read_dir(&self.0).expect("a directory").flatten().map(|entry| entry.path());
        let mut files: Vec<PathBuf> =
            entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
        files.sort();
        files
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const US: u64 = 1_000;

/// Requests of some milliseconds, a thousand per second; durations in whole microseconds.
fn day(requests: u64, seed: u64) -> Day {
    let mut rng = Rng::stream(seed, "a day");
    let rows = (0..requests).map(|request| {
        let service_ns = (rng.exponential() * 5_000.0) as u64 * US;
        let wait_ns = if rng.unit() < 0.2 { (rng.unit() * 900.0) as u64 * US } else { 0 };
        let served = Served { wait_ns, service_ns, queue: rng.below(5) as u32, is_full: true };
        Row {
            request,
            gap_ns: (rng.exponential() * 1_000.0) as u64 * US,
            after_ns: 0,
            latency_ns: wait_ns + service_ns + 200_000 + rng.below(50) as u64 * US,
            client: 0,
            replica: rng.below(5) as u16,
            group: 0,
            policy: 0,
            size: 12,
            why: Why::First,
            end: if rng.unit() < 0.01 { End::Failed } else { End::Answered },
            served: (rng.unit() < 0.99).then_some(served),
        }
    });
    Day { rows: rows.collect(), strangers: vec![0, 3, 0, 0, 1], dropped: (1, 60) }
}

fn manifest() -> Manifest {
    let policies = vec!["c3".to_owned(), "two-choices".to_owned()];
    Manifest { pairs: 0.001, ..Manifest::new("a test", policies, 5) }
}

/// What reading says.
fn problem(directory: &Path) -> String {
    read(directory).expect_err("a refusal").to_string()
}

#[test]
fn a_day_is_read_as_it_was_written_and_the_same_day_has_the_same_bytes() {
    let day = day(150_000, 1);
    let (one, other) = (Directory::new("one"), Directory::new("other"));
    let totals = DayWriter::write(&one.0, &manifest(), &day).unwrap();
    DayWriter::write(&other.0, &manifest(), &day).unwrap();
    let recorded = read(&one.0).unwrap();
    assert_eq!(recorded.manifest, manifest());
    assert_eq!(recorded.day.dropped, (1, 60));
    assert_eq!(recorded.day.strangers, day.strangers);
    assert!(recorded.day.rows == day.rows);
    let bytes = |directory: &Directory| {
        directory.files("").iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(one.files("").len(), 2);
    assert!(bytes(&one) == bytes(&other));
    assert_eq!((totals.rows, totals.files, totals.lost_rows), (150_000, 1, 0));
    let each = totals.bytes as f64 / totals.rows as f64;
    println!("{each:.2} bytes per row");
    assert!(each <= 8.0, "{each:.2} bytes per row");
}

#[test]
fn rows_of_several_clients_come_in_any_order_and_are_read_in_the_order_of_sending() {
    let day = day(1_000, 2);
    let directory = Directory::new("clients");
    let mut writer = DayWriter::create(&directory.0, &manifest(), Limits::default()).unwrap();
    let mut sent: Vec<(u64, Row)> = day.sent_ns().zip(day.rows.iter().copied()).collect();
    for (number, (_, row)) in sent.iter_mut().enumerate() {
        row.client = (number % 3) as u16;
    }
    for (sent_ns, row) in sent.iter().rev() {
        writer.push(*sent_ns, row).unwrap();
    }
    writer.close().unwrap();
    let read = read(&directory.0).unwrap().day;
    let expected: Vec<u64> = sent.iter().map(|(sent_ns, _)| *sent_ns).collect();
    assert_eq!(read.sent_ns().collect::<Vec<_>>(), expected);
    let clients: Vec<u16> = read.rows.iter().map(|row| row.client).take(6).collect();
    assert_eq!(clients, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_day_read_in_parts_has_every_row_once_and_in_order() {
    let day = day(10_000, 3);
    let directory = Directory::new("parts");
    let limits = Limits { file_rows: 700, ..Limits::default() };
    let mut writer = DayWriter::create(&directory.0, &manifest(), limits).unwrap();
    let mut sent: Vec<(u64, Row)> = day.sent_ns().zip(day.rows.iter().copied()).collect();
    // A copy that took long comes late, in another file than its neighbours.
    let late = sent.remove(1_300);
    sent.insert(2_200, late);
    for (sent_ns, row) in &sent {
        writer.push(*sent_ns, row).unwrap();
    }
    writer.close().unwrap();
    let (mut rows, mut at_ns, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    let read = read_parts(&directory.0, 1_500, |_, part| {
        parts.push(part.rows.len());
        at_ns.extend(part.sent_ns());
        rows.extend(part.rows);
        Ok::<(), RecordsError>(())
    });
    assert_eq!(read.unwrap().1, 0);
    assert!(parts.len() == 6 && parts[..5] == [1_500; 5] && parts[5] >= 1_500, "{parts:?}");
    let expected: Vec<u64> = day.sent_ns().collect();
    assert_eq!(at_ns, expected);
    let numbers = |rows: &[Row]| rows.iter().map(|row| row.request).collect::<Vec<_>>();
    assert_eq!(numbers(&rows), numbers(&day.rows));
    // What was taken is not taken again when the rest cannot be read.
    fs::write(&directory.files(".parquet")[13], "torn").unwrap();
    let mut taken = 0;
    let torn = read_parts(&directory.0, 1_500, |_, part| {
        taken += part.rows.len();
        Ok::<(), RecordsError>(())
    });
    assert!(torn.unwrap_err().to_string().contains("was it cut off") && taken < 10_000);
}

#[test]
fn files_are_closed_by_time_and_rows_and_the_oldest_are_removed() {
    let day = day(20_000, 3);
    let directory = Directory::new("rotated");
    let limits = Limits { file_ns: 5_000_000_000, file_rows: 3_000, ..Limits::default() };
    let write = |limits: Limits| {
        let _ = fs::remove_dir_all(&directory.0);
        let mut writer = DayWriter::create(&directory.0, &manifest(), limits).unwrap();
        for (row, sent_ns) in day.rows.iter().zip(day.sent_ns()) {
            writer.push(sent_ns, row).unwrap();
            writer.note_windows(1, 0);
        }
        writer.close().unwrap()
    };
    let totals = write(limits);
    assert_eq!((totals.rows, totals.files), (20_000, 7));
    assert!(read(&directory.0).unwrap().day.rows == day.rows);
    let totals = write(Limits { file_rows: u64::MAX, ..limits });
    assert_eq!(totals.files, 4);
    let totals = write(Limits { bytes_max: totals.bytes / 2, ..limits });
    assert!(totals.kept_bytes <= totals.bytes && totals.kept_bytes > 0, "{totals:?}");
    let kept = read(&directory.0).unwrap().day;
    let left = kept.rows.len();
    assert!((5_000..15_000).contains(&left), "{left}");
    assert_eq!(kept.dropped.1, left as u64);
    assert_eq!(kept.rows[0].gap_ns, 0);
    assert!(kept.rows[1..] == day.rows[day.rows.len() - left + 1..]);
    write(Limits { keep_ns: 6_000_000_000, ..limits });
    let rows = read(&directory.0).unwrap().day.rows.len();
    assert!((6_000..=9_000).contains(&rows), "{rows}");
}

#[test]
fn a_writer_that_was_killed_takes_the_open_file_and_nothing_else() {
    let day = day(10_000, 4);
    let directory = Directory::new("killed");
    let limits = Limits { file_rows: 4_000, ..Limits::default() };
    let mut writer = DayWriter::create(&directory.0, &manifest(), limits).unwrap();
    for (row, sent_ns) in day.rows.iter().zip(day.sent_ns()) {
        writer.push(sent_ns, row).unwrap();
    }
    fs::write(directory.0.join("rows-000002.part"), "half a file").unwrap();
    drop(writer);
    let recorded = read(&directory.0).unwrap();
    assert_eq!((recorded.day.rows.len(), recorded.unfinished), (8_000, 1));
    let again = DayWriter::create(&directory.0, &manifest(), limits).unwrap_err().to_string();
    assert!(again.contains("a directory without a day"), "{again}");
}

#[test]
fn a_directory_that_goes_away_costs_its_file_and_is_counted() {
    let day = day(9_000, 5);
    let directory = Directory::new("gone");
    let limits = Limits { file_rows: 3_000, ..Limits::default() };
    let mut writer = DayWriter::create(&directory.0, &manifest(), limits).unwrap();
    let mut failures = Vec::new();
    for (number, (row, sent_ns)) in day.rows.iter().zip(day.sent_ns()).enumerate() {
        if number == 4_000 {
            fs::remove_dir_all(&directory.0).unwrap();
        }
        if number == 7_000 {
            fs::create_dir_all(&directory.0).unwrap();
            fs::write(directory.0.join("manifest.json"), "").unwrap();
        }
        if let Err(error) = writer.push(sent_ns, row) {
            failures.push(error.to_string());
        }
        writer.note_windows(1, 0);
    }
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("is the directory gone?"), "{failures:?}");
    let totals = writer.close().unwrap();
    assert_eq!((totals.rows, totals.lost_rows), (6_000, 3_000));
    let text = serde_json::to_string(&manifest()).unwrap();
    fs::write(directory.0.join("manifest.json"), text).unwrap();
    let kept = read(&directory.0).unwrap().day;
    assert_eq!((kept.rows.len(), kept.dropped), (3_000, (3_000, 6_000)));
}

#[test]
fn what_is_cut_off_changed_missing_or_renamed_is_refused() {
    let directory = Directory::new("damaged");
    let limits = Limits { file_rows: 1_000, ..Limits::default() };
    let mut writer = DayWriter::create(&directory.0, &manifest(), limits).unwrap();
    let day = day(3_000, 6);
    for (row, sent_ns) in day.rows.iter().zip(day.sent_ns()) {
        writer.push(sent_ns, row).unwrap();
    }
    writer.close().unwrap();
    let files = directory.files(".parquet");
    let whole = fs::read(&files[1]).unwrap();
    fs::write(&files[1], &whole[..whole.len() - 9]).unwrap();
    let cut = problem(&directory.0);
    assert!(cut.contains("rows-000001-") && cut.contains("was it cut off"), "{cut}");
    fs::remove_file(&files[1]).unwrap();
    let missing = problem(&directory.0);
    assert!(missing.contains("got rows-000002 after rows-000000"), "{missing}");
    fs::write(&files[1], &whole).unwrap();
    fs::write(directory.0.join("rows-old.parquet"), "").unwrap();
    assert!(problem(&directory.0).contains("got the name rows-old.parquet"));
    fs::remove_file(directory.0.join("rows-old.parquet")).unwrap();
    let few = Manifest { group_size: 1, ..Manifest::new("a test", Vec::new(), 2) };
    fs::write(directory.0.join("manifest.json"), serde_json::to_string(&few).unwrap()).unwrap();
    let few = problem(&directory.0);
    assert!(few.contains("expected 0 to 1 (is the manifest of another day?)"), "{few}");
    fs::remove_file(directory.0.join("manifest.json")).unwrap();
    assert!(problem(&directory.0).contains("is this the directory of a recorded day?"));
}

#[test]
fn bytes_that_lie_are_refused_without_a_panic() {
    use evenkeel_records::reader::read_file;
    let directory = Directory::new("lies");
    DayWriter::write(&directory.0, &manifest(), &day(2_000, 7)).unwrap();
    let whole = fs::read(&directory.files(".parquet")[0]).unwrap();
    let mut rng = Rng::stream(1, "lies");
    let (mut refused, mut rows) = (0, Vec::new());
    for _ in 0..2_000 {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(3) {
            let place = rng.below(bytes.len());
            bytes[place] = rng.bits() as u8;
        }
        bytes.truncate(bytes.len() - if rng.unit() < 0.2 { rng.below(bytes.len()) } else { 0 });
        rows.clear();
        let mut day = Day { strangers: vec![0; 5], ..Day::default() };
        let read = read_file(bytes.into(), &manifest(), Path::new("x"), &mut rows, &mut day);
        refused += usize::from(read.is_err());
        assert!(rows.len() <= 2_000);
    }
    assert!(refused > 500, "{refused}");
}
