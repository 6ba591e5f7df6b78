//! A service that changes, as figure 5B.

use super::{ms, share};
use crate::duplicates::window::{Access, Closed, Phase, Sampler, Sampling};
use evenkeel_core::rng::Rng;
use evenkeel_core::time::{Duration, Instant, nanos};
use evenkeel_core::units::Probability;

const SAMPLING: Sampling =
    Sampling { samples: 1_000, share: Probability::ONE, faster: 10.0, calm: 2, shards: 3 };

struct Story {
    sampler: Sampler,
    rng: Rng,
    now: Instant,
    counted: u64,
    sampled: u64,
}

impl Story {
    fn new() -> Self {
        let sampling = Sampling { share: share(0.05), ..SAMPLING };
        let sampler = Sampler::new(sampling).unwrap();
        Self { sampler, rng: Rng::seeded(6), now: Instant::ZERO, counted: 0, sampled: 0 }
    }

    /// Accesses of this mean service time, one each millisecond, until a window closes.
    fn window(&mut self, mean_ms: f64) -> Closed {
        loop {
            self.now += ms(1.0);
            self.counted += 1;
            // Shards 0 and 1 have a quarter and three quarters, shard 2 nothing.
            let shard = usize::from(!self.counted.is_multiple_of(4));
            if !self.sampler.count(self.now, shard, &mut self.rng) {
                continue;
            }
            self.sampled += 1;
            let service = ms(mean_ms * self.rng.exponential());
            let access = Access { response: service + ms(1.0), service, network: ms(0.25) };
            if let Some(closed) = self.sampler.learn(self.now, access) {
                return closed;
            }
        }
    }

    /// Windows until it has settled.
    fn settle(&mut self, mean_ms: f64) -> usize {
        (1..50).find(|_| self.window(mean_ms).phase == Phase::Settled).unwrap()
    }
}

#[test]
fn it_settles_notices_a_change_and_settles_again() {
    let mut story = Story::new();
    assert_eq!(story.sampler.phase(), Phase::Settling);
    // The first has nothing to be compared with; two comparisons must agree.
    assert_eq!(story.settle(3.0), 3);
    for _ in 0..5 {
        let closed = story.window(3.0);
        assert_eq!(closed.phase, Phase::Settled);
        assert!(!closed.divergence.unwrap().is_significant());
    }
    let before = story.sampler.share();
    let closed = story.window(6.0);
    assert_eq!(closed.phase, Phase::Settling);
    assert!(closed.divergence.unwrap().is_significant());
    assert_eq!(story.sampler.share().value(), 10.0 * before.value());
    assert_eq!(story.settle(6.0), 2);
    assert_eq!(story.sampler.share(), before);
    let mean = story.window(6.0).window.times().mean_nanos();
    assert!((mean / 6e6 - 1.0).abs() < 0.15, "{mean}");
}

#[test]
fn it_samples_faster_while_it_settles() {
    let mut story = Story::new();
    story.settle(3.0);
    // Half of all accesses are sampled, then one in twenty.
    let fast = story.sampled as f64 / story.counted as f64;
    assert!((fast - 0.5).abs() < 0.05, "{fast}");
    let (counted, sampled) = (story.counted, story.sampled);
    (0..3).for_each(|_| drop(story.window(3.0)));
    let slow = (story.sampled - sampled) as f64 / (story.counted - counted) as f64;
    assert!((slow - 0.05).abs() < 0.005, "{slow}");
}

/// The reference stays: many changes too small to be seen one by one add up.
#[test]
fn a_slow_drift_is_noticed() {
    let mut story = Story::new();
    story.settle(3.0);
    let noticed =
        (1..=20).find(|step| story.window(3.0 * 1.03_f64.powi(*step)).phase == Phase::Settling);
    assert!(noticed.is_some_and(|step| step > 2), "{noticed:?}");
}

#[test]
fn a_window_knows_rates_network_and_times() {
    let mut story = Story::new();
    story.settle(3.0);
    let window = story.window(3.0).window;
    // One access each millisecond, all counted.
    assert!((window.rate().value() / 1_000.0 - 1.0).abs() < 0.001, "{:?}", window.rate());
    let rates: Vec<f64> = window.rates.iter().map(|rate| rate.value()).collect();
    assert!((rates[0] - 250.0).abs() < 1.0 && (rates[1] - 750.0).abs() < 1.0, "{rates:?}");
    assert_eq!(rates[2], 0.0);
    assert_eq!((window.network, window.services().len()), (ms(0.25), 1_000));
    let sum: u64 = window.services().iter().map(|&time| nanos(time)).sum();
    assert!((window.times().mean_nanos() - sum as f64 / 1e3).abs() < 1.0);
    assert_eq!(window.responses.buckets().map(|bucket| bucket.count).sum::<u64>(), 1_000);
    assert!(window.until > window.from);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |sampling| Sampler::new(sampling).is_err();
    assert!(refused(Sampling { samples: 15, ..SAMPLING }));
    assert!(refused(Sampling { share: share(0.0), ..SAMPLING }));
    assert!(refused(Sampling { faster: 0.5, ..SAMPLING }));
    assert!(refused(Sampling { faster: f64::NAN, ..SAMPLING }));
    assert!(refused(Sampling { shards: 0, ..SAMPLING }));
    // All in one instant, of a shard that is not known: no division by zero, no panic.
    let mut sampler = Sampler::new(Sampling { samples: 16, ..SAMPLING }).unwrap();
    let mut rng = Rng::seeded(1);
    let access = Access { response: Duration::MAX, service: Duration::MAX, network: Duration::MAX };
    let closed = (0..16).find_map(|_| {
        assert!(sampler.count(Instant::FAR, 9, &mut rng));
        sampler.learn(Instant::FAR, access)
    });
    assert_eq!(closed.unwrap().window.rate().value(), 0.0);
}
