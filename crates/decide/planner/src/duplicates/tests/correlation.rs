//! Joint outliers of rows whose dependence is known.

use super::{ms, share};
use crate::duplicates::correlation::{Correlation, Verdict};
use crate::duplicates::window::Rows;
use evenkeel_core::rng::Rng;
use evenkeel_core::time::Duration;

/// Rows of exponential times; with this probability all of a row are slow together, and each is
/// slow alone with another.
fn rows(columns: usize, together: f64, alone: f64, count: usize, seed: u64) -> Vec<Vec<Duration>> {
    let mut rng = Rng::seeded(seed);
    let mut row = || {
        let all = rng.chance(share(together));
        let mut time = || {
            let slow = all || rng.chance(share(alone));
            ms(rng.exponential() + if slow { 50.0 } else { 0.0 })
        };
        (0..columns).map(|_| time()).collect()
    };
    (0..count).map(|_| row()).collect()
}

#[test]
fn independent_outliers_are_called_so() {
    let mut alarms = 0;
    for seed in 0..400 {
        let rows = rows(2, 0.0, 0.05, 2_000, seed);
        let reported = Correlation::beyond_quantile(&rows, share(0.95)).unwrap();
        assert!(reported.helps() && reported.verdict != Verdict::Unknown);
        alarms += usize::from(reported.verdict != Verdict::Independent);
    }
    // At most one in a thousand is expected; five have a probability below 1e-4.
    assert!(alarms < 5, "{alarms} alarms of 400");
}

#[test]
fn coinciding_outliers_are_called_so() {
    let rows = rows(3, 0.03, 0.002, 10_000, 1);
    let reported = Correlation::beyond_bound(&rows, ms(30.0)).unwrap();
    assert_eq!((reported.verdict, reported.helps()), (Verdict::Coincide, false));
    assert!(reported.by_chance.value() < 1e-6);
    // 3 % of 3.2 % coincide: about a fifteenth is masked.
    assert!((reported.masked.value() - 0.06).abs() < 0.04, "{reported:?}");
    assert!(
        reported.describe().starts_with("duplicates do not help here"),
        "{}",
        reported.describe()
    );
}

#[test]
fn what_depends_a_little_still_helps() {
    let rows = rows(2, 0.01, 0.04, 10_000, 2);
    let reported = Correlation::beyond_bound(&rows, ms(30.0)).unwrap();
    assert_eq!((reported.verdict, reported.helps()), (Verdict::Dependent, true));
    assert!((0.7..0.85).contains(&reported.masked.value()), "{reported:?}");
    // A quantile finds the same 5 %, whatever the bound.
    let reported = Correlation::beyond_quantile(&rows, share(0.95)).unwrap();
    assert_eq!(reported.verdict, Verdict::Dependent);
}

/// A duplicate that is slower altogether is not one whose outliers coincide.
#[test]
fn slower_is_not_dependent() {
    let mut slower = rows(2, 0.0, 0.05, 4_000, 3);
    slower.iter_mut().for_each(|row| row[1] *= 7);
    let reported = Correlation::beyond_quantile(&slower, share(0.95)).unwrap();
    assert_eq!(reported.verdict, Verdict::Independent);
}

#[test]
fn few_outliers_say_nothing() {
    let reported = Correlation::of_counts(1_000, vec![19, 500], 19);
    assert_eq!(reported.verdict, Verdict::Unknown);
    assert!(reported.helps() && reported.describe().contains("too few"));
    let empty = Correlation::of_counts(0, vec![0, 0], 0);
    assert_eq!((empty.verdict, empty.expected), (Verdict::Unknown, 0.0));
    assert!(Correlation::beyond_quantile(&[], share(0.9)).is_none());
    assert!(Correlation::beyond_bound(&[vec![ms(1.0)]], ms(1.0)).is_none());
    let uneven = [vec![ms(1.0); 2], vec![ms(1.0)]];
    assert!(Correlation::beyond_bound(&uneven, ms(1.0)).is_none());
}

#[test]
fn chance_is_poissons() {
    // P(Poisson(1) >= 5) = 1 - e^-1 · (1 + 1 + 1/2 + 1/6 + 1/24).
    let reported = Correlation::of_counts(1_000_000, vec![1_000, 1_000], 5);
    let expected = 1.0 - (-1.0_f64).exp() * (2.0 + 0.5 + 1.0 / 6.0 + 1.0 / 24.0);
    assert!((reported.by_chance.value() - expected).abs() < 1e-12, "{reported:?}");
    assert!((reported.expected - 1.0).abs() < 1e-12);
    // Wilson's limits by the textbook: 40 of 50 with z = 2.3263 is 0.6459 at the least.
    let reported = Correlation::of_counts(10_000, vec![50, 90], 40);
    assert!((reported.masked_max.value() - (1.0 - 0.6405)).abs() < 0.01, "{reported:?}");
    assert_eq!(reported.verdict, Verdict::Coincide);
}

#[test]
fn the_newest_rows_are_kept() {
    let mut kept = Rows::new(2, 100).unwrap();
    assert!(kept.is_empty() && kept.service().is_err());
    rows(2, 0.0, 0.5, 1_000, 4).iter().for_each(|row| kept.push(row));
    kept.push(&[ms(1.0)]);
    assert_eq!(kept.len(), 100);
    assert_eq!(kept.correlation_beyond(ms(30.0)).unwrap().verdict, Verdict::Independent);
    rows(2, 0.5, 0.0, 100, 5).iter().for_each(|row| kept.push(row));
    assert_eq!(kept.correlation_beyond(ms(30.0)).unwrap().verdict, Verdict::Coincide);
    assert_eq!(kept.service().unwrap().duplicates_max(), Some(2));
    assert!(Rows::new(0, 1).is_err() && Rows::new(1, 0).is_err());
}
