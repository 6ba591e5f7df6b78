//! What measures are counted in.

use serde::Serialize;

/// What a measure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Milliseconds.
    Ms,
    /// One over another of the same unit.
    Times,
    /// Deviation over mean.
    Deviations,
    /// Per second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// A part of a whole, 0 to 1; shown as a percentage.
    Share,
    /// Of the prices' currency.
    Dollars,
    /// Per day.
    PerDay,
    /// `-log10` of a share of violations.
    Nines,
    /// Windows of samples.
    Windows,
}

impl Unit {
    /// The unit as it stands behind a number.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Ms => "ms",
            Self::Times => "times",
            Self::Deviations => "deviation / mean",
            Self::PerSecond => "/s",
            Self::Seconds => "s",
            Self::Share => "%",
            Self::Dollars => "US$",
            Self::PerDay => "/day",
            Self::Nines => "nines",
            Self::Windows => "windows",
        }
    }
}
