//! RESP3 as RESP2: what a client sees that never said `HELLO 3`.
//!
//! Most types have one form in RESP2: a map is an array twice as long, a set an array, a double a
//! bulk string with the same digits, a boolean 1 or 0. That is not enough: for some commands Redis
//! itself answers with another *structure*. `ZRANGE … WITHSCORES` has pairs in RESP3 and one flat
//! array in RESP2; `XREAD` a map in RESP3 and an array of pairs in RESP2; and where RESP3 has one
//! null, RESP2 has one for strings and one for arrays. So every command has a [`Shape`]. The tests
//! ask a real server both ways and compare every byte.

use super::token::{Token, Tokens, What};
use crate::resp::encode;

/// What Redis does to the reply of a command for clients of RESP2, beyond the types.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shape {
    /// Nothing more; a null is the null of strings, `$-1`.
    #[default]
    Plain,
    /// A null is the null of arrays, `*-1`.
    NullArray,
    /// Pairs within the array are laid out flat.
    Pairs,
    /// A map becomes an array of pairs, a null the null of arrays.
    Streams,
    /// Of nothing there is one null of arrays after two of strings: of `XPENDING`.
    Pending,
}

impl Shape {
    /// How a null is written.
    fn null(self) -> &'static [u8] {
        match self {
            Self::Plain | Self::Pairs | Self::Pending => b"$-1\r\n",
            Self::NullArray | Self::Streams => b"*-1\r\n",
        }
    }
}

/// Appends to `out` what a client of RESP2 gets for this reply. A reply in RESP2 stays as it is,
/// and attributes are left out.
///
/// # Panics
/// When this is no whole reply that [`super::ReplyScanner`] found.
#[inline]
pub fn down_convert(reply: &[u8], shape: Shape, out: &mut Vec<u8>) {
    match reply {
        [b'+' | b'-' | b':', ..] => out.extend_from_slice(reply),
        [b'$', second, ..] if *second != b'-' => out.extend_from_slice(reply),
        _ => convert(reply, shape, out),
    }
}

fn convert(reply: &[u8], shape: Shape, out: &mut Vec<u8>) {
    let mut tokens = Tokens::new(reply);
    let Some(head) = tokens.next_of_value() else { return };
    match (shape, head.tag) {
        (Shape::Pending, b'*') if reply == b"*4\r\n:0\r\n_\r\n_\r\n_\r\n" => {
            out.extend_from_slice(b"*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n");
        }
        (Shape::Pairs, b'*') if has_pairs(&tokens) => {
            encode::counted(out, b'*', (head.elements * 2) as usize);
            for _ in 0..head.elements {
                // The heads of the pairs are left out, what they hold is not.
                if let Some(pair) = tokens.next_of_value() {
                    write_elements(&mut tokens, pair.elements, shape, out);
                }
            }
        }
        (Shape::Streams, b'%') => {
            encode::counted(out, b'*', (head.elements / 2) as usize);
            for _ in 0..head.elements / 2 {
                encode::counted(out, b'*', 2);
                write_elements(&mut tokens, 2, shape, out);
            }
        }
        _ => {
            write_token(reply, &head, shape, out);
            write_elements(&mut tokens, head.elements, shape, out);
        }
    }
}

/// Whether the rest of an array is pairs and nothing else.
fn has_pairs(rest: &Tokens<'_>) -> bool {
    let mut tokens = rest.clone();
    while let Some(token) = tokens.next_of_value() {
        if token.tag != b'*' || token.elements != 2 {
            return false;
        }
        for _ in 0..2 {
            tokens.skip_element();
        }
    }
    true
}

fn write_elements(tokens: &mut Tokens<'_>, elements: u64, shape: Shape, out: &mut Vec<u8>) {
    let mut remaining = elements;
    while remaining > 0 {
        let Some(token) = tokens.next_of_value() else { return };
        write_token(tokens.bytes(), &token, shape, out);
        remaining = remaining - 1 + token.elements;
    }
}

fn write_token(reply: &[u8], token: &Token, shape: Shape, out: &mut Vec<u8>) {
    let payload = &reply[token.payload.clone()];
    match (token.what, token.tag) {
        (What::Null, b'_') => out.extend_from_slice(shape.null()),
        (What::Null, tag) => out.extend_from_slice(&[tag, b'-', b'1', b'\r', b'\n']),
        (What::Aggregate | What::Attribute, _) => {
            encode::counted(out, b'*', token.elements as usize);
        }
        (_, b'#') => encode::integer(out, i64::from(payload == b"t")),
        (_, b'!') => encode::line(out, b'-', payload),
        (_, b'=') => encode::bulk(out, &payload[4..]),
        (What::Blob, _) | (_, b',' | b'(') => encode::bulk(out, payload),
        (_, tag) => encode::line(out, tag, payload),
    }
}

/// Appends the reply without any attributes, otherwise byte for byte as it came.
///
/// # Panics
/// When this is no whole reply that [`super::ReplyScanner`] found.
pub fn strip_attributes(reply: &[u8], out: &mut Vec<u8>) {
    let mut tokens = Tokens::new(reply);
    while let Some(token) = tokens.next_of_value() {
        out.extend_from_slice(&reply[token.start..token.end]);
    }
}
