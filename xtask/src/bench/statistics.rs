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

/// How often rounds are drawn anew for an interval.
const RESAMPLES: usize = 1000;

/// The least value that a `share` of all values does not exceed, those of several sorted lists
/// together; nothing when there are none.
pub(crate) fn pooled_quantile(sorted: &[&[u64]], share: f64) -> Option<u64> {
    let count: usize = sorted.iter().map(|list| list.len()).sum();
    let rank = ((count as f64 * share).ceil() as usize).clamp(1, count.max(1));
    // Only so many of the largest can be among those above it.
    let above = (count + 1).checked_sub(rank)?;
    let tails = sorted.iter().flat_map(|list| &list[list.len().saturating_sub(above)..]);
    let mut tails: Vec<u64> = tails.copied().collect();
    tails.sort_unstable();
    tails.get(tails.len().checked_sub(above)?).copied()
}

/// An interval that covers what `statistic` says of all rounds with about 95 % probability: the
/// percentiles of what it says of as many rounds drawn with replacement (Efron's bootstrap).
///
/// Rounds are drawn whole, since requests of one round share what happened in it. Of six rounds it
/// covers less than it promises; [`median_interval`] beside it does not.
pub(crate) fn bootstrap_interval(
    rounds: usize,
    statistic: impl Fn(&[usize]) -> f64,
) -> Option<(f64, f64)> {
    let mut draws = Draws(0);
    let mut values = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let drawn: Vec<usize> = (0..rounds).map(|_| draws.below(rounds)).collect();
        values.push(statistic(&drawn));
    }
    if values.iter().any(|value| value.is_nan()) {
        return None;
    }
    values.sort_by(f64::total_cmp);
    Some((values[RESAMPLES / 40], values[RESAMPLES - 1 - RESAMPLES / 40]))
}

/// Random numbers of a seed: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), the same each time.
#[derive(Debug)]
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    /// Uniform in `0..bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        ((u128::from(bits) * bound as u128) >> 64) as usize
    }
}

/// In words: the median, and smallest and largest value.
pub(crate) fn spread(values: &[f64]) -> String {
    let (min, max) = range(values);
    format!("{:.2} ({min:.2}-{max:.2})", median(values))
}

/// In words: the median, and its interval.
///
/// # Panics
/// When there are too few values for one: options that ask for so few rounds are refused.
pub(crate) fn interval(values: &[f64], digits: usize) -> String {
    let (low, high) = median_interval(values).expect("options with too few rounds are refused");
    format!("{:.digits$} ({low:.digits$}-{high:.digits$})", median(values))
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
    fn a_quantile_of_several_lists_is_that_of_all_their_values() {
        let lists: [&[u64]; 3] = [&[1, 4, 7, 10], &[], &[2, 3, 5, 6, 8, 9]];
        for (share, expected) in [(0.0, 1), (0.1, 1), (0.11, 2), (0.5, 5), (0.95, 10), (1.0, 10)] {
            assert_eq!(pooled_quantile(&lists, share), Some(expected), "{share}");
        }
        assert_eq!(pooled_quantile(&[&[], &[]], 0.5), None);
    }

    #[test]
    fn an_interval_over_rounds_has_what_rounds_say() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let mean = |rounds: &[usize]| {
            rounds.iter().map(|round| values[*round]).sum::<f64>() / rounds.len() as f64
        };
        // By the central limit: 4.5 ± 1.96 · 2.29 / √8.
        let (low, high) = bootstrap_interval(values.len(), mean).unwrap();
        assert!((2.7..3.2).contains(&low) && (5.8..6.3).contains(&high), "{low} {high}");
        assert_eq!(bootstrap_interval(3, |_| f64::NAN), None);
    }

    #[test]
    fn draws_are_spread_over_their_range() {
        let mut draws = Draws(7);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[draws.below(10)] += 1;
        }
        // Each 1000 ± 30 (one standard deviation).
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_chance_to_miss_is_the_binomial_tail() {
        assert_eq!(miss_probability(6, 1), 2.0 / 64.0);
        assert_eq!(miss_probability(9, 2), 2.0 * 10.0 / 512.0);
    }
}
