//! The non-decreasing sequence nearest to a measured one.
//!
//! Measured violation rates wobble: a load step may by chance look better than the step before.
//! Bounds and the role lemma of the solver need curves that never fall, and the least-squares fit
//! among them is unique, so that every data centre computes the same one.

/// Runs of equal fitted values: the weighted mean and weight so far, and how many values it covers.
struct Block {
    mean: f64,
    weight: f64,
    len: usize,
}

/// Replaces `values` by the non-decreasing sequence with the least weighted squared distance
/// (pool adjacent violators, linear time).
///
/// Order between sequences is kept: fits of `a <= b` with equal weights are ordered alike.
///
/// # Panics
/// When the lengths differ or a weight is not above zero: both are the caller's own numbers.
pub fn isotonic(values: &mut [f64], weights: &[f64]) {
    assert_eq!(values.len(), weights.len(), "isotonic: one weight for each value");
    let mut blocks: Vec<Block> = Vec::with_capacity(values.len());
    for (&mean, &weight) in values.iter().zip(weights) {
        assert!(weight > 0.0, "isotonic: a weight above zero");
        blocks.push(Block { mean, weight, len: 1 });
        pool(&mut blocks);
    }
    let fitted = blocks.iter().flat_map(|block| core::iter::repeat_n(block.mean, block.len));
    values.iter_mut().zip(fitted).for_each(|(value, fitted)| *value = fitted);
}

/// Joins the last blocks until they rise.
fn pool(blocks: &mut Vec<Block>) {
    while let [.., before, last] = blocks.as_mut_slice() {
        if before.mean <= last.mean {
            break;
        }
        let weight = before.weight + last.weight;
        before.mean += (last.mean - before.mean) * (last.weight / weight);
        before.weight = weight;
        before.len += last.len;
        blocks.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The min-max formula, cubic and obvious: `fit[i] = max over a <= i of min over b >= i of the
    /// mean of a..=b`.
    fn model(values: &[f64], weights: &[f64]) -> Vec<f64> {
        let mean = |a: usize, b: usize| {
            let weight: f64 = weights[a..=b].iter().sum();
            (a..=b).map(|k| values[k] * weights[k]).sum::<f64>() / weight
        };
        let least = |a: usize, i: usize| {
            (i..values.len()).map(|b| mean(a, b)).fold(f64::INFINITY, f64::min)
        };
        (0..values.len())
            .map(|i| (0..=i).map(|a| least(a, i)).fold(f64::NEG_INFINITY, f64::max))
            .collect()
    }

    proptest! {
        #[test]
        fn equals_the_min_max_formula(
            points in prop::collection::vec((0.0..1.0_f64, 0.1..100.0_f64), 0..30),
        ) {
            let (mut values, weights): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
            let expected = model(&values, &weights);
            isotonic(&mut values, &weights);
            prop_assert!(values.is_sorted());
            for (value, expected) in values.iter().zip(&expected) {
                prop_assert!((value - expected).abs() < 1e-12, "{values:?} {expected:?}");
            }
        }

        #[test]
        fn keeps_the_order_of_two_sequences(
            points in prop::collection::vec((0.0..1.0_f64, 0.0..1.0_f64, 0.1..9.0_f64), 1..30),
        ) {
            let weights: Vec<f64> = points.iter().map(|point| point.2).collect();
            let mut lower: Vec<f64> = points.iter().map(|point| point.0.min(point.1)).collect();
            let mut upper: Vec<f64> = points.iter().map(|point| point.0.max(point.1)).collect();
            isotonic(&mut lower, &weights);
            isotonic(&mut upper, &weights);
            prop_assert!(lower.iter().zip(&upper).all(|(low, high)| *low <= high + 1e-12));
        }
    }
}
