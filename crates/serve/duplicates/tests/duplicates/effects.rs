//! Scripts, deliveries to consumer groups and what else depends on time or chance: one duplicate
//! does it, all have what it did.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use evenkeel_duplicates::{DuplicatesConfig, Target};
use evenkeel_ordered::Acknowledge;
use evenkeel_stores::resp::reply::ReplyScanner;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{self, Client, Redis, Reply, contents, encoded};
use evenkeel_testkit::story::skipped;
use evenkeel_testkit::wait::{OverAtEnd, PATIENCE, block_until, block_until_within};

use super::world::World;
use super::{bulk, ok};

const SILENCE: Duration = Duration::from_millis(400);

/// Three duplicates and so many further servers.
fn world(name: &str, spares: usize, change: fn(&mut DuplicatesConfig)) -> Option<World> {
    World::with_spares(name, 3, spares, change)
}

/// A client that gets answers as they are.
struct Raw {
    stream: TcpStream,
    came: Vec<u8>,
}

impl Raw {
    fn connect(address: SocketAddr, protocol: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut raw = Self { stream, came: Vec::new() };
        raw.ask(&["HELLO", protocol]);
        raw
    }

    fn ask(&mut self, command: &[&str]) -> String {
        self.stream.write_all(&encoded(command)).unwrap();
        let mut scanner = ReplyScanner::default();
        loop {
            if let Some(length) = scanner.scan(&self.came).unwrap() {
                return self.came.drain(..length).collect::<Vec<u8>>().escape_ascii().to_string();
            }
            let mut buffer = [0; 65_536];
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "{command:?}: the connection ended");
            self.came.extend_from_slice(&buffer[..count]);
        }
    }
}

const COUNT: &str = "redis.call('RPUSH', KEYS[2], ARGV[1]) return redis.call('INCR', KEYS[1])";

const ONCE: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SET', KEYS[1], 1) \
    return 'set' end return 'was there'";
const UNDECLARED: &str =
    "redis.call('SET', 'without', KEYS[1]) redis.call('SADD', 'other', 1, 2) return 1";
const PUBLISHED: &str =
    "redis.call('PUBLISH', 'channel', 'x') redis.call('LPUSH', KEYS[1], 1) return 1";
const MANY: &str = "for i = 1, 2000 do redis.call('RPUSH', KEYS[1], i) end \
    return redis.call('LLEN', KEYS[1])";

const DEEP: &str = "local a = {}; local b = {a}; a[1] = b; return a";

/// Commands whose answers do not depend on time or chance.
fn same_everywhere() -> Vec<Vec<&'static str>> {
    let eval = |script: &'static str, rest: &[&'static str]| [&["EVAL", script], rest].concat();
    let mut all = vec![
        eval(COUNT, &["2", "{k}n", "{k}l", "one"]),
        eval("return {KEYS[1], ARGV[1], false, true, {1, 2.9, 'x'}, {}}", &["1", "a", "b"]),
        eval("return {double=3.25}", &["0"]),
        eval("return {map={a=1}}", &["0"]),
        eval("redis.setresp(3) return redis.call('HGETALL', KEYS[1])", &["1", "h"]),
        eval("redis.setresp(3) return {true, false}", &["0"]),
        eval("return redis.status_reply('FINE')", &["0"]),
        eval("return redis.error_reply('MINE this is an error')", &["0"]),
        eval("return redis.call('GET', 'nothing')", &["0"]),
        eval("return redis.call('INCR', KEYS[1])", &["1", "{k}l"]),
        eval("redis.call('SET', KEYS[1], 'half') return redis.call('NO')", &["1", "half"]),
        eval("redis.call('SET', KEYS[1], 'half2') error('broken')", &["1", "half2"]),
        eval("return redis.pcall('INCR', KEYS[1])", &["1", "{k}l"]),
        eval(ONCE, &["1", "once"]),
        eval(ONCE, &["1", "once"]),
        eval(UNDECLARED, &["1", "declared"]),
        eval(PUBLISHED, &["1", "published"]),
        eval("this is no script", &["0"]),
        eval("return 1", &["x"]),
        eval("return 1", &["-1"]),
        eval("return 1", &["2", "a"]),
        eval(MANY, &["1", "long"]),
        eval("return string.rep('x', 100000)", &["0"]),
        eval(DEEP, &["0"]),
        vec!["EVAL_RO", DEEP, "0"],
        eval("#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])", &["1", "half"]),
        vec!["EVAL", "return 1"],
        vec!["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "half"],
        vec!["EVAL_RO", "return redis.call('SET', KEYS[1], 1)", "1", "half"],
        vec!["EVALSHA", "E0E1F9FABFC9D4800C877A703B823AC0578FF8DB", "0"],
        vec!["EVALSHA_RO", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
        vec!["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "x"],
        vec!["SCRIPT", "LOAD", "return 1"],
        vec!["SCRIPT", "LOAD", "this is no script"],
        vec!["SCRIPT", "LOAD"],
        vec!["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "x"],
        vec!["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
        vec!["EVALSHA_RO", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "1", "k"],
        vec!["SCRIPT", "FLUSH", "NOW"],
        vec!["SCRIPT", "FLUSH"],
        vec!["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
        vec!["MULTI"],
        vec!["SET", "{m}a", "1"],
        vec!["EVAL", "return {redis.call('INCR', KEYS[1]), false}", "1", "{m}a"],
        vec!["EVALSHA", "1111111111111111111111111111111111111111", "0"],
        vec!["GET", "{m}a"],
        vec!["HGETALL", "{m}h"],
        vec!["EXEC"],
        vec!["MULTI"],
        vec!["EVAL", "return 1"],
        vec!["EXEC"],
        vec!["SADD", "{m}s", "only"],
        vec!["MULTI"],
        vec!["SPOP", "{m}s"],
        vec!["SPOP", "{m}s", "2"],
        vec!["EXEC"],
    ];
    all.insert(0, vec!["HSET", "h", "f", "1"]);
    all.insert(1, vec!["DEL", "{k}n", "{k}l"]);
    all.insert(2, vec!["DEL", "once"]);
    all.insert(3, vec!["DEL", "long"]);
    all.insert(4, vec!["DEL", "published"]);
    all
}

#[test]
fn scripts_are_answered_as_one_redis_does() {
    let Some(world) = world("scripts", 1, |_| {}) else { return };
    let plain = &world.redises[3];
    for protocol in ["2", "3"] {
        let mut ours = Raw::connect(world.address, protocol);
        let mut theirs = Raw::connect(plain.address, protocol);
        for command in same_everywhere() {
            let expected = theirs.ask(&command);
            assert_eq!(ours.ask(&command), expected, "RESP{protocol} {command:?}");
        }
        world.settle();
        assert_eq!(world.states().len(), 1, "duplicates and the plain server differ");
    }
}

#[test]
fn what_a_script_does_by_time_and_chance_is_equal_at_all_duplicates() {
    let Some(world) = world("chance", 0, |_| {}) else { return };
    let mut client = world.client();
    let chance = "local t = redis.call('TIME') \
        redis.call('RPUSH', KEYS[1], t[1], t[2], tostring(math.random(1, 1000000))) \
        redis.call('SADD', KEYS[2], t[2], math.random(1, 1000), ARGV[1]) \
        local popped = redis.call('SPOP', KEYS[2]) \
        redis.call('HINCRBYFLOAT', KEYS[3], 'f', '0.1') \
        redis.call('SET', KEYS[4], popped, 'EX', 1000) \
        return popped";
    for number in 0..100 {
        let number = number.to_string();
        let command = ["EVAL", chance, "4", "l", "s", "h", "e", &number];
        assert!(client.ask(&command).text().is_some());
        // In between what all do.
        client.tell(&["INCR", "n"]);
        client.tell(&["GET", "e"]);
        assert!(matches!(client.read(), Reply::Integer(_)));
        assert!(client.read().text().is_some());
    }
    assert_eq!(client.ask(&["MULTI"]), ok());
    for _ in 0..5 {
        client.ask(&["SPOP", "s", "2"]);
    }
    let Reply::Array(popped) = client.ask(&["EXEC"]) else { panic!("it was done") };
    assert_eq!(popped.len(), 5);
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
    assert_eq!(world.state_now().disagreements, 0);
}

/// Its client wrote and read without waiting: as with Redis, each command sees those before it.
#[test]
fn a_script_in_a_pipeline_sees_what_was_before_and_is_seen_behind() {
    let Some(world) = world("pipeline", 0, |_| {}) else { return };
    let mut client = world.client();
    let add = ["EVAL", "return redis.call('INCRBY', KEYS[1], 10)", "1", "n"];
    let mut count = 0;
    for level in ["eventual", "read-my-own-writes", "strong"] {
        client.ask(&["EK.SESSION", level]);
        for _ in 0..50 {
            for command in [&["GET", "n"][..], &["INCR", "n"], &add, &["GET", "n"], &["INCR", "n"]]
            {
                client.tell(command);
            }
            let before = client.read();
            assert_eq!(client.read(), Reply::Integer(count + 1));
            assert_eq!(client.read(), Reply::Integer(count + 11));
            let after = client.read();
            assert_eq!(client.read(), Reply::Integer(count + 12));
            if level != "eventual" && count > 0 {
                assert_eq!(before, bulk(&count.to_string()));
                assert_eq!(after, bulk(&(count + 11).to_string()));
            }
            count += 12;
        }
    }
}

#[test]
fn consumers_of_a_group_get_each_entry_once_and_duplicates_know_it() {
    let Some(world) = world("groups", 0, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]), ok());
    let count = 300_usize;
    let taken = AtomicUsize::new(0);
    let consume = |name: &'static str| {
        let mut client = world.client();
        let mut mine = Vec::new();
        while taken.load(Ordering::Relaxed) < count {
            let read = ["XREADGROUP", "GROUP", "g", name, "COUNT", "3", "STREAMS", "s", ">"];
            let Reply::Array(streams) = client.ask(&read) else { continue };
            let [Reply::Array(stream)] = &streams[..] else { panic!("{streams:?}") };
            let Reply::Array(entries) = &stream[1] else { panic!("{stream:?}") };
            for entry in entries {
                let Reply::Array(entry) = entry else { panic!("{entry:?}") };
                let id = entry[0].text().unwrap().to_owned();
                if mine.len() % 2 == 0 {
                    assert_eq!(client.ask(&["XACK", "s", "g", &id]), Reply::Integer(1));
                }
                mine.push(id);
                taken.fetch_add(1, Ordering::Relaxed);
            }
        }
        mine
    };
    let mut all: Vec<String> = std::thread::scope(|scope| {
        let consumers = ["a", "b", "c"].map(|name| scope.spawn(move || consume(name)));
        for number in 0..count {
            let number = number.to_string();
            assert!(client.ask(&["XADD", "s", "*", "n", &number]).text().is_some());
        }
        consumers.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count, "each once");
    let claimed = client.ask(&["XAUTOCLAIM", "s", "g", "d", "0", "0", "COUNT", "5"]);
    assert!(matches!(&claimed, Reply::Array(parts) if parts.len() == 3), "{claimed:?}");
    assert_eq!(client.ask(&["XGROUP", "DELCONSUMER", "s", "g", "nobody"]), Reply::Integer(0));
    world.settle();
    let pending = |redis: &Redis| redis.client().ask(&["XPENDING", "s", "g"]);
    let expected = client.ask(&["XPENDING", "s", "g"]);
    assert!(matches!(&expected, Reply::Array(parts) if parts[0] != Reply::Integer(0)));
    for redis in &world.redises {
        assert_eq!(pending(redis), expected);
    }
}

/// A name that is known survives the duplicates' restart; one executor after the other is killed.
#[test]
fn a_script_is_done_by_another_when_who_did_it_is_gone() {
    let Some(mut world) = world("gone", 0, |_| {}) else { return };
    let mut client = world.client();
    let Reply::Bulk(name) = client.ask(&["SCRIPT", "LOAD", COUNT]) else { panic!("no name") };
    let name = String::from_utf8(name).unwrap();
    let mut count = 0;
    for killed in [0, 1, 2, 0] {
        for _ in 0..3 {
            count += 1;
            let number = count.to_string();
            let counted = client.ask(&["EVALSHA", &name, "2", "n", "l", &number]);
            assert_eq!(counted, Reply::Integer(count));
        }
        world.redises[killed].kill();
        count += 1;
        let number = count.to_string();
        let counted = client.ask(&["EVALSHA", &name, "2", "n", "l", &number]);
        assert_eq!(counted, Reply::Integer(count), "{killed} was killed");
        world.redises[killed].start();
        world.wait_live(3, PATIENCE);
    }
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
    let Reply::Array(list) = client.ask(&["LRANGE", "l", "0", "-1"]) else { panic!("a list") };
    let expected: Vec<Reply> = (1..=count).map(|it| bulk(&it.to_string())).collect();
    assert_eq!(list, expected, "each once");
}

/// What became of the scripts of some clients while duplicates died and stood still.
fn count_under_faults(world: &mut World, faults: usize) {
    let is_over = AtomicBool::new(false);
    let address = world.address;
    let (is_over, next) = (&is_over, &AtomicUsize::new(0));
    let count = move || {
        let mut client = Client::try_connect(address, 2 * PATIENCE).unwrap();
        let mut said = BTreeMap::new();
        while !is_over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed).to_string();
            let reply = client.ask(&["EVAL", COUNT, "2", "{t}n", "{t}l", &number]);
            // What all do is ordered among it.
            let mixed = client.ask(&["INCR", "{t}m"]);
            assert!(matches!(mixed, Reply::Integer(_) | Reply::Error(_)), "{mixed:?}");
            said.insert(number, reply);
        }
        said
    };
    let said: BTreeMap<String, Reply> = std::thread::scope(|scope| {
        let over = OverAtEnd(is_over);
        let counting: Vec<_> = (0..3).map(|_| scope.spawn(count)).collect();
        for fault in 0..faults {
            let victim = fault * 7 % 3;
            let seen = next.load(Ordering::Relaxed);
            match fault % 2 {
                0 => {
                    world.redises[victim].kill();
                    block_until("scripts go on", || next.load(Ordering::Relaxed) > seen + 20);
                    world.redises[victim].start();
                }
                _ => {
                    world.redises[victim].program.signal("-STOP");
                    block_until("scripts go on", || next.load(Ordering::Relaxed) > seen + 20);
                    world.redises[victim].program.signal("-CONT");
                }
            }
            world.wait_live(3, 2 * PATIENCE);
        }
        drop(over);
        counting.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
    let mut client = world.client();
    let Reply::Array(list) = client.ask(&["LRANGE", "{t}l", "0", "-1"]) else { panic!("a list") };
    assert_eq!(client.ask(&["GET", "{t}n"]), bulk(&list.len().to_string()), "whole or not at all");
    let mut times = BTreeMap::new();
    for number in &list {
        *times.entry(number.text().unwrap().to_owned()).or_insert(0) += 1;
    }
    let mut counts = [0; 3];
    for (number, reply) in &said {
        let times = times.get(number).copied().unwrap_or(0);
        match reply {
            Reply::Integer(_) => assert_eq!(times, 1, "{number} was acknowledged"),
            Reply::Error(text) if text.starts_with("UNCERTAIN") => assert!(times <= 1, "{number}"),
            Reply::Error(_) => assert_eq!(times, 0, "{number}: {reply:?}"),
            other => panic!("{other:?}"),
        }
        let index = match reply {
            Reply::Error(text) => 1 + usize::from(text.starts_with("UNCERTAIN")),
            _ => 0,
        };
        counts[index] += 1;
    }
    println!("acknowledged {}, refused {}, in doubt {}", counts[0], counts[1], counts[2]);
    assert!(counts[0] > 20 * faults, "scripts went on: {counts:?}");
}

#[test]
fn what_scripts_count_is_counted_once_whoever_dies_or_stands_still() {
    let Some(mut world) = world("counted", 0, |config| config.members.silence_max = SILENCE) else {
        return;
    };
    count_under_faults(&mut world, 8);
}

#[test]
fn the_front_ends_in_the_middle_of_scripts() {
    let at_once = |config: &mut DuplicatesConfig| config.drain = Duration::from_millis(1);
    let Some(mut world) = world("front", 0, at_once) else { return };
    let mut acknowledged = 0;
    for _ in 0..5 {
        let mut client = world.client();
        for number in 0..20 {
            let counted = client.ask(&["EVAL", COUNT, "2", "n", "l", &number.to_string()]);
            assert!(matches!(counted, Reply::Integer(_)), "{counted:?}");
            acknowledged += 1;
        }
        let slow = "local n = redis.call('INCR', KEYS[1]) redis.call('RPUSH', KEYS[2], 'slow') \
            for i = 1, 3000000 do n = n + 1 end return n";
        client.tell(&["EVAL", slow, "2", "n", "l"]);
        world.stop();
        world.restart();
        let mut client = world.client();
        let Some(Ok(now)) = client.ask(&["GET", "n"]).text().map(str::parse::<i64>) else {
            panic!("it is counted")
        };
        assert!((acknowledged..=acknowledged + 1).contains(&now), "{now}, {acknowledged}");
        assert_eq!(client.ask(&["LLEN", "l"]), Reply::Integer(now), "whole or not at all");
        acknowledged = now;
    }
    world.wait_live(3, PATIENCE);
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// What lasts longer than a duplicate may be silent, and says BUSY.
#[test]
fn a_script_that_takes_long_drops_nobody() {
    let Some(world) = world("busy", 0, |config| config.members.silence_max = SILENCE) else {
        return;
    };
    for redis in &world.redises {
        redis.client().ask(&["CONFIG", "SET", "busy-reply-threshold", "200"]);
    }
    let mut client = world.client();
    assert_eq!(client.ask(&["SET", "a", "1"]), ok());
    let long = "local begun = redis.call('TIME') local now = begun \
        while (now[1] - begun[1]) * 1000000 + now[2] - begun[2] < 3000000 do \
        now = redis.call('TIME') end return redis.call('INCR', KEYS[1])";
    let mut slow = world.client();
    slow.tell(&["EVAL", long, "1", "n"]);
    let answering = std::thread::spawn(move || slow.read());
    let mut reader = world.client();
    while !answering.is_finished() {
        assert_eq!(reader.ask(&["GET", "a"]), bulk("1"), "others are read from");
    }
    assert_eq!(answering.join().unwrap(), Reply::Integer(1));
    world.settle();
    let state = world.state_now();
    let dropped = state.partitions[0].duplicates.iter().map(|it| it.dropped.silent).sum::<u64>();
    assert_eq!(dropped, 0, "somebody was dropped");
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// Redis would begin a snapshot after five seconds, and fork for it.
#[test]
fn a_stream_begins_without_a_snapshot() {
    let Some(world) = world("snapshot", 0, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["EVAL", COUNT, "2", "{k}n", "{k}l", "x"]), Reply::Integer(1));
    let mut begun = 0;
    for redis in &world.redises {
        let Reply::Bulk(stats) = redis.client().ask(&["INFO", "stats"]) else { panic!("no INFO") };
        let stats = String::from_utf8_lossy(&stats).into_owned();
        begun += usize::from(stats.contains("sync_partial_ok:1"));
        assert!(stats.contains("total_forks:0"), "{stats}");
    }
    assert_eq!(begun, 1, "one executes it");
}

/// Then it cannot be known where the stream is.
#[test]
fn where_info_is_refused_a_stream_begins_with_a_snapshot() {
    let Some(world) = world("no-info", 0, |_| {}) else { return };
    for redis in &world.redises {
        let mut client = redis.client();
        assert_eq!(client.ask(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]), ok());
        assert_eq!(client.ask(&["ACL", "SETUSER", "default", "-info"]), ok());
    }
    let mut client = world.client();
    assert_eq!(client.ask(&["EVAL", COUNT, "2", "{k}n", "{k}l", "x"]), Reply::Integer(1));
    let mut forks = 0;
    for redis in &world.redises {
        let mut client = redis.client();
        assert_eq!(client.ask(&["ACL", "SETUSER", "default", "+info"]), ok());
        let Reply::Bulk(stats) = client.ask(&["INFO", "stats"]) else { panic!("no INFO") };
        forks += usize::from(!String::from_utf8_lossy(&stats).contains("total_forks:0"));
    }
    assert_eq!(forks, 1, "one executes it");
}

#[test]
fn without_the_right_to_psync_scripts_are_refused_in_words() {
    let Some(world) = world("refused", 0, |_| {}) else { return };
    for redis in &world.redises {
        assert_eq!(redis.client().ask(&["ACL", "SETUSER", "default", "-psync"]), ok());
    }
    let mut client = world.client();
    let refused = client.ask(&["EVAL", "return 1", "0"]);
    let Reply::Error(text) = &refused else { panic!("{refused:?}") };
    assert!(text.contains("+psync +replconf") && text.contains("NOPERM"), "{text}");
    assert_eq!(client.ask(&["INCR", "n"]), Reply::Integer(1), "all else is done");
    assert_eq!(client.ask(&["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "n"]), bulk("1"));
    for redis in &world.redises {
        assert_eq!(redis.client().ask(&["ACL", "SETUSER", "default", "+psync"]), ok());
    }
    assert_eq!(client.ask(&["EVAL", "return 1", "0"]), Reply::Integer(1), "it is asked again");
}

/// What a script must not touch: it is undone, or removed.
#[test]
fn what_scripts_must_not_do_is_undone() {
    let Some(world) = world("forbidden", 0, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["SET", "a", "1"]), ok());
    for script in [
        "redis.call('SET', 'a', '2') redis.call('SET', 'evenkeel:epoch', '99') return 1",
        "redis.call('SET', 'a', '3') redis.call('FLUSHALL') return 1",
    ] {
        let refused = client.ask(&["EVAL", script, "0"]);
        assert!(matches!(&refused, Reply::Error(text) if text.contains("undone")), "{refused:?}");
        block_until_within(2 * PATIENCE, "it is filled again", || world.live() == 3);
        assert_eq!(client.ask(&["GET", "a"]), bulk("1"));
    }
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

#[test]
fn keys_of_another_partition_that_a_script_writes_are_removed_and_told() {
    if let Err(missing) = redis::possible() {
        return skipped(&missing);
    }
    let directory = Folder::new("duplicates-strays");
    let start = |n: usize| Redis::new(directory.file(&format!("redis-{n}")));
    let redises: Vec<Redis> = (0..4).map(start).collect();
    let target =
        |redis: &Redis| Target::Tcp { address: redis.address.into(), access: Arc::default() };
    let of = |from: usize| redises[from..from + 2].iter().map(target).collect::<Vec<_>>();
    let level = |config: &mut DuplicatesConfig| config.members.acknowledge = Acknowledge::All;
    let world = World::over("two", vec![of(0), of(2)], 4, level);
    let mut client = world.client();
    let script = "for i = 1, 50 do redis.call('SET', 'stray' .. i, i) end \
        redis.call('SET', KEYS[1], 'x') return 1";
    let told = client.ask(&["EVAL", script, "1", "{a}k"]);
    assert!(
        matches!(&told, Reply::Error(text) if text.starts_with("ERR undeclared key")),
        "{told:?}"
    );
    assert_eq!(client.ask(&["GET", "{a}k"]), bulk("x"));
    let refused = client.ask(&["EVAL", "return 1", "0"]);
    assert!(matches!(&refused, Reply::Error(_)), "{refused:?}");
    world.settle();
    let states: Vec<_> = redises.iter().map(|it| contents(&mut it.client())).collect();
    assert_eq!((&states[0], &states[2]), (&states[1], &states[3]), "duplicates differ");
    let all: usize = [&states[0], &states[2]].iter().map(|it| it.len()).sum();
    let here = (1..=50).filter(|n| client.ask(&["GET", &format!("stray{n}")]) != Reply::Null);
    assert_eq!(here.count() + 1, all, "nothing lies where nobody finds it");
}
