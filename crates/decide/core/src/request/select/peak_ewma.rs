//! `peak-ewma`: of two random candidates the one with the lower latency × (in flight + 1).
//!
//! **Signal**: an average of latency that jumps to a peak at once and forgets it over `tau`.
//! **When it misleads**: latency contains the queue already, so queues count twice; one slow
//! answer shuns a replica for seconds. **Cold start**: a replica without data is taken to have
//! `default_rtt`, which fades as well, so that new and shunned replicas are tried. **Failures** are
//! no latencies (a fast failure must not look like a fast answer; a penalty in the average would
//! shun a replica for a minute after it is well again): the share of recent failures, which is
//! forgotten within seconds, adds its part of `failure_penalty`.
//! **Source**: Finagle's `PeakEwma`; default RTT and decay as in linkerd2-proxy.

use crate::fleet::{Fleet, ReplicaId};
use crate::request::call::{Attempt, Failure, Outcome};
use crate::request::decision::Candidate;
use crate::request::select::{Candidates, Choice, Selector, cheapest, same_kind, two_of};
use crate::rng::Rng;
use crate::time::Instant;

/// The constants.
#[derive(Clone, Debug, PartialEq)]
pub struct PeakEwmaConfig {
    /// Time constant of forgetting, milliseconds: 10 000 (Finagle, linkerd).
    pub tau_ms: f64,
    /// Latency of a replica never heard from, milliseconds: 30 (linkerd).
    pub default_rtt_ms: f64,
    /// Latency added to that of a replica all of whose recent answers failed, milliseconds: 1 000.
    pub failure_penalty_ms: f64,
}

impl Default for PeakEwmaConfig {
    fn default() -> Self {
        Self { tau_ms: 10_000.0, default_rtt_ms: 30.0, failure_penalty_ms: 1_000.0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    latency_ms: f64,
    at: Instant,
}

/// P2C over peak-sensitive latency.
#[derive(Clone, Debug)]
pub struct PeakEwma {
    config: PeakEwmaConfig,
    estimates: Vec<Estimate>,
}

/// Finagle's load: the latency a further request adds to.
fn load(latency_ms: f64, in_flight: u32) -> f64 {
    latency_ms * (f64::from(in_flight) + 1.0)
}

impl PeakEwma {
    /// With these constants.
    pub const fn new(config: PeakEwmaConfig) -> Self {
        Self { config, estimates: Vec::new() }
    }

    const fn unknown(&self, now: Instant) -> Estimate {
        Estimate { latency_ms: self.config.default_rtt_ms, at: now }
    }

    /// The estimate, faded for the time since it was made.
    fn faded(&self, now: Instant, id: ReplicaId) -> f64 {
        let Estimate { latency_ms, at } = self.estimates[id.index()];
        latency_ms * (-now.millis_since(at) / self.config.tau_ms).exp()
    }

    fn load_of(&self, now: Instant, fleet: &Fleet, id: ReplicaId) -> f64 {
        let replica = fleet.replica(id);
        let penalty_ms = replica.failure_share(now) * self.config.failure_penalty_ms;
        load(self.faded(now, id) + penalty_ms, replica.in_flight_of_all())
    }

    fn observe(&mut self, now: Instant, id: ReplicaId, latency_ms: f64) {
        let estimate = self.estimates[id.index()];
        let kept = (-now.millis_since(estimate.at) / self.config.tau_ms).exp();
        let average = estimate.latency_ms * kept + latency_ms * (1.0 - kept);
        self.estimates[id.index()] = Estimate { latency_ms: average.max(latency_ms), at: now };
    }
}

impl Selector for PeakEwma {
    fn name(&self) -> &'static str {
        "peak-ewma"
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        let (one, other) = two_of(candidates.ids, rng);
        let load = |id| self.load_of(now, candidates.fleet, id);
        Choice::Send(cheapest(&[one, other], rng, load))
    }

    fn cost(&self, now: Instant, fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        Some(self.load_of(now, fleet, replica))
    }

    fn rate(&self, now: Instant, fleet: &Fleet, candidates: &mut [Candidate]) {
        for one in candidates {
            let id = one.replica();
            one.cost = self.load_of(now, fleet, id) as f32;
            one.latency_ms = self.faded(now, id) as f32;
        }
    }

    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, _fleet: &Fleet) {
        let latency_ms = now.millis_since(of.sent_at());
        match outcome {
            Outcome::Replied(_) => self.observe(now, of.replica(), latency_ms),
            Outcome::Failed(Failure::TimedOut) => self.observe(now, of.replica(), latency_ms),
            Outcome::Failed(Failure::Unsent | Failure::Broken)
            | Outcome::Failed(Failure::Unavailable | Failure::ErrorReply)
            | Outcome::Cancelled => {}
        }
    }

    fn on_reassigned(&mut self, now: Instant, replica: ReplicaId, _fleet: &Fleet) {
        self.estimates[replica.index()] = self.unknown(now);
    }

    fn inherit(&mut self, _now: Instant, before: &mut dyn Selector) {
        if let Some(before) = same_kind::<Self>(before) {
            self.estimates = core::mem::take(&mut before.estimates);
        }
    }

    fn on_membership(&mut self, now: Instant, fleet: &Fleet) {
        let unknown = self.unknown(now);
        self.estimates.resize(fleet.len(), unknown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{BodyEnd, CallId, Dispatcher, DispatcherConfig};

    #[test]
    fn a_failure_costs_at_once_and_is_forgotten_within_seconds() {
        let policy = PeakEwma::new(PeakEwmaConfig::default());
        let fleet = Fleet::single_group(1);
        let config = DispatcherConfig::default();
        let mut dispatcher = Dispatcher::new(fleet, Box::new(policy), config);
        let id = ReplicaId::new(0);
        let mut learn = |sent_ms, latency_ms, outcome| {
            let mut attempt = dispatcher.mirror(Instant::from_millis(sent_ms), CallId(0), id);
            let now = Instant::from_millis(sent_ms + latency_ms);
            let _ = dispatcher.learn(now, &mut attempt, &outcome);
            dispatcher.finish(now, attempt, BodyEnd::Complete);
            dispatcher.cost(now, id).expect("it ranks")
        };
        let well = learn(0, 40, Outcome::Replied(None));
        // A peak above the 30 ms assumed at first: taken over whole.
        assert!((well - 40.0).abs() < 1e-9, "{well}");
        let failing = learn(50, 0, Outcome::Failed(Failure::ErrorReply));
        // One failure is 0.3 of the recent answers, and a second is the penalty for all of them.
        let faded = 40.0 * (-0.001_f64).exp();
        assert!((failing - faded - 300.0).abs() < 0.1, "{failing}");
        let later = Instant::from_millis(10_050);
        let forgotten = dispatcher.cost(later, id).expect("it ranks");
        let expected = faded * (-1.0_f64).exp() + 300.0 * (-5.0_f64).exp();
        assert!((forgotten - expected).abs() < 0.1, "{forgotten}");
    }
}
