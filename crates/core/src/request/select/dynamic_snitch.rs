//! `dynamic-snitch`: Cassandra 5's replica ranking by recent median latency.
//!
//! **Signal**: latency of own reads, in a reservoir that prefers recent ones (100 samples, decay
//! 0.75 per second); every 100 ms each replica's score becomes its median over the largest median.
//! The order of the group (nearest first) is kept unless some replica scores worse than the sorted
//! order says by more than the badness threshold. **When it misleads**: for 100 ms all requests of
//! all clients follow one ranking, so load swings from replica to replica; latencies are whole
//! milliseconds, so fast replicas look equal; samples are forgotten only by the reset every ten
//! minutes, and a replica that is shunned gets no new ones. **Source**: `DynamicEndpointSnitch` of
//! Cassandra 5 (threshold 1.0; 0.1 in C3's time).

use crate::fleet::{Fleet, ReplicaId};
use crate::request::call::{Attempt, Outcome};
use crate::request::select::{Candidates, Choice, Selector};
use crate::rng::Rng;
use crate::time::{Duration, Instant};

/// The constants.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicSnitchConfig {
    /// How much worse than the sorted order a score may be before the order is given up: 1.0.
    pub badness: f64,
    /// Milliseconds between two rankings: 100.
    pub update_ms: f64,
    /// Minutes after which all samples are forgotten: 10.
    pub reset_min: f64,
}

impl Default for DynamicSnitchConfig {
    fn default() -> Self {
        Self { badness: 1.0, update_ms: 100.0, reset_min: 10.0 }
    }
}

/// Cassandra 5's snitch.
#[derive(Clone, Debug)]
pub struct DynamicSnitch {
    config: DynamicSnitchConfig,
    reservoirs: Vec<Reservoir>,
    /// Score per replica; a replica without samples scores 0, as in Cassandra.
    scores: Vec<f64>,
    updated_at: Instant,
    reset_at: Instant,
    rng: Rng,
}

/// A forward-decaying reservoir (Cormode et al., 2009): keeps the samples of highest priority
/// weight / uniform, where the weight grows exponentially with time.
#[derive(Clone, Debug, Default)]
struct Reservoir {
    samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Logarithm of the priority: the weight itself would overflow within the hour.
    priority_ln: f64,
    weight_ln: f64,
    latency_ms: u32,
}

impl Reservoir {
    const SIZE: usize = 100;
    /// Per second.
    const DECAY: f64 = 0.75;

    fn add(&mut self, now: Instant, latency_ms: u32, rng: &mut Rng) {
        let weight_ln = Self::DECAY * now.as_secs_f64();
        let uniform = 1.0 - rng.unit(); // in (0, 1]
        let sample = Sample { priority_ln: weight_ln - uniform.ln(), weight_ln, latency_ms };
        if self.samples.len() < Self::SIZE {
            self.samples.push(sample);
            return;
        }
        let by_priority =
            |a: &&mut Sample, b: &&mut Sample| a.priority_ln.total_cmp(&b.priority_ln);
        if let Some(least) = self.samples.iter_mut().min_by(by_priority)
            && least.priority_ln < sample.priority_ln
        {
            *least = sample;
        }
    }

    /// The weighted median, in milliseconds; `None` without samples.
    fn median_ms(&mut self) -> Option<f64> {
        let newest = self.samples.iter().map(|s| s.weight_ln).fold(f64::NEG_INFINITY, f64::max);
        self.samples.sort_by_key(|sample| sample.latency_ms);
        let weight = |sample: &Sample| (sample.weight_ln - newest).exp();
        let total: f64 = self.samples.iter().map(weight).sum();
        let mut below = 0.0;
        let median = self.samples.iter().find(|sample| {
            below += weight(sample);
            below >= total / 2.0
        })?;
        Some(f64::from(median.latency_ms))
    }
}

impl DynamicSnitch {
    /// With these constants.
    #[must_use]
    pub fn new(config: DynamicSnitchConfig) -> Self {
        Self {
            config,
            reservoirs: Vec::new(),
            scores: Vec::new(),
            updated_at: Instant::ZERO,
            reset_at: Instant::ZERO,
            rng: Rng::stream(0, "dynamic-snitch reservoirs"),
        }
    }

    fn update(&mut self, now: Instant) {
        let reset = Duration::from_secs_f64(self.config.reset_min * 60.0);
        if now.since(self.reset_at) >= reset {
            self.reset_at = now;
            self.reservoirs.fill(Reservoir::default());
        }
        self.updated_at = now;
        let medians: Vec<_> = self.reservoirs.iter_mut().map(Reservoir::median_ms).collect();
        let largest = medians.iter().flatten().fold(1.0, |max: f64, &median| max.max(median));
        for (score, median) in self.scores.iter_mut().zip(medians) {
            *score = median.map_or(0.0, |median| median / largest);
        }
    }

    fn score(&self, id: ReplicaId) -> f64 {
        self.scores[id.index()]
    }

    /// The group's order stands unless a place in it is worse than the sorted scores allow.
    fn order_is_bad(&self, ids: &[ReplicaId]) -> bool {
        let mut sorted: Vec<f64> = ids.iter().map(|&id| self.score(id)).collect();
        sorted.sort_by(f64::total_cmp);
        let allowed = 1.0 + self.config.badness;
        ids.iter().zip(sorted).any(|(&id, best)| self.score(id) > best * allowed)
    }
}

impl Selector for DynamicSnitch {
    fn name(&self) -> &'static str {
        "dynamic-snitch"
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, _rng: &mut Rng) -> Choice {
        if now.millis_since(self.updated_at) >= self.config.update_ms {
            self.update(now);
        }
        let ids = candidates.ids;
        if !self.order_is_bad(ids) {
            return Choice::Send(ids[0]);
        }
        let by_score = |a: &&ReplicaId, b: &&ReplicaId| self.score(**a).total_cmp(&self.score(**b));
        Choice::Send(*ids.iter().min_by(by_score).unwrap_or(&ids[0]))
    }

    fn cost(&self, _now: Instant, _fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        Some(self.score(replica))
    }

    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, _fleet: &Fleet) {
        // Timeouts are recorded with the time they took, as Cassandra does.
        if matches!(outcome, Outcome::Cancelled) {
            return;
        }
        let latency_ms = now.millis_since(of.sent_at()) as u32;
        self.reservoirs[of.replica().index()].add(now, latency_ms, &mut self.rng);
    }

    fn on_membership(&mut self, _now: Instant, fleet: &Fleet) {
        self.reservoirs.resize(fleet.len(), Reservoir::default());
        self.scores.resize(fleet.len(), 0.0);
    }
}
