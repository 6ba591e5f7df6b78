//! NATS's client protocol, as far as a mover needs it: bytes in, bytes out, no sockets.
//!
//! Lines that end with CR LF; a message's line says how many bytes follow it. Source: "Client
//! Protocol" of the NATS documentation
//! (<https://docs.nats.io/reference/reference-protocols/nats-protocol>).

use serde_json::Value;

/// Lines are not longer. INFO is the longest, with an address of each server.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Messages are not longer; servers allow 1 MiB by default.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// What a server sends.
#[derive(Clone, PartialEq, Debug)]
pub enum Frame {
    /// About itself, first and when something changed.
    Info(Value),
    /// A message.
    Message {
        /// On what subject: that of a reply tells its request.
        subject: String,
        /// Of its headers' first line, such as 503 for "nobody answers".
        status: Option<u16>,
        /// Without the headers.
        payload: Vec<u8>,
    },
    /// Wants a pong.
    Ping,
    /// The answer to our ping.
    Pong,
    /// Something was taken.
    Taken,
    /// Something was not; the connection may be closed.
    Refused(String),
}

/// The first frame of some bytes and how many it has; `None` when it is not all there yet.
///
/// # Errors
/// When it is none.
pub fn next(bytes: &[u8]) -> Result<Option<(Frame, usize)>, WireError> {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        if window.len() == LINE_BYTES_MAX {
            return Err(WireError::LongLine);
        }
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&bytes[..end]);
    let unknown = || WireError::Unknown(line.chars().take(100).collect());
    let (verb, rest) = line.split_once([' ', '\t']).unwrap_or((&line, ""));
    let rest = rest.trim();
    let used = end + 2;
    let frame = match verb {
        "INFO" => Frame::Info(serde_json::from_str(rest).map_err(|_| unknown())?),
        "PING" => Frame::Ping,
        "PONG" => Frame::Pong,
        "+OK" => Frame::Taken,
        "-ERR" => Frame::Refused(rest.trim_matches('\'').to_owned()),
        "MSG" | "HMSG" => {
            let lengths = if verb == "MSG" { 1 } else { 2 };
            return message(bytes, used, rest, lengths).ok_or_else(unknown)?;
        }
        _ => return Err(unknown()),
    };
    Ok(Some((frame, used)))
}

/// `<subject> <sid> [reply-to] [header bytes] <bytes>`, and what follows; `None` when it is none.
fn message(
    bytes: &[u8],
    begins: usize,
    line: &str,
    lengths: usize,
) -> Option<Result<Option<(Frame, usize)>, WireError>> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    if !(2 + lengths..=3 + lengths).contains(&words.len()) {
        return None;
    }
    let number = |word: &&str| word.parse::<usize>().ok();
    let numbers: Vec<usize> = words[words.len() - lengths..].iter().map_while(number).collect();
    let (total, headers) = match numbers[..] {
        [total] if lengths == 1 => (total, 0),
        [headers, total] if headers <= total => (total, headers),
        _ => return None,
    };
    if total > MESSAGE_BYTES_MAX {
        return Some(Err(WireError::LongMessage { bytes: total }));
    }
    let used = begins + total + 2;
    if bytes.len() < used {
        return Some(Ok(None));
    }
    if &bytes[used - 2..used] != b"\r\n" {
        return None;
    }
    let body = &bytes[begins..used - 2];
    let frame = Frame::Message {
        subject: words[0].to_owned(),
        status: status(&body[..headers]),
        payload: body[headers..].to_vec(),
    };
    Some(Ok(Some((frame, used))))
}

/// `NATS/1.0 503 …`
fn status(headers: &[u8]) -> Option<u16> {
    let digits = headers.strip_prefix(b"NATS/1.0 ")?.get(..3)?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// A subject, a stream's or a server's name within one: nothing that ends a word or matches many.
///
/// # Errors
/// When it is none.
pub fn check_name(name: &str) -> Result<(), WireError> {
    let is_special =
        |letter: char| letter.is_whitespace() || letter.is_control() || ".*>/\\".contains(letter);
    if name.is_empty() || name.len() > 255 || name.chars().any(is_special) {
        return Err(WireError::Name(name.to_owned()));
    }
    Ok(())
}

/// Why bytes are no frame, or a name is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A line of more than [`LINE_BYTES_MAX`] bytes.
    #[error("a line of more than {LINE_BYTES_MAX} bytes (is it NATS?)")]
    LongLine,
    /// A line that is not of the protocol.
    #[error("\"{0}\" came, a line of the NATS protocol was expected (is it NATS?)")]
    Unknown(String),
    /// A message of more than [`MESSAGE_BYTES_MAX`] bytes.
    #[error("a message of {bytes} bytes, at most {MESSAGE_BYTES_MAX} are read")]
    LongMessage {
        /// What its line says.
        bytes: usize,
    },
    /// A name that is empty, too long, ends a word or matches many.
    #[error("{0:?}: a name without blanks and without any of .*>/\\")]
    Name(String),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn frames_are_read_whole_or_not_at_all() {
        let bytes = b"INFO {\"version\":\"2.9.10\"}\r\nPING\r\nMSG a.b 1 5\r\nh\r\nlo\r\n\
            HMSG r 1 x 16 18\r\nNATS/1.0 503\r\n\r\nhi\r\n-ERR 'Authorization Violation'\r\n";
        let expected = [
            Frame::Info(json!({"version": "2.9.10"})),
            Frame::Ping,
            Frame::Message { subject: "a.b".into(), status: None, payload: b"h\r\nlo".into() },
            Frame::Message { subject: "r".into(), status: Some(503), payload: b"hi".into() },
            Frame::Refused("Authorization Violation".into()),
        ];
        let mut rest = &bytes[..];
        for frame in expected {
            let (read, used) = next(rest).unwrap().unwrap();
            assert_eq!(read, frame);
            for cut in 0..used {
                assert_eq!(next(&rest[..cut]), Ok(None), "{frame:?} cut at {cut}");
            }
            rest = &rest[used..];
        }
        assert_eq!(next(rest), Ok(None));
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        let long = [b'a'; LINE_BYTES_MAX];
        let wrongs: [&[u8]; 7] = [
            b"HTTP/1.1 400\r\n",
            b"MSG a\r\n",
            b"MSG a 1 x\r\n",
            b"MSG a 1 99999999999\r\n",
            b"MSG a 1 1\r\nabc\r\n",
            b"HMSG a 1 9 3\r\nabc\r\n",
            &long,
        ];
        for wrong in wrongs {
            assert!(next(wrong).is_err(), "{}", String::from_utf8_lossy(&wrong[..10]));
        }
        for name in ["", "a b", "a.b", "*", "a>", "a\r\nPUB x"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        check_name("orders-2").unwrap();
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_server_break_the_reader(
            bytes: Vec<u8>,
            line in "[A-Z+-]{3,4} [ -~]{0,40}",
        ) {
            for bytes in [bytes, format!("{line}\r\nxxxxx\r\n").into_bytes()] {
                if let Ok(Some((_, used))) = next(&bytes) {
                    prop_assert!(used <= bytes.len());
                }
            }
        }
    }
}
