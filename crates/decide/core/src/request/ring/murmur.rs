//! Key → token, as Cassandra's `Murmur3Partitioner`.
//!
//! It is MurmurHash3 (x64, 128 bits, seed 0), of which the first half is the token, with two
//! peculiarities that have become the format: the bytes after the last whole block of 16 are taken
//! as *signed* numbers (Java has no others), so that a byte above 127 sets all bits above it; and
//! the least number stands for "before everything", so that a key that hashes to it is given the
//! greatest. **Source**: Cassandra's `dht.Murmur3Partitioner` and `utils.MurmurHash`, whose answers
//! are kept in `tests/ring/tokens.txt`.

use crate::request::ring::token::Token;

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// Bytes of one block.
const BLOCK: usize = 16;

/// The token of a partition key, given as its bytes (of several columns: each with its length in
/// two bytes before it and a zero after it).
pub fn token(key: &[u8]) -> Token {
    if key.is_empty() {
        return Token(i64::MIN); // no stored key is empty: before everything
    }
    let (mut first, mut second) = (0_u64, 0_u64);
    let blocks = key.chunks_exact(BLOCK);
    let tail = blocks.remainder();
    for block in blocks {
        let (low, high) = block.split_at(BLOCK / 2);
        first = (first ^ mixed_first(word(low))).rotate_left(27).wrapping_add(second);
        first = first.wrapping_mul(5).wrapping_add(0x52dc_e729);
        second = (second ^ mixed_second(word(high))).rotate_left(31).wrapping_add(first);
        second = second.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let (low, high) = tail.split_at(tail.len().min(BLOCK / 2));
    first ^= mixed_first(signed(low));
    second ^= mixed_second(signed(high));

    let length = key.len() as u64;
    first ^= length;
    second ^= length;
    first = first.wrapping_add(second);
    second = second.wrapping_add(first);
    let half = finished(first).wrapping_add(finished(second)) as i64;
    Token(if half == i64::MIN { i64::MAX } else { half })
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The word of a tail's bytes, each of them taken as a signed number.
fn signed(bytes: &[u8]) -> u64 {
    let places = bytes.iter().enumerate();
    places.fold(0, |word, (place, &byte)| word ^ (byte as i8 as u64) << (8 * place))
}

fn mixed_first(word: u64) -> u64 {
    word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mixed_second(word: u64) -> u64 {
    word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finished(mut half: u64) -> u64 {
    half ^= half >> 33;
    half = half.wrapping_mul(0xff51_afd7_ed55_8ccd);
    half ^= half >> 33;
    half = half.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    half ^ half >> 33
}
