//! Channels: beside a Redis, in order behind the writes of who publishes, and who does not read.

use std::time::Duration;

use evenkeel_duplicates::Target;
use evenkeel_stores::store::embedded::EmbeddedSettings;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::block_until;

use super::beside::{self, Raw};
use super::world::World;
use super::{bulk, ok};

#[test]
fn channels_answer_as_those_of_redis() {
    let Some(world) = World::start("channels", 3, |_| {}) else { return };
    beside::compare(
        &world,
        &[
            &["a: SUBSCRIBE %c", "b: PUBLISH %c hello", "a?", "b: PUBSUB NUMSUB %c %d"],
            &["a: SUBSCRIBE %c", "b: PUBSUB CHANNELS %*", "b: PUBSUB CHANNELS %d"],
            &["b: PUBLISH %c nobody", "a: SUBSCRIBE %c %d %c", "a?", "a?", "b: PUBLISH %c x", "a?"],
            &["a: PSUBSCRIBE %c*", "a: SUBSCRIBE %cx", "b: PUBLISH %cx m", "a?", "a?"],
            &["a: PSUBSCRIBE %c? %*x", "a?", "b: PUBLISH %cc m", "a?", "b: PUBLISH %y m"],
            &["a: SUBSCRIBE %c", "c: SUBSCRIBE %c", "b: PUBLISH %c x", "a?", "c?"],
            // Of RESP2 a client that listens says little.
            &[
                "a: SUBSCRIBE %c",
                "a: GET %k",
                "a: PING",
                "a: PING x",
                "a: UNSUBSCRIBE",
                "a: GET %k",
            ],
            &["a: PSUBSCRIBE %c", "a: ECHO x", "a: PUNSUBSCRIBE %c", "a: ECHO x"],
            &["a: SSUBSCRIBE %c", "a: INCR %k", "a: SUNSUBSCRIBE %c", "a: INCR %k"],
            &["a: UNSUBSCRIBE", "a: PUNSUBSCRIBE", "a: SUNSUBSCRIBE", "a: UNSUBSCRIBE %c"],
            &["a: SUBSCRIBE %c", "a: PSUBSCRIBE %d", "a: PUNSUBSCRIBE", "a: UNSUBSCRIBE %x"],
            // Those of shards are others.
            &[
                "a: SSUBSCRIBE %c",
                "b: PUBLISH %c x",
                "b: SPUBLISH %c y",
                "a?",
                "b: PUBSUB SHARDNUMSUB %c",
                "b: PUBSUB SHARDCHANNELS %*",
                "b: PUBSUB NUMSUB %c",
                "a: SUBSCRIBE %c",
            ],
            &["a: SUBSCRIBE %c", "a: RESET", "b: PUBLISH %c x", "a: PING"],
            &["a: PUBSUB WHAT", "a: PUBSUB NUMPAT x", "a: PUBSUB NUMSUB", "a: PUBSUB CHANNELS a b"],
            &["a: SUBSCRIBE", "a: PUBLISH x", "a: PUBSUB", "a: PSUBSCRIBE"],
            // Within MULTI; each reply stands in its place.
            &[
                "a: SUBSCRIBE %c",
                "b: MULTI",
                "b: PUBLISH %c first",
                "b: SET %k 1",
                "b: PUBLISH %d nobody",
                "b: PING",
                "b: PUBLISH %c last",
                "b: INCR %k",
                "b: EXEC",
                "a?",
                "a?",
                "b: MULTI",
                "b: PUBLISH %c alone",
                "b: EXEC",
                "a?",
            ],
            &["a: SSUBSCRIBE %c", "b: MULTI", "b: SPUBLISH %c x", "b: GET %k", "b: EXEC", "a?"],
            &[
                "a: SUBSCRIBE %c",
                "b: MULTI",
                "b: PUBLISH %c x",
                "b: DISCARD",
                "b: PUBLISH %c y",
                "a?",
            ],
            &[
                "a: SUBSCRIBE %c",
                "b: MULTI",
                "b: PUBLISH %c x",
                "b: LPOP",
                "b: EXEC",
                "b: PUBLISH %c y",
                "a?",
            ],
            &[
                "a: SUBSCRIBE %c",
                "b: SET %k 1",
                "b: MULTI",
                "b: LPUSH %k x",
                "b: PUBLISH %c y",
                "b: EXEC",
                "a?",
            ],
            &[
                "a: SUBSCRIBE %c",
                "b: WATCH %k",
                "c: SET %k 2",
                "b: MULTI",
                "b: SET %k 3",
                "b: PUBLISH %c x",
                "b: EXEC",
                "b: PUBLISH %c y",
                "a?",
            ],
            &["a: SUBSCRIBE %c", "b: MULTI", "b: PUBLISH %c", "b: PUBLISH %c x", "b: EXEC"],
            // Messages and confirmations come where no replies are wanted.
            &[
                "a! CLIENT REPLY OFF",
                "a: SUBSCRIBE %c",
                "b: PUBLISH %c x",
                "a?",
                "a! CLIENT REPLY SKIP",
                "a: UNSUBSCRIBE %c",
                "a! CLIENT REPLY ON",
                "a?",
            ],
        ],
    );
}

#[test]
fn a_message_comes_behind_the_writes_of_who_publishes_it() {
    let Some(world) = World::start("publish", 3, |_| {}) else { return };
    let mut listening = Raw::connect(world.address, "3");
    listening.ask(&["SUBSCRIBE", "news"]);
    let address = world.address;
    let saying = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        for n in 1..=300 {
            // In one go: the message must not overtake the write.
            client.send(format!("SET n {n}\r\nPUBLISH news {n}\r\n").as_bytes());
            assert_eq!(client.read(), ok());
            assert_eq!(client.read(), Reply::Integer(1));
        }
    });
    let value = |reply: &[u8]| -> u64 {
        let text = String::from_utf8_lossy(reply).into_owned();
        text.trim_end().rsplit("\r\n").next().unwrap().parse().unwrap()
    };
    for n in 1..=300 {
        // The next message, and the answer to what is asked then, in either order of what follows.
        let message = listening.read();
        assert_eq!(value(&message), n, "messages of one client come in its order");
        if n % 10 == 0 {
            let mut other = Raw::connect(address, "3");
            let strong = other.ask(&["EK.SESSION", "strong"]);
            assert_eq!(strong, b"+OK\r\n");
            assert!(value(&other.ask(&["GET", "n"])) >= n);
        }
    }
    saying.join().unwrap();
    // Its own session was lifted to the writes.
    assert_eq!(value(&listening.ask(&["GET", "n"])), 300);
    // A client of RESP3 that listens to itself.
    let mut own = Raw::connect(address, "3");
    own.ask(&["SUBSCRIBE", "own"]);
    own.tell(&["PUBLISH", "own", "x"]);
    assert_eq!(own.read(), b">3\r\n$7\r\nmessage\r\n$3\r\nown\r\n$1\r\nx\r\n");
    assert_eq!(own.read(), b":1\r\n");
}

/// As Celery stores a result: who is told of it finds it, at any level of consistency above the
/// lowest.
#[test]
fn a_message_of_a_transaction_comes_behind_its_writes() {
    let Some(world) = World::start("publishexec", 3, |_| {}) else { return };
    let mut listening = Raw::connect(world.address, "3");
    listening.ask(&["SUBSCRIBE", "news"]);
    let address = world.address;
    let saying = std::thread::spawn(move || {
        for n in 1..=99 {
            let mut client = Client::connect(address);
            let own = format!("MULTI\r\nSET n {n}\r\nPUBLISH news {n}\r\nEXEC\r\n");
            // In one go, behind a write elsewhere, in a transaction and by itself.
            client.send(format!("SET m {n}\r\n{own}PUBLISH news after-{n}\r\n").as_bytes());
            for _ in 0..4 {
                client.read();
            }
            assert_eq!(client.read(), Reply::Array(vec![ok(), Reply::Integer(1)]));
            assert_eq!(client.read(), Reply::Integer(1));
        }
    });
    saying.join().unwrap();
    let last = |reply: Vec<u8>| {
        let text = String::from_utf8(reply).unwrap();
        text.trim_end().rsplit("\r\n").next().unwrap().to_owned()
    };
    let mut reading = Raw::connect(address, "3");
    reading.ask(&["EK.SESSION", "strong"]);
    let mut told: u32 = 0;
    loop {
        let text = last(listening.read());
        if let Some(n) = text.strip_prefix("after-") {
            assert_eq!(n.parse(), Ok(told), "a message overtook that of the transaction");
        } else {
            told = text.parse().unwrap();
            assert!(last(reading.ask(&["GET", "n"])).parse::<u32>().unwrap() >= told);
        }
        if text == "after-99" {
            break;
        }
    }
    // Its own session was lifted to the write, or another may answer from before it.
    assert!(last(listening.ask(&["GET", "n"])).parse::<u32>().unwrap() >= 99);
}

#[test]
fn who_does_not_read_its_messages_is_cut_off_and_who_leaves_is_forgotten() {
    let Some(world) = World::start("deafchannel", 1, |_| {}) else { return };
    let mut client = world.client();
    let mut gone = world.client();
    gone.ask(&["SUBSCRIBE", "c"]);
    assert_eq!(
        client.ask(&["PUBSUB", "NUMSUB", "c"]),
        Reply::Array(vec![bulk("c"), Reply::Integer(1)])
    );
    drop(gone);
    let nobody = Reply::Array(vec![bulk("c"), Reply::Integer(0)]);
    block_until("it is forgotten", || client.ask(&["PUBSUB", "NUMSUB", "c"]) == nobody);
    let mut deaf = world.client();
    deaf.ask(&["SUBSCRIBE", "c"]);
    let message = "x".repeat(1 << 20);
    let mut sent = 0;
    while client.ask(&["PUBLISH", "c", &message]) == Reply::Integer(1) {
        sent += 1;
        assert!(sent < 200, "MiB wait for who does not read");
    }
    assert!(sent > 30, "{sent} MiB are less than it may have");
    assert_eq!(world.state_now().subscribers_cut_off, 1);
    assert_eq!(client.ask(&["PUBSUB", "NUMPAT"]), Reply::Integer(0));
    deaf.rest_or_reset();
}

#[test]
fn other_stores_have_none_of_it() {
    let folder = Folder::new("front-embedded");
    let settings = EmbeddedSettings::at(&folder.file("0.redb"));
    let target = Target::Embedded { settings, pauses: None };
    let world = World::over("frontembedded", vec![vec![target]], 1, |_| {});
    let mut client = world.client();
    for words in [
        &["WATCH", "k"][..],
        &["UNWATCH"],
        &["BLPOP", "k", "0"],
        &["XREAD", "BLOCK", "0", "STREAMS", "k", "$"],
        &["SUBSCRIBE", "c"],
        &["PUBLISH", "c", "m"],
        &["PUBSUB", "CHANNELS"],
    ] {
        let expected = format!("ERR store 'embedded' has no command '{}'", words[0]);
        assert_eq!(client.ask(words), Reply::Error(expected), "{words:?}");
    }
    assert_eq!(client.ask(&["SET", "k", "1"]), ok());
}

#[test]
fn who_listens_is_not_idle() {
    let idle = Duration::from_millis(200);
    let Some(world) = World::start("idlechannel", 1, |config| config.idle_max = Some(idle)) else {
        return;
    };
    let mut listening = world.client();
    let mut waiting = world.client();
    listening.ask(&["SUBSCRIBE", "c"]);
    waiting.tell(&["BLPOP", "k", "0"]);
    let mut other = world.client();
    assert_eq!(other.rest(), b"", "who says nothing is disconnected");
    assert_eq!(world.client().ask(&["PUBLISH", "c", "x"]), Reply::Integer(1));
    assert_eq!(listening.read(), Reply::Array(vec![bulk("message"), bulk("c"), bulk("x")]));
    assert_eq!(world.client().ask(&["RPUSH", "k", "y"]), Reply::Integer(1));
    assert_eq!(waiting.read(), Reply::Array(vec![bulk("k"), bulk("y")]));
}
