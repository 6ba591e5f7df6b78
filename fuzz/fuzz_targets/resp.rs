//! Any bytes as what clients of RESP send, and as what its servers answer.
//!
//! Promise: a command, a reply or an error, never a panic; the same however the bytes are cut; the
//! written form of a command is read as the same; what is done with a command never depends on
//! more than its arguments; what RESP2 clients get is RESP2 and as many replies as came.

#![no_main]

use evenkeel_stores::resp::ProtocolError;
use evenkeel_stores::resp::commands::{self, Class};
use evenkeel_stores::resp::reply::{
    self, ReplyLimits, ReplyScanner, Shape, down_convert, strip_attributes,
};
use evenkeel_stores::resp::replication::{Event, Group, Groups, ReplicationParser};
use evenkeel_stores::resp::request::{Arguments, Limits, RequestParser};
use evenkeel_stores::resp::rewrite::{pop_answer, pop_question, rewrite};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits {
    argument_bytes_max: 200,
    arguments_max: 20,
    inline_bytes_max: 100,
    command_bytes_max: 500,
};
const REPLY_LIMITS: ReplyLimits = ReplyLimits { bytes_max: 500, depth_max: 6 };

fuzz_target!(|data: &[u8]| {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let whole = requests(bytes, bytes.len().max(1));
    assert_eq!(whole, requests(bytes, usize::from(cut) % 16 + 1));
    let whole = replies(bytes, bytes.len().max(1));
    assert_eq!(whole, replies(bytes, usize::from(cut) % 16 + 1));
    for head in [&b""[..], b"+FULLRESYNC x 1\r\n", b"+FULLRESYNC x 1\r\n$0\r\n"] {
        let bytes = [head, bytes].concat();
        let whole = stream(&bytes, bytes.len());
        assert_eq!(whole, stream(&bytes, usize::from(cut) % 16 + 1));
    }
});

/// The lengths of the commands in these bytes, so many coming at a time, and whether an error ended
/// them.
fn requests(bytes: &[u8], step: usize) -> (Vec<usize>, Option<ProtocolError>) {
    let mut parser = RequestParser::new(LIMITS);
    let (mut lengths, mut start, mut end) = (Vec::new(), 0, 0);
    while end < bytes.len() {
        end = (end + step).min(bytes.len());
        loop {
            let buffer = &bytes[start..end];
            match parser.parse(buffer) {
                Ok(None) => break,
                Err(error) => return (lengths, Some(error)),
                Ok(Some(length)) => {
                    let mut canonical = Vec::new();
                    parser.write_canonical(buffer, &mut canonical);
                    check_arguments(parser.arguments(buffer), &canonical);
                    lengths.push(length);
                    start += length;
                }
            }
        }
    }
    (lengths, None)
}

fn check_arguments(arguments: Arguments<'_>, canonical: &[u8]) {
    if arguments.is_empty() {
        return;
    }
    let mut parser = RequestParser::default();
    assert_eq!(parser.parse(canonical), Ok(Some(canonical.len())));
    assert!(parser.arguments(canonical).iter().eq(arguments.iter()));
    let mut out = Vec::new();
    let Some(command) = commands::lookup(arguments.at(0)) else {
        commands::unknown(arguments, &mut out);
        assert_eq!(scan_one(&out), reply::Kind::Error);
        return;
    };
    if !command.accepts(arguments.len()) {
        return;
    }
    if let Ok(keys) = commands::keys(command, arguments) {
        keys.for_each(|key| assert!((1..arguments.len()).contains(&key)));
    }
    let _ = commands::shape(command, arguments);
    if let Class::Rewritten(how, repeat) = commands::classify(command, arguments) {
        if rewrite(how, arguments, 1_700_000_000_000, &mut out).is_err() {
            assert!(out.is_empty());
            let _ = pop_question(arguments, &mut out);
            return;
        }
        check_rewritten(&out, repeat);
    }
}

/// The rewritten form is a command that needs no rewriting but of its written form.
fn check_rewritten(bytes: &[u8], repeat: commands::Repeat) {
    let mut parser = RequestParser::default();
    assert_eq!(parser.parse(bytes), Ok(Some(bytes.len())));
    let arguments = parser.arguments(bytes);
    let command = commands::lookup(arguments.at(0)).expect("it is a command");
    assert!(command.accepts(arguments.len()));
    match commands::classify(command, arguments) {
        Class::Write(again) => assert_eq!(again, repeat),
        Class::Rewritten(how, _) => {
            let mut again = Vec::new();
            rewrite(how, arguments, 1, &mut again).expect("it was written here");
            assert_eq!(again, bytes, "writing it again changes nothing");
        }
        other => panic!("a write became {other:?}"),
    }
}

/// The groups in what a server sends its replicas, the offset, and whether an error ended them.
fn stream(bytes: &[u8], step: usize) -> (Vec<Group>, u64, bool) {
    let mut parser = ReplicationParser::new(LIMITS);
    let (mut groups, mut found) = (Groups::new(200), Vec::new());
    let (mut start, mut end) = (0, 0);
    while end < bytes.len() {
        end = (end + step).min(bytes.len());
        loop {
            let buffer = &bytes[start..end];
            let Ok((count, event)) = parser.next(buffer) else {
                return (found, parser.offset(), true);
            };
            if event == Some(Event::Command) {
                found.extend(groups.take(parser.arguments(buffer), &buffer[..count]));
            }
            if count == 0 && event.is_none() {
                break;
            }
            start += count;
        }
    }
    (found, parser.offset(), false)
}

/// The same of replies. Which error is said may depend on the cut; whether one is may not.
fn replies(bytes: &[u8], step: usize) -> (Vec<usize>, bool) {
    let mut scanner = ReplyScanner::new(REPLY_LIMITS);
    let (mut lengths, mut start, mut end) = (Vec::new(), 0, 0);
    while end < bytes.len() {
        end = (end + step).min(bytes.len());
        loop {
            match scanner.scan(&bytes[start..end]) {
                Ok(None) => break,
                Err(_) => return (lengths, true),
                Ok(Some(length)) => {
                    let whole = &bytes[start..start + length];
                    assert_eq!(scanner.body().end, length);
                    check_reply(&whole[scanner.body()], scanner.kind().expect("it is whole"));
                    lengths.push(length);
                    start += length;
                }
            }
        }
    }
    (lengths, false)
}

fn check_reply(body: &[u8], kind: reply::Kind) {
    let mut stripped = Vec::new();
    strip_attributes(body, &mut stripped);
    assert_eq!(scan_one(&stripped), kind);
    let shapes =
        [Shape::Plain, Shape::NullArray, Shape::Pairs, Shape::Streams, Shape::Pending];
    for shape in shapes {
        let mut out = Vec::new();
        down_convert(body, shape, &mut out);
        scan_one(&out);
        check_resp2(&out, 0);
    }
    assert_eq!(reply::blame(body).is_some(), kind == reply::Kind::Error);
    let (_, _) = (reply::payload(body), reply::integer(body));
    let mut answer = Vec::new();
    let winners = pop_answer(b"k", body, &mut answer);
    assert_eq!(winners == 0, answer.is_empty());
}

fn check_resp2(reply: &[u8], depth: usize) {
    assert!(b"+-:$*".contains(&reply[0]) && depth < 16);
    reply::elements(reply).for_each(|element| check_resp2(element, depth + 1));
}

/// What this one whole reply is.
fn scan_one(reply: &[u8]) -> reply::Kind {
    let mut scanner = ReplyScanner::default();
    assert_eq!(scanner.scan(reply), Ok(Some(reply.len())));
    assert!(scanner.attribute().is_empty() && !scanner.has_nested_attributes());
    scanner.kind().expect("it is whole")
}
