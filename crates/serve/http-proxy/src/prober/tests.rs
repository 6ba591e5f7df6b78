//! When a proxy asks an agent over which channel, without sockets.

use super::*;

const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_micros(200);

fn key() -> Option<ProbeKey> {
    ProbeKey::generate(1).map(|(key, _)| key)
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn goes_in_a_datagram(line: &AgentLine, now: Instant) -> bool {
    line.question(now, 1).is_some()
}

#[test]
fn a_key_opens_the_channel_and_three_without_an_answer_close_it() {
    let line = AgentLine::default();
    assert!(line.wants_key(at(0)) && !goes_in_a_datagram(&line, at(0)));
    line.learn_key(at(0), key(), RTT);
    assert!(!line.wants_key(at(0)) && goes_in_a_datagram(&line, at(0)));
    line.answered(RTT);
    for _ in 0..2 {
        line.unanswered(at(1));
        line.unanswered(at(1));
        assert!(goes_in_a_datagram(&line, at(1)));
        line.answered(RTT);
    }
    (0..3).for_each(|_| line.unanswered(at(2)));
    assert!(!goes_in_a_datagram(&line, at(2)) && line.wants_key(at(2)), "a restarted agent");
    line.unanswered(at(2)); // of a question on its way meanwhile
    assert!(line.wants_key(at(2)));
}

#[test]
fn notices_are_asked_for_where_a_datagram_was_answered_with_the_key() {
    let line = AgentLine::default();
    assert!(line.wish(1).is_none());
    line.learn_key(at(0), key(), RTT);
    assert!(line.wish(1).is_none(), "the agent does not know the way yet");
    line.answered(RTT);
    assert!(line.wish(1).is_some_and(|one| line.wish(2).is_some_and(|other| one != other)));
    line.learn_key(at(1), key(), RTT);
    assert!(line.wish(3).is_none(), "with this one nothing was answered yet");
    line.answered(RTT);
    (0..3).for_each(|_| line.unanswered(at(2)));
    assert!(line.wish(4).is_none());
}

#[test]
fn where_nothing_gets_through_keys_are_asked_for_ever_more_rarely() {
    let line = AgentLine::default();
    let mut now = at(0);
    let mut waits = Vec::new();
    for _ in 0..9 {
        assert!(line.wants_key(now));
        line.learn_key(now, key(), RTT);
        (0..3).for_each(|_| line.unanswered(now));
        let began = now;
        while !line.wants_key(now) {
            assert!(!goes_in_a_datagram(&line, now));
            now += 500 * MS;
        }
        waits.push(now.since(began).as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    line.learn_key(now, key(), RTT);
    line.answered(RTT);
    (0..3).for_each(|_| line.unanswered(now));
    assert!(line.wants_key(now), "one answer, and nothing stands in the way");
}

#[test]
fn a_key_is_replaced_in_time_and_an_agent_without_one_asked_again() {
    let line = AgentLine::default();
    line.learn_key(at(0), key(), RTT);
    let before = Instant::ZERO + (KEY_RENEWED - MS);
    assert!(goes_in_a_datagram(&line, before) && !line.wants_key(before));
    let then = Instant::ZERO + KEY_RENEWED;
    assert!(line.wants_key(then) && !goes_in_a_datagram(&line, then));
    line.learn_key(then, None, RTT);
    assert!(!line.wants_key(then) && !goes_in_a_datagram(&line, then), "an agent without UDP");
    assert!(line.wants_key(then + KEY_ABSENT));
}

#[test]
fn an_answer_is_waited_for_by_the_round_trip_within_bounds() {
    let line = AgentLine::default();
    let patience = || line.question(at(1), 1).unwrap().1;
    line.learn_key(at(0), key(), RTT);
    assert_eq!(patience(), PATIENCE_MIN);
    line.learn_key(at(0), key(), 8 * MS);
    assert_eq!(patience(), 32 * MS);
    (0..100).for_each(|_| line.answered(20 * MS));
    assert!((79 * MS..=80 * MS).contains(&patience()), "{:?}", patience());
    line.learn_key(at(0), key(), 500 * MS);
    assert_eq!(patience(), PATIENCE_MAX);
}
