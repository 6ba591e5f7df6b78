//! Any bytes as binary access logs, in two parts, and as a series of rates in CSV.
//!
//! Promise: a series or an error, never a panic; no request that was read is lost, what a broken
//! log held before is kept, and a series that is written is read as the same.

#![no_main]

use evenkeel_sim::trace::{LOG_SITES, LogCounter, RECORD_BYTES, RateSeries};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u16, &[u8])| {
    let (step_s, cut, bytes) = input;
    check_log(u32::from(step_s), usize::from(cut), bytes);
    if let Ok(series) = RateSeries::read("fuzz.csv", bytes) {
        let mut written = Vec::new();
        series.write(&[], &mut written).expect("memory can be written to");
        let is_short = series.duration().as_secs() < 100_000_000_000;
        if is_short && series.steps() > 1 && series.step.subsec_nanos() == 0 {
            assert_eq!(RateSeries::read("again.csv", &written[..]).expect("ours"), series);
        }
    }
});

fn check_log(step_s: u32, cut: usize, bytes: &[u8]) {
    let Ok(mut counter) = LogCounter::new(step_s) else { return assert_eq!(step_s, 0) };
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    let mut is_whole = true;
    for part in [first, second] {
        if let Err(error) = counter.read("fuzz", part) {
            assert!(error.place.contains("byte"), "{error}");
            is_whole = false;
        }
    }
    let Ok(series) = counter.series() else { return };
    assert_eq!(series.sites(), LOG_SITES);
    let requests = series.mean_total() * series.steps() as f64 * f64::from(step_s);
    let most = (bytes.len() / RECORD_BYTES) as f64;
    assert!((0.5..most + 0.5).contains(&requests), "{requests} of {most}");
    assert!(!is_whole || (requests - most).abs() < 0.5, "{requests} of {most}");
}
