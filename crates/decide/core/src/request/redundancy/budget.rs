//! A share of extra work that must not be exceeded.

use crate::time::{Duration, Instant};

/// A token bucket filled by requests instead of time: each request adds `share` of a token, each
/// extra attempt takes a whole one.
///
/// Filled by requests, because the extra work that a fleet can bear is a share of its load; a
/// bucket filled by time would let an idle fleet save up and a busy one drown.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    share: f64,
    tokens: f64,
    burst: f64,
    savings: Option<Savings>,
}

/// Tokens above the burst, which fade.
#[derive(Clone, Debug, PartialEq)]
struct Savings {
    step: Duration,
    next: Instant,
}

impl Savings {
    /// Steps in which tokens fade to 1/e.
    const STEPS: u32 = 64;

    /// What is left of `tokens` now.
    fn fade(&mut self, now: Instant, tokens: f64) -> f64 {
        if now < self.next {
            return tokens;
        }
        let steps = 1.0 + (now - self.next).as_secs_f64() / self.step.as_secs_f64();
        self.next = now + self.step;
        tokens * libm::exp(-steps / f64::from(Self::STEPS))
    }
}

impl Budget {
    /// A full bucket that allows `share` extra attempts per request (0 to 1; outside it is
    /// clamped), and at most `burst` of them at once.
    pub fn share(share: f64, burst: f64) -> Self {
        let burst = burst.max(1.0);
        Self { share: share.clamp(0.0, 1.0), tokens: burst, burst, savings: None }
    }

    /// The budget of retries: 20 at once, and more where there is more traffic, namely what the
    /// requests of the last ten seconds saved.
    ///
    /// A replica that dies fails all that it has in flight at the same moment, which may be
    /// hundreds; any fixed burst is too small for somebody. What was saved fades, so an idle fleet
    /// has 20 again at its next request. (Finagle's retry budget counts the deposits of ten seconds
    /// too.)
    pub fn of_retries(share: f64) -> Self {
        let step = Duration::from_secs(10) / Savings::STEPS;
        let savings = Some(Savings { step, next: Instant::ZERO });
        Self { savings, ..Self::share(share, 20.0) }
    }

    /// Goes on where another budget stands: a change of the share gives away no second burst.
    pub fn inherit(&mut self, before: &Self) {
        let most = if self.savings.is_some() { f64::INFINITY } else { self.burst };
        self.tokens = before.tokens.min(most);
        if let (Some(mine), Some(theirs)) = (&mut self.savings, &before.savings) {
            mine.next = theirs.next;
        }
    }

    /// A request came.
    #[inline]
    pub fn deposit(&mut self, now: Instant) {
        self.tokens += self.share;
        let saved = self.tokens - self.burst;
        if saved > 0.0 {
            let kept = self.savings.as_mut().map_or(0.0, |savings| savings.fade(now, saved));
            self.tokens = self.burst + kept;
        }
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
    use crate::Rng;

    #[test]
    fn extra_attempts_stay_within_the_share_and_one_burst() {
        let mut budget = Budget::share(0.05, 10.0);
        let granted = (0..10_000).filter(|_| {
            budget.deposit(Instant::ZERO);
            budget.withdraw()
        });
        let granted = granted.count() as f64;
        assert!((500.0..=510.0).contains(&granted), "{granted}");
    }

    #[test]
    fn a_share_of_zero_allows_nothing() {
        let mut budget = Budget::share(0.0, 10.0);
        budget.deposit(Instant::ZERO);
        assert!(!budget.withdraw());
    }

    fn burst_of(budget: &mut Budget) -> usize {
        std::iter::repeat_with(|| budget.withdraw()).take_while(|granted| *granted).count()
    }

    /// So many requests per second, for so long, from a moment on.
    fn feed(budget: &mut Budget, from: Instant, per_s: u32, lasting: Duration) -> Instant {
        let count = (lasting.as_secs_f64() * f64::from(per_s)) as u32;
        let due = |i| from + Duration::from_secs(1) / per_s * i;
        (0..count).for_each(|i| budget.deposit(due(i)));
        due(count)
    }

    /// Whatever comes when, extra attempts are no more than the share and one burst.
    #[test]
    fn savings_come_from_requests() {
        let mut rng = Rng::seeded(7);
        let mut budget = Budget::of_retries(0.25);
        let (mut now, mut requests, mut granted) = (Instant::ZERO, 0, 0);
        for _ in 0..200_000 {
            now += Duration::from_millis(rng.below(20) as u64);
            if rng.below(2) == 0 {
                requests += 1;
                budget.deposit(now);
            } else if rng.below(200) == 0 {
                granted += burst_of(&mut budget);
            }
            assert!(granted as f64 <= 20.0 + 0.25 * f64::from(requests), "{granted} {requests}");
        }
        assert!(granted > 1_000, "{granted}");
    }

    #[test]
    fn retries_are_saved_up_for_ten_seconds_and_an_idle_fleet_loses_them() {
        let second = Duration::from_secs(1);
        assert_eq!(burst_of(&mut Budget::of_retries(0.2)), 20);
        let mut budget = Budget::of_retries(0.2);
        let now = feed(&mut budget, Instant::from_millis(5), 1_000, 100 * second);
        // A fifth of 1,000/s for ten seconds, and the 20.
        let busy = burst_of(&mut budget.clone());
        assert!((1_950..=2_080).contains(&busy), "{busy}");
        let mut later = budget.clone();
        later.deposit(now + 10 * second);
        let faded = burst_of(&mut later) as f64 / busy as f64;
        assert!((0.35..0.4).contains(&faded), "to 1/e: {faded}");
        budget.deposit(now + 3_600 * second);
        assert_eq!(burst_of(&mut budget), 20);
        let mut slow = Budget::of_retries(0.2);
        feed(&mut slow, Instant::ZERO, 1, 1_000 * second);
        let slow = burst_of(&mut slow);
        assert!((21..=22).contains(&slow), "one per second saves two: {slow}");
    }
}
