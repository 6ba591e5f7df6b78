//! How fast: a bound on what a peer may ask for.

use std::time::Duration;

use evenkeel_core::Instant;

/// Tokens that come at a rate, up to a burst.
#[derive(Clone, Debug)]
pub struct Bucket {
    per_s: f64,
    burst: f64,
    tokens: f64,
    filled_at: Instant,
}

impl Bucket {
    /// A full one.
    pub const fn new(per_s: f64, burst: f64) -> Self {
        Self { per_s, burst, tokens: burst, filled_at: Instant::ZERO }
    }

    /// Takes a token.
    ///
    /// # Errors
    /// When there is none: after how long to ask again.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
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
}
