//! Any bytes as the headers of brownout, of clients and of replicas.
//!
//! Promise: a decision or none, a dimmer, none or an error, never a panic; no dimmer reaches the
//! client and no stripped decision the application; what is believed is written and read as the
//! same.

#![no_main]

use evenkeel_core::dimmer::wire::is_part;
use evenkeel_http_proxy::brownout::{
    DIMMER, DIMMER_2014, OPTIONAL, SERVED, decision, forbid_storing, served, strip_decision,
    take_dimmer, translate_served, write_decision, write_dimmer,
};
use evenkeel_http::{FieldValue, Fields};
use http::header::CACHE_CONTROL;
use http::{HeaderName, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;

const LOOKALIKE: HeaderName = HeaderName::from_static("brownout_optional");
const SERVED_2014: HeaderName = HeaderName::from_static("x-withoptional");
const NAMES: [HeaderName; 7] =
    [OPTIONAL, SERVED, DIMMER, DIMMER_2014, LOOKALIKE, SERVED_2014, CACHE_CONTROL];

fuzz_target!(|data: &[u8]| {
    for name in NAMES {
        check(&[(name, data)]);
    }
    // Several headers: one per line, whose first byte says which.
    let lines = data.split(|&byte| byte == b'\n').take(8);
    let lines = lines.filter_map(|line| {
        let (first, value) = line.split_first()?;
        Some((NAMES[usize::from(*first) % NAMES.len()].clone(), value))
    });
    check(&lines.collect::<Vec<_>>());
});

fn check(lines: &[(HeaderName, &[u8])]) {
    let mut headers = Fields::new();
    for (name, value) in lines {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(name, &value);
        }
    }
    check_decision(&headers);
    check_answer(headers.clone());
    check_dimmer(&mut headers);
    strip_decision(&mut headers);
    for name in [OPTIONAL, LOOKALIKE, DIMMER, DIMMER_2014] {
        assert!(!headers.contains(&name), "{name} is left: {headers:?}");
    }
}

fn check_decision(headers: &Fields) {
    let names: Vec<&str> = headers.iter().filter_map(|(_, value)| value.to_str()).collect();
    let names = names.iter().flat_map(|value| value.split([';', '=', ' '])).take(32);
    let parts: Vec<String> = names.filter(|name| is_part(name)).map(str::to_owned).collect();
    let Some(decision) = decision(headers) else { return };
    assert_eq!(headers.get_all(OPTIONAL).count(), 1, "a repeated one is none");
    if decision.is_full() {
        assert!(parts.iter().all(|part| decision.allows(part)));
    }
    let content = decision.content(&parts);
    let written = write_decision(content, &parts);
    let again = Fields::from_iter([(OPTIONAL, written)]);
    assert!(self::decision(&again).is_some(), "what is written is read");
}

fn check_answer(mut headers: Fields) {
    let said = served(&headers, &[]);
    let had_words = headers.contains(SERVED);
    translate_served(&mut headers);
    if !had_words {
        assert_eq!(served(&headers, &[]), said, "in other words");
    }
    forbid_storing(StatusCode::OK, &mut headers);
    let is_kept = |value: FieldValue<'_>| {
        let value = value.as_bytes().to_ascii_lowercase();
        value.windows(7).any(|part| part == b"private")
            || value.windows(8).any(|part| part == b"no-store")
    };
    assert!(headers.get_all(CACHE_CONTROL).any(is_kept), "{headers:?}");
}

fn check_dimmer(headers: &mut Fields) {
    match take_dimmer(headers) {
        Ok(Some(dimmer)) => {
            let written = write_dimmer(dimmer);
            let read = take_dimmer(&mut Fields::from_iter([(DIMMER, written)]));
            let read = read.expect("it is believed").expect("it is there").value();
            assert!((read - dimmer.value()).abs() <= 0.000_501, "{read} for {dimmer:?}");
        }
        Ok(None) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
