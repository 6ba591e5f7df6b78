//! Patterns as Redis matches them: `*`, `?`, `[a-z]`, `[^a]` and `\`.
//!
//! The rules are those of `stringmatchlen`, with its corners: `*` does not match an empty text, a
//! class that is not closed ends with the pattern, ranges may be given from either end, and bytes
//! are compared with sign in them. **Cost**: where `*` leads nowhere only the last one is tried
//! further on, since an earlier one could only leave less; so it takes the product of both lengths
//! at most, and no stack.
//!
//! **Source**: `util.c` of Redis 7.0.15, with which the tests compare it.

/// Whether a text matches a pattern.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Behind the last star, and the text that it has not been given.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p = behind_stars(pattern, p);
            if p == pattern.len() {
                return true;
            }
            star = Some((p, t));
        } else if p < pattern.len()
            && let Some(next) = one(pattern, p, text[t])
        {
            (p, t) = (next, t + 1);
        } else if let Some((behind, from)) = star {
            star = Some((behind, from + 1));
            (p, t) = (behind, from + 1);
        } else {
            return false;
        }
    }
    // Of nothing a star is no part; and to give an earlier star more leaves less.
    (if text.is_empty() { p } else { behind_stars(pattern, p) }) == pattern.len()
}

fn behind_stars(pattern: &[u8], p: usize) -> usize {
    p + pattern[p..].iter().take_while(|byte| **byte == b'*').count()
}

/// The place behind what matches one byte, if that does.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match pattern[p] {
        b'?' => Some(p + 1),
        b'[' => class(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        plain => (plain == byte).then_some(p + 1),
    }
}

/// What stands between brackets.
fn class(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let is_not = pattern.get(p) == Some(&b'^');
    p += usize::from(is_not);
    let mut is_in = false;
    loop {
        match pattern.get(p..).unwrap_or_default() {
            [] => break, // it is not closed
            [b'\\', next, ..] => {
                is_in |= *next == byte;
                p += 2;
            }
            [b']', ..] => {
                p += 1;
                break;
            }
            [one, b'-', other, ..] => {
                let (one, other, byte) = (*one as i8, *other as i8, byte as i8);
                is_in |= (one.min(other)..=one.max(other)).contains(&byte);
                p += 3;
            }
            [one, ..] => {
                is_in |= *one == byte;
                p += 1;
            }
        }
    }
    (is_in != is_not).then_some(p)
}
