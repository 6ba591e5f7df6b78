//! What is wrong, and where: every problem of a file in one list, in the order of the file.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// More problems than this are counted, not kept: nobody reads them, and memory stays bounded.
const PROBLEMS_KEPT_MAX: usize = 1_000;
/// Characters of the input repeated in a message.
const SHOWN_CHARACTERS_MAX: usize = 60;

/// Where a value was written.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// In a file.
    File {
        /// The name of the file, as the caller gave it.
        file: Arc<str>,
        /// The line, from 1; 0 is the file as a whole.
        line: u32,
        /// The column in characters, from 1; 0 is the file as a whole.
        column: u32,
    },
    /// On the command line: the `path=value` of `--set path=value`.
    Flag(Arc<str>),
}

impl Place {
    /// The file as a whole, for problems that are at no line of it.
    pub fn whole(file: &str) -> Self {
        Self::File { file: file.into(), line: 0, column: 0 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line: 0, .. } => write!(f, "{file}"),
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Flag(assignment) => write!(f, "--set {}", excerpt(assignment)),
        }
    }
}

/// What came, what was expected, and the likely cause: a [`Problem`] before its place is known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mismatch {
    /// What came: a text in quotes, anything else in words.
    pub came: String,
    /// What was expected, with an article and an example where one helps.
    pub expected: String,
    /// The likely cause or the way out.
    pub hint: Option<String>,
}

impl Mismatch {
    /// A mismatch without a hint.
    pub fn new(came: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { came: came.into(), expected: expected.into(), hint: None }
    }

    /// The same mismatch with a likely cause or a way out.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A name that is not one of those known, with the nearest of them as a suggestion.
    pub(crate) fn unknown(came: String, name: &str, known: &[&str]) -> Self {
        let expected = match known {
            [] => "no keys here".to_owned(),
            [only] => (*only).to_owned(),
            many => format!("one of {}", many.join(", ")),
        };
        let hint = nearest(name, known).map(|near| format!("did you mean \"{near}\"?"));
        Self { came, expected, hint }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "got {}, expected {}", self.came, self.expected)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Mismatch {}

/// One problem: where, of which setting, and what. Ordered by place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// Where the value was written, or the table that lacks it.
    pub at: Place,
    /// The setting, such as `upstream.shop.policy`; empty for the file as a whole.
    pub path: String,
    /// What came and what was expected.
    pub what: Mismatch,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "{}: {}", self.at, self.what),
            path => write!(f, "{}: {path}: {}", self.at, self.what),
        }
    }
}

impl std::error::Error for Problem {}

/// Problems in the order of their places; prints one per line. Equal problems count once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Problems {
    kept: BTreeSet<Problem>,
    left_out: usize,
}

impl Problems {
    /// Adds a problem. Of more than a thousand the first in the order of places are kept and
    /// the rest are counted.
    pub fn push(&mut self, problem: Problem) {
        self.kept.insert(problem);
        if self.kept.len() > PROBLEMS_KEPT_MAX {
            self.kept.pop_last();
            self.left_out += 1;
        }
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// How many problems there are, with those only counted.
    pub fn len(&self) -> usize {
        self.kept.len() + self.left_out
    }

    /// The problems, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.kept.iter()
    }

    /// The value, if nothing is wrong.
    ///
    /// # Errors
    /// The problems themselves, when there are any.
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self { kept: BTreeSet::from([problem]), left_out: 0 }
    }
}

impl Extend<Problem> for Problems {
    fn extend<I: IntoIterator<Item = Problem>>(&mut self, problems: I) {
        problems.into_iter().for_each(|problem| self.push(problem));
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.kept.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{problem}")?;
        }
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "\nand {more} more problems"),
        }
    }
}

impl std::error::Error for Problems {}

/// The beginning of a text, safe to print: control characters are escaped.
pub(crate) fn excerpt(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown.chars().flat_map(escaped).collect()
}

/// The beginning of a text in quotes, safe to print.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{}\"", excerpt(text))
}

/// `path.key`, with the key in quotes when it would not be a bare key of TOML.
pub(crate) fn joined(path: &str, key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let bare = !key.is_empty() && key.len() <= SHOWN_CHARACTERS_MAX && key.bytes().all(plain);
    let key = if bare { key.to_owned() } else { quoted(key) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

fn escaped(character: char) -> Vec<char> {
    // Terminals obey control characters and bidirectional marks; escape_debug knows both.
    match character {
        '"' | '\'' | '\\' => vec![character],
        other => other.escape_debug().collect(),
    }
}

/// The known name a person most likely meant: few edits away, relative to its length.
fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let shown = |name: &str| name.chars().take(SHOWN_CHARACTERS_MAX).collect::<String>();
    let name = shown(name);
    let distance = |other: &str| {
        let other = shown(other);
        let length = name.chars().count().max(other.chars().count());
        let edits = edits(&name, &other);
        (edits <= 1 + length / 4 && edits * 2 <= length).then_some(edits)
    };
    let close = known.iter().filter_map(|&other| Some((distance(other)?, other)));
    close.min_by_key(|&(edits, _)| edits).map(|(_, other)| other)
}

/// Levenshtein distance without regard to case: insertions, deletions and replacements.
fn edits(a: &str, b: &str) -> usize {
    strsim::levenshtein(&a.to_ascii_lowercase(), &b.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: u32, came: &str) -> Problem {
        let at = Place::File { file: "a.toml".into(), line, column: 2 };
        Problem { at, path: "x".into(), what: Mismatch::new(came, "y") }
    }

    #[test]
    fn problems_print_in_the_order_of_the_file() {
        let mut problems = Problems::default();
        let flag = Place::Flag("x=1".into());
        problems.push(Problem { at: flag, ..problem(1, "flag") });
        problems.extend([problem(10, "b"), problem(9, "a"), problem(9, "a")]);
        let lines = "a.toml:9:2: x: got a, expected y\n\
                     a.toml:10:2: x: got b, expected y\n\
                     --set x=1: x: got flag, expected y";
        assert_eq!(problems.to_string(), lines);
        assert_eq!(problems.len(), 3);
    }

    #[test]
    fn the_first_thousand_are_kept_and_the_rest_counted() {
        let mut problems = Problems::default();
        problems.extend((1..=1_500).rev().map(|line| problem(line, "z")));
        assert_eq!(problems.len(), 1_500);
        let text = problems.to_string();
        assert!(text.starts_with("a.toml:1:2:"), "{text}");
        assert!(text.ends_with("a.toml:1000:2: x: got z, expected y\nand 500 more problems"));
    }

    #[test]
    fn edits_agree_with_known_distances() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("flaw", "lawn"), 2);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("C3", "c3"), 0);
    }

    #[test]
    fn suggestions_are_near_or_absent() {
        let known = ["random", "round-robin", "c3"];
        assert_eq!(nearest("c33", &known), Some("c3"));
        assert_eq!(nearest("round_robin", &known), Some("round-robin"));
        assert_eq!(nearest("rnadom", &known), Some("random"));
        assert_eq!(nearest("prequal", &known), None);
        assert_eq!(nearest("", &known), None);
    }

    #[test]
    fn terminals_are_never_sent_what_the_file_says() {
        assert_eq!(quoted("a\u{1b}[2J\nb"), "\"a\\u{1b}[2J\\nb\"");
        assert_eq!(joined("up", "a b"), "up.\"a b\"");
        assert!(joined("", &"k".repeat(1 << 20)).len() < 100);
    }
}
