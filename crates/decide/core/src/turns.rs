//! Things in a row that are dealt out in proportion, exactly: weights of routes, shares of copies.
//!
//! Nothing is drawn: of 100 requests at weights 99 and 1 one goes to the second, whatever the seed.

/// Turns in proportion to weights, by smooth weighted round-robin: at no time has anybody had a
/// turn more or less than is due to it, but for as many as there are others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turns {
    /// Each with what it is owed.
    weights: Vec<(u32, i64)>,
}

impl Turns {
    /// Turns by these weights.
    ///
    /// # Panics
    /// When no weight is above 0.
    pub fn new(weights: impl IntoIterator<Item = u32>) -> Self {
        let weights: Vec<(u32, i64)> = weights.into_iter().map(|weight| (weight, 0)).collect();
        assert!(weights.iter().any(|(weight, _)| *weight > 0), "somebody has a turn");
        Self { weights }
    }

    /// Whose turn it is, by its place among the weights. Everybody is owed its weight; who is owed
    /// most has the turn and pays what was given.
    pub fn turn(&mut self) -> usize {
        let (mut most, mut sum) = (None, 0);
        for (place, (weight, owed)) in self.weights.iter_mut().enumerate() {
            *owed += i64::from(*weight);
            sum += i64::from(*weight);
            if *weight > 0 && most.is_none_or(|(_, greatest)| *owed > greatest) {
                most = Some((place, *owed));
            }
        }
        let (place, _) = most.expect("somebody has a weight");
        self.weights[place].1 -= sum;
        place
    }
}

/// A share of things in a row.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Share {
    owed: f64,
}

impl Share {
    /// Whether the next thing is of the share, from 0 to 1.
    pub fn takes(&mut self, share: f64) -> bool {
        self.owed += share;
        let takes = self.owed >= 1.0;
        if takes {
            self.owed -= 1.0;
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn turns_are_in_proportion_to_weights(
            weights in prop::collection::vec(0u32..50, 1..6).prop_filter(
                "somebody has a turn",
                |weights| weights.iter().any(|weight| *weight > 0),
            ),
            count in 1u32..300,
        ) {
            let (mut turns, mut had) = (Turns::new(weights.clone()), vec![0u32; weights.len()]);
            (0..count).for_each(|_| had[turns.turn()] += 1);
            let sum: u32 = weights.iter().sum();
            for (had, weight) in had.into_iter().zip(&weights) {
                let due = f64::from(count * weight) / f64::from(sum);
                let difference = (f64::from(had) - due).abs();
                prop_assert!(difference <= weights.len() as f64, "{had} of {due}");
                prop_assert!(count % sum != 0 || f64::from(had) == due, "{had} of {due}");
            }
        }

        #[test]
        fn a_share_is_kept_exactly(share in 0.0f64..=1.0, count in 1u32..2_000) {
            let mut taker = Share::default();
            let taken = (0..count).filter(|_| taker.takes(share)).count() as f64;
            prop_assert!((taken - share * f64::from(count)).abs() <= 1.0 + 1e-6);
        }
    }
}
