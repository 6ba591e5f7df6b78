//! Files are written, closed, and removed when there are too many.
//!
//! A file gets its name when it is whole and on the disk, so whoever kills the writer takes at most
//! the open file with him. What a full disk takes is counted as lost, and the next file says so.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};

use evenkeel_twin::rows::{Day, Row};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;
use xxhash_rust::xxh3::Xxh3;

use crate::columns::{self, GROUP_ROWS_MAX};
use crate::error::RecordsError;
use crate::manifest::{self, Manifest};

/// What a file says of its windows and strangers.
pub(crate) const WINDOWS: &str = "evenkeel.windows";
/// Windows that were lost.
pub(crate) const DROPPED: &str = "evenkeel.dropped";
/// Copies that agents served and nobody recorded, by replica.
pub(crate) const STRANGERS: &str = "evenkeel.strangers";

/// When files are closed, and how much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// A file has rows of at most this time, ns.
    pub file_ns: u64,
    /// And at most so many rows.
    pub file_rows: u64,
    /// All closed files have at most so many bytes: the oldest ones are removed.
    pub bytes_max: u64,
    /// A file is removed once its last row is older than this, ns.
    pub keep_ns: u64,
}

impl Default for Limits {
    /// Files of five minutes and at most two million rows, a week, 20 GiB.
    fn default() -> Self {
        let minute_ns = 60_000_000_000;
        Self {
            file_ns: 5 * minute_ns,
            file_rows: 2_000_000,
            bytes_max: 20 << 30,
            keep_ns: 7 * 24 * 60 * minute_ns,
        }
    }
}

impl Limits {
    /// Files as usual, of which none is removed.
    pub fn keep_all() -> Self {
        Self { bytes_max: u64::MAX, keep_ns: u64::MAX, ..Self::default() }
    }
}

/// Writes a day. A call may wait for the disk: it belongs on a thread of its own.
#[derive(Debug)]
pub struct DayWriter {
    directory: PathBuf,
    limits: Limits,
    buffer: Vec<Row>,
    open: Option<Open>,
    closed: VecDeque<Closed>,
    next: u32,
    notes: Notes,
    totals: Totals,
}

/// What has been written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Rows in closed files, those removed since included.
    pub rows: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Closed files, those removed since included.
    pub files: u64,
    /// Rows that were lost with files that could not be written.
    pub lost_rows: u64,
    /// Bytes of the files that are there.
    pub kept_bytes: u64,
}

#[derive(Debug)]
struct Closed {
    path: PathBuf,
    bytes: u64,
    last_ns: u64,
}

/// What belongs to no row, of the file that is open.
#[derive(Debug, Default)]
struct Notes {
    windows: u64,
    dropped: u64,
    strangers: Vec<u64>,
}

struct Open {
    path: PathBuf,
    file: SerializedFileWriter<Hashed>,
    since_ns: u64,
    last_ns: u64,
    rows: u64,
}

impl core::fmt::Debug for Open {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Open").field("path", &self.path).field("rows", &self.rows).finish()
    }
}

/// A file and the checksum of what was written to it.
struct Hashed {
    file: File,
    hash: Box<Xxh3>,
    bytes: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl DayWriter {
    /// Begins a day in a directory, which is made if there is none.
    ///
    /// # Errors
    /// When the directory has a day already, or cannot be written.
    pub fn create(
        directory: &Path,
        manifest: &Manifest,
        limits: Limits,
    ) -> Result<Self, RecordsError> {
        let doing = "making a directory for a day: may this user write there?";
        fs::create_dir_all(directory).map_err(|error| RecordsError::io(directory, doing, error))?;
        let path = directory.join(manifest::NAME);
        if path.exists() {
            let expected = "a directory without a day";
            let hint = "each recording has a directory of its own";
            return Err(RecordsError::wrong(&path, "a recorded day", expected, hint));
        }
        let part = path.with_extension("json.part");
        let doing = "writing the manifest: is the disk full?";
        let write = || -> io::Result<Result<(), RecordsError>> {
            let text = match manifest.text(&path) {
                Ok(text) => text,
                Err(error) => return Ok(Err(error)),
            };
            let mut file = File::create(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&part, &path)?;
            Ok(Ok(()))
        };
        write().map_err(|error| RecordsError::io(&path, doing, error))??;
        Ok(Self {
            directory: directory.to_owned(),
            limits,
            buffer: Vec::new(),
            open: None,
            closed: VecDeque::new(),
            next: 0,
            notes: Notes::default(),
            totals: Totals::default(),
        })
    }

    /// Writes a day at once, all of it.
    ///
    /// # Errors
    /// As [`create`](Self::create) and [`push`](Self::push).
    pub fn write(directory: &Path, manifest: &Manifest, day: &Day) -> Result<Totals, RecordsError> {
        let mut writer = Self::create(directory, manifest, Limits::keep_all())?;
        for (row, sent_ns) in day.rows.iter().zip(day.sent_ns()) {
            writer.push(sent_ns, row)?;
        }
        for (replica, count) in day.strangers.iter().enumerate() {
            writer.note_strangers(replica, *count);
        }
        writer.note_windows(day.dropped.1, day.dropped.0);
        writer.close()
    }

    /// Adds a row whose copy was sent at this time from the start of the recording, ns; its
    /// `gap_ns` is ignored. Rows need no order: they are sorted when they are written and read.
    ///
    /// # Errors
    /// When a file cannot be written. The rows of that file are lost, and counted; the next call
    /// begins another file.
    pub fn push(&mut self, sent_ns: u64, row: &Row) -> Result<(), RecordsError> {
        let rotated = self.rotate_at(sent_ns);
        self.buffer.push(Row { gap_ns: sent_ns, ..*row });
        rotated?;
        if self.buffer.len() >= GROUP_ROWS_MAX { self.flush() } else { Ok(()) }
    }

    /// Counts windows of rows, and how many of them were dropped.
    pub fn note_windows(&mut self, windows: u64, dropped: u64) {
        self.notes.windows += windows;
        self.notes.dropped += dropped;
    }

    /// Counts copies that a replica's agent served and nobody recorded.
    pub fn note_strangers(&mut self, replica: usize, count: u64) {
        let strangers = &mut self.notes.strangers;
        if strangers.len() <= replica {
            strangers.resize(replica + 1, 0);
        }
        strangers[replica] += count;
    }

    /// Closes the open file if it has rows of a longer time than it may. For times without rows.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn rotate_at(&mut self, now_ns: u64) -> Result<(), RecordsError> {
        let first = self.buffer.first().map(|row| row.gap_ns);
        let since = self.open.as_ref().map(|open| open.since_ns).or(first);
        let rows = self.open.as_ref().map_or(0, |open| open.rows) + self.buffer.len() as u64;
        let is_old = since.is_some_and(|since| now_ns.saturating_sub(since) >= self.limits.file_ns);
        if is_old || rows >= self.limits.file_rows { self.end_file() } else { Ok(()) }
    }

    /// What has been written.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Closes the open file, and with it the day.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn close(mut self) -> Result<Totals, RecordsError> {
        let is_untold = self.notes.windows > 0 || self.notes.strangers.iter().any(|it| *it > 0);
        if !self.buffer.is_empty() || self.open.is_some() || is_untold {
            self.end_file()?;
        }
        Ok(self.totals)
    }

    /// Writes the buffered rows; a file that fails is given up with its rows.
    fn flush(&mut self) -> Result<(), RecordsError> {
        self.try_flush().map_err(|error| self.give_up(error))
    }

    fn try_flush(&mut self) -> Result<(), RecordsError> {
        if self.buffer.is_empty() && self.open.is_some() {
            return Ok(());
        }
        self.buffer.sort_by_key(|row| (row.client, row.gap_ns));
        let first = self.buffer.iter().map(|row| row.gap_ns).min().unwrap_or(0);
        let last = self.buffer.iter().map(|row| row.gap_ns).max().unwrap_or(0);
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(Open::new(&self.directory, self.next, first)?),
        };
        if !self.buffer.is_empty() {
            open.rows += self.buffer.len() as u64;
            open.last_ns = open.last_ns.max(last);
            let group = open.file.next_row_group();
            let written = group.and_then(|group| columns::write(group, &self.buffer));
            self.buffer.clear();
            written.map_err(|error| unwritten(&open.path, error))?;
        }
        Ok(())
    }

    /// Nothing is left of the open file but a count.
    fn give_up(&mut self, error: RecordsError) -> RecordsError {
        let open = self.open.take();
        let rows = open.as_ref().map_or(0, |open| open.rows);
        self.totals.lost_rows += rows + mem::take(&mut self.buffer).len() as u64;
        self.notes.dropped = self.notes.windows;
        if let Some(open) = open {
            // The error is told already, and a reader ignores what is left.
            let _ = fs::remove_file(open.path);
        }
        error
    }

    fn end_file(&mut self) -> Result<(), RecordsError> {
        self.flush()?;
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let notes = &self.notes;
        let strangers: Vec<String> = notes.strangers.iter().map(u64::to_string).collect();
        for (key, value) in [
            (WINDOWS, notes.windows.to_string()),
            (DROPPED, notes.dropped.to_string()),
            (STRANGERS, strangers.join(",")),
        ] {
            open.file.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let (part, rows, last_ns) = (open.path.clone(), open.rows, open.last_ns);
        match open.close(&self.directory, self.next) {
            Ok((path, bytes)) => {
                self.notes = Notes::default();
                self.next += 1;
                self.totals.rows += rows;
                self.totals.files += 1;
                self.totals.bytes += bytes;
                self.totals.kept_bytes += bytes;
                self.closed.push_back(Closed { path, bytes, last_ns });
                self.remove_oldest(last_ns)
            }
            Err(error) => {
                self.totals.lost_rows += rows;
                self.notes.dropped = self.notes.windows;
                // As above.
                let _ = fs::remove_file(&part);
                Err(error)
            }
        }
    }

    fn remove_oldest(&mut self, now_ns: u64) -> Result<(), RecordsError> {
        while let Some(oldest) = self.closed.front() {
            let is_old = now_ns.saturating_sub(oldest.last_ns) > self.limits.keep_ns;
            if !is_old && self.totals.kept_bytes <= self.limits.bytes_max {
                break;
            }
            match fs::remove_file(&oldest.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(RecordsError::io(&oldest.path, "removing an old file", error));
                }
                _ => {}
            }
            self.totals.kept_bytes -= oldest.bytes;
            self.closed.pop_front();
        }
        Ok(())
    }
}

impl Open {
    fn new(directory: &Path, number: u32, since_ns: u64) -> Result<Self, RecordsError> {
        let path = directory.join(format!("rows-{number:06}.part"));
        let doing = "opening a file for rows: is the directory gone?";
        let file = File::create(&path).map_err(|error| RecordsError::io(&path, doing, error))?;
        let hashed = Hashed { file, hash: Box::default(), bytes: 0 };
        let file = columns::schema().and_then(|schema| {
            SerializedFileWriter::new(hashed, schema, columns::properties()?.into())
        });
        let file = file.map_err(|error| unwritten(&path, error))?;
        Ok(Self { path, file, since_ns, last_ns: 0, rows: 0 })
    }

    /// Its name and length once it is on the disk.
    fn close(self, directory: &Path, number: u32) -> Result<(PathBuf, u64), RecordsError> {
        let hashed = self.file.into_inner().map_err(|error| unwritten(&self.path, error))?;
        let name = format!("rows-{number:06}-{:016x}.parquet", hashed.hash.digest());
        let path = directory.join(name);
        let finish = || -> io::Result<()> {
            hashed.file.sync_all()?;
            fs::rename(&self.path, &path)?;
            File::open(directory)?.sync_all()
        };
        let doing = "closing a file of rows: is the disk full?";
        finish().map_err(|error| RecordsError::io(&self.path, doing, error))?;
        Ok((path, hashed.bytes))
    }
}

fn unwritten(path: &Path, error: ParquetError) -> RecordsError {
    let source = match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    };
    RecordsError::io(path, "writing rows: is the disk full?", source)
}
