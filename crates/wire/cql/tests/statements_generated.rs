//! The statements of the comparison with a real Cassandra, read here: each is told for what it is.

use evenkeel_cql::statement::{Bound, Kind, read};
use evenkeel_testkit::statements::{Asked, Form, Part, Statements, schema};

fn parts(asked: &Asked) -> Vec<&Part> {
    match &asked.form {
        Form::Query(part) | Form::Prepared(part) => vec![part],
        Form::Batch { parts, .. } => parts.iter().map(|(part, _)| part).collect(),
    }
}

#[test]
fn generated_statements_are_told_for_what_they_are() {
    let mut statements = Statements::new(1, "ks", &[4], &[4]);
    let mut proven = 0;
    for asked in (0..20_000).map(|_| statements.draw()) {
        for part in parts(&asked) {
            let statement = read(&part.text);
            let text = &part.text[..part.text.len().min(200)];
            assert!(asked.is_wrong || statement.kind != Kind::Other, "{text}");
            assert!(asked.is_wrong || statement.table.is_some(), "{text}");
            let shapes = vec![evenkeel_cql::statement::Shape::Other; part.values.len()];
            let bound = Bound { shapes: Some(&shapes), has_unset: false };
            let verdict = statement.idempotence(bound, asked.timestamp.is_some());
            assert!(asked.repeats || !verdict.is_proven(), "{text}");
            assert_eq!(statement.is_conditional, !asked.repeats, "{text}");
            proven += usize::from(verdict.is_proven());
        }
    }
    // Reads, and what is written with a timestamp apart from lists and bound collections.
    assert!((8_000..18_000).contains(&proven), "{proven}");
}

#[test]
fn a_seed_makes_the_same_statements() {
    let make = |seed| {
        let mut statements = Statements::new(seed, "ks", &[4], &[4, 5]);
        (0..200).map(|_| statements.draw()).collect::<Vec<_>>()
    };
    assert!(make(1) == make(1));
    assert!(make(1) != make(2));
    assert!(schema("ks").iter().all(|text| read(text).kind == Kind::Schema));
}
