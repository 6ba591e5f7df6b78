//! `WATCH`: beside a Redis, and while duplicates die and stand still.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::{AtEnd, block_until};

use super::beside;
use super::world::World;
use super::{bulk, ok};

#[test]
fn watched_transactions_answer_as_those_of_redis() {
    let Some(world) = World::start("watch", 3, |_| {}) else { return };
    beside::compare(
        &world,
        &[
            // Nothing changes, another changes it, it is changed by its own client.
            &["a: WATCH %k", "a: MULTI", "a: SET %k 1", "a: EXEC", "a: GET %k"],
            &["a: WATCH %k", "b: SET %k 1", "a: MULTI", "a: SET %k 2", "a: EXEC", "a: GET %k"],
            &["a: WATCH %k", "a: SET %k 1", "a: MULTI", "a: GET %k", "a: EXEC"],
            &["a: WATCH %k %l", "b: LPUSH %l 1", "a: MULTI", "a: GET %k", "a: EXEC"],
            &["a: WATCH %k", "b: SET %l 1", "a: MULTI", "a: GET %k", "a: EXEC"],
            // Within the transaction of another, and by commands of several keys.
            &["a: WATCH %k", "b: MULTI", "b: INCR %k", "b: EXEC", "a: MULTI", "a: EXEC"],
            &["a: WATCH %k", "b: MSET %l 1 %k 1", "a: MULTI", "a: EXEC"],
            &["b: SET %l 1", "a: WATCH %k", "b: RENAME %l %k", "a: MULTI", "a: EXEC"],
            // EXEC, DISCARD, UNWATCH and RESET forget.
            &["a: WATCH %k", "a: MULTI", "a: EXEC", "b: SET %k 1", "a: MULTI", "a: EXEC"],
            &["a: WATCH %k", "b: SET %k 1", "a: MULTI", "a: DISCARD", "a: MULTI", "a: EXEC"],
            &["a: WATCH %k", "b: SET %k 1", "a: UNWATCH", "a: MULTI", "a: EXEC"],
            &["a: WATCH %k", "b: SET %k 1", "a: RESET", "a: MULTI", "a: EXEC"],
            // Twice, nested, and with an error beside.
            &["a: WATCH %k", "b: SET %k 1", "a: WATCH %k", "a: MULTI", "a: EXEC"],
            &["a: MULTI", "a: WATCH %k", "a: SET %k 1", "a: EXEC"],
            &["a: WATCH %k", "b: SET %k 1", "a: MULTI", "a: SET %k", "a: EXEC"],
            &["a: WATCH", "a: UNWATCH x", "a: UNWATCH"],
            // What expires later, and what does not exist.
            &["a: SET %k 1 EX 1000", "a: WATCH %k", "a: MULTI", "a: GET %k", "a: EXEC"],
            &["a: WATCH %k", "b: SET %k 1", "b: DEL %k", "a: MULTI", "a: EXEC"],
            &["a: WATCH %k", "b: EXPIRE %k 100", "b: SET %k 1", "a: MULTI", "a: EXEC"],
        ],
    );
}

#[test]
fn a_watched_key_that_expires_is_changed() {
    let Some(world) = World::start("watchexpiry", 3, |_| {}) else { return };
    for address in [world.address, world.redises[0].address] {
        let (mut watching, mut other) = (Client::connect(address), Client::connect(address));
        assert_eq!(watching.ask(&["SET", "direct", "1", "PX", "400"]), ok());
        assert_eq!(watching.ask(&["WATCH", "direct"]), ok());
        assert_eq!(watching.ask(&["GET", "direct"]), bulk("1"));
        block_until("it is gone", || other.ask(&["EXISTS", "direct"]) == Reply::Integer(0));
        watching.ask(&["MULTI"]);
        watching.ask(&["SET", "direct", "2"]);
        assert_eq!(watching.ask(&["EXEC"]), Reply::Null, "{address}");
        // What is not there any more is not watched for that.
        assert_eq!(watching.ask(&["WATCH", "direct"]), ok());
        watching.ask(&["MULTI"]);
        assert_eq!(watching.ask(&["EXEC"]), Reply::Array(vec![]), "{address}");
    }
}

#[test]
fn a_client_that_leaves_watches_nothing_and_too_many_keys_are_refused() {
    let Some(world) = World::start("watchmany", 1, |_| {}) else { return };
    let mut client = world.client();
    let keys: Vec<String> = (0..1_100).map(|n| format!("k{n}")).collect();
    let many: Vec<&str> = std::iter::once("WATCH").chain(keys.iter().map(|it| &**it)).collect();
    let refused = client.ask(&many);
    assert!(matches!(&refused, Reply::Error(text) if text.contains("1024 keys")), "{refused:?}");
    assert_eq!(client.ask(&many[..1_001]), ok());
    assert_eq!(client.ask(&["PING"]), Reply::Simple("PONG".to_owned()));
    drop(client);
    let mut other = world.client();
    assert_eq!(other.ask(&["SET", "k1", "1"]), ok());
    assert_eq!(other.ask(&["WATCH", "evenkeel:epoch"]), {
        Reply::Error("ERR keys that begin with 'evenkeel:' are Evenkeel's own".to_owned())
    });
}

/// One increment by compare and set; whether it was done (`None`: nobody knows).
fn increment(client: &mut Client, key: &str) -> std::io::Result<Option<bool>> {
    if client.try_ask(&["WATCH", key])? != ok() {
        return Ok(Some(false));
    }
    let before: u64 = match client.try_ask(&["GET", key])? {
        Reply::Bulk(text) => String::from_utf8(text).unwrap().parse().unwrap(),
        Reply::Null => 0,
        _ => {
            client.try_ask(&["UNWATCH"])?;
            return Ok(Some(false));
        }
    };
    client.try_ask(&["MULTI"])?;
    client.try_ask(&["SET", key, &(before + 1).to_string()])?;
    Ok(match client.try_ask(&["EXEC"])? {
        Reply::Array(_) => Some(true),
        Reply::Null => Some(false),
        Reply::Error(text) if text.starts_with("UNCERTAIN") => None,
        Reply::Error(_) => Some(false),
        other => panic!("{other:?}"),
    })
}

#[test]
fn every_commit_counts_once_while_duplicates_die_and_stand_still() {
    const COUNTERS: usize = 3;
    let Some(mut world) = World::start("watchhistory", 3, |config| {
        config.members.silence_max = std::time::Duration::from_millis(300);
    }) else {
        return;
    };
    let done: [AtomicU64; COUNTERS] = Default::default();
    let unknown: [AtomicU64; COUNTERS] = Default::default();
    let (faults, aborted) = (AtomicUsize::new(0), AtomicU64::new(0));
    let address = world.address;
    std::thread::scope(|scope| {
        let _over = AtEnd(|| faults.store(6, Ordering::Relaxed));
        for number in 0..6_usize {
            let (done, unknown, faults, aborted) = (&done, &unknown, &faults, &aborted);
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let level = ["eventual", "read-my-own-writes", "strong"][number % 3];
                assert_eq!(client.ask(&["EK.SESSION", level]), ok());
                let mut round = number;
                while faults.load(Ordering::Relaxed) < 6 {
                    round += 1;
                    let counter = round % COUNTERS;
                    match increment(&mut client, &format!("counter{counter}")).unwrap() {
                        Some(true) => done[counter].fetch_add(1, Ordering::Relaxed),
                        Some(false) => aborted.fetch_add(1, Ordering::Relaxed),
                        None => unknown[counter].fetch_add(1, Ordering::Relaxed),
                    };
                }
            });
        }
        let committed = || done.iter().map(|it| it.load(Ordering::Relaxed)).sum::<u64>();
        for round in 0..6 {
            let victim = round % 3;
            let before = committed();
            block_until("there are commits", || committed() > before + 20);
            if round % 2 == 0 {
                world.redises[victim].kill();
                let before = committed();
                block_until("two go on", || committed() > before + 20);
                world.redises[victim].start();
            } else {
                world.redises[victim].program.signal("-STOP");
                let before = committed();
                block_until("two go on", || committed() > before + 20);
                world.redises[victim].program.signal("-CONT");
            }
            world.wait_live(3, beside::SOON);
            faults.fetch_add(1, Ordering::Relaxed);
        }
    });
    world.settle();
    let mut client = world.client();
    client.ask(&["EK.SESSION", "strong"]);
    for counter in 0..COUNTERS {
        let value: u64 =
            client.ask(&["GET", &format!("counter{counter}")]).text().unwrap().parse().unwrap();
        let (done, unknown) =
            (done[counter].load(Ordering::Relaxed), unknown[counter].load(Ordering::Relaxed));
        println!("counter {counter}: {value}, {done} commits, {unknown} unknown");
        assert!((done..=done + unknown).contains(&value), "{value}, {done} + {unknown}");
    }
    assert!(aborted.load(Ordering::Relaxed) > 0, "nobody was ever in the way of another");
    assert_eq!(world.states().len(), 1, "duplicates differ");
}
