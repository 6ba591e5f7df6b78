//! Curves over base latency: response time plus the way there and back.
//!
//! The probability of a miss at base latency `b` is `Σ_r P(R = r) · P(S > objective - b - r)`: an
//! exact sum over the bins of the residual, where the Kurma paper draws samples. Two data centres
//! that sample disagree; two that sum do not. It is computed for every load step once and for
//! every whole millisecond of base latency, so that a routing change costs an interpolation.
//!
//! **Error.** Bins count as their upper end (at most 0.1 ms too long, on average half of it).
//! Between milliseconds the interpolation is exact at both ends; where the response time's tail
//! is convex, which is everywhere but left of its mode, it is too high rather than too low.
//!
//! **When it misleads.** Residual and response time are taken as independent: one burst that fills
//! both the link and the servers is worse than the sum of two.

use super::residual::{NetworkPath, Residual};
use super::response::{ResponseCurves, Slice, neighbours, saturation};
use super::{Conditions, MISSES_ALWAYS};
use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::{OutOfRange, Probability, Rate};

/// The distance of neighbouring members, or the curves' own step if that is longer.
const BASE_STEP: Duration = Duration::from_millis(1);
/// Round trips of one request at most.
pub const ROUND_TRIPS_MAX: u32 = 16;

/// The curves of one data centre as they look from a distance, for every base latency.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    servers: f64,
    base_step_nanos: u64,
    round_trips: u32,
    members: Vec<Member>,
}

/// One write share.
#[derive(Clone, PartialEq, Debug)]
struct Member {
    write_share: f64,
    saturation: f64,
    loads: Vec<f64>,
    /// `by_base[b][load]`: the probability of a miss at `first + b` steps of base latency. Beyond
    /// the last every request misses.
    by_base: Vec<Vec<f64>>,
    first: usize,
}

impl Family {
    /// As `curves` look through a way with this residual latency. A request takes `round_trips`
    /// of them: more than one when it or its response exceeds the initial congestion window.
    ///
    /// # Errors
    /// When `round_trips` is not 1 to [`ROUND_TRIPS_MAX`].
    pub fn new(
        curves: &ResponseCurves,
        residual: &Residual,
        round_trips: u32,
    ) -> Result<Self, OutOfRange> {
        Self::with_bases(curves, residual, round_trips, |_| (0, usize::MAX))
    }

    /// As they look through one way: no more than what [`Family::new`] says at its base latency,
    /// for a thousandth of the work.
    ///
    /// # Errors
    /// As [`Family::new`].
    pub(super) fn through(
        curves: &ResponseCurves,
        path: &NetworkPath,
        round_trips: u32,
    ) -> Result<Self, OutOfRange> {
        // Two members, between which the base latency lies.
        let near = |step_nanos| ((nanos(path.base) / step_nanos) as usize, 2);
        Self::with_bases(curves, &path.residual, round_trips, near)
    }

    fn with_bases(
        curves: &ResponseCurves,
        residual: &Residual,
        round_trips: u32,
        first_and_count: impl Fn(u64) -> (usize, usize),
    ) -> Result<Self, OutOfRange> {
        if !(1..=ROUND_TRIPS_MAX).contains(&round_trips) {
            let expected = "1 to 16 round trips for a request";
            return Err(OutOfRange { came: f64::from(round_trips), expected });
        }
        let step_nanos = nanos(curves.step());
        let base_step_nanos = nanos(BASE_STEP).max(step_nanos);
        let stride = (base_step_nanos / step_nanos * u64::from(round_trips)) as usize;
        let delay = Delay::new(curves, residual, round_trips);
        let (first, count) = first_and_count(base_step_nanos);
        let members =
            curves.slices().iter().map(|slice| Member::new(slice, &delay, stride, first, count));
        Ok(Self {
            servers: curves.servers(),
            base_step_nanos,
            round_trips,
            members: members.collect(),
        })
    }

    /// As `curves` look from inside the data centre.
    pub fn local(curves: &ResponseCurves) -> Self {
        Self::new(curves, &Residual::none(), 1).expect("1 is a number of round trips")
    }

    /// The probability that a request misses at this load of the whole data centre.
    pub fn miss(&self, base: Duration, load: Rate, conditions: &Conditions) -> Probability {
        let Some(load) = self.profiled(load.value(), conditions) else { return Probability::ONE };
        let mut view = self.view(base, conditions.write_share);
        Probability::clamped(conditions.learnt.miss(view.miss(load)))
    }

    /// How many round trips a request takes.
    pub fn round_trips(&self) -> u32 {
        self.round_trips
    }

    /// The load of the profiled data centre that feels like this one; `None` without servers.
    pub(super) fn profiled(&self, load: f64, conditions: &Conditions) -> Option<f64> {
        let load = (load + conditions.background.value()) * conditions.load_bias;
        let load = load / conditions.learnt.scale();
        let servers = f64::from(conditions.servers);
        (conditions.servers > 0).then(|| load * (self.servers / servers))
    }

    /// The load of the profiled data centre from which on every request misses.
    pub(super) fn saturation(&self, write_share: Probability) -> f64 {
        let (lower, upper, part) = self.neighbours(write_share);
        saturation(lower.saturation, upper.saturation, part)
    }

    /// The curve at one base latency and write share.
    pub(super) fn view(&self, base: Duration, write_share: Probability) -> View<'_> {
        let (lower, upper, part) = self.neighbours(write_share);
        let line = |member| self.line(member, base);
        let upper = (part > 0.0).then(|| line(upper));
        View { lower: line(lower), upper, part, saturation: self.saturation(write_share) }
    }

    fn neighbours(&self, write_share: Probability) -> (&Member, &Member, f64) {
        neighbours(&self.members, write_share, |member| member.write_share)
    }

    fn line<'a>(&self, member: &'a Member, base: Duration) -> Line<'a> {
        let below = (nanos(base) / self.base_step_nanos) as usize;
        let part = (nanos(base) % self.base_step_nanos) as f64 / self.base_step_nanos as f64;
        let count = member.loads.len();
        let row = |base: usize| member.by_base.get(base.checked_sub(member.first)?);
        let (near, far) = (row(below), row(below.saturating_add(1)));
        let value = |row: Option<&Vec<f64>>, k: usize| row.map_or(MISSES_ALWAYS, |row| row[k]);
        let blended = |k| {
            let (near, far) = (value(near, k), value(far, k));
            (near + part * (far - near)).min(far)
        };
        Line { loads: &member.loads, misses: (0..count).map(blended).collect(), at: 0 }
    }
}

/// Residual latency of all round trips together, in steps of the curves.
struct Delay {
    masses: Vec<f64>,
    beyond: f64,
}

impl Delay {
    fn new(curves: &ResponseCurves, residual: &Residual, round_trips: u32) -> Self {
        let (once, lost) = curves.in_steps(residual);
        let mut all = Self { masses: once.clone(), beyond: lost };
        for _ in 1..round_trips {
            all = all.and(&once, lost, curves.steps());
        }
        all
    }

    /// One more independent round trip.
    fn and(&self, masses: &[f64], beyond: f64, steps: usize) -> Self {
        let mut sum = Self { masses: Vec::new(), beyond: 0.0 };
        sum.beyond = self.beyond + beyond - self.beyond * beyond;
        sum.masses.resize((self.masses.len() + masses.len()).saturating_sub(1).min(steps), 0.0);
        for (i, a) in self.masses.iter().enumerate() {
            for (j, b) in masses.iter().enumerate() {
                match sum.masses.get_mut(i + j) {
                    Some(mass) => *mass += a * b,
                    None => sum.beyond += a * b,
                }
            }
        }
        sum
    }

    /// The probability that response and residual together take more than what `offset` steps
    /// leave of the objective; past the end of `misses` nothing is left.
    ///
    /// One sum in the order of the masses: every term is at least that of a smaller offset, and so
    /// is the sum, to the last digit. A data centre further away must never look better.
    fn convolved(&self, misses: &[f64], offset: usize) -> f64 {
        let left = misses.get(offset..).unwrap_or_default();
        let fitting = self.masses.iter().zip(left).fold(0.0, |sum, (mass, miss)| sum + mass * miss);
        let late = self.masses.iter().skip(left.len()).fold(fitting, |sum, mass| sum + mass);
        (late + self.beyond).min(MISSES_ALWAYS)
    }
}

impl Member {
    /// With the base latencies from `first` on, in steps, as many of them as `count` and the
    /// objective allow.
    fn new(slice: &Slice, delay: &Delay, stride: usize, first: usize, count: usize) -> Self {
        let steps = slice.misses[0].len();
        let offsets = (first..).take(count).map(|base| base.saturating_mul(stride));
        let offsets = offsets.take_while(|&offset| offset < steps);
        let row = |offset| slice.misses.iter().map(|row| delay.convolved(row, offset)).collect();
        Self {
            write_share: slice.write_share,
            saturation: slice.saturation,
            loads: slice.loads.clone(),
            first,
            by_base: offsets.map(row).collect(),
        }
    }
}

/// A curve at one base latency and write share, to be asked at ascending loads.
pub(super) struct View<'a> {
    lower: Line<'a>,
    upper: Option<Line<'a>>,
    part: f64,
    saturation: f64,
}

impl View<'_> {
    /// The probability of a miss at a load of the profiled data centre. Bilinear in load and write
    /// share; loads must not fall from call to call.
    pub(super) fn miss(&mut self, load: f64) -> f64 {
        if load >= self.saturation {
            return MISSES_ALWAYS;
        }
        let near = self.lower.at(load);
        let far = self.upper.as_mut().map_or(near, |upper| upper.at(load));
        between(near, far, self.part).clamp(0.0, MISSES_ALWAYS)
    }
}

/// A broken line over loads: constant before its first load, 1 after its last.
struct Line<'a> {
    loads: &'a [f64],
    misses: Vec<f64>,
    /// How many of its loads lie at or below the last one asked for.
    at: usize,
}

impl Line<'_> {
    fn at(&mut self, load: f64) -> f64 {
        while self.loads.get(self.at).is_some_and(|&known| known <= load) {
            self.at += 1;
        }
        let (Some(&after), Some(before)) = (self.loads.get(self.at), self.at.checked_sub(1)) else {
            return if self.at == 0 { self.misses[0] } else { MISSES_ALWAYS };
        };
        let part = (load - self.loads[before]) / (after - self.loads[before]);
        between(self.misses[before], self.misses[self.at], part)
    }
}

/// The value at `part` of the way. In this form no rounding makes it fall when either end rises:
/// a data centre further away must never look better, not by a last digit either.
fn between(near: f64, far: f64, part: f64) -> f64 {
    (1.0 - part) * near + part * far
}
