//! One real series of all requests, split among sites: a stand-in where nobody has published each
//! site's own. What is made with it is a *synthetic split of a real series* and is to be called so.
//!
//! Each site gets an equal part of the real total, shifted by a time zone as in the Kurma paper's
//! table 2, times a share that drifts slowly: the logarithm of each share is an autoregressive
//! process of its own, so that hot spots move between sites as in the paper's second trace. Shares
//! need not sum to one: sites are not parts of one whole that is known.
//!
//! **What it keeps**: days, matches, flash crowds and noise of the real total, and their distance
//! between time zones. **What it makes up**: how much regions differ at the same moment, which is
//! just what redirecting lives on. Results that depend on `sigma` are results about `sigma`.

use std::time::Duration;

use evenkeel_core::Rng;

use super::{RateSeries, TraceError};

/// How a total is split.
#[derive(Clone, PartialEq, Debug)]
pub struct Split {
    /// How much later each site has the same hour of the day; at least one site.
    pub shifts: Vec<Duration>,
    /// Standard deviation of the logarithm of a share.
    pub sigma: f64,
    /// Time after which a share remembers 1/e of its deviation.
    pub memory: Duration,
    /// Of the drift.
    pub seed: u64,
}

impl Split {
    /// As the paper's table 2: Virginia, Texas and California in London, Ireland and Frankfurt, no,
    /// one and four hours later; shares within about a quarter, changing within a quarter of an
    /// hour.
    pub fn paper() -> Self {
        let hour = Duration::from_secs(3_600);
        let shifts = vec![Duration::ZERO, hour, 4 * hour];
        Self { shifts, sigma: 0.25, memory: hour / 4, seed: 1998 }
    }

    /// Splits the total of `series`. The result begins where all sites have data, at the longest
    /// shift.
    ///
    /// # Errors
    /// When there are no sites, `sigma` is not between 0 and 3, the memory is zero, or the series
    /// is not longer than the longest shift.
    pub fn split(&self, series: &RateSeries) -> Result<RateSeries, TraceError> {
        if !(0.0..=3.0).contains(&self.sigma) {
            return Err(TraceError::new("split, sigma", self.sigma, "0 to 3"));
        }
        if self.memory.is_zero() {
            return Err(TraceError::new("split, memory", "0 s", "more than that"));
        }
        let total = series.total();
        let step_s = series.step.as_secs_f64();
        let late: Vec<usize> =
            self.shifts.iter().map(|shift| (shift.as_secs_f64() / step_s) as usize).collect();
        let latest = late.iter().copied().max().unwrap_or_default();
        if latest >= series.steps() {
            let came = format!("{} steps", series.steps());
            return Err(TraceError::new(
                "split",
                came,
                format!("more than {latest}, the last shift"),
            ));
        }
        let kept = (-step_s / self.memory.as_secs_f64()).exp();
        let count = late.len() as f64;
        let site = |(site, late): (usize, &usize)| {
            let mut rng = Rng::stream(self.seed, &format!("share {site}"));
            let mut drift = Drift::new(kept, self.sigma, &mut rng);
            let part = |step: usize| total.rates[0][step - late] / count;
            (latest..series.steps()).map(|step| part(step) * drift.next(&mut rng)).collect()
        };
        RateSeries::new(series.step, late.iter().enumerate().map(site).collect())
    }
}

/// A factor around 1 whose logarithm wanders and returns (AR(1)).
pub(super) struct Drift {
    kept: f64,
    sigma: f64,
    state: f64,
}

impl Drift {
    /// Begins anywhere it may be.
    pub(super) fn new(kept: f64, sigma: f64, rng: &mut Rng) -> Self {
        Self { kept, sigma, state: sigma * rng.normal() }
    }

    pub(super) fn next(&mut self, rng: &mut Rng) -> f64 {
        let fresh = (1.0 - self.kept * self.kept).sqrt() * self.sigma;
        self.state = self.kept * self.state + fresh * rng.normal();
        self.state.exp()
    }
}
