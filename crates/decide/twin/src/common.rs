//! What the works of two copies of a request have in common: the correlation of their scores.
//!
//! Copies that were given up count for what they exceed: to leave them out would leave out long
//! ones, and copies that are all short have less in common. A copy is given up when another
//! answers, whose work has something in common with it; so all copies of a request are looked at
//! together. Scores are normal, every two copies have the same correlation, and the likelihood of
//! all that was seen is greatest at the truth (maximum likelihood for censored values; Kalbfleisch
//! and Prentice, 2002, chapter 3).

use evenkeel_core::distribution::normal;

/// A normal score, and whether the copy was given up there: then it would have been more.
pub type Score = (f64, bool);

/// Correlations above this one are not told apart from 1.
const MOST: f64 = 0.999;
/// Each step leaves 0.618 of the range: 0.001 of it after fifteen.
const STEPS: usize = 15;

/// The correlation that explains these copies of requests best: 0 to 1. Requests are of any number
/// of copies, and a single one says nothing.
pub fn correlation(requests: &[Vec<Score>]) -> f64 {
    let likelihood =
        |common: f64| requests.iter().map(|copies| of_one(copies, common)).sum::<f64>();
    // By golden sections: the likelihood has one top.
    let golden = (5.0_f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (0.0, MOST);
    let inner = |low: f64, high: f64| [high - golden * (high - low), low + golden * (high - low)];
    let [mut left, mut right] = inner(low, high);
    let [mut of_left, mut of_right] = [likelihood(left), likelihood(right)];
    for _ in 0..STEPS {
        if of_left > of_right {
            (high, right, of_right) = (right, left, of_left);
            left = inner(low, high)[0];
            of_left = likelihood(left);
        } else {
            (low, left, of_left) = (left, right, of_right);
            right = inner(low, high)[1];
            of_right = likelihood(right);
        }
    }
    low.midpoint(high)
}

/// The logarithm of the likelihood of one request's copies: each given those before it, and those
/// that were given up last.
fn of_one(copies: &[Score], common: f64) -> f64 {
    let (mut sum, mut known, mut log) = (0.0, 0.0, 0.0);
    // What others with the same correlation say of one more.
    let given = |sum: f64, known: f64| {
        let each = common / (1.0 + (known - 1.0) * common);
        let variance = 1.0 - known * common * each;
        if known > 0.0 { (each * sum, variance.max(1e-9).sqrt()) } else { (0.0, 1.0) }
    };
    for (score, _) in copies.iter().filter(|(_, is_cut)| !is_cut) {
        let (mean, deviation) = given(sum, known);
        let off = (score - mean) / deviation;
        log -= off * off / 2.0 + deviation.ln();
        (sum, known) = (sum + score, known + 1.0);
    }
    let (mean, deviation) = given(sum, known);
    for (score, _) in copies.iter().filter(|(_, is_cut)| *is_cut) {
        log += normal::cdf((mean - score) / deviation).max(1e-300).ln();
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Rng;

    /// Pairs of a day with hedges: a third copy leaves after a delay, and who loses is given up.
    fn hedged(truth: f64, count: usize, rng: &mut Rng) -> Vec<Vec<Score>> {
        let delay = 3.0_f64;
        let mut request = |_| {
            let own = truth.sqrt() * rng.normal();
            let mut score = || own + (1.0 - truth).sqrt() * rng.normal();
            let (first, pair, hedge) = (score(), score(), score());
            let (first_ends, hedge_ends) = (first.exp(), delay + hedge.exp());
            if first_ends <= delay {
                vec![(first, false), (pair, false)]
            } else if first_ends <= hedge_ends {
                vec![(first, false), (pair, false), ((first_ends - delay).ln(), true)]
            } else {
                vec![(hedge_ends.ln(), true), (pair, false), (hedge, false)]
            }
        };
        (0..count).map(&mut request).collect()
    }

    #[test]
    fn copies_given_up_for_hedges_do_not_hide_what_copies_have_in_common() {
        let mut rng = Rng::seeded(5);
        for truth in [0.0, 0.3, 0.5, 0.8, 1.0] {
            let requests = hedged(truth, 20_000, &mut rng);
            let found = correlation(&requests);
            // Three standard errors of so many pairs.
            assert!((found - truth).abs() < 0.02, "{found} where {truth} is true");
        }
    }

    #[test]
    fn nothing_and_nonsense_say_nothing_and_break_nothing() {
        assert!((0.0..=1.0).contains(&correlation(&[])));
        let wild = vec![vec![(40.0, false), (-40.0, false), (38.0, true), (40.0, true)], vec![]];
        assert!((0.0..=1.0).contains(&correlation(&wild)));
        let cut = vec![vec![(1.0, true), (2.0, true)]; 40];
        assert!((0.0..=1.0).contains(&correlation(&cut)));
    }
}
