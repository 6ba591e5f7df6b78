//! Waiting before another try.

use std::time::Duration;

use evenkeel_core::rng::Rng;

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
