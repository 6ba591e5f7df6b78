//! The checksums of v5 (section 2.2 of the specification).

use crc32fast::Hasher;

/// x²⁴ + … without its highest bit's place cut: the polynomial that the specification gives.
const CRC24_POLYNOMIAL: u32 = 0x0197_4F0B;
const CRC24_START: u32 = 0x0087_5060;

/// What CRC32 is fed first, so that a run of zeros has no checksum of zero.
const CRC32_PREFIX: [u8; 4] = [0xFA, 0x2D, 0x55, 0xCA];

const CRC24_TABLE: [u32; 256] = crc24_table();

const fn crc24_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        let mut crc = (byte as u32) << 16;
        let mut bit = 0;
        while bit < 8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// CRC24 of a segment's header.
pub(super) fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(CRC24_START, |crc, &byte| {
        let index = usize::from(byte) ^ (crc >> 16) as usize;
        (crc << 8) & 0x00FF_FFFF ^ CRC24_TABLE[index]
    })
}

/// CRC32 of a segment's payload, as it is sent.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&CRC32_PREFIX);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::{crc24, crc32};

    /// What the Python driver computes (`tests/vectors/python_driver.txt`).
    #[test]
    fn as_drivers_compute_them() {
        assert_eq!(crc24(&[0, 0, 0]), 0x7D_E777);
        assert_eq!(crc24(&[1, 2, 3]), 0xE9_1ACC);
        assert_eq!(crc24(&[0xFF, 0xFF, 3]), 0x47_4025);
        assert_eq!(crc24(&[0; 5]), 0xAA_AC0A);
        assert_eq!(crc24(&[0x10, 0x20, 0x30, 0x40, 5]), 0x53_22E5);
        assert_eq!(crc32(b""), 0x4477_7ED3);
        assert_eq!(crc32(b"a"), 0xF729_4A53);
    }
}
