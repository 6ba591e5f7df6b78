//! The tokens of CQL.
//!
//! Where a string, a comment or a quoted name begins and ends must be seen as Cassandra sees it:
//! else what it executes could hide in what we skip. Whatever it would refuse may be read in any
//! way. Source: the CQL specification, and the lexer of Cassandra 5.0.

/// One token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    /// A keyword or an unquoted name, as written.
    Word(&'a str),
    /// A quoted name, between its quotes as written (a quote inside is doubled).
    Quoted(&'a str),
    /// A string between its quotes as written; `is_plain` between `$$`, where nothing is doubled.
    Text { raw: &'a str, is_plain: bool },
    /// An integer, with its sign.
    Integer(&'a str),
    /// A float, a blob, a UUID or a duration, as written.
    Constant(&'a str),
    /// A sign of the grammar, one or two characters.
    Symbol(&'a str),
    /// No token of CQL: an unknown character, a string without end.
    Unknown,
    /// The end of the text.
    End,
}

const SYMBOLS_OF_TWO: [&str; 6] = ["+=", "-=", "<=", ">=", "!=", ".."];
const SYMBOLS: &str = "()[]{}<>,;.:?=+-*/%";
const UNITS: [&str; 11] = ["y", "mo", "w", "d", "h", "m", "s", "ms", "us", "\u{b5}s", "ns"];
const UUID_LENGTH: usize = 36;

/// The first token of a text and how many bytes it and what is skipped before it take.
pub(super) fn next(text: &str) -> (Token<'_>, usize) {
    let start = skipped(text);
    let rest = &text[start..];
    let (token, length) = token(rest);
    (token, start + length)
}

/// The bytes of white space and comments in front.
fn skipped(text: &str) -> usize {
    let mut position = 0;
    loop {
        let rest = &text[position..];
        position += match rest.as_bytes() {
            [b' ' | b'\t' | b'\n' | b'\r', ..] => 1,
            [b'-', b'-', ..] | [b'/', b'/', ..] => {
                rest.find(['\n', '\r']).map_or(rest.len(), |end| end + 1)
            }
            // A comment without end: nothing after it is executed.
            [b'/', b'*', ..] => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            _ => return position,
        };
    }
}

fn token(rest: &str) -> (Token<'_>, usize) {
    let Some(first) = rest.chars().next() else { return (Token::End, 0) };
    match first {
        '\'' => quoted(rest, '\'', |raw| Token::Text { raw, is_plain: false }),
        '"' => quoted(rest, '"', Token::Quoted),
        '$' => plain_text(rest),
        _ if is_uuid(rest.as_bytes()) => (Token::Constant(&rest[..UUID_LENGTH]), UUID_LENGTH),
        '-' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => number(rest),
        '-' if rest[1..].starts_with('P') => iso_duration(rest).unwrap_or((Token::Symbol("-"), 1)),
        '0'..='9' => number(rest),
        'A'..='Z' | 'a'..='z' => {
            let length = run(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            iso_duration(rest).unwrap_or((Token::Word(&rest[..length]), length))
        }
        _ => symbol(rest, first),
    }
}

fn symbol(rest: &str, first: char) -> (Token<'_>, usize) {
    if SYMBOLS_OF_TWO.iter().any(|symbol| rest.starts_with(symbol)) {
        return (Token::Symbol(&rest[..2]), 2);
    }
    if SYMBOLS.contains(first) {
        return (Token::Symbol(&rest[..1]), 1);
    }
    (Token::Unknown, first.len_utf8())
}

/// What is between a quote and its end; a doubled quote is none.
fn quoted<'a>(
    rest: &'a str,
    quote: char,
    make: impl Fn(&'a str) -> Token<'a>,
) -> (Token<'a>, usize) {
    let mut position = 1;
    while let Some(found) = rest[position..].find(quote) {
        let end = position + found;
        if !rest[end + 1..].starts_with(quote) {
            return (make(&rest[1..end]), end + 1);
        }
        position = end + 2;
    }
    (Token::Unknown, rest.len())
}

fn plain_text(rest: &str) -> (Token<'_>, usize) {
    let Some(inside) = rest.strip_prefix("$$") else { return (Token::Unknown, 1) };
    match inside.find("$$") {
        Some(end) => (Token::Text { raw: &inside[..end], is_plain: true }, end + 4),
        None => (Token::Unknown, rest.len()),
    }
}

fn run(text: &str, holds: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|byte| holds(*byte)).count()
}

fn digits(text: &str) -> usize {
    run(text, |byte| byte.is_ascii_digit())
}

/// A token that begins with a digit, or with a minus and a digit.
fn number(rest: &str) -> (Token<'_>, usize) {
    let whole = usize::from(rest.starts_with('-'));
    if rest.starts_with("0x") || rest.starts_with("0X") {
        let length = 2 + run(&rest[2..], |byte| byte.is_ascii_hexdigit());
        return bounded(rest, length, Token::Constant);
    }
    let whole = whole + digits(&rest[whole..]);
    if let Some(length) = duration(rest, whole) {
        return bounded(rest, length, Token::Constant);
    }
    let mut length = whole;
    if rest[length..].starts_with('.') && !rest[length..].starts_with("..") {
        length += 1 + digits(&rest[length + 1..]);
    }
    length += exponent(&rest[length..]);
    let make = if length == whole { Token::Integer } else { Token::Constant };
    bounded(rest, length, make)
}

/// A token that nothing word-like follows at once. Cassandra would read two tokens there: such
/// texts are too odd to be proven anything of.
fn bounded<'a>(
    rest: &'a str,
    length: usize,
    make: impl Fn(&'a str) -> Token<'a>,
) -> (Token<'a>, usize) {
    let more = run(&rest[length..], |byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if more > 0 { (Token::Unknown, length + more) } else { (make(&rest[..length]), length) }
}

fn exponent(text: &str) -> usize {
    if !text.starts_with(['e', 'E']) {
        return 0;
    }
    let sign = usize::from(text[1..].starts_with(['+', '-']));
    match digits(&text[1 + sign..]) {
        0 => 0,
        digits => 1 + sign + digits,
    }
}

/// The length of a duration such as `1h30m`, whose first digits end at `first_digits`.
fn duration(rest: &str, first_digits: usize) -> Option<usize> {
    let mut position = first_digits;
    loop {
        let letters = rest[position..]
            .find(|letter: char| !letter.is_ascii_alphabetic() && letter != '\u{b5}')
            .unwrap_or(rest.len() - position);
        let unit = &rest[position..position + letters];
        if !UNITS.iter().any(|known| known.eq_ignore_ascii_case(unit)) {
            return None;
        }
        position += letters;
        match digits(&rest[position..]) {
            0 => return Some(position),
            digits => position += digits,
        }
    }
}

/// A duration as ISO 8601 writes it: `P1Y2M3DT4H5M6S`, `P2W` or `P0001-02-03T04:05:06`.
fn iso_duration(rest: &str) -> Option<(Token<'_>, usize)> {
    let sign = usize::from(rest.starts_with('-'));
    let inside = rest[sign..].strip_prefix('P')?;
    let found = |length: usize| Some(bounded(rest, sign + 1 + length, Token::Constant));
    let alternative = b"0000-00-00T00:00:00";
    if inside.len() >= alternative.len() && has_form(inside.as_bytes(), alternative) {
        return found(alternative.len());
    }
    let length = run(inside, |byte| byte.is_ascii_alphanumeric());
    let (date, time) = match inside[..length].split_once('T') {
        Some((date, time)) => (date, Some(time)),
        None => (&inside[..length], None),
    };
    let is_time = time.is_none_or(|time| !time.is_empty() && is_parts(time, b"HMS"));
    let is_date = if date.is_empty() { time.is_some() } else { is_parts(date, b"YMD") };
    let is_weeks = time.is_none() && !date.is_empty() && is_parts(date, b"W");
    if (is_date && is_time) || is_weeks { found(length) } else { None }
}

/// Whether a text has the digits and signs of a form, in which `0` stands for any digit.
fn has_form(text: &[u8], form: &[u8]) -> bool {
    text.iter().zip(form).all(|(byte, expected)| match expected {
        b'0' => byte.is_ascii_digit(),
        sign => byte == sign,
    })
}

/// Whether a text is numbers with designators, each at most once and in this order.
fn is_parts(text: &str, designators: &[u8]) -> bool {
    let mut rest = text;
    let mut designators = designators.iter();
    while !rest.is_empty() {
        let digits = digits(rest);
        let Some(designator) = rest.as_bytes().get(digits) else { return false };
        if digits == 0 || !designators.any(|known| known == designator) {
            return false;
        }
        rest = &rest[digits + 1..];
    }
    true
}

fn is_uuid(text: &[u8]) -> bool {
    let Some(text) = text.get(..UUID_LENGTH) else { return false };
    text.iter().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// A text between quotes with its doubled quotes made single.
pub(super) fn undoubled(raw: &str, quote: &str) -> String {
    raw.replace(&quote.repeat(2), quote)
}

#[cfg(test)]
mod tests {
    use super::{Token, next};

    fn all(mut text: &str) -> Vec<Token<'_>> {
        let mut tokens = Vec::new();
        loop {
            let (token, length) = next(text);
            if token == Token::End {
                return tokens;
            }
            tokens.push(token);
            text = &text[length..];
        }
    }

    #[test]
    fn what_cassandra_reads_as_one_token_is_one() {
        let constants = "1.5 -1. 1e5 1.5E-3 0xCAFE 0x 1h30m -2d 1mo2us 5\u{b5}s P1Y2M3DT4H5M6S \
                         -PT3S P2W P0001-02-03T04:05:06 7d444840-9dc0-11d1-b245-5ffdce74fad2 \
                         deadbeef-9dc0-11d1-b245-5ffdce74fad2";
        for text in constants.split(' ') {
            assert_eq!(all(text), [Token::Constant(text)], "{text}");
        }
        for text in ["0", "-5", "00012"] {
            assert_eq!(all(text), [Token::Integer(text)], "{text}");
        }
        for text in ["P1", "PT", "P", "deadbeef", "P1D1Y"] {
            assert_eq!(all(text), [Token::Word(text)], "{text}");
        }
    }

    #[test]
    fn strings_names_and_comments_end_where_cassandra_ends_them() {
        let text = |raw| Token::Text { raw, is_plain: false };
        assert_eq!(all("'it''s' ''"), [text("it''s"), text("")]);
        assert_eq!(all("$$it's -- $ $$"), [Token::Text { raw: "it's -- $ ", is_plain: true }]);
        assert_eq!(all("\"a\"\"b\""), [Token::Quoted("a\"\"b")]);
        assert_eq!(all("a--'\rb"), [Token::Word("a"), Token::Word("b")]);
        assert_eq!(all("a//'\nb"), [Token::Word("a"), Token::Word("b")]);
        assert_eq!(all("a/*/ ' */b"), [Token::Word("a"), Token::Word("b")]);
        assert_eq!(all("a /* no end"), [Token::Word("a")]);
        assert_eq!(all("'no end"), [Token::Unknown]);
        assert_eq!(all("$ é 1x"), [Token::Unknown, Token::Unknown, Token::Unknown]);
    }

    #[test]
    fn a_minus_belongs_to_the_number_behind_it() {
        let (c, equals) = (Token::Word("c"), Token::Symbol("="));
        assert_eq!(all("c=c-1"), [c, equals, c, Token::Integer("-1")]);
        assert_eq!(all("c-=1"), [c, Token::Symbol("-="), Token::Integer("1")]);
        assert_eq!(all("c=c-?"), [c, equals, c, Token::Symbol("-"), Token::Symbol("?")]);
        let range = [Token::Integer("1"), Token::Symbol(".."), Token::Integer("2")];
        assert_eq!(all("1..2"), range);
    }
}
