//! Who is answered, without sockets.

use std::collections::BTreeSet;

use evenkeel_http::Fields;
use proptest::prelude::*;

use super::*;
use crate::datagram::{HEADER, NOTICE};
use evenkeel_runtime::accept::worker_runtime;

const NOW: Instant = Instant::ZERO;

/// Where a proxy is.
fn proxy(port: u16) -> SocketAddr {
    (std::net::Ipv4Addr::LOCALHOST, port).into()
}

/// A key as a proxy has it.
fn told(keys: &mut Keys, now: Instant) -> ProbeKey {
    let words = keys.add(now).unwrap();
    ProbeKey::take(&mut Fields::from_iter([(HEADER, words)])).unwrap()
}

fn ask(keys: &mut Keys, now: Instant, question: &[u8]) -> Result<[u8; BYTES], Dropped> {
    keys.answer(now, (question, proxy(1)), || Feedback::measured(0, 0, Duration::ZERO))
}

#[test]
fn who_has_a_key_is_answered_with_that_key() {
    let mut keys = Keys::default();
    let (first, second) = (told(&mut keys, NOW), told(&mut keys, NOW));
    for key in [&second, &first] {
        let report = Feedback::measured(3, 2, Duration::from_millis(5));
        let answer = keys.answer(NOW, (&key.question(1), proxy(1)), || report).unwrap();
        assert_eq!(key.read(&answer, Kind::Answer), Ok(report));
        let other = if key.is_authentic(&first.question(1)) { &second } else { &first };
        assert!(
            other.read(&answer, Kind::Answer).is_err(),
            "no proxy reads or makes another's answers"
        );
    }
}

#[test]
fn a_key_of_before_a_restart_or_too_old_is_foreign() {
    let mut keys = Keys::default();
    let before = told(&mut Keys::default(), NOW);
    let key = told(&mut keys, NOW);
    assert_eq!(ask(&mut keys, NOW, &before.question(1)), Err(Dropped::Foreign));
    let last = NOW + (KEY_LIFE - Duration::from_nanos(1));
    assert!(ask(&mut keys, last, &key.question(1)).is_ok());
    assert_eq!(ask(&mut keys, NOW + KEY_LIFE, &key.question(2)), Err(Dropped::Foreign));
    let next = told(&mut keys, NOW + KEY_LIFE);
    assert_eq!(keys.told.len(), 1, "it is forgotten");
    assert!(ask(&mut keys, NOW + KEY_LIFE, &next.question(1)).is_ok());
}

#[test]
fn of_too_many_keys_the_oldest_go() {
    let mut keys = Keys { first: u32::MAX - 5, ..Keys::default() }; // numbers begin anew
    let all: Vec<ProbeKey> = (0..KEYS_MAX + 10).map(|_| told(&mut keys, NOW)).collect();
    assert_eq!(keys.told.len(), KEYS_MAX);
    for (place, key) in all.iter().enumerate() {
        let answered = ask(&mut keys, NOW, &key.question(1)).is_ok();
        assert_eq!(answered, place >= 10, "key {place}");
    }
}

#[test]
fn what_is_no_question_gets_no_answer() {
    let mut keys = Keys::default();
    let key = told(&mut keys, NOW);
    let mut question = key.question(1).to_vec();
    let report = Feedback::measured(0, 0, Duration::ZERO);
    for wrong in
        [&question[..BYTES - 1], &[&question[..], b"x"].concat(), b"", &key.answer(1, &report)]
    {
        assert_eq!(ask(&mut keys, NOW, wrong), Err(Dropped::Malformed));
    }
    question[2] = 2; // another version
    assert_eq!(ask(&mut keys, NOW, &question), Err(Dropped::Malformed));
    question[2] = 1;
    question[BYTES - 1] ^= 1; // a forged tag
    assert_eq!(ask(&mut keys, NOW, &question), Err(Dropped::Foreign));
    assert!(ask(&mut keys, NOW, &key.question(1)).is_ok(), "the nonce is not used up by a forgery");
}

proptest! {
    /// Beside a book of all that came: nothing is answered twice, and whatever is within 63 of the
    /// largest is answered once, in any order.
    #[test]
    fn no_question_is_answered_twice(
        nonces in prop::collection::vec(0..300_u64, 1..300),
        base: u32,
    ) {
        let mut keys = Keys::default();
        let key = told(&mut keys, NOW);
        let (mut came, mut largest) = (BTreeSet::new(), 0);
        for nonce in nonces {
            let nonce = u64::from(base) + nonce + 1;
            let answered = ask(&mut keys, NOW, &key.question(nonce)).is_ok();
            let is_new = !came.contains(&nonce) && nonce + 63 >= largest;
            prop_assert_eq!(answered, is_new, "{} after {}", nonce, largest);
            came.insert(nonce);
            largest = largest.max(nonce);
        }
    }
}

/// A wish as an agent reads it.
fn wish(key: &ProbeKey, number: u64) -> Wish {
    Wish::take(&mut Fields::from_iter([(NOTICE, key.wish(number))])).unwrap()
}

#[test]
fn a_notice_goes_to_who_has_the_key_where_it_asked_from_last() {
    let mut keys = Keys::default();
    let (key, other) = (told(&mut keys, NOW), told(&mut keys, NOW));
    let to = |keys: &mut Keys, now, key: &ProbeKey| keys.owner(now, &wish(key, 1)).map(|it| it.1);
    assert_eq!(to(&mut keys, NOW, &key), None, "nobody knows where that is");
    let answer = |keys: &mut Keys, question: [u8; BYTES], port| {
        let report = || Feedback::measured(0, 0, Duration::ZERO);
        keys.answer(NOW, (&question, proxy(port)), report).is_ok()
    };
    assert!(answer(&mut keys, key.question(1), 1) && answer(&mut keys, other.question(1), 2));
    assert_eq!(to(&mut keys, NOW, &key), Some(proxy(1)));
    assert_eq!(to(&mut keys, NOW, &other), Some(proxy(2)), "each to its own");
    assert!(!answer(&mut keys, key.question(1), 3), "come before, from a stranger");
    let mut forged = key.question(2);
    forged[BYTES - 1] ^= 1;
    assert!(!answer(&mut keys, forged, 3));
    assert_eq!(to(&mut keys, NOW, &key), Some(proxy(1)));
    assert!(answer(&mut keys, key.question(2), 4));
    assert_eq!(to(&mut keys, NOW, &key), Some(proxy(4)));
    let before = told(&mut Keys::default(), NOW); // of before a restart: the same number
    assert_eq!(to(&mut keys, NOW, &before), None);
    assert_eq!(to(&mut keys, NOW + KEY_LIFE, &key), None, "it is too old");
}

proptest! {
    /// Beside a book of all that came: of no request two notices are given, and of one that is
    /// larger than all but the last 63 of them one always is.
    #[test]
    fn no_request_has_two_notices(
        numbers in prop::collection::vec(0..400_u64, 1..400),
        base: u32,
    ) {
        let mut notified = Notified::default();
        let mut given = BTreeSet::new();
        for number in numbers {
            let number = u64::from(base) + number;
            let is_new = notified.is_new(number);
            let is_recent = given.range(number..).count() < NUMBERS_KEPT;
            prop_assert!(!is_new || !given.contains(&number), "{} twice", number);
            prop_assert!(is_new || given.contains(&number) || !is_recent, "{} left out", number);
            prop_assert!(notified.numbers.len() <= NUMBERS_KEPT);
            if is_new {
                given.insert(number);
            }
        }
    }
}

#[test]
fn notices_have_a_rate() {
    worker_runtime().unwrap().block_on(async {
        let questions = Questions::new();
        let here = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
        questions.socket.replace(Some(Rc::new(Datagrams::at(here).unwrap())));
        let key = told(&mut questions.keys.borrow_mut(), NOW);
        let proxy = std::net::UdpSocket::bind(here).unwrap().local_addr().unwrap();
        questions.keys.borrow_mut().holding(NOW, 0).unwrap().from = Some(proxy);
        let report = || Feedback::measured(1, 1, Duration::from_millis(1));
        let counts = || (questions.counts().notices, questions.counts().notices_left_out);
        let most = NOTICES_BURST as u64;
        (0..2 * most).for_each(|number| questions.notify(NOW, &wish(&key, number), report));
        assert_eq!(counts(), (most, most));
        let later = NOW + Duration::from_millis(10);
        (0..200).for_each(|number| questions.notify(later, &wish(&key, 9_000 + number), report));
        assert_eq!(counts(), (most + 100, most + 100), "ten thousand a second");
        let again = NOW + Duration::from_secs(1);
        questions.notify(again, &wish(&key, 9_000), report);
        assert_eq!(counts().0, most + 100, "of a request there is one");
        questions.socket.take();
        questions.notify(again, &wish(&key, 99_000), report);
        assert_eq!(counts(), (most + 100, most + 100), "who does not answer does not tell");
    });
}

#[test]
fn a_nonce_far_ahead_forgets_those_before() {
    let mut seen = Seen::default();
    for (nonce, is_new) in [(1, true), (u64::MAX, true), (u64::MAX, false), (1, false), (2, false)]
    {
        assert_eq!(seen.is_new(nonce), is_new, "{nonce}");
    }
    let mut seen = Seen::default();
    assert!(seen.is_new(64) && seen.is_new(128) && !seen.is_new(64) && seen.is_new(65));
}
