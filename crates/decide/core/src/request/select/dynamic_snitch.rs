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

use core::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::fleet::{Fleet, ReplicaId};
use crate::request::call::{Attempt, Failure, Outcome};
use crate::request::select::{Candidates, Choice, Selector, same_kind};
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
    /// Whether time since a replica's last answer, at most `update_ms`, over the longest such time
    /// is added to its score: off; on in the C3 authors' simulator, as in Cassandra 2.0.
    pub silence: bool,
}

impl Default for DynamicSnitchConfig {
    fn default() -> Self {
        Self { badness: 1.0, update_ms: 100.0, reset_min: 10.0, silence: false }
    }
}

/// Cassandra 5's snitch.
#[derive(Clone, Debug)]
pub struct DynamicSnitch {
    config: DynamicSnitchConfig,
    reservoirs: Vec<Reservoir>,
    /// Score per replica; a replica without samples scores 0, as in Cassandra.
    scores: Vec<f64>,
    /// Last answer per replica.
    received_at: Vec<Instant>,
    updated_at: Instant,
    reset_at: Instant,
    /// Room to sort in, kept so that no request allocates.
    sorted_samples: Vec<Sample>,
    sorted_scores: Vec<f64>,
    rng: Rng,
}

/// A forward-decaying reservoir (Cormode et al., 2009): keeps the samples of highest priority
/// weight / uniform, where the weight grows exponentially with time.
#[derive(Clone, Debug)]
struct Reservoir {
    /// The sample of least priority on top: it is the next to go.
    samples: BinaryHeap<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Logarithm of the priority: the weight itself would overflow within the hour.
    priority_ln: f64,
    weight_ln: f64,
    latency_ms: u32,
}

impl Ord for Sample {
    fn cmp(&self, other: &Self) -> Ordering {
        other.priority_ln.total_cmp(&self.priority_ln)
    }
}

impl PartialOrd for Sample {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Sample {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Sample {}

impl Reservoir {
    const SIZE: usize = 100;
    /// Per second.
    const DECAY: f64 = 0.75;

    fn new() -> Self {
        Self { samples: BinaryHeap::with_capacity(Self::SIZE) }
    }

    fn add(&mut self, now: Instant, latency_ms: u32, rng: &mut Rng) {
        let weight_ln = Self::DECAY * now.as_secs_f64();
        let uniform = 1.0 - rng.unit(); // in (0, 1]
        let sample = Sample { priority_ln: weight_ln - uniform.ln(), weight_ln, latency_ms };
        if self.samples.len() < Self::SIZE {
            self.samples.push(sample);
            return;
        }
        if let Some(mut least) = self.samples.peek_mut()
            && least.priority_ln < sample.priority_ln
        {
            *least = sample;
        }
    }

    /// The weighted median, in milliseconds; `None` without samples.
    fn median_ms(&self, sorted: &mut Vec<Sample>) -> Option<f64> {
        sorted.clear();
        sorted.extend(&self.samples);
        sorted.sort_unstable_by_key(|sample| sample.latency_ms);
        let newest = sorted.iter().map(|s| s.weight_ln).fold(f64::NEG_INFINITY, f64::max);
        let weight = |sample: &Sample| (sample.weight_ln - newest).exp();
        let total: f64 = sorted.iter().map(weight).sum();
        let mut below = 0.0;
        let median = sorted.iter().find(|sample| {
            below += weight(sample);
            below >= total / 2.0
        })?;
        Some(f64::from(median.latency_ms))
    }
}

impl DynamicSnitch {
    /// With these constants.
    pub fn new(config: DynamicSnitchConfig) -> Self {
        Self {
            config,
            reservoirs: Vec::new(),
            scores: Vec::new(),
            received_at: Vec::new(),
            updated_at: Instant::ZERO,
            reset_at: Instant::ZERO,
            sorted_samples: Vec::with_capacity(Reservoir::SIZE),
            sorted_scores: Vec::new(),
            rng: Rng::stream(0, "dynamic-snitch reservoirs"),
        }
    }

    fn update(&mut self, now: Instant) {
        let reset = Duration::from_secs_f64(self.config.reset_min * 60.0);
        if now.since(self.reset_at) >= reset {
            self.reset_at = now;
            self.reservoirs.iter_mut().for_each(|reservoir| reservoir.samples.clear());
        }
        self.updated_at = now;
        let mut largest = 1.0_f64; // Cassandra's smallest denominator: one millisecond
        for (score, reservoir) in self.scores.iter_mut().zip(&self.reservoirs) {
            *score = reservoir.median_ms(&mut self.sorted_samples).unwrap_or(0.0);
            largest = largest.max(*score);
        }
        self.scores.iter_mut().for_each(|score| *score /= largest);
        if self.config.silence {
            self.penalise_silence(now);
        }
    }

    /// Adds time since the last answer over the longest such time: 0 to 1, as the medians are.
    fn penalise_silence(&mut self, now: Instant) {
        let silent_ms = |at: &Instant| now.millis_since(*at).min(self.config.update_ms);
        let longest_ms = self.received_at.iter().map(silent_ms).fold(1.0, f64::max);
        for (score, at) in self.scores.iter_mut().zip(&self.received_at) {
            *score += silent_ms(at) / longest_ms;
        }
    }

    fn score(&self, id: ReplicaId) -> f64 {
        self.scores[id.index()]
    }

    /// The group's order stands unless a place in it is worse than the sorted scores allow.
    fn order_is_bad(&mut self, ids: &[ReplicaId]) -> bool {
        let mut sorted = core::mem::take(&mut self.sorted_scores);
        sorted.clear();
        sorted.extend(ids.iter().map(|&id| self.score(id)));
        sorted.sort_unstable_by(f64::total_cmp);
        let allowed = 1.0 + self.config.badness;
        let is_bad = ids.iter().zip(&sorted).any(|(&id, best)| self.score(id) > best * allowed);
        self.sorted_scores = sorted;
        is_bad
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
        // As in Cassandra, a timeout counts with the time it took, and other failures do not: a
        // replica that fails at once must not look fast.
        if matches!(outcome, Outcome::Replied(_) | Outcome::Failed(Failure::TimedOut)) {
            let latency_ms = now.millis_since(of.sent_at()) as u32;
            self.reservoirs[of.replica().index()].add(now, latency_ms, &mut self.rng);
            self.received_at[of.replica().index()] = now;
        }
    }

    fn on_reassigned(&mut self, _now: Instant, replica: ReplicaId, _fleet: &Fleet) {
        self.reservoirs[replica.index()].samples.clear();
        self.scores[replica.index()] = 0.0;
        self.received_at[replica.index()] = Instant::ZERO;
    }

    fn inherit(&mut self, _now: Instant, before: &mut dyn Selector) {
        let Some(before) = same_kind::<Self>(before) else { return };
        core::mem::swap(&mut self.config, &mut before.config);
        core::mem::swap(self, before);
    }

    fn on_membership(&mut self, _now: Instant, fleet: &Fleet) {
        self.reservoirs.resize_with(fleet.len(), Reservoir::new);
        self.scores.resize(fleet.len(), 0.0);
        self.received_at.resize(fleet.len(), Instant::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{BodyEnd, CallId, Dispatcher, DispatcherConfig, Failure};

    #[test]
    fn a_fast_failure_is_no_fast_answer_and_a_timeout_is_slow() {
        let policy = DynamicSnitch::new(DynamicSnitchConfig::default());
        let fleet = Fleet::single_group(3);
        let config = DispatcherConfig::default();
        let mut dispatcher = Dispatcher::new(fleet, Box::new(policy), config);
        let slot = ReplicaId::new;
        let mut learn = |id, latency_ms, outcome| {
            let mut attempt = dispatcher.mirror(Instant::ZERO, CallId(0), id);
            let now = Instant::from_millis(latency_ms);
            let _ = dispatcher.learn(now, &mut attempt, &outcome);
            dispatcher.finish(now, attempt, BodyEnd::Complete);
        };
        learn(slot(0), 0, Outcome::Failed(Failure::ErrorReply));
        learn(slot(0), 0, Outcome::Failed(Failure::Unsent));
        learn(slot(0), 40, Outcome::Replied(None));
        learn(slot(1), 10, Outcome::Replied(None));
        learn(slot(2), 80, Outcome::Failed(Failure::TimedOut));
        let group = crate::fleet::GroupId::new(0);
        let replay = crate::request::Replay::IfUnsent;
        let now = Instant::from_millis(200);
        let mut call = dispatcher.open(now, CallId(1), crate::request::Request::new(group, replay));
        let _ = dispatcher.step(now, &mut call);
        // Medians over the largest median, 80 ms.
        let costs = [0, 1, 2].map(|n| dispatcher.cost(now, slot(n)));
        assert_eq!(costs, [Some(0.5), Some(0.125), Some(1.0)]);
    }

    #[test]
    fn silence_counts_as_much_as_the_largest_median() {
        let fleet = Fleet::single_group(2);
        let config = DynamicSnitchConfig { silence: true, ..DynamicSnitchConfig::default() };
        let mut snitch = DynamicSnitch::new(config);
        snitch.on_membership(Instant::ZERO, &fleet);
        let (silent, heard) = (ReplicaId::new(0), ReplicaId::new(1));
        for (id, latency_ms, at_ms) in [(silent, 10, 40), (heard, 20, 80)] {
            snitch.reservoirs[id.index()].add(Instant::ZERO, latency_ms, &mut Rng::seeded(1));
            snitch.received_at[id.index()] = Instant::from_millis(at_ms);
        }
        snitch.update(Instant::from_millis(100));
        // Medians 10 and 20 of 20 ms; silent for 60 and 20 of 60 ms.
        assert!((snitch.score(silent) - (0.5 + 1.0)).abs() < 1e-12);
        assert!((snitch.score(heard) - (1.0 + 1.0 / 3.0)).abs() < 1e-12);
    }
}
