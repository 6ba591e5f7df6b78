//! Writes that may be repeated are repeated at a real server, from anywhere on.
//!
//! Each case is a state, writes 1..n and a place m. The writes are done; then m..n are done again.
//! What the server says of its data must be the same both times.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_testkit::wait::block_until;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;

use super::server::{Connection, Server};
use super::{runner, with_arguments, words};
use crate::resp::Protocol;
use crate::resp::commands::{COMMANDS, Class, Repeat, classify, lookup};
use crate::resp::reply::payload;

type Words = Vec<Vec<u8>>;

/// Whole values; `{d}` is what `DUMP` says of a list.
const WHOLE: &[&str] = &[
    "set {k} {v}",
    "set {k} {v} pxat 99999999999999",
    "set {k} {v} pxat 5",
    "set {k} {v} pxat 88888888888888",
    "mset {k} {v} {k} {v}",
    "mset {k} {v}",
    "del {k} {k}",
    "unlink {k}",
    "restore {k} 0 {d} replace",
    "restore {k} 99999999999999 {d} replace absttl",
];

/// Parts of values; keys are of one type each.
const PARTS: &[&str] = &[
    "hset h {m} {v}",
    "hmset h {m} {v} {m} {v}",
    "hdel h {m} {m}",
    "sadd s {m} {v}",
    "srem s {m} {m}",
    "srem s {v}",
    "zadd z {n} {m}",
    "zadd z ch {n} {m} {n} {m}",
    "zrem z {m} {m}",
    "zremrangebyscore z {n} 12",
    "zremrangebylex e [a [{m}",
    "zadd e 0 {m}",
    "geoadd g {n} {n} {m}",
    "zrem g {m}",
    "setrange t {n} {v}",
    "setbit t {n} 1",
    "setbit t {n} 0",
    "bitfield t set u8 {n} 65 get u8 0 set i5 #{n} 3",
    "persist t",
    "persist h",
    "getex t persist",
    "set t {v}",
    "del t h",
    "unlink s z g e",
];

/// Parts of values under keys that change their type when they end and begin.
const CHANGING: &[&str] = &[
    "hset k {m} {v}",
    "hset k {m} {v}",
    "hdel k {m} {m}",
    "hdel k a b c",
    "sadd k {m}",
    "srem k {m} {m}",
    "srem k a b c",
    "zadd k {n} {m}",
    "zrem k a b c",
    "del k",
];

/// Any data to begin with.
const BEGINNINGS: &[&str] = &[
    "set {k} {v}",
    "set {k} {v} pxat 99999999999999",
    "rpush {k} {v}",
    "hset {k} {m} {v}",
    "sadd {k} {m}",
    "zadd {k} {n} {m}",
    "pexpireat {k} 99999999999999",
];

/// A command in which every placeholder became something.
fn filled(templates: &'static [&'static str], dump: Vec<u8>) -> impl Strategy<Value = Words> {
    (select(templates), any::<[u8; 16]>()).prop_map(move |(template, drawn)| {
        let mut drawn = drawn.into_iter().map(usize::from);
        let mut fill = |word: &str| -> Vec<u8> {
            let mut draw = || drawn.next().unwrap();
            let one_of = |texts: [&str; 3], drawn: usize| texts[drawn % 3].to_owned();
            match word {
                "{k}" => one_of(["k1", "k2", "k3"], draw()).into_bytes(),
                "{d}" => dump.clone(),
                _ => {
                    let mut word = word.replace("{v}", &one_of(["x", "y", "zz"], draw()));
                    word = word.replace("{m}", &one_of(["a", "b", "c"], draw()));
                    word.replace("{n}", &(draw() % 11).to_string()).into_bytes()
                }
            }
        };
        let few = words(template).into_iter();
        // Words without a placeholder draw nothing.
        few.map(|word| if word.contains('{') { fill(word) } else { word.into() }).collect()
    })
}

/// What the server says of all its data.
fn state(connection: &mut Connection) -> Vec<Vec<u8>> {
    let keys = ["k", "k1", "k2", "k3", "h", "s", "z", "e", "g", "t"];
    let deadlines = keys.map(|key| vec![b"PEXPIRETIME".to_vec(), key.into()]);
    let asked: Vec<Words> = deadlines.into_iter().chain([words_of("DEBUG DIGEST")]).collect();
    connection.ask_all(&asked)
}

fn words_of(line: &str) -> Words {
    words(line).into_iter().map(Into::into).collect()
}

/// How many of these cases end in another state when a suffix is done again; those in which a write
/// fails are left out when `needs_success`. Also how many were left.
fn diverging(
    server: &Server,
    writes: &'static [&'static str],
    needs_success: bool,
    cases: u32,
) -> (u32, u32) {
    let mut connection = server.connect(Protocol::Resp2);
    connection.prepare(&["RPUSH l p q"]);
    let dump = payload(&connection.ask(&["DUMP", "l"])).unwrap().to_vec();
    let connection = RefCell::new(connection);
    let counts = RefCell::new((0, 0));
    let beginnings = if needs_success { writes } else { BEGINNINGS };
    let case = (
        vec(filled(beginnings, dump.clone()), 0..5),
        vec(filled(writes, dump), 1..9),
        any::<proptest::sample::Index>(),
    );
    runner(cases)
        .run(&case, |(beginning, writes, from)| {
            let mut connection = connection.borrow_mut();
            connection.prepare(&["FLUSHALL"]);
            connection.ask_all(&beginning);
            let replies = connection.ask_all(&writes);
            if needs_success && replies.iter().any(|reply| reply[0] == b'-') {
                return Ok(());
            }
            let done = state(&mut connection);
            connection.ask_all(&writes[from.index(writes.len())..]);
            let mut counts = counts.borrow_mut();
            counts.0 += u32::from(state(&mut connection) != done);
            counts.1 += 1;
            Ok(())
        })
        .unwrap();
    counts.into_inner()
}

fn repeat_of(words: &Words) -> Option<Repeat> {
    let command = lookup(&words[0]).unwrap();
    match with_arguments(words, |arguments| classify(command, arguments)) {
        Class::Write(repeat) | Class::Rewritten(_, repeat) => Some(repeat),
        _ => None,
    }
}

#[test]
fn every_command_that_may_be_repeated_is_among_the_cases() {
    let names = |templates: &[&'static str]| -> BTreeSet<&'static str> {
        templates.iter().map(|template| words(template)[0]).collect()
    };
    let (whole, parts) = (names(WHOLE), names(PARTS));
    for command in COMMANDS {
        let (Class::Write(repeat) | Class::Rewritten(_, repeat)) = command.class else { continue };
        let is_there = match (command.name, repeat) {
            // They are sent as SET and SREM.
            ("setex" | "psetex" | "spop", _) | (_, Repeat::Once) => continue,
            (name, Repeat::Idempotent) => whole.contains(name),
            (name, Repeat::Partial) => parts.contains(name),
        };
        assert!(is_there, "{}", command.name);
    }
    for template in WHOLE {
        assert_eq!(repeat_of(&words_of(template)), Some(Repeat::Idempotent), "{template}");
    }
    for template in PARTS.iter().chain(CHANGING) {
        let repeat = repeat_of(&words_of(template));
        assert!(matches!(repeat, Some(Repeat::Partial | Repeat::Idempotent)), "{template}");
    }
}

#[test]
fn whole_values_converge_whatever_was_there() {
    let Some(server) = Server::start(&[]) else { return };
    assert_eq!(diverging(&server, WHOLE, false, 1_500), (0, 1_500));
}

#[test]
fn parts_converge_without_deadlines_and_failures() {
    let Some(server) = Server::start(&[]) else { return };
    let (bad, seen) = diverging(&server, PARTS, true, 2_500);
    assert_eq!((bad, seen > 2_000), (0, true), "{seen}");
    let (bad, seen) = diverging(&server, CHANGING, true, 8_000);
    assert_eq!((bad, seen > 400), (0, true), "{seen}");
}

#[test]
fn what_is_done_once_would_not_converge() {
    const ONCE: &[&[&str]] = &[
        &["append {k} {v}"],
        &["incr n", "set n {n}"],
        &["incrbyfloat n 0.5", "del n"],
        &["setnx {k} {v}", "set {k} {v} xx", "del {k}"],
        &["set {k} {v} nx", "set {k} {v} xx", "del {k}"],
        &["set {k} {v} xx", "setnx {k} {v}", "set {k} {v}"],
        &["getdel {k}", "set {k} {v}", "rpush {k} a"],
        &["msetnx {k} {v} {k} {v}", "del {k}", "set {k} {v}"],
        &["hincrby h {m} 1"],
        &["rpush {k} {v}"],
        &["lpop k1", "rpush k1 {v}"],
        &["lset k1 0 {v}", "rpush k1 {v}", "lpop k1", "del k1"],
        &["lrem k1 1 x", "rpush k1 x y x"],
        &["ltrim k1 1 -1", "rpush k1 {v}"],
        &["rename {k} {k}", "set {k} {v}"],
        &["copy {k} {k} replace", "set {k} {v}"],
        &["smove s k1 {m}", "sadd s {m}", "srem k1 {m}"],
        &["sunionstore s k1 k2", "sadd k1 {m}", "srem k1 {m}"],
        &["zincrby z 1 {m}"],
        &["zadd z nx {n} {m}", "zadd z xx {n} {m}", "zrem z {m}"],
        &["zadd z xx {n} {m}", "zadd z nx {n} {m}", "zadd z {n} {m}"],
        &["zpopmin z", "zadd z {n} {m}"],
        &["zremrangebyrank z 0 0", "zadd z {n} {m}"],
        &["bitop not t {k}", "set {k} {v}"],
        &["bitfield t incrby u8 0 1"],
        &["pexpireat h 99999999999999", "hset h {m} {v}", "hdel h {m} {m}"],
        &["xadd k1 5-*  f {v}"],
        &["xtrim k1 maxlen 1", "xadd k1 5-* f {v}"],
        &["pfmerge k1 k2", "pfadd k2 {m} {v}", "del k1"],
    ];
    let Some(server) = Server::start(&[]) else { return };
    for &writes in ONCE {
        let first = words_of(writes[0]);
        assert_eq!(repeat_of(&first), Some(Repeat::Once), "{writes:?}");
        let (bad, _) = diverging(&server, writes, true, 600);
        assert!(bad > 0, "{writes:?}");
    }
}

#[test]
fn a_deadline_or_a_failure_parts_what_parts_do() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp2);
    // A deadline passes between the two writes.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    connection.prepare(&["HSET k a 0", &format!("PEXPIREAT k {}", now + 60), "HSET k a 1"]);
    block_until("it expires", || connection.ask(&["EXISTS", "k"]) == b":0\r\n");
    connection.prepare(&["HSET k b 2"]);
    assert_eq!(connection.ask(&["HKEYS", "k"]), b"*1\r\n$1\r\nb\r\n");
    connection.prepare(&["HSET k a 1", "HSET k b 2"]);
    assert_eq!(connection.ask(&["HLEN", "k"]), b":2\r\n", "it was one");
    // A write fails the first time and not the second.
    connection.prepare(&["DEL k", "HSET k f 1"]);
    let writes = ["HSET k g 1", "HDEL k g", "SADD k x", "HDEL k f"].map(words_of);
    let starts = |replies: Vec<Vec<u8>>| replies.iter().map(|it| it[0]).collect::<Vec<u8>>();
    assert_eq!(starts(connection.ask_all(&writes)), b"::-:");
    assert_eq!(connection.ask(&["EXISTS", "k"]), b":0\r\n");
    assert_eq!(starts(connection.ask_all(&writes)), b":::-");
    assert_eq!(connection.ask(&["EXISTS", "k"]), b":1\r\n", "there was none");
}
