//! Commands that wait, beside a real server.

use std::time::Duration;

use super::server::Server;
use super::{with_arguments, words};
use crate::resp::Protocol;
use crate::resp::commands::{Wait, lookup};
use crate::resp::waiting::{attempt, fills, last_ids, timeout};

fn ours(line: &str) -> Result<Option<Duration>, String> {
    let words = words(line);
    let command = lookup(words[0].as_bytes()).unwrap();
    with_arguments(&words, |arguments| timeout(command, arguments).map_err(|it| it.to_string()))
}

#[test]
fn times_are_errors_where_they_are_at_the_server() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp2);
    let times = [
        "0",
        "1",
        "0.001",
        "1e2",
        "-0",
        "-0.00001",
        "+1",
        ".5",
        "1.",
        "-1",
        "-0.5",
        "x",
        "1x",
        "nan",
        "inf",
        "-inf",
        "1e15",
        "1e16",
        "1e300",
        "9223372036854776",
        "9223372036854775807",
        "01",
    ];
    let texts = times.map(|time| {
        [
            format!("blpop list {time}"),
            format!("blmpop {time} 1 list LEFT"),
            format!("blmove list list LEFT RIGHT {time}"),
            format!("xread BLOCK {time} STREAMS stream 0"),
        ]
    });
    let others = ["blmove list list UP LEFT x", "blmove list list LEFT x 0", "blpop text 0"];
    for line in texts.iter().flatten().map(String::as_str).chain(others) {
        connection.prepare(&["FLUSHALL", "RPUSH list a", "XADD stream 1-1 f v", "SET text 1"]);
        let theirs = String::from_utf8(connection.ask(&words(line))).unwrap();
        match ours(line) {
            Err(text) => assert_eq!(format!("-{text}\r\n"), theirs, "{line}"),
            Ok(_) => assert!(!theirs.contains("timeout"), "{line}: {theirs}"),
        }
    }
    assert_eq!(ours("blpop k 0.0005"), Ok(Some(Duration::from_millis(1))));
    assert_eq!(ours("blpop k 0"), Ok(None));
    assert_eq!(ours("xread count 1 block 70 streams k 0"), Ok(Some(Duration::from_millis(70))));
}

#[test]
fn a_try_is_of_one_key_or_of_all() {
    let tried = |line: &str, key: Option<&str>| {
        let words = words(line);
        let command = lookup(words[0].as_bytes()).unwrap();
        let tried = attempt(command, &super::array(&words), key.map(str::as_bytes));
        let text = String::from_utf8(tried.text).unwrap();
        let words: Vec<&str> = text.split("\r\n").skip(2).step_by(2).collect();
        words.join(" ").trim_end().to_owned()
    };
    for (line, key, expected) in [
        ("BLPOP a b 5", Some("b"), "BLPOP b 0"),
        ("BLPOP a b 5", None, "BLPOP a b 5"),
        ("BZMPOP 5 2 a b MIN COUNT 3", Some("b"), "BZMPOP 0 1 b MIN COUNT 3"),
        ("BLMOVE a b LEFT RIGHT 5", Some("a"), "BLMOVE a b LEFT RIGHT 5"),
        ("XREAD BLOCK 5 COUNT 2 STREAMS a b 1 2", Some("b"), "XREAD COUNT 2 STREAMS b 2"),
        ("XREAD COUNT 2 BLOCK 5 STREAMS a b 1 2", None, "XREAD COUNT 2 STREAMS a b 1 2"),
        ("XREAD BLOCK 5 STREAMS a 1", None, "XREAD STREAMS a 1"),
    ] {
        assert_eq!(tried(line, key), expected, "{line}");
    }
    let line = words("XREAD BLOCK 0 STREAMS a $ c $ 1 $");
    let command = lookup(b"xread").unwrap();
    let asked = with_arguments(&line, |arguments| last_ids(command, arguments));
    assert_eq!(asked, [(4, 7), (6, 9)], "a key may be named like that");
}

#[test]
fn what_fills_is_known_by_key_and_kind() {
    let filled = |line: &str| {
        let words = words(line);
        let command = lookup(words[0].as_bytes()).unwrap();
        with_arguments(&words, |arguments| {
            let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
            let filled = fills(command, arguments).into_iter();
            filled.map(|(key, wait, most)| (text(key), wait, most)).collect::<Vec<_>>()
        })
    };
    let one = |key: &str, wait, most| vec![(key.to_owned(), wait, most)];
    assert_eq!(filled("rpush k 1 2"), one("k", Some(Wait::List), 2));
    assert_eq!(filled("lmove a b LEFT LEFT"), one("b", Some(Wait::List), 1));
    assert_eq!(filled("xadd k 1-1 f v"), one("k", Some(Wait::Stream), usize::MAX));
    assert_eq!(filled("zadd k 1 a 2 b"), one("k", Some(Wait::SortedSet), 4));
    assert_eq!(filled("restore k 0 d"), one("k", None, usize::MAX));
    assert_eq!(filled("rename a b").len(), 2);
    assert_eq!(filled("sort a store b").len(), 2);
    assert_eq!(filled("set k v"), one("k", Some(Wait::Group), 0));
    assert!(filled("xack k g 1-1").is_empty() && filled("xclaim k g c 0 1-1").is_empty());
}
