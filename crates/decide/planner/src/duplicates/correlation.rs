//! Do outliers of duplicates coincide? Then sending an access to several masks nothing.
//!
//! "Outliers are non-deterministic with respect to duplicates" is the paper's second principle, and
//! its model multiplies because of it. It does not hold where duplicates share what makes them
//! slow: a host, a disk, a hot key, a command that is slow everywhere.
//!
//! **Signal**: times of duplicates for the same access, in rows. **Statistic**: how often all are
//! above their own threshold at once ([`Correlation::joint`]) against how often that would happen
//! if they were independent, which is the product of their shares ([`Correlation::expected`]).
//! Thresholds are a quantile of each duplicate's own times, or the latency bound. Own quantiles,
//! since a duplicate that is slower altogether is not one whose outliers coincide.
//!
//! **Two verdicts**, since the first alone misleads: with many rows any small dependence is
//!   certain.
//! *Dependent*: joint outliers are more than chance explains, one in a thousand, by Poisson's law
//! (the exact counts have less variance, so it errs on the quiet side). *Does not help*: of the
//! outliers of the duplicate with the fewest the others mask less than half, and that is sure (99
//! %, Wilson's interval). Between the two, duplicates help less than the product promises: use
//! rows in the model ([`Service::together`](super::Service::together)).
//!
//! **When it misleads.** Rows must be a random sample. A pause meets many accesses in a row, all of
//! which say the same; fewer than 20 expected outliers say nothing, and the verdict is none.

use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::Probability;

/// Outliers that each duplicate must have for a verdict.
const OUTLIERS_MIN: u64 = 20;
/// One false alarm in a thousand.
const ALARM: f64 = 1e-3;
/// The normal quantile of a one-sided 99 %.
const SURE: f64 = 2.3263;

/// What joint outliers say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Too few outliers to say anything.
    Unknown,
    /// No more joint outliers than independent duplicates would have.
    Independent,
    /// More, but the others still mask a good part of the outliers.
    Dependent,
    /// Outliers coincide: duplicates do not help here.
    Coincide,
}

/// How outliers of duplicates coincide.
#[derive(Clone, PartialEq, Debug)]
pub struct Correlation {
    /// Rows that were looked at.
    pub rows: u64,
    /// Rows in which each duplicate was an outlier.
    pub outliers: Vec<u64>,
    /// Rows in which all duplicates were.
    pub joint: u64,
    /// In how many rows all would be if they were independent.
    pub expected: f64,
    /// How likely independent duplicates have as many joint outliers or more.
    pub by_chance: Probability,
    /// The share of outliers of the duplicate with the fewest that at least one other masks.
    pub masked: Probability,
    /// It is below this with 99 % confidence.
    pub masked_max: Probability,
    /// What follows.
    pub verdict: Verdict,
}

impl Correlation {
    /// Looks at rows of times, one for each duplicate; an outlier is above its duplicate's own
    /// quantile `q`. None when there is no row, rows differ in length, or have one time only.
    pub fn beyond_quantile(rows: &[Vec<Duration>], q: Probability) -> Option<Self> {
        let columns = rows.first()?.len();
        if rows.iter().any(|row| row.len() != columns) {
            return None;
        }
        let threshold = |column: usize| {
            let mut times: Vec<u64> = rows.iter().map(|row| nanos(row[column])).collect();
            let at = ((q.value() * times.len() as f64).ceil() as usize).clamp(1, times.len());
            *times.select_nth_unstable(at - 1).1
        };
        let thresholds: Vec<u64> = (0..columns).map(threshold).collect();
        Self::beyond(rows, &thresholds)
    }

    /// Looks at rows of times, one for each duplicate; an outlier is above the bound. None as for
    /// [`beyond_quantile`](Self::beyond_quantile).
    pub fn beyond_bound(rows: &[Vec<Duration>], bound: Duration) -> Option<Self> {
        Self::beyond(rows, &vec![nanos(bound); rows.first()?.len()])
    }

    fn beyond(rows: &[Vec<Duration>], thresholds: &[u64]) -> Option<Self> {
        if thresholds.len() < 2 || rows.iter().any(|row| row.len() != thresholds.len()) {
            return None;
        }
        let (mut outliers, mut joint) = (vec![0; thresholds.len()], 0);
        for row in rows {
            let mut all = true;
            for ((time, threshold), count) in row.iter().zip(thresholds).zip(&mut outliers) {
                let is_outlier = nanos(*time) > *threshold;
                *count += u64::from(is_outlier);
                all &= is_outlier;
            }
            joint += u64::from(all);
        }
        Some(Self::of_counts(rows.len() as u64, outliers, joint))
    }

    /// From counts: of so many rows, in how many each duplicate was an outlier, in how many all.
    pub fn of_counts(rows: u64, outliers: Vec<u64>, joint: u64) -> Self {
        let count = rows as f64;
        let share = |&outliers: &u64| outliers as f64 / count;
        let chance: f64 = outliers.iter().map(share).product();
        let expected = if rows == 0 { 0.0 } else { count * chance };
        let by_chance = poisson_at_least(joint, expected);
        let fewest = outliers.iter().copied().min().unwrap_or(0);
        let (coincide, coincide_min) = wilson_lower(joint, fewest);
        let masked_max = 1.0 - coincide_min;
        let verdict = if fewest < OUTLIERS_MIN {
            Verdict::Unknown
        } else if masked_max < 0.5 {
            Verdict::Coincide
        } else if by_chance < ALARM {
            Verdict::Dependent
        } else {
            Verdict::Independent
        };
        Self {
            rows,
            outliers,
            joint,
            expected,
            by_chance: Probability::clamped(by_chance),
            masked: Probability::clamped(1.0 - coincide),
            masked_max: Probability::clamped(masked_max),
            verdict,
        }
    }

    /// Whether a further duplicate helps, as far as is known: not where outliers coincide.
    #[cfg(test)]
    pub fn helps(&self) -> bool {
        self.verdict != Verdict::Coincide
    }

    /// In words, for people.
    pub fn describe(&self) -> String {
        let fewest = self.outliers.iter().min().copied().unwrap_or(0);
        let masked = 100.0 * self.masked.value();
        let (joint, expected) = (self.joint, self.expected);
        match self.verdict {
            Verdict::Unknown => format!(
                "too few outliers to say whether they coincide ({fewest} in {} accesses, \
                 expected {OUTLIERS_MIN})",
                self.rows
            ),
            Verdict::Independent => format!(
                "outliers are independent: duplicates mask {masked:.0} % of them \
                 ({joint} coincide, {expected:.1} by chance)"
            ),
            Verdict::Dependent => format!(
                "outliers depend on each other: duplicates mask {masked:.0} % of them, less than \
                 promised ({joint} coincide, {expected:.1} by chance)"
            ),
            Verdict::Coincide => format!(
                "duplicates do not help here: outliers coincide, {masked:.0} % of them are masked \
                 ({joint} coincide, {expected:.1} by chance)"
            ),
        }
    }
}

/// The probability that a Poisson count with this mean reaches `count`; 1 for counts that are no
/// surprise, at or below the mean.
fn poisson_at_least(count: u64, mean: f64) -> f64 {
    if count as f64 <= mean {
        return 1.0;
    }
    let log_factorial: f64 = (1..=count).map(|k| (k as f64).ln()).sum();
    let mut term = (count as f64 * mean.ln() - mean - log_factorial).exp();
    let (mut sum, mut k) = (0.0, count as f64);
    while term > sum * 1e-16 {
        sum += term;
        k += 1.0;
        term *= mean / k;
    }
    sum.min(1.0)
}

/// The share of successes and Wilson's lower limit of it; no trial is no success.
fn wilson_lower(successes: u64, trials: u64) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 0.0);
    }
    let (n, z2) = (trials as f64, SURE * SURE);
    let share = successes as f64 / n;
    let centre = share + z2 / (2.0 * n);
    let half = SURE * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    (share, ((centre - half) / (1.0 + z2 / n)).max(0.0))
}
