//! Recorded times in CSV: milliseconds, a row for each access, a column for each duplicate.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use csv::{ReaderBuilder, StringRecord, Trim};

use super::{COLUMNS_MAX, ROWS_MAX, TIME_MS_MAX};
use crate::problem::{Mismatch, Place, Problem, quoted};

/// Files are not read further than this.
const BYTES_MAX: u64 = 256 << 20;

/// A table of times.
#[derive(Clone, PartialEq, Debug)]
pub struct Samples {
    /// Names of columns; empty without a header.
    pub names: Vec<String>,
    /// A time for each column, row by row; at least one row.
    pub rows: Vec<Vec<Duration>>,
}

impl Samples {
    /// Columns.
    pub fn columns(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }
}

fn whole(file: &str, what: Mismatch) -> Problem {
    Problem { at: Place::whole(file), path: String::new(), what }
}

pub(super) fn load(path: &Path) -> Result<Samples, Problem> {
    let file = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        let came = format!("no readable file ({error})");
        whole(&file, Mismatch::new(came, "a file of times").with_hint("is the path right?"))
    };
    let mut text = String::new();
    let opened = std::fs::File::open(path).map_err(unreadable)?;
    opened.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(whole(&file, Mismatch::new("more than 256 MiB", "at most 256 MiB")));
    }
    parse_samples(&text, &file)
}

/// Parses times: a row for each access, in milliseconds. A first row without any number is a
/// header; lines that begin with `#` and empty lines are left out.
///
/// # Errors
/// The first thing wrong, with its row: what is no time, a row that is too short or too long, no
/// row.
pub fn parse_samples(text: &str, file: &str) -> Result<Samples, Problem> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.strip_prefix('\u{feff}').unwrap_or(text).as_bytes());
    let file: Arc<str> = file.into();
    let mut samples = Samples { names: Vec::new(), rows: Vec::new() };
    let mut record = StringRecord::new();
    let mut is_first = true;
    loop {
        let more = reader.read_record(&mut record).map_err(|error| {
            whole(&file, Mismatch::new(format!("no CSV ({error})"), "CSV in UTF-8"))
        })?;
        if !more {
            break;
        }
        let line = record.position().map_or(0, csv::Position::line);
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        let is_header =
            |record: &StringRecord| record.iter().all(|text| text.parse::<f64>().is_err());
        if core::mem::take(&mut is_first) && is_header(&record) {
            samples.names = record.iter().map(str::to_owned).collect();
            continue;
        }
        let row = row(&record, &samples).map_err(|(column, what)| {
            let column = u32::try_from(column + 1).unwrap_or(u32::MAX);
            let at = Place::File { file: Arc::clone(&file), line, column };
            Problem { at, path: String::new(), what }
        })?;
        samples.rows.push(row);
    }
    if samples.rows.is_empty() {
        let what = Mismatch::new("no row", "times in milliseconds, one in each row");
        return Err(whole(&file, what));
    }
    Ok(samples)
}

/// The times of a row, or in which column what is wrong.
fn row(record: &StringRecord, samples: &Samples) -> Result<Vec<Duration>, (usize, Mismatch)> {
    let columns = match samples.rows.first() {
        Some(row) => row.len(),
        None if samples.names.is_empty() => record.len(),
        None => samples.names.len(),
    };
    if record.len() != columns {
        let came = format!("{} times in row {}", record.len(), samples.rows.len() + 1);
        let what = Mismatch::new(came, format!("{columns}, as many as the rows before have"));
        let hint = "a decimal comma, or a file that was cut off?";
        return Err((record.len().min(columns), what.with_hint(hint)));
    }
    if columns > COLUMNS_MAX || samples.rows.len() == ROWS_MAX {
        let came = format!("row {} of {columns} columns", samples.rows.len() + 1);
        let expected = format!("at most {ROWS_MAX} rows of {COLUMNS_MAX} columns");
        let hint = "use a random sample of the accesses";
        return Err((0, Mismatch::new(came, expected).with_hint(hint)));
    }
    record.iter().enumerate().map(|(column, text)| time(text, samples, column)).collect()
}

fn time(text: &str, samples: &Samples, column: usize) -> Result<Duration, (usize, Mismatch)> {
    let parsed = text.parse::<f64>();
    if let Ok(millis) = parsed
        && (0.0..=TIME_MS_MAX).contains(&millis)
    {
        return Ok(Duration::from_nanos((millis * 1e6).round() as u64));
    }
    let hint = match parsed {
        Ok(millis) if millis < 0.0 => "a measurement that failed?",
        Ok(_) => "a different unit?",
        Err(_) if text.is_empty() => "a measurement that failed?",
        Err(_) => "a unit, a decimal comma, or a second header?",
    };
    let came = format!("{} in row {}", quoted(text), samples.rows.len() + 1);
    let what = Mismatch::new(came, "a time in milliseconds, 0 to 3600000, without a unit");
    Err((column, what.with_hint(hint)))
}
