//! `driver-default`: what Cassandra's java-driver 4 does when nobody configures it.
//!
//! Shuffle; with more than two replicas move those that look stuck to the back if they are a
//! minority; send a replica that came up less than a minute ago back from the first two places
//! three times in four; then take the one of the first two with fewer requests in flight.
//!
//! **Signal**: own requests in flight and the times of the last two answers. **When it misleads**:
//! nothing is "stuck" below ten requests in flight, so a slow replica at low rates keeps its share;
//! with two replicas only two-choices is left. **Source**: `DefaultLoadBalancingPolicy` of
//! cassandra-java-driver 4 (slow replica avoidance on).

use arrayvec::ArrayVec;

use crate::fleet::{Fleet, ReplicaId};
use crate::request::call::{Attempt, Outcome};
use crate::request::select::{Candidates, Choice, Selector, cheapest};
use crate::rng::Rng;
use crate::time::{Duration, Instant};

const STUCK_IN_FLIGHT_MIN: u32 = 10;
const STUCK_ANSWERS_MIN: usize = 2;
const STUCK_WITHIN: Duration = Duration::from_millis(200);
const NEW_FOR: Duration = Duration::from_secs(60);
const NEW_SENT_BACK: f64 = 0.75;
/// Candidates looked at; a group is rarely larger than its replication factor.
const CANDIDATES_MAX: usize = 64;

/// The rule of java-driver 4.
#[derive(Clone, Debug, Default)]
pub struct DriverDefault {
    /// Per replica, when its last two answers came, older first.
    answers: Vec<[Option<Instant>; STUCK_ANSWERS_MIN]>,
    came_up: Vec<Option<Instant>>,
}

impl DriverDefault {
    fn is_stuck(&self, now: Instant, fleet: &Fleet, id: ReplicaId) -> bool {
        if fleet.replica(id).in_flight() < STUCK_IN_FLIGHT_MIN {
            return false;
        }
        // The older of the last two answers is recent only when both are.
        let older = self.answers[id.index()][0];
        older.is_none_or(|at| now.since(at) > STUCK_WITHIN)
    }

    fn is_new(&self, now: Instant, id: ReplicaId) -> bool {
        self.came_up[id.index()].is_some_and(|at| now.since(at) < NEW_FOR)
    }
}

impl Selector for DriverDefault {
    fn name(&self) -> &'static str {
        "driver-default"
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        let fleet = candidates.fleet;
        let mut order: ArrayVec<ReplicaId, CANDIDATES_MAX> =
            candidates.ids.iter().copied().take(CANDIDATES_MAX).collect();
        rng.shuffle(&mut order);
        if order.len() > 2 {
            let stuck = order.iter().filter(|&&id| self.is_stuck(now, fleet, id)).count();
            if 0 < stuck && stuck <= order.len() / 2 {
                order.sort_by_key(|&id| self.is_stuck(now, fleet, id)); // stable
            }
            let new = order.iter().take(2).position(|&id| self.is_new(now, id));
            if let Some(place) = new
                && rng.unit() < NEW_SENT_BACK
            {
                let id = order.remove(place);
                order.push(id);
            }
        }
        order.truncate(2);
        let in_flight = |id| f64::from(fleet.replica(id).in_flight());
        Choice::Send(cheapest(&order, rng, in_flight))
    }

    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, _fleet: &Fleet) {
        if matches!(outcome, Outcome::Replied(_)) {
            let answers = &mut self.answers[of.replica().index()];
            *answers = [answers[1], Some(now)];
        }
    }

    fn on_membership(&mut self, now: Instant, fleet: &Fleet) {
        let came_up = if self.came_up.is_empty() { None } else { Some(now) };
        self.came_up.resize(fleet.len(), came_up);
        self.answers.resize(fleet.len(), [None; STUCK_ANSWERS_MIN]);
    }
}
