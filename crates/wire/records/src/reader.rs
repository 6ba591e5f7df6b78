//! A day is read and checked.
//!
//! Nothing that a file says is believed before it is checked: its length, the checksum in its name,
//! its columns, and each value by its range.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use evenkeel_twin::rows::{Day, Row};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use xxhash_rust::xxh3::xxh3_64;

use crate::columns;
use crate::error::RecordsError;
use crate::manifest::{self, Manifest};
use crate::writer::{DROPPED, STRANGERS, WINDOWS};

/// Rows of a day at most: some 4 GB of memory.
pub const ROWS_MAX: usize = 50_000_000;
/// Bytes of a file at most.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Files of a day at most: of five minutes each, a year.
const FILES_MAX: usize = 105_000;

/// A day as it was recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct Recorded {
    /// What is known beside its rows.
    pub manifest: Manifest,
    /// The rows.
    pub day: Day,
    /// Files that were still written, or whose writer was killed; they are left out.
    pub unfinished: usize,
}

/// Reads the day in a directory.
///
/// # Errors
/// When there is none, when one of its files is missing or damaged, and when it is too large.
pub fn read(directory: &Path) -> Result<Recorded, RecordsError> {
    let mut whole = Day::default();
    let (manifest, unfinished) = read_parts(directory, ROWS_MAX, |_, part| {
        whole = part;
        Ok::<(), RecordsError>(())
    })?;
    Ok(Recorded { manifest, day: whole, unfinished })
}

/// Reads a day part by part, so that it need not be in memory as a whole. Each part has so many
/// rows, and the last one up to twice as many and those of a file; the gap of its first row is the
/// time from the start of the day. There is one part at least.
///
/// # Errors
/// As [`read`]; and those of `take`.
pub fn read_parts<E: From<RecordsError>>(
    directory: &Path,
    rows_of_part: usize,
    mut take: impl FnMut(&Manifest, Day) -> Result<(), E>,
) -> Result<(Manifest, usize), E> {
    let manifest = read_manifest(directory)?;
    let (files, unfinished) = files(directory)?;
    let part = |strangers| Day { strangers, ..Day::default() };
    let mut day = part(vec![0; manifest.replicas.len()]);
    let (mut rows, mut taken) = (Vec::new(), 0);
    let mut begins_ns = match files.first() {
        Some(first) if first.number > 0 => None,
        _ => Some(0),
    };
    for file in &files {
        let bytes = bounded(&file.path, FILE_BYTES_MAX, "reading rows")?;
        let came = xxh3_64(&bytes);
        if came != file.hash {
            let expected = format!("{:016x} as in its name", file.hash);
            let hint = "was it cut off, or changed?";
            let came = format!("bytes with the checksum {came:016x}");
            return Err(RecordsError::wrong(&file.path, came, expected, hint).into());
        }
        read_file(bytes.into(), &manifest, &file.path, &mut rows, &mut day)?;
        if taken + rows.len() > ROWS_MAX {
            return Err(too_many(&file.path).into());
        }
        // What is kept back is in order with the next file: copies that took long are in a later
        // file than those that were sent after them.
        while rows.len() / 2 >= rows_of_part {
            sort(&mut rows);
            let later = rows.split_off(rows_of_part);
            day.rows = gaps(std::mem::replace(&mut rows, later), &mut begins_ns);
            taken += rows_of_part;
            let next = part(vec![0; manifest.replicas.len()]);
            take(&manifest, std::mem::replace(&mut day, next))?;
        }
    }
    sort(&mut rows);
    day.rows = gaps(rows, &mut begins_ns);
    take(&manifest, day)?;
    Ok((manifest, unfinished))
}

/// Reads what is known of the day in a directory beside its rows.
///
/// # Errors
/// When there is none.
pub fn read_manifest(directory: &Path) -> Result<Manifest, RecordsError> {
    let path = directory.join(manifest::NAME);
    let doing = "reading a manifest: is this the directory of a recorded day?";
    Manifest::parse(&bounded(&path, manifest::BYTES_MAX, doing)?, &path)
}

/// The bytes of a file that is not too long.
fn bounded(path: &Path, max: u64, doing: &'static str) -> Result<Vec<u8>, RecordsError> {
    let failed = |error: io::Error| RecordsError::io(path, doing, error);
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > max {
        let came = format!("{length} bytes");
        return Err(RecordsError::wrong(path, came, format!("at most {max}"), ""));
    }
    fs::read(path).map_err(failed)
}

struct Named {
    number: u32,
    hash: u64,
    path: PathBuf,
}

/// The closed files in the order of their numbers, and how many were not closed.
fn files(directory: &Path) -> Result<(Vec<Named>, usize), RecordsError> {
    let failed = |error: io::Error| RecordsError::io(directory, "looking for files of rows", error);
    let (mut files, mut unfinished) = (Vec::new(), 0);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix("rows-") else { continue };
        if rest.ends_with(".part") {
            unfinished += 1;
            continue;
        }
        let parts = rest.strip_suffix(".parquet").and_then(|rest| rest.split_once('-'));
        let named = parts.and_then(|(number, hash)| {
            let hash = u64::from_str_radix(hash, 16).ok()?;
            Some(Named { number: number.parse().ok()?, hash, path: path.clone() })
        });
        let Some(named) = named else {
            let expected = "a name like rows-000003-0123456789abcdef.parquet";
            let hint = "was the file renamed? The second part is its checksum";
            return Err(RecordsError::wrong(&path, format!("the name {name}"), expected, hint));
        };
        files.push(named);
        if files.len() > FILES_MAX {
            let came = format!("more than {FILES_MAX} files");
            return Err(RecordsError::wrong(directory, came, "the files of one day", ""));
        }
    }
    files.sort_by_key(|file| file.number);
    let gap = files.windows(2).find(|pair| Some(pair[1].number) != pair[0].number.checked_add(1));
    if let Some([before, after]) = gap.and_then(|pair| pair.first_chunk::<2>()) {
        let came = format!("rows-{:06} after rows-{:06}", after.number, before.number);
        let hint = "was a file in between removed, or copied twice?";
        return Err(RecordsError::wrong(directory, came, "all files in between", hint));
    }
    Ok((files, unfinished))
}

/// Reads the rows of one file from its bytes.
///
/// # Errors
/// When the bytes are no file of rows that belong to this manifest.
pub fn read_file(
    bytes: Bytes,
    manifest: &Manifest,
    file: &Path,
    rows: &mut Vec<Row>,
    day: &mut Day,
) -> Result<(), RecordsError> {
    // The library for Parquet has bounds, but no promise for bytes that lie on purpose.
    let read = AssertUnwindSafe(|| try_read(bytes, manifest, file, rows, day));
    catch_unwind(read).unwrap_or_else(|_| {
        Err(RecordsError::wrong(file, "no valid structure", "a file of rows", "was it changed?"))
    })
}

fn try_read(
    bytes: Bytes,
    manifest: &Manifest,
    file: &Path,
    rows: &mut Vec<Row>,
    day: &mut Day,
) -> Result<(), RecordsError> {
    let damaged = |came: String| {
        RecordsError::wrong(file, came, "a file of rows in Parquet", "is it from another program?")
    };
    let reader = SerializedFileReader::new(bytes).map_err(|error| damaged(error.to_string()))?;
    let metadata = reader.metadata();
    let schema = columns::schema().map_err(|error| damaged(error.to_string()))?;
    if metadata.file_metadata().schema().get_fields() != schema.get_fields() {
        return Err(damaged("other columns".to_owned()));
    }
    let values = metadata.file_metadata().key_value_metadata().cloned().unwrap_or_default();
    let value = |key: &str| {
        let found = values.iter().find(|value| value.key == key);
        let text = found.and_then(|value| value.value.clone());
        text.ok_or_else(|| damaged(format!("no {key} in its metadata")))
    };
    let number = |key: &str, text: &str| {
        text.parse::<u64>().map_err(|_| damaged(format!("{key} = {text:?} in its metadata")))
    };
    day.dropped.0 = day.dropped.0.saturating_add(number(DROPPED, &value(DROPPED)?)?);
    day.dropped.1 = day.dropped.1.saturating_add(number(WINDOWS, &value(WINDOWS)?)?);
    let strangers = value(STRANGERS)?;
    let strangers = strangers.split(',').filter(|text| !text.is_empty());
    for (replica, text) in strangers.enumerate() {
        let count = number(STRANGERS, text)?;
        let Some(sum) = day.strangers.get_mut(replica) else {
            return Err(damaged(format!("strangers of replica {replica}")));
        };
        *sum = sum.saturating_add(count);
    }
    for group in 0..metadata.num_row_groups() {
        let group = reader.get_row_group(group).map_err(|error| damaged(error.to_string()))?;
        columns::read(&*group, manifest, file, rows)?;
        if rows.len() > ROWS_MAX {
            return Err(too_many(file));
        }
    }
    Ok(())
}

fn too_many(file: &Path) -> RecordsError {
    let came = format!("more than {ROWS_MAX} rows");
    let hint = "replay a part of the day: a directory with some of its files";
    RecordsError::wrong(file, came, "fewer rows in all", hint)
}

/// Rows whose `gap_ns` is the time from any start, in the order in which they were sent and with
/// the gaps between them. With `has_lost_begin` the day begins with the first row.
pub fn ordered(mut rows: Vec<Row>, has_lost_begin: bool) -> Vec<Row> {
    sort(&mut rows);
    gaps(rows, &mut (!has_lost_begin).then_some(0))
}

fn sort(rows: &mut [Row]) {
    // In place: a day fills the memory once.
    rows.sort_unstable_by_key(|row| (row.gap_ns, row.client, row.request, row.why as u8));
}

/// The gaps between rows in order, from when the day begins; with the first row if nobody knows.
fn gaps(mut rows: Vec<Row>, begins_ns: &mut Option<u64>) -> Vec<Row> {
    let first_ns = rows.first().map_or(0, |row| row.gap_ns);
    let mut last_ns = *begins_ns.get_or_insert(first_ns);
    for row in &mut rows {
        let sent_ns = row.gap_ns;
        row.gap_ns = sent_ns.saturating_sub(last_ns);
        last_ns = sent_ns.max(last_ns);
    }
    rows
}
