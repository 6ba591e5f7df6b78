//! Request rates over time, from a file or generated.
//!
//! A trace is what real crowds did: days have shapes, matches end, links get posted. Its rows say
//! how many requests came in a step; where within the step they came is not known, which is what
//! [`Spacing`](super::Spacing) decides. Rows that are missing from a series of counts are silence
//! (the counter counted nothing); rows missing from a series of rates mean that the last rate held.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::Instant;
#[cfg(any(test, feature = "testing"))]
use evenkeel_core::Rng;

use super::LoadError;
use super::rate::{RATE_MAX, checked_rate};
use super::trace_options::{Scale, TraceOptions, Values};
use super::trace_row::{Row, Rows};

/// The most rows kept in memory (16 bytes each): 23 days by the second.
pub const ROWS_MAX: usize = 2_000_000;

/// The longest line read, in bytes.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// A request rate that is constant in each of its segments.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    segments: Arc<[Segment]>,
}

/// A stretch of constant rate; it begins where the one before it ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Segment {
    /// Seconds from the start of the trace to the end of this stretch.
    pub end_s: f64,
    /// Requests per second.
    pub rate: f64,
}

impl Trace {
    /// Reads a CSV file; its form is described at [`Trace::read`].
    ///
    /// # Errors
    /// As [`Trace::read`], and when the file cannot be opened.
    pub fn open(path: &Path, options: &TraceOptions) -> Result<Self, LoadError> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::read(&name, BufReader::new(file), options),
            Err(error) => Err(LoadError::Trace {
                file: name,
                line: 0,
                came: format!("no readable file ({error})"),
                expected: "a CSV file of request rates (is the path right?)".into(),
            }),
        }
    }

    /// Reads CSV text: one rate per line, `seconds,rate`, `period,count`, or more columns of which
    /// `options.column` names one. A first line without any number or time is the header;
    /// empty lines and lines that begin with `#` are skipped. `name` stands in errors.
    ///
    /// Only the rows used are kept, at most [`ROWS_MAX`] of them.
    ///
    /// # Errors
    /// With file and line: text that is no number, a negative or infinite value, a missing field,
    /// times that do not increase, too many rows, a line longer than [`LINE_BYTES_MAX`]; without
    /// a line: no row at all, an unknown column, no requests in the part used, rates above
    /// [`RATE_MAX`], options out of range.
    pub fn read(name: &str, text: impl BufRead, options: &TraceOptions) -> Result<Self, LoadError> {
        let problem = |line, came: String, expected: &str| LoadError::Trace {
            file: name.into(),
            line,
            came,
            expected: expected.into(),
        };
        let mut lines = Lines { name, text, number: 0, buffer: Vec::new() };
        let mut rows = Rows::new(options);
        while let Some((number, line)) = lines.next_line()? {
            if !rows.wants_more() {
                break;
            }
            if let Err((came, expected)) = rows.line(line) {
                return Err(problem(number, came, &expected));
            }
            if rows.kept.len() > ROWS_MAX {
                let came = format!("row {}", rows.kept.len());
                let expected =
                    format!("at most {ROWS_MAX} rows (choose a part by its start and rows)");
                return Err(problem(number, came, &expected));
            }
        }
        if rows.kept.is_empty() {
            let came = match rows.seen {
                0 => "no row of numbers".into(),
                seen => format!("no row at or after the start among {seen}"),
            };
            return Err(problem(0, came, "at least one row, such as `60,125.5`"));
        }
        let step_s = rows.step_s(options.step);
        let counts = options.values.unwrap_or(rows.values()) == Values::Counts;
        Self::from_rows(&rows.kept, step_s, counts)
            .compressed(options.compression)?
            .scaled(name, options.scale)
    }

    #[cfg(any(test, feature = "testing"))]
    /// One generated day in `day`: a trough before dawn, a shoulder at noon and a peak in the
    /// evening, with slow and fast seeded noise on 1,440 steps, brought to `rate_mean` requests
    /// per second. Synthetic: it has the shape of a busy site's day and none of its surprises
    /// (the peak is about twice the mean; the World Cup 1998 series, with its matches, peaks at
    /// 21 times its mean over three months).
    ///
    /// # Errors
    /// When `rate_mean` is not in (0, [`RATE_MAX`]], or so near to its end that the peak is
    /// beyond, or `day` is zero.
    pub fn diurnal(rate_mean: f64, day: Duration, seed: u64) -> Result<Self, LoadError> {
        const STEPS: u32 = 1_440;
        checked_rate("rate", rate_mean)?;
        if day.is_zero() {
            return Err(LoadError::setting("day", "0s", "a duration above zero"));
        }
        let mut rng = Rng::stream(seed, "diurnal");
        let (mut slow, mut fast) = (0.0, 0.0);
        let segments = (0..STEPS)
            .map(|step| {
                let hour = f64::from(step) * 24.0 / f64::from(STEPS);
                // Correlation times of an hour (60 steps) and of two minutes.
                slow = drift(slow, 60.0, &mut rng);
                fast = drift(fast, 2.0, &mut rng);
                let rate = day_shape(hour) * (0.08 * slow + 0.04 * fast).exp();
                let end_s = day.as_secs_f64() * f64::from(step + 1) / f64::from(STEPS);
                Segment { end_s, rate }
            })
            .collect();
        Self { segments }.scaled("diurnal", Scale::Mean(rate_mean))
    }

    /// The stretches of constant rate, in order.
    pub fn segments(&self) -> &Arc<[Segment]> {
        &self.segments
    }

    /// How long the trace lasts.
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.end_s())
    }

    /// The expected number of requests: the integral of the rate.
    pub fn requests(&self) -> f64 {
        let mut start_s = 0.0;
        let mut sum = 0.0;
        for segment in self.segments.iter() {
            sum += segment.rate * (segment.end_s - start_s);
            start_s = segment.end_s;
        }
        sum
    }

    /// Requests per second averaged over the trace.
    pub fn rate_mean(&self) -> f64 {
        self.requests() / self.end_s()
    }

    /// The highest rate, in requests per second.
    pub fn rate_peak(&self) -> f64 {
        self.segments.iter().map(|segment| segment.rate).fold(0.0, f64::max)
    }

    fn end_s(&self) -> f64 {
        self.segments.last().map_or(0.0, |segment| segment.end_s)
    }

    fn from_rows(rows: &[Row], step_s: f64, counts: bool) -> Self {
        let first_s = rows.first().map_or(0.0, |row| row.at_s);
        let mut segments = Vec::with_capacity(rows.len());
        for (i, row) in rows.iter().enumerate() {
            let start_s = row.at_s - first_s;
            let next_s = rows.get(i + 1).map_or(start_s + step_s, |next| next.at_s - first_s);
            if !counts {
                segments.push(Segment { end_s: next_s, rate: row.value });
                continue;
            }
            // A count belongs to its own step; what is missing after it is silence.
            let end_s = next_s.min(start_s + step_s);
            segments.push(Segment { end_s, rate: row.value / (end_s - start_s) });
            if end_s < next_s {
                segments.push(Segment { end_s: next_s, rate: 0.0 });
            }
        }
        Self { segments: segments.into() }
    }

    fn compressed(mut self, compression: f64) -> Result<Self, LoadError> {
        let expected = "a factor above 0 that leaves between 1 us and 584 years";
        let end_s = self.end_s() / compression;
        if !(compression > 0.0 && end_s >= 1e-6 && end_s < Instant::FAR.as_secs_f64()) {
            return Err(LoadError::setting("time compression", compression, expected));
        }
        for segment in Arc::make_mut(&mut self.segments) {
            segment.end_s /= compression;
        }
        Ok(self)
    }

    fn scaled(mut self, name: &str, scale: Scale) -> Result<Self, LoadError> {
        let problem = |came, expected: String| LoadError::Trace {
            file: name.into(),
            line: 0,
            came,
            expected,
        };
        let factor = match scale {
            _ if self.rate_peak() == 0.0 => {
                let came = "no request in the part used".into();
                return Err(problem(came, "a row with a rate above 0".into()));
            }
            Scale::Factor(factor) => factor,
            Scale::Mean(rate) => checked_rate("mean rate", rate)? / self.rate_mean(),
            Scale::Peak(rate) => checked_rate("peak rate", rate)? / self.rate_peak(),
        };
        if !(factor > 0.0 && factor.is_finite()) {
            return Err(LoadError::setting("scale", factor, "a factor above 0"));
        }
        for segment in Arc::make_mut(&mut self.segments) {
            segment.rate *= factor;
        }
        if self.rate_peak() > RATE_MAX {
            let came = format!("a peak of {} requests/s after scaling", self.rate_peak());
            return Err(problem(came, format!("at most {RATE_MAX}")));
        }
        Ok(self)
    }
}

/// Lines of bounded length.
struct Lines<'a, R> {
    name: &'a str,
    text: R,
    number: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<'_, R> {
    fn next_line(&mut self) -> Result<Option<(u64, &str)>, LoadError> {
        self.buffer.clear();
        self.number += 1;
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut self.text).take(limit).read_until(b'\n', &mut self.buffer);
        match read {
            Ok(0) => return Ok(None),
            Ok(length) if length > LINE_BYTES_MAX => {
                return Err(self.problem(format!("a line of more than {LINE_BYTES_MAX} bytes")));
            }
            Ok(_) => {}
            Err(error) => return Err(self.problem(format!("a read error ({error})"))),
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(line) => Ok(Some((self.number, line))),
            Err(_) => Err(self.problem("bytes that are no text".into())),
        }
    }

    fn problem(&self, came: String) -> LoadError {
        LoadError::Trace {
            file: self.name.into(),
            line: self.number,
            came,
            expected: "comma-separated numbers (is this a CSV file, not compressed?)".into(),
        }
    }
}

#[cfg(any(test, feature = "testing"))]
/// Relative rate at an hour of the day: a daily wave with its top at 20:00 and a half-day wave
/// that gives the noon shoulder and the deep trough before dawn.
fn day_shape(hour: f64) -> f64 {
    let wave = |period: f64, top: f64| ((hour - top) / period * std::f64::consts::TAU).cos();
    1.0 + 0.6 * wave(24.0, 18.0) + 0.25 * wave(12.0, 21.0)
}

#[cfg(any(test, feature = "testing"))]
/// One step of a stationary unit-variance drift whose memory fades over `steps`.
fn drift(value: f64, steps: f64, rng: &mut Rng) -> f64 {
    let kept = (-1.0 / steps).exp();
    kept * value + (1.0 - kept * kept).sqrt() * rng.normal()
}
