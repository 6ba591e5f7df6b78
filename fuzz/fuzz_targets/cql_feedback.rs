//! Any bytes as the report of an agent beside a node of Cassandra.
//!
//! Promise: a report or an error, never a panic; numbers that are believed are of this world; a
//! report that is believed and written again is read as the same, and no part of it is a report.

#![no_main]

use std::time::Duration;

use evenkeel_cql::client::feedback::{read, write};
use libfuzzer_sys::fuzz_target;

const DAY: Duration = Duration::from_secs(86_400);

fuzz_target!(|data: &[u8]| {
    let report = match read(data) {
        Ok(report) => report,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let is_possible = |time: Duration| time > Duration::ZERO && time <= DAY;
    assert!(report.service_time.is_none_or(is_possible));
    assert!(report.latency.is_none_or(is_possible));
    assert!(report.arrival_rate.is_none_or(|rate| (0.0..1e9).contains(&rate.value())));
    assert!(report.dimmer.is_none_or(|dimmer| (0.0..=1.0).contains(&dimmer.value())));
    let written = write(&report);
    assert!(written.len() <= data.len());
    assert_eq!(read(&written), Ok(report));
    for length in 0..written.len() {
        assert!(read(&written[..length]).is_err(), "{length} of {} bytes", written.len());
    }
});
