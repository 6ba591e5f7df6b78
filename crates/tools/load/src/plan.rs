//! When the requests of a load are due and within which bounds, over whichever protocol.

use std::time::Duration;

use evenkeel_core::Instant;

use super::arrivals::{Agenda, Arrivals};
use super::tally::{LATENCY_MAX, Tally};
use super::{LoadError, SPIN_MAX, outside};

/// When requests are due, and what counts.
#[derive(Clone, Debug)]
pub struct Plan {
    /// When requests are due.
    pub arrivals: Arrivals,
    /// The label of the run in its report.
    pub policy: String,
    /// The seed of arrivals, and of keys or of records and values.
    pub seed: u64,
    /// No request is due at or after this time. `None`: when the arrivals end, or never.
    pub duration: Option<Duration>,
    /// Requests due before this time are sent, answered and forgotten: nothing of them is in the
    /// outcome, apart from the generator's CPU time. Zero: all count.
    pub warm_up: Duration,
    /// No more requests than this. `None`: no bound.
    pub requests_max: Option<u64>,
    /// How long after it is due a request may be answered; above zero, at most [`LATENCY_MAX`].
    pub timeout: Duration,
    /// How long after it is due a request should be answered: the report says what share of them
    /// missed it, and nothing else changes. Above zero.
    pub objective: Option<Duration>,
    /// How long to wait busily before a request is due, at most [`SPIN_MAX`]: sends it within
    /// microseconds, for CPU time that a server on the same machine may miss. Zero, the default,
    /// wakes up by a timer, some tens of microseconds late.
    pub spin: Duration,
}

impl From<Arrivals> for Plan {
    /// With usual bounds: a timeout of 10 s, seed 1, no end but that of the arrivals.
    fn from(arrivals: Arrivals) -> Self {
        Self {
            arrivals,
            policy: "load".into(),
            seed: 1,
            duration: None,
            warm_up: Duration::ZERO,
            requests_max: None,
            timeout: Duration::from_secs(10),
            objective: None,
            spin: Duration::ZERO,
        }
    }
}

impl Plan {
    pub(super) fn check(&self) -> Result<(), LoadError> {
        if self.timeout.is_zero() || self.timeout > LATENCY_MAX {
            return outside("timeout", &self.timeout, "above zero and at most 1 h");
        }
        for (name, time) in [("duration", self.duration), ("objective", self.objective)] {
            if let Some(time) = time.filter(Duration::is_zero) {
                return outside(name, &time, "a duration above zero");
            }
        }
        if self.spin > SPIN_MAX {
            return outside("spin", &self.spin, "at most 200 us");
        }
        Ok(())
    }

    /// When requests end by time: with the duration or with the arrivals.
    pub(super) fn end(&self) -> Option<Duration> {
        [self.duration, self.arrivals.end()].into_iter().flatten().min()
    }

    /// The moments at which requests are due.
    pub(super) fn agenda(&self) -> Agenda {
        let end = self.end().map_or(Instant::FAR, |end| Instant::ZERO + end);
        let schedule = self.arrivals.schedule(self.seed);
        Agenda::new(schedule, end, self.requests_max.unwrap_or(u64::MAX))
    }

    /// Requests due from here on count.
    pub(super) fn counted_from(&self) -> Instant {
        Instant::ZERO + self.warm_up
    }

    /// What counts, before anything has happened.
    pub(super) fn tally(&self) -> Tally {
        Tally { objective: self.objective, ..Tally::default() }
    }
}
