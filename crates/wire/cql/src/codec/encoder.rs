//! Envelopes joined to bytes.

use bytes::{Buf, BufMut, BytesMut};

use super::super::envelope::{Envelope, Flags, HEADER_BYTES, Version};
use super::compression::Compression;
use super::segment::{self, Format, PAYLOAD_BYTES_MAX};

/// Shorter bodies are not worth their compression.
const COMPRESSED_BYTES_MIN: usize = 64;

/// Joins envelopes to the bytes of one connection.
///
/// Whatever is given is written at once and whole: nothing stays behind in the encoder.
#[derive(Debug, Default)]
pub struct Encoder {
    framing: Framing,
    scratch: BytesMut,
}

#[derive(Clone, Copy, Debug, Default)]
enum Framing {
    /// One after the other; v4's bodies perhaps compressed.
    #[default]
    Plain,
    Compressed(Compression),
    Segments(Format),
}

impl Encoder {
    /// For a connection that is not started.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is encoded from here on follows STARTUP's answer: a server says so after it encoded
    /// READY or AUTHENTICATE, a client when one of them came.
    ///
    /// # Panics
    /// When the version has no such compression.
    pub fn start(&mut self, version: Version, compression: Option<Compression>) {
        self.framing = match (version, compression) {
            (Version::V4, None) => Framing::Plain,
            (Version::V4, Some(compression)) => Framing::Compressed(compression),
            (Version::V5, None) => Framing::Segments(Format::Plain),
            (Version::V5, Some(compression)) => Framing::Segments(lz4_only(compression)),
        };
    }

    /// Appends one envelope.
    ///
    /// # Panics
    /// When its body is 2 GiB or longer; so does `encode_all`.
    pub fn encode(&mut self, envelope: &Envelope, out: &mut BytesMut) {
        self.encode_all([envelope], out);
    }

    /// Appends envelopes in this order. Those that are written together share segments.
    ///
    /// # Panics
    /// When a body is 2 GiB or longer.
    pub fn encode_all<E: core::borrow::Borrow<Envelope>>(
        &mut self,
        envelopes: impl IntoIterator<Item = E>,
        out: &mut BytesMut,
    ) {
        let envelopes = envelopes.into_iter();
        match self.framing {
            Framing::Plain => envelopes.for_each(|envelope| put(envelope.borrow(), out)),
            Framing::Compressed(compression) => {
                envelopes.for_each(|envelope| put_compressed(envelope.borrow(), compression, out));
            }
            Framing::Segments(format) => self.encode_segments(envelopes, format, out),
        }
    }

    fn encode_segments<E: core::borrow::Borrow<Envelope>>(
        &mut self,
        envelopes: impl Iterator<Item = E>,
        format: Format,
        out: &mut BytesMut,
    ) {
        let mut open = None;
        for envelope in envelopes {
            let envelope = envelope.borrow();
            let length = HEADER_BYTES + envelope.body.len();
            let is_full =
                |open: &segment::Open| open.payload_bytes(out) + length > PAYLOAD_BYTES_MAX;
            if open.as_ref().is_some_and(is_full)
                && let Some(full) = open.take()
            {
                full.close(true, out, &mut self.scratch);
            }
            if length > PAYLOAD_BYTES_MAX {
                self.encode_parts(envelope, format, out);
                continue;
            }
            out.reserve(length + segment::AROUND_BYTES_MAX);
            open.get_or_insert_with(|| segment::open(out, format));
            put(envelope, out);
        }
        if let Some(last) = open {
            last.close(true, out, &mut self.scratch);
        }
    }

    /// An envelope longer than a segment, in several of its own.
    fn encode_parts(&mut self, envelope: &Envelope, format: Format, out: &mut BytesMut) {
        let header = plain_header(envelope);
        let mut rest = header.chain(&envelope.body[..]);
        while rest.has_remaining() {
            let length = rest.remaining().min(PAYLOAD_BYTES_MAX);
            out.reserve(length + segment::AROUND_BYTES_MAX);
            let open = segment::open(out, format);
            out.put((&mut rest).take(length));
            open.close(false, out, &mut self.scratch);
        }
    }
}

fn lz4_only(compression: Compression) -> Format {
    assert!(compression == Compression::Lz4, "v5 has no compression but LZ4");
    Format::Lz4
}

fn plain_header(envelope: &Envelope) -> [u8; HEADER_BYTES] {
    envelope.header(envelope.flags.without(Flags::COMPRESSED), body_bytes(envelope.body.len()))
}

fn body_bytes(length: usize) -> u32 {
    i32::try_from(length).expect("bodies are below 2 GiB").unsigned_abs()
}

fn put(envelope: &Envelope, out: &mut BytesMut) {
    out.reserve(HEADER_BYTES + envelope.body.len());
    out.put_slice(&plain_header(envelope));
    out.put_slice(&envelope.body);
}

fn put_compressed(envelope: &Envelope, compression: Compression, out: &mut BytesMut) {
    if envelope.body.len() < COMPRESSED_BYTES_MIN {
        return put(envelope, out);
    }
    let start = out.len();
    out.put_bytes(0, HEADER_BYTES);
    if !compression.compress(&envelope.body, out) {
        out.truncate(start);
        return put(envelope, out);
    }
    let compressed = body_bytes(out.len() - start - HEADER_BYTES);
    let header = envelope.header(envelope.flags.with(Flags::COMPRESSED), compressed);
    out[start..][..HEADER_BYTES].copy_from_slice(&header);
}
