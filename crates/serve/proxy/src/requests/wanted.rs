//! Which of the requests that have ended are wanted, by the access log or by traces.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::record::{Remarks, RequestRecord, micros};

const MILLION: f64 = 1e6;
/// The part of a trace's id that is random: W3C trace context, level 2.
const RANDOM_BITS: u32 = 56;

/// Rules that are changed while they are followed.
#[derive(Debug, Default)]
pub(super) struct Rules {
    is_on: AtomicBool,
    sample_millionths: AtomicU32,
    /// `u32::MAX` where none is set.
    slow_us: AtomicU32,
}

impl Rules {
    /// This share (0 to 1), and what takes longer than the duration (`None` = what is slow beside
    /// others); nothing with `None`.
    pub(super) fn set(&self, rules: Option<(f64, Option<Duration>)>) {
        if let Some((sample, slow)) = rules {
            let millionths = (sample.clamp(0.0, 1.0) * MILLION).round() as u32;
            self.sample_millionths.store(millionths, Ordering::Relaxed);
            self.slow_us.store(slow.map_or(u32::MAX, micros), Ordering::Relaxed);
        }
        self.is_on.store(rules.is_some(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether a request is wanted for what became of it.
    pub(super) fn is_remarkable(&self, record: &RequestRecord) -> bool {
        let is_slow = match self.slow_us.load(Ordering::Relaxed) {
            u32::MAX => {
                record.remarks.has(Remarks::SLOW) || record.remarks.has(Remarks::OVER_OBJECTIVE)
            }
            limit => record.total_us > limit,
        };
        is_slow
            || record.status >= 500
            || record.remarks.has(Remarks::FAILED)
            || record.remarks.has(Remarks::SAMPLED)
    }

    /// Whether the share has a trace of whatever id: processes with the same share agree.
    pub(super) fn draws_any(&self, trace_id: u128) -> bool {
        self.draws((trace_id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32, 32)
    }

    /// Whether the share has a trace whose id was drawn. Those with the largest random parts are
    /// in it, as OpenTelemetry's samplers have it.
    pub(super) fn draws_random(&self, trace_id: u128) -> bool {
        let random = (trace_id as u64) & ((1 << RANDOM_BITS) - 1);
        self.draws(((1 << RANDOM_BITS) - 1) - random, RANDOM_BITS)
    }

    /// `drawn` is one of 2 to the power of `bits` numbers.
    fn draws(&self, drawn: u64, bits: u32) -> bool {
        let sample = self.sample_millionths.load(Ordering::Relaxed);
        (u128::from(drawn) * 1_000_000) >> bits < u128::from(sample)
    }
}
