//! An adaptive limit of concurrency, as Netflix's concurrency-limits does it (Gradient2).
//!
//! **Signal**: the mean latency S of each window of a second (with ten answers or more) against a
//! slow exponential mean L of the windows' means. **Equation**, once per window, with limit λ:
//!
//! ```text
//! L ← L + (S − L) · 2/601        (the mean of the first ten; L ← 0.95·L when L > 2·S)
//! unless the largest number present in the window was below λ/2:
//! g = clip(1.5 · L / S, 0.5, 1)
//! λ ← clip(0.8·λ + 0.2·(λ·g + 4), 20, 200)
//! ```
//!
//! **When it misleads**: what is slow for ten minutes is the new normal, so under steady overload
//! the limit creeps up again; and at least twenty are let in, however few cores there are.
//! **Source**: Netflix/concurrency-limits, `Gradient2Limit`, `WindowedLimit`, `ExpAvgMeasurement`,
//! with their defaults. Requests beyond the limit are refused at once.

use evenkeel_core::{Duration, Instant};

const LIMIT: core::ops::RangeInclusive<f64> = 20.0..=200.0;
const WINDOW: Duration = Duration::from_secs(1);
const ANSWERS_MIN: u32 = 10;
const TOLERANCE: f64 = 1.5;
const SMOOTHING: f64 = 0.2;
const QUEUE: f64 = 4.0;
const WARMUP: u32 = 10;
const LONG_GAIN: f64 = 2.0 / 601.0;
const LONG_DRIFT: f64 = 2.0;
const LONG_SHRINKS: f64 = 0.95;

/// A limit that follows the latency.
#[derive(Clone, Debug)]
pub struct Gradient {
    limit: f64,
    present: u32,
    long_ms: f64,
    windows: u32,
    window_ends: Instant,
    answers: u32,
    latency_ms_sum: f64,
    present_max: u32,
}

impl Default for Gradient {
    fn default() -> Self {
        Self {
            limit: *LIMIT.start(),
            present: 0,
            long_ms: 0.0,
            windows: 0,
            window_ends: Instant::ZERO,
            answers: 0,
            latency_ms_sum: 0.0,
            present_max: 0,
        }
    }
}

impl Gradient {
    /// Lets a request in and says how many there are with it, or refuses it.
    pub fn enter(&mut self) -> Option<u32> {
        if self.present >= self.limit as u32 {
            return None;
        }
        self.present += 1;
        Some(self.present)
    }

    /// A request leaves without having been answered.
    pub const fn left(&mut self) {
        self.present = self.present.saturating_sub(1);
    }

    /// A request was answered after this long; with it, so many were present when it came.
    pub fn answered(&mut self, now: Instant, latency_ms: f64, present_then: u32) {
        self.left();
        self.answers += 1;
        self.latency_ms_sum += latency_ms;
        self.present_max = self.present_max.max(present_then);
        if now < self.window_ends {
            return;
        }
        self.window_ends = now + WINDOW;
        let answers = core::mem::take(&mut self.answers);
        let short_ms = core::mem::take(&mut self.latency_ms_sum) / f64::from(answers);
        let present = core::mem::take(&mut self.present_max);
        if answers >= ANSWERS_MIN {
            self.update(short_ms, f64::from(present));
        }
    }

    fn update(&mut self, short_ms: f64, present: f64) {
        self.windows += 1;
        let gain = if self.windows <= WARMUP { f64::from(self.windows).recip() } else { LONG_GAIN };
        self.long_ms += (short_ms - self.long_ms) * gain;
        let long_ms = self.long_ms;
        if long_ms > LONG_DRIFT * short_ms {
            self.long_ms *= LONG_SHRINKS;
        }
        if present < self.limit / 2.0 {
            return;
        }
        let gradient = (TOLERANCE * long_ms / short_ms).clamp(0.5, 1.0);
        let wanted = self.limit.mul_add(gradient, QUEUE);
        let limit = self.limit.mul_add(1.0 - SMOOTHING, wanted * SMOOTHING);
        self.limit = limit.clamp(*LIMIT.start(), *LIMIT.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of a second with this latency and this many present.
    fn windows(gradient: &mut Gradient, windows: u32, latency_ms: f64, present: f64) {
        for _ in 0..windows {
            gradient.update(latency_ms, present);
        }
    }

    #[test]
    fn it_grows_while_latency_stays_and_the_limit_is_used() {
        let mut gradient = Gradient::default();
        windows(&mut gradient, 10, 50.0, 9.0);
        assert_eq!(gradient.limit, 20.0, "less than half of it is used");
        windows(&mut gradient, 10, 50.0, 20.0);
        assert!((gradient.limit - 28.0).abs() < 1e-9, "0.2·4 a window: {}", gradient.limit);
    }

    #[test]
    fn it_shrinks_when_latency_doubles_and_gets_used_to_it() {
        let mut gradient = Gradient::default();
        windows(&mut gradient, 200, 50.0, 200.0);
        let before = gradient.limit;
        gradient.update(150.0, 200.0);
        // L = 50 + 100·2/601; g = 1.5·L/150.
        let gain = 1.5 * (50.0 + 200.0 / 601.0) / 150.0;
        let expected = 0.8 * before + 0.2 * (before * gain + 4.0);
        assert!((gradient.limit - expected).abs() < 1e-9, "{}", gradient.limit);
        windows(&mut gradient, 1_000, 150.0, 200.0);
        assert!((gradient.limit - 200.0).abs() < 1e-9, "what lasts is the new normal");
    }

    #[test]
    fn a_window_needs_a_second_and_ten_answers() {
        let mut gradient = Gradient::default();
        let at = Instant::from_millis;
        gradient.answered(at(0), 10.0, 1); // the first window begins
        for n in 0..9 {
            gradient.answered(at(100 * n), 10.0, 1);
        }
        assert_eq!(gradient.windows, 0);
        gradient.answered(at(1_000), 10.0, 1);
        assert_eq!((gradient.windows, gradient.long_ms), (1, 10.0));
    }

    #[test]
    fn beyond_the_limit_one_is_refused() {
        let mut gradient = Gradient::default();
        let entered: Vec<_> = (0..22).map(|_| gradient.enter()).collect();
        assert_eq!((entered[19], entered[20]), (Some(20), None));
        gradient.left();
        assert_eq!(gradient.enter(), Some(20));
    }
}
