//! How fast it is: `cargo test --release -p evenkeel-stores resp::tests::timing -- --ignored
//! --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use super::{array, words};
use crate::resp::commands::{classify, keys, lookup};
use crate::resp::hash;
use crate::resp::reply::{ReplyScanner, Shape, down_convert};
use crate::resp::request::RequestParser;
use crate::resp::rewrite::rewrite;

const TIMES: u32 = 2_000_000;

/// The nanoseconds of the fastest of five rounds.
fn measure(what: &str, mut act: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let begin = Instant::now();
        (0..TIMES).for_each(|_| act());
        best = best.min(begin.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES));
    }
    eprintln!("{best:8.1} ns  {what}");
}

#[test]
#[ignore = "a measurement: in a release build, on a quiet machine"]
fn cost_of_one_small_command() {
    for line in ["GET key:000001", "SET key:000001 valuevalue", "ZREMRANGEBYSCORE key:000001 0 10"]
    {
        let bytes = array(&words(line));
        let mut parser = RequestParser::default();
        measure(&format!("{line}: parse"), || {
            black_box(parser.parse(black_box(&bytes)).unwrap());
        });
        measure(&format!("{line}: parse, look up, classify, find the key, hash it"), || {
            parser.parse(black_box(&bytes)).unwrap();
            let arguments = parser.arguments(&bytes);
            let command = lookup(arguments.at(0)).unwrap();
            assert!(command.accepts(arguments.len()));
            black_box(classify(command, arguments));
            let key = keys(command, arguments).unwrap().next().unwrap();
            black_box(hash::slot(arguments.at(key)));
        });
    }
    let bytes = array(&words("SET key:000001 valuevalue EX 100"));
    let (mut parser, mut out) = (RequestParser::default(), Vec::new());
    measure("SET … EX 100: parse, classify, rewrite", || {
        parser.parse(black_box(&bytes)).unwrap();
        let arguments = parser.arguments(&bytes);
        let command = lookup(arguments.at(0)).unwrap();
        let crate::resp::commands::Class::Rewritten(how, _) = classify(command, arguments) else {
            panic!("it has a relative deadline");
        };
        out.clear();
        rewrite(how, arguments, 1_700_000_000_000, &mut out).unwrap();
        black_box(&out);
    });
    for reply in ["+OK\r\n", ":1\r\n", "$10\r\nvaluevalue\r\n", "%1\r\n$1\r\nf\r\n$1\r\nv\r\n"] {
        let mut scanner = ReplyScanner::default();
        measure(&format!("{reply:?}: scan"), || {
            black_box(scanner.scan(black_box(reply.as_bytes())).unwrap());
        });
        measure(&format!("{reply:?}: to RESP2"), || {
            out.clear();
            down_convert(black_box(reply.as_bytes()), Shape::Plain, &mut out);
            black_box(&out);
        });
    }
}
