//! Series as CSV files: `t_s,London,Ireland` and rates per second, or `period,count` and counts.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use super::{RateSeries, SITES_MAX, TraceError, VALUES_MAX};

/// Files are not read further than this.
const BYTES_MAX: u64 = 1 << 30;
/// Times lie within this many seconds of the epoch: the year 9999.
const TIME_S_MAX: f64 = 253_402_300_800.0;
/// Columns whose values are requests in the step, not requests per second.
const COUNTS: [&str; 2] = ["count", "requests"];

impl RateSeries {
    /// Reads a CSV file; its form is described at [`RateSeries::read`].
    ///
    /// # Errors
    /// As [`RateSeries::read`], and when the file cannot be opened.
    pub fn load(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::read(&name, BufReader::new(file)),
            Err(error) => {
                let came = format!("no readable file ({error})");
                Err(TraceError::new(name, came, "a CSV file of request rates (is the path right?)"))
            }
        }
    }

    /// Reads a series: a header, then a row for each step. The first column is the time, in
    /// seconds or as `1998-06-13 10:00:00`, ascending; each further column is a site's requests
    /// per second, or with the header `count` or `requests` how many came within the step. The
    /// step is the least distance of two times. Where rows are missing, counts are zero (the
    /// counter counted nothing) and rates stay as they were.
    ///
    /// # Errors
    /// When there is no header or fewer than two rows, a value is no number of its kind, times do
    /// not advance by whole steps, or there is too much of anything.
    pub fn read(name: &str, source: impl Read) -> Result<Self, TraceError> {
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(source.take(BYTES_MAX));
        let header = reader.headers().map_err(|error| refused(name, &error))?.clone();
        let sites = header.len().saturating_sub(1);
        if !(1..=SITES_MAX).contains(&sites) {
            let came = format!("a header of {} columns", header.len());
            let expected = format!("a time and 1 to {SITES_MAX} sites, such as t_s,London,Paris");
            return Err(TraceError::new(format!("{name} line 1"), came, expected));
        }
        let rows_max = VALUES_MAX / sites;
        let mut table = Table { times_s: Vec::new(), values: vec![Vec::new(); sites] };
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record).map_err(|error| refused(name, &error))? {
            let place = || {
                let line = record.position().map_or(0, csv::Position::line);
                format!("{name} line {line}")
            };
            if table.times_s.len() == rows_max {
                let expected = format!("at most {rows_max} for {sites} sites");
                return Err(TraceError::new(place(), "one more row", expected));
            }
            table.push(&record).map_err(|(came, expected)| {
                TraceError::new(place(), format!("{came:?}"), expected)
            })?;
        }
        let counts = header.iter().skip(1).map(|column| COUNTS.contains(&column));
        table.series(name, &counts.collect::<Vec<_>>())
    }

    /// Writes the series as [`RateSeries::read`] reads it, with these names of sites; numbers
    /// stand in for those that are missing.
    ///
    /// # Errors
    /// When `sink` cannot be written to.
    pub fn write(&self, names: &[String], sink: impl Write) -> std::io::Result<()> {
        let mut sink = std::io::BufWriter::new(sink);
        write!(sink, "t_s")?;
        for site in 0..self.sites() {
            match names.get(site) {
                Some(name) => write!(sink, ",{}", name.replace([',', '"', '\n', '\r'], " "))?,
                None => write!(sink, ",site{site}")?,
            }
        }
        writeln!(sink)?;
        for step in 0..self.steps() {
            write!(sink, "{}", self.step.as_secs_f64() * step as f64)?;
            for of_site in &self.rates {
                write!(sink, ",{}", of_site[step])?;
            }
            writeln!(sink)?;
        }
        sink.flush()
    }
}

fn refused(name: &str, error: &csv::Error) -> TraceError {
    let line = error.position().map_or(String::new(), |at| format!(" line {}", at.line()));
    TraceError::new(format!("{name}{line}"), error, "rows of as many columns as the header has")
}

/// The rows of a file.
struct Table {
    times_s: Vec<f64>,
    values: Vec<Vec<f64>>,
}

impl Table {
    /// Takes a row; what came and what was expected where that fails.
    fn push(&mut self, row: &csv::StringRecord) -> Result<(), (String, String)> {
        let mut cells = row.iter();
        let cell = cells.next().unwrap_or_default();
        let wrong = |cell: &str, expected: &str| (cell.to_owned(), expected.to_owned());
        let time_s = moment_s(cell).ok_or_else(|| {
            wrong(cell, "a time in seconds or as 1998-06-13 10:00:00, in the first column")
        })?;
        if let Some(&before) = self.times_s.last().filter(|&&before| before >= time_s) {
            return Err((
                cell.to_owned(),
                format!("a time after that of the row before, {before} s"),
            ));
        }
        for (of_site, cell) in self.values.iter_mut().zip(cells) {
            let value =
                cell.parse::<f64>().ok().filter(|value| (0.0..=super::RATE_MAX).contains(value));
            of_site.push(value.ok_or_else(|| wrong(cell, "requests, a number from 0 to 1e12"))?);
        }
        self.times_s.push(time_s);
        Ok(())
    }

    fn series(&self, name: &str, counts: &[bool]) -> Result<RateSeries, TraceError> {
        let apart = self.times_s.windows(2).map(|pair| pair[1] - pair[0]);
        let step_s = apart.fold(f64::INFINITY, f64::min);
        if !step_s.is_finite() {
            let came = format!("{} rows", self.times_s.len());
            return Err(TraceError::new(name, came, "two or more, for their distance is the step"));
        }
        let first_s = self.times_s[0];
        let last = (self.times_s[self.times_s.len() - 1] - first_s) / step_s;
        if last * self.values.len() as f64 > VALUES_MAX as f64 {
            let came = format!("{last:.0} steps of {step_s} s");
            let expected = format!("at most {VALUES_MAX} rates in all (are two rows too close?)");
            return Err(TraceError::new(name, came, expected));
        }
        let mut rates = vec![Vec::with_capacity(last as usize + 1); self.values.len()];
        for (row, time_s) in self.times_s.iter().enumerate() {
            let step = (time_s - first_s) / step_s;
            if (step - step.round()).abs() > 1e-6 * step.max(1.0) + 1e-6 {
                let place = format!("{name}, row {row}");
                let expected = format!("whole steps of {step_s} s, the least distance of two rows");
                return Err(TraceError::new(place, format!("{time_s} s"), expected));
            }
            for (site, of_site) in rates.iter_mut().enumerate() {
                let held = if counts[site] { 0.0 } else { of_site.last().copied().unwrap_or(0.0) };
                of_site.resize(step.round() as usize, held);
                let per = if counts[site] { step_s } else { 1.0 };
                of_site.push(self.values[site][row] / per);
            }
        }
        let step = Duration::try_from_secs_f64(step_s).unwrap_or_default();
        RateSeries::new(step, rates)
            .map_err(|error| TraceError { place: format!("{name}, {}", error.place), ..error })
    }
}

/// Seconds since the epoch, or since whenever the file counts from.
fn moment_s(text: &str) -> Option<f64> {
    let seconds = text.parse::<f64>().ok().or_else(|| calendar_s(text))?;
    (-TIME_S_MAX..=TIME_S_MAX).contains(&seconds).then_some(seconds)
}

/// `1998-06-13 10:00:00` or `1998-06-13T10:00`, as if in UTC.
fn calendar_s(text: &str) -> Option<f64> {
    let (date, time) = text.trim_end_matches('Z').split_once([' ', 'T'])?;
    let whole = |text: &str| text.parse::<u32>().ok();
    let date: Vec<u32> = date.split('-').map(whole).collect::<Option<_>>()?;
    let &[year, month, day] = date.as_slice() else { return None };
    let time: Vec<u32> = time.split(':').map(whole).collect::<Option<_>>()?;
    let (hour, minute, second) = match *time.as_slice() {
        [hour, minute] => (hour, minute, 0),
        [hour, minute, second] => (hour, minute, second),
        _ => return None,
    };
    let fits = (1..=9_999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let clock = || f64::from(3_600 * hour + 60 * minute + second);
    fits.then(|| {
        days(i64::from(year), i64::from(month), i64::from(day)) as f64 * 86_400.0 + clock()
    })
}

/// Days since 1970-01-01 in the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level
/// date algorithms").
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}
