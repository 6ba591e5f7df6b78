//! What measures are counted in.

use serde::Serialize;

evenkeel_core::named! {
    /// What a measure is counted in.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Unit {
        /// Milliseconds.
        Ms = "ms",
        /// One over another of the same unit.
        Times = "times",
        /// Deviation over mean.
        Deviations = "deviation / mean",
        /// Per second.
        PerSecond = "/s",
        /// Seconds.
        Seconds = "s",
        /// A part of a whole, 0 to 1; shown as a percentage.
        Share = "%",
        /// Of the prices' currency.
        Dollars = "US$",
        /// Per request.
        PerRequest = "/request",
        /// Per day.
        PerDay = "/day",
        /// `-log10` of a share of violations.
        Nines = "nines",
        /// Windows of samples.
        Windows = "windows",
    }
}
