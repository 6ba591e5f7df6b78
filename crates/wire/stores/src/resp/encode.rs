//! Replies and commands that are written here.

use super::{Protocol, ProtocolError};

/// `+OK`: a line. Bytes that would end the line early become spaces.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text.as_bytes());
}

/// `-ERR …`: an error, whose first word is its code. Line ends within become spaces.
pub fn error(out: &mut Vec<u8>, text: &str) {
    line(out, b'-', text.as_bytes());
}

/// What Redis would say before it closes the connection.
pub fn protocol_error(out: &mut Vec<u8>, error: ProtocolError) {
    line(out, b'-', format!("ERR {error}").as_bytes());
}

/// A line of this type; what would end it early becomes a space.
pub(super) fn line(out: &mut Vec<u8>, tag: u8, text: &[u8]) {
    out.push(tag);
    let is_end = |byte: u8| byte == b'\r' || byte == b'\n';
    out.extend(text.iter().map(|&byte| if is_end(byte) { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// `:42`
pub fn integer(out: &mut Vec<u8>, value: i64) {
    header(out, b':', value);
}

/// `$5` and five bytes.
#[inline]
pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    counted(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// No value: `_`, or `$-1` for who does not know that.
pub fn null(out: &mut Vec<u8>, protocol: Protocol) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"$-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// No array, such as the reply to an `EXEC` that did nothing: `_`, or `*-1`.
pub fn null_array(out: &mut Vec<u8>, protocol: Protocol) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"*-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// The head of an array; its elements are written next.
#[inline]
pub fn array(out: &mut Vec<u8>, elements: usize) {
    counted(out, b'*', elements);
}

/// The head of a map; its keys and values are written next, in turn.
pub fn map(out: &mut Vec<u8>, pairs: usize, protocol: Protocol) {
    match protocol {
        Protocol::Resp2 => counted(out, b'*', pairs * 2),
        Protocol::Resp3 => counted(out, b'%', pairs),
    }
}

/// The head of a set; its elements are written next.
pub fn set(out: &mut Vec<u8>, elements: usize, protocol: Protocol) {
    counted(out, if protocol == Protocol::Resp3 { b'~' } else { b'*' }, elements);
}

/// A text for people, such as the reply to `INFO`.
pub fn text(out: &mut Vec<u8>, text: &str, protocol: Protocol) {
    if protocol == Protocol::Resp2 {
        return bulk(out, text.as_bytes());
    }
    counted(out, b'=', text.len() + 4);
    out.extend_from_slice(b"txt:");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// The head of an attribute, which belongs to the reply that follows it; keys and values are
/// written next, in turn. Only for peers that asked for it.
pub fn attribute(out: &mut Vec<u8>, pairs: usize) {
    counted(out, b'|', pairs);
}

/// The head of a push, which is no reply: an array for who does not know that.
pub fn push(out: &mut Vec<u8>, elements: usize, protocol: Protocol) {
    match protocol {
        Protocol::Resp2 => counted(out, b'*', elements),
        Protocol::Resp3 => counted(out, b'>', elements),
    }
}

/// A number with a fraction.
pub fn double(out: &mut Vec<u8>, value: f64, protocol: Protocol) {
    let text = match value {
        _ if value.is_nan() => "nan".to_owned(),
        f64::INFINITY => "inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        _ => value.to_string(),
    };
    match protocol {
        Protocol::Resp2 => bulk(out, text.as_bytes()),
        Protocol::Resp3 => line(out, b',', text.as_bytes()),
    }
}

/// A whole command, such as one that is sent to a server on our own account.
pub fn command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    array(out, arguments.len());
    for argument in arguments {
        bulk(out, argument);
    }
}

/// A tag, a number, and the end of the line.
#[inline]
pub(super) fn header(out: &mut Vec<u8>, tag: u8, value: i64) {
    out.push(tag);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[inline]
pub(super) fn counted(out: &mut Vec<u8>, tag: u8, count: usize) {
    out.push(tag);
    out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
}
