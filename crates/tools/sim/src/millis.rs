//! Durations as milliseconds in JSON: `#[serde(with = "millis", rename = "interval_ms")]`.

use std::time::Duration;

pub(crate) fn serialize<S: serde::Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(evenkeel_core::time::millis(*d))
}
