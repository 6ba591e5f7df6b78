//! Libraries of functions: the same at all duplicates of all partitions, whoever fails.

use evenkeel_duplicates::DuplicatesConfig;
use evenkeel_duplicates::changes::ChangeRequest;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{Client, Redis, Reply};
use evenkeel_testkit::wait::{PATIENCE, block_until, block_until_within};

use super::world::World;
use super::{bulk, ok};

const COUNTING: &str = "#!lua name=counting\n\
    redis.register_function('count', function(keys, args) \
        redis.call('RPUSH', keys[1] .. ':all', args[1]) \
        return redis.call('INCR', keys[1]) end)\n\
    redis.register_function{function_name='counted', flags={'no-writes'}, \
        callback=function(keys) return redis.call('GET', keys[1]) end}";

fn world(name: &str, duplicates: usize, change: fn(&mut DuplicatesConfig)) -> Option<World> {
    World::start(name, duplicates, change)
}

/// A library of one function that returns this.
fn library(name: &str, version: u32) -> String {
    format!("#!lua name={name}\nredis.register_function('{name}', function() return {version} end)")
}

/// The texts of all libraries, in order.
fn texts(client: &mut Client) -> Vec<String> {
    let Reply::Array(libraries) = client.ask(&["FUNCTION", "LIST", "WITHCODE"]) else {
        panic!("no list")
    };
    let text = |library: &Reply| {
        let Reply::Array(parts) = library else { panic!("{library:?}") };
        parts.last().and_then(Reply::text).unwrap().to_owned()
    };
    let mut texts: Vec<String> = libraries.iter().map(text).collect();
    texts.sort();
    texts
}

fn all_have(world: &World, expected: &[String]) {
    world.settle();
    for (number, redis) in world.redises.iter().enumerate() {
        assert_eq!(texts(&mut redis.client()), expected, "duplicate {number}");
    }
}

fn is_error(reply: &Reply, words: &str) -> bool {
    matches!(reply, Reply::Error(text) if text.contains(words))
}

#[test]
fn functions_answer_as_at_one_redis_and_duplicates_have_the_same() {
    let Some(world) = world("functions", 3, |_| {}) else { return };
    let directory = Folder::new("functions-alone");
    let alone = Redis::new(directory.file("redis"));
    let (mut client, mut direct) = (world.client(), alone.client());
    let (one, two) = (library("one", 1), library("one", 2));
    let commands: Vec<Vec<&str>> = vec![
        vec!["FCALL", "count", "1", "k", "a"],
        vec!["FUNCTION", "LOAD", COUNTING],
        vec!["FUNCTION", "LOAD", COUNTING],
        vec!["FUNCTION", "LOAD", "REPLACE", COUNTING],
        vec!["FUNCTION", "LOAD", "no library"],
        vec!["FUNCTION", "LOAD"],
        vec!["FUNCTION", "NOTHING"],
        vec!["FCALL", "count", "1", "k", "a"],
        vec!["FCALL", "count", "1", "k"],
        vec!["FCALL", "count", "x"],
        vec!["FCALL", "count", "-1"],
        vec!["FCALL", "count", "2", "k"],
        vec!["FCALL_RO", "counted", "1", "k"],
        vec!["FCALL_RO", "count", "1", "k", "b"],
        vec!["FCALL", "counted", "1", "k"],
        vec!["FCALL", "nothing", "0"],
        vec!["FUNCTION", "LOAD", &one],
        vec!["FCALL", "one", "0"],
        vec!["FUNCTION", "LOAD", "REPLACE", &two],
        vec!["FCALL", "one", "0"],
        vec!["FUNCTION", "DELETE", "nothing"],
        vec!["FUNCTION", "LIST", "LIBRARYNAME", "one", "WITHCODE"],
        vec!["FUNCTION", "KILL"],
        vec!["SCRIPT", "KILL"],
        vec!["FUNCTION", "STATS"],
        vec!["FUNCTION", "HELP"],
        vec!["MULTI"],
        vec!["INCR", "k"],
        vec!["FCALL", "count", "1", "k", "c"],
        vec!["FUNCTION", "STATS"],
        vec!["EXEC"],
        vec!["FUNCTION", "DELETE", "one"],
        vec!["FCALL", "one", "0"],
        vec!["FUNCTION", "FLUSH", "NOW"],
        vec!["FUNCTION", "FLUSH", "SYNC"],
        vec!["FUNCTION", "LIST"],
        vec!["LRANGE", "k:all", "0", "-1"],
    ];
    for command in &commands {
        assert_eq!(client.ask(command), direct.ask(command), "{command:?}");
    }
    all_have(&world, &[]);
    assert_eq!(client.ask(&["FUNCTION", "LOAD", &one]), bulk("one"));
    let Reply::Bulk(dump) = client.ask(&["FUNCTION", "DUMP"]) else { panic!("no dump") };
    let send = |client: &mut Client, policy: &str| {
        let mut bytes = Vec::new();
        let words: [&[u8]; 4] = [b"FUNCTION", b"RESTORE", &dump, policy.as_bytes()];
        evenkeel_stores::resp::encode::command(&mut bytes, &words);
        client.send(&bytes);
        client.read()
    };
    assert!(is_error(&send(&mut client, "APPEND"), "already exists"));
    assert_eq!(client.ask(&["FUNCTION", "LOAD", "REPLACE", &two]), bulk("one"));
    assert_eq!(send(&mut client, "REPLACE"), ok());
    assert_eq!(client.ask(&["FCALL", "one", "0"]), Reply::Integer(1));
    all_have(&world, &[one]);
    assert_eq!(world.state_now().disagreements, 0);
}

/// One executor after the other is killed and comes back, one of them with nothing.
#[test]
fn a_duplicate_that_comes_back_has_the_libraries_of_the_others() {
    let Some(mut world) = world("functions-back", 3, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["FUNCTION", "LOAD", COUNTING]), bulk("counting"));
    let (mut expected, mut count) = (vec![COUNTING.to_owned()], 0);
    for round in 0..4_u32 {
        let (victim, name) = (round as usize % 3, format!("round{round}"));
        world.redises[victim].kill();
        let text = library(&name, round);
        assert_eq!(client.ask(&["FUNCTION", "LOAD", &text]), bulk(&name), "{victim} was killed");
        expected.push(text);
        for _ in 0..5 {
            count += 1;
            let counted = client.ask(&["FCALL", "count", "1", "k", &count.to_string()]);
            assert_eq!(counted, Reply::Integer(count));
        }
        if round % 2 == 1 {
            world.redises[victim].wipe();
        }
        world.redises[victim].start();
        world.wait_live(3, 2 * PATIENCE);
        assert_eq!(client.ask(&["FCALL_RO", &name, "0"]).text(), None);
    }
    expected.sort();
    all_have(&world, &expected);
    assert_eq!(world.states().len(), 1, "duplicates differ");
    let Reply::Array(all) = client.ask(&["LRANGE", "k:all", "0", "-1"]) else { panic!("a list") };
    let each: Vec<Reply> = (1..=count).map(|it| bulk(&it.to_string())).collect();
    assert_eq!(all, each, "each once");
}

/// A partition that comes has them before its first key, and a shard that moves back finds what was
/// changed since.
#[test]
fn every_partition_has_the_libraries_also_one_that_is_added() {
    let Some(world) = World::with_spares("functions-partitions", 4, 2, |config| {
        let targets = config.partitions.remove(0);
        config.partitions = targets.chunks(2).map(<[_]>::to_vec).collect();
    }) else {
        return;
    };
    let mut client = world.client();
    assert_eq!(client.ask(&["FUNCTION", "LOAD", COUNTING]), bulk("counting"));
    let count_all = |client: &mut Client, expected: i64| {
        for n in 0..32 {
            let counted = client.ask(&["FCALL", "count", "1", &format!("{{{n}}}k"), "x"]);
            assert_eq!(counted, Reply::Integer(expected), "{n}");
        }
    };
    let crossing = client.ask(&["FCALL", "count", "0"]);
    assert!(is_error(&crossing, "nobody knows its partition"), "{crossing:?}");
    let crosses = |n: i32| {
        let with = client.ask(&["FCALL", "counted", "2", "{1}k", &format!("{{{n}}}k")]);
        is_error(&with, "CROSSSLOT")
    };
    assert!((2..32).any(crosses), "they are in two partitions");
    let addresses = world.redises[4..].iter().map(|it| it.address.to_string()).collect();
    let shard = world.owners().iter().position(|&owner| owner == 0).unwrap();
    let order = ChangeRequest::AddPartition { addresses, duplicates: None, shard: Some(shard) };
    world.request_change(order).unwrap();
    count_all(&mut client, 1);
    let back = |to| ChangeRequest::MoveShard { shard, to };
    world.request_change(back(0)).unwrap();
    assert_eq!(client.ask(&["FUNCTION", "DELETE", "counting"]), ok());
    let changed = COUNTING.replace("'INCR'", "'DECR'");
    assert_eq!(client.ask(&["FUNCTION", "LOAD", &changed]), bulk("counting"));
    world.settle();
    assert_eq!(texts(&mut world.redises[4].client()), [COUNTING], "it holds nothing");
    world.request_change(back(2)).unwrap();
    count_all(&mut client, 0);
    all_have(&world, &[changed]);
}

#[test]
fn a_library_that_somebody_else_changed_is_found_and_mended() {
    let Some(world) = world("functions-differ", 3, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["FUNCTION", "LOAD", COUNTING]), bulk("counting"));
    for change in [&["FUNCTION", "FLUSH"][..], &["FUNCTION", "LOAD", &library("foreign", 1)]] {
        let before = world.state_now().disagreements;
        assert!(!matches!(world.redises[1].client().ask(change), Reply::Error(_)), "{change:?}");
        block_until_within(2 * PATIENCE, "it is found", || {
            client.ask(&["INCR", "n"]);
            world.state().disagreements > before
        });
        world.wait_live(3, 2 * PATIENCE);
        all_have(&world, &[COUNTING.to_owned()]);
    }
    let state = world.state_now();
    let diverged: Vec<u64> =
        state.partitions[0].duplicates.iter().map(|it| it.dropped.diverged).collect();
    assert_eq!(diverged, [0, 2, 0], "nobody else was filled");
}

/// Everything is lost but the log, and what it has is a state and what came behind.
#[test]
fn the_log_alone_brings_libraries_back() {
    let Some(mut world) = world("functions-log", 2, |config| {
        config.members.acknowledge = evenkeel_ordered::Acknowledge::All;
        config.log.segment_bytes = 16 << 10;
        config.log.bytes_max = 256 << 10;
    }) else {
        return;
    };
    let mut client = world.client();
    assert_eq!(client.ask(&["FUNCTION", "LOAD", COUNTING]), bulk("counting"));
    let long = "x".repeat(4 << 10);
    let mut n = 0;
    block_until("what is older than a state of everything is forgotten", || {
        n += 1;
        assert_eq!(client.ask(&["SET", &format!("k{}", n % 5), &long]), ok());
        world.state().log.first_sequence > 1
    });
    let later = library("later", 7);
    assert_eq!(client.ask(&["FUNCTION", "LOAD", &later]), bulk("later"));
    world.settle();
    world.stop();
    for redis in &mut world.redises {
        redis.kill();
        redis.wipe();
        redis.start();
    }
    world.restart();
    all_have(&world, &[COUNTING.to_owned(), later]);
}

const ENDLESS: &str = "while true do end";

/// Also of a read, which all duplicates run.
#[test]
fn a_script_that_does_not_end_is_ended_by_another_client() {
    let Some(world) = world("kill", 3, |_| {}) else { return };
    for redis in &world.redises {
        redis.client().ask(&["CONFIG", "SET", "busy-reply-threshold", "200"]);
    }
    let mut client = world.client();
    let endless = "#!lua name=endless\nredis.register_function('endless', \
        function() while true do end end)";
    assert_eq!(client.ask(&["FUNCTION", "LOAD", endless]), bulk("endless"));
    let mut other = world.client();
    for (script, end) in [
        (&["EVAL", ENDLESS, "1", "k"][..], &["SCRIPT", "KILL"][..]),
        (&["FCALL", "endless", "1", "k"], &["FUNCTION", "KILL"]),
        (&["EVAL_RO", ENDLESS, "1", "k"], &["SCRIPT", "KILL"]),
    ] {
        other.tell(script);
        block_until("it is ended", || {
            let ended = client.ask(end);
            assert!(ended == ok() || is_error(&ended, "NOTBUSY"), "{ended:?}");
            ended == ok()
        });
        let ended = other.read();
        assert!(is_error(&ended, "killed by user"), "{script:?}: {ended:?}");
        // Who began later than it was asked runs still, or was dropped.
        block_until_within(2 * PATIENCE, "all are live and nobody runs anything", || {
            is_error(&client.ask(end), "NOTBUSY") && world.live() == 3
        });
        assert!(matches!(client.ask(&["INCR", "n"]), Reply::Integer(_)), "{script:?}");
    }
    let written = "redis.call('SET', KEYS[1], 1) while true do end";
    other.tell(&["EVAL", written, "1", "k"]);
    block_until("it is told that it cannot be", || {
        is_error(&client.ask(&["SCRIPT", "KILL"]), "UNKILLABLE")
    });
}
