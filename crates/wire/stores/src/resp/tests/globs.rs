//! Patterns beside a real server: who is subscribed to one gets what we say matches.

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::Strategy;
use proptest::sample::select;

use super::runner;
use super::server::{Connection, Server};
use crate::resp::Protocol;
use crate::resp::glob::matches;
use crate::resp::reply::integer;

/// Whether the server gives what is published to `text` to who is subscribed to `pattern`.
fn theirs(
    listening: &mut Connection,
    saying: &mut Connection,
    pattern: &[u8],
    text: &[u8],
) -> bool {
    listening.ask(&[&b"PSUBSCRIBE"[..], pattern]);
    let told = integer(&saying.ask(&[&b"PUBLISH"[..], text, b"x"])).unwrap();
    if told > 0 {
        listening.reply().unwrap();
    }
    listening.ask(&[&b"PUNSUBSCRIBE"[..], pattern]);
    told > 0
}

#[test]
fn patterns_match_as_at_the_server() {
    let Some(server) = Server::start(&[]) else { return };
    let both = (server.connect(Protocol::Resp2), server.connect(Protocol::Resp2));
    let both = RefCell::new(both);
    let compare = |pattern: &[u8], text: &[u8]| {
        let (listening, saying) = &mut *both.borrow_mut();
        let theirs = theirs(listening, saying, pattern, text);
        let shown = (pattern.escape_ascii(), text.escape_ascii());
        assert_eq!(matches(pattern, text), theirs, "{} on {}", shown.0, shown.1);
        theirs
    };
    let corners: [(&[u8], &[u8]); 22] = [
        (b"*", b""),
        (b"", b""),
        (b"**", b"a"),
        (b"a*", b"a"),
        (b"a**", b"a"),
        (b"*a", b"ba"),
        (b"h[^e]llo", b"hello"),
        (b"h[a-c", b"hb"),
        (b"h[", b"h["),
        (b"h[^", b"hx"),
        (b"[]", b"]"),
        (b"[]a]", b"a]"),
        (b"[c-a]", b"b"),
        (b"[a-]", b"-"),
        (b"[\\]]", b"]"),
        (b"[\\", b"\\"),
        (b"\\", b"\\"),
        (b"\\*", b"*"),
        (b"[\x7f-\x80]", b"\xff"),
        (b"[\x80-\xff]", b"\x90"),
        (b"a*b*c*d", b"axbxcxd"),
        (b"*a*b", b"abac"),
    ];
    for (pattern, text) in corners {
        compare(pattern, text);
    }
    let byte = |from: &'static [u8]| select(from);
    let pattern = vec(byte(b"***??[]^-\\aab\x80"), 0..9);
    let text = vec(byte(b"aaab-]\\\x80"), 0..5);
    let matched = RefCell::new(0);
    runner(4_000)
        .run(&(pattern, text).prop_map(|it| it), |(pattern, text)| {
            *matched.borrow_mut() += usize::from(compare(&pattern, &text));
            Ok(())
        })
        .unwrap();
    assert!(matched.into_inner() > 200, "too few of them match to tell anything");
}

#[test]
fn many_stars_cost_no_stack_and_little_time() {
    let pattern = b"*a".repeat(100_000);
    assert!(!matches(&pattern, &b"b".repeat(1_000)));
    let pattern = b"*a*a*a*a*a*a*a*a*a*a*b".to_vec();
    assert!(!matches(&pattern, &b"a".repeat(10_000)));
}
