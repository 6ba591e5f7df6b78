//! Commands that wait: beside a Redis, and while duplicates die and stand still.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::{AtEnd, block_until};

use super::beside::{self, blocked};
use super::bulk;
use super::world::World;

#[test]
fn lists_that_are_waited_for_are_as_those_of_redis() {
    let Some(world) = World::start("waitlists", 3, |_| {}) else { return };
    beside::compare(
        &world,
        &[
            // Something is there, nothing comes, something comes.
            &["b: RPUSH %k x y", "a: BLPOP %l %k 0", "a: BRPOP %k 0", "a: EXISTS %k"],
            &["a: BLPOP %k 0.01", "a: BRPOP %k %l 0.01", "a: BLMPOP 0.01 2 %k %l LEFT"],
            &["a: BLMOVE %k %l LEFT RIGHT 0.01", "a: BRPOPLPUSH %k %l 0.01"],
            &["a! BLPOP %k 0", "~1", "b: RPUSH %k x y", "a?", "b: LRANGE %k 0 -1"],
            &["a! BRPOP %l %k 0", "~1", "b: RPUSH %k x y", "a?", "b: LRANGE %k 0 -1"],
            &["a! BLMPOP 0 2 %l %k LEFT COUNT 2", "~1", "b: RPUSH %k x y z", "a?", "b: LLEN %k"],
            // In the order in which they began, and as many as there is something for.
            &[
                "a! BLPOP %k 0",
                "~1",
                "c! BRPOP %k 0",
                "~2",
                "d! BLPOP %k %l 0",
                "~3",
                "b: RPUSH %k 1",
                "a?",
                "b: RPUSH %k 2 3 4",
                "c?",
                "d?",
                "b: LRANGE %k 0 -1",
            ],
            // From one list to another, on which somebody waits.
            &["a! BLMOVE %k %l LEFT RIGHT 0", "~1", "b: RPUSH %k x", "a?", "b: LRANGE %l 0 -1"],
            &["a! BRPOPLPUSH %k %l 0", "~1", "b: RPUSH %k x y", "a?", "b: LRANGE %l 0 -1"],
            &[
                "a! BLMOVE %k %l LEFT RIGHT 0",
                "~1",
                "c! BLPOP %l 0",
                "~2",
                "b: LPUSH %k x",
                "a?",
                "c?",
            ],
            &[
                "a! BLMOVE %k %l LEFT LEFT 0",
                "~1",
                "c! BLMOVE %l %k LEFT LEFT 0",
                "~2",
                "b: LPUSH %k x",
                "a?",
                "c?",
                "b: LRANGE %k 0 -1",
            ],
            // A destination that is no list, a key that was another one meanwhile.
            &[
                "b: SET %l 1",
                "a! BLMOVE %k %l LEFT LEFT 0",
                "~1",
                "b: RPUSH %k x",
                "a?",
                "b: LLEN %k",
            ],
            &["a! BLPOP %k %l 0", "~1", "b: ZADD %k 1 x", "b: RPUSH %l y", "a?", "b: DEL %k"],
            &["a! BLPOP %k 0", "~1", "b: SET %k 1", "b: DEL %k", "b: RPUSH %k y", "a?"],
            // What fills: transactions, whole, and other names.
            &[
                "a! BLPOP %k 0",
                "~1",
                "b: MULTI",
                "b: RPUSH %k x y",
                "b: LPUSH %k z",
                "b: EXEC",
                "a?",
                "b: LRANGE %k 0 -1",
            ],
            &[
                "a! BLPOP %k 0",
                "~1",
                "b: MULTI",
                "b: RPUSH %k x",
                "b: DEL %k",
                "b: EXEC",
                "b: RPUSH %k later",
                "a?",
            ],
            &["b: RPUSH %l x", "a! BLPOP %k 0", "~1", "b: RENAME %l %k", "a?", "b: EXISTS %k"],
            &["b: RPUSH %l x", "a! BLPOP %k 0", "~1", "b: COPY %l %k", "a?", "b: EXISTS %k"],
            &["b: RPUSH %l 2 1", "a! BLPOP %k 0", "~1", "b: SORT %l STORE %k", "a?", "b: LLEN %k"],
            &[
                "b: RPUSH %l x",
                "a! BLPOP %k 0",
                "~1",
                "b: LMOVE %l %k LEFT LEFT",
                "a?",
                "b: LLEN %l",
            ],
            // In a transaction nobody waits.
            &[
                "a: MULTI",
                "a: BLPOP %k 0",
                "a: BLMOVE %k %l LEFT LEFT 0",
                "a: BZPOPMIN %k 0",
                "a: BZMPOP 0 1 %k MIN",
                "a: XREAD BLOCK 0 STREAMS %k 0",
                "a: RPUSH %k x y",
                "a: BLPOP %k 0",
                "a: EXEC",
            ],
            // What was sent behind waits too; who leaves is not served.
            &["a! BLPOP %k 0", "~1", "a! PING", "a! LLEN %k", "b: RPUSH %k x y", "a?", "a?", "a?"],
            &["a! BLPOP %k 0", "~1", "a.", "~0", "b: RPUSH %k x", "b: LLEN %k"],
            &["a! BLPOP %k 0", "~1", "c! BLPOP %k 0", "~2", "a.", "~1", "b: RPUSH %k x", "c?"],
            // Errors.
            &["b: SET %k 1", "a: BLPOP %k 0", "a: BLPOP %l %k 0", "a: BLMOVE %k %l LEFT LEFT 0"],
            &["a: BLPOP %k x", "a: BLPOP %k -1", "a: BLPOP %k 1e300", "a: BLPOP %k"],
            &["a: BLMPOP 0 0 %k LEFT", "a: BLMPOP 0 1 %k UP", "a: BLMPOP 0 1 %k LEFT COUNT 0"],
            &["a: BLMOVE %k %l UP LEFT 0", "a: BLMOVE %k %l LEFT LEFT x"],
        ],
    );
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

#[test]
fn what_cannot_be_moved_is_for_the_next_one() {
    let Some(world) = World::start("waitmoves", 3, |_| {}) else { return };
    let script = &[
        "b: SET %l 1",
        "a! BLMOVE %k %l LEFT LEFT 0",
        "~1",
        "c! BLPOP %k 0",
        "~2",
        "b: RPUSH %k x",
        "a?",
        "c?",
        "b: LLEN %k",
    ];
    beside::compare(&world, &[script]);
}

#[test]
fn sorted_sets_and_streams_that_are_waited_for_are_as_those_of_redis() {
    let Some(world) = World::start("waitothers", 3, |_| {}) else { return };
    beside::compare(
        &world,
        &[
            &["b: ZADD %k 1 x 2.5 y", "a: BZPOPMIN %l %k 0", "a: BZPOPMAX %k 0", "a: EXISTS %k"],
            &["a: BZPOPMIN %k 0.01", "a: BZPOPMAX %k 0.01", "a: BZMPOP 0.01 1 %k MIN"],
            &["a! BZPOPMAX %l %k 0", "~1", "b: ZADD %k 1.5 x 2 y", "a?", "b: ZCARD %k"],
            &["a! BZMPOP 0 1 %k MIN COUNT 2", "~1", "b: ZADD %k 1 x 2 y 3 z", "a?", "b: ZCARD %k"],
            &["a! BZPOPMIN %k 0", "~1", "b: ZINCRBY %k 3 x", "a?"],
            &["b: ZADD %l 1 x", "a! BZPOPMIN %k 0", "~1", "b: ZUNIONSTORE %k 1 %l", "a?"],
            &["b: ZADD %l 1 x", "a! BZPOPMIN %k 0", "~1", "b: ZRANGESTORE %k %l 0 -1", "a?"],
            &["a! BZPOPMIN %k 0", "~1", "b: GEOADD %k 1 1 x", "a?"],
            &["a! BZPOPMIN %k 0", "~1", "b: RPUSH %k x", "b: DEL %k", "b: ZADD %k 1 y", "a?"],
            // Streams: what is there, what comes, all who read.
            &[
                "b: XADD %k 1-1 f v",
                "a: XREAD BLOCK 0 STREAMS %k 0",
                "a: XREAD BLOCK 9 STREAMS %k 1",
            ],
            &["a! XREAD BLOCK 0 STREAMS %k $", "~1", "b: XADD %k 5-1 f v", "a?"],
            &[
                "b: XADD %k 5-1 f v",
                "a! XREAD COUNT 1 BLOCK 0 STREAMS %l %k 0 $",
                "~1",
                "c! XREAD BLOCK 0 STREAMS %k $",
                "~2",
                "b: XADD %k 5-2 f w",
                "a?",
                "c?",
            ],
            &[
                "a! XREAD BLOCK 0 STREAMS %k 5",
                "~1",
                "b: XADD %k 2-1 f v",
                "b: XADD %k 6-1 f v",
                "a?",
            ],
            &["b: SET %k 1", "a: XREAD BLOCK 9 STREAMS %k $", "a: XREAD BLOCK 9 STREAMS %k 0"],
            &["a: XREAD BLOCK x STREAMS %k 0", "a: XREAD BLOCK -1 STREAMS %k 0"],
            &["a: XREAD BLOCK 1 STREAMS %k", "a: XREAD BLOCK 1 STREAMS %k x"],
        ],
    );
}

#[test]
fn who_waits_is_ended_by_another_client() {
    let Some(world) = World::start("unblock", 3, |_| {}) else { return };
    for address in [world.redises[0].address, world.address] {
        let (mut waiting, mut other) = (Client::connect(address), Client::connect(address));
        let Reply::Integer(id) = waiting.ask(&["CLIENT", "ID"]) else { panic!("no id") };
        let id = id.to_string();
        assert_eq!(other.ask(&["CLIENT", "UNBLOCK", &id]), Reply::Integer(0));
        for (reason, expected) in [
            (&["TIMEOUT"][..], Reply::Null),
            (&[], Reply::Null),
            (&["error"], Reply::Error("UNBLOCKED client unblocked via CLIENT UNBLOCK".to_owned())),
        ] {
            waiting.tell(&["BLPOP", "nothing", "0"]);
            blocked(address, 1);
            let words: Vec<&str> =
                ["CLIENT", "UNBLOCK", &id].into_iter().chain(reason.iter().copied()).collect();
            assert_eq!(other.ask(&words), Reply::Integer(1), "{address}");
            assert_eq!(waiting.read(), expected, "{address}");
        }
        let wrong = |client: &mut Client, words: &[&str]| match client.ask(words) {
            Reply::Error(text) => text,
            other => panic!("{other:?}"),
        };
        let text = wrong(&mut other, &["CLIENT", "UNBLOCK", &id, "WHAT"]);
        assert_eq!(text, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        let text = wrong(&mut other, &["CLIENT", "UNBLOCK", "x"]);
        assert_eq!(text, "ERR value is not an integer or out of range");
    }
}

#[test]
fn time_is_over_when_it_is_and_not_before() {
    let Some(world) = World::start("waittime", 1, |_| {}) else { return };
    let mut client = world.client();
    for seconds in ["0.3", "0.05"] {
        let begun = Instant::now();
        assert_eq!(client.ask(&["BLPOP", "k", seconds]), Reply::Null);
        let least: f64 = seconds.parse().unwrap();
        assert!(begun.elapsed() >= Duration::from_secs_f64(least), "{:?}", begun.elapsed());
    }
}

#[test]
fn a_front_that_ends_tells_who_waits() {
    let Some(mut world) = World::start("waitend", 2, |_| {}) else { return };
    let mut waiting = world.client();
    waiting.tell(&["BLPOP", "k", "0"]);
    blocked(world.address, 1);
    world.stop();
    let told = waiting.read();
    assert!(matches!(&told, Reply::Error(text) if text.starts_with("UNAVAILABLE")), "{told:?}");
}

#[test]
fn who_waits_goes_on_while_all_duplicates_are_away() {
    let Some(mut world) = World::start("waitaway", 2, |_| {}) else { return };
    let mut waiting = world.client();
    waiting.tell(&["BLPOP", "k", "0"]);
    blocked(world.address, 1);
    let mut reading = world.client();
    reading.tell(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]);
    blocked(world.address, 2);
    world.redises.iter_mut().for_each(evenkeel_testkit::redis::Redis::kill);
    block_until("they are away", || world.live() == 0);
    let refused = world.client().ask(&["BLPOP", "k", "0"]);
    assert!(matches!(&refused, Reply::Error(it) if it.starts_with("UNAVAILABLE")), "{refused:?}");
    world.redises.iter_mut().for_each(evenkeel_testkit::redis::Redis::start);
    world.wait_live(2, beside::SOON);
    assert_eq!(world.client().ask(&["RPUSH", "k", "x"]), Reply::Integer(1));
    assert_eq!(waiting.read(), Reply::Array(vec![bulk("k"), bulk("x")]));
    world.client().ask(&["XADD", "s", "7-1", "f", "v"]);
    assert!(matches!(reading.read(), Reply::Array(_)));
}

#[test]
fn what_is_pushed_is_popped_once_while_duplicates_die_and_stand_still() {
    const ROUNDS: usize = 6;
    let Some(mut world) = World::start("waithistory", 3, |config| {
        config.members.silence_max = Duration::from_millis(300);
    }) else {
        return;
    };
    let (rounds, popped, unknown) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let address = world.address;
    let (pushed, taken) = std::thread::scope(|scope| {
        let (rounds, popped, unknown) = (&rounds, &popped, &unknown);
        let _over = AtEnd(|| rounds.store(ROUNDS, Ordering::Relaxed));
        let pushing = |number: usize| {
            move || {
                let (mut client, mut pushed) = (Client::connect(address), Vec::new());
                let mut count = 0;
                while rounds.load(Ordering::Relaxed) < ROUNDS {
                    count += 1;
                    let item = format!("{number}.{count}");
                    let queue = ["{q}1", "{q}2"][count % 2];
                    match client.ask(&["RPUSH", queue, &item]) {
                        Reply::Integer(_) => pushed.push(item),
                        // It may be found or not.
                        Reply::Error(text) => assert!(text.starts_with("UN"), "{text}"),
                        other => panic!("{other:?}"),
                    }
                    if popped.load(Ordering::Relaxed) + 50 < pushed.len() as u64 {
                        std::thread::yield_now();
                    }
                }
                pushed
            }
        };
        let popping = |number: usize| {
            move || {
                let (mut client, mut taken) = (Client::connect(address), Vec::new());
                let pops: [&[&str]; 4] = [
                    &["BLPOP", "{q}1", "{q}2", "0.2"],
                    &["BRPOP", "{q}2", "0.2"],
                    &["BLMOVE", "{q}1", "{q}done", "LEFT", "RIGHT", "0.2"],
                    &["BLMPOP", "0.2", "2", "{q}2", "{q}1", "LEFT", "COUNT", "3"],
                ];
                let mut is_last = false;
                loop {
                    let before = taken.len();
                    match client.ask(pops[number]) {
                        Reply::Array(mut parts) => match parts.pop().unwrap() {
                            Reply::Array(items) => taken.extend(items),
                            item => taken.push(item),
                        },
                        Reply::Bulk(item) => taken.push(Reply::Bulk(item)),
                        Reply::Null if is_last => return taken,
                        Reply::Null => is_last = rounds.load(Ordering::Relaxed) == ROUNDS,
                        Reply::Error(text) => {
                            assert!(text.starts_with("UN"), "{text}");
                            unknown.fetch_add(1, Ordering::Relaxed);
                        }
                        other => panic!("{other:?}"),
                    }
                    popped.fetch_add((taken.len() - before) as u64, Ordering::Relaxed);
                }
            }
        };
        let pushing: Vec<_> = (0..3).map(|number| scope.spawn(pushing(number))).collect();
        let popping: Vec<_> = (0..4).map(|number| scope.spawn(popping(number))).collect();
        for round in 0..ROUNDS {
            let goes_on = |what| {
                let before = popped.load(Ordering::Relaxed);
                block_until(what, || popped.load(Ordering::Relaxed) > before + 50);
            };
            goes_on("there are pops");
            let redis = &mut world.redises[round % 3];
            if round % 2 == 0 {
                redis.kill();
                goes_on("two go on");
                world.redises[round % 3].start();
            } else {
                redis.program.signal("-STOP");
                goes_on("two go on");
                world.redises[round % 3].program.signal("-CONT");
            }
            world.wait_live(3, beside::SOON);
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        let pushed: Vec<String> = pushing.into_iter().flat_map(|it| it.join().unwrap()).collect();
        let taken: Vec<Reply> = popping.into_iter().flat_map(|it| it.join().unwrap()).collect();
        (pushed, taken)
    });
    world.settle();
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    let mut client = world.client();
    let mut count = |item: &Reply| {
        *times.entry(item.text().unwrap().to_owned()).or_default() += 1;
    };
    taken.iter().for_each(&mut count);
    for queue in ["{q}1", "{q}2"] {
        let Reply::Array(left) = client.ask(&["LRANGE", queue, "0", "-1"]) else { panic!() };
        left.iter().for_each(&mut count);
    }
    let twice: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "popped twice: {twice:?}");
    let lost = pushed.iter().filter(|item| !times.contains_key(*item)).count() as u64;
    let unknown = unknown.load(Ordering::Relaxed);
    println!("{} pushed, {} popped, {lost} lost, {unknown} unknown", pushed.len(), taken.len());
    assert!(lost <= 3 * unknown, "{lost} lost, {unknown} pops without an answer");
    assert!(!taken.is_empty());
    assert_eq!(world.states().len(), 1, "duplicates differ");
}
