//! Any text is read, in linear time; how a statement is spaced, commented and cased changes
//! nothing.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use evenkeel_cql::statement::{Bound, Idempotence, Shape, Statement, Why, read};
use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::sample::{Index, select};

/// Tokens of statements, glued together at random: far likelier to go deep than random characters.
const TOKENS: &str = "\
    SELECT|INSERT|INTO|UPDATE|DELETE|BEGIN|BATCH|APPLY|USING|TIMESTAMP|TTL|AND|SET|WHERE\
    |IF|NOT|EXISTS|FROM|VALUES|JSON|IN|CAST|AS|TRUNCATE|USE|COUNTER|t|ks.t|system.local\
    |peers|k|l|now()|uuid()|'now'|'x'|'|\"|\"q\"|$$|$$x$$|--|//|/*|*/|\n|(|)|[|]|{|}|,|;\
    |.|:|?|=|<|+|-|+=|-=|1|-1|1.5|0xAB|7d444840-9dc0-11d1-b245-5ffdce74fad2|P1D|1h|NULL|*\
    |count|é|\u{0}|:v| |  ";

fn texts() -> impl Strategy<Value = String> {
    let tokens: Vec<&'static str> = TOKENS.split('|').collect();
    let glued = prop::collection::vec((select(tokens), any::<bool>()), 0..60).prop_map(|parts| {
        parts.into_iter().fold(String::new(), |mut text, (token, is_apart)| {
            text += token;
            text += if is_apart { " " } else { "" };
            text
        })
    });
    prop_oneof![".{0,80}", glued]
}

fn statements() -> Vec<&'static str> {
    let lines = include_str!("statements.txt").lines();
    // Durations in ISO 8601 are upper case only.
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines = lines.filter(|line| !line.contains("P1Y"));
    lines.map(|line| line.split_once(' ').expect("a verdict and a text").1).collect()
}

/// Rewrites what is outside of quotes: spaces become other white space and comments, letters
/// change their case. `draws` decides.
fn mangle(text: &str, draws: &[u8]) -> String {
    const GAPS: [&str; 7] =
        ["  ", "\n", "\t\r\n", " -- it's; IF\n", "/* \"IF ' */", " // $$\r", "/**/ /*/*/"];
    let mut draws = draws.iter().copied().cycle();
    let mut mangled = String::new();
    let mut quote: Option<&str> = None;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let sign = ["'", "\"", "$$"].into_iter().find(|sign| rest.starts_with(sign));
        let step = sign.filter(|sign| quote.is_none_or(|quote| quote == *sign));
        let draw = usize::from(draws.next().expect("endless"));
        if let Some(sign) = step {
            quote = if quote.is_some() { None } else { Some(sign) };
            mangled += sign;
            rest = &rest[sign.len()..];
            continue;
        }
        match first {
            ' ' if quote.is_none() => mangled += GAPS[draw % GAPS.len()],
            letter if quote.is_none() && draw % 2 == 0 => mangled.push(letter.to_ascii_lowercase()),
            letter if quote.is_none() && draw % 3 == 0 => mangled.push(letter.to_ascii_uppercase()),
            letter => mangled.push(letter),
        }
        rest = &rest[first.len_utf8()..];
    }
    mangled
}

proptest! {
    #[test]
    fn any_text_is_read(text in texts()) {
        let statement = read(&text);
        let bound = Bound { shapes: None, has_unset: false };
        let without = statement.idempotence(bound, false);
        let with = statement.idempotence(bound, true);
        prop_assert!(with != Idempotence::WithTimestamp);
        prop_assert!(without == with || without == Idempotence::WithTimestamp, "{text}");
        prop_assert!(!statement.is_conditional || !with.is_proven(), "{text}");
        // What is proven of a write was read whole, so nothing may hide behind it.
        if with.is_proven() && statement.writes() {
            let more = read(&format!("{text} oops"));
            prop_assert!(!more.idempotence(bound, true).is_proven() || text.contains(['-', '/']));
        }
    }

    #[test]
    fn spaces_comments_and_case_change_nothing(
        which in any::<Index>(), draws in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let lines = statements();
        let text = lines[which.index(lines.len())];
        let mangled = mangle(text, &draws);
        let (one, other) = (read(text), read(&mangled));
        prop_assert_eq!(one, other, "{} became {}", text, mangled);
    }
}

/// The ends of what begins here, balanced in brackets, and could be a value that is no name.
fn value_ends(text: &str, start: usize) -> Vec<usize> {
    let (mut ends, mut depth) = (Vec::new(), 0_i32);
    for (index, letter) in text[start..].char_indices() {
        depth += i32::from("([{".contains(letter)) - i32::from(")]}".contains(letter));
        if depth < 0 || (depth == 0 && letter == ',') {
            break;
        }
        if depth == 0 && letter != ' ' {
            ends.push(start + index + letter.len_utf8());
        }
    }
    ends
}

/// Cassandra takes `(v)` for `v`: all values of all lines, in parentheses and with a type.
#[test]
fn parentheses_make_nothing_idempotent() {
    let shapes = [Shape::List, Shape::Set, Shape::Map, Shape::Counter, Shape::Int, Shape::Other];
    let shapes: Vec<[Shape; 4]> = shapes.iter().map(|shape| [*shape; 4]).collect();
    let known = shapes.iter().flat_map(|four| (0..=4).map(|count| Some(&four[..count])));
    let bounds: Vec<Bound<'_>> =
        known.chain([None]).map(|shapes| Bound { shapes, has_unset: false }).collect();
    let mut count = 0;
    for text in statements() {
        let before = read(text);
        let starts =
            text.char_indices().filter(|(_, letter)| "?:-[{('0123456789".contains(*letter));
        for (start, end) in
            starts.flat_map(|(at, _)| value_ends(text, at).into_iter().map(move |end| (at, end)))
        {
            let (front, value, back) = (&text[..start], &text[start..end], &text[end..]);
            if front.ends_with("VALUES ") {
                continue; // the row: in more parentheses it is one value
            }
            for (open, close) in
                [("(", ")"), ("((", "))"), ("((list<int>) ", ")"), ("(int) (", ")")]
            {
                let wrapped = format!("{front}{open}{value}{close}{back}");
                let after = read(&wrapped);
                count += 1;
                for bound in &bounds {
                    let is_proven = |it: &Statement| it.idempotence(*bound, true).is_proven();
                    assert!(is_proven(&before) || !is_proven(&after), "{wrapped} {bound:?}");
                }
            }
        }
    }
    assert!(count > 20_000, "{count}");
}

#[test]
fn a_megabyte_is_read_in_linear_time() {
    let repeated = |head: &str, part: &str, tail: &str| {
        let mut text = head.to_owned();
        while text.len() < 1 << 20 {
            text += part;
        }
        text + tail
    };
    let nested = |open: &str, close: &str| {
        let half = "INSERT INTO t (k) VALUES (".to_owned() + &open.repeat(1 << 19);
        half + &close.repeat(1 << 19) + ")"
    };
    let mut texts = vec![
        repeated("", "/*", ""),
        repeated("", "/* * / ", ""),
        repeated("SELECT ", "''", " FROM t"),
        repeated("SELECT ", "\"\"\"", " FROM t"),
        repeated("SELECT ", "$ ", " FROM t"),
        repeated("SELECT a", ", a", " FROM system.local"),
        repeated("SELECT * FROM system.peers WHERE peer IN ('a'", ", 'a'", ")"),
        repeated("UPDATE t SET a = 1", ", a = -- x\n 1", " WHERE k = 1"),
        repeated("INSERT INTO t (k) VALUES (1", ", {a: (int) [1]}", ")"),
        repeated("INSERT INTO t (k) VALUES (1", ", ?", ")"),
        repeated("INSERT INTO t (k) VALUES ((", "a<", ""),
        repeated("INSERT INTO t (k) VALUES (", "1d", ")"),
        repeated("INSERT INTO t (k) VALUES (", "P1", ")"),
        repeated("BEGIN BATCH ", "INSERT INTO a.t (k) VALUES (?) ", "APPLY BATCH"),
        repeated("DELETE ", "a[1], ", "b FROM t WHERE k = 1"),
        nested("[", "]"),
        nested("(", ")"),
        nested("{", "}"),
        nested("(a)", ""),
        nested("f(", ")"),
        nested("cast(", " as int)"),
    ];
    let mut long_comment = "UPDATE t SET a /*".to_owned();
    long_comment += &"x".repeat(1 << 20);
    write!(long_comment, "*/ = 1 WHERE k = 1").expect("memory");
    texts.push(long_comment);
    let begin = Instant::now();
    for text in &texts {
        let start = Instant::now();
        std::hint::black_box(read(text));
        // Quadratic time would take minutes; this is for slow machines and debug builds.
        let spent = start.elapsed();
        assert!(spent < Duration::from_secs(2), "{spent:?}: {}", &text[..40]);
    }
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn nesting_is_bounded() {
    let insert = |depth: usize| {
        let value = "{".repeat(depth) + &"}".repeat(depth);
        read(&format!("INSERT INTO t (k) VALUES ({value})")).idempotence(Bound::UNKNOWN, true)
    };
    assert_eq!(insert(60), Idempotence::Yes);
    assert_eq!(insert(70), Idempotence::No(Why::Unknown));
}
