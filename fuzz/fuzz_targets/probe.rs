//! Any bytes as a datagram of a probe or a notice, as the report in one that is authentic, and as
//! the headers of both.
//!
//! Promise: a report or a rejection, never a panic; nothing is believed without the key; a
//! report that is believed is possible, and one that is written again is read as the same.

#![no_main]

use evenkeel_http_proxy::datagram::{Envelope, HEADER, Kind, NOTICE, ProbeKey, Wish};
use evenkeel_http::Fields;
use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

const SECRET: [u8; 16] = *b"0123456789abcdef";
const TOLD: &str = "1 00000007 30313233343536373839616263646566";

fuzz_target!(|data: &[u8]| {
    let told = HeaderValue::from_static(TOLD);
    let key = ProbeKey::take(&mut Fields::from_iter([(HEADER, told)])).expect("it is a key");
    for kind in [Kind::Question, Kind::Answer, Kind::Notice] {
        if let (Ok(envelope), Ok(bytes)) = (Envelope::read(data, kind), data.try_into()) {
            let _ = (envelope, key.is_authentic(bytes));
        }
    }
    let value = HeaderValue::from_bytes(data);
    if let Ok(value) = value {
        let mut headers = Fields::from_iter([(HEADER, value.clone()), (NOTICE, value)]);
        let _ = ProbeKey::take(&mut headers);
        let _ = Wish::take(&mut headers);
        assert!(headers.is_empty());
    }
    for kind in [Kind::Answer, Kind::Notice] {
        if let Ok(report) = key.read(data, kind) {
            panic!("{report:?} without the key");
        }
    }
    if let Some(report) = data.first_chunk() {
        check_authentic(&key, *report);
    }
});

/// Sealed by the words of docs/probes.md.
fn check_authentic(key: &ProbeKey, mut report: [u8; 56]) {
    let head = *b"EK\x01\x02\0\0\0\x07\0\0\0\0\0\0\0\x09";
    let nonce = Nonce::assume_unique_for_key(*b"\0\0\0\x02\0\0\0\0\0\0\0\x09");
    let cipher = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &SECRET).expect("16 bytes"));
    let tag = cipher.seal_in_place_separate_tag(nonce, Aad::from(head), &mut report);
    let datagram = [&head[..], &report, tag.expect("it is short").as_ref()].concat();
    if let Ok(believed) = key.read(&datagram, Kind::Answer) {
        let again = key.read(&key.answer(9, &believed), Kind::Answer);
        assert_eq!(again, Ok(believed));
    }
}
