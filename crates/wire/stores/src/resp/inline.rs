//! Inline commands: a line of words, as typed into a terminal.
//!
//! Words are parted by white space. `"…"` knows `\n \r \t \b \a \xHH` and takes any other escaped
//! byte as it is; `'…'` knows `\'` only. A closing quote must end its word. **Source**: the
//! documentation of `redis-cli` and of the inline protocol; the tests ask a real server.

use super::ProtocolError;

/// Splits a line into words: their bytes, one after the other, and where each begins and ends.
pub(super) fn split(
    line: &[u8],
    bytes: &mut Vec<u8>,
    places: &mut Vec<(usize, usize)>,
) -> Result<(), ProtocolError> {
    if line.contains(&0) {
        return Err(ProtocolError::NulInline);
    }
    let mut rest = line;
    loop {
        rest = trim(rest);
        if rest.is_empty() {
            return Ok(());
        }
        let start = bytes.len();
        rest = word(rest, bytes)?;
        let is_first = places.is_empty();
        places.push((start, bytes.len()));
        let came = &bytes[start..];
        if is_first && (came.eq_ignore_ascii_case(b"post") || came.eq_ignore_ascii_case(b"host:")) {
            return Err(ProtocolError::Http);
        }
    }
}

/// White space as C's `isspace` has it.
fn is_space(byte: u8) -> bool {
    byte == b' ' || (b'\t'..=b'\r').contains(&byte)
}

fn trim(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|&byte| !is_space(byte)).unwrap_or(line.len());
    &line[start..]
}

/// Reads one word and gives what follows it.
fn word<'a>(line: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = line;
    loop {
        match rest {
            [] => return Ok(rest),
            // Not vertical tab and form feed: inside a word they belong to it.
            [b' ' | b'\t' | b'\r' | b'\n', after @ ..] => return Ok(after),
            [b'"', quoted @ ..] => return double_quoted(quoted, bytes),
            [b'\'', quoted @ ..] => return single_quoted(quoted, bytes),
            [byte, after @ ..] => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
}

/// What follows a closing quote: nothing or white space.
fn ended(after: &[u8]) -> Result<&[u8], ProtocolError> {
    match after.first() {
        Some(&byte) if !is_space(byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(after),
    }
}

fn double_quoted<'a>(line: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = line;
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'"', after @ ..] => return ended(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                bytes.push(hex(*high) << 4 | hex(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                after
            }
        };
    }
}

fn single_quoted<'a>(line: &'a [u8], bytes: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = line;
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\'', after @ ..] => return ended(after),
            [b'\\', b'\'', after @ ..] => {
                bytes.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                bytes.push(*byte);
                after
            }
        };
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}
