//! When requests are due: a plan made before the first answer and independent of every answer.
//!
//! A closed loop (a fixed number of clients that wait for their answers) slows down exactly when
//! the server does and so hides its worst moments; users do not wait for each other. Here a
//! request rate is a function of time λ(t), and requests are due where its integral Λ(t) reaches
//! given levels: 0, 1, 2, … for [`Spacing::Even`], the points of a unit-rate Poisson process for
//! [`Spacing::Poisson`] (the time change of an inhomogeneous Poisson process, Çinlar 1975).
//! Even spacing is kind to a server: no two requests arrive together. Use Poisson to learn about
//! tails, even to find capacity. Real crowds are burstier than Poisson: replay a trace.

use std::iter::Peekable;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::{Instant, Rng};

use super::LoadError;
use super::rate::checked_rate;
use super::trace::{Segment, Trace};

/// When requests are due.
#[derive(Clone, Debug)]
pub struct Arrivals {
    shape: Shape,
    spacing: Spacing,
}

/// How requests lie within their rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spacing {
    /// One request wherever the integral of the rate reaches a whole number.
    Even,
    /// Independent exponential gaps, drawn from the seed of the load.
    Poisson,
}

#[derive(Clone, Debug)]
enum Shape {
    Constant(f64),
    Trace(Trace),
}

impl Arrivals {
    /// Request `i` is due `i / rate` seconds after the start; `rate` in requests per second.
    ///
    /// # Errors
    /// When `rate` is not in (0, [`RATE_MAX`](super::RATE_MAX)].
    pub fn constant(rate: f64) -> Result<Self, LoadError> {
        Ok(Self { shape: Shape::Constant(checked_rate("rate", rate)?), spacing: Spacing::Even })
    }

    /// Independent exponential gaps with mean `1 / rate` seconds.
    ///
    /// # Errors
    /// When `rate` is not in (0, [`RATE_MAX`](super::RATE_MAX)].
    pub fn poisson(rate: f64) -> Result<Self, LoadError> {
        Ok(Self { spacing: Spacing::Poisson, ..Self::constant(rate)? })
    }

    /// The rates of a trace; the load ends where the trace ends.
    pub fn trace(trace: Trace, spacing: Spacing) -> Self {
        Self { shape: Shape::Trace(trace), spacing }
    }

    #[cfg(any(test, feature = "testing"))]
    /// One generated day of a busy site, played in `day`, Poisson within its rate: for when no
    /// real series is at hand. See [`Trace::diurnal`].
    ///
    /// # Errors
    /// When `rate_mean` is not in (0, [`RATE_MAX`](super::RATE_MAX)] or `day` is zero.
    pub fn diurnal(rate_mean: f64, day: Duration, seed: u64) -> Result<Self, LoadError> {
        Ok(Self::trace(Trace::diurnal(rate_mean, day, seed)?, Spacing::Poisson))
    }

    /// The moments requests are due at, in order; equal seeds give equal moments.
    pub fn schedule(&self, seed: u64) -> Schedule {
        let rest = match &self.shape {
            Shape::Constant(rate) => Segments::Constant(Some(*rate)),
            Shape::Trace(trace) => Segments::Trace(Arc::clone(trace.segments()), 0),
        };
        let dice = match self.spacing {
            Spacing::Even => None,
            Spacing::Poisson => Some(Rng::stream(seed, "arrivals")),
        };
        Schedule { rest, piece: Piece::default(), dice, level: 0.0, fresh: true }
    }

    /// When the plan ends by itself; `None` for plans that go on for ever.
    pub fn end(&self) -> Option<Duration> {
        match &self.shape {
            Shape::Constant(_) => None,
            Shape::Trace(trace) => Some(trace.duration()),
        }
    }

    /// Requests per second averaged over the whole plan.
    pub fn rate_mean(&self) -> f64 {
        match &self.shape {
            Shape::Constant(rate) => *rate,
            Shape::Trace(trace) => trace.rate_mean(),
        }
    }

    /// One word for reports: `constant`, `poisson` or `trace`.
    pub fn kind(&self) -> &'static str {
        match (&self.shape, self.spacing) {
            (Shape::Trace(_), _) => "trace",
            (Shape::Constant(_), Spacing::Even) => "constant",
            (Shape::Constant(_), Spacing::Poisson) => "poisson",
        }
    }
}

/// The moments at which requests are due; made by [`Arrivals::schedule`].
#[derive(Debug)]
pub struct Schedule {
    rest: Segments,
    piece: Piece,
    dice: Option<Rng>,
    /// The level of Λ at which the next request is due.
    level: f64,
    /// No request has been produced yet.
    fresh: bool,
}

/// The stretch of constant rate that is being walked through.
#[derive(Clone, Copy, Default, Debug)]
struct Piece {
    start_s: f64,
    end_s: f64,
    rate: f64,
    level_at_start: f64,
}

#[derive(Debug)]
enum Segments {
    /// The one endless stretch, until it is taken.
    Constant(Option<f64>),
    /// Stretches, and the index of the next.
    Trace(Arc<[Segment]>, usize),
}

impl Iterator for Schedule {
    type Item = Instant;

    #[inline]
    fn next(&mut self) -> Option<Instant> {
        match &mut self.dice {
            Some(dice) => self.level += dice.exponential(),
            None if self.fresh => {}
            None => self.level += 1.0,
        }
        self.fresh = false;
        while self.level >= self.piece.level_at_end() {
            self.piece = self.rest.next_after(self.piece)?;
        }
        Some(Instant::from_secs_f64(self.piece.second_of(self.level)))
    }
}

impl Piece {
    fn level_at_end(&self) -> f64 {
        // 0 × ∞ is not a number; a silent stretch adds nothing however long it is.
        if self.rate == 0.0 {
            return self.level_at_start;
        }
        let exact = self.level_at_start + self.rate * (self.end_s - self.start_s);
        // Rates are counts divided by steps: without this, 1/3 × 3 could lose its request to
        // the next step, or to none at all after the last.
        let whole = exact.round();
        if (exact - whole).abs() < 1e-6 { whole } else { exact }
    }

    fn second_of(&self, level: f64) -> f64 {
        (self.start_s + (level - self.level_at_start) / self.rate).min(self.end_s)
    }
}

impl Segments {
    fn next_after(&mut self, piece: Piece) -> Option<Piece> {
        let (rate, end_s) = match self {
            Self::Constant(rate) => (rate.take()?, f64::INFINITY),
            Self::Trace(segments, next) => {
                let segment = segments.get(*next)?;
                *next += 1;
                (segment.rate, segment.end_s)
            }
        };
        Some(Piece { start_s: piece.end_s, end_s, rate, level_at_start: piece.level_at_end() })
    }
}

/// A schedule cut to a duration and a number of requests, with a look at what comes next.
pub(super) struct Agenda {
    schedule: Peekable<Schedule>,
    end: Instant,
    left: u64,
}

impl Agenda {
    pub(super) fn new(schedule: Schedule, end: Instant, requests_max: u64) -> Self {
        Self { schedule: schedule.peekable(), end, left: requests_max }
    }

    /// When the next request is due; `None` when there is none.
    #[inline]
    pub(super) fn due(&mut self) -> Option<Instant> {
        let end = self.end;
        self.schedule.peek().copied().filter(|&due| self.left > 0 && due < end)
    }

    /// Takes the next request if it is due by `now`.
    #[inline]
    pub(super) fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due().filter(|&due| due <= now)?;
        self.schedule.next();
        self.left -= 1;
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_requests_are_due_at_i_over_rate() {
        for rate in [1.0, 3.0, 997.0, 33_333.3] {
            let plan = Arrivals::constant(rate).unwrap();
            for (i, due) in plan.schedule(1).take(100_000).enumerate() {
                let expected_ns = i as f64 * 1e9 / rate;
                assert!((due.as_nanos() as f64 - expected_ns).abs() <= 1.0, "{i} at {rate}");
            }
        }
    }

    #[test]
    fn poisson_counts_have_equal_mean_and_variance_and_gaps_the_right_mean() {
        let plan = Arrivals::poisson(1_000.0).unwrap();
        let mut counts = vec![0.0_f64; 2_000];
        let last = Instant::from_secs_f64(counts.len() as f64 * 0.01);
        for due in plan.schedule(7).take_while(|&due| due < last) {
            counts[(due.as_secs_f64() / 0.01) as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let variance =
            counts.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / (counts.len() - 1) as f64;
        // 2,000 windows of mean 10: the mean's standard error is sqrt(10 / 2000) = 0.071, the
        // variance's about 10 × sqrt(2.1 / 2000) = 0.32; five of each.
        assert!((mean - 10.0).abs() < 0.36, "{mean}");
        assert!((variance - 10.0).abs() < 1.7, "{variance}");
    }

    #[test]
    fn equal_seeds_give_equal_moments_and_others_do_not() {
        let plan = Arrivals::poisson(50.0).unwrap();
        let moments = |seed| plan.schedule(seed).take(50).collect::<Vec<_>>();
        assert_eq!(moments(3), moments(3));
        assert_ne!(moments(3), moments(4));
    }

    #[test]
    fn moments_never_go_back() {
        let diurnal = Arrivals::diurnal(500.0, Duration::from_secs(20), 5).unwrap();
        let moments = diurnal.schedule(9).collect::<Vec<_>>();
        assert!(moments.is_sorted());
        assert!(moments.last().unwrap().as_secs_f64() <= 20.0);
    }

    #[test]
    fn rates_out_of_range_are_refused_with_what_came() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e7] {
            let error = Arrivals::constant(rate).unwrap_err().to_string();
            assert!(error.starts_with(&format!("rate: got {rate}, expected ")), "{error}");
        }
    }

    #[test]
    fn an_agenda_ends_by_time_or_by_number() {
        let plan = Arrivals::constant(10.0).unwrap();
        let taken = |end_ms, requests_max| {
            let end = Instant::from_millis(end_ms);
            let mut agenda = Agenda::new(plan.schedule(0), end, requests_max);
            std::iter::from_fn(|| agenda.take(Instant::FAR)).count()
        };
        assert_eq!(taken(1_000, u64::MAX), 10, "0.0 … 0.9: the end itself is outside");
        assert_eq!(taken(1_001, u64::MAX), 11);
        assert_eq!(taken(10_000, 7), 7);
    }

    #[test]
    fn an_agenda_gives_only_what_is_due() {
        let plan = Arrivals::constant(10.0).unwrap();
        let mut agenda = Agenda::new(plan.schedule(0), Instant::FAR, 10);
        assert_eq!(agenda.take(Instant::ZERO), Some(Instant::ZERO));
        assert_eq!(agenda.take(Instant::from_millis(99)), None);
        assert_eq!(agenda.due(), Some(Instant::from_millis(100)));
    }
}
