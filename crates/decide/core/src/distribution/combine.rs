//! How likely one of several independent answers, or a quorum of them, is in time.
//!
//! The chances are those of the single answers at one latency bound, so that each may have its
//! own bound (a farther replica has less time left). Zoolander (ICAC'13) predicts its service
//! level as `at_least(1, …)`; the quorum of "Take me to your leader!" is [`at_least`] with
//! `majority - 1` of the others, which replaces the paper's inclusion-exclusion over subsets.

use crate::units::Probability;

/// The probability that at least `wanted` of these independent events happen (the upper tail of
/// the Poisson binomial distribution), in `O(wanted * chances)`.
pub fn at_least(wanted: usize, chances: &[Probability]) -> Probability {
    if wanted > chances.len() {
        return Probability::ZERO;
    }
    let mut reached = vec![0.0; wanted + 1];
    at_least_in(&mut reached, chances.iter().map(|chance| chance.value()))
}

/// As [`at_least`] with `reached.len() - 1` wanted; `reached` is scratch space.
///
/// `reached[j]` is the probability that exactly `j` of the events so far happened, or for the
/// last `j` that many or more. Only sums and products of probabilities: no cancellation.
pub(super) fn at_least_in(reached: &mut [f64], chances: impl Iterator<Item = f64>) -> Probability {
    let wanted = reached.len() - 1;
    reached.fill(0.0);
    reached[0] = 1.0;
    if wanted == 0 {
        return Probability::ONE;
    }
    for chance in chances {
        reached[wanted] += reached[wanted - 1] * chance;
        for j in (1..wanted).rev() {
            reached[j] = reached[j] * (1.0 - chance) + reached[j - 1] * chance;
        }
        reached[0] *= 1.0 - chance;
    }
    Probability::clamped(reached[wanted])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Adds the probabilities of all outcomes in which enough events happen.
    fn by_enumeration(wanted: usize, chances: &[f64]) -> f64 {
        (0_u32..1 << chances.len())
            .filter(|outcome| outcome.count_ones() as usize >= wanted)
            .map(|outcome| {
                let happens = |i: usize| outcome >> i & 1 == 1;
                let factor = |(i, &p): (usize, &f64)| if happens(i) { p } else { 1.0 - p };
                chances.iter().enumerate().map(factor).product::<f64>()
            })
            .sum()
    }

    fn probabilities(values: &[f64]) -> Vec<Probability> {
        values.iter().map(|&value| Probability::new(value).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn equals_the_enumeration_of_all_outcomes(
            chances in prop::collection::vec(0.0..=1.0_f64, 0..9),
            wanted in 0..10_usize,
        ) {
            let expected = by_enumeration(wanted, &chances);
            let reported = at_least(wanted, &probabilities(&chances)).value();
            prop_assert!((reported - expected).abs() < 1e-13, "{reported} is not {expected}");
        }

        #[test]
        fn any_is_the_complement_of_the_product(
            chances in prop::collection::vec(0.0..=1.0_f64, 0..40),
        ) {
            let expected = 1.0 - chances.iter().map(|p| 1.0 - p).product::<f64>();
            prop_assert!((at_least(1, &probabilities(&chances)).value() - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn a_quorum_of_three_is_the_formula_of_the_leader_paper() {
        // Majority 2 of 3 voters: the leader itself and the faster of the two others.
        let (v, w) = (0.9, 0.6);
        let quorum = at_least(1, &probabilities(&[v, w])).value();
        assert!((quorum - (v + w - v * w)).abs() < 1e-15);
    }
}
