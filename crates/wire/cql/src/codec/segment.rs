//! The segments of v5 (section 2 of the specification): a header with a checksum of its own, a
//! payload of at most 131,071 bytes and its checksum.
//!
//! Uncompressed, the header has 17 bits of length and one that says whether the payload is whole
//! envelopes (otherwise it is a part of one); compressed, 17 bits more of the length after
//! decompression, 0 where compression would not have made it shorter. Low bytes come first.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::super::error::Fault;
use super::checksum::{crc24, crc32};
use super::compression::{compress_lz4, decompress_lz4};

/// The longest payload, bytes.
pub const PAYLOAD_BYTES_MAX: usize = (1 << 17) - 1;

const CRC24_BYTES: usize = 3;
const CRC32_BYTES: usize = 4;
const PLAIN_BYTES: usize = 3;
const COMPRESSED_BYTES: usize = 5;

/// Header and checksums at most.
pub(super) const AROUND_BYTES_MAX: usize = COMPRESSED_BYTES + CRC24_BYTES + CRC32_BYTES;

/// Shorter payloads are not worth their compression.
const COMPRESSED_BYTES_MIN: usize = 64;

/// Whether the payloads of a connection's segments are compressed: LZ4, there is no other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    Plain,
    Lz4,
}

impl Format {
    /// Bytes of the header with its checksum.
    pub(super) const fn header_bytes(self) -> usize {
        CRC24_BYTES
            + match self {
                Self::Plain => PLAIN_BYTES,
                Self::Lz4 => COMPRESSED_BYTES,
            }
    }
}

/// One segment's payload, decompressed.
#[derive(Debug)]
pub(super) struct Segment {
    /// Whether it is whole envelopes.
    pub(super) is_self_contained: bool,
    pub(super) payload: Bytes,
}

struct Header {
    payload_bytes: usize,
    /// 0: it is not compressed.
    decompressed_bytes: usize,
    is_self_contained: bool,
}

fn read_header(bytes: &[u8], format: Format) -> Result<Header, Fault> {
    let (fields, checksum) = bytes.split_at(bytes.len() - CRC24_BYTES);
    let (came, computed) = (little(checksum) as u32, crc24(fields));
    if came != computed {
        return Err(Fault::Checksum { part: "header", came, computed });
    }
    let bits = little(fields);
    let length = |shift: u32| (bits >> shift) as usize & PAYLOAD_BYTES_MAX;
    let (decompressed_bytes, flag) = match format {
        Format::Plain => (0, 17),
        Format::Lz4 => (length(17), 34),
    };
    let is_self_contained = bits >> flag & 1 == 1;
    Ok(Header { payload_bytes: length(0), decompressed_bytes, is_self_contained })
}

/// A number of at most eight bytes, the low ones first.
fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Takes the next segment from the front; `None` when it is not all there.
pub(super) fn take(buffer: &mut BytesMut, format: Format) -> Result<Option<Segment>, Fault> {
    let header_bytes = format.header_bytes();
    let Some(header) = buffer.get(..header_bytes) else { return Ok(None) };
    let header = read_header(header, format)?;
    let length = header_bytes + header.payload_bytes + CRC32_BYTES;
    if buffer.len() < length {
        // The whole of it is at most 128 KiB more.
        buffer.reserve(length - buffer.len());
        return Ok(None);
    }
    let mut bytes = buffer.split_to(length).freeze();
    bytes.advance(header_bytes);
    let payload = bytes.split_to(header.payload_bytes);
    let (came, computed) = (little(&bytes) as u32, crc32(&payload));
    if came != computed {
        return Err(Fault::Checksum { part: "payload", came, computed });
    }
    let payload = match header.decompressed_bytes {
        0 => payload,
        length => decompress_lz4(&payload, length, PAYLOAD_BYTES_MAX)?,
    };
    Ok(Some(Segment { is_self_contained: header.is_self_contained, payload }))
}

/// Where a segment was begun; its payload follows in the same buffer.
pub(super) struct Open {
    start: usize,
    format: Format,
}

/// Leaves room for a header.
pub(super) fn open(out: &mut BytesMut, format: Format) -> Open {
    let start = out.len();
    out.put_bytes(0, format.header_bytes());
    Open { start, format }
}

impl Open {
    /// Bytes of the payload so far.
    pub(super) fn payload_bytes(&self, out: &BytesMut) -> usize {
        out.len() - self.start - self.format.header_bytes()
    }

    /// Writes header and checksum around what was put into the buffer since it was opened.
    /// `scratch` is what compression may use.
    pub(super) fn close(self, is_whole: bool, out: &mut BytesMut, scratch: &mut BytesMut) {
        let payload_bytes = self.payload_bytes(out);
        assert!(payload_bytes <= PAYLOAD_BYTES_MAX, "envelopes are cut to fit");
        let payload_start = self.start + self.format.header_bytes();
        let mut decompressed_bytes = 0;
        if self.format == Format::Lz4 && payload_bytes >= COMPRESSED_BYTES_MIN {
            scratch.clear();
            compress_lz4(&out[payload_start..], scratch);
            if scratch.len() < payload_bytes {
                out.truncate(payload_start);
                out.put_slice(scratch);
                decompressed_bytes = payload_bytes as u64;
            }
        }
        let sent = (out.len() - payload_start) as u64;
        let flag = u64::from(is_whole);
        let bits = match self.format {
            Format::Plain => sent | flag << 17,
            Format::Lz4 => sent | decompressed_bytes << 17 | flag << 34,
        };
        let fields = payload_start - CRC24_BYTES - self.start;
        out[self.start..][..fields].copy_from_slice(&bits.to_le_bytes()[..fields]);
        let checksum = crc24(&out[self.start..][..fields]).to_le_bytes();
        out[payload_start - CRC24_BYTES..payload_start].copy_from_slice(&checksum[..CRC24_BYTES]);
        let checksum = crc32(&out[payload_start..]);
        out.put_u32_le(checksum);
    }
}

/// Appends a segment without compression around this payload.
///
/// # Panics
/// When the payload is longer than [`PAYLOAD_BYTES_MAX`].
pub fn write(payload: &[u8], is_self_contained: bool, out: &mut BytesMut) {
    let open = open(out, Format::Plain);
    out.put_slice(payload);
    open.close(is_self_contained, out, &mut BytesMut::new());
}
