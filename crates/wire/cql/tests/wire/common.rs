//! What the tests of the wire have in common.

use bytes::BytesMut;
use evenkeel_cql::codec::{Compression, Decoder, Encoder, Limits, Side};
use evenkeel_cql::{Envelope, Opcode, Version};

/// The lines of a file of vectors: names and bytes.
pub(crate) fn vectors(text: &'static str) -> Vec<(&'static str, Vec<u8>)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap()).map(|(name, hex)| (name, bytes(hex))).collect()
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    hex.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// A decoder of what comes after STARTUP.
pub(crate) fn started(side: Side, version: Version, compression: Option<Compression>) -> Decoder {
    let mut decoder = Decoder::new(side, Limits::default());
    decoder.start(version, compression);
    if side == Side::Server {
        let mut ready = encode(&[Envelope::new(version, 0, Opcode::Ready, "".into())]);
        assert_eq!(decoder.decode(&mut ready).unwrap().unwrap().opcode, Opcode::Ready);
    }
    decoder
}

pub(crate) fn encoder(version: Version, compression: Option<Compression>) -> Encoder {
    let mut encoder = Encoder::new();
    encoder.start(version, compression);
    encoder
}

/// Envelopes one after the other.
pub(crate) fn encode(envelopes: &[Envelope]) -> BytesMut {
    let mut out = BytesMut::new();
    Encoder::new().encode_all(envelopes, &mut out);
    out
}

/// The only envelope of these bytes, before STARTUP.
pub(crate) fn decode(side: Side, bytes: &[u8]) -> Envelope {
    let mut buffer = BytesMut::from(bytes);
    let envelope = Decoder::new(side, Limits::default()).decode(&mut buffer).unwrap().unwrap();
    assert!(buffer.is_empty());
    envelope
}

/// Everything that these bytes give when they come so many at a time.
pub(crate) fn decode_all(decoder: &mut Decoder, bytes: &[u8], step: usize) -> Vec<Envelope> {
    let (mut buffer, mut envelopes) = (BytesMut::new(), Vec::new());
    for part in bytes.chunks(step.max(1)) {
        buffer.extend_from_slice(part);
        while let Some(envelope) = decoder.decode(&mut buffer).unwrap() {
            envelopes.push(envelope);
        }
    }
    assert!(buffer.is_empty(), "{} bytes are left", buffer.len());
    envelopes
}
