//! Who is answered, without sockets.

use std::collections::BTreeSet;

use http::HeaderMap;
use proptest::prelude::*;

use super::*;
use crate::datagram::HEADER;

const NOW: Instant = Instant::ZERO;

/// A key as a proxy has it.
fn told(keys: &mut Keys, now: Instant) -> ProbeKey {
    let words = keys.add(now).unwrap();
    ProbeKey::take(&mut HeaderMap::from_iter([(HEADER, words)])).unwrap()
}

fn ask(keys: &mut Keys, now: Instant, question: &[u8]) -> Result<[u8; BYTES], Dropped> {
    keys.answer(now, question, || Feedback::measured(0, 0, Duration::ZERO))
}

#[test]
fn who_has_a_key_is_answered_with_that_key() {
    let mut keys = Keys::default();
    let (first, second) = (told(&mut keys, NOW), told(&mut keys, NOW));
    for key in [&second, &first] {
        let report = Feedback::measured(3, 2, Duration::from_millis(5));
        let answer = keys.answer(NOW, &key.question(1), || report).unwrap();
        assert_eq!(key.read_answer(&answer), Ok(report));
        let other = if key.is_authentic(&first.question(1)) { &second } else { &first };
        assert!(other.read_answer(&answer).is_err(), "no proxy reads or makes another's answers");
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
