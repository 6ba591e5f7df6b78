//! The course of a run, second by second.

use evenkeel_load::{Progress, Report};
use serde::Serialize;

use crate::terminal::sparkline;

/// What happened within a second, more or less: progress is told five times in one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Second {
    /// When it began and ended, seconds since the start.
    pub(super) from_s: f64,
    pub(super) until_s: f64,
    /// Requests that became due.
    pub(super) requests: u64,
    pub(super) served: u64,
    /// Of them in full.
    pub(super) optional: u64,
    pub(super) failed: u64,
    pub(super) timeouts: u64,
    /// By replica, whether it lived at the end.
    pub(super) alive: Vec<bool>,
    /// By replica, its dimmer at the end, where it has one.
    pub(super) dimmers: Vec<Option<f64>>,
}

/// Cuts the progress of a load into seconds.
#[derive(Debug, Default)]
pub(super) struct Course {
    seconds: Vec<Second>,
    /// Totals at the end of the last second.
    before: Totals,
}

/// Everything since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    at_s: f64,
    due: u64,
    served: u64,
    optional: u64,
    failed: u64,
    timeouts: u64,
}

impl Totals {
    pub(super) fn of(progress: &Progress, optional: u64) -> Self {
        Self {
            at_s: progress.elapsed.as_secs_f64(),
            due: progress.due,
            served: progress.served,
            optional,
            failed: progress.failed,
            timeouts: progress.timeouts,
        }
    }

    pub(super) fn at_the_end(report: &Report) -> Self {
        Self {
            at_s: report.duration_s,
            due: report.requests + report.unfinished,
            served: report.served,
            optional: report.optional,
            failed: report.failed,
            timeouts: report.timeouts,
        }
    }
}

/// Shorter pieces at the end are part of the second before.
const SHORTEST_S: f64 = 0.5;

impl Course {
    /// Notes how it stands; `state` is asked for lives and dimmers when a second ends.
    pub(super) fn note(&mut self, now: Totals, state: impl FnOnce() -> (Vec<bool>, Dimmers)) {
        if now.at_s.floor() > self.before.at_s.floor() {
            self.close(now, state());
        }
    }

    /// The seconds, up to the end of the run.
    pub(super) fn end(mut self, now: Totals, state: (Vec<bool>, Dimmers)) -> Vec<Second> {
        if now.at_s - self.before.at_s >= SHORTEST_S {
            self.close(now, state);
        } else if let Some(last) = self.seconds.last_mut() {
            last.add(&now, &self.before);
        }
        self.seconds
    }

    pub(super) fn seconds(&self) -> &[Second] {
        &self.seconds
    }

    fn close(&mut self, now: Totals, (alive, dimmers): (Vec<bool>, Dimmers)) {
        let from_s = self.before.at_s;
        let mut second = Second { from_s, alive, dimmers, ..Second::default() };
        second.add(&now, &self.before);
        self.seconds.push(second);
        self.before = now;
    }
}

type Dimmers = Vec<Option<f64>>;

impl Second {
    fn add(&mut self, now: &Totals, before: &Totals) {
        self.until_s = now.at_s;
        self.requests += now.due - before.due;
        self.served += now.served - before.served;
        // What was full is told by the proxy, a moment after the generator has the answer.
        self.optional += now.optional.saturating_sub(before.optional);
        self.failed += now.failed - before.failed;
        self.timeouts += now.timeouts - before.timeouts;
    }

    /// A count of it, per second.
    pub(super) fn rate(&self, count: u64) -> f64 {
        count as f64 / (self.until_s - self.from_s).max(1e-3)
    }

    /// Share of the served that was full; 0 when nobody was served.
    pub(super) fn full_share(&self) -> f64 {
        (self.optional as f64 / self.served.max(1) as f64).min(1.0)
    }

    fn living(&self) -> usize {
        self.alive.iter().filter(|&&lives| lives).count()
    }
}

/// Most timeouts per second.
pub(super) fn worst(seconds: &[Second]) -> f64 {
    seconds.iter().map(|second| second.rate(second.timeouts)).fold(0.0, f64::max)
}

/// Rows of a timeline, a character for each second: timeouts, what was full, who lived.
pub(super) fn timeline(seconds: &[Second], rate_highest: f64) -> Vec<String> {
    let timeouts = seconds.iter().map(|second| second.rate(second.timeouts));
    let full = seconds.iter().map(Second::full_share);
    let living = seconds.iter().map(|second| second.living() as f64);
    let replicas = seconds.last().map_or(0, |second| second.alive.len());
    vec![
        format!("  timeouts  {}  up to {rate_highest:.0}/s", sparkline(timeouts, rate_highest)),
        format!("  in full   {}  of what was served", sparkline(full, 1.0)),
        format!("  replicas  {}  of {replicas}", sparkline(living, replicas as f64)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(at_s: f64, due: u64, served: u64, optional: u64, timeouts: u64) -> Totals {
        Totals { at_s, due, served, optional, failed: 0, timeouts }
    }

    #[test]
    fn every_request_is_in_exactly_one_second() {
        let mut course = Course::default();
        let state = || (vec![true, false], vec![Some(0.5), None]);
        for tick in 1..=17 {
            let at_s = f64::from(tick) * 0.19;
            course.note(totals(at_s, 10 * tick as u64, 8 * tick as u64, 4 * tick as u64, 0), state);
        }
        assert_eq!(course.seconds().len(), 3, "3.23 s have gone by");
        let seconds = course.end(totals(3.3, 175, 140, 70, 35), state());
        assert_eq!(seconds.len(), 3, "a short piece is no second");
        assert_eq!(seconds.iter().map(|second| second.requests).sum::<u64>(), 175);
        assert_eq!(seconds.iter().map(|second| second.timeouts).sum::<u64>(), 35);
        let first = &seconds[0];
        assert_eq!((first.requests, first.served, first.full_share()), (60, 48, 0.5));
        assert!((first.rate(first.requests) - 60.0 / 1.14).abs() < 1e-9);
        assert!((worst(&seconds) - 35.0 / (3.3 - 2.09)).abs() < 1e-9);
    }

    #[test]
    fn a_timeline_shows_who_lived() {
        let second = |until_s: f64, timeouts, alive: [bool; 2]| Second {
            from_s: until_s - 1.0,
            until_s,
            served: 4,
            optional: 4,
            timeouts,
            alive: alive.to_vec(),
            ..Second::default()
        };
        let seconds = [second(1.0, 0, [true; 2]), second(2.0, 7, [true, false])];
        let rows = timeline(&seconds, worst(&seconds));
        assert_eq!(rows[0], "  timeouts  ▁█  up to 7/s");
        assert_eq!(rows[1], "  in full   ██  of what was served");
        assert_eq!(rows[2], "  replicas  █▅  of 2");
    }
}
