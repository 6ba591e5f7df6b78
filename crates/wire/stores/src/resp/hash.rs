//! Which slot a key belongs to; core's shard map takes it from there.
//!
//! The rule of Redis Cluster, so that keys which users already put together with a hash tag
//! (`{user1000}.following`) stay together here: CRC16 (XMODEM) of the key, or of what stands
//! between its first `{` and the next `}` if that is not empty, modulo 16384. Slots
//! are even over *keys*, not over load.
//! **Source**: the Redis Cluster specification, "Key distribution model" and "Hash tags".

/// How many slots there are.
pub const SLOTS: u16 = evenkeel_core::request::partition::SLOTS as u16;

const POLYNOMIAL: u16 = 0x1021;

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The slot of a key, 0 to 16383.
#[inline]
pub fn slot(key: &[u8]) -> u16 {
    crc16(hashed_part(key)) % SLOTS
}

/// What is hashed of a key: its tag, if it has one.
#[inline]
fn hashed_part(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    let tagged = &key[open + 1..];
    match memchr::memchr(b'}', tagged) {
        Some(close) if close > 0 => &tagged[..close],
        _ => key,
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}
