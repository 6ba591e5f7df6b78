//! Any text as a log of each format, and as the manifest of a recorded day.
//!
//! Promise: a day or an error, never a panic; rows stand in the order of time, name replicas and
//! policies that there are, and no address is kept. A manifest that is accepted can be replayed.

#![no_main]

use std::path::Path;

use evenkeel_records::Manifest;
use evenkeel_replay::day::Ready;
use evenkeel_replay::import::{Format, Imported, Options, import};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for format in Format::ALL {
        let options = Options { policy: Some("random".to_owned()) };
        let Ok(Imported { manifest, day, .. }) = import(format, bytes, &options) else { continue };
        assert!(!day.rows.is_empty() && day.rows[0].gap_ns == 0);
        for row in &day.rows {
            assert!(usize::from(row.replica) < manifest.replicas.len());
            assert!(usize::from(row.policy) < manifest.policies.len().max(1));
        }
        assert!(manifest.replicas.iter().all(|name| name.starts_with("replica-")));
        let _ = day.sent_ns().last();
        let _ = day.requests();
    }
    if let Ok(manifest) = Manifest::parse(bytes, Path::new("fuzz.json")) {
        let _ = Ready::check(&manifest);
    }
});
