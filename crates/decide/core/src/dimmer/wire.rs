//! A decision in the words of a header: `Brownout-Optional`, `Brownout-Served`, `Brownout-Dimmer`.
//!
//! Whoever decides (the agent, a layer inside the application) and whoever reads it (the proxy, a
//! service deeper in the call tree) must mean the same by the same bytes, so the grammar is here
//! once, as a function from bytes to a decision. It knows nothing of HTTP: which header, how often
//! it came and whether its sender is trusted are questions of the boundary.
//!
//! ```text
//! decision  = boolean *( ";" *SP part [ "=" value ] )     a bare part means true
//! boolean   = "?1" / "?0"
//! part      = ( lcalpha / "*" ) *( lcalpha / DIGIT / "_" / "-" / "." / "*" )
//! value     = boolean / any other bare item of RFC 9651
//! ```
//!
//! That is the Boolean item of RFC 9651 with parameters. A part that is named is decided by its
//! parameter (the last one, if it is named twice), every other by the item itself. A parameter of
//! another type decides nothing, so that there is room for what nobody has thought of yet; but it
//! must be well-formed: a value that is half understood is no decision, and the caller then serves
//! full content. A header that came twice is joined with a comma by some libraries on the way, and
//! a comma is an error here as well. The table of cases that all implementations share is
//! `sdk/conformance/headers.json`.

mod structured;

use std::borrow::Cow;

use super::Content;
use crate::units::Dimmer;
use structured::{Reader, begins_a_key, continues_a_key};

/// The longest value that is read, in bytes: 32 parts with names of 120 letters.
pub const VALUE_BYTES_MAX: usize = 4_096;

/// A decision as it was read: which optional parts are computed, or were.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision<'a> {
    item: bool,
    /// The parameters, already found to be well-formed.
    parameters: &'a [u8],
}

impl<'a> Decision<'a> {
    /// Reads the value of a header. Spaces around it do not count.
    ///
    /// # Errors
    /// When it is not a Boolean with parameters, or too long; says where and what was expected.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Malformed { at: VALUE_BYTES_MAX, expected: "the end: it is too long" });
        }
        let mut reader = Reader::new(value);
        reader.skip_spaces();
        let item = reader.boolean()?;
        let begin = reader.at();
        while reader.take(b';') {
            reader.parameter()?;
        }
        let parameters = &value[begin..reader.at()];
        reader.skip_spaces();
        if reader.at() < value.len() {
            return Err(reader.expected("a `;` with a part, or the end"));
        }
        Ok(Self { item, parameters })
    }

    /// What it says of the parts it does not name.
    pub const fn item(self) -> bool {
        self.item
    }

    /// Whether it allows everything.
    pub fn is_full(self) -> bool {
        self.item && self.parameters().all(|(name, _)| self.allows_key(name))
    }

    /// Whether this optional part is computed.
    pub fn allows(self, part: &str) -> bool {
        self.allows_key(part.as_bytes())
    }

    /// The decision as content of a page with these parts in this order: as many as it allows,
    /// wherever they are. Without names the page has one part.
    pub fn content(self, parts: &[impl AsRef<str>]) -> Content {
        if parts.is_empty() {
            return Content::new(u8::from(self.item), 1);
        }
        let allowed = parts.iter().filter(|part| self.allows(part.as_ref())).count();
        let count = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        Content::new(count(allowed), count(parts.len()))
    }

    fn allows_key(self, key: &[u8]) -> bool {
        let named = self.parameters().filter(|(name, _)| *name == key);
        named.last().and_then(|(_, value)| value).unwrap_or(self.item)
    }

    /// Names in the order they came, with their values if these are Booleans.
    fn parameters(self) -> impl Iterator<Item = (&'a [u8], Option<bool>)> {
        let mut reader = Reader::new(self.parameters);
        core::iter::from_fn(move || {
            if !reader.take(b';') {
                return None;
            }
            reader.parameter().ok()
        })
    }
}

/// Why a value is no decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "no brownout decision: expected {expected} at byte {at} (`?1`, `?0` and `?0;part` are; the \
     sender may mean another header)"
)]
pub struct Malformed {
    /// The byte at which it stopped making sense, from 0.
    pub at: usize,
    /// What was expected there.
    pub expected: &'static str,
}

/// Writes what a page with these parts in this order is served: `?1` is everything, `?0` nothing
/// optional, and `?0;comments` nothing but comments. Names must be parts, see [`is_part`]; a part
/// without a name cannot be told from the others and is left to the item.
pub fn write(content: Content, parts: &[impl AsRef<str>]) -> Cow<'static, str> {
    if content.is_full() {
        return Cow::Borrowed("?1");
    }
    let kept = (0_u8..).zip(parts).filter(|(number, _)| content.allows(*number));
    write_parts(kept.map(|(_, part)| part.as_ref()))
}

/// Writes that nothing but these parts is served: `?0` or `?0;comments`.
pub fn write_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Cow<'static, str> {
    let mut parts = parts.into_iter().peekable();
    if parts.peek().is_none() {
        return Cow::Borrowed("?0");
    }
    let mut text = String::from("?0");
    for part in parts {
        debug_assert!(is_part(part), "{part:?} is no name of a part");
        text.push(';');
        text.push_str(part);
    }
    Cow::Owned(text)
}

/// Whether a header of this name (in small letters) lets an answer be stored, revived or confirmed:
/// none of them may stay on an answer with something left out, beside `Cache-Control: no-store`.
/// Caches of others have headers of their own, which beat `Cache-Control`.
pub fn lets_store(header: &str) -> bool {
    matches!(
        header,
        "etag"
            | "last-modified"
            | "expires"
            | "surrogate-control"
            | "edge-control"
            | "x-accel-expires"
    ) || header.ends_with("cdn-cache-control")
}

/// Whether this can name an optional part on the wire: small letters, digits, `_`, `-`, `.` and
/// `*`, with a letter or `*` first.
pub const fn is_part(name: &str) -> bool {
    let bytes = name.as_bytes();
    if bytes.is_empty() || !begins_a_key(bytes[0]) {
        return false;
    }
    let mut place = 1;
    while place < bytes.len() {
        if !continues_a_key(bytes[place]) {
            return false;
        }
        place += 1;
    }
    true
}

/// The dimmer as a decimal with at most three fraction digits: `0.73`, `1.0`.
pub fn dimmer_text(dimmer: Dimmer) -> &'static str {
    let text = &THOUSANDTHS[(dimmer.value() * 1_000.0).round_ties_even() as usize];
    let zeros = text[3..].iter().rev().take_while(|digit| **digit == b'0').count();
    str::from_utf8(&text[..text.len() - zeros]).expect("digits and a point are UTF-8")
}

/// Every value with three fraction digits, so that writing one on each response is a lookup.
static THOUSANDTHS: [[u8; 5]; 1_001] = {
    let mut texts = [*b"0.000"; 1_001];
    let mut number = 0;
    while number < texts.len() {
        texts[number] = [
            b'0' + (number / 1_000) as u8,
            b'.',
            b'0' + (number / 100 % 10) as u8,
            b'0' + (number / 10 % 10) as u8,
            b'0' + (number % 10) as u8,
        ];
        number += 1;
    }
    texts
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARTS: [&str; 2] = ["recommendations", "comments"];

    fn read(value: &str) -> Option<(bool, bool)> {
        let decision = Decision::parse(value.as_bytes()).ok()?;
        Some((decision.allows(PARTS[0]), decision.allows(PARTS[1])))
    }

    #[test]
    fn a_part_is_decided_by_its_parameter_or_else_by_the_item() {
        for (value, expected) in [
            ("?1", (true, true)),
            ("?0", (false, false)),
            ("  ?0  ", (false, false)),
            ("?0;recommendations=?0;comments", (false, true)),
            ("?0; recommendations", (true, false)),
            ("?1;comments=?0", (true, false)),
            ("?0;comments;comments=?0", (false, false)), // the last one counts
            ("?0;comments=?0;comments", (false, true)),
            ("?0;comment;comments2;a*.-_9=?1", (false, false)), // names of others
            ("?0;comments=1;recommendations", (true, false)),   // a number decides nothing
            ("?0;comments;comments=1", (false, false)),
            ("?0;why=\"a;comments;b\"", (false, false)),
        ] {
            assert_eq!(read(value), Some(expected), "{value:?}");
        }
    }

    #[test]
    fn everything_else_is_malformed_and_says_where() {
        for (value, at) in [
            ("", 0),
            ("?", 0),
            ("?2", 0),
            ("1", 0),
            ("true", 0),
            ("\t?1", 0),
            ("?01", 2),
            ("?1, ?0", 2),
            ("?1 ;comments", 3),
            ("?1;", 3),
            ("?1; ;comments", 4),
            ("?1;Comments", 3),
            ("?1;9", 3),
            ("?1;comments=", 12),
            ("?1;comments=1.", 14),
            ("?1;comments=?", 12),
            ("?1;comments=(?1)", 12),
            ("?1;comments =?1", 12),
            ("?1;c\u{e4}", 4),
        ] {
            let malformed = Decision::parse(value.as_bytes()).expect_err(value);
            assert_eq!(malformed.at, at, "{value:?}: {malformed}");
        }
        let long = format!("?1;{}", "a".repeat(VALUE_BYTES_MAX));
        assert_eq!(Decision::parse(long.as_bytes()).unwrap_err().at, VALUE_BYTES_MAX);
    }

    #[test]
    fn a_dimmer_has_one_to_three_fraction_digits() {
        for (dimmer, text) in [
            (0.0, "0.0"),
            (0.000_4, "0.0"),
            (0.05, "0.05"),
            (0.73, "0.73"),
            (0.7304, "0.73"),
            (0.125, "0.125"),
            (0.9996, "1.0"),
            (1.0, "1.0"),
        ] {
            assert_eq!(dimmer_text(Dimmer::clamped(dimmer)), text);
        }
    }

    #[test]
    fn a_decision_is_full_when_it_refuses_nothing() {
        let is_full = |value: &str| Decision::parse(value.as_bytes()).unwrap().is_full();
        assert!(is_full("?1") && is_full("?1;comments") && is_full("?1;comments=?0;comments"));
        assert!(is_full("?1;dimmer=0.73"), "no decision about a part");
        assert!(!is_full("?0") && !is_full("?1;comments=?0") && !is_full("?0;comments"));
    }

    #[test]
    fn content_counts_the_parts_that_are_allowed_wherever_they_are() {
        let decision = Decision::parse(b"?0;comments").unwrap();
        assert_eq!(decision.content(&PARTS), Content::new(1, 2));
        assert_eq!(decision.content(&[] as &[&str]), Content::LEAN);
        assert_eq!(Decision::parse(b"?1").unwrap().content(&PARTS), Content::new(2, 2));
    }

    #[test]
    fn what_a_part_may_be_called() {
        for name in ["recommendations", "*", "a-b_c.d*1"] {
            assert!(is_part(name), "{name:?}");
        }
        for name in ["", "Comments", "1st", "a b", "a=b", "a;b", "b\u{fc}cher"] {
            assert!(!is_part(name), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(kept in 0_u8..6, parts in 1_u8..6) {
            let names: Vec<_> = (0..parts).map(|part| format!("part-{part}")).collect();
            let content = Content::new(kept, parts);
            let text = write(content, &names);
            let decision = Decision::parse(text.as_bytes()).unwrap();
            prop_assert_eq!(decision.item(), content.is_full());
            for (number, name) in (0..).zip(&names) {
                prop_assert_eq!(decision.allows(name), content.allows(number));
            }
            prop_assert_eq!(decision.content(&names), content);
        }

        /// Bytes near the grammar: no panic, and whatever is accepted has an answer.
        #[test]
        fn any_bytes_are_a_decision_or_an_error(
            value in r#"\?[01](;[a-c*]|[=;?01"%:@.\\ ,*ac\t-]){0,12}"#,
        ) {
            if let Ok(decision) = Decision::parse(value.as_bytes()) {
                prop_assert_eq!(decision.allows("not-in-the-alphabet"), decision.item());
                prop_assert!(decision.parameters().count() <= value.matches(';').count());
            }
        }
    }
}
