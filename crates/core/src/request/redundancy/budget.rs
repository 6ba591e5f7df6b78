//! A share of extra work that must not be exceeded.

/// A token bucket filled by requests instead of time: each request adds `share` of a token, each
/// extra attempt takes a whole one.
///
/// Filled by requests, because the extra work that a fleet can bear is a share of its load; a
/// bucket filled by time would let an idle fleet save up and a busy one drown.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    share: f64,
    tokens: f64,
    tokens_max: f64,
}

impl Budget {
    /// A full bucket that allows `share` extra attempts per request (0 to 1; outside it is
    /// clamped), and at most `tokens_max` of them in one burst.
    #[must_use]
    pub fn share(share: f64, tokens_max: f64) -> Self {
        let tokens_max = tokens_max.max(1.0);
        Self { share: share.clamp(0.0, 1.0), tokens: tokens_max, tokens_max }
    }

    /// A request came.
    #[inline]
    pub fn deposit(&mut self) {
        self.tokens = (self.tokens + self.share).min(self.tokens_max);
    }

    /// Takes a token for one extra attempt; false when there is none.
    #[inline]
    #[must_use]
    pub fn withdraw(&mut self) -> bool {
        if self.share == 0.0 || self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_attempts_stay_within_the_share_and_one_burst() {
        let mut budget = Budget::share(0.05, 10.0);
        let granted = (0..10_000).filter(|_| {
            budget.deposit();
            budget.withdraw()
        });
        let granted = granted.count() as f64;
        assert!((500.0..=510.0).contains(&granted), "{granted}");
    }

    #[test]
    fn a_share_of_zero_allows_nothing() {
        let mut budget = Budget::share(0.0, 10.0);
        budget.deposit();
        assert!(!budget.withdraw());
    }
}
