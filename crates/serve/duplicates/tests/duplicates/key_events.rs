//! Key events of real servers: beside a Redis, and when the duplicate that tells them goes.

use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::block_until;

use super::beside::{self, Raw};
use super::world::World;
use super::{bulk, ok};

#[test]
fn key_events_are_those_of_redis() {
    let Some(world) = World::start("keyevents", 3, |_| {}) else { return };
    beside::compare(
        &world,
        &[
            &[
                "b: CONFIG SET notify-keyspace-events KEA",
                "a: PSUBSCRIBE __key*__:*%*",
                "b: SET %k 1",
                "a?",
                "b: EXPIRE %k 100",
                "a?",
                "b: INCR %k",
                "a?",
                "b: MULTI",
                "b: LPUSH %l a",
                "b: SET other x",
                "b: RENAME %l %m",
                "b: EXEC",
                "a?",
                "a?",
                "a?",
                "b: EVAL redis.call('SADD',KEYS[1],1) 1 %s",
                "a?",
                "b: DEL %k %m",
                "a?",
                "a?",
            ],
            // By the event, in another database, and what has expired.
            &[
                "b: CONFIG SET notify-keyspace-events Egx",
                "b: SELECT 1",
                "a: SUBSCRIBE __keyevent@1__:expired __keyevent@1__:del",
                "a?",
                "b: SET %k 1 PX 20",
                "a?",
                "b: SET %k 1",
                "b: DEL %k",
                "a?",
                "b: SET %k 1",
                "b: EXPIRE %k -1",
                "a?",
            ],
            &[
                "b: CONFIG SET notify-keyspace-events Kt",
                "a: PSUBSCRIBE __keyspace@0__:%*",
                "b: XGROUP CREATE %x g $ MKSTREAM",
                "a?",
                "b: XADD %x 1-1 f v",
                "a?",
                "b: XREADGROUP GROUP g one STREAMS %x >",
                "a?",
                "b: XGROUP DESTROY %x g",
                "a?",
            ],
            &["b: CONFIG SET notify-keyspace-events KEA", "b: CONFIG GET notify-keyspace-events"],
        ],
    );
}

/// Who is killed while it tells events is replaced, and a read after an event finds its write.
#[test]
fn another_duplicate_tells_events_when_the_first_is_killed() {
    let Some(mut world) = World::start("keyeventslost", 3, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["CONFIG", "SET", "notify-keyspace-events", "Es"]), ok());
    let mut listening = Raw::connect(world.address, "3");
    listening.ask(&["SUBSCRIBE", "__keyevent@0__:sadd"]);
    assert_eq!(client.ask(&["SADD", "first", "1"]), Reply::Integer(1));
    assert!(listening.read().ends_with(b"$5\r\nfirst\r\n"));
    let told_by = |client: &mut Client| {
        let said = client.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        said.text().is_some_and(|text| !text.trim().is_empty())
    };
    let source = world.redises.iter().position(|redis| told_by(&mut redis.client()));
    let source = source.expect("one of them tells them");
    assert_eq!(world.redises.iter().filter(|it| told_by(&mut it.client())).count(), 1);
    world.redises[source].kill();
    block_until("another one is asked", || {
        let mut others = world.redises.iter().enumerate().filter(|(it, _)| *it != source);
        others.any(|(_, redis)| told_by(&mut redis.client()))
    });
    assert_eq!(client.ask(&["SADD", "second", "1"]), Reply::Integer(1));
    assert!(listening.read().ends_with(b"$6\r\nsecond\r\n"));
    assert!(listening.ask(&["SMEMBERS", "second"]).starts_with(b"~1\r\n"));
    // It was away when the setting was made for the others: it has it when it takes over.
    world.redises[source].start();
    world.wait_live(3, evenkeel_testkit::wait::PATIENCE);
    let setting = ["CONFIG", "GET", "notify-keyspace-events"];
    let expected = Reply::Array(vec![bulk("notify-keyspace-events"), bulk("sE")]);
    let mut back = world.redises[source].client();
    block_until("it has the setting", || back.ask(&setting) == expected);
    drop(listening);
    block_until("nobody is asked when nobody listens", || {
        !world.redises.iter().any(|redis| told_by(&mut redis.client()))
    });
}
