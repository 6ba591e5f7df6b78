//! The trace context of W3C: what `traceparent` says, and ids of traces that begin here.

use std::cell::RefCell;

use evenkeel_core::Rng;

use super::traces::{SpanContext, Traces};

/// Of a `traceparent`: version, trace, span and flags, with hyphens.
const TRACEPARENT_BYTES: usize = 55;
const SAMPLED: u8 = 1;

/// Makes ids. Each worker has its own.
#[derive(Debug)]
pub struct Ids(RefCell<Rng>);

impl Default for Ids {
    fn default() -> Self {
        Self::new()
    }
}

impl Ids {
    /// Seeded by the operating system, so that no two processes make the same.
    pub fn new() -> Self {
        use std::hash::{BuildHasher, Hasher, RandomState};
        Self(RefCell::new(Rng::seeded(RandomState::new().build_hasher().finish())))
    }

    /// Random bits.
    pub fn bits(&self) -> u64 {
        self.0.borrow_mut().bits()
    }

    fn span(&self) -> u64 {
        self.bits().max(1) // zero means none
    }

    fn trace(&self) -> u128 {
        (u128::from(self.span()) << 64) | u128::from(self.bits())
    }
}

/// The trace that a request is part of, and its span there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The trace.
    pub id: u128,
    /// The span.
    pub context: SpanContext,
}

impl Joined {
    /// Joins the trace of this `traceparent`, where it is one, or begins one, which is sampled as
    /// `traces` say; and which of both.
    pub fn join(traceparent: Option<&[u8]>, ids: &Ids, traces: Option<&Traces>) -> (Self, bool) {
        let joined = traceparent.and_then(read);
        let (id, parent, flags) = joined.unwrap_or_else(|| {
            let id = ids.trace();
            (id, None, u8::from(traces.is_some_and(|traces| traces.samples(id))) * SAMPLED)
        });
        (Self { id, context: SpanContext { span: ids.span(), parent, flags } }, joined.is_some())
    }

    /// Whether whoever began the trace keeps it.
    pub const fn is_sampled(self) -> bool {
        self.context.flags & SAMPLED != 0
    }

    /// As a `traceparent` of this span.
    pub fn traceparent(self, span: u64) -> [u8; TRACEPARENT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut text[3..19], (self.id >> 64) as u64);
        write_hex(&mut text[19..35], self.id as u64);
        write_hex(&mut text[36..52], span);
        write_hex(&mut text[53..55], u64::from(self.context.flags));
        text
    }
}

/// Version 00, or what a later version has in its place: more may follow it there.
fn read(bytes: &[u8]) -> Option<(u128, Option<u64>, u8)> {
    let (first, rest) = bytes.split_at_checked(TRACEPARENT_BYTES)?;
    let version = hex(&first[..2])?;
    let ends_there = rest.is_empty() || version > 0 && rest[0] == b'-';
    let has_hyphens = [2, 35, 52].iter().all(|&at| first[at] == b'-');
    let id = (u128::from(hex(&first[3..19])?) << 64) | u128::from(hex(&first[19..35])?);
    let (span, flags) = (hex(&first[36..52])?, hex(&first[53..])? as u8);
    let is_sound = version != 0xff && ends_there && has_hyphens && id != 0 && span != 0;
    // What a later version means by other flags nobody knows.
    is_sound.then_some((id, Some(span), flags & SAMPLED))
}

/// Lower case only, as the specification wants.
fn hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((value << 4) | u64::from(digit))
    })
}

/// Writes digits, the last ones last.
pub fn write_hex(into: &mut [u8], mut value: u64) {
    for place in into.iter_mut().rev() {
        *place = b"0123456789abcdef"[(value & 15) as usize];
        value >>= 4;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&bytes);
        }
    }
}
