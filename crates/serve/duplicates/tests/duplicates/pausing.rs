//! `CLIENT PAUSE`: beside a Redis, under load, while duplicates die and when the front ends.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::{OverAtEnd, block_until};

use super::beside::{self, blocked};
use super::world::World;
use super::{bulk, ok};

#[test]
fn a_pause_is_as_that_of_redis() {
    let Some(world) = World::start("pauses", 3, |_| {}) else { return };
    beside::compare(
        &world,
        &[
            // What is asked for wrongly.
            &["a: CLIENT PAUSE x", "a: CLIENT PAUSE -1", "a: CLIENT PAUSE 1 SOME", "a: PING"],
            &["a: CLIENT PAUSE", "a: CLIENT UNPAUSE x", "a: PING"],
            &["a: CLIENT PAUSE 0", "a: PING", "a: CLIENT UNPAUSE"],
            // Writes of every kind wait, reads do not.
            &[
                "b: RPUSH %list x",
                "b: CLIENT PAUSE 100000 WRITE",
                "b: LLEN %list",
                "a! SET %k 1",
                "~1",
                "c! PFCOUNT %h",
                "~2",
                "d! PUBLISH %channel x",
                "~3",
                "e! BLPOP %list 0",
                "~4",
                "f! EVAL return(1) 0",
                "~5",
                "h! SET %k",
                "h?",
                "b: GET %k",
                "b: CLIENT UNPAUSE",
                "a?",
                "c?",
                "d?",
                "e?",
                "f?",
                "b: GET %k",
            ],
            // A transaction waits at EXEC if it writes.
            &[
                "a: MULTI",
                "a: SET %k 1",
                "b: MULTI",
                "b: GET %k",
                "c: CLIENT PAUSE 100000 WRITE",
                "a! EXEC",
                "~1",
                "b: EXEC",
                "c: CLIENT UNPAUSE",
                "a?",
                "c: GET %k",
            ],
            // One that pauses is done whole.
            &[
                "a: MULTI",
                "a: SET %k 1",
                "a: CLIENT PAUSE 100000 WRITE",
                "a: SET %k 2",
                "a: EXEC",
                "b! SET %k 3",
                "~1",
                "a: GET %k",
                "a: CLIENT UNPAUSE",
                "b?",
            ],
            // All commands, for a time; who leaves has asked for nothing.
            &["a: CLIENT PAUSE 30", "a! PING", "b! SET %k 1", "b?", "a?"],
            &[
                "a: CLIENT PAUSE 100000 WRITE",
                "b! SET %k 1",
                "~1",
                "b.",
                "~0",
                "a: CLIENT UNPAUSE",
                "a: EXISTS %k",
            ],
            // The longer and the stricter one counts.
            &[
                "a: CLIENT PAUSE 100000 WRITE",
                "a: CLIENT PAUSE 1 WRITE",
                "b! SET %k 1",
                "~1",
                "a: CLIENT UNPAUSE",
                "b?",
            ],
        ],
    );
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// Counts in a loop, until it is told to end; what it was told was done.
fn count(mut client: Client, key: &str, is_over: &AtomicBool, done: &AtomicI64) {
    while !is_over.load(Ordering::Relaxed) {
        match client.ask(&["INCR", key]) {
            Reply::Integer(value) => done.store(value, Ordering::Relaxed),
            other => panic!("{key}: {other:?}"),
        }
    }
}

/// While clients are paused a duplicate is killed, wiped and filled again.
#[test]
fn nothing_changes_while_writes_are_paused_and_each_is_done_once_afterwards() {
    const KEYS: [&str; 4] = ["a", "b", "c", "d"];
    let Some(mut world) = World::start("pauseload", 3, |_| {}) else { return };
    let done: [AtomicI64; 4] = Default::default();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = OverAtEnd(&is_over);
        for (key, done) in KEYS.iter().zip(&done) {
            let client = world.client();
            scope.spawn(|| count(client, key, &is_over, done));
        }
        let counted = || done.iter().map(|it| it.load(Ordering::Relaxed)).sum::<i64>();
        let mut operator = world.client();
        for round in 0..6 {
            let before = counted();
            block_until("they count", || counted() > before + 50);
            assert_eq!(operator.ask(&["CLIENT", "PAUSE", "100000", "WRITE"]), ok());
            let first = operator.ask(&["MGET", "a", "b", "c", "d"]);
            if round == 3 {
                world.redises[1].kill();
                world.redises[1].wipe();
                world.redises[1].start();
                world.wait_live(3, beside::SOON);
            }
            blocked(world.address, KEYS.len());
            assert_eq!(operator.ask(&["MGET", "a", "b", "c", "d"]), first, "round {round}");
            assert_eq!(operator.ask(&["CLIENT", "UNPAUSE"]), ok());
        }
        drop(over);
    });
    world.settle();
    let mut client = world.client();
    for (key, done) in KEYS.iter().zip(&done) {
        assert_eq!(client.ask(&["GET", key]), bulk(&done.load(Ordering::Relaxed).to_string()));
    }
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

#[test]
fn a_front_that_ends_while_clients_are_paused_tells_them_that_nothing_was_done() {
    let Some(mut world) = World::start("pauseend", 2, |_| {}) else { return };
    let [mut operator, mut writer] = [(); 2].map(|()| world.client());
    assert_eq!(operator.ask(&["CLIENT", "PAUSE", "100000", "WRITE"]), ok());
    writer.tell(&["SET", "k", "1"]);
    blocked(world.address, 1);
    let reported = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| world.stop());
        let refused = writer.read();
        assert!(
            matches!(&refused, Reply::Error(text) if text.starts_with("UNAVAILABLE")),
            "{refused:?}"
        );
        assert_eq!(writer.rest(), b"");
    });
    assert!(reported.elapsed() < Duration::from_secs(60), "nobody waits for the pause");
    world.restart();
    assert_eq!(world.client().ask(&["EXISTS", "k"]), Reply::Integer(0));
    assert_eq!(world.client().ask(&["SET", "k", "2"]), ok(), "the next process pauses nobody");
}
