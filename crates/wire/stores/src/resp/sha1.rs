//! SHA-1, by which Redis names scripts. It protects nothing here: who may send a script may also
//! send its name.
//!
//! **Source**: FIPS 180-4, section 6.1.

/// The name of a script, as `SCRIPT LOAD` gives it: 40 digits in lower case.
pub(super) fn name(text: &[u8]) -> [u8; 40] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut name = [0; 40];
    for (index, byte) in digest(text).into_iter().enumerate() {
        name[2 * index] = DIGITS[usize::from(byte >> 4)];
        name[2 * index + 1] = DIGITS[usize::from(byte & 15)];
    }
    name
}

fn digest(text: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut blocks = text.chunks_exact(64);
    blocks.by_ref().for_each(|block| compress(&mut state, block));
    let rest = blocks.remainder();
    let mut last = [0; 128];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let end = if rest.len() < 56 { 64 } else { 128 };
    last[end - 8..end].copy_from_slice(&(text.len() as u64 * 8).to_be_bytes());
    last[..end].chunks_exact(64).for_each(|block| compress(&mut state, block));
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn compress(state: &mut [u32; 5], block: &[u8]) {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, &byte| word << 8 | u32::from(byte));
    }
    for at in 16..80 {
        let mixed = words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16];
        words[at] = mixed.rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (at, word) in words.into_iter().enumerate() {
        let (chosen, constant) = match at / 20 {
            0 => ((b & c) | (!b & d), 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6_u32),
        };
        let sum = a.rotate_left(5).wrapping_add(chosen).wrapping_add(e);
        let next = sum.wrapping_add(constant).wrapping_add(word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (word, added) in state.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(added);
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    /// The examples of FIPS 180 and RFC 3174, and what Redis calls `return 1`.
    #[test]
    fn names_are_those_that_redis_gives() {
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        let million = vec![b'a'; 1_000_000];
        for (text, expected) in [
            (&b""[..], b"da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (b"abc", b"a9993e364706816aba3e25717850c26c9cd0d89d"),
            (long, b"84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
            (&million, b"34aa973cd4c4daa4f61eeb2bdbad27316534016f"),
            (b"return 1", b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db"),
        ] {
            assert_eq!(name(text), *expected);
        }
    }
}
