//! What scripts and transactions publish: behind what they write, once, and not if that was not
//! done.

use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Redis, Reply};
use evenkeel_testkit::wait::PATIENCE;

use super::beside::Raw;
use super::world::World;
use super::{bulk, ok};

const PUBLISHES: &str = "local n = redis.call('INCR', KEYS[1]) \
    redis.call('PUBLISH', 'news', n) redis.call('SPUBLISH', 'shard', n) return n";

fn message(words: &[&str]) -> Reply {
    Reply::Array(words.iter().map(|it| bulk(it)).collect())
}

fn listening(world: &World, words: &[&str]) -> Client {
    let mut client = Client::try_connect(world.address, 2 * PATIENCE).unwrap();
    client.ask(words);
    client
}

/// One executor after the other is killed in the middle.
#[test]
fn what_scripts_publish_comes_once_and_behind_what_they_wrote() {
    let Some(mut world) = World::start("published", 3, |_| {}) else { return };
    let mut client = world.client();
    let mut plain = listening(&world, &["SUBSCRIBE", "news"]);
    let mut pattern = listening(&world, &["PSUBSCRIBE", "ne*"]);
    let mut shard = listening(&world, &["SSUBSCRIBE", "shard"]);
    let mut own = Raw::connect(world.address, "3");
    own.ask(&["SUBSCRIBE", "news"]);
    let mut count = 0;
    for victim in [0, 1, 2] {
        for n in 0..12 {
            if n == 6 {
                world.redises[victim].kill();
            }
            count += 1;
            let number = count.to_string();
            assert_eq!(client.ask(&["EVAL", PUBLISHES, "1", "k"]), Reply::Integer(count));
            assert_eq!(plain.read(), message(&["message", "news", &number]));
            assert_eq!(pattern.read(), message(&["pmessage", "ne*", "news", &number]));
            assert_eq!(shard.read(), message(&["smessage", "shard", &number]));
            assert!(own.read().starts_with(b">3\r\n$7\r\nmessage\r\n"));
            let value = format!("${}\r\n{number}\r\n", number.len());
            assert_eq!(own.ask(&["GET", "k"]), value.as_bytes(), "it is behind the write");
        }
        world.redises[victim].start();
        world.wait_live(3, PATIENCE);
    }
    // What was undone has published nothing.
    let undone = "redis.call('PUBLISH', 'news', 'no') redis.call('SET', 'evenkeel:x', 1)";
    assert!(matches!(client.ask(&["EVAL", undone, "0"]), Reply::Error(_)));
    assert_eq!(client.ask(&["PUBLISH", "news", "last"]), Reply::Integer(3));
    assert_eq!(plain.read(), message(&["message", "news", "last"]));
}

#[test]
fn a_transaction_publishes_behind_its_writes_and_nothing_where_it_aborts() {
    let Some(world) = World::start("published-multi", 3, |_| {}) else { return };
    let directory = Folder::new("publish-alone");
    let alone = Redis::new(directory.file("redis"));
    for (place, address) in [("front", world.address), ("alone", alone.address)] {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut listener = Client::connect(address);
        listener.ask(&["SUBSCRIBE", "news"]);
        for commands in [
            &[&["SET", "k", "1"][..], &["PUBLISH", "news", "written"], &["GET", "k"]][..],
            &[&["PUBLISH", "news", "alone"]],
            &[&["EVAL", "return redis.call('INCR', KEYS[1])", "1", "k"], &["PUBLISH", "news", "x"]],
        ] {
            assert_eq!(client.ask(&["MULTI"]), ok());
            for command in commands {
                assert_eq!(client.ask(command), Reply::Simple("QUEUED".to_owned()), "{place}");
            }
            let Reply::Array(replies) = client.ask(&["EXEC"]) else { panic!("{place}: no array") };
            let at = commands.iter().position(|it| it[0] == "PUBLISH").unwrap();
            assert_eq!(replies.len(), commands.len(), "{place}");
            assert_eq!(replies[at], Reply::Integer(1), "{place}");
            assert_eq!(listener.read(), message(&["message", "news", commands[at][2]]), "{place}");
        }
        assert_eq!(client.ask(&["WATCH", "k"]), ok());
        assert_eq!(other.ask(&["SET", "k", "5"]), ok());
        assert_eq!(client.ask(&["MULTI"]), ok());
        client.ask(&["PUBLISH", "news", "aborted"]);
        client.ask(&["SET", "k", "6"]);
        assert_eq!(client.ask(&["EXEC"]), Reply::Null, "{place}");
        assert_eq!(client.ask(&["PUBLISH", "news", "last"]), Reply::Integer(1));
        assert_eq!(listener.read(), message(&["message", "news", "last"]), "{place}");
    }
}
