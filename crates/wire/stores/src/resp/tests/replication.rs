//! A server's stream to its replicas: written by hand, cut anywhere, and of a real server.

use super::{array, runner};
use crate::resp::databases;
use crate::resp::replication::{
    Event, Group, Groups, ReplicationError, ReplicationParser, place_of_stream,
};
use crate::resp::request::Limits;

const ID: &str = "8371b4fb1155b71f4a04d3e1bc3e18c4a990aeeb";
const MARK: &str = "0123456789abcdef0123456789abcdef01234567";
const WATERMARK: &str = "evenkeel:watermark";

/// The commands in these bytes, so many coming at a time, and the error that ended them.
fn read(bytes: &[u8], step: usize) -> (Vec<Vec<String>>, u64, Option<ReplicationError>) {
    let mut parser = ReplicationParser::new(Limits::default());
    let (mut commands, mut start, mut end) = (Vec::new(), 0, 0);
    while end < bytes.len() {
        end = (end + step).min(bytes.len());
        loop {
            let buffer = &bytes[start..end];
            let (count, event) = match parser.next(buffer) {
                Ok(found) => found,
                Err(error) => return (commands, parser.offset(), Some(error)),
            };
            if event == Some(Event::Command) {
                let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
                commands.push(parser.arguments(buffer).iter().map(text).collect());
            }
            start += count;
            if count == 0 && event.is_none() {
                break;
            }
        }
    }
    (commands, parser.offset(), None)
}

fn stream(head: &str, snapshot: &[u8], tail: &str) -> (Vec<u8>, u64) {
    let commands = [array(&["SELECT", "0"]), array(&["SET", "a", "1"]), array(&["PING"])].concat();
    let start = format!("\n+FULLRESYNC {ID} 100\r\n\n\n{head}\r\n").into_bytes();
    let bytes = [&start, snapshot, tail.as_bytes(), &commands].concat();
    (bytes, 100 + commands.len() as u64)
}

#[test]
fn the_commands_behind_a_snapshot_are_found_however_the_bytes_are_cut() {
    let snapshot = b"REDIS0010 0123456789abcdef\r\n*1\r\n$4\r\nFAKE\r\n\xff";
    let eof = format!("$EOF:{MARK}");
    for (head, tail) in [(eof.as_str(), MARK), (&format!("${}", snapshot.len()), ""), ("$0", "")] {
        let snapshot = if head == "$0" { &b""[..] } else { snapshot };
        let (bytes, offset) = stream(head, snapshot, tail);
        for step in [1, 2, 3, 7, 39, 40, 41, bytes.len()] {
            let (commands, at, error) = read(&bytes, step);
            assert_eq!(error, None, "{head}, {step}");
            assert_eq!(commands, [vec!["SELECT", "0"], vec!["SET", "a", "1"], vec!["PING"]]);
            assert_eq!(at, offset);
        }
    }
}

#[test]
fn what_is_no_stream_is_an_error_that_says_what_came() {
    for (bytes, expected) in [
        (&b"-NOPERM no permissions\r\n"[..], "PSYNC was answered with '-NOPERM no permissions'"),
        (b"+OK\r\n", "PSYNC was answered with '+OK'"),
        (b"+CONTINUE\r\n", "PSYNC was answered with '+CONTINUE'"),
        (b"+FULLRESYNC x y\r\n", "PSYNC was answered with '+FULLRESYNC x y'"),
        (b"+FULLRESYNC x 1\r\n$-4\r\n", "a snapshot begins with '$-4', expected"),
        (b"+FULLRESYNC x 1\r\n$EOF:12\r\n", "a snapshot begins with '$EOF:12', expected"),
        (b"+FULLRESYNC x 1\r\n$0\r\n*1\r\n:1\r\n", "Protocol error: expected '$', got ':'"),
    ] {
        let (_, _, error) = read(bytes, 5);
        let error = error.unwrap().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let (_, _, error) = read(&[b'x'; 3_000], 100);
    assert!(matches!(error, Some(ReplicationError::Refused(_))), "a line without an end");
}

#[test]
fn a_stream_goes_on_where_it_broke_off() {
    let mut parser = ReplicationParser::new(Limits::default());
    assert_eq!(parser.place(), None);
    let (bytes, offset) = stream("$0", b"", "");
    let mut at = 0;
    while at < bytes.len() {
        at += parser.next(&bytes[at..]).unwrap().0;
    }
    assert_eq!(parser.next(b"*2\r\n$3\r\nDEL\r\n$1").unwrap(), (0, None));
    assert_eq!(parser.place(), Some((ID.as_bytes(), offset + 1)));
    parser.reconnect();
    let other = "f".repeat(40);
    let answer = format!("+CONTINUE {other}\r\n");
    let found = parser.next(answer.as_bytes()).unwrap();
    assert_eq!(found, (answer.len(), Some(Event::Commands)));
    let command = array(&["DEL", "a"]);
    assert_eq!(parser.next(&command).unwrap(), (command.len(), Some(Event::Command)));
    let next = offset + command.len() as u64 + 1;
    assert_eq!(parser.place(), Some((other.as_bytes(), next)));
}

/// Never a panic, and the same however the bytes are cut.
#[test]
fn any_bytes_are_read_the_same_in_pieces() {
    let (good, _) = stream(&format!("$EOF:{MARK}"), b"snapshot", MARK);
    let cases =
        (proptest::collection::vec(proptest::num::u8::ANY, 0..40), 0..good.len(), 1..50_usize);
    runner(300)
        .run(&cases, |(noise, at, step)| {
            let mut bytes = good.clone();
            bytes.splice(at..(at + noise.len() / 2).min(good.len()), noise);
            proptest::prop_assert_eq!(read(&bytes, step), read(&bytes, bytes.len().max(1)));
            Ok(())
        })
        .unwrap();
}

/// The groups of these commands.
fn groups(commands: &[&[&str]], bytes_max: usize) -> Vec<Group> {
    let mut groups = Groups::new(bytes_max);
    let take = |command: &&[&str]| {
        let bytes = array(command);
        super::with_arguments(command, |arguments| groups.take(arguments, &bytes))
    };
    commands.iter().filter_map(take).collect()
}

#[test]
fn a_group_is_what_stands_before_its_watermark() {
    let set = |value: &'static str| ["SET", WATERMARK, value];
    let (first, second, third) = (set("1 7"), set("ahead 1 2"), set("1 8"));
    let found = groups(
        &[
            &["SELECT", "0"],
            &["SET", "plain", "1"],
            &first,
            &["MULTI"],
            &["INCR", "a"],
            &["PUBLISH", "c", "x"],
            &["SELECT", "3"],
            &["DEL", "b"],
            &["SELECT", "0"],
            &second,
            &["EXEC"],
            &["PING"],
            &["MULTI"],
            &["DEL", "expired"],
            &["EXEC"],
            &["MULTI"],
            &third,
            &["EXEC"],
        ],
        1_000,
    );
    let commands = [&["INCR", "a"][..], &["SELECT", "3"], &["DEL", "b"], &["SELECT", "0"]];
    let commands: Vec<u8> = commands.iter().flat_map(|it| array(it)).collect();
    let plain = |mark: &str| Group { mark: mark.into(), ..Group::default() };
    let published = array(&["PUBLISH", "c", "x"]);
    let second = Group { commands, count: 4, published, ..plain("ahead 1 2") };
    assert_eq!(found, [plain("1 7"), second, plain("1 8")]);
}

/// As Redis 7.0 sends it: the database of the first command is chosen before the transaction.
#[test]
fn a_database_that_was_chosen_before_is_chosen_within() {
    let commands: [&[&str]; 6] = [
        &["SELECT", "3"],
        &["MULTI"],
        &["INCR", "a"],
        &["SELECT", "0"],
        &["SET", WATERMARK, "1 9"],
        &["EXEC"],
    ];
    let found = groups(&commands, 1_000);
    let expected = [&["SELECT", "3"][..], &["INCR", "a"], &["SELECT", "0"]];
    let expected: Vec<u8> = expected.iter().flat_map(|it| array(it)).collect();
    assert_eq!((found.len(), found[0].count), (1, 3));
    assert_eq!(found[0].commands, expected);
}

/// A stream that is read from somewhere may be in any database: a watermark of ours is in 0, and
/// what stands before it without a choice in between is of the same.
#[test]
fn what_is_of_an_unknown_database_is_not_taken_for_another() {
    let set: &[&str] = &["SET", WATERMARK, "1 9"];
    let begun: [&[&str]; 2] = [&["MULTI"], &["INCR", "a"]];
    let found = groups(&[begun[0], begun[1], set, &["EXEC"]], 1_000);
    assert_eq!((found[0].is_unclear, &*found[0].commands), (false, &*array(&["INCR", "a"])));
    let zero: &[&str] = &["SELECT", "0"];
    let unknown = [begun[0], begun[1], zero, set, &["EXEC"]];
    assert!(groups(&unknown, 1_000)[0].keys(16).unwrap_err().starts_with("TRYAGAIN"));
    for known in [set, zero] {
        let all: Vec<&[&str]> = std::iter::once(known).chain(unknown).collect();
        let found = groups(&all, 1_000).pop().unwrap();
        assert_eq!((found.is_unclear, &*found.commands), (false, &*array(&["INCR", "a"])));
    }
    let chosen = groups(&[begun[0], zero, begun[1], set, &["EXEC"]], 1_000);
    assert_eq!((chosen[0].is_unclear, chosen[0].count), (false, 1));
}

#[test]
fn a_watermark_of_somebody_else_in_a_group_is_one_of_its_commands() {
    let theirs = ["SET", WATERMARK, "ahead 1 2"];
    let commands: [&[&str]; 6] =
        [&["MULTI"], &theirs, &["INCR", "a"], &["SET", WATERMARK, "1 9"], &["EXEC"], &["EXEC"]];
    let found = groups(&commands, 1_000);
    let effects = [array(&theirs), array(&["INCR", "a"])].concat();
    let expected = Group { mark: b"1 9".into(), commands: effects, count: 2, ..Group::default() };
    assert_eq!(found, [expected]);
    assert_eq!(groups(&commands[..3], 1_000), [], "it has not ended");
}

#[test]
fn keys_of_a_group_are_those_that_it_has_changed() {
    let keys = |commands: &[&[&str]]| {
        let commands = commands.iter().flat_map(|it| array(it)).collect();
        Group { commands, ..Group::default() }.keys(16)
    };
    let found = keys(&[&["SET", "a", "1"], &["RENAME", "b", "c"], &["XGROUP", "SETID", "d", "g"]]);
    let found = found.unwrap().into_iter().map(|key| String::from_utf8(key.into()).unwrap());
    assert_eq!(found.collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    let commands: [&[&str]; 5] = [
        &["SELECT", "15"],
        &["INCR", "a"],
        &["COPY", "a", "b", "DB", "2"],
        &["SELECT", "0"],
        &["INCR", "a"],
    ];
    let found = keys(&commands).unwrap();
    let found: Vec<_> = found.iter().map(|place| databases::at(place)).collect();
    assert_eq!(found, [(15, &b"a"[..]), (15, b"a"), (2, b"b"), (0, b"a")]);
    assert_eq!(keys(&[]), Ok(Vec::new()));
    for (command, expected) in [
        (&["SET", "evenkeel:x", "1"][..], "begin with 'evenkeel:'"),
        (&["SELECT", "16"], "not served"),
        (&["COPY", "a", "b", "DB", "16"], "not served"),
        (&["COPY", "a", "b", "DB", "300"], "not served"),
        (&["FLUSHALL"], "may not do"),
        (&["NO.COMMAND", "a"], "may not do"),
        (&["EVAL", "x"], "may not do"),
    ] {
        let error = keys(&[&["SET", "a", "1"], command]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    assert!(Group { is_cut: true, ..Group::default() }.keys(16).unwrap_err().contains("64 MiB"));
}

#[test]
fn of_a_group_that_is_too_long_nothing_is_kept() {
    let long = "x".repeat(100);
    let commands: [&[&str]; 5] = [
        &["MULTI"],
        &["SET", "a", &long],
        &["SET", "b", "1"],
        &["SET", WATERMARK, "1 9"],
        &["EXEC"],
    ];
    let found = groups(&commands, 99);
    assert!(found[0].is_cut && found[0].commands.is_empty(), "{found:?}");
    assert!(!groups(&commands, 999)[0].is_cut);
}

#[test]
fn a_stream_is_gone_on_with_where_others_have_read_it() {
    let info = |is_kept: &str| {
        let text = format!(
            "# Replication\r\nrole:master\r\nmaster_replid:{ID}\r\nmaster_replid2:00\r\n\
             master_repl_offset:1234\r\nrepl_backlog_active:{is_kept}\r\n"
        );
        format!("${}\r\n{text}\r\n", text.len()).into_bytes()
    };
    assert_eq!(place_of_stream(&info("1")), Some((ID.as_bytes(), 1_234)));
    for other in
        [info("0"), b"-NOPERM no\r\n".to_vec(), b"$-1\r\n".to_vec(), b"$2\r\nab\r\n".to_vec()]
    {
        assert_eq!(place_of_stream(&other), None);
    }
    let mut parser = ReplicationParser::new(Limits::default());
    parser.go_on_from(ID.as_bytes(), 1_234);
    assert_eq!(parser.place(), Some((ID.as_bytes(), 1_235)));
    let answer = format!("+CONTINUE {ID}\r\n");
    assert_eq!(parser.next(answer.as_bytes()), Ok((answer.len(), Some(Event::Commands))));
    let command = array(&["SET", "a", "1"]);
    assert_eq!(parser.next(&command), Ok((command.len(), Some(Event::Command))));
    assert_eq!(parser.offset(), 1_234 + command.len() as u64);
}
