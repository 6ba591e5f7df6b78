//! Any text as a document, and each of its lines as a `--set` on top of it.
//!
//! Promise: a tree or a problem, never a panic; a refused `--set` leaves the document as it was;
//! what [`format_duration`] writes is read as the same duration.

#![no_main]

use evenkeel_settings::{
    Node, Problems, Table, format_duration, parse_bytes, parse_duration, parse_rate, parse_share,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = &*String::from_utf8_lossy(data);
    let parsed = Node::parse(text, "fuzz.toml");
    assert!(parsed.as_ref().err().is_none_or(|problems| !problems.to_string().is_empty()));
    let mut node = parsed.unwrap_or_else(|_| Node::parse("", "fuzz.toml").expect("no text"));
    let _ = read(&node);
    for line in text.lines() {
        check_units(line);
        // As text: a NaN differs from itself.
        let before = format!("{node:?}");
        if node.set(line).is_err() {
            assert_eq!(before, format!("{node:?}"), "{line:?} was refused");
        }
    }
    let _ = read(&node);
});

/// One key of each kind, so that every kind of value meets every reader.
fn read(node: &Node) -> Result<(), Problems> {
    node.read(|root| {
        shape(root);
        let _ = root.key("table").table(shape).optional();
        let _ = root.key("list").list(|item| item.table(shape).optional()).optional();
        let _ = root.key("named").named(|_, item| item.duration().optional()).optional();
    })
}

fn shape(table: &mut Table<'_>) {
    let _ = table.key("a").duration().optional();
    let _ = table.key("b").bytes().optional();
    let _ = table.key("c").rate().between(0.0..=1e6).optional();
    let _ = table.key("d").probability().optional();
    let _ = table.key("e").integer::<u8>().optional();
    let _ = table.key("f").number().required();
    let _ = table.key("g").address().optional();
    let _ = table.key("h").choice(&["one", "two"]).optional();
}

fn check_units(text: &str) {
    let _ = (parse_bytes(text), parse_rate(text), parse_share(text));
    if let Ok(duration) = parse_duration(text) {
        assert_eq!(parse_duration(&format_duration(duration)), Ok(duration), "{text:?}");
    }
}
