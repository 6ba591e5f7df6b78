//! The last intervals of a database, and how much each still counts: equation 2 of the paper.
//!
//! **What is kept** is counts and round trips, not scores: a score is of one replica set and one
//! voter set, and after a move the past must be scored anew for the new ones (the paper's equation
//! adds old scores, with the quorum latency of the voters of that time).
//!
//! **How much it counts.** An interval that is `k` intervals old counts `τ^-k`: with τ = 1 all that
//! is kept counts alike, with 2 (the paper's evaluation) each counts half as much as the one after
//! it, with infinity only the newest counts. The paper calls τ the decay and requires no range; it
//! is the inverse of one, so it is at least 1 here. With τ = 2 and the usual 16 intervals what was
//! dropped would count 2⁻¹⁶ of what is kept.
//!
//! **Means, not sums.** Divided by the equally faded number of operations, scores of different
//! intervals and databases compare. Busy intervals weigh more than quiet ones of the same age,
//! since operations are weighed, not shares; an interval without operations changes nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::distributions::Tails;
use super::model::{BadInput, Counts, Layout, RoundTrips, Route};
use super::score::Score;

/// How many intervals are kept when nothing else is said: 8 hours of the paper's half hours.
pub const INTERVALS_MAX: usize = 16;

/// The decay of the paper's evaluation (section 6.1).
pub const TAU: f64 = 2.0;

/// What was measured in one interval.
#[derive(Clone, PartialEq, Debug)]
pub struct Interval {
    counts: Counts,
    trips: Arc<RoundTrips>,
}

impl Interval {
    /// Operations of clients, and the mean round trips they would have had. Intervals that share
    /// one [`Arc`] of round trips are scored together, which is cheaper.
    ///
    /// # Errors
    /// When the two are of different numbers of clients.
    pub fn new(counts: Counts, trips: Arc<RoundTrips>) -> Result<Self, BadInput> {
        if counts.clients() != trips.clients() {
            return Err(BadInput::Clients { came: counts.clients(), expected: trips.clients() });
        }
        Ok(Self { counts, trips })
    }

    /// Operations of every client.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Mean round trips.
    pub const fn trips(&self) -> &Arc<RoundTrips> {
        &self.trips
    }
}

/// The last intervals of one database; never more than it was made for.
#[derive(Clone, Debug)]
pub struct History {
    tau: f64,
    intervals_max: usize,
    /// The newest comes last.
    intervals: VecDeque<Interval>,
    tails: Option<Arc<Tails>>,
    /// Intervals and time since the layout was changed.
    since_move: Option<(u32, Duration)>,
}

impl Default for History {
    fn default() -> Self {
        Self::new(TAU, INTERVALS_MAX).expect("the usual decay and length are in range")
    }
}

impl History {
    /// An empty history with this decay, τ of equation 2, 1 or more and perhaps infinite, that
    /// keeps so many intervals.
    ///
    /// # Errors
    /// When τ is below 1 or not a number, or no interval could be kept.
    pub fn new(tau: f64, intervals_max: usize) -> Result<Self, BadInput> {
        if tau.is_nan() || tau < 1.0 {
            return Err(BadInput::Decay { came: tau });
        }
        if intervals_max == 0 {
            return Err(BadInput::NoIntervals);
        }
        let intervals = VecDeque::new();
        Ok(Self { tau, intervals_max, intervals, tails: None, since_move: None })
    }

    /// Adds the interval that has just passed; the oldest goes when there are too many.
    ///
    /// # Errors
    /// When it is of other numbers of clients or sites than those before.
    pub fn push(&mut self, interval: Interval) -> Result<(), BadInput> {
        if let Some(newest) = self.newest() {
            let (came, expected) = (interval.counts.clients(), newest.counts.clients());
            if came != expected {
                return Err(BadInput::Clients { came, expected });
            }
            let (came, expected) = (interval.trips.sites(), newest.trips.sites());
            if came != expected {
                return Err(BadInput::Sites { came, expected });
            }
        }
        if self.intervals.len() == self.intervals_max {
            self.intervals.pop_front();
        }
        self.intervals.push_back(interval);
        if let Some((intervals, _)) = &mut self.since_move {
            *intervals = intervals.saturating_add(1);
        }
        Ok(())
    }

    /// Notes that the layout was changed just now, or that it was tried: the cooldown begins.
    pub const fn moved(&mut self) {
        self.since_move = Some((0, Duration::ZERO));
    }

    /// Says how long ago that was, by the caller's clock. Intervals do not say it: one may be
    /// pushed as soon as a long move has ended, or none for hours.
    pub const fn rested(&mut self, time: Duration) {
        if let Some((_, since)) = &mut self.since_move {
            *since = time;
        }
    }

    /// How many intervals were added since the layout was changed; none if it never was.
    pub fn since_move(&self) -> Option<u32> {
        self.since_move.map(|(intervals, _)| intervals)
    }

    /// How long ago that was, as it was said last.
    pub fn rest(&self) -> Option<Duration> {
        self.since_move.map(|(_, time)| time)
    }

    /// Takes over measured distributions of round trips, for percentiles. They take many samples,
    /// so there is one set of them for the whole history, not one for each interval.
    ///
    /// # Errors
    /// When they are of other numbers of clients or sites than the intervals.
    pub fn adopt_tails(&mut self, tails: Arc<Tails>) -> Result<(), BadInput> {
        if let Some(newest) = self.newest() {
            tails.check(newest.trips())?;
        }
        self.tails = Some(tails);
        Ok(())
    }

    /// The distributions of round trips, if there are any.
    pub const fn tails(&self) -> Option<&Arc<Tails>> {
        self.tails.as_ref()
    }

    /// The interval that was added last.
    pub fn newest(&self) -> Option<&Interval> {
        self.intervals.back()
    }

    /// All intervals, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Interval> {
        self.intervals.iter().rev()
    }

    /// How many intervals there are.
    pub fn len(&self) -> usize {
        self.intervals.len()
    }

    /// Whether there is no interval yet.
    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// How many intervals ago there was one with operations, the newest first.
    pub fn busy(&self) -> impl Iterator<Item = usize> + '_ {
        let busy = |(ago, interval): (usize, &Interval)| {
            interval.counts.iter().flatten().any(|count| *count > 0.0).then_some(ago)
        };
        self.iter().enumerate().filter_map(busy)
    }

    /// What was known so many intervals ago (0: what is known now); none if there was no operation
    /// in all that still counts.
    pub fn past(&self, ago: usize) -> Option<Past<'_>> {
        self.added_up(ago, self.tau)
    }

    /// The interval of so many intervals ago alone; none if it has no operation.
    pub fn alone(&self, ago: usize) -> Option<Past<'_>> {
        self.added_up(ago, f64::INFINITY)
    }

    fn added_up(&self, ago: usize, tau: f64) -> Option<Past<'_>> {
        let newest = self.iter().nth(ago)?;
        let mut parts: Vec<Part<'_>> = Vec::new();
        let (mut fresh, mut intervals) = (1.0, 0.0);
        for Interval { counts, trips } in self.iter().skip(ago) {
            match parts.iter_mut().find(|part| core::ptr::eq(part.trips, Arc::as_ptr(trips))) {
                Some(part) => part.counts.add(counts, fresh),
                None => parts.push(Part { counts: counts.scaled(fresh), trips }),
            }
            intervals += fresh;
            fresh /= tau;
            if fresh == 0.0 {
                break;
            }
        }
        let operations = parts.iter().map(|part| part.counts.total()).sum();
        let tails = self.tails.as_deref();
        (operations > 0.0).then_some(Past { parts, newest, operations, intervals, tails })
    }

    /// The mean latency that the operations kept here would have had under a layout, in
    /// milliseconds: equation 2 with its denominator. None without operations.
    pub fn mean_ms(&self, layout: &Layout, route: Route) -> Option<f64> {
        self.past(0).map(|past| past.mean_ms(layout, route))
    }

    /// The operations kept here, each interval's counting as much as it still does; none of no
    /// clients while there is no interval.
    pub fn faded(&self) -> Counts {
        let clients = self.newest().map_or(0, |newest| newest.counts.clients());
        self.past(0).map_or_else(|| Counts::none(clients), |past| past.counts())
    }
}

/// Operations with the round trips they would have had.
#[derive(Clone, PartialEq, Debug)]
pub struct Part<'a> {
    /// Operations, those of older intervals faded.
    pub counts: Counts,
    /// Round trips.
    pub trips: &'a RoundTrips,
}

/// What a history knew at one time: faded operations, of which there are some, by the round trips
/// they would have had.
#[derive(Clone, PartialEq, Debug)]
pub struct Past<'a> {
    parts: Vec<Part<'a>>,
    newest: &'a Interval,
    operations: f64,
    /// How many intervals count, the older ones faded.
    intervals: f64,
    tails: Option<&'a Tails>,
}

impl<'a> Past<'a> {
    /// Faded operations by round trips; those of the newest interval come first.
    pub fn parts(&self) -> &[Part<'a>] {
        &self.parts
    }

    /// The interval that was the newest then.
    pub const fn newest(&self) -> &Interval {
        self.newest
    }

    /// How many faded operations there are, above 0.
    pub const fn operations(&self) -> f64 {
        self.operations
    }

    /// How many operations there are in an interval, on average over those that count.
    pub fn operations_per_interval(&self) -> f64 {
        self.operations / self.intervals
    }

    /// The distributions of round trips, if they were measured.
    pub const fn tails(&self) -> Option<&Tails> {
        self.tails
    }

    /// Faded operations of all round trips together.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::none(self.newest.counts.clients());
        self.parts.iter().for_each(|part| counts.add(&part.counts, 1.0));
        counts
    }

    /// Their mean latency under a layout, in milliseconds.
    pub fn mean_ms(&self, layout: &Layout, route: Route) -> f64 {
        let score = |part: &Part<'_>| Score::of(&part.counts, part.trips, layout, route).total_ms();
        self.parts.iter().map(score).sum::<f64>() / self.operations
    }
}
