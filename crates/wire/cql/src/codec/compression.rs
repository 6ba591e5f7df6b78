//! Compressed bodies (v4) and payloads (v5). What they claim to be is checked before memory is
//! taken for it.

use bytes::{BufMut, Bytes, BytesMut};

use super::super::envelope::Version;
use super::super::error::Fault;

evenkeel_core::named! {
    /// A compression, by the name it has in STARTUP.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Compression {
        /// LZ4 blocks.
        Lz4 = "lz4",
        /// Snappy, of v4 only.
        Snappy = "snappy",
    }
}

/// LZ4 grows by less than 255 for each byte, Snappy by less than 22 (64 bytes from three).
const LZ4_GROWTH_MAX: usize = 255;
const SNAPPY_GROWTH_MAX: usize = 22;

impl Compression {
    /// The compression of this name, whatever its case; `None` when this version has none such.
    pub fn of(name: &str, version: Version) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(name));
        known.filter(|one| version == Version::V4 || *one == Self::Lz4)
    }

    /// The body of a v4 envelope, decompressed: at most so many bytes.
    pub(super) fn decompress(self, body: &[u8], bytes_max: usize) -> Result<Bytes, Fault> {
        match self {
            Self::Lz4 => {
                let wrong = Fault::Compression { claimed: 0, compressed: body.len() };
                let (length, block) = body.split_first_chunk::<4>().ok_or(wrong)?;
                let length = u32::from_be_bytes(*length) as usize;
                decompress_lz4(block, length, bytes_max)
            }
            Self::Snappy => decompress_snappy(body, bytes_max),
        }
    }

    /// Appends the body of a v4 envelope, compressed, and says whether that made it shorter;
    /// otherwise nothing is appended.
    pub(super) fn compress(self, body: &[u8], out: &mut BytesMut) -> bool {
        let start = out.len();
        match self {
            Self::Lz4 => {
                let length = u32::try_from(body.len()).expect("bodies are below 2 GiB");
                out.put_u32(length);
                compress_lz4(body, out);
            }
            Self::Snappy => {
                out.resize(start + snap::raw::max_compress_len(body.len()), 0);
                let written = snap::raw::Encoder::new().compress(body, &mut out[start..]);
                let written = written.expect("bodies are below 2 GiB, and there is room");
                out.truncate(start + written);
            }
        }
        let is_shorter = out.len() - start < body.len();
        if !is_shorter {
            out.truncate(start);
        }
        is_shorter
    }
}

/// Appends bytes as an LZ4 block.
pub(super) fn compress_lz4(bytes: &[u8], out: &mut BytesMut) {
    let start = out.len();
    out.resize(start + lz4_flex::block::get_maximum_output_size(bytes.len()), 0);
    let written = lz4_flex::block::compress_into(bytes, &mut out[start..]);
    out.truncate(start + written.expect("there is room for the longest block"));
}

/// An LZ4 block that says how long it is decompressed.
pub(super) fn decompress_lz4(
    block: &[u8],
    length: usize,
    bytes_max: usize,
) -> Result<Bytes, Fault> {
    if length == 0 {
        return Ok(Bytes::new());
    }
    let compressed = block.len();
    check_claim(length, compressed.saturating_mul(LZ4_GROWTH_MAX), compressed, bytes_max)?;
    let mut out = vec![0; length];
    match lz4_flex::block::decompress_into(block, &mut out) {
        Ok(written) if written == length => Ok(Bytes::from(out)),
        _ => Err(Fault::Compression { claimed: length, compressed }),
    }
}

fn decompress_snappy(block: &[u8], bytes_max: usize) -> Result<Bytes, Fault> {
    let compressed = block.len();
    let length = snap::raw::decompress_len(block)
        .map_err(|_| Fault::Compression { claimed: 0, compressed })?;
    check_claim(length, compressed.saturating_mul(SNAPPY_GROWTH_MAX), compressed, bytes_max)?;
    let mut out = vec![0; length];
    match snap::raw::Decoder::new().decompress(block, &mut out) {
        Ok(written) if written == length => Ok(Bytes::from(out)),
        _ => Err(Fault::Compression { claimed: length, compressed }),
    }
}

fn check_claim(
    claimed: usize,
    possible: usize,
    compressed: usize,
    bytes_max: usize,
) -> Result<(), Fault> {
    if claimed > bytes_max {
        return Err(Fault::TooLong { came: claimed as u64, max: bytes_max });
    }
    if claimed > possible {
        return Err(Fault::Compression { claimed, compressed });
    }
    Ok(())
}
