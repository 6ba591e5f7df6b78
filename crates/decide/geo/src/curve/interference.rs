//! Does a curve still hold? And if not, which one does?
//!
//! A noisy neighbour, a failing disk or a new release makes a data centre slower than its profile.
//! The planner cannot see that in load and latency of the way, so each data centre compares what
//! it predicts for its own requests with what it measures.
//!
//! **Signal.** Per control period: requests, and how many of them missed the objective.
//! **Statistic.** Two cumulative sums of log-likelihood ratios (Page's CUSUM), one for odds of a
//! miss that are `odds_ratio` times the predicted ones, one for odds as many times lower. Fixed
//! thresholds on the difference would alarm in every quiet night and sleep through slow decay; the
//! sum needs few periods of a strong change and many of a weak one, and odds that are off by less
//! than the root of the ratio drift away from an alarm: curves are no better than that.
//!
//! **False alarms.** While the odds are at most the predicted ones, the exponential of a period's
//! sum has mean 1 or less, and therefore (Lorden 1971) an alarm upwards comes on average at most
//! once in `e^h` periods; likewise downwards. `h` is chosen so that both together come at most
//! once in [`WatchConfig::periods_between_false_alarms`]. Requests that miss together count as
//! fewer: at most [`WatchConfig::requests_max`] of a period count, the rest in proportion.
//!
//! **When it misleads.** Predictions with a load bias above 1 are too dark and let it alarm
//! downwards: predict without ([`Conditions::unbiased`]). A queue left by an overload looks like
//! interference until it is worked off.
//!
//! The paper takes interference from an external detector and the curve from a library
//! (Kurma, section 7.1.4); the sequential test is ours.

use std::collections::VecDeque;

use super::{Conditions, Family};
use evenkeel_core::time::Duration;
use evenkeel_core::units::{OutOfRange, Probability, Rate};

/// Periods remembered for the choice of a substitute.
const REMEMBERED_MAX: usize = 64;
/// Evidence kept at most, in thresholds. An alarm stands once there is one of it; kept without end,
/// a minute of collapse would outweigh an hour of sound service after it.
const KEPT_MAX: f64 = 2.0;
/// Predictions below this count as this when more is measured: no curve is more certain.
const PREDICTED_MIN: f64 = 1e-3;
/// Predictions above this leave nothing to detect.
const PREDICTED_MAX: f64 = 1.0 - 1e-3;

/// What one period measured in a data centre, of requests that were served where they came.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// Its total load, in requests per second.
    pub load: Rate,
    /// Requests that were answered or given up in the period.
    pub requests: u64,
    /// How many of them missed the objective; at most `requests`.
    pub missed: u64,
}

/// When a curve counts as broken.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WatchConfig {
    /// The change of odds that is looked for, above 1; default 2.
    pub odds_ratio: f64,
    /// Mean number of periods between false alarms, at least; default a million, 29 days of
    /// periods of 2.5 s.
    pub periods_between_false_alarms: f64,
    /// As how many independent requests a period counts at most; default 200.
    pub requests_max: u64,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self { odds_ratio: 2.0, periods_between_false_alarms: 1e6, requests_max: 200 }
    }
}

evenkeel_core::named! {
    /// How measurement and prediction compare.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Verdict {
        /// As far as can be told, as predicted.
        AsPredicted = "as-predicted",
        /// More requests miss: something interferes.
        Worse = "worse",
        /// Fewer requests miss: what interfered is gone, or the curve is too dark.
        Better = "better",
    }
}

/// Watches one data centre's curve.
#[derive(Clone, Debug)]
pub struct Watch {
    config: WatchConfig,
    threshold: f64,
    worse: Sum,
    better: Sum,
    remembered: VecDeque<Measured>,
}

/// A cumulative sum and for how many periods it has been above zero.
#[derive(Clone, Copy, Default, Debug)]
struct Sum {
    value: f64,
    periods: usize,
}

impl Watch {
    /// A watch that has seen nothing.
    ///
    /// # Errors
    /// When the odds ratio is not above 1 and finite, the mean number of periods is not at least
    /// 1 and finite, or no request may count.
    pub fn new(config: WatchConfig) -> Result<Self, OutOfRange> {
        if !(config.odds_ratio > 1.0 && config.odds_ratio.is_finite()) {
            let expected = "an odds ratio above 1";
            return Err(OutOfRange { came: config.odds_ratio, expected });
        }
        let periods = config.periods_between_false_alarms;
        if !(periods >= 1.0 && periods.is_finite()) {
            let expected = "at least 1 period between false alarms";
            return Err(OutOfRange { came: periods, expected });
        }
        if config.requests_max == 0 {
            return Err(OutOfRange { came: 0.0, expected: "at least 1 request that counts" });
        }
        // Two one-sided tests share the budget of false alarms.
        let threshold = libm::log(2.0 * periods);
        let (worse, better) = (Sum::default(), Sum::default());
        Ok(Self { config, threshold, worse, better, remembered: VecDeque::new() })
    }

    /// Learns what a period measured and what share of misses was predicted for it. A verdict
    /// other than [`Verdict::AsPredicted`] stands until the evidence is gone or
    /// [`restart`](Self::restart).
    ///
    /// A period without requests, or with more misses than requests, says nothing.
    pub fn observe(&mut self, measured: Measured, predicted: Probability) -> Verdict {
        if measured.requests == 0 || measured.missed > measured.requests {
            return self.verdict();
        }
        if self.remembered.len() == REMEMBERED_MAX {
            self.remembered.pop_front();
        }
        self.remembered.push_back(measured);
        let (up, down) = (self.config.odds_ratio, 1.0 / self.config.odds_ratio);
        let predicted = predicted.value();
        let evidence = |expected: f64, ratio: f64| {
            evidence(&measured, expected, ratio, self.config.requests_max)
        };
        let floored = predicted.clamp(PREDICTED_MIN, PREDICTED_MAX);
        let most = KEPT_MAX * self.threshold;
        self.worse.add(if predicted > PREDICTED_MAX { 0.0 } else { evidence(floored, up) }, most);
        self.better
            .add(if predicted < PREDICTED_MIN { 0.0 } else { evidence(floored, down) }, most);
        self.verdict()
    }

    /// What the evidence so far says.
    pub fn verdict(&self) -> Verdict {
        let excess = |sum: &Sum| sum.value - self.threshold;
        match (excess(&self.worse), excess(&self.better)) {
            (worse, better) if worse >= 0.0 && worse >= better => Verdict::Worse,
            (_, better) if better >= 0.0 => Verdict::Better,
            _ => Verdict::AsPredicted,
        }
    }

    /// The periods since the change that the verdict is about (64 at most): what a substitute must
    /// explain. All remembered ones when there is no such verdict.
    pub fn since_change(&self) -> impl Iterator<Item = Measured> + '_ {
        let periods = match self.verdict() {
            Verdict::Worse => self.worse.periods,
            Verdict::Better => self.better.periods,
            Verdict::AsPredicted => self.remembered.len(),
        };
        self.remembered.iter().skip(self.remembered.len().saturating_sub(periods)).copied()
    }

    /// Forgets all evidence: call it when another curve is predicted from.
    pub fn restart(&mut self) {
        (self.worse, self.better) = (Sum::default(), Sum::default());
        self.remembered.clear();
    }
}

impl Sum {
    fn add(&mut self, evidence: f64, most: f64) {
        self.value = (self.value + evidence).min(most);
        self.periods += 1;
        if self.value <= 0.0 {
            *self = Self::default();
        }
    }
}

/// The log-likelihood ratio of odds that are `ratio` times the expected ones.
fn evidence(measured: &Measured, expected: f64, ratio: f64, requests_max: u64) -> f64 {
    let scale = 1.0_f64.min(requests_max as f64 / measured.requests as f64);
    let changed = expected * ratio / (1.0 - expected + expected * ratio);
    let met = (measured.requests - measured.missed) as f64;
    let missed = measured.missed as f64 * libm::log(changed / expected);
    let met = met * (libm::log1p(-changed) - libm::log1p(-expected));
    scale * (missed + met)
}

/// A curve that may explain what is measured. The same curves with other servers or another load
/// bias are another candidate: a neighbour who steals a third of every core looks like a bias of
/// 1.5.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The curves, as seen from inside the data centre ([`Family::local`]).
    pub family: &'a Family,
    /// Servers, write share, background and bias.
    pub conditions: Conditions,
}

/// The candidate that explains best.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Choice {
    /// Its place among the candidates.
    pub index: usize,
    /// The root of its mean squared error, in shares of requests.
    pub error: f64,
}

/// The candidate whose predictions have the least squared distance from what was measured, periods
/// weighted by their requests; the first of equals. `None` without candidates or requests.
pub fn substitute(
    candidates: &[Candidate<'_>],
    measured: impl IntoIterator<Item = Measured>,
) -> Option<Choice> {
    let measured: Vec<Measured> =
        measured.into_iter().filter(|period| period.requests > 0).collect();
    let requests: f64 = measured.iter().map(|period| period.requests as f64).sum();
    if measured.is_empty() {
        return None;
    }
    let errors = candidates.iter().map(|candidate| squared_error(candidate, &measured) / requests);
    let least = errors.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
    least.map(|(index, error)| Choice { index, error: error.sqrt() })
}

fn squared_error(candidate: &Candidate<'_>, measured: &[Measured]) -> f64 {
    let error = |period: &Measured| {
        let miss = candidate.family.miss(Duration::ZERO, period.load, &candidate.conditions);
        let share = period.missed as f64 / period.requests as f64;
        (share - miss.value()) * (share - miss.value()) * period.requests as f64
    };
    measured.iter().map(error).sum()
}
