//! Duplicates over real Redis servers: what clients see, and what survives.

#![expect(clippy::unwrap_used, reason = "a test may fail")]
#![allow(unreachable_pub, reason = "rooms of a test")]

mod acting;
mod all_keys;
mod beside;
mod caching;
mod channels;
mod cluster_nodes;
mod config;
mod databases;
mod diverged;
mod effects;
#[cfg(target_os = "linux")]
mod expiring;
#[cfg(target_os = "linux")]
mod full;
mod functions;
mod group_waits;
mod hold;
#[cfg(target_os = "linux")]
mod key_events;
mod keyspaces;
mod kinds;
mod mixed;
mod one_server;
mod online;
mod pausing;
mod published;
mod refused;
mod restored;
mod servers;
mod silent;
mod stopping;
mod stores;
mod streams;
mod tracking;
mod users;
mod waiting;
mod watch;
mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_duplicates::changes::ChangeRequest;
use evenkeel_ordered::Acknowledge;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::{OverAtEnd, PATIENCE, block_for, block_until};
use world::World;

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

fn bulk(text: &str) -> Reply {
    Reply::bulk(text)
}

#[test]
fn a_write_is_at_every_duplicate_and_a_read_sees_it() {
    let Some(world) = World::start("plain", 2, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["SET", "a", "1"]), ok());
    assert_eq!(client.ask(&["GET", "a"]), bulk("1"));
    assert_eq!(client.ask(&["INCRBY", "a", "41"]), Reply::Integer(42));
    assert_eq!(client.ask(&["LPUSH", "l", "x", "y"]), Reply::Integer(2));
    assert_eq!(client.ask(&["GET", "nothing"]), Reply::Null);
    let wrong = client.ask(&["GET", "l"]);
    assert!(matches!(&wrong, Reply::Error(text) if text.starts_with("WRONGTYPE")), "{wrong:?}");
    assert_eq!(client.ask(&["MULTI"]), ok());
    assert_eq!(client.ask(&["INCR", "{a}n"]), Reply::Simple("QUEUED".to_owned()));
    assert_eq!(client.ask(&["GET", "{a}n"]), Reply::Simple("QUEUED".to_owned()));
    assert_eq!(client.ask(&["EXEC"]), Reply::Array(vec![Reply::Integer(1), bulk("1")]));
    for expiring in [&["SET", "e", "1", "EX", "100"][..], &["EXPIRE", "e", "100"]] {
        client.ask(expiring);
    }
    world.settle();
    for redis in &world.redises {
        let mut direct = redis.client();
        assert_eq!(direct.ask(&["GET", "a"]), bulk("42"));
        assert_eq!(
            direct.ask(&["LRANGE", "l", "0", "-1"]),
            Reply::Array(vec![bulk("y"), bulk("x")])
        );
    }
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

#[test]
fn a_duplicate_that_was_killed_replays_what_it_missed() {
    let level = |config: &mut evenkeel_duplicates::DuplicatesConfig| {
        config.members.acknowledge = Acknowledge::All;
    };
    let Some(mut world) = World::start("replay", 2, level) else { return };
    let mut client = world.client();
    for n in 0..500 {
        assert_eq!(client.ask(&["INCR", &format!("k{}", n % 7)]), Reply::Integer(n / 7 + 1));
    }
    world.redises[1].kill();
    for n in 500..1_000 {
        let came = client.ask(&["INCR", &format!("k{}", n % 7)]);
        assert_eq!(came, Reply::Integer(n / 7 + 1));
    }
    world.redises[1].start();
    world.wait_live(2, Duration::from_secs(10));
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

#[test]
fn an_empty_duplicate_is_filled_while_writes_go_on() {
    let forgets = |config: &mut evenkeel_duplicates::DuplicatesConfig| {
        config.members.acknowledge = Acknowledge::All;
        config.log.segment_bytes = 4 << 10;
        config.log.bytes_max = 16 << 10;
    };
    let Some(mut world) = World::start("filled", 2, forgets) else { return };
    let mut client = world.client();
    for n in 0..3_000 {
        client.ask(&["SET", &format!("k{n}"), "0"]);
    }
    world.redises[1].kill();
    world.redises[1].wipe();
    for n in 0..3_000 {
        client.ask(&["INCR", &format!("k{n}")]);
    }
    world.redises[1].start();
    // Writes to old keys, new keys and removals, while it is filled.
    let started = std::time::Instant::now();
    let mut n = 0;
    while world.live() < 2 && started.elapsed() < Duration::from_secs(20) {
        client.ask(&["INCR", &format!("k{}", n % 3_000)]);
        client.ask(&["SET", &format!("new{n}"), "x"]);
        client.ask(&["DEL", &format!("k{}", (n * 7) % 3_000)]);
        n += 1;
    }
    println!("filled in {:?} beside {} writes", started.elapsed(), 3 * n);
    world.wait_live(2, Duration::from_secs(5));
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

#[test]
fn the_log_alone_brings_everything_back() {
    let short = |config: &mut evenkeel_duplicates::DuplicatesConfig| {
        config.members.acknowledge = Acknowledge::All;
        config.log.segment_bytes = 16 << 10;
        config.log.bytes_max = 512 << 10;
    };
    let Some(mut world) = World::start("restored", 2, short) else { return };
    let mut client = world.client();
    for n in 0..6_000 {
        client.ask(&["SET", &format!("k{}", n % 500), &n.to_string()]);
        client.ask(&["INCR", &format!("n{}", n % 50)]);
        client.ask(&["RPUSH", &format!("l{}", n % 10), &n.to_string()]);
        if n % 3 == 0 {
            client.ask(&["DEL", &format!("k{}", (n * 7) % 500)]);
        }
    }
    world.settle();
    let before = world.states();
    assert_eq!(before.len(), 1, "duplicates differ");
    let first = world.state().log.first_sequence;
    assert!(first > 1_000, "nothing was forgotten: the log begins with {first}");
    for redis in &mut world.redises {
        redis.kill();
        redis.wipe();
        redis.start();
    }
    world.wait_live(2, 2 * PATIENCE);
    world.settle();
    assert_eq!(world.states(), before, "something was lost");
}

#[test]
fn a_client_of_another_protocol_is_told_so_and_closed() {
    let Some(world) = World::start("garbage", 1, |_| {}) else { return };
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"*9999999999\r\n",
        b"*1\r\n$-5\r\n",
        b"*1\r\n:3\r\n",
    ] {
        let mut client = world.client();
        client.send(garbage);
        let came = client.rest();
        assert!(came.starts_with(b"-ERR"), "{:?}", String::from_utf8_lossy(&came));
    }
    let mut client = world.client();
    let refused = client.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    assert!(matches!(&refused, Reply::Error(_)), "{refused:?}");
    assert_eq!(client.ask(&["MSET", "a", "1", "b", "2"]), ok());
}

#[test]
fn an_application_in_the_process_has_the_same_sessions() {
    let Some(world) = World::start("within", 2, |_| {}) else { return };
    let opener = world.opener.clone().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut one = opener.enter(None).await.unwrap();
        one.store(b"a", b"1").await.unwrap();
        assert_eq!(one.value(b"a").await.unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(one.value(b"nothing").await.unwrap(), None);
        let token = one.token().await.unwrap();
        let mut other = opener.enter(None).await.unwrap();
        other.adopt(&token).await.unwrap();
        assert_eq!(other.value(b"a").await.unwrap().as_deref(), Some(&b"1"[..]));
        let wrong = other.ask(&[b"LPUSH", b"a", b"x"]).await.unwrap_err();
        assert!(wrong.to_string().starts_with("WRONGTYPE"), "{wrong}");
        let many: Vec<[&[u8]; 2]> = vec![[b"INCR", b"n"]; 1_000];
        let many: Vec<&[&[u8]]> = many.iter().map(|one| &one[..]).collect();
        let answers = one.ask_all(&many).await.unwrap();
        let last = answers.back().unwrap().as_ref().unwrap();
        assert_eq!(last.as_slice(), b":1000\r\n");
        assert!(other.remove(b"a").await.unwrap() && !other.remove(b"a").await.unwrap());
    });
    assert_eq!(world.client().ask(&["GET", "n"]), bulk("1000"));
}

#[test]
fn a_session_carries_what_it_wrote_to_another_connection() {
    let Some(world) = World::start("session", 2, |_| {}) else { return };
    let (mut one, mut other) = (world.client(), world.client());
    one.ask(&["SET", "a", "1"]);
    let Reply::Bulk(token) = one.ask(&["EK.TOKEN"]) else { panic!("no token") };
    let token = String::from_utf8(token).unwrap();
    assert_eq!(other.ask(&["EK.SESSION", &token]), ok());
    assert_eq!(other.ask(&["GET", "a"]), bulk("1"));
    let stale = other.ask(&["EK.SESSION", "1-99999"]);
    assert!(matches!(&stale, Reply::Error(text) if text.starts_with("STALE")), "{stale:?}");
}

/// Nobody waited between them: as with Redis itself, the read comes first.
#[test]
fn a_read_does_not_see_what_its_client_wrote_behind_it() {
    let Some(world) = World::start("behind", 2, |_| {}) else { return };
    let mut client = world.client();
    client.ask(&["EK.SESSION", "eventual"]);
    let whole = |reply: Reply| match reply {
        Reply::Bulk(text) => String::from_utf8(text).unwrap().parse().unwrap(),
        Reply::Null => 0,
        other => panic!("{other:?}"),
    };
    let mut count = 0;
    for round in 0..300 {
        if round == 100 {
            client.ask(&["EK.SESSION", "read-my-own-writes"]);
        }
        for command in [
            &["GET", "{n}"][..],
            &["MGET", "other{n}", "{n}"],
            &["INCR", "{n}"],
            &["SET", "{n}third", "1"],
            &["GET", "{n}"],
            &["MULTI"],
            &["INCRBY", "{n}", "1"],
            &["EXEC"],
            &["SADD", "{n}set", "a"],
            &["SCARD", "{n}set"],
            &["SPOP", "{n}set"],
        ] {
            client.tell(command);
        }
        let mut next = || client.read();
        let is_exact = round >= 100;
        let check = |seen: i64, count| assert!(seen <= count && (!is_exact || seen == count));
        check(whole(next()), count);
        let Reply::Array(values) = next() else { panic!("an MGET has many") };
        check(whole(values[1].clone()), count);
        assert_eq!(next(), Reply::Integer(count + 1));
        assert_eq!(next(), ok());
        check(whole(next()), count + 1);
        assert_eq!(next(), ok());
        assert_eq!(next(), Reply::Simple("QUEUED".to_owned()));
        assert_eq!(next(), Reply::Array(vec![Reply::Integer(count + 2)]));
        count += 2;
        assert_eq!(next(), Reply::Integer(1));
        let before = next();
        assert!(!is_exact || before == Reply::Integer(1), "{before:?}, popped behind it");
        assert_eq!(next(), bulk("a"));
    }
}

/// A partition of one that gets a second: with a majority of two nobody could write until that is
/// filled, if it counted from the start.
#[test]
fn one_that_is_added_counts_once_it_has_everything() {
    let Some(mut world) = World::with_spares("second", 1, 1, |_| {}) else { return };
    let mut client = world.client();
    let value = "v".repeat(200);
    (0..5_000).for_each(|n| client.tell(&["SET", &format!("filling{n}"), &value]));
    (0..5_000).for_each(|_| assert_eq!(client.read(), ok()));
    let address = world.redises[1].address.to_string();
    let add = || {
        world.request_change(ChangeRequest::AddDuplicate {
            partition: 0,
            address: Some(address.clone()),
        })
    };
    let is_over = AtomicBool::new(false);
    let count = || {
        let (mut client, mut count) = (world.client(), 0);
        while !is_over.load(Ordering::Relaxed) {
            count += 1;
            assert_eq!(client.ask(&["INCR", &format!("k{count}")]), Reply::Integer(1));
        }
        count
    };
    let written = std::thread::scope(|scope| {
        let over = OverAtEnd(&is_over);
        let writing = scope.spawn(count);
        let added = add();
        drop(over);
        added.unwrap();
        writing.join().unwrap()
    });
    assert!(written > 0);
    let state = world.state();
    let duplicates = &state.partitions[0].duplicates;
    assert!(duplicates.len() == 2 && duplicates.iter().all(|it| !it.is_joining), "{duplicates:?}");
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
    world.redises[1].kill();
    let reported = client.ask(&["SET", "a", "1"]);
    assert!(matches!(reported, Reply::Error(_)), "two are two from now on: {reported:?}");
}

#[test]
fn one_that_is_added_and_never_reached_stops_nobody() {
    let Some(mut world) = World::with_spares("unreached", 1, 1, |_| {}) else { return };
    let mut client = world.client();
    world.redises[1].kill();
    let address = Some(world.redises[1].address.to_string());
    let add = || world.request_change(ChangeRequest::AddDuplicate { partition: 0, address });
    std::thread::scope(|scope| {
        let adding = scope.spawn(add);
        while world.state().moves.now.as_ref().is_none_or(|now| now.error.is_none()) {
            assert!(matches!(client.ask(&["INCR", "n"]), Reply::Integer(_)));
        }
        let now = world.state();
        assert!(now.partitions[0].duplicates[1].is_joining, "{now:#?}");
        let why = world.request_change(ChangeRequest::Abandon {}).unwrap_err();
        assert!(why.contains("not wanted any more"), "{why}");
        assert!(adding.join().unwrap().is_err());
    });
    assert_eq!(world.state().partitions[0].duplicates.len(), 1);
    assert_eq!(client.ask(&["SET", "a", "1"]), ok());
}

#[test]
fn a_front_that_is_started_anew_goes_on_and_its_predecessor_is_fenced_off() {
    let Some(mut world) = World::start("again", 2, |_| {}) else { return };
    let mut client = world.client();
    for n in 1..=300 {
        assert_eq!(client.ask(&["INCR", "n"]), Reply::Integer(n));
    }
    world.restart();
    let mut client = world.client();
    for n in 301..=400 {
        assert_eq!(client.ask(&["INCR", "n"]), Reply::Integer(n));
    }
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

#[test]
fn a_reader_that_never_reads_costs_bounded_memory() {
    let Some(world) = World::start("deaf", 1, |_| {}) else { return };
    let mut client = world.client();
    client.ask(&["SET", "big", &"x".repeat(100_000)]);
    let mut deaf = world.client();
    let sent = deaf.send_until_blocked(b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n", Duration::from_secs(2));
    assert!(sent < 64 << 20, "{sent} bytes were taken from a client that reads nothing");
    assert_eq!(client.ask(&["PING"]), Reply::Simple("PONG".to_owned()));
}

/// A client of the plain kind must be served: only the words it says are ours to judge.
#[test]
fn an_inline_command_is_a_command() {
    let Some(world) = World::start("inline", 1, |_| {}) else { return };
    let mut client: Client = world.client();
    client.send(b"SET a \"1 2\"\r\nGET a\r\n");
    assert_eq!(client.read(), ok());
    assert_eq!(client.read(), bulk("1 2"));
}

#[test]
fn a_popped_member_goes_to_one_client() {
    let Some(world) = World::start("pop", 2, |_| {}) else { return };
    let mut client = world.client();
    let members: Vec<String> = (0..400).map(|n| format!("m{n}")).collect();
    let add: Vec<&str> =
        ["SADD", "s"].into_iter().chain(members.iter().map(String::as_str)).collect();
    assert_eq!(client.ask(&add), Reply::Integer(400));
    let pops = |mut client: Client| {
        let mut all = Vec::new();
        loop {
            match client.ask(&["SPOP", "s"]) {
                Reply::Bulk(member) => all.push(member),
                came => assert_eq!(came, Reply::Null),
            }
            let Reply::Array(some) = client.ask(&["SPOP", "s", "3"]) else { panic!("no array") };
            if some.is_empty() {
                return all;
            }
            all.extend(some.into_iter().map(|member| match member {
                Reply::Bulk(member) => member,
                other => panic!("{other:?}"),
            }));
        }
    };
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let client = world.client();
            std::thread::spawn(move || pops(client))
        })
        .collect();
    let mut popped: Vec<_> = clients.into_iter().flat_map(|it| it.join().unwrap()).collect();
    popped.sort();
    let mut expected: Vec<_> = members.into_iter().map(String::into_bytes).collect();
    expected.sort();
    assert_eq!(popped, expected);
    // What stands behind it finds the member gone, also in one packet.
    client.send(b"SADD t a b\r\nSPOP t\r\nSCARD t\r\nSPOP t 9\r\nSCARD t\r\nSPOP t x\r\nPING\r\n");
    assert_eq!(client.read(), Reply::Integer(2));
    let Reply::Bulk(_) = client.read() else { panic!("no member") };
    assert_eq!(client.read(), Reply::Integer(1));
    assert!(matches!(client.read(), Reply::Array(rest) if rest.len() == 1));
    assert_eq!(client.read(), Reply::Integer(0));
    let range = "ERR value is out of range, must be positive".to_owned();
    assert_eq!(client.read(), Reply::Error(range));
    assert_eq!(client.read(), Reply::Simple("PONG".to_owned()));
    client.ask(&["SET", "text", "1"]);
    let wrong = client.ask(&["SPOP", "text", "2"]);
    assert!(matches!(&wrong, Reply::Error(text) if text.starts_with("WRONGTYPE")), "{wrong:?}");
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

#[test]
fn the_answers_of_a_transaction_are_those_of_redis() {
    let Some(world) = World::start("exec", 1, |_| {}) else { return };
    let mut client = world.client();
    client.ask(&["ZADD", "z", "1", "a", "2.5", "b"]);
    client.ask(&["HSET", "{z}h", "f", "v"]);
    let transaction: [&[&str]; 6] = [
        &["MULTI"],
        &["ZRANGE", "z", "0", "-1", "WITHSCORES"],
        &["LPOP", "{z}none", "2"],
        &["HGETALL", "{z}h"],
        &["ZSCORE", "z", "b"],
        &["EXEC"],
    ];
    let ours: Vec<Reply> = transaction.iter().map(|words| client.ask(words)).collect();
    let mut direct = world.redises[0].client();
    let theirs: Vec<Reply> = transaction.iter().map(|words| direct.ask(words)).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn a_redis_that_evicts_is_not_taken() {
    let Some(world) = World::start("evicts", 2, |config| {
        config.members.acknowledge = Acknowledge::All;
    }) else {
        return;
    };
    let mut direct = world.redises[1].client();
    direct.ask(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"]);
    direct.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    block_until("it is told why", || {
        let state = world.state();
        let error = state.partitions.first().and_then(|it| it.duplicates[1].error.as_ref());
        error.is_some_and(|text| text.contains("allkeys-lru"))
    });
    assert_eq!(world.client().ask(&["SET", "a", "1"]), ok());
    direct.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    world.wait_live(2, Duration::from_secs(10));
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

/// A server that says beside each answer how it is. It keeps what Evenkeel writes of itself, or it
/// would be no duplicate any more.
fn talkative() -> std::net::SocketAddr {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let kept = std::sync::Mutex::new(std::collections::BTreeMap::<Vec<u8>, Vec<u8>>::new());
    let own = std::sync::Arc::new(move |words: &[Vec<u8>]| {
        let mut kept = kept.lock().unwrap();
        let key = words.get(1).filter(|key| key.starts_with(b"evenkeel:"))?;
        match words[0].as_slice() {
            b"SET" => drop(kept.insert(key.clone(), words[2].clone())),
            b"GET" => {
                let text = String::from_utf8(kept.get(key)?.clone()).unwrap();
                return Some(format!("${}\r\n{text}\r\n", text.len()));
            }
            _ => {}
        }
        None
    });
    let answer = |words: &[Vec<u8>]| match words[0].as_slice() {
        b"HELLO" => "%1\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n",
        b"CONFIG" => "%2\r\n+maxmemory\r\n+0\r\n+maxmemory-policy\r\n+noeviction\r\n",
        b"DBSIZE" => ":0\r\n",
        b"CLIENT" if words[1] == b"LIST" => "$0\r\n\r\n",
        b"SET" if words[1] == b"evenkeel:epoch" => "+QUEUED\r\n",
        b"EXEC" => "*1\r\n+OK\r\n",
        b"GET" if words[1] == b"a" => "$1\r\nv\r\n",
        b"GET" => "_\r\n",
        b"LRANGE" => "*2\r\n$1\r\nx\r\n|1\r\n+ttl\r\n:1\r\n$1\r\ny\r\n",
        _ => "+OK\r\n",
    };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, own) = (stream.unwrap(), std::sync::Arc::clone(&own));
            std::thread::spawn(move || {
                let mut parser = evenkeel_stores::resp::request::RequestParser::default();
                let (mut inbox, mut some) = (Vec::new(), [0; 4096]);
                while let Ok(count @ 1..) = stream.read(&mut some) {
                    inbox.extend_from_slice(&some[..count]);
                    while let Some(length) = parser.parse(&inbox).unwrap() {
                        let words: Vec<Vec<u8>> =
                            parser.arguments(&inbox).iter().map(<[u8]>::to_vec).collect();
                        inbox.drain(..length);
                        let reply = own(&words).unwrap_or_else(|| answer(&words).to_owned());
                        let reply = format!("|1\r\n+load\r\n*1\r\n:7\r\n{reply}");
                        if stream.write_all(reply.as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

#[test]
fn nobody_gets_an_attribute() {
    let target = evenkeel_duplicates::Target::Tcp {
        address: talkative().into(),
        access: std::sync::Arc::default(),
    };
    let world = World::over("talkative", vec![vec![target]], 1, |_| {});
    let mut client = world.client();
    assert_eq!(client.ask(&["SET", "a", "v"]), ok());
    assert_eq!(client.ask(&["GET", "a"]), bulk("v"));
    assert_eq!(client.ask(&["LRANGE", "a", "0", "-1"]), Reply::Array(vec![bulk("x"), bulk("y")]));
    let mut modern = world.client();
    modern.send(b"HELLO 3\r\nGET a\r\nLRANGE a 0 -1\r\nQUIT\r\n");
    let came = modern.rest();
    let expected = b"$1\r\nv\r\n*2\r\n$1\r\nx\r\n$1\r\ny\r\n+OK\r\n";
    assert!(came.ends_with(expected), "{}", String::from_utf8_lossy(&came));
}

#[test]
fn a_client_that_says_nothing_is_disconnected_where_that_is_wanted() {
    let idle = Duration::from_millis(200);
    let Some(world) = World::start("idle", 1, |config| config.idle_max = Some(idle)) else {
        return;
    };
    let (mut idle_one, mut busy) = (world.client(), world.client());
    assert_eq!(idle_one.ask(&["SET", "a", "1"]), ok());
    for _ in 0..20 {
        std::thread::sleep(idle / 8);
        assert_eq!(busy.ask(&["GET", "a"]), bulk("1"));
    }
    assert_eq!(idle_one.rest(), b"", "its connection was closed");
}

#[test]
fn a_duplicate_of_another_service_is_not_taken() {
    let Some(mut world) = World::start("foreign", 2, |_| {}) else { return };
    assert_eq!(world.client().ask(&["SET", "a", "1"]), ok());
    world.settle();
    world.stop();
    let mut second = world.redises[1].client();
    let Reply::Bulk(own) = second.ask(&["GET", "evenkeel:epoch"]) else { panic!("unsigned") };
    let own = String::from_utf8(own).unwrap();
    let (epoch, name) = own.lines().next().and_then(|line| line.rsplit_once(' ')).unwrap();
    assert_eq!(name, "foreign", "{own}");
    assert_eq!(second.ask(&["SET", "evenkeel:epoch", &format!("{epoch} till")]), ok());
    world.expected = 1;
    world.restart();
    let why = block_for("it is told why", || {
        let state = world.state();
        state.partitions.first().and_then(|it| it.duplicates[1].error.clone())
    });
    assert!(why.contains("belongs to the service 'till', expected 'foreign'"), "{why}");
    assert_eq!(second.ask(&["GET", "a"]), bulk("1"), "nobody has touched it");
}
