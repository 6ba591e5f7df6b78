//! What is rewritten, beside what a real server does with the command as it came.

use std::time::{SystemTime, UNIX_EPOCH};

use super::server::{Connection, Server};
use super::{corpus, with_arguments, words};
use crate::resp::Protocol;
use crate::resp::commands::{Class, Refusal, classify, lookup};
use crate::resp::reply::{Kind, ReplyScanner, elements, integer, payload};
use crate::resp::request::RequestParser;
use crate::resp::rewrite::{pop_answer, pop_question, rewrite};

const NOW: u64 = 1_700_000_000_000;

fn rewritten_at<T: AsRef<[u8]>>(words: &[T], now: u64) -> Result<Vec<Vec<u8>>, Refusal> {
    let command = lookup(words[0].as_ref()).unwrap();
    with_arguments(words, |arguments| {
        let Class::Rewritten(how, _) = classify(command, arguments) else {
            panic!("{:?} is not rewritten", command.name)
        };
        let mut out = b"kept".to_vec();
        let result = rewrite(how, arguments, now, &mut out);
        if let Err(refusal) = result {
            assert_eq!(out, b"kept");
            return Err(refusal);
        }
        let mut parser = RequestParser::default();
        assert_eq!(parser.parse(&out[4..]), Ok(Some(out.len() - 4)));
        Ok(parser.arguments(&out[4..]).iter().map(<[u8]>::to_vec).collect())
    })
}

fn rewritten(line: &str) -> String {
    match rewritten_at(&words(line), NOW) {
        Ok(words) => String::from_utf8(words.join(&b' ')).unwrap(),
        Err(refusal) => refusal.to_string(),
    }
}

#[test]
fn deadlines_become_absolute() {
    for (line, expected) in [
        ("EXPIRE k 10", "PEXPIREAT k 1700000010000"),
        ("EXPIRE k -10 NX", "PEXPIREAT k 1699999990000 NX"),
        ("PEXPIRE k 10 GT", "PEXPIREAT k 1700000000010 GT"),
        ("EXPIREAT k 1800000000", "PEXPIREAT k 1800000000000"),
        ("SETEX k 10 v", "SET k v PXAT 1700000010000"),
        ("PSETEX k 10 v", "SET k v PXAT 1700000000010"),
        ("SET k EX EX 10", "SET k EX PXAT 1700000010000"),
        ("SET k v XX px 10 GET", "SET k v XX PXAT 1700000000010 GET"),
        ("SET k v EXAT 1800000000", "SET k v PXAT 1800000000000"),
        ("GETEX k EX 10", "GETEX k PXAT 1700000010000"),
        ("RESTORE k 5 d REPLACE", "RESTORE k 1700000000005 d REPLACE ABSTTL"),
        ("XADD k * f v", "XADD k 1700000000000-* f v"),
        ("XADD k 5-1 f *", "XADD k 5-1 f *"),
        (
            "XADD k NOMKSTREAM MAXLEN ~ 5 LIMIT 9 * f v",
            "XADD k NOMKSTREAM MAXLEN = 5 1700000000000-* f v",
        ),
        ("XADD k MINID 5 7 f v", "XADD k MINID = 5 7 f v"),
        ("XTRIM k MAXLEN ~ 5 LIMIT 9", "XTRIM k MAXLEN = 5"),
    ] {
        assert_eq!(rewritten(line), expected, "{line}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_in_the_servers_words() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp2);
    connection.prepare(&["SET k v"]);
    for line in [
        "EXPIRE k x",
        "EXPIRE k 9223372036854775807",
        "EXPIRE k -9223372036854775807",
        "PEXPIRE k 9223372036854775807",
        "EXPIREAT k 9223372036854775807",
        "EXPIRE k 010",
        "EXPIRE k +10",
        "SETEX k 0 v",
        "SETEX k -1 v",
        "SETEX k 9223372036854775807 v",
        "PSETEX k 0 v",
        "SET k v EX 0",
        "SET k v EX 9223372036854775807",
        "SET k v PX 1.5",
        "GETEX k EX 0",
        "RESTORE k2 -1 x",
        "XADD k * f v f",
        "XADD k LIMIT 1 * f v",
        "XADD k MAXLEN 5 LIMIT 1 * f v",
        "XADD k MAXLEN ~ 5 LIMIT x * f v",
        "XTRIM k MAXLEN = 5 LIMIT 1",
        "XTRIM k MAXLEN = 5 LIMIT 0",
        "XTRIM k MAXLEN ~ 5 LIMIT -1",
        "XTRIM k MAXLEN",
    ] {
        let theirs = connection.ask(&words(line));
        let ours = format!("-{}\r\n", rewritten(line));
        if line.ends_with("MAXLEN") {
            assert_eq!((ours.as_str(), theirs[0]), ("-ERR syntax error\r\n", b'-'), "{line}");
        } else {
            assert_eq!(ours, String::from_utf8_lossy(&theirs), "{line}");
        }
    }
}

/// What a server says of one key: its type, its contents, its deadline.
fn state(connection: &mut Connection, key: &str) -> (Vec<u8>, i64) {
    let digest = connection.ask(&["DEBUG", "DIGEST-VALUE", key]);
    let deadline = connection.ask(&["PEXPIRETIME", key]);
    (digest, integer(&deadline).unwrap())
}

#[test]
fn the_rewritten_does_what_the_original_does() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp2);
    for line in [
        "EXPIRE string 100",
        "EXPIRE string 100 NX",
        "EXPIRE mortal 100 NX",
        "EXPIRE mortal 100 LT",
        "EXPIRE string -1",
        "EXPIRE nothing 100",
        "PEXPIRE string 100000 XX",
        "PEXPIRE mortal 100000 XX",
        "EXPIREAT string 99999999999",
        "EXPIREAT string 5",
        "SETEX string 100 v",
        "SETEX list 100 v",
        "PSETEX string 100000 v",
        "SET string v EX 100",
        "SET string v NX PX 100000",
        "SET nothing v NX PX 100000",
        "SET string v XX EX 100 GET",
        "SET list v EX 100 GET",
        "SET string v EXAT 99999999999",
        "SET string v EXAT 5",
        "GETEX string EX 100",
        "GETEX nothing EX 100",
        "GETEX list EX 100",
        "XADD stream 9-1 f v",
        "XADD stream MAXLEN ~ 1 9-1 f v",
        "XTRIM stream MAXLEN ~ 100",
    ] {
        let words = words(line);
        connection.prepare(corpus::DATA);
        let expected = connection.ask(&words);
        let (contents, deadline) = state(&mut connection, words[1]);
        connection.prepare(corpus::DATA);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let command = rewritten_at(&words, now.try_into().unwrap()).unwrap();
        assert_eq!(connection.ask(&command), expected, "{line}");
        let ours = state(&mut connection, words[1]);
        if !line.contains("MAXLEN ~ 1 ") {
            assert_eq!(ours.0, contents, "{line}");
        }
        assert!((ours.1 - deadline).abs() < 5_000, "{line}: {} and {deadline}", ours.1);
    }
}

#[test]
fn a_dump_is_restored_with_its_deadline() {
    let Some(server) = Server::start(&[]) else { return };
    let mut connection = server.connect(Protocol::Resp2);
    connection.prepare(&["SET k v"]);
    let dump = connection.ask(&["DUMP", "k"]);
    let dump = payload(&dump).unwrap();
    let far = 4_000_000_000_000;
    let command = rewritten_at(&[&b"RESTORE"[..], b"k2", b"7", dump], far).unwrap();
    assert_eq!(connection.ask(&command), b"+OK\r\n");
    assert_eq!(state(&mut connection, "k2").1, 4_000_000_000_007);
}

#[test]
fn ids_of_streams_are_the_same_at_two_servers() {
    let (Some(a), Some(b)) = (Server::start(&[]), Server::start(&[])) else { return };
    let mut servers = [a.connect(Protocol::Resp2), b.connect(Protocol::Resp2)];
    for now in [NOW, NOW, NOW, NOW + 5, NOW + 5] {
        let command = rewritten_at(&["XADD", "k", "*", "f", "v"], now).unwrap();
        let [first, second] = servers.each_mut().map(|server| server.ask(&command));
        assert_eq!(first, second);
        assert!(payload(&first).unwrap().starts_with(now.to_string().as_bytes()));
    }
    let [first, second] = servers.each_mut().map(|server| server.ask(&["XRANGE", "k", "-", "+"]));
    assert_eq!((&first, elements(&first).count()), (&second, 5));
}

#[test]
fn winners_are_drawn_once_and_removed_everywhere() {
    let (Some(a), Some(b)) = (Server::start(&[]), Server::start(&[])) else { return };
    let mut servers = [a.connect(Protocol::Resp3), b.connect(Protocol::Resp2)];
    servers.iter_mut().for_each(|server| server.prepare(&["SADD k 1 2 3 4 5 6 7"]));
    for (line, drawn) in [("SPOP k", 1), ("SPOP k 3", 3), ("SPOP k 0", 0), ("SPOP nothing", 0)] {
        let words = words(line);
        let mut question = Vec::new();
        with_arguments(&words, |arguments| pop_question(arguments, &mut question)).unwrap();
        servers[0].send(&question);
        let reply = servers[0].reply().unwrap();
        let mut answer = Vec::new();
        assert_eq!(pop_answer(words[1].as_bytes(), &reply, &mut answer), drawn, "{line}");
        assert_eq!(answer.is_empty(), drawn == 0);
        if drawn > 0 {
            for server in &mut servers {
                server.send(&answer);
                assert_eq!(integer(&server.reply().unwrap()), Some(drawn as i64));
            }
        }
    }
    let left = servers.each_mut().map(|server| server.ask(&["SCARD", "k"]));
    assert_eq!(left, [b":3\r\n", b":3\r\n"]);
    for line in ["SPOP k -1", "SPOP k x", "SPOP k 1 2"] {
        let theirs = servers[1].ask(&words(line));
        let refused = with_arguments(&words(line), |it| pop_question(it, &mut Vec::new()));
        assert_eq!(format!("-{}\r\n", refused.unwrap_err()).as_bytes(), theirs, "{line}");
    }
    assert!(rewritten("SPOP k").contains("SRANDMEMBER"));
    let mut scanner = ReplyScanner::default();
    scanner.scan(b"*-1\r\n").unwrap();
    assert_eq!(
        (scanner.kind(), pop_answer(b"k", b"*-1\r\n", &mut Vec::new())),
        (Some(Kind::Null), 0)
    );
}
