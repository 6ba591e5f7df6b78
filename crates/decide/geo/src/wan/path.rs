//! One probe connection, that is one path: its base and its residuals.

use std::collections::VecDeque;

use super::history::History;
use super::{Probe, Reject, WanConfig};
use crate::curve::{RESIDUAL_BIN, Residual};
use evenkeel_core::time::{Duration, Instant, nanos};

/// Samples that wait for their window to close, at most; 24 bytes each.
pub(super) const PENDING_MAX: usize = 256;
/// Samples of a segment from which on it has a residual distribution of its own.
const SEGMENT_SAMPLES_MIN: u64 = 60;
/// The share of high residuals while none are known.
const UNKNOWN_SHARE: f64 = 0.5;
/// No residual is so rare that one of it is proof.
const SHARE_MIN: f64 = 0.01;
/// Parts of the long minimum.
const MINUTES: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// What a sample made of the base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The base stays, or was refined by less than a route change.
    Low,
    /// The sample lies at least a rise above the base.
    High,
    /// The base fell at once.
    Fell { from: Duration, to: Duration },
}

/// A run of samples that all lie at least a rise above the base.
#[derive(Clone, Copy, Debug)]
struct Run {
    count: u32,
    min: Duration,
}

/// One connection. Between two changes of the base lies a *segment*.
#[derive(Clone, Debug)]
pub(super) struct Path {
    sequence: Option<u64>,
    received_at: Instant,
    base: Duration,
    /// When the last sample came that was not high; a run began after it.
    low_at: Instant,
    run: Option<Run>,
    pending: VecDeque<(Instant, Duration)>,
    settled: History,
    /// The residuals of a segment that began with a rise and may be a standing queue.
    raised: Option<History>,
    minima: Minima,
}

impl Path {
    pub(super) fn new(config: &WanConfig) -> Self {
        Self {
            sequence: None,
            received_at: Instant::ZERO,
            base: Duration::ZERO,
            low_at: Instant::ZERO,
            run: None,
            pending: VecDeque::new(),
            settled: History::new(config.memory),
            raised: None,
            minima: Minima::default(),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.sequence.is_some()
    }

    pub(super) fn is_silent(&self, now: Instant, config: &WanConfig) -> bool {
        !self.is_known() || now.since(self.received_at) >= config.silence
    }

    pub(super) fn base(&self) -> Duration {
        self.base
    }

    pub(super) fn run_samples(&self) -> u32 {
        self.run.map_or(0, |run| run.count)
    }

    /// How much the run speaks against the base, in nats: how unlikely so many residuals in a row
    /// are that reach its least one.
    pub(super) fn evidence(&self) -> f64 {
        let Some(run) = self.run else { return 0.0 };
        let share = self.history().share_from(run.min.saturating_sub(self.base));
        let share = share.unwrap_or(UNKNOWN_SHARE).max(SHARE_MIN);
        -f64::from(run.count) * libm::log(share)
    }

    pub(super) fn low_at(&self) -> Instant {
        self.low_at
    }

    /// How far the base lies above the least of ten minutes, when that is a rise.
    pub(super) fn standing(&self, config: &WanConfig) -> Option<Duration> {
        let excess = self.base.saturating_sub(self.minima.least()?);
        (excess >= config.rise).then_some(excess)
    }

    /// Whether the probe may be believed.
    pub(super) fn check(&self, probe: &Probe, config: &WanConfig) -> Result<(), Reject> {
        if probe.received_at < probe.sent_at {
            return Err(Reject::Negative);
        }
        let round_trip = probe.round_trip();
        if round_trip.is_zero() || round_trip > config.round_trip_max {
            return Err(Reject::Absurd);
        }
        match self.sequence {
            Some(last) if probe.sequence == last => Err(Reject::Duplicate),
            Some(last) if probe.sequence < last => Err(Reject::Reordered),
            Some(_) if probe.received_at < self.received_at => Err(Reject::Reordered),
            _ => Ok(()),
        }
    }

    /// Learns one believed sample.
    pub(super) fn learn(&mut self, probe: &Probe, config: &WanConfig) -> Step {
        let (now, sample) = (probe.received_at, probe.round_trip());
        let was_silent = self.is_silent(now, config);
        let is_first = !self.is_known();
        self.sequence = Some(probe.sequence);
        self.received_at = now;
        if was_silent {
            // Nothing was seen meanwhile: a full window must be, before the base may rise.
            self.end_run(now);
        }
        let step = if is_first {
            self.begin_segment(now, sample);
            Step::Low
        } else {
            self.compare(now, sample, config)
        };
        self.minima.record(now, sample);
        self.push(now, sample);
        self.commit(now, config);
        self.accept_raised(config);
        step
    }

    fn compare(&mut self, now: Instant, sample: Duration, config: &WanConfig) -> Step {
        let from = self.base;
        if sample + config.drop < from {
            // The first samples of all may be queueing; a base that nobody knew does not change.
            let is_new = self.samples() == 0;
            self.fall(now, sample);
            return if is_new { Step::Low } else { Step::Fell { from, to: sample } };
        }
        if sample < from + config.rise {
            // The least of the whole segment: a window's least is longer by the mean residual
            // over its samples.
            self.base = from.min(sample);
            self.end_run(now);
            return Step::Low;
        }
        let run = self.run.get_or_insert(Run { count: 0, min: sample });
        run.count = run.count.saturating_add(1);
        run.min = run.min.min(sample);
        Step::High
    }

    /// Raises the base to the least of the run's last window; `None` without a run. The run may
    /// have begun with a queue on the path before.
    pub(super) fn rise(
        &mut self,
        now: Instant,
        config: &WanConfig,
    ) -> Option<(Duration, Duration)> {
        let run = self.run?;
        let from = self.base;
        let recent = self.pending.iter().filter(|sample| now.since(sample.0) < config.window);
        let to = recent.map(|sample| sample.1).min().unwrap_or(run.min).max(run.min);
        // The window in which the base changed says nothing about either segment.
        self.pending.clear();
        self.begin_segment(now, to);
        self.settle();
        self.raised = Some(History::new(self.settled.memory()));
        Some((from, to))
    }

    /// The residuals to plan with: those of the present segment where it may be a standing queue,
    /// since older ones hold the same queue once more.
    pub(super) fn residual(&self) -> Residual {
        self.history().residual().unwrap_or_else(Residual::none)
    }

    fn history(&self) -> &History {
        let raised = self.raised.as_ref().filter(|raised| raised.samples() >= SEGMENT_SAMPLES_MIN);
        raised.unwrap_or(&self.settled)
    }

    pub(super) fn samples(&self) -> u64 {
        self.settled.samples() + self.raised.as_ref().map_or(0, History::samples)
    }

    /// Pending samples, and the bytes of both histories.
    #[cfg(test)]
    pub(super) fn memory(&self) -> (usize, usize) {
        let raised = self.raised.as_ref().map_or(0, History::bytes);
        (self.pending.len(), self.settled.bytes() + raised)
    }

    fn begin_segment(&mut self, now: Instant, base: Duration) {
        self.base = base;
        self.end_run(now);
    }

    fn end_run(&mut self, now: Instant) {
        self.low_at = now;
        self.run = None;
    }

    fn fall(&mut self, now: Instant, sample: Duration) {
        let excess = self.base.saturating_sub(sample);
        self.pending.clear();
        self.begin_segment(now, sample);
        if let Some(raised) = self.raised.take() {
            // Back where it was: what stood above the base meanwhile was a queue after all.
            let bins = nanos(excess).div_ceil(nanos(RESIDUAL_BIN));
            self.settled.absorb(raised, usize::try_from(bins).unwrap_or(usize::MAX));
        }
    }

    fn push(&mut self, now: Instant, sample: Duration) {
        if self.pending.len() == PENDING_MAX {
            // Probed faster than the window can hold: the oldest counts as it stands.
            self.commit_oldest();
        }
        self.pending.push_back((now, sample));
    }

    /// Samples whose window has passed without a change belong to the segment. During a run of
    /// high samples it is not yet known whether the base has changed.
    fn commit(&mut self, now: Instant, config: &WanConfig) {
        let old = |&(at, _): &(Instant, Duration)| now.since(at) >= config.window;
        while self.pending.front().is_some_and(|sample| old(sample) && sample.0 <= self.low_at) {
            self.commit_oldest();
        }
    }

    fn commit_oldest(&mut self) {
        if let Some((at, sample)) = self.pending.pop_front() {
            let history = self.raised.as_mut().unwrap_or(&mut self.settled);
            history.record(at, sample.saturating_sub(self.base));
        }
    }

    /// A rise that has lasted ten minutes is the route.
    fn accept_raised(&mut self, config: &WanConfig) {
        if self.raised.is_some() && self.standing(config).is_none() {
            self.settle();
        }
    }

    /// Takes the residuals of a raised segment as they are.
    fn settle(&mut self) {
        if let Some(raised) = self.raised.take() {
            self.settled.absorb(raised, 0);
        }
    }

    /// The connection is a new one, over any path: what was learnt of residuals stays, its base is
    /// unknown.
    pub(super) fn reconnect(&mut self) {
        self.settle();
        self.pending.clear();
        self.run = None;
        self.minima = Minima::default();
        self.sequence = None;
    }
}

/// The least sample of each of the last ten minutes.
#[derive(Clone, Copy, Default, Debug)]
struct Minima {
    least: [Option<Duration>; MINUTES],
    minute: u64,
}

impl Minima {
    fn record(&mut self, now: Instant, sample: Duration) {
        let minute = now.as_nanos() / nanos(MINUTE);
        let passed = minute.saturating_sub(self.minute).min(MINUTES as u64);
        for ago in 0..passed {
            self.least[((minute - ago) % MINUTES as u64) as usize] = None;
        }
        self.minute = self.minute.max(minute);
        let least = &mut self.least[(self.minute % MINUTES as u64) as usize];
        *least = Some(least.map_or(sample, |least| least.min(sample)));
    }

    fn least(&self) -> Option<Duration> {
        self.least.iter().flatten().min().copied()
    }
}
