//! Commands about all keys, and about keys of several shards, before several partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_duplicates::DuplicatesConfig;
use evenkeel_duplicates::changes::ChangeRequest;
use evenkeel_ordered::Acknowledge;
use evenkeel_stores::resp::hash::slot;
use evenkeel_stores::resp::reply::{ReplyScanner, elements, payload};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Redis, Reply, State, contents, encoded};
use evenkeel_testkit::wait::{OverAtEnd, PATIENCE, block_until};

use super::world::World;
use super::{bulk, ok};

/// A connection whose replies are bytes.
struct Raw(TcpStream, Vec<u8>);

impl Raw {
    fn connect(address: SocketAddr, protocol: u8) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut raw = Self(stream, Vec::new());
        raw.ask(&["HELLO", &protocol.to_string()]);
        raw
    }

    fn ask(&mut self, words: &[&str]) -> Vec<u8> {
        self.0.write_all(&encoded(words)).unwrap();
        let mut scanner = ReplyScanner::default();
        loop {
            if let Some(length) = scanner.scan(&self.1).unwrap() {
                return self.1.drain(..length).collect();
            }
            let mut came = [0; 4_096];
            let count = self.0.read(&mut came).unwrap();
            assert_ne!(count, 0, "{words:?}: it closed");
            self.1.extend_from_slice(&came[..count]);
        }
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// A text of each kind, in several shards and partitions.
const DATA: &[&str] = &[
    "MSET a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8",
    "RPUSH list 3 1 2",
    "HSET hash f 1 g 2",
    "SADD set 1 2 3",
    "ZADD zset 1.5 x 2 y",
];

/// What is answered alike by one Redis and by partitions of it.
const ALIKE: &[&str] = &[
    "MGET a nothing list h a",
    "MGET a",
    "EXISTS a a nothing h list",
    "TOUCH a b nothing h",
    "DBSIZE",
    "KEYS [a]",
    "KEYS nothing*",
    "DEL a b nothing h",
    "UNLINK c d c list",
    "MGET a b c d e f g h",
    "DBSIZE",
    "MSET a 1 a 2 b 3 b 4",
    "MGET a b",
    "MSET a 1 b",
    "MSET",
    "SCAN x",
    "SCAN 0 COUNT 0",
    "SCAN 0 COUNT",
    "SCAN 0 WHAT 1",
    "SCAN 99999999999999999999",
    "HSCAN hash 0",
    "HSCAN hash 0 MATCH f COUNT 100",
    "HSCAN nothing 0",
    "HSCAN a 0",
    "HSCAN hash x",
    "HSCAN hash 0 COUNT x",
    "SSCAN set 0",
    "ZSCAN zset 0",
    "ZSCAN zset 0 MATCH y",
    "FLUSHALL NOW",
    "FLUSHALL SYNC ASYNC",
    "MULTI",
    "SET {t}a 1",
    "FLUSHALL",
    "INCR {t}a",
    "GET {t}a",
    "EXEC",
    "DBSIZE",
    "KEYS *",
    "RANDOMKEY",
    "GET e",
    "MULTI",
    "FLUSHDB ASYNC",
    "EXEC",
    "DBSIZE",
    "SET b 1",
    "FLUSHDB",
    "RANDOMKEY",
    "SCAN 0",
    "SCAN 0 MATCH * COUNT 100 TYPE string",
    "MULTI",
    "PING",
    "LPOP none 2",
    "FLUSHALL",
    "ECHO x",
    "EXEC",
    "FLUSHALL SYNC",
    "FLUSHALL ASYNC",
    "KEYS *",
];

#[test]
fn several_partitions_answer_as_one_redis() {
    for protocol in [2, 3] {
        let Some(world) = World::of_partitions("alike", 2, 2, |_| {}) else { return };
        let folder = Folder::new(&format!("duplicates-plain-{protocol}"));
        let plain = Redis::new(folder.file("redis"));
        let mut ours = Raw::connect(world.address, protocol);
        let mut theirs = Raw::connect(plain.address, protocol);
        for line in DATA.iter().chain(ALIKE) {
            let (ours, theirs) = (ours.ask(&words(line)), theirs.ask(&words(line)));
            let text = |reply: &[u8]| reply.escape_ascii().to_string();
            assert_eq!(text(&ours), text(&theirs), "{line}, RESP{protocol}");
        }
        world.settle();
        assert_equal(&world, 2);
    }
}

/// All keys that a scan gives, and how many pages it took.
fn scanned(client: &mut Client, options: &[&str], mut between: impl FnMut(usize)) -> Vec<String> {
    let (mut cursor, mut keys, mut pages) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let command: Vec<&str> = ["SCAN", &cursor].into_iter().chain(options.to_vec()).collect();
        let Reply::Array(page) = client.ask(&command) else { panic!("no page") };
        let Reply::Array(some) = &page[1] else { panic!("no keys: {page:?}") };
        keys.extend(some.iter().map(|key| key.text().unwrap().to_owned()));
        cursor = page[0].text().unwrap().to_owned();
        assert!(cursor.parse::<u64>().unwrap() < 1 << 53, "{cursor}");
        if cursor == "0" {
            return keys;
        }
        between(pages);
        pages += 1;
    }
}

fn fill(client: &mut Client, prefix: &str, count: usize) -> BTreeSet<String> {
    let keys: BTreeSet<String> = (0..count).map(|n| format!("{prefix}{n}")).collect();
    keys.iter().for_each(|key| client.tell(&["SET", key, "1"]));
    keys.iter().for_each(|_| assert_eq!(client.read(), ok()));
    keys
}

#[test]
fn a_scan_gives_every_key_once_and_none_of_ours() {
    let Some(world) = World::of_partitions("scan", 2, 2, |_| {}) else { return };
    let mut client = world.client();
    let keys = fill(&mut client, "k", 500);
    assert_eq!(client.ask(&["HSET", "hash", "f", "1"]), Reply::Integer(1));
    for level in ["eventual", "read-my-own-writes", "strong"] {
        world.settle();
        assert_eq!(client.ask(&["EK.SESSION", level]), ok());
        let found = scanned(&mut client, &["COUNT", "20", "TYPE", "string"], |_| {});
        assert_eq!(found.len(), keys.len(), "{level}");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), keys);
        assert_eq!(scanned(&mut client, &["MATCH", "k49?"], |_| {}).len(), 10);
        assert_eq!(client.ask(&["DBSIZE"]), Reply::Integer(501));
        let Reply::Array(all) = client.ask(&["KEYS", "*"]) else { panic!("no keys") };
        assert_eq!(all.len(), 501, "{level}");
        let drawn: BTreeSet<String> =
            (0..40).map(|_| client.ask(&["RANDOMKEY"]).text().unwrap().to_owned()).collect();
        assert!(drawn.len() > 20 && drawn.iter().all(|key| !key.starts_with("evenkeel:")));
    }
    // One key beside ours.
    assert_eq!(client.ask(&["FLUSHALL"]), ok());
    assert_eq!(client.ask(&["SET", "alone", "1"]), ok());
    (0..20).for_each(|_| assert_eq!(client.ask(&["RANDOMKEY"]), bulk("alone")));
}

/// Fields, members and their scores: large enough for several pages.
#[test]
fn parts_of_a_key_are_scanned_at_one_duplicate() {
    let Some(world) = World::of_partitions("scan-part", 2, 2, |_| {}) else { return };
    let mut client = world.client();
    for n in 0..1_000 {
        let member = format!("member{n}");
        client.tell(&["HSET", "h", &member, "1"]);
        client.tell(&["SADD", "s", &member]);
        client.tell(&["ZADD", "z", "1", &member]);
        (0..3).for_each(|_| assert_eq!(client.read(), Reply::Integer(1)));
    }
    for (command, step) in [(["HSCAN", "h"], 2), (["SSCAN", "s"], 1), (["ZSCAN", "z"], 2)] {
        let (mut cursor, mut found, mut pages) = ("0".to_owned(), BTreeSet::new(), 0_i64);
        loop {
            let Reply::Array(page) = client.ask(&[command[0], command[1], &cursor, "COUNT", "50"])
            else {
                panic!("no page")
            };
            let Reply::Array(some) = &page[1] else { panic!("no members") };
            found.extend(some.iter().step_by(step).cloned());
            cursor = page[0].text().unwrap().to_owned();
            pages += 1;
            if cursor == "0" {
                break;
            }
            // A page is behind what its client wrote.
            assert_eq!(client.ask(&["INCR", command[0]]), Reply::Integer(pages));
        }
        assert_eq!(found.len(), 1_000, "{command:?}");
        assert!(pages > 5, "{command:?}: {pages} pages");
    }
}

/// Whoever is asked dies, and is another process when it is back; in between clients write.
#[test]
fn a_scan_misses_no_key_when_its_duplicate_dies() {
    let all = |config: &mut DuplicatesConfig| config.members.acknowledge = Acknowledge::All;
    let Some(mut world) = World::of_partitions("scan-dies", 2, 2, all) else { return };
    let mut client = world.client();
    let keys = fill(&mut client, "k", 400);
    world.settle();
    let address = world.address;
    let mut writer = Client::connect(address);
    let mut redises = std::mem::take(&mut world.redises);
    let found = scanned(&mut client, &["COUNT", "20"], |page| {
        assert_eq!(writer.ask(&["SET", &format!("more{page}"), "1"]), ok());
        // Each of the four in turn, so that the one that is asked is among them.
        if (2..6).contains(&page) {
            redises[page - 2].kill();
            redises[page - 2].start();
            world.wait_live(4, PATIENCE);
        }
    });
    let found: BTreeSet<String> = found.into_iter().collect();
    let missed: Vec<&String> = keys.difference(&found).collect();
    assert_eq!(missed, [""; 0]);
    world.redises = redises;
}

/// A shard goes from a partition that is still to come to one that was scanned.
#[test]
fn a_scan_misses_no_key_of_a_shard_that_moves() {
    let Some(world) = World::of_partitions("scan-moves", 2, 2, |_| {}) else { return };
    let mut client = world.client();
    let keys = fill(&mut client, "k", 400);
    world.settle();
    let from_the_last = world.owners().iter().rposition(|&owner| owner == 1).unwrap();
    let mut has_moved = false;
    // The last pages of the first partition are of the upper half of all.
    let found = scanned(&mut client, &["COUNT", "20"], |page| {
        if page == 10 {
            let order = ChangeRequest::MoveShard { shard: from_the_last, to: 0 };
            world.request_change(order).unwrap();
            has_moved = true;
        }
    });
    assert!(has_moved);
    let found: BTreeSet<String> = found.into_iter().collect();
    let missed: Vec<&String> = keys.difference(&found).collect();
    assert_eq!(missed, [""; 0]);
    world.settle();
    assert_eq!(client.ask(&["DBSIZE"]), Reply::Integer(400));
}

/// Duplicates of each partition hold the same.
fn assert_equal(world: &World, duplicates: usize) -> Vec<State> {
    let of = |redises: &[Redis]| {
        let states: BTreeSet<State> =
            redises.iter().map(|redis| contents(&mut redis.client())).collect();
        assert_eq!(states.len(), 1, "duplicates differ");
        states.into_iter().next().unwrap()
    };
    world.redises.chunks(duplicates).map(of).collect()
}

#[test]
fn what_is_flushed_does_not_come_back_by_any_copy() {
    let all = |config: &mut DuplicatesConfig| config.members.acknowledge = Acknowledge::All;
    let Some(mut world) = World::of_partitions("flushed", 2, 2, all) else { return };
    let mut client = world.client();
    fill(&mut client, "before", 3_000);
    // By the log: one that was away.
    world.redises[1].kill();
    fill(&mut client, "more", 200);
    assert_eq!(client.ask(&["FLUSHALL"]), ok());
    fill(&mut client, "behind", 50);
    assert_eq!(client.ask(&["DBSIZE"]), Reply::Integer(50));
    world.redises[1].start();
    world.wait_live(4, PATIENCE);
    world.settle();
    assert_equal(&world, 2);
    // By a copy, which takes a while.
    fill(&mut client, "before", 20_000);
    world.redises[2].kill();
    world.redises[2].wipe();
    block_until("it is away", || world.live() == 3);
    world.redises[2].start();
    world.redises[2].client().ask(&["SET", "evenkeel:watermark", "filling"]);
    let third = || world.state().partitions[1].duplicates[0].clone();
    block_until("it is being filled", || third().filled_keys.is_some_and(|keys| keys > 0));
    assert_eq!(client.ask(&["FLUSHALL"]), ok());
    let kept = fill(&mut client, "behind", 30);
    world.wait_live(4, PATIENCE);
    world.settle();
    let states = assert_equal(&world, 2);
    let held: BTreeSet<String> = states.iter().flat_map(|state| state.keys().cloned()).collect();
    assert_eq!(held, kept);
    // By another process, which has another epoch.
    world.restart();
    world.settle();
    assert_eq!(world.client().ask(&["DBSIZE"]), Reply::Integer(30));
    // By the log alone.
    for redis in &mut world.redises {
        redis.kill();
        redis.wipe();
        redis.start();
    }
    world.wait_live(4, 2 * PATIENCE);
    world.settle();
    assert_eq!(assert_equal(&world, 2), states, "something was lost, or is back");
    for redis in &world.redises {
        let mut direct = redis.client();
        for own in ["evenkeel:epoch", "evenkeel:watermark"] {
            assert_eq!(direct.ask(&["EXISTS", own]), Reply::Integer(1), "{own}");
        }
    }
}

#[test]
fn what_is_flushed_does_not_come_back_by_a_move() {
    let Some(world) = World::of_partitions("flushed-move", 2, 2, |_| {}) else { return };
    let shard = world.owners().iter().position(|&owner| owner == 0).unwrap();
    let is_moving = AtomicBool::new(true);
    let mut client = world.client();
    fill(&mut client, "before", 4_000);
    let flushed = std::thread::scope(|scope| {
        let moving = scope.spawn(|| {
            for to in [1, 0, 1, 0] {
                world.request_change(ChangeRequest::MoveShard { shard, to }).unwrap();
            }
            is_moving.store(false, Ordering::Relaxed);
        });
        let mut flushed = 0;
        while is_moving.load(Ordering::Relaxed) && !moving.is_finished() {
            // Keys of all shards, so that there is something to copy at any time.
            fill(&mut client, "k", 300);
            if client.ask(&["FLUSHALL"]) == ok() {
                flushed += 1;
                assert_eq!(client.ask(&["KEYS", "*"]), Reply::Array(Vec::new()));
            }
            // A move is begun again after a pause, so some pauses are longer.
            let moves = world.state().moves.clone();
            if moves.begun_again > 3 * (moves.done + 1) {
                block_until("a shard has moved", || world.state().moves.done > moves.done);
            }
        }
        moving.join().unwrap();
        flushed
    });
    assert!(flushed > 0);
    let kept = fill(&mut client, "behind", 30);
    world.settle();
    let states = assert_equal(&world, 2);
    let visible: BTreeSet<String> = scanned(&mut client, &[], |_| {}).into_iter().collect();
    assert!(visible.is_superset(&kept));
    assert_eq!(states.iter().map(BTreeMap::len).sum::<usize>(), visible.len());
}

/// Shards of one partition may be used together, those of several not.
#[test]
fn keys_of_one_partition_may_be_used_together() {
    let Some(world) = World::of_partitions("together", 2, 2, |_| {}) else { return };
    let mut client = world.client();
    let owners = world.owners();
    let owner = |key: &str| owners[usize::from(slot(key.as_bytes())) % owners.len()];
    let shard = |key: &str| usize::from(slot(key.as_bytes())) % owners.len();
    let keys: Vec<String> = (0..100).map(|n| format!("key{n}")).collect();
    let a = &keys[0];
    let b = keys.iter().find(|key| owner(key) == owner(a) && shard(key) != shard(a)).unwrap();
    let other = keys.iter().find(|key| owner(key) != owner(a)).unwrap();
    assert_eq!(client.ask(&["MSETNX", a, "1", b, "2"]), Reply::Integer(1));
    assert_eq!(client.ask(&["RENAME", a, b]), ok());
    assert_eq!(client.ask(&["MULTI"]), ok());
    assert_eq!(client.ask(&["SET", a, "3"]), Reply::Simple("QUEUED".to_owned()));
    assert_eq!(client.ask(&["GET", b]), Reply::Simple("QUEUED".to_owned()));
    assert_eq!(client.ask(&["EXEC"]), Reply::Array(vec![ok(), bulk("1")]));
    let is = |reply: &Reply, code: &str| {
        assert!(matches!(reply, Reply::Error(text) if text.starts_with(code)), "{reply:?}");
    };
    is(&client.ask(&["MSETNX", a, "1", other, "2"]), "CROSSSLOT Keys in request don't hash to");
    is(&client.ask(&["SINTER", a, other]), "CROSSSLOT ");
    assert_eq!(client.ask(&["MULTI"]), ok());
    assert_eq!(client.ask(&["SET", a, "4"]), Reply::Simple("QUEUED".to_owned()));
    is(&client.ask(&["SET", other, "4"]), "CROSSSLOT ");
    is(&client.ask(&["EXEC"]), "EXECABORT ");
    is(&client.ask(&["MSET", a, "1", "evenkeel:x", "1"]), "ERR keys that begin");
    is(&client.ask(&["SORT", a, "BY", "w_*"]), "ERR BY and GET with a pattern");
    // While one of them moves a write of several shards is told to wait, a read is not.
    fill(&mut client, &format!("{{{b}}}many"), 5_000);
    let (mut waited, mut done) = (0, 0);
    std::thread::scope(|scope| {
        let to = usize::from(owner(other));
        let order = ChangeRequest::MoveShard { shard: shard(b), to };
        let moving = scope.spawn(|| world.request_change(order));
        while !moving.is_finished() {
            match client.ask(&["MSETNX", a, "1", b, "2"]) {
                Reply::Integer(0) => done += 1,
                Reply::Error(text) if text.starts_with("TRYAGAIN ") => waited += 1,
                Reply::Error(text) if text.starts_with("CROSSSLOT ") => done += 1,
                reply => panic!("{reply:?}"),
            }
            assert_eq!(client.ask(&["MGET", a, b]), Reply::Array(vec![bulk("3"), bulk("1")]));
            assert_eq!(client.ask(&["EXISTS", a, b, other]), Reply::Integer(2));
        }
        moving.join().unwrap().unwrap();
    });
    println!("{waited} waited, {done} did not");
    assert!(waited > 0);
    is(&client.ask(&["MSETNX", a, "1", b, "2"]), "CROSSSLOT ");
    assert_eq!(client.ask(&["MSET", a, "5", b, "6"]), ok(), "in parts");
    world.settle();
    assert_equal(&world, 2);
}

#[test]
fn patterns_of_sort_are_for_one_partition() {
    for protocol in [2, 3] {
        let Some(world) = World::start("sort", 2, |_| {}) else { return };
        let folder = Folder::new(&format!("duplicates-sort-{protocol}"));
        let plain = Redis::new(folder.file("redis"));
        let mut ours = Raw::connect(world.address, protocol);
        let mut theirs = Raw::connect(plain.address, protocol);
        for line in [
            "RPUSH list 1 2 3",
            "MSET w_1 3 w_2 1 w_3 2 o_1 a o_2 b o_3 c",
            "SORT list BY w_* GET # GET o_*",
            "SORT_RO list BY w_* DESC",
            "SORT list BY w_* GET o_* STORE sorted",
            "LRANGE sorted 0 -1",
            "SORT list BY w_* LIMIT 0",
            "MULTI",
        ] {
            let (ours, theirs) = (ours.ask(&words(line)), theirs.ask(&words(line)));
            assert_eq!(
                ours.escape_ascii().to_string(),
                theirs.escape_ascii().to_string(),
                "{line}"
            );
        }
        let refused = ours.ask(&["SORT", "list", "BY", "w_*"]);
        assert!(refused.starts_with(b"-ERR this is about more than the keys that it names"));
        world.settle();
        assert_eq!(world.states().len(), 1, "duplicates differ");
    }
}

/// A partition that takes no write is an error of the whole, before any other has done its part.
#[test]
fn an_error_of_one_part_is_that_of_the_whole() {
    let Some(mut world) = World::of_partitions("part-away", 2, 2, |_| {}) else { return };
    let mut client = world.client();
    let keys: Vec<String> = (0..20).map(|n| format!("key{n}")).collect();
    let pairs = keys.iter().flat_map(|key| [key.as_str(), "1"]);
    let set: Vec<&str> = ["MSET"].into_iter().chain(pairs).collect();
    let named = |name: &'static str| -> Vec<String> {
        [name.to_owned()].into_iter().chain(keys.iter().cloned()).collect()
    };
    let ask = |client: &mut Client, words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        client.ask(&words)
    };
    world.redises[2].kill(); // one of two: no majority
    block_until("it is away", || world.live() == 3);
    for words in [set.iter().map(ToString::to_string).collect(), named("DEL"), named("UNLINK")] {
        let refused = ask(&mut client, &words);
        let is_away = |text: &str| text.starts_with("UNAVAILABLE 1 duplicates are live");
        assert!(matches!(&refused, Reply::Error(text) if is_away(text)), "{refused:?}");
    }
    assert!(matches!(client.ask(&["FLUSHALL"]), Reply::Error(_)));
    assert_eq!(ask(&mut client, &named("EXISTS")), Reply::Integer(0), "nothing was set");
    world.redises[2].start();
    world.wait_live(4, PATIENCE);
    assert_eq!(client.ask(&set), ok());
    let Reply::Array(values) = ask(&mut client, &named("MGET")) else { panic!("no values") };
    assert!(values.len() == 20 && values.iter().all(|value| *value == bulk("1")));
    // Who leaves before the answer has done it all the same.
    let mut leaving = world.client();
    let mut text = encoded(&["FLUSHALL"]);
    text.extend(encoded(&set).repeat(20));
    text.extend(encoded(&["SCAN", "0"]));
    leaving.send(&text);
    drop(leaving);
    block_until("it is gone", || {
        let info = client.ask(&["INFO"]);
        info.text().is_some_and(|text| text.contains("connected_clients:1\r\n"))
    });
    world.settle();
    assert_eq!(ask(&mut client, &named("DEL")), Reply::Integer(20));
    assert_equal(&world, 2);
}

/// Pipelined, a page and all keys are those before what comes behind.
#[test]
fn what_asks_for_all_keys_does_not_see_what_its_client_writes_behind() {
    let Some(world) = World::of_partitions("behind-all", 2, 2, |_| {}) else { return };
    let mut client = world.client();
    for round in 0..50 {
        if round == 25 {
            assert_eq!(client.ask(&["EK.SESSION", "eventual"]), ok());
            world.settle();
        }
        for command in [
            &["MSET", "a", "1", "b", "2", "c", "3"][..],
            &["DBSIZE"],
            &["SET", "d", "1"],
            &["KEYS", "*"],
            &["DEL", "d"],
            &["SCAN", "0", "COUNT", "100"],
            &["MGET", "a", "b", "c"],
            &["FLUSHALL"],
            &["EXISTS", "a", "b", "c"],
        ] {
            client.tell(command);
        }
        let replies: Vec<Reply> = (0..9).map(|_| client.read()).collect();
        if round < 25 {
            assert_eq!(replies[1], Reply::Integer(3));
            assert!(matches!(&replies[3], Reply::Array(keys) if keys.len() == 4), "{replies:?}");
            assert_eq!(replies[6], Reply::Array(vec![bulk("1"), bulk("2"), bulk("3")]));
            assert_eq!(replies[8], Reply::Integer(0));
        }
        assert_eq!((&replies[0], &replies[7]), (&ok(), &ok()));
    }
}

#[test]
fn other_stores_have_none_of_them() {
    use evenkeel_duplicates::Target;
    use evenkeel_stores::store::embedded::EmbeddedSettings;
    let folder = Folder::new("duplicates-none-of-them");
    let target = |n: usize| Target::Embedded {
        settings: EmbeddedSettings::at(&folder.file(&format!("store-{n}"))),
        pauses: None,
    };
    let partitions = vec![vec![target(0)], vec![target(1)]];
    let world = World::over("none-of-them", partitions, 2, |_| {});
    let mut client = world.client();
    for line in ["FLUSHALL", "DBSIZE", "KEYS *", "RANDOMKEY", "SCAN 0", "HSCAN h 0"] {
        let words = words(line);
        let expected = format!("ERR store 'embedded' has no command '{}'", words[0]);
        assert_eq!(client.ask(&words), Reply::Error(expected));
    }
    assert_eq!(client.ask(&["MSET", "a", "1", "b", "2", "c", "3"]), ok());
    let values = Reply::Array(vec![bulk("1"), bulk("2"), bulk("3")]);
    assert_eq!(client.ask(&["MGET", "a", "b", "c"]), values);
    assert_eq!(client.ask(&["DEL", "a", "b", "x"]), Reply::Integer(2));
}

/// Of one writer: what it knows of its keys. `None` = nobody knows.
type Known = BTreeMap<String, Option<String>>;

/// Writes keys of several partitions at once until told to stop. A flush of anybody removes them:
/// so each value has the number of flushes that were begun before it was written.
fn write_split(
    address: SocketAddr,
    id: usize,
    stop: &AtomicBool,
    flushes: (&AtomicU64, &AtomicU64),
) -> usize {
    let mut client = Client::connect(address);
    let (mut round, mut read) = (0_u64, 0);
    let keys: Vec<String> = (0..12).map(|n| format!("w{id}:{n}")).collect();
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let ended = flushes.1.load(Ordering::SeqCst);
        let value = round.to_string();
        let pairs = keys.iter().flat_map(|key| [key.as_str(), value.as_str()]);
        let set: Vec<&str> = ["MSET"].into_iter().chain(pairs).collect();
        let is_set = client.ask(&set) == ok();
        let get: Vec<&str> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        if let Reply::Array(values) = client.ask(&get)
            && is_set
        {
            let begun = flushes.0.load(Ordering::SeqCst);
            for (key, found) in keys.iter().zip(values) {
                let is_flushed = begun > ended && found == Reply::Null;
                assert!(found == bulk(&value) || is_flushed, "{key}: {found:?}, not {value}");
            }
            read += 1;
        }
    }
    read
}

/// Ends what waits for it, also when a test fails.
/// Everything at once: one is killed and comes back, one stands still, one is emptied and filled,
/// while keys of both partitions are written, scanned and flushed.
#[test]
fn whatever_fails_duplicates_are_equal_after_flushes_scans_and_split_writes() {
    let quick = |config: &mut DuplicatesConfig| {
        config.members.silence_max = Duration::from_millis(400);
    };
    let Some(mut world) = World::of_partitions("all-at-once", 2, 3, quick) else { return };
    let address = world.address;
    let (stop, begun, ended) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut redises = std::mem::take(&mut world.redises);
    let mut kept = Known::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|id| {
                let flushes = (&begun, &ended);
                let stop = &stop;
                scope.spawn(move || write_split(address, id, stop, flushes))
            })
            .collect();
        let scanning = scope.spawn(|| {
            let (mut client, mut scans) = (Client::connect(address), 0);
            while !stop.load(Ordering::Relaxed) {
                scanned(&mut client, &["COUNT", "7"], |_| {});
                scans += 1;
            }
            scans
        });
        let stopping = OverAtEnd(&stop);
        let mut client = Client::connect(address);
        let mut flush = || {
            begun.fetch_add(1, Ordering::SeqCst);
            let reply = client.ask(&["FLUSHALL"]);
            ended.fetch_add(1, Ordering::SeqCst);
            reply
        };
        for round in 0..2 {
            let (killed, stopped) = (round, 3 + round);
            redises[killed].kill();
            assert_eq!(flush(), ok(), "a majority is there");
            redises[stopped].program.signal("-STOP");
            assert_eq!(flush(), ok());
            block_until("it is given up", || world.live() == 4);
            assert_eq!(flush(), ok());
            redises[stopped].program.signal("-CONT");
            redises[killed].start();
            assert_eq!(flush(), ok());
            world.wait_live(6, 2 * PATIENCE);
            // What somebody else empties may be read until it is found.
            begun.fetch_add(1, Ordering::SeqCst);
            redises[5 - round].client().ask(&["FLUSHALL"]);
            assert_eq!(flush(), ok());
            ended.fetch_add(1, Ordering::SeqCst);
            world.wait_live(6, 2 * PATIENCE);
        }
        drop(stopping);
        let written: Vec<usize> = writers.into_iter().map(|it| it.join().unwrap()).collect();
        let scans = scanning.join().unwrap();
        println!("{written:?} writes were read back, {scans} scans, {ended:?} flushes");
        assert!(written.iter().all(|&count| count > 20) && scans > 2);
        for n in 0..200 {
            let (key, value) = (format!("last{n}"), n.to_string());
            assert_eq!(client.ask(&["SET", &key, &value]), ok());
            kept.insert(key, Some(value));
        }
    });
    world.redises = redises;
    world.wait_live(6, 2 * PATIENCE);
    world.settle();
    let states = assert_equal(&world, 3);
    for (key, value) in &kept {
        let found = states.iter().find_map(|state| state.get(key)).map(|(value, _)| value.clone());
        assert_eq!(found, value.as_deref().map(bulk), "{key} was acknowledged");
    }
}

/// The elements of a page, as they came.
#[test]
fn a_page_of_a_client_of_resp3_is_as_that_of_redis() {
    let Some(world) = World::of_partitions("page", 2, 1, |_| {}) else { return };
    let mut raw = Raw::connect(world.address, 3);
    assert_eq!(raw.ask(&["SET", "a", "1"]), b"+OK\r\n");
    let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
    loop {
        let page = raw.ask(&["SCAN", &cursor]);
        let parts: Vec<&[u8]> = elements(&page).collect();
        assert!(page.starts_with(b"*2\r\n$") && parts[1].starts_with(b"*"), "{page:?}");
        found.extend(elements(parts[1]).map(|key| payload(key).unwrap().to_vec()));
        cursor = String::from_utf8(payload(parts[0]).unwrap().to_vec()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, [b"a"]);
}
