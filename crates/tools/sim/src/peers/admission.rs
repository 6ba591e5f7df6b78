//! Admission control by success rate, as Envoy's filter of that name does it.
//!
//! **Signal**: of the requests of the last 30 s, n in all and s that succeeded. **Equation**: with
//! the wanted success rate r = 0.95, a request is refused with probability
//!
//! ```text
//! min( 0.8, (n − s/r) / (n + 1) )
//! ```
//!
//! which is the client-side throttling of Google's SRE book (chapter 21: (n − K·s)/(n + 1)) with
//! K = 1/r. Refusals are not counted. A request whose client has left counts as failed, as it does
//! in a proxy whose stream is reset. So does an answer that comes after the client's time limit,
//! also where the balancer goes on waiting for it: the failure is counted when the limit passes,
//! and the answer is not counted again. **When it misleads**: slowness is no failure, so it acts
//! only once clients give up; and half a minute of failures is remembered for half a minute.
//! **Source**: Envoy, `extensions/filters/http/admission_control`, with its defaults: window 30 s,
//! success rate 95 %, aggression 1, at most 80 % refused.

use std::collections::VecDeque;

use evenkeel_core::{Instant, Rng};

const WANTED: f64 = 0.95;
const REFUSED_MAX: f64 = 0.8;
const BUCKETS: usize = 30;
const BUCKET_NANOS: u64 = 1_000_000_000;

/// Refuses at random while too few succeed.
#[derive(Clone, Debug)]
pub struct Admission {
    rng: Rng,
    buckets: VecDeque<Counts>,
    /// Number of the newest bucket since the beginning.
    newest: u64,
    window: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    all: u32,
    good: u32,
}

impl Admission {
    /// One that has seen nothing yet.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::stream(seed, "admission"),
            buckets: VecDeque::from([Counts::default()]),
            newest: 0,
            window: Counts::default(),
        }
    }

    /// Whether a request is let in.
    pub fn admits(&mut self, now: Instant) -> bool {
        self.forget(now);
        self.rng.unit() >= self.refusal()
    }

    /// A request that was let in has ended, well or not.
    pub fn ended(&mut self, now: Instant, is_good: bool) {
        self.forget(now);
        let newest = self.buckets.back_mut().expect("there is always a newest bucket");
        for counts in [newest, &mut self.window] {
            counts.all += 1;
            counts.good += u32::from(is_good);
        }
    }

    fn refusal(&self) -> f64 {
        let (all, good) = (f64::from(self.window.all), f64::from(self.window.good));
        ((all - good / WANTED) / (all + 1.0)).clamp(0.0, REFUSED_MAX)
    }

    fn forget(&mut self, now: Instant) {
        let newest = now.as_nanos() / BUCKET_NANOS;
        while self.newest < newest {
            if self.window.all == 0 {
                self.newest = newest; // nothing to forget
                self.buckets.clear();
            } else {
                self.newest += 1;
            }
            self.buckets.push_back(Counts::default());
            if self.buckets.len() > BUCKETS
                && let Some(old) = self.buckets.pop_front()
            {
                self.window.all -= old.all;
                self.window.good -= old.good;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(at: u64) -> Instant {
        Instant::from_millis(at * 1_000)
    }

    #[test]
    fn the_share_refused_is_what_the_equation_says() {
        let mut admission = Admission::new(1);
        for n in 0..1_000 {
            admission.ended(seconds(0), n % 2 == 0);
        }
        let truth = (1_000.0 - 500.0 / 0.95) / 1_001.0;
        let refused = (0..10_000).filter(|_| !admission.admits(seconds(1))).count() as f64;
        // Binomial: standard deviation 50; four of them.
        assert!((refused - truth * 1e4).abs() < 200.0, "{refused}");
    }

    #[test]
    fn all_failing_leaves_a_fifth_and_half_a_minute_forgets() {
        let mut admission = Admission::new(1);
        (0..1_000).for_each(|_| admission.ended(seconds(3), false));
        assert!((admission.refusal() - 0.8).abs() < 1e-12);
        admission.forget(seconds(32));
        assert!(admission.refusal() > 0.7);
        admission.forget(seconds(33));
        assert_eq!(admission.refusal(), 0.0);
        admission.forget(seconds(1_000_000_000));
        assert!(admission.buckets.len() <= BUCKETS);
    }

    #[test]
    fn success_above_what_is_wanted_refuses_nobody() {
        let mut admission = Admission::new(1);
        (0..1_000).for_each(|n| admission.ended(seconds(0), n % 25 != 0)); // 96 %
        assert!((0..1_000).all(|_| admission.admits(seconds(0))));
    }
}
