//! Residual latencies of the last minutes, with exponential forgetting.

use crate::curve::{RESIDUAL_BINS_MAX, Residual};
use evenkeel_core::time::{Duration, Instant};

/// Time constants after which weights are scaled back: `e^60` leaves an f64 room for sums.
const RESCALE_AGES: f64 = 60.0;

/// Residuals by bin. A sample `memory` old weighs `1/e`.
///
/// Instead of lightening all old samples it makes each new one heavier, and scales back rarely.
/// Memory: 8 bytes up to the highest bin met, 32 KiB at most.
#[derive(Clone, Debug)]
pub(super) struct History {
    memory: Duration,
    bins: Vec<f64>,
    beyond: f64,
    origin: Instant,
    samples: u64,
}

impl History {
    pub(super) fn new(memory: Duration) -> Self {
        Self { memory, bins: Vec::new(), beyond: 0.0, origin: Instant::ZERO, samples: 0 }
    }

    pub(super) fn record(&mut self, at: Instant, residual: Duration) {
        if self.samples == 0 {
            self.origin = at;
        }
        self.rescale(at);
        let weight = libm::exp(self.age(at));
        match Residual::bin(residual) {
            Some(bin) => {
                if self.bins.len() <= bin {
                    self.bins.resize(bin + 1, 0.0);
                }
                self.bins[bin] += weight;
            }
            None => self.beyond += weight,
        }
        self.samples += 1;
    }

    /// Takes over another history, its residuals longer by whole bins.
    pub(super) fn absorb(&mut self, mut other: Self, longer_bins: usize) {
        if other.samples == 0 {
            return;
        }
        let origin = self.origin.max(other.origin);
        self.scale_to(origin);
        other.scale_to(origin);
        for (bin, weight) in other.bins.iter().enumerate() {
            let bin = bin.saturating_add(longer_bins);
            if *weight > 0.0 && bin >= self.bins.len() {
                self.bins.resize((bin + 1).min(RESIDUAL_BINS_MAX), 0.0);
            }
            match self.bins.get_mut(bin) {
                Some(mine) => *mine += weight,
                None => self.beyond += weight,
            }
        }
        self.beyond += other.beyond;
        self.samples += other.samples;
    }

    pub(super) fn memory(&self) -> Duration {
        self.memory
    }

    /// How many samples were ever recorded.
    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// The weighted share of residuals of at least this, rounded up to bins; `None` before the
    /// first sample.
    pub(super) fn share_from(&self, residual: Duration) -> Option<f64> {
        let first = Residual::bin(residual).unwrap_or(RESIDUAL_BINS_MAX);
        let weight = |from: usize| self.bins.iter().skip(from).sum::<f64>() + self.beyond;
        let total = weight(0);
        (total > 0.0).then(|| weight(first) / total)
    }

    /// `None` before the first sample.
    pub(super) fn residual(&self) -> Option<Residual> {
        Residual::from_weights(&self.bins, self.beyond)
    }

    /// The bins' bytes, for the test of the bound.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bins.capacity() * size_of::<f64>()
    }

    fn age(&self, at: Instant) -> f64 {
        at.since(self.origin).as_secs_f64() / self.memory.as_secs_f64()
    }

    fn rescale(&mut self, at: Instant) {
        if self.age(at) > RESCALE_AGES {
            self.scale_to(at);
        }
    }

    fn scale_to(&mut self, origin: Instant) {
        let factor = libm::exp(-self.age(origin));
        self.bins.iter_mut().for_each(|weight| *weight *= factor);
        self.beyond *= factor;
        self.origin = origin;
    }
}
