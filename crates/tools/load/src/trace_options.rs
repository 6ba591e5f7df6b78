//! How a trace file is read, and what its rates are brought to.

use std::time::Duration;

/// How a trace file is read.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceOptions {
    /// The column with the values, by its header. `None`: `rate`, `rps`, `count` or `requests`
    /// when there is one, else the last of at most two columns.
    pub column: Option<String>,
    /// What the values are. `None`: counts in columns `count` and `requests`, else rates.
    pub values: Option<Values>,
    /// Where to start.
    pub start: TraceStart,
    /// The most rows used from there; `None` for all of them.
    pub rows: Option<usize>,
    /// How long one row lasts. `None`: the smallest distance between the times of two rows, or
    /// one second for a file without times.
    pub step: Option<Duration>,
    /// How many times faster time passes; the rates stay as they are (60 plays an hour of
    /// 20 requests/s as a minute of 20 requests/s).
    pub compression: f64,
    /// What the rates are brought to.
    pub scale: Scale,
}

/// What the values of a trace are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Requests per second.
    Rates,
    /// Requests in the row's step.
    Counts,
}

/// The first row of a trace that is used.
#[derive(Clone, PartialEq, Debug)]
pub enum TraceStart {
    /// The row with this number, from 0, headers not counted.
    Row(u64),
    /// The first row at or after this time, written like the times of the file
    /// (`1998-06-13 10:00:00`, or seconds).
    Time(String),
}

/// What the rates of a trace are brought to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scale {
    /// As they are, times this factor.
    Factor(f64),
    /// To this mean over the part used, in requests per second.
    Mean(f64),
    /// To this peak over the part used, in requests per second.
    Peak(f64),
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            column: None,
            values: None,
            start: TraceStart::Row(0),
            rows: None,
            step: None,
            compression: 1.0,
            scale: Scale::Factor(1.0),
        }
    }
}
