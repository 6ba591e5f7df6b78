//! Any text as a placement instance or as one of its tables.
//!
//! Promise: a problem with numbers in range, or an error, never a panic.

#![no_main]

use evenkeel_settings::placement::{
    COUNT_MAX, RTT_MS_MAX, parse_counts, parse_domains, parse_instance, parse_matrix,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(input) = parse_instance(bytes, "fuzz.json") {
        assert_eq!(input.sites.len(), input.trips.sites());
        assert_eq!(input.clients.len(), input.trips.clients());
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let names = ["a".to_owned(), "b".to_owned()];
    if let Ok(matrix) = parse_matrix(text, "fuzz.csv") {
        assert_eq!(matrix.ms.len(), matrix.from.len());
        for row in &matrix.ms {
            assert_eq!(row.len(), matrix.to.len());
            assert!(row.iter().all(|ms| (0.0..=RTT_MS_MAX).contains(ms)));
        }
    }
    if let Ok(intervals) = parse_counts(text, "fuzz.csv", &names) {
        let all = intervals.iter().flat_map(|counts| counts.iter().flatten());
        assert!(all.into_iter().all(|count| (0.0..=COUNT_MAX * 1e9).contains(count)));
    }
    if let Ok(domains) = parse_domains(text, "fuzz.csv", &names) {
        assert_eq!(domains.len(), names.len());
    }
});
