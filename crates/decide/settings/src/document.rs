//! TOML as a tree that knows where each value was written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use toml::Spanned;
use toml::de::{DeInteger, DeString, DeTable, DeValue};
use toml_parser::Source;
use toml_parser::lexer::TokenKind;

use crate::problem::{Mismatch, Place, Problem, Problems, excerpt, joined, quoted};

/// The longest text that is parsed. A file people write is a thousand times smaller.
pub const DOCUMENT_BYTES_MAX: usize = 4 << 20;

/// Levels of nesting in one expression. The parser bounds brackets and dotted keys one by one,
/// but 80 brackets of 80 dotted keys are 6400 levels, too many for a thread's stack.
pub(crate) const DEPTH_MAX: usize = 64;

/// A value and where it was written.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it was written; of a table, its header.
    pub at: Place,
}

/// A value of TOML. Dates are none: write them as texts.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction or exponent; may be infinite or NaN, as TOML allows.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A table, in the order of its keys.
    Table(BTreeMap<String, Node>),
}

impl Node {
    /// Parses a TOML text; `file` is the name that problems are reported under.
    ///
    /// # Errors
    /// The first error of syntax; or else every date and every number out of range. Also when the
    /// text is longer than [`DOCUMENT_BYTES_MAX`] or nested deeper than 64 levels.
    pub fn parse(text: &str, file: &str) -> Result<Self, Problems> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let places = Places::Text(Lines::new(text, file));
        check_size(text, || Place::whole(file))?;
        check_depth(text, &places)?;
        let table = DeTable::parse(text).map_err(|error| syntax(&error, text, &places))?;
        convert(table.span(), DeValue::Table(table.into_inner()), &places)
    }

    /// Reads and parses a TOML file.
    ///
    /// # Errors
    /// When the file cannot be read, is not UTF-8, or as [`Node::parse`].
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let file = path.display().to_string();
        let bytes = read_bytes(path).map_err(|error| {
            let came = format!("no readable file ({error})");
            let what = Mismatch::new(came, "a TOML file").with_hint("is the path right?");
            Problem { at: Place::whole(&file), path: String::new(), what }
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(&error.as_bytes()[..valid]);
            let at = Lines::new(&text, &file).place(valid);
            let came = format!("the byte 0x{:02x}", error.as_bytes()[valid]);
            Problem { at, path: String::new(), what: Mismatch::new(came, "text in UTF-8") }
        })?;
        Self::parse(&text, &file)
    }

    /// Whether it is a table that has this key.
    pub fn has(&self, key: &str) -> bool {
        matches!(&self.value, Value::Table(entries) if entries.contains_key(key))
    }
}

impl Value {
    /// The value as a message shows it: scalars as written, texts in quotes, the rest in words.
    pub(crate) fn described(&self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Float(value) => format!("{value:?}"),
            Self::Text(text) => quoted(text),
            Self::List(items) if items.is_empty() => "an empty list".to_owned(),
            Self::List(items) => format!("a list of {}", items.len()),
            Self::Table(_) => "a table".to_owned(),
        }
    }
}

/// Plain data without places; infinite numbers and NaN are as the format has them (JSON: null).
impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(items) => serializer.collect_seq(items),
            Self::Table(entries) => serializer.collect_map(entries),
        }
    }
}

/// Parses one TOML value that was written at `place`; none when it is not one (or is a date).
pub(crate) fn parse_value(text: &str, place: &Place) -> Result<Option<Node>, Problems> {
    let places = Places::One(place.clone());
    check_size(text, || place.clone())?;
    check_depth(text, &places)?;
    match DeValue::parse(text) {
        Ok(value) if value.get_ref().is_datetime() => Ok(None),
        Ok(value) => convert(value.span(), value.into_inner(), &places).map(Some),
        Err(_) => Ok(None),
    }
}

fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed, for the size check to see; devices and pipes may be endless.
    File::open(path)?.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check_size(text: &str, place: impl FnOnce() -> Place) -> Result<(), Problem> {
    if text.len() <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    let what = Mismatch::new("more than 4 MiB", "a file of at most 4 MiB");
    Err(Problem { at: place(), path: String::new(), what })
}

/// Bounds nesting before the parser recurses. It may count more levels than there are in a text
/// with unmatched brackets, never fewer.
fn check_depth(text: &str, places: &Places<'_>) -> Result<(), Problem> {
    let mut open = vec![(TokenKind::Eof, 0)]; // per open bracket: its kind, dots in the current key
    let mut depth = 0;
    for token in Source::new(text).lex() {
        let (innermost, dots) = open.last_mut().expect("the first entry is never closed");
        match (token.kind(), *innermost) {
            (kind @ (TokenKind::LeftSquareBracket | TokenKind::LeftCurlyBracket), _) => {
                open.push((kind, 0));
                depth += 1;
            }
            (TokenKind::RightSquareBracket, TokenKind::LeftSquareBracket)
            | (TokenKind::RightCurlyBracket, TokenKind::LeftCurlyBracket) => {
                depth -= 1 + *dots;
                open.pop();
            }
            (TokenKind::Dot, _) => {
                *dots += 1;
                depth += 1;
            }
            (TokenKind::Comma | TokenKind::Newline, _) => depth -= std::mem::take(dots),
            _ => {}
        }
        if depth > DEPTH_MAX {
            let at = places.place(token.span().start());
            let expected = format!("at most {DEPTH_MAX} levels of brackets and dotted keys");
            let what = Mismatch::new("deeper nesting", expected);
            return Err(Problem { at, path: String::new(), what });
        }
    }
    Ok(())
}

fn syntax(error: &toml::de::Error, text: &str, places: &Places<'_>) -> Problem {
    let span = error.span().unwrap_or(0..0);
    let line = text.get(span.start..).and_then(|rest| rest.lines().next()).unwrap_or("");
    let came = match text.get(span.clone()).filter(|part| !part.is_empty()) {
        Some(part) => quoted(part),
        None if span.start >= text.len() => "the end of the file".to_owned(),
        None if line.is_empty() => "the end of the line".to_owned(),
        None => quoted(line),
    };
    let (cause, expected) = match error.message().split_once(", expected ") {
        Some((cause, expected)) => (cause, expected),
        None if error.message() == "duplicate key" => ("duplicate key", "each key once"),
        None => (error.message(), "TOML"),
    };
    let what = Mismatch::new(came, excerpt(expected)).with_hint(cause);
    Problem { at: places.place(span.start), path: String::new(), what }
}

fn convert(
    span: std::ops::Range<usize>,
    value: DeValue<'_>,
    places: &Places<'_>,
) -> Result<Node, Problems> {
    let mut converter = Converter { places, path: String::new(), problems: Problems::default() };
    let node = converter.node(Spanned::new(span, value));
    converter.problems.into_result(node)
}

struct Converter<'a> {
    places: &'a Places<'a>,
    path: String,
    problems: Problems,
}

impl Converter<'_> {
    fn node(&mut self, spanned: Spanned<DeValue<'_>>) -> Node {
        let at = self.places.place(spanned.span().start);
        let value = match spanned.into_inner() {
            DeValue::Boolean(value) => Value::Bool(value),
            DeValue::Integer(number) => self.integer(&at, &number),
            DeValue::Float(number) => self.float(&at, number.as_str()),
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Datetime(date) => {
                let expected = "a text, number, truth value, list or table";
                let what = Mismatch::new(format!("the date {date}"), expected);
                self.wrong(&at, what.with_hint("write it in quotes"))
            }
            DeValue::Array(items) => {
                let item = |(index, item): (usize, _)| self.within(&index.to_string(), item);
                Value::List(items.into_iter().enumerate().map(item).collect())
            }
            DeValue::Table(entries) => Value::Table(self.table(entries)),
        };
        Node { value, at }
    }

    fn table(&mut self, entries: DeTable<'_>) -> BTreeMap<String, Node> {
        let entry = |(key, value): (Spanned<DeString<'_>>, _)| {
            let key = key.into_inner().into_owned();
            let node = self.within(&key, value);
            (key, node)
        };
        entries.into_iter().map(entry).collect()
    }

    fn within(&mut self, key: &str, spanned: Spanned<DeValue<'_>>) -> Node {
        let outer = self.path.len();
        let dot = if outer == 0 { "" } else { "." };
        self.path.push_str(dot);
        self.path.push_str(&joined("", key));
        let node = self.node(spanned);
        self.path.truncate(outer);
        node
    }

    fn integer(&mut self, at: &Place, number: &DeInteger<'_>) -> Value {
        let value = i64::from_str_radix(number.as_str(), number.radix());
        value.map(Value::Integer).unwrap_or_else(|_| {
            let expected = "a whole number from -9223372036854775808 to 9223372036854775807";
            self.wrong(at, Mismatch::new(excerpt(&number.to_string()), expected))
        })
    }

    fn float(&mut self, at: &Place, text: &str) -> Value {
        match text.parse::<f64>() {
            // The parser of numbers makes infinity of 1e999; only `inf` means it.
            Ok(value) if !value.is_infinite() || text.contains("inf") => Value::Float(value),
            _ => {
                let expected = "a number of magnitude below 1.8e308";
                self.wrong(at, Mismatch::new(excerpt(text), expected))
            }
        }
    }

    fn wrong(&mut self, at: &Place, what: Mismatch) -> Value {
        self.problems.push(Problem { at: at.clone(), path: self.path.clone(), what });
        Value::Bool(false)
    }
}

/// How offsets of the parsed text become places.
enum Places<'t> {
    Text(Lines<'t>),
    One(Place),
}

impl Places<'_> {
    fn place(&self, offset: usize) -> Place {
        match self {
            Self::Text(lines) => lines.place(offset),
            Self::One(place) => place.clone(),
        }
    }
}

const BLOCK_BYTES: usize = 256;

/// Line and column of any offset without walking the text: a file may be one line of 4 MiB.
struct Lines<'t> {
    file: Arc<str>,
    bytes: &'t [u8],
    line_starts: Vec<u32>,
    characters_before_block: Vec<u32>,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str, file: &str) -> Self {
        // A longer text is refused; places in it stay at its beginning.
        let bytes = if text.len() <= DOCUMENT_BYTES_MAX { text.as_bytes() } else { &[] };
        let newlines = (1_u32..).zip(bytes).filter(|(_, byte)| **byte == b'\n');
        let mut characters_before_block = vec![0];
        for block in bytes.chunks(BLOCK_BYTES) {
            let before = characters_before_block.last().copied().unwrap_or(0);
            characters_before_block.push(before + characters(block));
        }
        let line_starts = std::iter::once(0).chain(newlines.map(|(next, _)| next)).collect();
        Self { file: file.into(), bytes, line_starts, characters_before_block }
    }

    fn place(&self, offset: usize) -> Place {
        let offset = offset.min(self.bytes.len());
        let line = self.line_starts.partition_point(|&start| start as usize <= offset);
        let start = self.line_starts[line - 1] as usize;
        let column = self.characters_before(offset) - self.characters_before(start) + 1;
        Place::File { file: self.file.clone(), line: line as u32, column }
    }

    fn characters_before(&self, offset: usize) -> u32 {
        let block = offset / BLOCK_BYTES;
        self.characters_before_block[block] + characters(&self.bytes[block * BLOCK_BYTES..offset])
    }
}

fn characters(bytes: &[u8]) -> u32 {
    // In UTF-8 every byte but the continuations (10xxxxxx) begins a character.
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as u32
}
