//! All duplicates lose everything, behind the deadlines of keys: they are made from the log as they
//! were, whenever that is done.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_testkit::redis::{Client, Reply, contents};
use evenkeel_testkit::wait::{PATIENCE, block_until};

use super::world::World;
use super::{bulk, ok};

/// Shorter than the test takes until everything is lost.
const SHORT_MS: &str = "300";
/// Longer than the test.
const LONG_MS: &str = "600000";
/// Keys of a rate limiter, whose times are asked for.
const LIMITED: i64 = 40;

fn asked(client: &mut Client, line: &str) -> Reply {
    let reply = client.ask(&line.split(' ').collect::<Vec<_>>());
    assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    reply
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

/// Keys of the database that the client is in, by what became of each at the deadline.
fn written_before(client: &mut Client) {
    for line in [
        // Beyond it.
        format!("SET {{a}}persisted 5 PX {SHORT_MS}"),
        "PERSIST {a}persisted".to_owned(),
        format!("SET {{a}}longer 5 PX {SHORT_MS}"),
        format!("PEXPIRE {{a}}longer {LONG_MS}"),
        format!("SET {{a}}old 5 PX {SHORT_MS}"),
        "RENAME {a}old {a}renamed".to_owned(),
        "PERSIST {a}renamed".to_owned(),
        format!("SET {{a}}set 5 PX {SHORT_MS}"),
        "SET {a}set 6".to_owned(),
        // It goes untouched.
        format!("SET {{a}}counted 5 PX {SHORT_MS}"),
        "INCR {a}counted".to_owned(),
        format!("SET {{a}}hash 5 PX {LONG_MS}"),
        "DEL {a}hash".to_owned(),
        "HSET {a}hash f v".to_owned(),
        format!("PEXPIRE {{a}}hash {SHORT_MS}"),
        "HSET {a}hash g w".to_owned(),
        format!("EVAL return(redis.call('SET',KEYS[1],1,'PX',{SHORT_MS})) 1 {{a}}script"),
        "APPEND {a}script 2".to_owned(),
        // Used again behind it.
        format!("SET {{a}}again 5 PX {SHORT_MS}"),
        format!("SET {{a}}absent 5 NX PX {SHORT_MS}"),
        format!("SET {{a}}gone 5 PX {SHORT_MS}"),
        format!("SET {{a}}copied 5 PX {SHORT_MS}"),
        // It is to come.
        format!("SET {{a}}stays 5 PX {LONG_MS}"),
        "INCR {a}stays".to_owned(),
    ] {
        asked(client, &line);
    }
    for n in 0..LIMITED {
        asked(client, &format!("INCR {{a}}limit{n}"));
        asked(client, &format!("PEXPIRE {{a}}limit{n} {SHORT_MS}"));
    }
}

fn written_behind(client: &mut Client) {
    for (line, expected) in [
        ("INCR {a}again", Reply::Integer(1)),
        ("SET {a}absent 7 NX", ok()),
        ("PERSIST {a}gone", Reply::Integer(0)),
        ("SETNX {a}gone 8", Reply::Integer(1)),
        ("SET {a}source 9", ok()),
        ("COPY {a}source {a}copied", Reply::Integer(1)),
    ] {
        assert_eq!(asked(client, line), expected, "{line}");
    }
    for n in 0..LIMITED {
        assert_eq!(asked(client, &format!("INCR {{a}}limit{n}")), Reply::Integer(1));
    }
}

/// What one duplicate holds, in both databases.
fn held(world: &World, server: usize) -> [BTreeMap<String, (Reply, Reply)>; 2] {
    ["0", "3"].map(|database| {
        let mut client = world.redises[server].client();
        assert_eq!(client.ask(&["SELECT", database]), ok());
        contents(&mut client).into_iter().collect()
    })
}

/// Deadlines that came and went before, and those that are to come; the front is another process
/// when everything is lost, or the same one.
#[test]
fn who_is_made_from_the_log_has_what_it_had_also_behind_deadlines() {
    for is_new in [false, true] {
        let Some(mut world) = World::start(&format!("restored-{is_new}"), 3, |_| {}) else {
            return;
        };
        let mut clients = ["0", "3"].map(|database| {
            let mut client = world.client();
            assert_eq!(client.ask(&["SELECT", database]), ok());
            client
        });
        clients.iter_mut().for_each(written_before);
        let until = now_ms() + 400;
        block_until("deadlines have passed", || now_ms() > until);
        clients.iter_mut().for_each(written_behind);
        world.settle();
        let before = held(&world, 0);
        for keys in &before {
            assert_eq!(keys["{a}persisted"].0, bulk("5"));
            assert!(!keys.contains_key("{a}counted") && !keys.contains_key("{a}script"));
            assert_eq!(keys["{a}again"], (bulk("1"), Reply::Integer(-1)));
            assert_eq!(keys["{a}copied"].0, bulk("9"));
        }
        if is_new {
            world.stop();
        }
        for redis in &world.redises {
            redis.client().ask(&["FLUSHALL"]);
        }
        if is_new {
            world.restart();
        }
        block_until("all is there again", || world.client().ask(&["GET", "{a}stays"]) == bulk("6"));
        world.wait_live(3, PATIENCE);
        world.settle();
        for server in 0..3 {
            assert_eq!(held(&world, server), before, "of {server}, a new front: {is_new}");
        }
    }
}

/// It passes while they are made: nobody keeps the key longer than it lives, and nobody loses it
/// before.
#[test]
fn a_deadline_that_passes_meanwhile_ends_the_key_at_all() {
    let Some(world) = World::start("restored-meanwhile", 3, |_| {}) else { return };
    let mut client = world.client();
    let ttls = (0..60).map(|n| 300 + n * 100);
    let mut ends = BTreeMap::new();
    for (n, ttl) in ttls.enumerate() {
        let key = format!("k{n}");
        assert_eq!(client.ask(&["SET", &key, "5", "PX", &ttl.to_string()]), ok());
        assert_eq!(client.ask(&["INCR", &key]), Reply::Integer(6));
        let Reply::Integer(at) = client.ask(&["PEXPIRETIME", &key]) else { panic!("{key}") };
        ends.insert(key, i128::from(at));
    }
    world.settle();
    for redis in &world.redises {
        redis.client().ask(&["FLUSHALL"]);
    }
    block_until("it is made from the log", || client.ask(&["GET", "k59"]) == bulk("6"));
    world.wait_live(3, PATIENCE);
    let last = *ends.values().max().unwrap();
    while (now_ms() as i128) < last + 100 {
        for redis in &world.redises {
            let (from, there, to) = {
                let from = now_ms() as i128;
                let there = contents(&mut redis.client());
                (from, there, now_ms() as i128)
            };
            for (key, &at) in &ends {
                let is_there = there.contains_key(key);
                assert!(!is_there || at >= from, "{key} lives longer than until {at}: {from}");
                assert!(is_there || at <= to, "{key} is gone before {at}: {to}");
            }
        }
    }
}
