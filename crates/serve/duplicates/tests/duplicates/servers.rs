//! Commands about servers and connections: beside one plain Redis, byte by byte, and while
//! duplicates are dead or stand still.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_duplicates::{DuplicatesConfig, Target};
use evenkeel_stores::resp::reply::ReplyScanner;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{self, Client, Redis, Reply, encoded};
use evenkeel_testkit::story::skipped;
use evenkeel_testkit::wait::{PATIENCE, block_until};

use super::world::World;
use super::{bulk, ok};

/// A connection whose replies are taken as they come.
struct Raw {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Raw {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream, bytes: Vec::new() }
    }

    fn ask(&mut self, command: &[&str]) -> String {
        self.stream.write_all(&encoded(command)).unwrap();
        let mut scanner = ReplyScanner::default();
        loop {
            if let Some(length) = scanner.scan(&self.bytes).unwrap() {
                let reply: Vec<u8> = self.bytes.drain(..length).collect();
                return String::from_utf8_lossy(&reply).into_owned();
            }
            let mut some = [0; 65_536];
            let count = self.stream.read(&mut some).unwrap();
            assert!(count > 0, "{command:?}: the connection ended");
            self.bytes.extend_from_slice(&some[..count]);
        }
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').map(|word| word.trim_matches('\'')).collect()
}

/// A plain Redis and three duplicates behind a front, each asked the same.
fn beside(name: &str, lines: &[&str]) {
    let Some(world) = World::start(name, 3, |_| {}) else { return };
    let folder = Folder::new(&format!("duplicates-{name}-plain"));
    let plain = Redis::new(folder.file("redis"));
    let mut differences = Vec::new();
    for protocol in ["2", "3"] {
        let mut direct = Raw::connect(plain.address);
        let mut front = Raw::connect(world.address);
        for connection in [&mut direct, &mut front] {
            connection.ask(&["HELLO", protocol]);
            connection.ask(&["DEL", "k", "text"]);
        }
        for line in lines {
            let expected = direct.ask(&words(line));
            let came = front.ask(&words(line));
            if came != expected {
                differences.push(format!("RESP{protocol}: {line}: {came:?}, not {expected:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
}

#[test]
fn what_is_said_of_connections_is_as_redis_says_it() {
    beside(
        "connections",
        &[
            "ACL LOG RESET",
            "ACL LOG",
            "PING",
            "PING a",
            "PING a b",
            "ECHO a",
            "SELECT 0",
            "SELECT 99",
            "SELECT x",
            "CLIENT SETNAME x\u{7f}y",
            "CLIENT SETNAME name",
            "CLIENT GETNAME",
            "CLIENT GETREDIR",
            "CLIENT TRACKINGINFO",
            "CLIENT TRACKING OFF",
            "CLIENT CACHING YES",
            "CLIENT NO-EVICT ON",
            "CLIENT NO-EVICT maybe",
            "CLIENT KILL 1.2.3.4:5",
            "CLIENT KILL ID x",
            "CLIENT KILL ID 0",
            "CLIENT KILL TYPE what",
            "CLIENT KILL USER bob",
            "CLIENT KILL SKIPME maybe",
            "CLIENT KILL ID 99999",
            "CLIENT KILL ID 1 ADDR",
            "CLIENT KILL TYPE pubsub",
            "CLIENT LIST TYPE what",
            "CLIENT LIST ID x",
            "CLIENT LIST what",
            "CLIENT REPLY what",
            "CLIENT REPLY ON",
            "CLIENT NOSUCH",
            "CLIENT SETNAME",
            "CLIENT GETNAME x",
            "CLIENT KILL",
            "CLIENT HELP",
            "AUTH x",
            "AUTH default x",
            "AUTH bob x",
            "AUTH a b c",
            "HELLO 4",
            "HELLO x",
            "HELLO 2 what",
            "HELLO 2 AUTH bob x",
            "ACL WHOAMI",
            "ACL USERS",
            "ACL CAT",
            "ACL CAT nosuch",
            "ACL GETUSER nosuch",
            "ACL DELUSER nosuch other",
            "ACL HELP",
            "MODULE LIST",
            "CLUSTER INFO",
            "CLUSTER MYID",
            "READONLY",
            "READWRITE",
            "ASKING",
            "WAIT x 0",
            "WAIT 0 -1",
            "WAIT 0 x",
            "LATENCY RESET",
            "LATENCY LATEST",
            "LATENCY HELP",
            "SLOWLOG RESET",
            "SLOWLOG HELP",
            "SLOWLOG NOSUCH",
            "OBJECT HELP",
            "MEMORY HELP",
            "XINFO HELP",
            "LOLWUT VERSION 1",
        ],
    );
}

#[test]
fn what_is_said_of_commands_and_settings_is_as_redis_says_it() {
    beside(
        "settings",
        &[
            "COMMAND INFO get mset nosuch",
            "COMMAND GETKEYS mset a 1 b 2",
            "COMMAND GETKEYS",
            "COMMAND GETKEYSANDFLAGS set a 1",
            "COMMAND DOCS get",
            "COMMAND HELP",
            "COMMAND NOSUCH",
            "COMMAND LIST FILTERBY PATTERN zrank",
            "COMMAND LIST FILTERBY PATTERN a FILTERBY PATTERN b",
            "COMMAND LIST FILTERBY what a",
            "CONFIG GET timeout",
            "CONFIG SET timeout 70",
            "CONFIG GET timeout",
            "CONFIG SET timeout x",
            "CONFIG SET timeout -1",
            "CONFIG SET timeout 99999999999",
            "CONFIG SET timeout 0 timeout 1",
            "CONFIG SET timeout 0 slowlog-max-len 100",
            "CONFIG SET timeout 5 slowlog-max-len x",
            "CONFIG GET timeout",
            "REPLICAOF NO ONE",
            "SLAVEOF no one",
            "XGROUP HELP",
            "XGROUP HELP more",
            "CONFIG GET hash-max-listpack-value",
            "CONFIG GET maxmemory-policy",
            "CONFIG GET nosuch",
            "CONFIG GET",
            "CONFIG SET hash-max-listpack-entries 77 SLOWLOG-MAX-LEN 9",
            "CONFIG GET hash-max-listpack-entries",
            "CONFIG GET slowlog-max-len",
            "CONFIG SET slowlog-max-len nonsense",
            "CONFIG SET notify-keyspace-events KEA",
            "CONFIG GET notify-keyspace-events",
            "CONFIG SET notify-keyspace-events ''",
            "CONFIG RESETSTAT",
            "CONFIG NOSUCH",
            "CONFIG HELP",
            "CONFIG SET a",
            "CONFIG SET hash-max-listpack-entries 128 slowlog-max-len 128",
        ],
    );
}

#[test]
fn transactions_with_commands_for_no_duplicate_are_as_redis_answers_them() {
    beside(
        "transactions",
        &[
            "MULTI",
            "PING",
            "SET k 1",
            "ECHO x",
            "INCR k",
            "CLIENT SETNAME n",
            "CLIENT GETNAME",
            "CONFIG GET hash-max-listpack-entries",
            "COMMAND INFO get nosuch",
            "SELECT 0",
            "SELECT 99",
            "GET k",
            "LPOP {k}none 2",
            "CLIENT GETREDIR",
            "CLIENT TRACKINGINFO",
            "EXEC",
            "MULTI",
            "EXEC",
            "MULTI",
            "PING",
            "EXEC",
            "MULTI",
            "MULTI",
            "PING x",
            "EXEC",
            "EXEC",
            "MULTI",
            "NOSUCH",
            "PING",
            "EXEC",
            "MULTI",
            "GET",
            "PING",
            "EXEC",
            "MULTI",
            "PING",
            "DISCARD",
            "MULTI",
            "SAVE",
            "EXEC",
            "MULTI",
            "CONFIG SET slowlog-max-len x",
            "EXEC",
            "DISCARD",
            "MULTI",
            "PING",
            "SET text x",
            "INCR text",
            "PING y",
            "EXEC",
            "GET text",
            "MULTI",
            "WAIT 0 0x",
            "EXEC",
            "MULTI",
            "PING a b c",
            "EXEC",
            "MULTI",
            "CONFIG SET slowlog-max-len 200",
            "PING",
            "EXEC",
            "CONFIG GET slowlog-max-len",
            "CONFIG SET slowlog-max-len 128",
            "MULTI",
            "OBJECT HELP",
            "OBJECT ENCODING k",
            "EXEC",
        ],
    );
}

fn info(client: &mut Client, sections: &[&str]) -> String {
    let command = [&["INFO"], sections].concat();
    client.ask(&command).text().expect("a text").to_owned()
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

#[test]
fn info_is_of_all_partitions() {
    if let Err(missing) = redis::possible() {
        return skipped(&missing);
    }
    let folder = Folder::new("duplicates-info-servers");
    let redises: Vec<Redis> =
        (0..4).map(|n| Redis::new(folder.file(&format!("redis-{n}")))).collect();
    let target =
        |redis: &Redis| Target::Tcp { address: redis.address.into(), access: Arc::default() };
    let partitions = redises.chunks(2).map(|chunk| chunk.iter().map(target).collect()).collect();
    let world = World::over("info", partitions, 4, |_| {});
    let mut client = world.client();
    for n in 0..50 {
        assert_eq!(client.ask(&["SET", &format!("k{n}"), "v", "EX", "1000"]), ok());
    }
    assert_eq!(client.ask(&["SET", "other", "v"]), ok());
    world.settle();
    let all = info(&mut client, &[]);
    let version = redises[0].client().ask(&["INFO", "server"]).text().unwrap().to_owned();
    assert_eq!(field(&all, "redis_version"), field(&version, "redis_version"));
    let port = world.address.port().to_string();
    for (name, expected) in [
        ("redis_mode", "standalone"),
        ("role", "master"),
        ("loading", "0"),
        ("tcp_port", port.as_str()),
        ("cluster_enabled", "0"),
        ("maxmemory_policy", "noeviction"),
        ("connected_slaves", "2"),
        ("service", "info"),
    ] {
        assert_eq!(field(&all, name), Some(expected), "{name} in {all}");
    }
    assert_eq!(field(&all, "run_id").map(str::len), Some(40));
    let keys = field(&all, "db0").unwrap();
    assert!(keys.starts_with("keys=51,expires=50,"), "{keys}");
    let memory = |info: &str| field(info, "used_memory").unwrap().parse::<u64>().unwrap();
    let one = redises[0].client().ask(&["INFO", "memory"]).text().map(memory).unwrap();
    assert!(memory(&all) > one + one / 2, "of both partitions");
    let keyspace = info(&mut client, &["keyspace"]);
    assert!(keyspace.starts_with("# Keyspace\r\ndb0:keys=51,") && !keyspace.contains("# Server"));
    assert_eq!(info(&mut client, &["nosuch"]), "");
    let hello = client.ask(&["HELLO", "2"]);
    let Reply::Array(hello) = hello else { panic!("{hello:?}") };
    assert_eq!(hello[3].text(), field(&all, "redis_version"));
}

#[test]
fn what_is_asked_of_servers_survives_them() {
    let quick = |config: &mut DuplicatesConfig| {
        config.members.silence_max = Duration::from_millis(400);
    };
    let Some(mut world) = World::start("asked", 3, quick) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["CONFIG", "SET", "hash-max-listpack-entries", "33"]), ok());
    let setting =
        |redis: &Redis| redis.client().ask(&["CONFIG", "GET", "hash-max-listpack-entries"]);
    let set = Reply::Array(vec![bulk("hash-max-listpack-entries"), bulk("33")]);
    assert!(world.redises.iter().all(|redis| setting(redis) == set));
    // Killed, one comes back with the settings of its file, and gets them again.
    world.redises[1].kill();
    world.redises[1].start();
    world.wait_live(3, PATIENCE);
    block_until("it is told what was set", || setting(&world.redises[1]) == set);
    // One stands still: whoever is asked there is answered by another, or without.
    world.redises[0].program.signal("-STOP");
    for _ in 0..20 {
        assert!(info(&mut client, &["server"]).contains("redis_version:7"));
        let got = client.ask(&["CONFIG", "GET", "hash-max-listpack-entries"]);
        assert!(got == set || matches!(&got, Reply::Error(_)), "{got:?}");
    }
    assert_eq!(client.ask(&["CONFIG", "SET", "hash-max-listpack-entries", "44"]), ok());
    world.redises[0].program.signal("-CONT");
    world.wait_live(3, PATIENCE);
    let set = Reply::Array(vec![bulk("hash-max-listpack-entries"), bulk("44")]);
    block_until("it is told what was set", || setting(&world.redises[0]) == set);
    // All are gone.
    for redis in &mut world.redises {
        redis.kill();
    }
    block_until("nobody is live", || world.live() == 0);
    assert!(info(&mut client, &[]).contains("role:master"));
    let Reply::Array(commands) = client.ask(&["COMMAND"]) else { panic!("no commands") };
    assert!(commands.len() > 150, "{}", commands.len());
    let refused = client.ask(&["CONFIG", "GET", "save"]);
    assert!(
        matches!(&refused, Reply::Error(text) if text.starts_with("UNAVAILABLE")),
        "{refused:?}"
    );
    assert_eq!(client.ask(&["PING"]), Reply::Simple("PONG".to_owned()));
}

#[test]
fn who_is_connected_is_listed_and_ended() {
    let Some(world) = World::start("killed", 2, |_| {}) else { return };
    let (mut one, mut other) = (world.client(), world.client());
    assert_eq!(other.ask(&["CLIENT", "SETNAME", "other"]), ok());
    let Reply::Integer(number) = other.ask(&["CLIENT", "ID"]) else { panic!("no number") };
    let list = one.ask(&["CLIENT", "LIST"]);
    let list = list.text().unwrap();
    assert_eq!(list.lines().count(), 2, "{list}");
    let line = list.lines().find(|line| line.contains(" name=other ")).unwrap();
    assert!(line.starts_with(&format!("id={number} addr=127.0.0.1:")), "{line}");
    assert!(line.contains(&format!(" laddr={} ", world.address)), "{line}");
    let own = one.ask(&["CLIENT", "INFO"]);
    assert!(
        own.text()
            .is_some_and(|own| own.contains(" qbuf=26 ") && own.contains(" cmd=client|info ")),
        "{own:?}"
    );
    assert_eq!(one.ask(&["CLIENT", "KILL", "ID", &number.to_string()]), Reply::Integer(1));
    other.rest_or_reset();
    assert_eq!(one.ask(&["CLIENT", "KILL", "ID", &number.to_string()]), Reply::Integer(0));
    // Its number is never another's.
    let mut later = world.client();
    assert!(matches!(later.ask(&["CLIENT", "ID"]), Reply::Integer(id) if id > number));
    assert_eq!(one.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"]), Reply::Integer(2));
    assert_eq!(one.rest(), b"");
}

#[test]
fn wait_and_role_tell_who_has_what() {
    let Some(mut world) = World::start("roles", 3, |_| {}) else { return };
    let mut client = world.client();
    assert_eq!(client.ask(&["SET", "a", "1"]), ok());
    assert_eq!(client.ask(&["WAIT", "2", "0"]), Reply::Integer(2));
    let Reply::Array(role) = client.ask(&["ROLE"]) else { panic!("no role") };
    assert_eq!(role[0], bulk("master"));
    let Reply::Array(live) = &role[2] else { panic!("nobody") };
    assert_eq!(live.len(), 3);
    let ports: Vec<Reply> =
        world.redises.iter().map(|redis| bulk(&redis.address.port().to_string())).collect();
    assert!(live.iter().all(|it| matches!(it, Reply::Array(it) if ports.contains(&it[1]))));
    world.redises[2].kill();
    block_until("it is away", || world.live() == 2);
    assert_eq!(client.ask(&["SET", "a", "2"]), ok());
    assert_eq!(client.ask(&["WAIT", "2", "300"]), Reply::Integer(1));
    client.tell(&["WAIT", "2", "0"]);
    world.redises[2].start();
    assert_eq!(client.read(), Reply::Integer(2), "it has come back with the write");
}

#[test]
fn a_command_may_have_as_many_arguments_as_with_redis() {
    let Some(world) = World::start("arguments", 2, |_| {}) else { return };
    let mut client = world.client();
    let members: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    let mut command = vec!["SADD", "s"];
    command.extend(members.iter().map(String::as_str));
    assert_eq!(client.ask(&command), Reply::Integer(100_000));
    assert_eq!(client.ask(&["SCARD", "s"]), Reply::Integer(100_000));
}

#[test]
fn who_idles_for_longer_than_timeout_is_cut_off_and_who_waits_or_listens_is_not() {
    let Some(world) = World::start("timeout", 2, |_| {}) else { return };
    let [mut idle, mut waiting, mut listening] = [(); 3].map(|()| world.client());
    assert_eq!(idle.ask(&["PING"]), Reply::Simple("PONG".to_owned()));
    waiting.tell(&["BLPOP", "list", "0"]);
    listening.ask(&["SUBSCRIBE", "channel"]);
    super::beside::blocked(world.address, 1);
    assert_eq!(world.client().ask(&["CONFIG", "SET", "timeout", "1"]), ok());
    assert_eq!(idle.rest(), b"", "it is cut off");
    assert_eq!(world.client().ask(&["CONFIG", "SET", "timeout", "0"]), ok());
    assert_eq!(world.client().ask(&["PUBLISH", "channel", "m"]), Reply::Integer(1));
    listening.read();
    assert_eq!(world.client().ask(&["RPUSH", "list", "x"]), Reply::Integer(1));
    assert_eq!(waiting.read(), Reply::Array(vec![bulk("list"), bulk("x")]));
}
