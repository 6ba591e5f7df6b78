//! `XREADGROUP … BLOCK`: consumers that wait, also while who delivers dies.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_duplicates::DuplicatesConfig;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Redis, Reply};
use evenkeel_testkit::wait::{OverAtEnd, PATIENCE, block_until};

use super::world::World;
use super::{bulk, ok};

fn world(name: &str, change: fn(&mut DuplicatesConfig)) -> Option<World> {
    let world = World::start(name, 3, change)?;
    Some(world)
}

fn read<'a>(consumer: &'a str, block: &'a str) -> [&'a str; 11] {
    ["XREADGROUP", "GROUP", "g", consumer, "COUNT", "2", "BLOCK", block, "STREAMS", "s", ">"]
}

/// The ids of what came; none where nothing did.
fn ids(reply: &Reply) -> Vec<String> {
    let Reply::Array(streams) = reply else { return Vec::new() };
    let [Reply::Array(stream)] = &streams[..] else { panic!("{streams:?}") };
    let Reply::Array(entries) = &stream[1] else { panic!("{stream:?}") };
    let id = |entry: &Reply| match entry {
        Reply::Array(entry) => entry[0].text().unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    entries.iter().map(id).collect()
}

#[test]
fn a_consumer_that_waits_is_answered_as_at_one_redis() {
    let Some(world) = world("group-waits", |_| {}) else { return };
    let directory = Folder::new("groups-alone");
    let alone = Redis::new(directory.file("redis"));
    for (place, address) in [("front", world.address), ("alone", alone.address)] {
        let (mut client, mut waiting) = (Client::connect(address), Client::connect(address));
        let gone = waiting.ask(&read("a", "0"));
        let words = "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
        assert_eq!(gone, Reply::Error(words.to_owned()), "{place}");
        assert_eq!(client.ask(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]), ok());
        let begun = Instant::now();
        assert_eq!(waiting.ask(&read("a", "100")), Reply::Null, "{place}");
        assert!(begun.elapsed() >= Duration::from_millis(100), "{place}");
        for refused in ["-1", "x"] {
            assert!(matches!(waiting.ask(&read("a", refused)), Reply::Error(_)), "{place}");
        }
        // What was delivered before, and in MULTI, is told at once.
        let history = ["XREADGROUP", "GROUP", "g", "a", "BLOCK", "0", "STREAMS", "s", "0"];
        let none = Reply::Array(vec![Reply::Array(vec![bulk("s"), Reply::Array(Vec::new())])]);
        assert_eq!(waiting.ask(&history), none, "{place}");
        assert_eq!(waiting.ask(&["MULTI"]), ok());
        assert_eq!(waiting.ask(&read("a", "0")), Reply::Simple("QUEUED".to_owned()));
        assert_eq!(waiting.ask(&["EXEC"]), Reply::Array(vec![Reply::Null]), "{place}");
        waiting.tell(&read("a", "0"));
        block_until("it waits", || {
            let info = client.ask(&["INFO", "clients"]);
            info.text().unwrap().contains("blocked_clients:1")
        });
        let id = client.ask(&["XADD", "s", "7-1", "f", "v"]);
        assert_eq!(id, bulk("7-1"));
        let fields = Reply::Array(vec![bulk("f"), bulk("v")]);
        let entry = Reply::Array(vec![bulk("7-1"), fields]);
        let stream = Reply::Array(vec![bulk("s"), Reply::Array(vec![entry])]);
        assert_eq!(waiting.read(), Reply::Array(vec![stream]), "{place}");
        assert_eq!(client.ask(&["XACK", "s", "g", "7-1"]), Reply::Integer(1), "{place}");
        waiting.tell(&read("a", "0"));
        block_until("it waits", || {
            let info = client.ask(&["INFO", "clients"]);
            info.text().unwrap().contains("blocked_clients:1")
        });
        assert_eq!(client.ask(&["XGROUP", "DESTROY", "s", "g"]), Reply::Integer(1));
        let gone = "NOGROUP the consumer group this client was blocked on no longer exists";
        assert_eq!(waiting.read(), Reply::Error(gone.to_owned()), "{place}");
    }
    world.settle();
    assert_eq!(world.state_now().disagreements, 0);
}

fn wait_blocked(client: &mut Client, count: usize) {
    let said = format!("blocked_clients:{count}\r\n");
    block_until("they wait", || client.ask(&["INFO", "clients"]).text().unwrap().contains(&said));
}

/// Commands that remove a stream or its group; `;` is between two.
const REMOVALS: [&str; 21] = [
    "DEL s",
    "UNLINK s",
    "SET s v",
    "SETEX s 100 v",
    "MSET x v s v",
    "SUNIONSTORE s set",
    "ZUNIONSTORE s 1 sorted",
    "SORT list STORE s",
    "BITOP NOT s text",
    "EXPIRE s -1",
    "RENAME s t",
    "RENAME text s",
    "RENAME other s",
    "COPY other s REPLACE",
    "XGROUP DESTROY s g",
    "MULTI;DEL s;SADD s e;EXEC",
    "MULTI;DEL s;XADD s 9-1 f v;EXEC",
    "MULTI;XGROUP DESTROY s g;DEL s;EXEC",
    "EVAL return{redis.call('DEL',KEYS[1])} 1 s",
    "FLUSHDB",
    "FLUSHALL",
];

/// What two consumers of one group are told when this happens.
fn told_of(removal: &str, address: std::net::SocketAddr) -> [Reply; 2] {
    let mut client = Client::connect(address);
    for line in [
        "FLUSHALL",
        "XGROUP CREATE s g $ MKSTREAM",
        "XADD other 1-1 f v",
        "SADD set e",
        "ZADD sorted 1 e",
        "RPUSH list 1",
        "SET text v",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(!matches!(client.ask(&words), Reply::Error(_)), "{line}");
    }
    let mut waiting = ["a", "b"].map(|name| {
        let mut waiting = Client::connect(address);
        waiting.tell(&read(name, "0"));
        waiting
    });
    wait_blocked(&mut client, 2);
    for line in removal.split(';') {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(!matches!(client.ask(&words), Reply::Error(_)), "{line}");
    }
    let told = waiting.each_mut().map(Client::read);
    wait_blocked(&mut client, 0);
    told
}

#[test]
fn consumers_that_wait_are_told_that_their_stream_is_gone_as_at_one_redis() {
    let Some(world) = world("group-removals", |_| {}) else { return };
    let directory = Folder::new("removals-alone");
    let alone = Redis::new(directory.file("redis"));
    for removal in REMOVALS {
        let expected = told_of(removal, alone.address);
        assert!(expected.iter().all(|it| matches!(it, Reply::Error(_))), "{removal}");
        assert_eq!(told_of(removal, world.address), expected, "{removal}");
    }
    world.settle();
    assert_eq!(world.state_now().disagreements, 0);
}

/// They wait for what is to come, whatever is there meanwhile.
#[test]
fn others_that_wait_go_on_when_their_key_has_another_type_as_at_one_redis() {
    let Some(world) = world("type-changed", |_| {}) else { return };
    let directory = Folder::new("type-changed-alone");
    let alone = Redis::new(directory.file("redis"));
    let said = [world.address, alone.address].map(|address| {
        let mut client = Client::connect(address);
        let lines =
            ["BLPOP k 0", "BLMOVE k to LEFT LEFT 0", "BZPOPMIN k 0", "XREAD BLOCK 0 STREAMS k 0"];
        // One after the other: who waits longer is served first.
        let mut blocked = 0;
        let mut waiting = lines.map(|line| {
            let mut waiting = Client::connect(address);
            waiting.tell(&line.split(' ').collect::<Vec<_>>());
            blocked += 1;
            wait_blocked(&mut client, blocked);
            waiting
        });
        for line in ["SET k v", "DEL k", "SADD k e", "FLUSHALL"] {
            client.ask(&line.split(' ').collect::<Vec<_>>());
        }
        wait_blocked(&mut client, 4);
        for line in ["RPUSH l 1 2 3", "RENAME l k", "ZADD z 1 e", "RENAME z k", "DEL k"] {
            client.ask(&line.split(' ').collect::<Vec<_>>());
        }
        client.ask(&["XADD", "k", "1-1", "f", "v"]);
        waiting.each_mut().map(Client::read)
    });
    assert_eq!(said[0], said[1]);
    world.settle();
    assert_eq!(world.state_now().disagreements, 0);
}

/// Consumes until all are there; the ids that came.
fn consume(
    mut client: Client,
    name: &str,
    is_over: &AtomicBool,
    came: &AtomicUsize,
) -> Vec<String> {
    let mut mine = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let found = ids(&client.ask(&read(name, "300")));
        came.fetch_add(found.len(), Ordering::Relaxed);
        mine.extend(found);
    }
    mine
}

/// Each entry is delivered to one consumer, or pending for one who was told an error.
#[test]
fn each_entry_wakes_one_consumer_while_who_delivers_dies() {
    let Some(mut world) = world("group-faults", |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]), ok());
    let (is_over, came) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let address = world.address;
    let (mut delivered, added) = std::thread::scope(|scope| {
        let over = OverAtEnd(is_over);
        let consumers = ["a", "b", "c", "d"].map(|name| {
            let client = Client::try_connect(address, 2 * PATIENCE).unwrap();
            scope.spawn(move || consume(client, name, is_over, came))
        });
        let mut added = Vec::new();
        for victim in [0, 1, 2, 0] {
            for number in 0..60 {
                if number == 30 {
                    world.redises[victim].kill();
                }
                match client.ask(&["XADD", "s", "*", "n", "1"]) {
                    Reply::Bulk(id) => added.push(String::from_utf8(id).unwrap()),
                    Reply::Error(_) => {} // in doubt, or refused
                    other => panic!("{other:?}"),
                }
            }
            world.redises[victim].start();
            world.wait_live(3, PATIENCE);
        }
        let pending = |client: &mut Client| match client.ask(&["XPENDING", "s", "g"]) {
            Reply::Array(parts) => parts[0].clone(),
            other => panic!("{other:?}"),
        };
        block_until("all are delivered", || {
            let length = client.ask(&["XLEN", "s"]);
            pending(&mut client) == length
        });
        drop(over);
        let delivered = consumers.into_iter().flat_map(|it| it.join().unwrap());
        (delivered.collect::<Vec<String>>(), added)
    });
    let all = delivered.len();
    delivered.sort();
    delivered.dedup();
    assert_eq!(delivered.len(), all, "one entry was delivered twice");
    println!("{} added, {all} delivered", added.len());
    assert!(all * 10 >= added.len() * 9, "{all} of {}", added.len());
    world.settle();
    let expected = client.ask(&["XPENDING", "s", "g"]);
    for redis in &world.redises {
        assert_eq!(redis.client().ask(&["XPENDING", "s", "g"]), expected);
    }
}

/// Who waited at the front that ends comes back, and misses nothing.
#[test]
fn the_front_is_replaced_while_a_consumer_waits() {
    let at_once = |config: &mut DuplicatesConfig| config.drain = Duration::from_millis(1);
    let Some(mut world) = world("group-front", at_once) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]), ok());
    for number in 1..4 {
        let mut waiting = world.client();
        waiting.tell(&read("a", "0"));
        block_until("it waits", || {
            let info = world.client().ask(&["INFO", "clients"]);
            info.text().unwrap().contains("blocked_clients:1")
        });
        world.stop();
        drop(waiting);
        world.restart();
        let id = format!("{number}-1");
        assert_eq!(world.client().ask(&["XADD", "s", &id, "n", "1"]), bulk(&id));
        assert_eq!(ids(&world.client().ask(&read("a", "0"))), [id]);
    }
    world.settle();
    let expected = world.client().ask(&["XPENDING", "s", "g"]);
    for redis in &world.redises {
        assert_eq!(redis.client().ask(&["XPENDING", "s", "g"]), expected);
    }
}
