//! Request rates of several sites over time: from files, from access logs, or made up.
//!
//! | from | how |
//! |---|---|
//! | a CSV file: one column of times, one of rates for each site | [`RateSeries::load`] |
//! | binary access logs of the 1998 World Cup | [`LogCounter`] |
//! | one real series of all requests together, split among sites | [`Split`] |
//! | nothing | [`one_hot`], [`shifting`], [`match_days`] |
//!
//! A series says how many requests come in each of its steps. Where within a step they come is
//! for its user to decide (Poisson, in the Kurma paper).

mod file;
mod log;
mod made;
mod split;

use std::fmt;
use std::time::Duration;

pub use log::{LOG_SITES, LogCounter, RECORD_BYTES};
pub use made::{Made, match_days, one_hot, shifting};
pub use split::Split;

/// Sites of a series at most.
pub const SITES_MAX: usize = 64;
/// Rates of all sites together at most: 64 MB, or 30 days by the second for three sites.
pub const VALUES_MAX: usize = 8_000_000;
/// The highest rate, per second.
pub const RATE_MAX: f64 = 1e12;

/// Request rates of sites, constant within each step.
#[derive(Clone, PartialEq, Debug)]
pub struct RateSeries {
    /// How long a step lasts; above zero.
    pub step: Duration,
    /// `rates[site][step]` requests per second, 0 to [`RATE_MAX`]; as many for every site.
    pub rates: Vec<Vec<f64>>,
}

/// Why something is no series of rates.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: got {came}, expected {expected}")]
pub struct TraceError {
    /// Where: a file with its line or byte, or which number.
    pub place: String,
    /// What came there.
    pub came: String,
    /// What was expected, with the likely cause.
    pub expected: String,
}

impl TraceError {
    pub(crate) fn new(
        place: impl Into<String>,
        came: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        Self { place: place.into(), came: came.to_string(), expected: expected.to_string() }
    }
}

impl RateSeries {
    /// The series of these rates, checked.
    ///
    /// # Errors
    /// When the step is zero, there are no sites or no steps or too many, sites differ in length,
    /// or a rate is out of its range.
    pub fn new(step: Duration, rates: Vec<Vec<f64>>) -> Result<Self, TraceError> {
        if step.is_zero() {
            return Err(TraceError::new("step", "0 s", "a step above zero"));
        }
        if !(1..=SITES_MAX).contains(&rates.len()) {
            let expected = format!("1 to {SITES_MAX} sites");
            return Err(TraceError::new("rates", format!("{} sites", rates.len()), expected));
        }
        let steps = rates[0].len();
        for (site, of_site) in rates.iter().enumerate() {
            if of_site.is_empty() || of_site.len() != steps {
                let expected = format!("{}, as for every site", steps.max(1));
                let place = format!("rates of site {site}");
                return Err(TraceError::new(place, format!("{} steps", of_site.len()), expected));
            }
            let wrong = of_site.iter().position(|rate| !(0.0..=RATE_MAX).contains(rate));
            if let Some(at) = wrong {
                let place = format!("rate of site {site} in step {at}");
                let expected = format!("requests per second from 0 to {RATE_MAX:e}");
                return Err(TraceError::new(place, of_site[at], expected));
            }
        }
        if steps.saturating_mul(rates.len()) > VALUES_MAX {
            let came = format!("{steps} steps of {} sites", rates.len());
            let expected = format!("at most {VALUES_MAX} rates in all (take a longer step?)");
            return Err(TraceError::new("rates", came, expected));
        }
        Ok(Self { step, rates })
    }

    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.rates.len()
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.rates.first().map_or(0, Vec::len)
    }

    /// How long it lasts.
    pub fn duration(&self) -> Duration {
        self.step.saturating_mul(u32::try_from(self.steps()).unwrap_or(u32::MAX))
    }

    /// The highest rate of any site in any step, per second.
    pub fn peak(&self) -> f64 {
        self.rates.iter().flatten().copied().fold(0.0, f64::max)
    }

    /// The mean rate of all sites together, per second.
    pub fn mean_total(&self) -> f64 {
        self.rates.iter().flatten().sum::<f64>() / self.steps().max(1) as f64
    }

    /// Every rate times `factor`.
    ///
    /// # Errors
    /// When a rate leaves its range: a factor that is negative, not a number or too large.
    pub fn scaled(&self, factor: f64) -> Result<Self, TraceError> {
        let row = |of_site: &Vec<f64>| of_site.iter().map(|rate| rate * factor).collect();
        Self::new(self.step, self.rates.iter().map(row).collect())
    }

    /// The same shape with this highest rate of any site.
    ///
    /// # Errors
    /// When all rates are zero, or `peak` is out of the range of rates.
    pub fn with_peak(&self, peak: f64) -> Result<Self, TraceError> {
        let now = self.peak();
        if now <= 0.0 {
            return Err(TraceError::new("rates", "no request at all", "some to scale"));
        }
        self.scaled(peak / now)
    }

    /// What happens from `from` on for `length`, in whole steps (both rounded down).
    ///
    /// # Errors
    /// When that is no step at all, or ends after the series.
    pub fn cut(&self, from: Duration, length: Duration) -> Result<Self, TraceError> {
        let step = self.step.as_nanos().max(1);
        let first = from.as_nanos() / step;
        let end = first.saturating_add(length.as_nanos() / step);
        let steps = self.steps() as u128;
        if first >= end || end > steps {
            let came = format!("steps {first} to {end}");
            return Err(TraceError::new("cut", came, format!("some of the {steps} there are")));
        }
        let (first, end) = (first as usize, end as usize);
        let rates = self.rates.iter().map(|of_site| of_site[first..end].to_vec()).collect();
        Self::new(self.step, rates)
    }

    /// The same in longer steps: means over `step`, which must be a multiple of the present one.
    /// What is left at the end is dropped.
    ///
    /// # Errors
    /// When it is no multiple, or longer than the series.
    pub fn in_steps_of(&self, step: Duration) -> Result<Self, TraceError> {
        let (now, then) = (self.step.as_nanos().max(1), step.as_nanos());
        if then == 0 || then % now != 0 || then / now > self.steps() as u128 {
            let came = format!("{} s", step.as_secs_f64());
            let (each, all) = (self.step.as_secs_f64(), self.duration().as_secs_f64());
            let expected = format!("a multiple of the series' step of {each} s, at most {all} s");
            return Err(TraceError::new("step", came, expected));
        }
        let each = (then / now) as usize;
        let mean = |steps: &[f64]| steps.iter().sum::<f64>() / each as f64;
        let row = |of_site: &Vec<f64>| of_site.chunks_exact(each).map(mean).collect();
        Self::new(step, self.rates.iter().map(row).collect())
    }

    /// The sites with these numbers, in this order; a number may come twice.
    ///
    /// # Errors
    /// When a number is none of a site, or there are none.
    pub fn select(&self, sites: &[usize]) -> Result<Self, TraceError> {
        let row = |&site: &usize| {
            let expected = || format!("0 to {}, as there are sites", self.sites().max(1) - 1);
            self.rates.get(site).cloned().ok_or_else(|| TraceError::new("site", site, expected()))
        };
        Self::new(self.step, sites.iter().map(row).collect::<Result<_, _>>()?)
    }

    /// All sites together, as one.
    #[must_use]
    pub fn total(&self) -> Self {
        let sum = |step| self.rates.iter().map(|of_site| of_site[step]).sum();
        Self { step: self.step, rates: vec![(0..self.steps()).map(sum).collect()] }
    }
}

#[cfg(test)]
mod tests;
