//! `cargo xtask schema`: the JSON Schema of configuration files, for editors.
//!
//! It is made from the tables of `docs/configuration.md`: a test of the server compares their keys,
//! and the words that keys take, with the reader, so the schema knows what the reader knows. It
//! accepts whatever the reader accepts, but cannot say all that the reader refuses: relations
//! between keys, and ranges of durations and sizes, stay in the descriptions.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};

use crate::root;

pub(crate) const DOCUMENT: &str = "docs/configuration.md";
pub(crate) const SCHEMA: &str = "docs/evenkeel.schema.json";

/// `1m30s`: as `evenkeel-settings` reads it.
const DURATION: &str = r"^\s*([0-9]*\.?[0-9]+\s*(d|h|m|min|s|ms|us|µs|μs|ns)\s*)+$";
const SIZE: &str = r"^\s*[0-9]*\.?[0-9]+\s*(B|[kKMGT]B|[KMGT]iB)?\s*$";
const SHARE: &str = r"^\s*[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?\s*%?\s*$";
const ADDRESS: &str = r"^(\[[0-9A-Fa-f:.]+\]|[0-9]+(\.[0-9]+){3}):[0-9]{1,5}$";
const NAMED: &str = r"^[^/\s]+:[0-9]{1,5}$";
const PLACE: &str = r"^(unix:/.*|[^/\s]+:[0-9]{1,5})$";

/// Numbers that may be fractions though their ranges end with whole ones.
const FRACTIONS: [&str; 7] =
    ["price", "tau", "per_node", "per_violation", "optional", "wan", "node"];

/// Writes the schema anew.
///
/// # Errors
/// When the document cannot be read, is not understood, or the schema cannot be written.
pub fn write() -> Result<()> {
    let document = root().join(DOCUMENT);
    let text = std::fs::read_to_string(&document)
        .with_context(|| format!("cannot read {}", document.display()))?;
    std::fs::write(root().join(SCHEMA), of_document(&text)?)
        .with_context(|| format!("cannot write {SCHEMA}"))?;
    println!("{SCHEMA} written");
    Ok(())
}

/// The schema for the tables of this document.
///
/// # Errors
/// For a table or kind that is not understood, with its line.
pub(crate) fn of_document(text: &str) -> Result<String> {
    let sections = sections(text)?;
    let mut root = table("", &sections)?;
    root.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
    root.insert("title".to_owned(), json!("Configuration of Evenkeel"));
    let text = serde_json::to_string_pretty(&Value::Object(root)).context("a schema is JSON")?;
    Ok(text + "\n")
}

/// A heading such as ``## `[upstream.NAME]` `` and the table below it.
#[derive(Default)]
struct Section<'a> {
    /// `[[listen]]`: repeatable.
    is_list: bool,
    rows: Vec<Row<'a>>,
}

struct Row<'a> {
    line: usize,
    key: &'a str,
    meaning: &'a str,
    kind: &'a str,
    default: &'a str,
    range: &'a str,
}

/// By path, such as `upstream.NAME.hedge`.
type Sections<'a> = BTreeMap<&'a str, Section<'a>>;

fn sections(text: &str) -> Result<Sections<'_>> {
    let mut found = Sections::new();
    let mut path = None;
    for (index, line) in text.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("## ") {
            let title = heading.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
            path = title.map(|title| title.trim_matches(['[', ']']));
            if let (Some(path), Some(title)) = (path, title) {
                let is_list = title.starts_with("[[");
                found.insert(path, Section { is_list, rows: Vec::new() });
            }
        } else if let Some(section) = path.and_then(|path| found.get_mut(path))
            && line.starts_with("| `")
        {
            section.rows.push(row(line, index + 1)?);
        }
    }
    if found.is_empty() {
        bail!("{DOCUMENT}: no heading such as ## `[process]`");
    }
    Ok(found)
}

fn row(text: &str, line: usize) -> Result<Row<'_>> {
    let cells: Vec<&str> = text.trim_matches('|').split('|').map(str::trim).collect();
    let [key, meaning, kind, default, range] = cells[..] else {
        let count = cells.len();
        bail!("{DOCUMENT}:{line}: {count} cells, expected key, meaning, kind, default and range");
    };
    Ok(Row { line, key: key.trim_matches('`'), meaning, kind, default, range })
}

/// The schema of a table: its keys, and the tables below it.
fn table(path: &str, sections: &Sections<'_>) -> Result<Map<String, Value>> {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    let rows = sections.get(path).map_or(&[][..], |section| &section.rows);
    for row in rows {
        let below = join(path, row.key);
        let mut schema = match is_table(&below, sections) {
            true => below_a_key(&below, sections)?,
            false => of_kind(row)?,
        };
        describe(row, &mut schema);
        properties.insert(row.key.to_owned(), Value::Object(schema));
        if row.default == "*required*" {
            required.push(row.key);
        }
    }
    for name in children(path, sections) {
        if !properties.contains_key(name) {
            let schema = below_a_key(&join(path, name), sections)?;
            properties.insert(name.to_owned(), Value::Object(schema));
        }
    }
    let mut schema = object(json!({"type": "object", "additionalProperties": false}));
    schema.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    Ok(schema)
}

/// What a key holds that is a table, a list of tables, or tables by their names.
fn below_a_key(path: &str, sections: &Sections<'_>) -> Result<Map<String, Value>> {
    let named = join(path, "NAME");
    if is_table(&named, sections) {
        let named = table(&named, sections)?;
        return Ok(object(json!({"type": "object", "additionalProperties": named})));
    }
    let is_list = sections.get(path).is_some_and(|section| section.is_list);
    let schema = table(path, sections)?;
    Ok(if is_list { object(json!({"type": "array", "items": schema})) } else { schema })
}

/// Whether rows say what it holds: `[upstream.NAME.sites]` has a heading and keys of any name.
fn is_table(path: &str, sections: &Sections<'_>) -> bool {
    sections.iter().any(|(of, section)| !section.rows.is_empty() && starts_with(of, path))
}

fn starts_with(path: &str, start: &str) -> bool {
    path.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Names directly below a path, those of tables without a row included.
fn children<'a>(path: &str, sections: &Sections<'a>) -> Vec<&'a str> {
    let start = if path.is_empty() { String::new() } else { format!("{path}.") };
    let with_rows = sections.iter().filter(|(_, section)| !section.rows.is_empty());
    let below = with_rows.filter_map(|(of, _)| of.strip_prefix(start.as_str()));
    let names = below.filter_map(|rest| rest.split('.').next());
    names.filter(|name| *name != "NAME").collect()
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn of_kind(row: &Row<'_>) -> Result<Map<String, Value>> {
    let text = || json!({"type": "string"});
    let address = || json!({"type": "string", "pattern": ADDRESS});
    let or_list = |item: Value| json!({"anyOf": [item, {"type": "array", "items": item}]});
    let mut schema = object(match row.kind {
        "duration" => json!({"type": "string", "pattern": DURATION}),
        "size" => json!({"type": ["integer", "string"], "minimum": 0, "pattern": SIZE}),
        "share" => json!({"type": ["number", "string"], "pattern": SHARE}),
        "number" if is_whole(row) => json!({"type": "integer"}),
        "number" => json!({"type": "number"}),
        "boolean" | "`true` or `false`" => json!({"type": "boolean"}),
        "text" | "file" | "text or duration" => text(),
        "address" => address(),
        "address or path" => {
            json!({"anyOf": [address(), {"type": "string", "pattern": "^unix:/"}]})
        }
        "address or name" => json!({"type": "string", "pattern": NAMED}),
        "address, name or path" => json!({"type": "string", "pattern": PLACE}),
        "list of addresses" => json!({"type": "array", "items": address()}),
        "list of texts" | "list of text" | "list of networks" | "list of addresses and names" => {
            json!({"type": "array", "items": text()})
        }
        "list of tables" => json!({"type": "array", "items": {"type": "object"}}),
        "`\"auto\"`, `true` or `false`" => json!({"enum": ["auto", true, false]}),
        "file, or list of files" | "text, or list" => or_list(text()),
        "text or number" => json!({"type": ["string", "integer"]}),
        "list or number" => json!({"type": ["array", "integer"]}),
        "list" => json!({"type": "array"}),
        "table of numbers" => {
            json!({"type": "object", "additionalProperties": {"type": "number", "minimum": 0}})
        }
        "table of addresses" => json!({"type": "object", "additionalProperties": address()}),
        "table" => json!({"type": "object"}),
        other => bail!(
            "{DOCUMENT}:{}: {}: the kind \"{other}\" is new; tell `of_kind` in \
             xtask/tidy/src/schema.rs which JSON it is",
            row.line,
            row.key
        ),
    });
    bound(row, &mut schema);
    Ok(schema)
}

fn is_whole(row: &Row<'_>) -> bool {
    let (least, most) = ends(row.range);
    let mut ends = [least, most].into_iter().flatten();
    !FRACTIONS.contains(&row.key) && ends.all(|end| end.fract() == 0.0)
}

/// Adds what the range says of numbers, of lengths of lists, and of words.
fn bound(row: &Row<'_>, schema: &mut Map<String, Value>) {
    let (least, most) = ends(row.range);
    let names = match (row.kind, schema.contains_key("items")) {
        ("number" | "share", _) => ("minimum", "maximum"),
        (_, true) => ("minItems", "maxItems"),
        _ => ("", ""),
    };
    for (name, end) in [(names.0, least), (names.1, most)] {
        if let Some(end) = end.filter(|_| !name.is_empty()) {
            schema.insert(name.to_owned(), number(end));
        }
    }
    if let Some(words) = words(row.range) {
        let of = match schema.get_mut("items") {
            Some(Value::Object(items)) => items,
            _ => schema,
        };
        *of = object(json!({"type": "string", "enum": words}));
    }
}

/// The ends of `1 – 1 000 000; 0 = never`, of `at most 1000` and of `1 or more`, if numbers.
fn ends(range: &str) -> (Option<f64>, Option<f64>) {
    let range = range.split([';', ',']).next().unwrap_or_default();
    let number = |text: &str| text.replace(' ', "").parse::<f64>().ok();
    if let Some(most) = range.strip_prefix("at most ") {
        return (None, number(most));
    }
    if let Some(least) = range.strip_suffix(" or more") {
        return (number(least), None);
    }
    let Some((least, most)) = range.split_once('–') else { return (None, None) };
    let most = most.strip_suffix(" files").unwrap_or(most);
    (number(least), number(most))
}

/// The words of `` `strip`, `trust` ``; `None` when the range says something else.
fn words(range: &str) -> Option<Vec<&str>> {
    let word = |item| -> Option<&str> {
        let word = str::strip_prefix(item, "`")?.strip_suffix('`')?;
        (!word.contains(['`', '/'])).then_some(word)
    };
    let words: Vec<&str> = range.split(", ").map(word).collect::<Option<_>>()?;
    (words.len() > 1).then_some(words)
}

/// A whole number without a fraction: `1`, not `1.0`.
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    match value.fract() == 0.0 && value.abs() <= EXACT {
        true => json!(value as i64),
        false => json!(value),
    }
}

fn describe(row: &Row<'_>, schema: &mut Map<String, Value>) {
    let mut words = unlinked(row.meaning);
    for (name, cell) in [("default", row.default), ("range", row.range)] {
        if !cell.is_empty() {
            words = format!("{words}\n{name}: {}", unlinked(cell).replace('*', ""));
        }
    }
    schema.insert("description".to_owned(), json!(words));
    let quoted = row.default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    if let Some(default) = quoted.and_then(|text| serde_json::from_str::<Value>(text).ok()) {
        schema.insert("default".to_owned(), default);
    }
}

/// The text without addresses of links.
fn unlinked(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("](") {
        words.push_str(&before.replacen('[', "", 1));
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    words + rest
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => unreachable!("{other} is no object"),
    }
}

#[cfg(test)]
mod tests;
