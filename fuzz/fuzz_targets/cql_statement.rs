//! Any text as a statement of CQL.
//!
//! Promise: it is read without a panic and in bounded memory; a timestamp makes nothing less
//! idempotent, and a known type nothing that was proven without; no conditional statement may be
//! sent twice; more white space and comments change nothing.

#![no_main]

use evenkeel_cql::statement::{Bound, Idempotence, Shape, Statement, read};
use libfuzzer_sys::fuzz_target;

const SHAPES: [Shape; 6] =
    [Shape::List, Shape::Set, Shape::Map, Shape::Counter, Shape::Int, Shape::Other];

fuzz_target!(|text: &str| {
    let statement = read(text);
    for shape in SHAPES {
        for count in 0..4 {
            check(&statement, &[shape; 4][..count]);
        }
    }
    assert_eq!(read(&format!("/* '\" */ -- '\n\t{text}")), statement);
    if let Some(select) = statement.system.and_then(|system| system.select) {
        assert!(!statement.is_conditional && select.conditions.len() <= 256);
    }
});

fn check(statement: &Statement, shapes: &[Shape]) {
    let untyped = Bound { shapes: None, has_unset: true };
    let typed = Bound { shapes: Some(shapes), has_unset: false };
    let most = statement.idempotence(typed, true);
    assert_ne!(most, Idempotence::WithTimestamp);
    assert!(!statement.is_conditional || !most.is_proven());
    for (bound, has_timestamp) in [(untyped, false), (untyped, true), (typed, false)] {
        let less = statement.idempotence(bound, has_timestamp);
        assert!(!less.is_proven() || most.is_proven(), "{less:?} but {most:?}");
    }
}
