//! How many replicas are worth their price.
//!
//! Each further replica gains less, mostly: early ones halve the latency, from about ten on nothing
//! changes (figure 11 of the paper). The gain is not always falling, so the number that is worth
//! its price is looked for over all numbers, not until the first that is not.

use core::ops::RangeInclusive;

use super::super::model::{Counts, RoundTrips};
use super::place;
use super::question::{NoPlacement, Placed, Question};

/// The best placements for a range of numbers of replicas.
#[derive(Clone, PartialEq, Debug)]
pub struct Worth {
    /// By number of replicas, rising by one.
    pub by_replicas: Vec<Placed>,
}

/// Places every number of replicas of a range, with the voters of the question or, where there are
/// fewer replicas, as many.
///
/// # Errors
/// As [`place`], for the first number that cannot be placed.
pub fn worth(
    counts: &Counts,
    trips: &RoundTrips,
    question: &Question,
    replicas: RangeInclusive<usize>,
) -> Result<Worth, NoPlacement> {
    let one = |replicas: usize| {
        let voters = question.voters.min(replicas);
        place(counts, trips, &Question { replicas, voters, ..question.clone() })
    };
    Ok(Worth { by_replicas: replicas.map(one).collect::<Result<_, _>>()? })
}

impl Worth {
    /// What each number gains beside one fewer, in milliseconds × operations; the first has none.
    /// It may be negative: with route `nearest` a replica far from the leader draws bounded reads.
    #[cfg(test)]
    pub fn gains_ms(&self) -> impl Iterator<Item = f64> {
        self.by_replicas.windows(2).map(|pair| pair[0].score_ms - pair[1].score_ms)
    }

    /// The place in the range of the number that costs least together, at a price for each replica
    /// in milliseconds × operations; ties go to fewer. None for an empty range.
    #[cfg(test)]
    pub fn best_at(&self, price_ms: f64) -> Option<usize> {
        let cost = |place: usize| self.by_replicas[place].score_ms + price_ms * place as f64;
        (0..self.by_replicas.len()).min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
    }
}
