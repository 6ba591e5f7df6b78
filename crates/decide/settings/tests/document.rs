//! Parsing and overlaying: places, syntax errors, hostile texts.

use std::time::{Duration, Instant};

use evenkeel_settings::{DOCUMENT_BYTES_MAX, Node, Place, Problems, Value};
use proptest::prelude::*;

fn parse(text: &str) -> Node {
    Node::parse(text, "a.toml").unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(text: &str) -> Problems {
    Node::parse(text, "a.toml").expect_err("the text is wrong")
}

fn at<'n>(node: &'n Node, path: &str) -> &'n Node {
    path.split('.').fold(node, |node, key| match &node.value {
        Value::Table(entries) => &entries[key],
        Value::List(items) => &items[key.parse::<usize>().expect("a list has indices")],
        other => panic!("{key} of {other:?}"),
    })
}

fn json(node: &Node) -> String {
    serde_json::to_string(node).expect("a tree is JSON")
}

#[test]
fn every_value_knows_its_line_and_column() {
    let node = parse(
        "a = 1\n\n[b.c]\n  d = ['ö', \"x\"]\n'e.f' = {g = 2.5}\n\
         [[h]]\n[[h]]\ni=true",
    );
    let places = [
        ("a", "a.toml:1:5"),
        ("b", "a.toml:3:2"),
        ("b.c", "a.toml:3:1"),
        ("b.c.d.1", "a.toml:4:13"), // ö is one column and two bytes
        ("h", "a.toml:6:1"),
        ("h.1", "a.toml:7:1"),
        ("h.1.i", "a.toml:8:3"),
    ];
    for (path, place) in places {
        assert_eq!(at(&node, path).at.to_string(), place, "{path}");
    }
    let expected = r#"{"a":1,"b":{"c":{"d":["ö","x"],"e.f":{"g":2.5}}},"h":[{},{"i":true}]}"#;
    assert_eq!(json(&node), expected);
}

#[test]
fn columns_in_long_lines_count_characters() {
    let text = format!("x = ['{}', 7]", "ö€x".repeat(10_000));
    let node = parse(&text);
    let Place::File { line, column, .. } = &at(&node, "x.1").at else { panic!() };
    assert_eq!((*line, *column as usize), (1, 1 + "x = ['".len() + 30_000 + "', ".len()));
}

#[test]
fn syntax_errors_say_where_what_came_and_what_was_expected() {
    let cases = [
        (
            "x = 1\ny = 30ms",
            "a.toml:2:5: got \"30ms\", expected literal string; string values must be quoted",
        ),
        ("x = [1, 2", "a.toml:1:10: got the end of the file, expected `]`; unclosed array"),
        ("[a\nb = 1", "a.toml:1:3: got the end of the line, expected `]`; unclosed table"),
        ("x = 1\nx = 2", "a.toml:2:1: got \"x\", expected each key once; duplicate key"),
        ("x 1", "a.toml:1:3: got \"1\", expected `=`; key with no value"),
    ];
    for (text, expected) in cases {
        assert_eq!(problems(text).to_string(), expected);
    }
}

#[test]
fn values_that_toml_has_and_settings_have_not_are_all_reported() {
    let text = "a = 1979-05-27\n[b]\nc = [99999999999999999999]\nd = 1e999\ne = 0x\nf = inf";
    let text = problems(text).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("a.toml:1:5: a: got the date 1979-05-27, expected a text"));
    assert!(lines[1].starts_with("a.toml:3:6: b.c.0: got 99999999999999999999, expected a whole"));
    assert!(lines[2].starts_with("a.toml:4:5: b.d: got 1e999, expected a number"));
    assert!(lines[3].starts_with("a.toml:5:5: b.e: got 0x, expected a whole number"));
}

#[test]
fn flags_overlay_values_of_toml_and_bare_texts() {
    let mut node = parse("faults = [{at = '1s'}, {at = '2s'}]\nworkload.rate = 1");
    let flags = [
        "workload.rate=3",
        "workload.timeout = 30ms",
        "faults.1.at=5s",
        "replicas=[1,1,8]",
        "run.policies=[c3, random, 5]",
        "dimmer={setpoint=0.5}",
        "on=true",
        "listen=[::1]:80",
        "when=1979-05-27",
        "up.\"a.b\".x='q'",
        "empty=",
        "equation=a=b",
    ];
    for flag in flags {
        node.set(flag).unwrap_or_else(|problem| panic!("{problem}"));
    }
    let expected = serde_json::json!({
        "workload": {"rate": 3, "timeout": "30ms"},
        "faults": [{"at": "1s"}, {"at": "5s"}],
        "replicas": [1, 1, 8],
        "run": {"policies": ["c3", "random", 5]},
        "dimmer": {"setpoint": 0.5},
        "on": true,
        "listen": "[::1]:80",
        "when": "1979-05-27",
        "up": {"a.b": {"x": "q"}},
        "empty": "",
        "equation": "a=b",
    });
    assert_eq!(serde_json::to_value(&node).unwrap(), expected);
    assert_eq!(at(&node, "workload.rate").at.to_string(), "--set workload.rate=3");
    assert_eq!(at(&node, "replicas.2").at.to_string(), "--set replicas=[1,1,8]");
}

#[test]
fn flags_that_lead_nowhere_change_nothing() {
    let mut node = parse("faults = [{at = '1s'}]\nx = 3\nnone = []");
    let before = node.clone();
    let cases = [
        ("x", "--set x: got \"x\", expected path=value, such as workload.rate=500/s"),
        ("x.y.z=1", "--set x.y.z=1: x: got 3, expected a table or list, to reach \"y\""),
        ("faults.1.at=2", "faults: got the index 1, expected an index from 0 to 0"),
        ("faults.at=2", "faults: got the index at, expected an index from 0 to 0"),
        ("none.0=2", "none: got the index 0, expected a list with items"),
        ("=1", "got the path \"\", expected at most 64 keys"),
        ("a..b=1", "got the path \"a..b\", expected"),
        ("a.\"b=1", "got the path \"a.\\\"b\", expected"),
        ("n=99999999999999999999", "n: got 99999999999999999999, expected a whole number"),
    ];
    for (flag, expected) in cases {
        let problem = node.set(flag).expect_err(flag).to_string();
        assert!(problem.contains(&expected.replace("\\\"", "\"")), "{problem}");
        assert_eq!(node, before, "{flag}");
    }
}

/// Runs on a stack as small as that of a test thread, and in bounded time.
fn survives(name: &str, text: &str) {
    let began = Instant::now();
    let result = Node::parse(text, "hostile.toml");
    drop(result);
    let mut node = parse("");
    let _ = node.set(&format!("x={text}"));
    let _ = node.set(&format!("{text}=x"));
    drop(node);
    assert!(began.elapsed() < Duration::from_secs(60), "{name}: {:?}", began.elapsed());
}

#[test]
fn deep_nesting_is_refused_before_it_can_overflow_the_stack() {
    let deep = "expected at most 64 levels of brackets and dotted keys";
    let dotted = vec!["a"; 60].join(".");
    // Each bracket and each key is within the parser's own bounds; together they are 4800 levels.
    let inline = format!("{{{dotted} = ").repeat(80);
    let combined = format!("[{dotted}]\n{dotted} = {inline}1{}", "}".repeat(80));
    let texts = [
        format!("x = {}", "[".repeat(100_000)),
        format!("x = {}{}", "[".repeat(100_000), "]".repeat(100_000)),
        format!("x = {}", "{a=".repeat(100_000)),
        format!("{}a = 1", "a.".repeat(100_000)),
        format!("[{}a]", "a.".repeat(100_000)),
        combined,
    ];
    for text in texts {
        assert!(problems(&text).to_string().contains(deep));
        survives("deep", &text);
    }
    let paths = format!("{}a=1", "a.".repeat(100_000));
    assert!(parse("").set(&paths).is_err());
}

#[test]
fn nesting_that_people_write_is_accepted() {
    let sixty = format!("x = {}1{}", "[".repeat(60), "]".repeat(60));
    parse(&sixty);
    // Points and commas of many values do not add up to depth.
    parse(&format!("x = [{}]", "1.5, {a.b.c = 2.5},\n".repeat(1_000)));
    parse(&"[[a.b]]\nc.d = 1.5\n".repeat(1_000));
}

#[test]
fn hostile_texts_cost_bounded_time() {
    let megabyte = |part: &str| part.repeat((1 << 20) / part.len());
    for part in ["[}", "{]", "[{a=1]}", "\"\\", "\r", "x=[\n", "1,", "[[a]]\n", ".", "\"", "ö"] {
        survives(part, &megabyte(part));
        survives(part, &format!("x = [{}]", megabyte(part)));
    }
}

#[test]
fn a_text_of_more_than_four_mebibytes_is_refused() {
    let comment = format!("#{}", "x".repeat(DOCUMENT_BYTES_MAX - 1));
    parse(&comment);
    let text = problems(&format!("{comment}x")).to_string();
    assert_eq!(text, "a.toml: got more than 4 MiB, expected a file of at most 4 MiB");
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let directory = std::env::temp_dir().join(format!("evenkeel-settings-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let load = |name: &str| Node::load(&directory.join(name)).map_err(|error| error.to_string());
    std::fs::write(directory.join("good.toml"), "x = 1").unwrap();
    std::fs::write(directory.join("bytes.toml"), b"a = 'x'\nb = '\xff'").unwrap();
    assert_eq!(json(&load("good.toml").unwrap()), r#"{"x":1}"#);
    let missing = load("missing.toml").unwrap_err();
    assert!(missing.contains("missing.toml: got no readable file ("), "{missing}");
    let bytes = load("bytes.toml").unwrap_err();
    assert!(
        bytes.ends_with("bytes.toml:2:6: got the byte 0xff, expected text in UTF-8"),
        "{bytes}"
    );
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Texts that look like TOML: most get past the first token.
fn nearly_toml() -> impl Strategy<Value = String> {
    let parts = prop::sample::select(vec![
        "a",
        "b",
        ".",
        "=",
        " = ",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        ",",
        "\n",
        "\"",
        "'",
        "'''",
        "\"\"\"",
        "1",
        "-1",
        "1.5",
        "0x",
        "1e9",
        "inf",
        "nan",
        "true",
        "1979-05-27",
        "07:32:00",
        "#",
        "\r\n",
        "\t",
        "\\",
        "\\u",
        "ö",
        "\u{0}",
        "\u{feff}",
        "'x'",
        "_",
        "+",
    ]);
    prop::collection::vec(parts, 0..40).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_panics(text in prop_oneof![nearly_toml(), any::<String>()], flag in nearly_toml()) {
        let parsed = Node::parse(&text, "any.toml");
        if let Err(problems) = &parsed {
            let printed = problems.to_string();
            prop_assert!(printed.starts_with("any.toml") && !printed.contains(char::from(0)));
        }
        let mut node = parsed.unwrap_or_else(|_| parse("a = [{b = 1}]"));
        let _ = node.set(&flag);
        let _ = node.set(&format!("a={flag}"));
        let _ = node.set(&format!("{flag}=a"));
        let _ = json(&node);
    }

    #[test]
    fn places_point_at_what_was_written(before in "[a-zö \n]{0,300}", number in 100_i64..1_000) {
        let comments: String = before.lines().map(|line| format!("# {line}\n")).collect();
        let text = format!("{comments}\nx = {number}");
        let node = parse(&text);
        let Place::File { line, column, .. } = &at(&node, "x").at else { panic!() };
        let written = text.lines().nth(*line as usize - 1).unwrap();
        let rest: String = written.chars().skip(*column as usize - 1).collect();
        prop_assert_eq!(rest, number.to_string());
    }
}
