//! Plain load shedding: 503 beyond a fixed number of requests per core.
//!
//! **Signal**: requests present. **Equation**: admit iff present < 8 · cores. The number must suit
//! the work: with a mean of 60 ms of core time, eight on one core take half a second each, and a
//! 95th percentile of a second is about met. **When it misleads**: whenever the work is another.

/// Requests present per core beyond which more are refused.
const PER_CORE: u32 = 8;

/// A fixed limit.
#[derive(Clone, Copy, Debug)]
pub struct Shed {
    limit: u32,
}

impl Shed {
    /// The limit of a replica with these cores.
    pub const fn new(cores: u32) -> Self {
        Self { limit: cores.saturating_mul(PER_CORE) }
    }

    /// Whether one more may join those present.
    pub const fn admits(&self, present: u32) -> bool {
        present < self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ninth_on_a_core_is_one_too_many() {
        let two = Shed::new(2);
        assert!(two.admits(15) && !two.admits(16));
    }
}
