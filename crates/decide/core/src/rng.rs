//! Randomness that can be replayed: every generator is made from a seed.

use rand_core::{Rng as _, SeedableRng};
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::units::Probability;

/// A seeded generator: xoshiro256++, value-stable across releases and platforms, about 1 ns a draw.
///
/// Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The generator of this seed; equal seeds give equal draws.
    pub fn seeded(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// An independent generator for one named purpose of a run.
    ///
    /// Streams keep the draws of one purpose equal when another draws more or less: two policies
    /// at one seed see the same arrivals (common random numbers).
    pub fn stream(seed: u64, purpose: &str) -> Self {
        // FNV-1a over the name, mixed with the seed; seed_from_u64 spreads it (SplitMix64).
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.rotate_left(32);
        for byte in purpose.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self::seeded(hash ^ seed)
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1).
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Uniform in `0..bound`.
    ///
    /// # Panics
    /// When `bound` is zero: there is nothing to choose from.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "Rng::below: nothing to choose from");
        // Lemire's multiply-shift without the rejection: the bias is below bound / 2^64.
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// True with this probability.
    #[inline]
    pub fn chance(&mut self, probability: Probability) -> bool {
        self.unit() < probability.value()
    }

    /// Exponential with mean 1.
    #[inline]
    pub fn exponential(&mut self) -> f64 {
        Exp1.sample(&mut self.0)
    }

    /// Normal with mean 0 and standard deviation 1.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }

    /// Poisson with this mean, as a count; zero for a mean that is not positive and finite.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        rand_distr::Poisson::new(mean).map_or(0, |poisson| poisson.sample(&mut self.0) as u64)
    }

    /// Puts the slice into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equally_and_streams_differ() {
        let draw = |mut rng: Rng| [rng.bits(), rng.bits(), rng.bits()];
        assert_eq!(draw(Rng::seeded(7)), draw(Rng::seeded(7)));
        assert_eq!(draw(Rng::stream(7, "arrivals")), draw(Rng::stream(7, "arrivals")));
        assert_ne!(draw(Rng::stream(7, "arrivals")), draw(Rng::stream(7, "demand")));
        assert_ne!(draw(Rng::stream(7, "arrivals")), draw(Rng::stream(8, "arrivals")));
    }

    #[test]
    fn below_is_uniform() {
        let mut rng = Rng::seeded(1);
        let mut counts = [0_u32; 3];
        for _ in 0..30_000 {
            counts[rng.below(3)] += 1;
        }
        // Binomial(30000, 1/3): standard deviation 82; five of them.
        assert!(counts.iter().all(|&n| n.abs_diff(10_000) < 410), "{counts:?}");
    }

    #[test]
    fn exponential_has_mean_one() {
        let mut rng = Rng::seeded(2);
        let mean = (0..100_000).map(|_| rng.exponential()).sum::<f64>() / 100_000.0;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }
}
