//! What responses must be, checked byte by byte while they stream.

use std::fmt;

use hyper::body::Bytes;

use super::target::{Facts, Template};

/// The longest excerpt of a body kept in a [`Mismatch`], in bytes.
const EXCERPT_BYTES: usize = 48;

/// What the bodies of successful responses (status 2xx or 304) must be.
#[derive(Default)]
pub enum Expectation {
    /// Anything.
    #[default]
    Any,
    /// These bytes.
    Exactly(Bytes),
    /// This text, `{n}` and `{key}` replaced.
    Rendered(Template),
    /// Whatever this computes for the request.
    Computed(Box<dyn Fn(&Facts<'_>) -> Bytes + Send>),
}

/// A response body that was not what it must be.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Mismatch {
    /// Sequence number of the request.
    pub number: u64,
    /// Its path and query.
    pub path: String,
    /// Position of the first byte that differs, from 0.
    pub offset: u64,
    /// What should stand there: an excerpt, or that the body should end.
    pub expected: String,
    /// What stands there: an excerpt, or that the body ended.
    pub came: String,
}

impl Expectation {
    pub(super) fn of(&self, facts: &Facts<'_>) -> Option<Bytes> {
        match self {
            Self::Any => None,
            Self::Exactly(bytes) => Some(bytes.clone()),
            Self::Rendered(template) => Some(template.render(facts.number, facts.key).into()),
            Self::Computed(compute) => Some(compute(facts)),
        }
    }
}

impl fmt::Debug for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("Any"),
            Self::Exactly(bytes) => write!(f, "Exactly({} bytes)", bytes.len()),
            Self::Rendered(template) => write!(f, "Rendered({template:?})"),
            Self::Computed(_) => f.write_str("Computed"),
        }
    }
}

/// Compares a body with what it must be, chunk by chunk; nothing of the body is kept.
pub(super) struct Comparison {
    expected: Option<Bytes>,
    seen: u64,
    difference: Option<Difference>,
}

/// The first place at which a body is not what it must be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Difference {
    offset: u64,
    expected: String,
    came: String,
}

impl Comparison {
    /// Nothing to compare when `expected` is `None`.
    pub(super) fn new(expected: Option<Bytes>) -> Self {
        Self { expected, seen: 0, difference: None }
    }

    pub(super) fn chunk(&mut self, chunk: &[u8]) {
        let start = self.seen;
        self.seen += chunk.len() as u64;
        let Some(expected) = &self.expected else { return };
        if self.difference.is_some() {
            return;
        }
        let rest = &expected[expected.len().min(start as usize)..];
        if rest.starts_with(chunk) {
            return;
        }
        let common = rest.iter().zip(chunk).take_while(|(a, b)| a == b).count();
        self.difference = Some(Difference {
            offset: start + common as u64,
            expected: excerpt(&rest[common..]),
            came: excerpt(&chunk[common..]),
        });
    }

    /// Bytes seen, and where they were wrong, if they were.
    pub(super) fn end(mut self) -> (u64, Option<Difference>) {
        let length = self.expected.as_ref().map_or(0, Bytes::len);
        if self.difference.is_none() && self.seen < length as u64 {
            let rest = self.expected.as_ref().map_or(&[][..], |all| &all[self.seen as usize..]);
            self.difference =
                Some(Difference { offset: self.seen, expected: excerpt(rest), came: excerpt(&[]) });
        }
        (self.seen, self.difference)
    }
}

impl Difference {
    pub(super) fn of(self, facts: &Facts<'_>) -> Mismatch {
        let Self { offset, expected, came } = self;
        Mismatch { number: facts.number, path: facts.path.into(), offset, expected, came }
    }
}

fn excerpt(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "the end of the body".into();
    }
    let shown = &bytes[..bytes.len().min(EXCERPT_BYTES)];
    let more = if shown.len() < bytes.len() { "…" } else { "" };
    format!("\"{}{more}\"", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(expected: &str, chunks: &[&str]) -> Option<(u64, String, String)> {
        let mut comparison = Comparison::new(Some(Bytes::copy_from_slice(expected.as_bytes())));
        chunks.iter().for_each(|chunk| comparison.chunk(chunk.as_bytes()));
        let (seen, difference) = comparison.end();
        assert_eq!(seen, chunks.iter().map(|chunk| chunk.len() as u64).sum::<u64>());
        difference.map(|found| (found.offset, found.expected, found.came))
    }

    #[test]
    fn equal_bodies_are_equal_however_they_are_cut() {
        assert_eq!(compare("abcdef", &["abcdef"]), None);
        assert_eq!(compare("abcdef", &["a", "", "bcd", "ef"]), None);
        assert_eq!(compare("", &[]), None);
    }

    #[test]
    fn the_first_difference_is_found() {
        let found = |offset, expected: &str, came: &str| {
            Some((offset, format!("\"{expected}\""), format!("\"{came}\"")))
        };
        assert_eq!(compare("abcdef", &["abc", "dXf"]), found(4, "ef", "Xf"));
        let end = "the end of the body".to_owned();
        assert_eq!(compare("abc", &["ab"]), Some((2, "\"c\"".into(), end.clone())));
        assert_eq!(compare("abc", &["abc", "d"]), Some((3, end.clone(), "\"d\"".into())));
        assert_eq!(compare("", &["d"]), Some((0, end, "\"d\"".into())));
    }
}
