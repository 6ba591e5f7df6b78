//! Any bytes as the load report of a replica, in each of its forms.
//!
//! Promise: a report, none or an error, never a panic; no report reaches the client; a report
//! that is believed and written again is read as the same.

#![no_main]

use evenkeel_core::Feedback;
use evenkeel_http_proxy::orca::{HEADER, HEADER_BINARY, take_feedback, write};
use evenkeel_http::Fields;
use http::HeaderValue;
use libfuzzer_sys::fuzz_target;

const FORMS: [&[u8]; 4] = [b"", b"TEXT ", b"JSON ", b"BIN "];

fuzz_target!(|data: &[u8]| {
    for form in FORMS {
        check(&[], &[&[form, data].concat()[..]]);
    }
    check(&[data], &[]);
    // Several headers: one per line, even lines in the binary one.
    let lines: Vec<&[u8]> = data.split(|&byte| byte == b'\n').take(8).collect();
    let (binary, other) = lines.split_at(lines.len() / 2);
    check(binary, other);
});

fn check(binary: &[&[u8]], other: &[&[u8]]) {
    let mut headers = Fields::new();
    let mut add = |name, value: &[u8]| {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(name, &value);
        }
    };
    binary.iter().for_each(|value| add(HEADER_BINARY, value));
    other.iter().for_each(|value| add(HEADER, value));
    let taken = take_feedback(&mut headers);
    assert!(headers.is_empty(), "the client would see {headers:?}");
    match taken {
        Ok(Some(feedback)) => check_believed(&feedback),
        Ok(None) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_believed(feedback: &Feedback) {
    let mut headers = Fields::from_iter([(HEADER, write(feedback))]);
    let again = take_feedback(&mut headers).expect("it is believed").expect("it is a report");
    let durations = |of: &Feedback| (of.service_time, of.latency);
    let counts = |of: &Feedback| (of.queue_length, of.in_service, of.concurrency);
    assert_eq!((durations(&again), counts(&again)), (durations(feedback), counts(feedback)));
    let rates = again.arrival_rate.zip(feedback.arrival_rate);
    assert_eq!(rates.is_some(), feedback.arrival_rate.is_some());
    assert!(rates.is_none_or(|(now, then)| (now.value() - then.value()).abs() <= 0.000_51));
}
