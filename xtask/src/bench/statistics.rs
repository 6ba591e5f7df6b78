//! Summaries of few, skewed measurements without assuming their distribution.

/// The middle of `values`: the mean of the two middle ones when their count is even.
///
/// # Panics
/// When `values` is empty.
pub(crate) fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// Smallest and largest value.
///
/// # Panics
/// When `values` is empty.
pub(crate) fn range(values: &[f64]) -> (f64, f64) {
    let sorted = sorted(values);
    (sorted[0], sorted[sorted.len() - 1])
}

/// An interval that covers the true median with at least 95 % probability, whatever the
/// distribution; nothing for fewer than six values.
///
/// The interval between the k-th smallest and the k-th largest of n independent values misses the
/// median with probability `2 P(Binomial(n, 1/2) < k)` (the sign test inverted; Conover, Practical
/// Nonparametric Statistics, 3.2). A bootstrap of so few values would cover less than it promises,
/// and a t interval would trust a normal shape that CPU times on a shared machine do not have.
pub(crate) fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    let count = sorted.len();
    let depth = (1..=count / 2).rev().find(|depth| miss_probability(count, *depth) <= 0.05)?;
    Some((sorted[depth - 1], sorted[count - depth]))
}

/// `2 P(Binomial(count, 1/2) < depth)`.
fn miss_probability(count: usize, depth: usize) -> f64 {
    let mut term = 0.5_f64.powi(i32::try_from(count).expect("rounds are at most a thousand"));
    let mut sum = 0.0;
    for successes in 0..depth {
        sum += term;
        term *= (count - successes) as f64 / (successes + 1) as f64;
    }
    2.0 * sum
}

fn sorted(values: &[f64]) -> Vec<f64> {
    assert!(!values.is_empty(), "a summary needs at least one value");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 10.0]), 3.0);
        assert_eq!(range(&[4.0, 1.0, 10.0, 2.0]), (1.0, 10.0));
    }

    /// Ranks from the table of the sign test: n = 6 → 1, 9 → 2, 12 → 3, 20 → 6, 50 → 18.
    #[test]
    fn the_interval_has_the_ranks_of_the_sign_test() {
        for (count, depth) in [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (20, 6), (50, 18)] {
            let values: Vec<f64> = (1..=count).map(f64::from).collect();
            let expected = (f64::from(depth), f64::from(count + 1 - depth));
            assert_eq!(median_interval(&values), Some(expected), "{count} values");
        }
        assert_eq!(median_interval(&[1.0; 5]), None);
    }

    #[test]
    fn the_chance_to_miss_is_the_binomial_tail() {
        assert_eq!(miss_probability(6, 1), 2.0 / 64.0);
        assert_eq!(miss_probability(9, 2), 2.0 * 10.0 / 512.0);
    }
}
