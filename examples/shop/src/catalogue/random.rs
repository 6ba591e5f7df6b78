//! Numbers that look random and depend on nothing but a seed.
//!
//! SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014): one
//! addition and a mixing function. Each person and each item has a stream of its own, so that the
//! first items of a large catalogue differ from a small one's only in who bids.

/// A stream of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream of the thing `number` among things of sort `sort` in the catalogue of `seed`.
    pub(crate) fn of(seed: u32, sort: u32, number: u32) -> Self {
        let start = mix(u64::from(seed)).wrapping_add(u64::from(sort) << 32 | u64::from(number));
        Self(mix(start))
    }

    /// 32 uniform bits.
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.0) >> 32) as u32
    }

    /// Uniform in 0..`limit`; the bias of multiplying is below `limit` / 2^32.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        assert!(limit > 0, "there is no number below 0");
        ((u64::from(self.bits()) * u64::from(limit)) >> 32) as u32
    }

    /// Uniform from `low` to `high`, both possible.
    pub(crate) fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    /// A time span below `limit` seconds.
    pub(crate) fn seconds(&mut self, limit: i64) -> i64 {
        self.below(u32::try_from(limit).expect("spans here are days")).into()
    }

    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(u32::try_from(all.len()).expect("short lists")) as usize]
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_published_generator() {
        // First outputs for state 0, as computed by the reference implementation in C
        // (prng.di.unimi.it/splitmix64.c): e220a8397b1dcdaf, 6e789e6aa1b965f4, 06c45d188009454f.
        let mut random = Random(0);
        assert_eq!(
            [random.bits(), random.bits(), random.bits()],
            [0xe220_a839, 0x6e78_9e6a, 0x06c4_5d18]
        );
    }

    #[test]
    fn stays_below_its_limit_and_reaches_every_number() {
        let mut random = Random::of(1, 2, 3);
        let mut seen = [0_u32; 6];
        for _ in 0..6_000 {
            seen[random.below(6) as usize] += 1;
        }
        // Binomial with mean 1000 and standard deviation 29: six of them are not left by chance.
        assert!(seen.iter().all(|count| (820..1180).contains(count)), "{seen:?}");
    }
}
