//! Rust source as text: comments and literals blanked, functions and test code located.
//!
//! Blanking keeps every byte offset and newline, so that a position in the blanked code is the
//! same position in the file. After it, a brace is a brace: what looks like code inside a string
//! or a comment can no longer mislead a scan.

use std::ops::Range;

/// The text of one Rust file, prepared for scanning.
pub(super) struct Source {
    code: String,
    line_starts: Vec<usize>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// The line of `fn`, from 1.
    pub(super) line: usize,
    /// From the line of `fn` to the line of the closing brace, both counted.
    pub(super) length: usize,
}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(offset, _)| offset + 1);
        let line_starts = std::iter::once(0).chain(after_newlines).collect();
        Self { code: blank_literals(text), line_starts }
    }

    /// The file with spaces for every comment, string and character literal.
    pub(super) fn code(&self) -> &str {
        &self.code
    }

    /// The line, from 1, of a byte offset.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// Functions in the order of their first line; a nested one is listed too.
    pub(super) fn functions(&self) -> Vec<Function> {
        words(&self.code, "fn").filter_map(|offset| self.function_at(offset)).collect()
    }

    fn function_at(&self, offset: usize) -> Option<Function> {
        let name_start = offset + "fn ".len();
        let name: String = self.code.get(name_start..)?.chars().take_while(is_word).collect();
        if name.is_empty() {
            return None; // a function pointer type
        }
        let (end, closed_by) = item_end(self.code.as_bytes(), name_start)?;
        if closed_by == b';' {
            return None; // a declaration in a trait
        }
        let line = self.line(offset);
        Some(Function { name, line, length: self.line(end) - line + 1 })
    }

    /// Lines, from 1, of items that exist only in tests.
    pub(super) fn test_lines(&self) -> Vec<Range<usize>> {
        let ranges = self.test_items().into_iter();
        ranges.map(|item| self.line(item.start)..self.line(item.end - 1) + 1).collect()
    }

    /// Where items are that exist only in tests, from their attribute to their last byte.
    pub(super) fn test_items(&self) -> Vec<Range<usize>> {
        // The last is for what several crates' tests share, behind a feature.
        let marks = ["#[cfg(test)]", "#[cfg(all(test,", "#[cfg(any(test, feature ="];
        let mut ranges: Vec<Range<usize>> = marks
            .iter()
            .flat_map(|mark| self.code.match_indices(mark))
            .filter_map(|(start, _)| Some(start..item_end(self.code.as_bytes(), start)?.0 + 1))
            .collect();
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    /// Lines that end with a newline.
    pub(super) fn count_lines(&self) -> usize {
        // What follows the last newline is no line.
        self.line_starts.len() - 1
    }
}

/// Offsets where `word` stands alone, not as part of a longer name.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> {
    code.match_indices(word).map(|(offset, _)| offset).filter(move |offset| {
        let before = code[..*offset].chars().next_back();
        let after = code[offset + word.len()..].chars().next();
        !before.is_some_and(|c| is_word(&c)) && !after.is_some_and(|c| is_word(&c))
    })
}

pub(super) fn is_word(character: &char) -> bool {
    character.is_alphanumeric() || *character == '_'
}

/// Where the item that begins at `from` ends, and the byte that ends it: `;` or `}`.
fn item_end(code: &[u8], from: usize) -> Option<(usize, u8)> {
    let mut depth = 0_usize;
    for (offset, byte) in code.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.checked_sub(1)?,
            b';' if depth == 0 => return Some((offset, b';')),
            b'{' if depth == 0 => return Some((closing_brace(code, offset)?, b'}')),
            _ => {}
        }
    }
    None
}

/// The brace that closes the one at `open`.
pub(super) fn closing_brace(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return Some(offset);
        }
    }
    None
}

fn blank_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    while code.len() < bytes.len() {
        let at = code.len();
        match literal_end(bytes, at) {
            Some(end) => {
                let blanks = bytes[at..end].iter();
                code.extend(blanks.map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
            }
            None => code.push(bytes[at]),
        }
    }
    String::from_utf8(code).expect("literals are blanked and all else is copied, whole")
}

/// The end of the comment or literal that begins at `at`; nothing when code begins there.
fn literal_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let length = match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n'),
        [b'/', b'*', ..] => block_comment_length(rest),
        [b'"', ..] => string_length(rest),
        [b'\'', ..] => return character_length(rest).map(|length| at + length),
        [b'r' | b'b' | b'c', ..] if !follows_word(bytes, at) => {
            return raw_string_length(rest).map(|length| at + length);
        }
        _ => return None,
    };
    // What is never closed reaches to the end of the file.
    Some(at + length.unwrap_or(rest.len()))
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

/// Block comments nest.
fn block_comment_length(rest: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let step = match &rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn string_length(rest: &[u8]) -> Option<usize> {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

/// `r"…"`, `br##"…"##` and so on; nothing for a name such as `r#type` or `result`.
fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let prefix = if matches!(rest[0], b'b' | b'c') { 2 } else { 1 };
    if rest.get(prefix - 1) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    let body = prefix + hashes + 1;
    if rest.get(body - 1) != Some(&b'"') {
        return None;
    }
    let closing = [&b"\""[..], &b"#".repeat(hashes)].concat();
    let found = rest[body..].windows(closing.len()).position(|window| window == closing);
    Some(found.map_or(rest.len(), |offset| body + offset + closing.len()))
}

/// A character literal; nothing for a lifetime.
fn character_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let closing = rest.iter().skip(3).position(|byte| *byte == b'\'')?;
        return Some(3 + closing + 1);
    }
    let width = match rest.get(1)? {
        0..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(String, usize, usize)> {
        let functions = Source::new(text).functions();
        functions.into_iter().map(|f| (f.name, f.line, f.length)).collect()
    }

    #[test]
    fn comments_and_literals_become_blanks_of_the_same_length() {
        for (text, words_left) in [
            ("a // b { \nc", "a c"),
            ("a /* { /* } */ { */ b", "a b"),
            (r#"f("{\"}", 1)"#, "f( , 1)"),
            ("g(r#\"{\"}\"#, br\"{\")", "g( , )"),
            ("m('{', '\\'', '\\u{7b}', b'}', 'é')", "m( , , , b , )"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("r#type + rest", "r#type + rest"),
            ("\"a\nb\" c", "c"),
            ("é \"never closed {", "é"),
        ] {
            let code = blank_literals(text);
            let found: Vec<&str> = code.split_whitespace().collect();
            assert_eq!(found.join(" "), words_left, "{text}");
            assert_eq!(code.len(), text.len(), "{text}");
            assert_eq!(code.find('\n'), text.find('\n'), "{text}");
        }
    }

    #[test]
    fn functions_are_measured_from_fn_to_the_closing_brace() {
        let text = "fn one() {}\n\npub(crate) const fn two(\n    a: [u8; 3],\n) -> u8\nwhere\n    \
                    u8: Copy,\n{\n    let x = \"}\";\n    { a[0] }\n}\n";
        assert_eq!(names(text), [("one".to_owned(), 1, 1), ("two".to_owned(), 3, 9)]);
    }

    #[test]
    fn declarations_pointers_and_other_names_are_not_functions() {
        let text = "trait T {\n    fn a(&self) -> [u8; 4];\n}\ntype F = fn(u8) -> u8;\n\
                    struct S { fn_: u8 }\n// fn b() {}\n";
        assert_eq!(names(text), []);
    }

    #[test]
    fn a_nested_function_is_listed_beside_the_outer_one() {
        let text = "fn outer() {\n    fn inner() {\n    }\n}\n";
        assert_eq!(names(text), [("outer".to_owned(), 1, 4), ("inner".to_owned(), 2, 2)]);
    }

    #[test]
    fn test_code_reaches_from_its_attribute_to_its_last_brace() {
        let text = "fn a() {}\n#[cfg(test)]\n#[path = \"x\"]\nmod tests {\n    fn b() {}\n}\n\
                    fn c() {}\n#[cfg(test)]\nuse d;\n";
        assert_eq!(Source::new(text).test_lines(), [2..7, 8..10]);
    }

    #[test]
    fn a_word_is_not_found_inside_a_longer_one() {
        let found: Vec<usize> = words("tokio mytokio tokio_util ::tokio::", "tokio").collect();
        assert_eq!(found, [0, 27]);
    }
}
