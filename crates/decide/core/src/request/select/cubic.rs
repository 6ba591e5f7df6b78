//! C3's rate control: a token bucket per replica whose rate follows a cubic curve.
//!
//! **Signal**: responses received per interval against requests allowed per interval. More
//! allowed than received means the replica saturates: the rate is cut; more received than allowed
//! means there is room: the rate grows, fast at first, flat around the rate at which it was last
//! cut (the saddle), fast again beyond. **When it misleads**: below about one request per
//! interval and replica the received rate is quantised noise around one per interval. The allowed
//! rate swings above demand, the bucket stays full, and nothing is held: at the load of the paper's
//! simulated figure (150 clients, 0.22 requests per pair and interval) its simulator holds 0.5 %
//! of 80 000 requests, all within 8 ms of starting with empty buckets. Above that the limiter acts,
//! and costs more than it saves: with 5 clients (6.7 per interval) that simulator's 99th percentile
//! is 131 ms with it and 56 ms without (mean of 5 seeds). So the default policy ranks without it.
//! **Source**: C3 (NSDI 2015), section 3.3; constants from the paper's simulator and from its
//! Cassandra.

use crate::time::{Duration, Instant};

/// The constants; every preset is listed in [`crate::request::select::c3`].
#[derive(Clone, Debug, PartialEq)]
pub struct CubicConfig {
    /// The interval δ that rates refer to, milliseconds.
    pub interval_ms: f64,
    /// Requests per interval at the start.
    pub rate_initial: f64,
    /// Tokens at the start.
    pub tokens_initial: f64,
    /// Tokens that can be saved up.
    pub tokens_max: f64,
    /// The curve's scaling factor γ, requests per interval per ms³.
    pub gamma: f64,
    /// The largest increase on one response, requests per interval.
    pub step_max: f64,
    /// The factor β a rate is multiplied with when it is cut.
    pub beta: f64,
    /// Intervals that must pass after an increase before a cut.
    pub hysteresis: f64,
    /// The lowest rate, requests per interval.
    pub rate_min: f64,
    /// The rate of the saddle at the start.
    pub saddle_initial: f64,
    /// The received rate at the start, responses per interval.
    pub received_initial: f64,
    /// Weight of the newest interval in the received rate.
    pub received_alpha: f64,
    /// Intervals of silence after which the received rate is begun anew.
    pub idle_intervals: f64,
    /// Divide a count that spans several intervals by their number. The published codes do not;
    /// and after a silence they leave out the response that ended it. A replica that gets less than
    /// one request per silence then seems to answer nothing, its rate falls to the lowest and never
    /// rises again.
    pub divide_by_intervals: bool,
    /// Give a group that waited a token when its wait ends, whoever took tokens meanwhile: a
    /// rounding remedy of the paper's simulator that can mint tokens.
    pub mint_on_wake: bool,
}

impl CubicConfig {
    /// The paper's constants, its simulator's where it is silent, without that code's accidents.
    pub const fn paper() -> Self {
        Self { divide_by_intervals: true, mint_on_wake: false, ..Self::absim() }
    }

    /// The paper's simulator.
    pub const fn absim() -> Self {
        Self {
            interval_ms: 20.0,
            rate_initial: 5.0,
            tokens_initial: 0.0,
            tokens_max: 50.0,
            gamma: 4e-6,
            step_max: 10.0,
            beta: 0.2,
            hysteresis: 2.0,
            rate_min: 1e-4,
            saddle_initial: 10.0,
            received_initial: 10.0,
            received_alpha: 0.9,
            idle_intervals: 20.0,
            divide_by_intervals: false,
            mint_on_wake: true,
        }
    }

    /// The paper's Cassandra.
    pub const fn cassandra() -> Self {
        Self {
            rate_initial: 1.0,
            tokens_initial: 200.0,
            tokens_max: 200.0,
            hysteresis: 4.0,
            rate_min: 0.1,
            saddle_initial: 0.0,
            received_initial: 100.0,
            idle_intervals: 2.0,
            mint_on_wake: false,
            ..Self::absim()
        }
    }
}

/// The rate limiter of one replica.
#[derive(Clone, Debug)]
pub struct Limiter {
    rate: f64,
    tokens: f64,
    filled_at: Instant,
    /// The rate before the last cut, and the time from a cut to the saddle (cached: a cube root).
    saddle: f64,
    to_saddle_ms: f64,
    increased_at: Instant,
    cut_at: Instant,
    received: f64,
    received_count: f64,
    interval: u64,
}

/// The time from a cut to the saddle: K = ∛(R₀·β/γ), in milliseconds.
fn to_saddle_ms(config: &CubicConfig, saddle: f64) -> f64 {
    (saddle * config.beta / config.gamma).cbrt()
}

/// C3's growth curve: R = γ·(Δt − K)³ + R₀, in requests per interval.
#[inline]
fn curve(config: &CubicConfig, saddle: f64, to_saddle_ms: f64, since_cut_ms: f64) -> f64 {
    let distance = since_cut_ms - to_saddle_ms;
    config.gamma * distance * distance * distance + saddle
}

impl Limiter {
    /// A token is there when this much of one is: sums of fractions miss 1 by rounding.
    const WHOLE: f64 = 1.0 - 1e-9;
    /// Waits for the same token that began at different times end this close to each other.
    const SAME_INSTANT_MS: f64 = 1e-3;

    /// A limiter at its initial rate.
    pub fn new(config: &CubicConfig) -> Self {
        Self {
            rate: config.rate_initial,
            tokens: config.tokens_initial,
            filled_at: Instant::ZERO,
            saddle: config.saddle_initial,
            to_saddle_ms: to_saddle_ms(config, config.saddle_initial),
            increased_at: Instant::ZERO,
            cut_at: Instant::ZERO,
            received: config.received_initial,
            received_count: 0.0,
            interval: 0,
        }
    }

    /// Requests allowed per interval.
    pub const fn rate(&self) -> f64 {
        self.rate
    }

    /// Takes a token; false when there is none.
    #[inline]
    #[must_use]
    pub fn try_take(&mut self, config: &CubicConfig, now: Instant) -> bool {
        let tokens = self.tokens_at(config, now);
        if tokens < Self::WHOLE {
            return false;
        }
        self.tokens = tokens - 1.0;
        self.filled_at = self.filled_at.max(now);
        true
    }

    /// Takes a token for a copy that was sent regardless; the bucket may go into debt.
    #[inline]
    pub fn take_by_force(&mut self) {
        self.tokens -= 1.0;
    }

    /// When a whole token will be there.
    pub fn opens_at(&self, config: &CubicConfig, now: Instant) -> Instant {
        let missing = (1.0 - self.tokens_at(config, now)).max(0.0);
        let wait_ms = missing * config.interval_ms / self.rate;
        // A nanosecond at least: a wake-up must make progress. An hour at most: rates change.
        let wait = Duration::from_secs_f64((wait_ms * 1e-3).min(3_600.0));
        (now + wait).plus_nanos(1)
    }

    /// Grants a whole token (see [`CubicConfig::mint_on_wake`]): one to all groups that waited for
    /// the same one and therefore wake at the same instant.
    pub fn mint(&mut self, now: Instant) {
        if now.millis_since(self.filled_at) < Self::SAME_INSTANT_MS {
            return;
        }
        self.tokens = 1.0;
        self.filled_at = self.filled_at.max(now);
    }

    /// A response came: measures the received rate and adapts the allowed one.
    #[inline]
    pub fn on_response(&mut self, config: &CubicConfig, now: Instant) {
        self.count_response(config, now);
        if self.rate < self.received {
            let since_cut_ms = now.millis_since(self.cut_at);
            let target = curve(config, self.saddle, self.to_saddle_ms, since_cut_ms);
            self.rate = target.min(self.rate + config.step_max).max(config.rate_min);
            self.increased_at = now;
        } else if self.rate > self.received
            && now.millis_since(self.increased_at) > config.hysteresis * config.interval_ms
        {
            self.saddle = self.rate;
            self.to_saddle_ms = to_saddle_ms(config, self.saddle);
            self.rate = (self.rate * config.beta).max(config.rate_min);
            self.cut_at = now;
        }
    }

    fn count_response(&mut self, config: &CubicConfig, now: Instant) {
        let interval = (now.as_nanos() as f64 * 1e-6 / config.interval_ms) as u64;
        let passed = interval.saturating_sub(self.interval) as f64;
        if passed >= config.idle_intervals {
            self.received = if config.divide_by_intervals {
                (self.received_count + 1.0) / passed
            } else {
                self.received_count
            };
            self.received_count = 0.0;
        } else if passed > 0.0 {
            let count = self.received_count + 1.0;
            let per_interval = if config.divide_by_intervals { count / passed } else { count };
            let alpha = config.received_alpha;
            self.received = alpha * per_interval + (1.0 - alpha) * self.received;
            self.received_count = 0.0;
        } else {
            self.received_count += 1.0;
        }
        self.interval = self.interval.max(interval);
    }

    #[inline]
    fn tokens_at(&self, config: &CubicConfig, now: Instant) -> f64 {
        let gained = self.rate / config.interval_ms * now.millis_since(self.filled_at);
        (self.tokens + gained).min(config.tokens_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_at_the_rate() {
        let config = CubicConfig::absim(); // 5 per 20 ms: one every 4 ms
        let mut limiter = Limiter::new(&config);
        assert!(!limiter.try_take(&config, Instant::ZERO));
        let opens = limiter.opens_at(&config, Instant::ZERO);
        assert_eq!(opens, Instant::from_millis(4).plus_nanos(1));
        assert!(limiter.try_take(&config, opens));
        assert!(!limiter.try_take(&config, opens));
    }

    #[test]
    fn tokens_are_saved_up_to_the_maximum() {
        let config = CubicConfig::absim();
        let mut limiter = Limiter::new(&config);
        let later = Instant::from_millis(60_000);
        let taken = (0..1_000).filter(|_| limiter.try_take(&config, later)).count();
        assert_eq!(taken, 50);
    }

    #[test]
    fn the_curve_is_flat_at_the_saddle_of_about_100_ms() {
        // Research note 1.2: K = 36.8·∛Rmax ms, so 100 ms at a saddle of 20 per interval.
        let config = CubicConfig::absim();
        let k = to_saddle_ms(&config, 20.0);
        assert!((k - 100.0).abs() < 0.1, "{k}");
        assert!((curve(&config, 20.0, k, k) - 20.0).abs() < 1e-9);
        // At the moment of the cut the curve stands at (1 − β)·R₀, TCP CUBIC's convention.
        assert!((curve(&config, 20.0, k, 0.0) - 16.0).abs() < 1e-9);
    }

    #[test]
    fn a_replica_that_answers_less_than_allowed_is_cut_to_beta() {
        let config = CubicConfig { received_initial: 0.0, ..CubicConfig::absim() };
        let mut limiter = Limiter::new(&config);
        limiter.on_response(&config, Instant::from_millis(41));
        assert!((limiter.rate() - 1.0).abs() < 1e-9, "5 × 0.2, got {}", limiter.rate());
    }

    #[test]
    fn a_trickle_does_not_close_the_rate_for_ever() {
        // One response every 50 intervals. The published rule takes the first one after a silence
        // for none at all, and cuts each time.
        let rate_after = |config: &CubicConfig| {
            let mut limiter = Limiter::new(config);
            let mut lowest = f64::INFINITY;
            for second in 1..100 {
                limiter.on_response(config, Instant::from_millis(second * 1_000));
                lowest = lowest.min(limiter.rate());
            }
            (lowest, limiter.rate())
        };
        // 0.02 responses per interval come; a cut stops at a fifth of the rate that was too high.
        assert!(rate_after(&CubicConfig::paper()).0 > 0.02 * 0.2);
        let (_, published) = rate_after(&CubicConfig::absim());
        assert_eq!(published, CubicConfig::absim().rate_min);
    }

    #[test]
    fn a_clock_that_steps_back_mints_no_tokens() {
        let config = CubicConfig::absim(); // one every 4 ms
        let mut limiter = Limiter::new(&config);
        let at = Instant::from_millis;
        assert!(limiter.try_take(&config, at(8)));
        assert!(limiter.try_take(&config, at(2)), "the second of the two saved until 8 ms");
        assert!(!limiter.try_take(&config, at(8)), "2 to 8 ms was paid out before");
    }

    #[test]
    fn groups_that_waited_for_the_same_token_share_it() {
        let config = CubicConfig::absim();
        let mut limiter = Limiter::new(&config);
        let opens = limiter.opens_at(&config, Instant::ZERO);
        limiter.mint(opens);
        assert!(limiter.try_take(&config, opens));
        limiter.mint(opens.plus_nanos(1));
        assert!(!limiter.try_take(&config, opens.plus_nanos(1)), "it was the same token");
        let later = Instant::from_millis(5); // a quarter of a token has come since
        assert!(!limiter.try_take(&config, later));
        limiter.mint(later);
        assert!(limiter.try_take(&config, later), "another wait is granted a token regardless");
    }

    #[test]
    fn debt_from_forced_copies_is_paid_back() {
        let config = CubicConfig::absim();
        let mut limiter = Limiter::new(&config);
        limiter.take_by_force();
        assert!(!limiter.try_take(&config, Instant::from_millis(4)));
        assert!(limiter.try_take(&config, Instant::from_millis(9)));
    }
}
