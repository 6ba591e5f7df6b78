//! Which slot a key belongs to; core's shard map takes it from there.
//!
//! The rule of Redis Cluster, so that keys which users already put together with a hash tag
//! (`{user1000}.following`) stay together here: CRC16 (XMODEM) of the key, or of what stands
//! between its first `{` and the next `}` if that is not empty, modulo 16384. Slots
//! are even over *keys*, not over load.
//! **Source**: the Redis Cluster specification, "Key distribution model" and "Hash tags".

use crc::{CRC_16_XMODEM, Crc, Table};

/// How many slots there are.
pub const SLOTS: u16 = evenkeel_core::request::partition::SLOTS as u16;

/// Sixteen bytes at a step: this is paid for each command.
const CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_XMODEM);

/// The slot of a key, 0 to 16383.
#[inline]
pub fn slot(key: &[u8]) -> u16 {
    CRC16.checksum(hashed_part(key)) % SLOTS
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
