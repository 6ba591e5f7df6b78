//! What is measured of accesses, and whether it is still what plans were made from.
//!
//! Section 3.2 of the paper: of a random sample of accesses response time, service time, shard and
//! network time are kept in windows of a fixed number of samples. When the information gain between
//! windows says that service times have changed, samples are taken more often until they settle.
//!
//! **Signal**: service times, not response times, which change with load and duplicates while the
//! model's input does not. **Statistic**: [`Divergence`] between two windows that share no sample;
//! its noise is known, so a window need not be large to be believed. **Counting**: every access is
//! counted for its shard, sampled or not, so that rates are exact.
//!
//! **Phases.** *Settled*: each full window is compared with the reference, the window on which it
//! settled; a slow drift is seen too, since the reference does not move along. A divergence makes
//! it
//! *settling*: samples are taken [`faster`](Sampling::faster) and each window is compared with the
//! one before, until [`calm`](Sampling::calm) in a row agree; the last is the new reference. It
//! begins settling: nothing is known at first.
//!
//! **When it misleads.** A window that spans a change is a mixture of both; plans wait until it has
//! settled. Pauses longer than a window look like two changes. A pause that meets many sampled
//! accesses is one event seen many times, which looks surer than it is: the smaller the share of
//! accesses sampled, the better.

use super::correlation::Correlation;
use super::{Service, Times};
use evenkeel_core::distribution::{Divergence, Recorder};
use evenkeel_core::rng::Rng;
use evenkeel_core::time::{Duration, Instant, nanos};
use evenkeel_core::units::{OutOfRange, Probability, Rate};

/// How samples are taken.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampling {
    /// Samples of a window.
    pub samples: usize,
    /// The share of accesses that is sampled when all is settled.
    pub share: Probability,
    /// How many times as many are sampled while it settles.
    pub faster: f64,
    /// Windows in a row that must agree for it to have settled.
    pub calm: u32,
    /// Shards of the service.
    pub shards: usize,
}

impl Default for Sampling {
    /// 10 000 samples (the paper's table 3), 1 % of accesses, ten times as many while settling
    /// until two comparisons agree; one shard.
    fn default() -> Self {
        Self {
            samples: 10_000,
            share: Probability::clamped(0.01),
            faster: 10.0,
            calm: 2,
            shards: 1,
        }
    }
}

/// One sampled access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// From sending to the first answer.
    pub response: Duration,
    /// What a duplicate worked on it, waiting apart.
    pub service: Duration,
    /// What messages took.
    pub network: Duration,
}

/// A full window.
#[derive(Clone, Debug)]
pub struct Window {
    /// When its first access was counted.
    pub from: Instant,
    /// When its last sample came.
    pub until: Instant,
    /// Accesses per second by shard, all of them.
    pub rates: Vec<Rate>,
    /// μ_net: the mean network time.
    pub network: Duration,
    /// Response times.
    pub responses: Recorder,
    services: Vec<Duration>,
    recorded: Recorder,
}

impl Window {
    /// Service times as the models want them.
    pub fn times(&self) -> Times {
        Times::recorded(&self.services).expect("a full window has samples")
    }

    /// Service times as they came.
    pub fn services(&self) -> &[Duration] {
        &self.services
    }

    /// Accesses per second of all shards together.
    pub fn rate(&self) -> Rate {
        let sum = self.rates.iter().map(|rate| rate.value()).sum();
        Rate::new(sum).expect("rates of a window are finite counts over a time above zero")
    }
}

/// Whether service times are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// They are what they were: plans hold.
    Settled,
    /// They changed, or nothing is known yet: samples are taken faster, plans wait.
    Settling,
}

/// What a full window says.
#[derive(Clone, Debug)]
pub struct Closed {
    /// The window.
    pub window: Window,
    /// Against the reference when settled, else against the window before; none for the first.
    pub divergence: Option<Divergence>,
    /// From now on.
    pub phase: Phase,
}

/// Takes samples and compares windows.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    phase: Phase,
    calm: u32,
    /// What the next window is compared with.
    reference: Option<Recorder>,
    filling: Filling,
}

#[derive(Clone, Debug)]
struct Filling {
    from: Option<Instant>,
    counts: Vec<u64>,
    services: Vec<Duration>,
    recorded: Recorder,
    responses: Recorder,
    network_nanos: u128,
}

impl Filling {
    fn new(shards: usize) -> Self {
        Self {
            from: None,
            counts: vec![0; shards],
            services: Vec::new(),
            recorded: Recorder::default(),
            responses: Recorder::default(),
            network_nanos: 0,
        }
    }

    fn closed(self, until: Instant) -> Window {
        let from = self.from.unwrap_or(until);
        // A nanosecond at least: a window that took no time has no rate.
        let seconds = nanos(until.since(from)).max(1) as f64 / 1e9;
        let rate = |&count: &u64| {
            Rate::new(count as f64 / seconds).expect("a count over a time above zero is a rate")
        };
        let samples = self.services.len().max(1) as u128;
        let network = u64::try_from(self.network_nanos / samples).unwrap_or(u64::MAX);
        Window {
            from,
            until,
            rates: self.counts.iter().map(rate).collect(),
            network: Duration::from_nanos(network),
            responses: self.responses,
            services: self.services,
            recorded: self.recorded,
        }
    }
}

impl Sampler {
    /// Nothing is known yet.
    ///
    /// # Errors
    /// When windows have fewer than 16 samples (too few to compare), a share or `faster` below what
    /// makes sense, or no shard.
    pub fn new(sampling: Sampling) -> Result<Self, OutOfRange> {
        let wrong = |came, expected| Err(OutOfRange { came, expected });
        if sampling.samples < 16 {
            return wrong(sampling.samples as f64, "a window of 16 samples or more");
        }
        if sampling.share == Probability::ZERO {
            return wrong(0.0, "a share of accesses above 0 to sample");
        }
        if !(sampling.faster >= 1.0 && sampling.faster.is_finite()) {
            return wrong(sampling.faster, "1 or more times as many samples while settling");
        }
        if sampling.shards == 0 {
            return wrong(0.0, "one shard or more");
        }
        let filling = Filling::new(sampling.shards);
        Ok(Self { sampling, phase: Phase::Settling, calm: 0, reference: None, filling })
    }

    /// Whether service times are known.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// The share of accesses that is sampled now.
    pub fn share(&self) -> Probability {
        match self.phase {
            Phase::Settled => self.sampling.share,
            Phase::Settling => {
                Probability::clamped(self.sampling.share.value() * self.sampling.faster)
            }
        }
    }

    /// Counts an access of this shard; whether it should be measured and told to
    /// [`learn`](Self::learn). An unknown shard is counted for none.
    pub fn count(&mut self, now: Instant, shard: usize, rng: &mut Rng) -> bool {
        self.filling.from.get_or_insert(now);
        if let Some(count) = self.filling.counts.get_mut(shard) {
            *count += 1;
        }
        rng.chance(self.share())
    }

    /// Learns what a sampled access took. When that fills the window, what it says.
    pub fn learn(&mut self, now: Instant, access: Access) -> Option<Closed> {
        let filling = &mut self.filling;
        filling.services.push(access.service);
        filling.recorded.record(access.service);
        filling.responses.record(access.response);
        filling.network_nanos += u128::from(nanos(access.network));
        if filling.services.len() < self.sampling.samples {
            return None;
        }
        let next = Filling::new(self.sampling.shards);
        let window = core::mem::replace(&mut self.filling, next).closed(now);
        let divergence = self.compared(&window.recorded);
        Some(Closed { window, divergence, phase: self.phase })
    }

    fn compared(&mut self, newest: &Recorder) -> Option<Divergence> {
        let divergence = self
            .reference
            .as_ref()
            .and_then(|reference| Divergence::between(reference.buckets(), newest.buckets()));
        let agrees = divergence.is_some_and(|divergence| !divergence.is_significant());
        match (self.phase, agrees) {
            (Phase::Settled, true) => return divergence,
            (Phase::Settled, false) => (self.phase, self.calm) = (Phase::Settling, 0),
            (Phase::Settling, false) => self.calm = 0,
            (Phase::Settling, true) => self.calm += 1,
        }
        if self.calm >= self.sampling.calm.max(1) {
            self.phase = Phase::Settled;
        }
        self.reference = Some(newest.clone());
        divergence
    }
}

/// The newest accesses that all duplicates of a partition answered, each with all their times: what
/// tells whether outliers coincide.
#[derive(Clone, Debug)]
pub struct Rows {
    duplicates: usize,
    rows_max: usize,
    next: usize,
    rows: Vec<Vec<Duration>>,
}

impl Rows {
    /// Room for so many rows of so many duplicates.
    ///
    /// # Errors
    /// When either is zero.
    pub fn new(duplicates: usize, rows_max: usize) -> Result<Self, OutOfRange> {
        if duplicates == 0 || rows_max == 0 {
            return Err(OutOfRange { came: 0.0, expected: "one duplicate and one row or more" });
        }
        Ok(Self { duplicates, rows_max, next: 0, rows: Vec::new() })
    }

    /// Keeps a row; the oldest goes when there is no room. A row with too few or too many times is
    /// not kept.
    pub fn push(&mut self, row: &[Duration]) {
        if row.len() != self.duplicates {
            return;
        }
        if self.rows.len() < self.rows_max {
            self.rows.push(row.to_vec());
        } else {
            self.rows[self.next].copy_from_slice(row);
        }
        self.next = (self.next + 1) % self.rows_max;
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Whether times above each duplicate's own quantile coincide; none without rows or with one
    /// duplicate.
    pub fn correlation(&self, quantile: Probability) -> Option<Correlation> {
        Correlation::beyond_quantile(&self.rows, quantile)
    }

    /// Whether times above the bound coincide.
    pub fn correlation_beyond(&self, bound: Duration) -> Option<Correlation> {
        Correlation::beyond_bound(&self.rows, bound)
    }

    /// The service times of these duplicates with all their dependence.
    ///
    /// # Errors
    /// When there is no row.
    pub fn service(&self) -> Result<Service, OutOfRange> {
        Service::together(&self.rows)
    }
}
