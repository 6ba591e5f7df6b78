//! Any text as the file of a profile.
//!
//! Promise: a profile or problems, never a panic; what is accepted is written in one form, which is
//! read as the same and has the same hash, and makes curves that never fall with load.

#![no_main]

use std::time::Duration;

use evenkeel_core::units::Rate;
use evenkeel_geo::curve::{Conditions, Family, Profile, ResponseCurves};
use evenkeel_settings::Node;
use evenkeel_settings::profile::{hash, read, read_record, write, write_record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(node) = Node::parse(&String::from_utf8_lossy(data), "fuzz.toml") else { return };
    if let Ok(record) = read_record(&node) {
        let text = write_record(&record);
        let again = read_record(&parsed(&text)).expect("what was written is read");
        assert_eq!((&again, &write_record(&again)), (&record, &text));
    }
    match read(&node) {
        Ok(profile) => check(&profile),
        Err(problems) => assert!(!problems.to_string().is_empty()),
    }
});

fn parsed(text: &str) -> Node {
    Node::parse(text, "again.toml").expect("what was written is TOML")
}

fn check(profile: &Profile) {
    let text = write(profile);
    let again = read(&parsed(&text)).expect("what was written is read");
    assert_eq!((&again, &write(&again)), (profile, &text));
    assert_eq!(hash(&again), hash(profile));
    let Ok(curves) = ResponseCurves::measured(Duration::from_millis(3), profile) else { return };
    let family = Family::local(&curves);
    for step in &profile.steps {
        let conditions = Conditions {
            write_share: step.write_share,
            ..Conditions::with_servers(profile.servers.get()).unbiased()
        };
        let miss = |load: f64| {
            let load = Rate::new(load).expect("a load of the file");
            family.miss(Duration::ZERO, load, &conditions).value()
        };
        let load = step.load.value();
        assert!(miss(load * 0.5) <= miss(load) && miss(load) <= miss(load * 2.0));
    }
}
