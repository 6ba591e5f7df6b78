//! The latency-aware policy of the Datastax driver, around round robin over all replicas.
//!
//! **Signal**: response times of each replica. **Statistic**: an average that forgets by the time
//! between answers d with scale s = 100 ms: the previous value weighs `ln(d/s + 1) / (d/s)`.
//! **Rule**: replicas whose average is more than twice that of the fastest are left out; one that
//! has not answered for 10 s is tried again, and one with fewer than 50 answers is not judged.
//! **When it misleads**: response times hold the distance, so everything far is left out until the
//! near is as slow; then all clients change their minds at once. **Source**: `LatencyAwarePolicy`
//! of the Datastax Java driver 3, with its defaults; named and so set in the Kurma paper
//! (section 7.1.1: exclusion threshold 2.0, retry period 10 s).

use evenkeel_core::request::select::{Candidates, Choice, Selector};
use evenkeel_core::request::{Attempt, Outcome};
use evenkeel_core::{Duration, Fleet, Instant, Rng};

const THRESHOLD: f64 = 2.0;
const SCALE_MS: f64 = 100.0;
const RETRY: Duration = Duration::from_secs(10);
const UPDATE: Duration = Duration::from_millis(100);
const MEASURED_MIN: u64 = 50;

/// Leaves out what is much slower than the fastest, and goes round among the others.
#[derive(Clone, Debug, Default)]
pub struct LatencyAware {
    averages: Vec<Average>,
    fastest_ms: Option<f64>,
    updated_at: Instant,
    next: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Average {
    ms: f64,
    at: Instant,
    measured: u64,
}

impl Average {
    fn learn(&mut self, now: Instant, latency_ms: f64) {
        self.measured += 1;
        // The driver leaves out the first ones: connections are cold.
        if self.measured <= MEASURED_MIN * 3 / 10 {
            return;
        }
        let delay = now.millis_since(self.at) / SCALE_MS;
        let kept = if self.ms == 0.0 {
            0.0
        } else if delay > 0.0 {
            (delay + 1.0).ln() / delay
        } else {
            1.0
        };
        self.ms = (1.0 - kept) * latency_ms + kept * self.ms;
        self.at = now;
    }

    fn is_judged(&self, now: Instant) -> bool {
        self.measured >= MEASURED_MIN && now.since(self.at) <= RETRY
    }
}

impl LatencyAware {
    /// Its name in scenarios.
    pub const NAME: &str = "latency-aware";

    fn update(&mut self, now: Instant) {
        self.updated_at = now;
        let judged = self.averages.iter().filter(|average| average.is_judged(now));
        self.fastest_ms = judged.map(|average| average.ms).min_by(f64::total_cmp);
    }

    fn is_left_out(&self, now: Instant, replica: usize) -> bool {
        let average = &self.averages[replica];
        let fastest_ms = self.fastest_ms.unwrap_or(f64::INFINITY);
        average.is_judged(now) && average.ms > THRESHOLD * fastest_ms
    }
}

impl Selector for LatencyAware {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, _rng: &mut Rng) -> Choice {
        if now.since(self.updated_at) >= UPDATE {
            self.update(now);
        }
        self.next = self.next.wrapping_add(1);
        let ids = candidates.ids;
        let turns = (0..ids.len()).map(|turn| ids[(self.next + turn) % ids.len()]);
        let trusted = turns.clone().find(|id| !self.is_left_out(now, id.index()));
        Choice::Send(trusted.unwrap_or(ids[self.next % ids.len()]))
    }

    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, _fleet: &Fleet) {
        if matches!(outcome, Outcome::Replied(_)) {
            self.averages[of.replica().index()].learn(now, now.millis_since(of.sent_at()));
        }
    }

    fn on_membership(&mut self, _now: Instant, fleet: &Fleet) {
        self.averages.resize(fleet.len(), Average::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_forgets_by_time_as_the_driver_says() {
        let mut average = Average { measured: MEASURED_MIN, ..Average::default() };
        average.learn(Instant::from_millis(1_000), 10.0);
        average.learn(Instant::from_millis(1_100), 20.0);
        // After one scale the previous value weighs ln 2.
        let expected = (1.0 - 2.0_f64.ln()) * 20.0 + 2.0_f64.ln() * 10.0;
        assert!((average.ms - expected).abs() < 1e-9, "{average:?}");
    }

    #[test]
    fn what_is_twice_as_slow_is_left_out_and_tried_again_after_ten_seconds() {
        let at = |ms, seconds: u64| Average {
            ms,
            at: Instant::from_millis(seconds * 1_000),
            measured: MEASURED_MIN,
        };
        let averages = vec![at(4.0, 20), at(9.0, 20), at(9.0, 5), at(7.9, 20)];
        let mut policy = LatencyAware { averages, ..LatencyAware::default() };
        policy.update(Instant::from_millis(20_000));
        let left_out = [0, 1, 2, 3].map(|n| policy.is_left_out(policy.updated_at, n));
        assert_eq!(left_out, [false, true, false, false]);
    }
}
