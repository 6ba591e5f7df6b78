//! Access logs of the 1998 World Cup, in the binary form of the Internet Traffic Archive.
//!
//! A log is records of 20 bytes, big-endian, sorted by time:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | time of the request, seconds since the epoch |
//! | 4, 4, 4 | client, object, size |
//! | 1, 1, 1 | method, status, type |
//! | 1 | server: upper 3 bits the region (0 Santa Clara, 1 Plano, 2 Herndon, 3 Paris), lower 5 which |
//!
//! Source: M. Arlitt and T. Jin, "1998 World Cup Web Site Access Logs", August 1998, in the
//! Internet Traffic Archive. The logs are not part of this project: their licence asks to be
//! distributed with them, and allows no commercial use of what comes with them. Days are split
//! into files `wc_dayX_Y.gz`; day 1 is 26 April 1998, so 13 June is day 49, the days 34 to 64 of
//! the Kurma paper's cost figure are 29 May to 28 June, and a day begins at midnight in Paris (two
//! hours before UTC's).

use std::io::Read;
use std::time::Duration;

use super::{RateSeries, TraceError, VALUES_MAX};

/// The length of a record.
pub const RECORD_BYTES: usize = 20;
/// Regions that logs know: Santa Clara, Plano, Herndon, Paris.
pub const LOG_SITES: usize = 4;
/// What a compressed file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Counts requests by time step and region while logs stream by: memory grows with the time they
/// span, not with their requests, and is at most 32 bytes for each of two million steps.
#[derive(Debug)]
pub struct LogCounter {
    step_s: u32,
    /// Begins with the first record's step.
    start: Option<u32>,
    last: u32,
    counts: Vec<[u32; LOG_SITES]>,
}

impl LogCounter {
    /// A counter in steps of so many seconds.
    ///
    /// # Errors
    /// When that is zero.
    pub fn new(step_s: u32) -> Result<Self, TraceError> {
        if step_s == 0 {
            return Err(TraceError::new("step", "0 s", "one second or more: logs know no less"));
        }
        Ok(Self { step_s, start: None, last: 0, counts: Vec::new() })
    }

    /// Counts the records of one log; parts of a day come in their order. An empty log is none.
    /// After an error, what came before it stays counted.
    ///
    /// # Errors
    /// When reading fails, a record is incomplete, goes back in time, is of no known region, or
    /// so far ahead that the series would be too long; with the offset of the record.
    pub fn read(&mut self, name: &str, mut source: impl Read) -> Result<(), TraceError> {
        const RECORDS: usize = 3_277; // about 64 KiB at a time
        let mut buffer = [0; RECORD_BYTES * RECORDS];
        let (mut offset, mut kept) = (0_u64, 0);
        loop {
            let came = match source.read(&mut buffer[kept..]) {
                Ok(came) => came,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let place = at(name, offset + kept as u64);
                    return Err(TraceError::new(place, error, "a readable log"));
                }
            };
            let filled = kept + came;
            if came == 0 {
                return self.end(name, offset, kept);
            }
            let whole = filled - filled % RECORD_BYTES;
            for record in buffer[..whole].chunks_exact(RECORD_BYTES) {
                self.count(record).map_err(|wrong| wrong.at(name, offset, record))?;
                offset += RECORD_BYTES as u64;
            }
            buffer.copy_within(whole..filled, 0);
            kept = filled - whole;
        }
    }

    fn end(&self, name: &str, offset: u64, kept: usize) -> Result<(), TraceError> {
        if kept == 0 {
            return Ok(());
        }
        let came = format!("{kept} bytes at the end");
        let expected = format!("a record of {RECORD_BYTES} (is the file complete?)");
        Err(TraceError::new(at(name, offset), came, expected))
    }

    fn count(&mut self, record: &[u8]) -> Result<(), Wrong> {
        let time = u32::from_be_bytes([record[0], record[1], record[2], record[3]]);
        let region = usize::from(record[RECORD_BYTES - 1] >> 5);
        if time < self.last {
            return Err(Wrong::Back { time, last: self.last });
        }
        if region >= LOG_SITES {
            return Err(Wrong::Region(region));
        }
        let start = self.start.unwrap_or(time - time % self.step_s);
        let step = ((time - start) / self.step_s) as usize;
        if step >= VALUES_MAX / LOG_SITES {
            return Err(Wrong::Ahead { time, start });
        }
        self.start = Some(start);
        self.last = time;
        if step >= self.counts.len() {
            self.counts.resize(step + 1, [0; LOG_SITES]);
        }
        let count = &mut self.counts[step][region];
        *count = count.saturating_add(1);
        Ok(())
    }

    /// When the series begins, in seconds since the epoch; `None` before the first record.
    pub fn start(&self) -> Option<u32> {
        self.start
    }

    /// Rates of all regions, from the first record's step to the last one's.
    ///
    /// # Errors
    /// When no record came.
    pub fn series(&self) -> Result<RateSeries, TraceError> {
        if self.counts.is_empty() {
            return Err(TraceError::new("log", "no record", "one or more (is the day empty?)"));
        }
        let rate = |region: usize| {
            let of_step = |counts: &[u32; LOG_SITES]| f64::from(counts[region]);
            self.counts.iter().map(|counts| of_step(counts) / f64::from(self.step_s)).collect()
        };
        let step = Duration::from_secs(self.step_s.into());
        RateSeries::new(step, (0..LOG_SITES).map(rate).collect())
    }
}

fn at(name: &str, offset: u64) -> String {
    format!("{name}, byte {offset}")
}

/// What is wrong with a record.
enum Wrong {
    Back { time: u32, last: u32 },
    Region(usize),
    Ahead { time: u32, start: u32 },
}

impl Wrong {
    fn at(&self, name: &str, offset: u64, record: &[u8]) -> TraceError {
        if offset == 0 && record.starts_with(&GZIP) {
            let came = "the start of a gzip file";
            return TraceError::new(at(name, 0), came, "a log (gunzip it first)");
        }
        let (came, expected) = match *self {
            Self::Back { time, last } => (
                format!("the time {time}"),
                format!("{last} or later, for logs are sorted (are files in their order?)"),
            ),
            Self::Region(region) => (
                format!("region {region}"),
                "0 to 3 in the upper 3 bits of a record's last byte (is it such a log?)".to_owned(),
            ),
            Self::Ahead { time, start } => (
                format!("the time {time}"),
                format!("at most {} steps after {start} (longer steps?)", VALUES_MAX / LOG_SITES),
            ),
        };
        TraceError::new(at(name, offset), came, expected)
    }
}
