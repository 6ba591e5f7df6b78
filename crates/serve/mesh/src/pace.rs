//! How fast: a bound on what a peer may ask for, and waiting before another try.

use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::rng::Rng;

/// Tokens that come at a rate, up to a burst.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    per_s: f64,
    burst: f64,
    tokens: f64,
    filled_at: Instant,
}

impl Bucket {
    pub(super) fn new(per_s: f64, burst: f64) -> Self {
        Self { per_s, burst, tokens: burst, filled_at: Instant::ZERO }
    }

    /// Takes a token; when there is none, says after how long to ask again.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let more = now.since(self.filled_at).as_secs_f64() * self.per_s;
        self.tokens = (self.tokens + more).min(self.burst);
        self.filled_at = self.filled_at.max(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.tokens) / self.per_s))
    }
}

/// Waits that double, each with its second half left to chance: sites that lost each other in one
/// moment do not come back in one.
#[derive(Debug)]
pub(super) struct Backoff {
    rng: Rng,
    tries: u32,
}

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::stream(seed, "backoff"), tries: 0 }
    }

    pub(super) fn succeeded(&mut self) {
        self.tries = 0;
    }

    pub(super) fn next(&mut self) -> Duration {
        let whole = LONGEST.min(FIRST * (1 << self.tries.min(10)));
        self.tries = self.tries.saturating_add(1);
        whole.mul_f64(0.5 + 0.5 * self.rng.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(10.0, 5.0);
        let (mut now, mut given) = (Instant::ZERO, 0);
        while now < Instant::from_millis(10_000) {
            match bucket.take(now) {
                Ok(()) => given += 1,
                Err(wait) => now += wait + Duration::from_nanos(1),
            }
        }
        assert!((104..=105).contains(&given), "{given}");
    }

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew() {
        let mut backoff = Backoff::new(1);
        let waits: Vec<_> = (0..9).map(|_| backoff.next()).collect();
        for (tries, wait) in waits.iter().enumerate() {
            let whole = LONGEST.min(FIRST * (1 << tries));
            assert!((whole / 2..=whole).contains(wait), "{tries}: {wait:?}");
        }
        backoff.succeeded();
        assert!(backoff.next() <= FIRST);
        let other: Vec<_> = (0..9).map(|_| Backoff::new(2).next()).collect();
        assert_ne!(waits[..1], other[..1]);
    }
}
