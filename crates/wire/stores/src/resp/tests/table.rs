//! The table of commands beside what a real server says of itself.

use std::collections::{BTreeMap, BTreeSet};

use super::server::{Connection, Server};
use super::{array, corpus, with_arguments, words};
use crate::resp::commands::{
    COMMANDS, Class, Keys, Local, Repeat, Rewrite, Time, Wait, Whole, classify, keys, lookup,
    refusals, unknown, wrong_arity,
};
use crate::resp::reply::{elements, integer, payload};
use crate::resp::{Protocol, hash};

/// What `COMMAND` says of a command.
struct Said {
    arity: i64,
    flags: BTreeSet<String>,
    /// First key, last key and step.
    keys: [i64; 3],
}

fn text(reply: &[u8]) -> String {
    String::from_utf8(payload(reply).unwrap().to_vec()).unwrap()
}

fn said(connection: &mut Connection) -> BTreeMap<String, Said> {
    let reply = connection.ask(&["COMMAND"]);
    let read = |entry| {
        let parts: Vec<&[u8]> = elements(entry).collect();
        let number = |index: usize| integer(parts[index]).unwrap();
        let keys = [number(3), number(4), number(5)];
        let flags = elements(parts[2]).map(text).collect();
        (text(parts[0]), Said { arity: number(1), flags, keys })
    };
    elements(&reply).map(read).collect()
}

/// The classes of the corpus for which `COMMAND` has no flag of its own (they have subcommands).
const CONTAINERS: [&str; 4] = ["memory", "object", "xgroup", "xinfo"];

#[test]
fn every_command_of_the_server_is_known_and_described_as_the_server_does() {
    let Some(server) = Server::start(&[]) else { return };
    let said = said(&mut server.connect(Protocol::Resp2));
    assert!(said.len() >= 240, "{} commands", said.len());
    let unknown: Vec<&String> =
        said.keys().filter(|name| lookup(name.as_bytes()).is_none()).collect();
    assert_eq!(unknown, [""; 0], "commands that only the server knows");
    let is_ours = |name: &str| name.starts_with("ek.");
    for command in COMMANDS.iter().filter(|command| !is_ours(command.name)) {
        let name = command.name;
        let Some(said) = said.get(name) else { panic!("the server does not know {name}") };
        assert_eq!(i64::from(command.arity), said.arity, "{name}");
        let has = |flag: &str| said.flags.contains(flag);
        assert_eq!(command.is_barred_in_multi(), has("no_multi"), "{name}");
        match command.class {
            Class::Read if CONTAINERS.contains(&name) => {}
            // What it may do by its options is decided by them.
            Class::Read => assert!(has("readonly") || name == "getex", "{name}"),
            Class::Write(_) if CONTAINERS.contains(&name) => {}
            Class::Write(_) | Class::Rewritten(..) => assert!(has("write"), "{name}"),
            Class::Waits(_) => assert!(has("write") && has("blocking"), "{name}"),
            // A script has no flag: what it does is not known.
            Class::Effects => {
                assert!(has("write") || name.starts_with("eval") || name == "fcall", "{name}");
            }
            Class::Local(_) | Class::Whole(_) | Class::Refused(_) => continue,
        }
        let waits = matches!(command.class, Class::Waits(_)) || name.starts_with("xread");
        assert_eq!(has("blocking"), waits, "{name}");
        match command.keys {
            Keys::Span { .. } if CONTAINERS.contains(&name) => {}
            Keys::Span { first, last, step } => {
                let ours: [i64; 3] = [first.into(), last.into(), step.into()];
                assert_eq!(ours, said.keys, "{name}");
                assert!(!has("movablekeys") || name == "sort_ro", "{name}");
            }
            _ => assert!(has("movablekeys"), "{name}"),
        }
    }
}

#[test]
fn the_corpus_has_every_command_that_is_sent_to_servers() {
    let in_corpus: BTreeSet<&str> = corpus::COMMANDS.iter().map(|line| words(line)[0]).collect();
    for command in COMMANDS {
        let is_ours = matches!(command.class, Class::Local(_) | Class::Whole(_));
        let is_sent = !is_ours && !matches!(command.class, Class::Refused(_));
        assert_eq!(in_corpus.contains(command.name), is_sent, "{}", command.name);
    }
}

#[test]
fn keys_are_where_the_server_finds_them() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp2);
    for line in corpus::COMMANDS {
        let words = words(line);
        let asked: Vec<&str> = ["COMMAND", "GETKEYS"].into_iter().chain(words.clone()).collect();
        let reply = connection.ask(&asked);
        let mut theirs: Vec<String> = elements(&reply).map(text).collect();
        let command = lookup(words[0].as_bytes()).unwrap();
        let ours = with_arguments(&words, |arguments| {
            assert!(command.accepts(arguments.len()), "{line}");
            let places: Vec<usize> = keys(command, arguments).unwrap().collect();
            places.into_iter().map(|index| words[index]).collect::<Vec<_>>()
        });
        // A destination that is given twice is a key twice here, once there; order is free.
        let mut ours: Vec<&str> = ours;
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "{line}");
    }
}

#[test]
fn keys_that_are_not_there_are_an_error() {
    let count = |line: &str| {
        let words = words(line);
        let command = lookup(words[0].as_bytes()).unwrap();
        with_arguments(&words, |arguments| {
            keys(command, arguments)
                .map(|found| found.inspect(|&i| assert!(i < words.len())).count())
        })
    };
    for line in [
        "zunion 0 a",
        "zunion 3 a b",
        "zunion x a b",
        "zunion -1 a b",
        "zunion 9223372036854775807 a b",
        "zunionstore d 2 a",
        "sintercard 2 a",
        "xread streams a",
        "xread streams a b 0",
        "xread count 1 stream a 0",
        "mset a 1 b",
        "eval return 1",
        "eval return -1 a",
        "eval return x a",
        "xreadgroup group g c streams a b >",
    ] {
        assert!(count(line).is_err(), "{line}");
    }
    assert_eq!(count("xread count 1 streams streams streams 0 0"), Ok(2));
    assert_eq!(count("zunionstore d 2 a b weights 1 2"), Ok(3));
    assert_eq!(count("eval return 2 a b c"), Ok(2));
    assert_eq!(count("eval return 0 a"), Ok(0));
    assert_eq!(count("xreadgroup group streams streams noack streams a b > >"), Ok(2));
    let last = |line: &str| {
        let words = words(line);
        let command = lookup(words[0].as_bytes()).unwrap();
        with_arguments(&words, |arguments| keys(command, arguments).unwrap().last())
    };
    assert_eq!(last("georadius k 1 1 1 m store store count 1"), Some(7));
    assert_eq!(last("sort k by store asc"), Some(1));
    assert_eq!(last("sort k limit store 1 store get"), Some(6));
}

#[test]
fn a_wrong_number_of_keys_is_refused_in_the_servers_words() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp2);
    for line in [
        "zunion 0 a",
        "zunion x a",
        "zunion 3 a b",
        "zinter -1 a",
        "zdiff 0 a",
        "zintercard 0 a",
        "zintercard x a",
        "zunionstore d 0 a",
        "zinterstore d 0 a",
        "zdiffstore d 0 a",
        "sintercard 0 a",
        "sintercard x a",
        "sintercard 2 a",
        "lmpop 0 a left",
        "lmpop x a left",
        "lmpop 3 a left",
        "zmpop x a min",
        "blmpop 1 x a left",
        "bzmpop 1 0 a min",
    ] {
        let words = words(line);
        let command = lookup(words[0].as_bytes()).unwrap();
        let refused = with_arguments(&words, |arguments| keys(command, arguments).map(drop));
        let ours = format!("-{}\r\n", refused.unwrap_err().0);
        assert_eq!(ours, String::from_utf8_lossy(&connection.ask(&words)), "{line}");
    }
}

#[test]
fn names_are_found_in_upper_and_lower_case_and_nothing_else_is() {
    for command in COMMANDS {
        let upper = command.name.to_uppercase();
        let mixed: String = (command.name.chars().enumerate())
            .map(|(index, c)| if index % 2 == 0 { c.to_ascii_uppercase() } else { c })
            .collect();
        for name in [command.name, &upper, &mixed] {
            assert_eq!(lookup(name.as_bytes()).unwrap().name, command.name);
        }
        for near in [format!("{}x", command.name), format!("x{}", command.name)] {
            assert!(lookup(near.as_bytes()).is_none_or(|found| found.name == near), "{near}");
        }
    }
    for name in [&b""[..], b"hset\0", b"georadiusbymember_rox", b"\xff", b"sort-ro", b"sort\x7fro"]
    {
        assert_eq!(lookup(name), None, "{name:?}");
    }
    let names: BTreeSet<&str> = COMMANDS.iter().map(|command| command.name).collect();
    assert_eq!(names.len(), COMMANDS.len(), "each once");
}

fn class(line: &str) -> Class {
    let words = words(line);
    let command = lookup(words[0].as_bytes()).unwrap();
    with_arguments(&words, |arguments| classify(command, arguments))
}

#[test]
fn options_change_what_is_done() {
    let write = Class::Write;
    let option = |at, time, repeat| Class::Rewritten(Rewrite::ExpiryOption(at, time), repeat);
    for (line, expected) in [
        ("set k v", write(Repeat::Idempotent)),
        ("set k v pxat 5", write(Repeat::Idempotent)),
        ("SET k v NX", write(Repeat::Once)),
        ("set k v keepttl", write(Repeat::Once)),
        ("set k v get", write(Repeat::Once)),
        ("set k v EX 5", option(3, Time::Seconds, Repeat::Idempotent)),
        ("set k v xx px 5", option(4, Time::Millis, Repeat::Once)),
        ("set k v exat 5", option(3, Time::UnixSeconds, Repeat::Idempotent)),
        ("set ex px", write(Repeat::Idempotent)),
        ("getex k", Class::Read),
        ("getex k persist", write(Repeat::Partial)),
        ("getex k ex 5", option(2, Time::Seconds, Repeat::Once)),
        ("zadd k 1 m", write(Repeat::Partial)),
        ("zadd k ch 1 m", write(Repeat::Partial)),
        ("zadd k ch gt 1 m", write(Repeat::Once)),
        ("zadd k 1 nx", write(Repeat::Partial)),
        ("geoadd k nx 1 1 m", write(Repeat::Once)),
        ("bitfield k get u8 0", Class::Read),
        ("bitfield k get u8 0 set u8 0 1", write(Repeat::Partial)),
        ("bitfield k incrby u8 0 1 set u8 0 1", write(Repeat::Once)),
        ("restore k 0 d", write(Repeat::Once)),
        ("restore k 0 d replace", write(Repeat::Idempotent)),
        ("restore k 5 d absttl replace", write(Repeat::Idempotent)),
        ("restore k 5 d freq 3", Class::Rewritten(Rewrite::Restore, Repeat::Once)),
        ("sort k alpha limit 0 1", Class::Read),
        ("sort k store d", write(Repeat::Once)),
        ("georadius k 1 1 1 m", Class::Read),
        ("georadius k 1 1 1 m store d", write(Repeat::Once)),
        ("xread count 1 streams block 0", Class::Read),
        ("xread count 1 block 5 streams a 0", Class::Waits(Wait::Stream)),
        ("blpop a b 0", Class::Waits(Wait::List)),
        ("object encoding k", Class::Read),
        ("sort k by w_*", Class::Whole(Whole::Sort { stores: false })),
        ("sort_ro k get #  get o_*", Class::Whole(Whole::Sort { stores: false })),
        ("sort k get o_* store d", Class::Whole(Whole::Sort { stores: true })),
        ("flushall", Class::Whole(Whole::Flush)),
        ("FLUSHDB Async", Class::Whole(Whole::Flush)),
        ("object help", Class::Local(Local::AskOne)),
        ("xgroup help", Class::Local(Local::AskOne)),
        ("replicaof no one", Class::Local(Local::NoReplica)),
        ("SLAVEOF NO ONE", Class::Local(Local::NoReplica)),
        ("memory doctor", Class::Local(Local::AskOne)),
        ("memory purge", Class::Local(Local::AskAll)),
        ("slowlog get 10", Class::Local(Local::AskOne)),
        ("latency reset", Class::Local(Local::AskAll)),
        ("xreadgroup group g block count 1 noack streams k >", Class::Effects),
        ("xreadgroup group g c noack block 0 streams a b > >", Class::Waits(Wait::Group)),
        ("xreadgroup group g c block 0 streams a b > 0", Class::Effects),
        ("xgroup create k g $", write(Repeat::Once)),
        ("eval return 0", Class::Effects),
        ("evalsha_ro x 0", Class::Read),
    ] {
        assert_eq!(class(line), expected, "{line}");
    }
    for line in [
        "set k v ex",
        "set k v nx xx",
        "set k v ex 5 px 5",
        "set k v keepttl ex 5",
        "set k v what",
        "getex k ex",
        "bitfield k set u8 0",
        "sort k by w_* limit 0",
        "sort_ro k store d",
        "sort_ro k by w_* store d",
        "flushall now",
        "flushdb sync async",
        "copy a b db",
        "copy a b db x",
        "copy a b db 1 what",
        "object encoding",
        "xread",
        "xread group g c streams a 0",
        "replicaof 10.0.0.1 6379",
        "slaveof one no",
    ] {
        assert!(matches!(class(line), Class::Refused(_)), "{line}: {:?}", class(line));
    }
}

#[test]
fn refusals_say_why_and_what_to_do_instead() {
    for command in COMMANDS {
        let Class::Refused(text) = command.class else { continue };
        if text == refusals::CLUSTER {
            continue; // Redis's own
        }
        assert!(text.starts_with("ERR ") && text.len() > 60, "{text}");
        assert!(
            text.contains(": ") && !text.contains(['\r', '\n']) && !text.contains("  "),
            "{text}"
        );
    }
}

#[test]
fn words_for_what_is_unknown_and_for_arity_are_those_of_the_server() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp2);
    let long = "x".repeat(300);
    let unknowns: [&[&[u8]]; 6] = [
        &[b"foo"],
        &[b"FOO", b"bar", b"baz"],
        &[b"foo", b"a\r\nb", b""],
        &[long.as_bytes(), long.as_bytes(), b"more"],
        &[b"foo", &long.as_bytes()[..120], b"abcdefgh", b"more"],
        &[b"fo\0o", b"a\0b"],
    ];
    for command in unknowns {
        let theirs = connection.ask(command);
        let mut ours = Vec::new();
        with_arguments(command, |arguments| unknown(arguments, &mut ours));
        assert_eq!(String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs));
    }
    for command in COMMANDS.iter().filter(|command| !command.name.starts_with("ek.")) {
        if command.accepts(1) {
            continue;
        }
        let mut ours = Vec::new();
        wrong_arity(command, &mut ours);
        assert_eq!(connection.ask(&[command.name]), ours, "{}", command.name);
    }
}

#[test]
fn slots_are_those_of_redis_cluster() {
    // The check value of CRC-16/XMODEM.
    assert_eq!(hash::slot(b"123456789"), 0x31c3);
    let Some(server) = Server::start(&["--cluster-enabled", "yes"]) else { return };
    let mut connection = server.connect(Protocol::Resp2);
    let keys: [&[u8]; 13] = [
        b"",
        b"a",
        b"{user1000}.following",
        b"foo{}{bar}",
        b"foo{{bar}}zap",
        b"foo{bar}{zap}",
        b"{}",
        b"{",
        b"}{",
        b"a{b",
        b"a{bc}",
        b"x{b}y",
        &[0, 255, 128, 7],
    ];
    let numbered = (0..100).map(|number| format!("key:{number}").into_bytes());
    for key in keys.map(<[u8]>::to_vec).into_iter().chain(numbered) {
        let reply = connection.ask(&[&b"CLUSTER"[..], b"KEYSLOT", &key]);
        assert_eq!(integer(&reply), Some(hash::slot(&key).into()), "{key:?}");
    }
    assert_eq!(array(&["a"]), b"*1\r\n$1\r\na\r\n");
}
