//! What the parsers of this engine promise of any bytes, for tests and for `fuzz/`.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRAILER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName};

use super::decoder::{Decoded, Decoder};
use super::inbox::Inbox;
use super::response_head::Asked;
use super::{request_head, response_head};
use crate::body::Body;
use crate::fields::Fields;

/// More than what is tried.
const BYTES_MAX: usize = 1 << 20;

/// A client's bytes: the beginning of a head is a head only where all of it is one; what is passed
/// on is one head, with the same fields.
///
/// # Panics
/// When that does not hold.
pub fn of_a_request_head(bytes: &[u8]) {
    let parse = |bytes: &[u8]| request_head::parse(&Bytes::copy_from_slice(bytes), BYTES_MAX);
    let whole = parse(bytes);
    for end in ends(bytes.len()) {
        match (parse(&bytes[..end]), &whole) {
            (Ok(Some((length, _))), Ok(Some((same, _)))) => assert_eq!(length, *same),
            (Ok(None), _) | (Err(_), Err(_)) => {}
            other => panic!("of {end} bytes: {other:?}"),
        }
    }
    let Ok(Some((_, head))) = whole else { return };
    let (body, expected) = match head.framing {
        Decoder::Length(0) => (Body::empty(), 0),
        _ => (Body::full("body"), 4),
    };
    let mut passed = Vec::new();
    request_head::encode(&head.parts, &body, &mut passed);
    let Ok(Some((length, again))) = parse(&passed) else {
        panic!("passed on as {}", passed.escape_ascii())
    };
    assert_eq!(length, passed.len(), "{}", passed.escape_ascii());
    assert_eq!(again.parts.method, head.parts.method);
    assert_eq!(again.framing, Decoder::Length(expected));
    let of_message = [CONTENT_LENGTH, TRANSFER_ENCODING];
    assert_eq!(
        without(&again.parts.headers, &of_message),
        without(&head.parts.headers, &of_message)
    );
}

/// A replica's bytes: the same of a response.
///
/// # Panics
/// When that does not hold.
pub fn of_a_response_head(bytes: &[u8]) {
    let parse =
        |bytes: &[u8]| response_head::parse(&Bytes::copy_from_slice(bytes), false, BYTES_MAX);
    let whole = parse(bytes);
    for end in ends(bytes.len()) {
        match (parse(&bytes[..end]), &whole) {
            (Ok((used, Some(_))), Ok((same, Some(_)))) => assert_eq!(used, *same),
            (Ok((_, None)), _) | (Err(_), Err(_)) => {}
            other => panic!("of {end} bytes: {other:?}"),
        }
    }
    let Ok((_, Some(head))) = whole else { return };
    let mut passed = Vec::new();
    let mut asked = Asked { is_head: false, is_new: true, takes_trailers: true, keeps_alive: true };
    response_head::encode(&head.parts, &Body::full("body"), &mut asked, &mut passed);
    let Ok((length, Some(again))) = parse(&passed) else {
        panic!("passed on as {}", passed.escape_ascii())
    };
    assert_eq!(length, passed.len(), "{}", passed.escape_ascii());
    assert_eq!(again.parts.status, head.parts.status);
    assert!(matches!(again.framing, Decoder::Length(0 | 4)), "{}", passed.escape_ascii());
    let of_hop = [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, TRAILER, DATE];
    assert_eq!(without(&again.parts.headers, &of_hop), without(&head.parts.headers, &of_hop));
}

/// A body in chunks: any cuts read the same, and no more than there is.
///
/// # Panics
/// When that does not hold.
pub fn of_chunks(bytes: &[u8], cuts: impl Iterator<Item = usize>) {
    let whole = chunks(&[bytes]);
    let mut cuts: Vec<_> = cuts.map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let pieces: Vec<_> = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
    assert_eq!(whole, chunks(&pieces), "{cuts:?} of {}", bytes.escape_ascii());
    assert!(whole.0.len() <= bytes.len());
}

/// What was read; if it came to an end, its trailers and what is behind them.
fn chunks(pieces: &[&[u8]]) -> (Vec<u8>, Option<(HeaderMap, usize)>) {
    let (mut decoder, mut inbox, mut data) = (Decoder::CHUNKED, Inbox::default(), Vec::new());
    let mut trailers = HeaderMap::new();
    let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
    for piece in pieces {
        inbox.append(piece);
        left -= piece.len();
        loop {
            match decoder.decode(&mut inbox) {
                Ok(Decoded::Data(piece)) => data.extend_from_slice(&piece),
                Ok(Decoded::Trailers(found)) => trailers = found,
                Ok(Decoded::NeedsMore) => break,
                Ok(Decoded::End) => return (data, Some((trailers, inbox.bytes().len() + left))),
                Err(_) => return (data, None),
            }
        }
    }
    (data, None) // the connection ends before the body
}

fn without(headers: &Fields, names: &[HeaderName]) -> Fields {
    let mut headers = headers.clone();
    headers.retain(|name| !names.iter().any(|other| name == *other));
    headers
}

/// Where a message is cut: everywhere in a short one.
fn ends(length: usize) -> impl Iterator<Item = usize> {
    (0..length).step_by((length / 200).max(1))
}

#[cfg(test)]
mod tests {
    use evenkeel_testkit::corpus;
    use proptest::prelude::*;

    use super::*;
    use crate::differential::{a_body, bytes, response_bytes};

    #[test]
    fn the_corpus_keeps_the_promises() {
        let cases = |text| corpus::read(text).into_iter().map(|case| case.pieces.concat());
        cases(corpus::REQUESTS).for_each(|bytes| of_a_request_head(&bytes));
        cases(corpus::RESPONSES).for_each(|bytes| of_a_response_head(&bytes));
        for bytes in cases(corpus::REQUESTS).chain(cases(corpus::RESPONSES)) {
            let head = bytes.windows(4).position(|window| window == b"\r\n\r\n");
            let body = &bytes[head.map_or(0, |head| head + 4)..];
            of_chunks(body, 0..body.len().min(2_000));
        }
    }

    proptest! {
        #[test]
        fn heads_that_come_in_pieces_or_are_passed_on_are_read_as_the_same(
            request in bytes(),
            response in response_bytes(),
        ) {
            of_a_request_head(&request.concat());
            of_a_response_head(&response.concat());
        }

        #[test]
        fn chunks_that_come_in_pieces_are_read_as_the_same(
            bodies in proptest::collection::vec(a_body(), 1..4),
            cuts in proptest::collection::vec(any::<usize>(), 0..8),
            spoilt in proptest::option::of((any::<prop::sample::Index>(), 0..128_u8)),
        ) {
            let mut bytes = bodies.concat().into_bytes();
            if let Some((at, byte)) = spoilt && !bytes.is_empty() {
                *at.get_mut(&mut bytes) = byte;
            }
            of_chunks(&bytes, cuts.into_iter());
        }
    }
}
