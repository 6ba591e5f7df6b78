//! Datagrams beside another implementation, and beside everything that is none.

use proptest::prelude::*;

use super::*;

/// A key with the bytes 0 to 15 and the number 7.
fn key() -> ProbeKey {
    ProbeKey::of(7, u128::from_be_bytes(std::array::from_fn(|place| place as u8)))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Laid out by the documentation of the module with Python's `struct`, sealed with `AESGCM` of its
/// package `cryptography`.
#[test]
fn datagrams_are_those_of_another_implementation() {
    let report = Feedback {
        queue_length: 6,
        in_service: 4,
        concurrency: Some(8),
        service_time: Some(Duration::from_millis(3)),
        latency: Some(Duration::from_millis(28)),
        arrival_rate: Some(Rate::new(500.0).unwrap()),
        dimmer: Some(Dimmer::new(0.25).unwrap()),
        reported_at: Some(Instant::from_nanos(5_000_000_007)),
    };
    let question = "454b010100000007000000000000010277ce4ce14b50e50b127a4b8dfe869ec9ad69c1c0\
        8ae34371ba4613c69c37990cbd1fdf143ac82407bf3194f9acd2fde6de5280e842b6419f\
        9cf59fd037fc9b4cc8e6ff07e016c77f";
    let answer = "454b01020000000700000000000001023df7cfa8401afd90650266252213a030ae38f9c0\
        aeb5f27f0d142faf5d8c6e57bec009154d3b7a2b5db79e7cd844ac8c15ae3a1284b01da2\
        fce1096e3c2cbe7de7a2d281efe3f813";
    let nothing = "454b01020000000700000000000001035282a153e920c3b262d3a3b9fcd0cf6dca09b952\
        d42287e9cc5495e25ae74496cf25160fcbd21d81cac69e43433d1cfda647464411177a69\
        6e3781a02d1c68883330588afe9f798f";
    let notice = "454b01030000000700000000000001024eccb54f2fb100417a0cef1cd2ea0b2ec7ab76e9\
        d63857378b45a5e5fbd1b416a4aadc7b395cbec3c3c4a81729f8c7d5aff71798c74ef40b\
        f936e9cf2674d20221970be73f192413";
    let key = key();
    let idle = Feedback { service_time: None, ..Feedback::measured(0, 0, Duration::ZERO) };
    assert_eq!(hexadecimal(&key.question(258)), question);
    assert_eq!(hexadecimal(&key.answer(258, &report)), answer);
    assert_eq!(hexadecimal(&key.answer(259, &idle)), nothing);
    assert_eq!(hexadecimal(&key.notice(258, &report)), notice);
    assert_eq!(key.read(&key.notice(258, &report), Kind::Notice), Ok(report));
    assert_eq!(key.wish(258), "00000007 25e9df8746ca1eaa 0000000000000102");
    assert_eq!(key.read(&key.answer(258, &report), Kind::Answer), Ok(report));
    assert_eq!(key.read(&key.answer(259, &idle), Kind::Answer), Ok(idle));
}

fn reports() -> impl Strategy<Value = Feedback> {
    let counts = (0..=COUNT_MAX, 0..=COUNT_MAX, prop::option::of(1..=COUNT_MAX));
    let day = time::nanos(DAY);
    let times =
        (prop::option::of(1..=day), prop::option::of(0..=day), prop::option::of(0..=AT_NANOS_MAX));
    let shares = (prop::option::of(0.0..=1e9), prop::option::of(0.0..=1.0));
    (counts, times, shares).prop_map(|(counts, times, shares)| Feedback {
        queue_length: counts.0,
        in_service: counts.1,
        concurrency: counts.2,
        service_time: times.0.map(Duration::from_nanos),
        latency: times.1.map(Duration::from_nanos),
        reported_at: times.2.map(Instant::from_nanos),
        arrival_rate: shares.0.map(|rate| Rate::new(rate).unwrap()),
        dimmer: shares.1.map(|dimmer| Dimmer::new(dimmer).unwrap()),
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(report in reports(), nonce: u64) {
        let key = key();
        let answer = key.answer(nonce, &report);
        prop_assert_eq!(Envelope::read(&answer, Kind::Answer), Ok(Envelope { key: 7, nonce }));
        prop_assert_eq!(key.read(&answer, Kind::Answer), Ok(report));
        prop_assert!(key.is_authentic(&key.question(nonce)));
    }

    /// Nobody without the key makes a datagram, nor a question into an answer.
    #[test]
    fn a_datagram_with_any_other_bit_is_dropped(
        report in reports(),
        nonce: u64,
        bit in 0..BYTES * 8,
    ) {
        let key = key();
        let (mut question, mut answer) = (key.question(nonce), key.answer(nonce, &report));
        let mut notice = key.notice(nonce, &report);
        for datagram in [&mut question, &mut answer, &mut notice] {
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        let is_read = Envelope::read(&question, Kind::Question).is_ok();
        prop_assert!(!is_read || !key.is_authentic(&question));
        prop_assert!(key.read(&answer, Kind::Answer).is_err());
        prop_assert!(key.read(&notice, Kind::Notice).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for kind in [Kind::Answer, Kind::Notice] {
            let read = key().read(&bytes, kind);
            let is_rejected = matches!(read, Err(Rejected::Malformed | Rejected::Foreign));
            prop_assert!(is_rejected, "{:?}", read);
        }
    }

    #[test]
    fn any_header_is_a_wish_or_none(value in "[ 0-9a-fA-F+-]{0,60}") {
        let value = HeaderValue::from_str(&value).unwrap();
        let mut headers = Fields::from_iter([(NOTICE, value)]);
        let wish = Wish::take(&mut headers);
        prop_assert!(wish.is_none_or(|wish| !key().is_owners(&wish)) && headers.is_empty());
    }

    /// Whoever has the key may still be wrong: what is believed is possible, and is written as it
    /// was read.
    #[test]
    fn impossible_numbers_are_no_report(bytes: [[u8; 8]; 7], present in 0..64_u32) {
        let mut report: [u8; REPORT] = bytes.as_flattened().try_into().unwrap();
        report[..4].copy_from_slice(&present.to_be_bytes());
        let key = key();
        match key.read(&key.seal(Kind::Answer, 1, report), Kind::Answer) {
            Ok(report) => {
                prop_assert_eq!(orca::check(&report), Ok(()));
                let again = key.read(&key.answer(1, &report), Kind::Answer);
                prop_assert_eq!(again, Ok(report));
            }
            Err(rejected) => prop_assert_eq!(rejected, Rejected::Absurd),
        }
    }
}

#[test]
fn what_no_reader_believes_is_written_as_the_nearest_that_it_does() {
    let wild = Feedback {
        concurrency: Some(0),
        latency: Some(Duration::MAX),
        reported_at: Some(Instant::FAR),
        ..Feedback::measured(u32::MAX, u32::MAX, Duration::ZERO)
    };
    let key = key();
    let read = key.read(&key.answer(1, &wild), Kind::Answer).unwrap();
    assert_eq!((read.service_time, read.latency), (Some(Duration::from_nanos(1)), Some(DAY)));
    assert_eq!((read.queue_length, read.concurrency), (COUNT_MAX, Some(1)));
}

#[test]
fn a_question_is_no_answer_and_no_shorter() {
    let key = key();
    let question = key.question(1);
    assert_eq!(key.read(&question, Kind::Answer), Err(Rejected::Malformed));
    let answer = key.answer(1, &Feedback::measured(0, 0, DAY));
    assert_eq!(Envelope::read(&answer, Kind::Question), Err(Rejected::Malformed));
    assert_eq!(question.len(), answer.len());
}

#[test]
fn a_notice_is_no_answer_and_an_answer_no_notice_whatever_their_number() {
    let (key, report) = (key(), Feedback::measured(1, 1, DAY));
    let (mut answer, mut notice) = (key.answer(9, &report), key.notice(9, &report));
    assert_eq!(key.read(&answer, Kind::Notice), Err(Rejected::Malformed));
    assert_eq!(key.read(&notice, Kind::Answer), Err(Rejected::Malformed));
    (answer[3], notice[3]) = (Kind::Notice as u8, Kind::Answer as u8);
    assert_eq!(key.read(&answer, Kind::Notice), Err(Rejected::Foreign));
    assert_eq!(key.read(&notice, Kind::Answer), Err(Rejected::Foreign));
    assert_eq!(answer.len(), notice.len());
}

#[test]
fn a_wish_shows_that_its_sender_has_the_key_and_nothing_else_does() {
    let ((key, words), (other, _)) =
        (ProbeKey::generate(7).unwrap(), ProbeKey::generate(7).unwrap());
    let told = ProbeKey::take(&mut Fields::from_iter([(HEADER, words)])).unwrap();
    let value = told.wish(u64::MAX);
    assert!(value.is_sensitive(), "HTTP/2 does not keep it");
    let take = |value: &str| {
        let value = HeaderValue::from_str(value).unwrap();
        let mut headers = Fields::from_iter([(NOTICE, value)]);
        let wish = Wish::take(&mut headers);
        assert!(headers.is_empty(), "the application never sees it");
        wish
    };
    let words = value.to_str().unwrap();
    let wish = take(words).unwrap();
    assert_eq!((wish.key, wish.number), (7, u64::MAX));
    assert!(key.is_owners(&wish) && !other.is_owners(&wish));
    let nothing = [
        "",
        "00000007",
        &words[..words.len() - 1],
        &format!("{words}0"),
        &format!("{words} 0"),
        &words.replacen(' ', "  ", 1),
        &words.replacen("0000", "+000", 1),
    ];
    for value in nothing {
        assert_eq!(take(value), None, "{value:?}");
    }
    assert_eq!(Wish::take(&mut Fields::new()), None);
}

#[test]
fn a_key_is_told_in_a_header_and_nothing_else_is_one() {
    let (key, words) = ProbeKey::generate(0xbeef).unwrap();
    assert!(words.is_sensitive());
    let mut headers = Fields::from_iter([(HEADER, words.clone())]);
    let told = ProbeKey::take(&mut headers).unwrap();
    assert!(headers.is_empty());
    assert!(told.is_authentic(&key.question(1)));
    let (other, _) = ProbeKey::generate(0xbeef).unwrap();
    assert!(!told.is_authentic(&other.question(1)), "each has its own");
    let words = words.to_str().unwrap();
    let nothing = [
        "",
        "1",
        "1 0000beef",
        &words[..words.len() - 1],
        &format!("{words} "),
        &format!("{words}0"),
        &words.replacen('1', "2", 1),
        &words.replacen(' ', "  ", 1),
        &words.replacen("0000", "+000", 1),
    ];
    for value in nothing {
        let value = HeaderValue::from_str(value).unwrap();
        let mut headers = Fields::from_iter([(HEADER, value.clone())]);
        assert!(ProbeKey::take(&mut headers).is_none(), "{value:?}");
        assert!(headers.is_empty());
    }
}
