//! What one request is served: how many of the optional parts, drawn from the dimmer.
//!
//! A page may have several optional parts, in an order: the first is the dearest to the reader and
//! is left out last. Only one part is ever in the balance: with two parts and a dimmer of 0.7 every
//! request gets the first part and 40 % also get the second. One part is the paper's case.

use crate::rng::Rng;
use crate::units::Dimmer;

/// How many optional parts a replica can have.
pub const PARTS_MAX: u8 = 32;

/// The optional parts one request gets: the first `kept` of `parts`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Content {
    kept: u8,
    parts: u8,
}

impl Content {
    /// All content, of a page with one optional part.
    pub const FULL: Self = Self { kept: 1, parts: 1 };
    /// No optional content, of a page with one optional part.
    pub const LEAN: Self = Self { kept: 0, parts: 1 };

    /// The first `kept` of `parts` optional parts; both are cut to what is possible.
    pub fn new(kept: u8, parts: u8) -> Self {
        let parts = parts.clamp(1, PARTS_MAX);
        Self { kept: kept.min(parts), parts }
    }

    /// What a request with this place in [0, 1) gets at this dimmer: on average over places, the
    /// dimmer's share of the parts.
    #[inline]
    pub fn at(dimmer: Dimmer, parts: u8, place: f64) -> Self {
        let parts = parts.clamp(1, PARTS_MAX);
        let share = dimmer.value() * f64::from(parts);
        let whole = share.floor();
        let kept = whole as u8 + u8::from(place < share - whole);
        Self { kept, parts }
    }

    /// Whether the part with this number (0 is left out last) is served.
    pub const fn allows(self, part: u8) -> bool {
        part < self.kept
    }

    /// Whether nothing is left out.
    pub const fn is_full(self) -> bool {
        self.kept == self.parts
    }

    /// Share of the optional parts that are served: 0 is lean, 1 is full.
    #[inline]
    pub fn share(self) -> f64 {
        f64::from(self.kept) / f64::from(self.parts)
    }
}

/// Who decides what a request gets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Choice {
    /// A coin for each request, as in the paper.
    Coin,
    /// A session: all its requests have one place (see [`place_of`]), so that its pages flicker
    /// only when the dimmer passes that place.
    Session(f64),
    /// Somebody at the edge has decided for the whole call tree.
    Decided(Content),
}

impl Choice {
    pub(super) fn content(self, dimmer: Dimmer, parts: u8, rng: &mut Rng) -> Content {
        match self {
            Self::Coin => Content::at(dimmer, parts, rng.unit()),
            Self::Session(place) => Content::at(dimmer, parts, place),
            Self::Decided(content) => content,
        }
    }
}

/// The place in [0, 1) of a session with this name: evenly spread, always the same (FNV-1a, then
/// SplitMix64's finaliser).
pub fn place_of(session: &[u8]) -> f64 {
    let mut bits = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in session {
        bits = (bits ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((bits ^ (bits >> 31)) >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dimmer(value: f64) -> Dimmer {
        Dimmer::new(value).unwrap()
    }

    #[test]
    fn the_share_served_is_the_dimmer_for_any_number_of_parts() {
        for parts in [1, 2, 5] {
            for value in [0.0, 0.1, 0.37, 0.5, 0.99, 1.0] {
                let places = (0..10_000).map(|n| f64::from(n) / 10_000.0);
                let shares = places.map(|place| Content::at(dimmer(value), parts, place).share());
                let mean = shares.sum::<f64>() / 10_000.0;
                assert!((mean - value).abs() < 2e-4, "{parts} parts at {value}: {mean}");
            }
        }
    }

    #[test]
    fn only_one_part_is_in_the_balance() {
        for place in [0.0, 0.3, 0.999] {
            let content = Content::at(dimmer(0.7), 2, place);
            assert!(content.allows(0), "0.7 of two parts is the first one and two fifths");
            assert_eq!(content.allows(1), place < 0.4);
            assert_eq!(content.is_full(), place < 0.4);
        }
    }

    #[test]
    fn a_session_keeps_its_page_and_sessions_are_spread_evenly() {
        let places: Vec<_> =
            (0..10_000).map(|n| place_of(format!("user-{n}").as_bytes())).collect();
        assert_eq!(places[7].to_bits(), place_of(b"user-7").to_bits());
        let below = places.iter().filter(|place| **place < 0.3).count();
        // Binomial(10 000, 0.3): standard deviation 46; four of them.
        assert!(below.abs_diff(3_000) < 184, "{below}");
    }
}
