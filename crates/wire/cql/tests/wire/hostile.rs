//! What no peer should send: the error says what came, what was expected and how it is answered.

use bytes::{Bytes, BytesMut};
use evenkeel_cql::codec::{Compression, Decoder, Limits, Side, segment};
use evenkeel_cql::request::Query;
use evenkeel_cql::response::Error;
use evenkeel_cql::types::TypeBytes;
use evenkeel_cql::{
    Envelope, ErrorCode, Fault, Malformed, Opcode, Problem, Reader, Version, WireError,
};

use crate::common::{bytes, decode, encode, encoder, started};

fn refused(mut decoder: Decoder, bytes: &[u8]) -> WireError {
    let mut buffer = BytesMut::from(bytes);
    loop {
        match decoder.decode(&mut buffer) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("nothing is wrong"),
            Err(error) => {
                assert_eq!(decoder.decode(&mut buffer).as_ref(), Err(&error), "it stays wrong");
                check_answer(&error);
                return error;
            }
        }
    }
}

/// A client reads the answer: an ERROR with the code and the words of the error.
fn check_answer(error: &WireError) {
    let answer = decode(Side::Server, &encode(&[error.answer()]));
    assert_eq!((answer.version, answer.stream), (error.version, error.stream));
    let read = Error::read(&answer.body, answer.version).unwrap();
    assert_eq!((read.code, read.message), (ErrorCode::ProtocolError, &error.to_string()[..]));
}

fn from_clients() -> Decoder {
    Decoder::new(Side::Client, Limits { envelope_bytes_max: 1000 })
}

#[test]
fn versions_that_are_not_spoken() {
    // Version, the stream that is answered and the version of the answer.
    for (header, came, stream, version) in [
        ("030000070500000000", 3, 7, Version::V4),
        ("060001070500000000", 6, 0x107, Version::V5),
        ("420001070500000000", 0x42, 0x107, Version::V5),
        ("01", 1, 0, Version::V4),
        ("02", 2, 0, Version::V4),
        ("00", 0, 0, Version::V4),
        ("474554202f20485454502f", b'G', 0x5420, Version::V5),
    ] {
        let error = refused(from_clients(), &bytes(header));
        assert_eq!(error.fault, Fault::UnsupportedVersion { came });
        assert_eq!((error.stream, error.version), (stream, version), "{header}");
        // The drivers' words for "try a lower version".
        assert!(error.to_string().contains("unsupported protocol version"));
    }
}

#[test]
fn headers_that_cannot_be() {
    let refuse = |hex: &str| refused(from_clients(), &bytes(hex));
    let error = refuse("040000090400000000");
    assert_eq!(error.fault, Fault::Opcode { came: 4, is_response: false });
    assert_eq!((error.stream, error.version), (9, Version::V4));
    assert_eq!(error.to_string(), "opcode 0x04 came, expected one of a request");
    assert_eq!(refuse("050000090800000000").fault, Fault::Opcode { came: 8, is_response: false });
    assert_eq!(refuse("050000091100000000").fault, Fault::Opcode { came: 17, is_response: false });
    assert_eq!(refuse("840000090800000000").fault, Fault::WrongDirection { is_response: true });
    assert_eq!(refuse("0400000907ffffffff").fault, Fault::NegativeLength(-1));
    let error = refuse("0400000907000003e9");
    assert_eq!(error.fault, Fault::TooLong { came: 1001, max: 1000 });
    assert_eq!(error.stream, 9);
    let decoder = Decoder::new(Side::Server, Limits::default());
    let error = refused(decoder, &bytes("040000090700000000"));
    assert_eq!(error.fault, Fault::WrongDirection { is_response: false });
}

#[test]
fn another_version_than_at_the_start() {
    let error = refused(started(Side::Client, Version::V4, None), &bytes("050000090500000000"));
    let expected = Version::V4;
    assert_eq!(error.fault, Fault::ChangedVersion { came: Version::V5, expected });
    assert_eq!((error.stream, error.version), (9, expected));
}

#[test]
fn too_long_is_refused_before_it_comes() {
    let limits = Limits { envelope_bytes_max: 200_000 };
    let envelope = Envelope::new(Version::V5, 3, Opcode::Query, vec![b'x'; 300_000].into());
    for compression in [None, Some(Compression::Lz4)] {
        let mut out = BytesMut::new();
        encoder(Version::V5, compression).encode(&envelope, &mut out);
        let mut decoder = Decoder::new(Side::Client, limits);
        decoder.start(Version::V5, compression);
        // The first of three parts is enough.
        out.truncate(if compression.is_some() { 1000 } else { 131_081 });
        let error = refused(decoder, &out);
        assert_eq!(error.fault, Fault::TooLong { came: 300_000, max: 200_000 });
        assert_eq!((error.stream, error.version), (3, Version::V5));
    }
}

#[test]
fn claims_of_compressed_bodies() {
    let body = |hex: &str| {
        let body = bytes(hex);
        let mut envelope = bytes("0401000907");
        envelope.extend((body.len() as u32).to_be_bytes());
        [envelope, body].concat()
    };
    let v4 = |compression| started(Side::Client, Version::V4, Some(compression));
    let refuse = |compression, hex: &str| refused(v4(compression), &body(hex)).fault;
    // More than accepted, more than the bytes can be, other than they are.
    let max = Limits::default().envelope_bytes_max;
    let came = (max + 1) as u64;
    assert_eq!(refuse(Compression::Lz4, "0100000100"), Fault::TooLong { came, max });
    let claim = |claimed, compressed| Fault::Compression { claimed, compressed };
    assert_eq!(refuse(Compression::Lz4, "00ffffff00"), claim(0xFF_FFFF, 1));
    assert_eq!(refuse(Compression::Lz4, "000000051061"), claim(5, 2));
    assert_eq!(refuse(Compression::Lz4, "0000"), claim(0, 2));
    assert_eq!(refuse(Compression::Snappy, "81808008"), Fault::TooLong { came, max });
    assert_eq!(refuse(Compression::Snappy, "ffffff0300"), claim(0x7F_FFFF, 5));
    assert_eq!(refuse(Compression::Snappy, "ff"), claim(0, 1));
    let error = refused(from_clients(), &body("00"));
    assert_eq!((error.fault, error.stream), (Fault::NoCompression, 9));
}

/// A segment of v5 around this payload; that its checksums are right is checked against others.
fn segment(payload: &[u8], is_self_contained: bool) -> Vec<u8> {
    let mut out = BytesMut::new();
    segment::write(payload, is_self_contained, &mut out);
    out.to_vec()
}

#[test]
fn segments_that_cannot_follow() {
    let query = encode(&[Envelope::new(Version::V5, 4, Opcode::Query, vec![1; 20].into())]);
    let v5 = || started(Side::Client, Version::V5, None);
    let fault = |bytes: &[u8]| {
        let error = refused(v5(), bytes);
        (error.stream, error.to_string())
    };
    // Cut inside the header, inside the body.
    let mut parts = segment(&query[..5], false);
    parts.extend(segment(&query, true));
    let problem = "a segment of whole envelopes came, expected the next part of one";
    assert_eq!(fault(&parts), (0, problem.into()));
    let problem = "a segment of whole envelopes ends inside one";
    assert_eq!(fault(&segment(&query[..28], true)), (4, problem.into()));
    let mut longer = query.to_vec();
    longer.push(0);
    let problem = "the last part of an envelope is longer than what was left of it";
    assert_eq!(fault(&segment(&longer, false)), (4, problem.into()));
    assert_eq!(fault(&segment(&[], false)), (0, "an empty part of an envelope came".into()));

    let mut bad = segment(&query, true);
    *bad.last_mut().unwrap() ^= 1;
    assert!(fault(&bad).1.contains("segment's payload"), "{:?}", fault(&bad));
    bad[0] ^= 1;
    assert!(fault(&bad).1.contains("segment's header"), "{:?}", fault(&bad));
}

#[test]
fn impatience_is_bounded() {
    let startup = Envelope::new(Version::V5, 0, Opcode::Startup, Bytes::from_static(&[0, 0]));
    let mut bytes = encode(&[startup]);
    bytes.extend_from_slice(&[0; 1001]);
    assert_eq!(refused(from_clients(), &bytes).fault, Fault::Impatient { came: 1001 });
}

#[test]
fn bodies_say_what_is_wrong_and_where() {
    let wrong = |hex: &str| Query::read(&bytes(hex), Version::V4).unwrap_err();
    let problem = Problem::Short { needed: 5, left: 1 };
    assert_eq!(wrong("0000000561"), Malformed { what: "statement", at: 4, problem });
    assert_eq!(
        wrong("0000000561").to_string(),
        "the statement at byte 4 of the body needs 5 bytes and 1 are left"
    );
    assert_eq!(wrong("ffffffff").problem, Problem::Negative(-1));
    assert_eq!(wrong("00000001ff").problem, Problem::NotText);
    assert_eq!(wrong("00000000000b00").problem, Problem::Unknown(11));
    assert_eq!(wrong("00000000000180").problem, Problem::Unknown(0x80));
    assert_eq!(wrong("000000000001010001fffffffd").problem, Problem::Negative(-3));

    let deep = [[0, 0x20].repeat(1 << 20), vec![0, 9]].concat();
    let error = TypeBytes::read(&mut Reader::new(&deep)).unwrap_err();
    assert_eq!(error.problem, Problem::TooDeep);
}

#[test]
fn a_claimed_length_takes_no_memory() {
    let claim = bytes("040000090701000000");
    for version in [Version::V4, Version::V5] {
        let mut decoder = started(Side::Client, version, None);
        let mut buffer = BytesMut::new();
        match version {
            Version::V4 => buffer.extend_from_slice(&claim),
            Version::V5 => {
                let claim = [&[5], &claim[1..]].concat();
                buffer.extend_from_slice(&segment(&claim, false));
            }
        }
        assert_eq!(decoder.decode(&mut buffer), Ok(None), "16 MiB are accepted");
        assert!(buffer.capacity() < 1000, "{version}: {} bytes", buffer.capacity());
    }
    // A segment's claim is 128 KiB at most.
    let mut buffer = BytesMut::from(&bytes("ffff013891fe")[..]);
    assert_eq!(started(Side::Client, Version::V5, None).decode(&mut buffer), Ok(None));
    assert!(buffer.capacity() < 300_000, "{} bytes", buffer.capacity());
}
