//! `driver-default`: what Cassandra's java-driver 4 does when nobody configures it.
//!
//! Shuffle. With more than two replicas: when none came up less than a minute ago, move those that
//! look stuck to the back if they are a minority; otherwise send the newest back from the first two
//! places three times in four; then take the one of the first two with fewer requests in flight.
//!
//! **Signal**: own requests in flight and the times of the last two answers. **When it misleads**:
//! nothing is "stuck" below ten requests in flight, so a slow replica at low rates keeps its share;
//! with two replicas chance alone decides. **Source**: `DefaultLoadBalancingPolicy` of
//! cassandra-java-driver 4 (slow replica avoidance on).

use arrayvec::ArrayVec;

use crate::fleet::{Fleet, ReplicaId};
use crate::request::call::{Attempt, Failure, Outcome};
use crate::request::select::{Candidates, Choice, Selector, same_kind};
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
}

/// Candidates in the order in which they would be tried.
type Order = ArrayVec<ReplicaId, CANDIDATES_MAX>;

impl DriverDefault {
    fn is_stuck(&self, now: Instant, fleet: &Fleet, id: ReplicaId) -> bool {
        if fleet.replica(id).in_flight() < STUCK_IN_FLIGHT_MIN {
            return false;
        }
        // The older of the last two answers is recent only when both are.
        let older = self.answers[id.index()][0];
        older.is_none_or(|at| now.since(at) > STUCK_WITHIN)
    }

    fn stuck_to_the_back(&self, now: Instant, fleet: &Fleet, order: &mut Order) {
        let stuck = order.iter().filter(|&&id| self.is_stuck(now, fleet, id)).count();
        if 0 < stuck && 2 * stuck < order.len() {
            order.sort_by_key(|&id| self.is_stuck(now, fleet, id)); // stable
        }
    }
}

/// The candidate that came up last, if that was less than a minute ago.
fn newest(now: Instant, fleet: &Fleet, order: &[ReplicaId]) -> Option<ReplicaId> {
    let came_up = |id: &ReplicaId| fleet.replica(*id).joined;
    let new = |id: &&ReplicaId| came_up(id).is_some_and(|at| now.since(at) < NEW_FOR);
    order.iter().filter(new).max_by_key(|id| came_up(id)).copied()
}

impl Selector for DriverDefault {
    fn name(&self) -> &'static str {
        "driver-default"
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        let fleet = candidates.fleet;
        let mut order: Order = candidates.ids.iter().copied().take(CANDIDATES_MAX).collect();
        rng.shuffle(&mut order);
        if order.len() <= 2 {
            return Choice::Send(order[0]);
        }
        match newest(now, fleet, &order) {
            None => self.stuck_to_the_back(now, fleet, &mut order),
            Some(newest) => {
                let place = order.iter().take(2).position(|&id| id == newest);
                if let Some(place) = place
                    && rng.unit() < NEW_SENT_BACK
                {
                    order.remove(place);
                    order.push(newest);
                }
            }
        }
        let in_flight = |id: ReplicaId| fleet.replica(id).in_flight();
        let second_is_better = in_flight(order[0]) > in_flight(order[1]);
        Choice::Send(order[usize::from(second_is_better)])
    }

    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, _fleet: &Fleet) {
        let answered = match outcome {
            Outcome::Replied(_) | Outcome::Failed(Failure::ErrorReply | Failure::Unavailable) => {
                true
            }
            Outcome::Failed(Failure::Unsent | Failure::Broken | Failure::TimedOut)
            | Outcome::Cancelled => false,
        };
        if answered {
            let answers = &mut self.answers[of.replica().index()];
            *answers = [answers[1], Some(now)];
        }
    }

    fn on_reassigned(&mut self, _now: Instant, replica: ReplicaId, _fleet: &Fleet) {
        self.answers[replica.index()] = [None; STUCK_ANSWERS_MIN];
    }

    fn inherit(&mut self, _now: Instant, before: &mut dyn Selector) {
        if let Some(before) = same_kind::<Self>(before) {
            self.answers = core::mem::take(&mut before.answers);
        }
    }

    fn on_membership(&mut self, _now: Instant, fleet: &Fleet) {
        self.answers.resize(fleet.len(), [None; STUCK_ANSWERS_MIN]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::GroupId;

    const NOW: Instant = Instant::from_millis(100_000);

    /// How often each replica is chosen out of 8,000 times.
    fn chosen(driver: &mut DriverDefault, fleet: &Fleet) -> Vec<f64> {
        let mut counts = vec![0.0; fleet.len()];
        let mut rng = Rng::seeded(7);
        let group = GroupId::new(0);
        for _ in 0..8_000 {
            let candidates = Candidates { fleet, group, ids: fleet.group(group) };
            match driver.select(NOW, candidates, &mut rng) {
                Choice::Send(id) => counts[id.index()] += 1.0,
                other => panic!("{other:?}"),
            }
        }
        counts
    }

    fn with_in_flight(in_flight: &[u32]) -> (DriverDefault, Fleet) {
        let mut fleet = Fleet::single_group(in_flight.len());
        for (slot, &count) in in_flight.iter().enumerate() {
            fleet.replica_mut(ReplicaId::new(slot)).in_flight = count;
        }
        let mut driver = DriverDefault::default();
        driver.on_membership(Instant::ZERO, &fleet);
        (driver, fleet)
    }

    /// Five standard deviations of a count out of 8,000.
    fn is_about(count: f64, share: f64) -> bool {
        (count - 8_000.0 * share).abs() <= 5.0 * (8_000.0 * share * (1.0 - share)).sqrt()
    }

    #[test]
    fn with_two_replicas_chance_alone_decides() {
        let (mut driver, fleet) = with_in_flight(&[0, 9]);
        let counts = chosen(&mut driver, &fleet);
        assert!(is_about(counts[0], 0.5), "{counts:?}");
    }

    #[test]
    fn of_three_the_busiest_is_never_the_better_of_two() {
        let (mut driver, fleet) = with_in_flight(&[0, 0, 9]);
        let counts = chosen(&mut driver, &fleet);
        assert!(counts[2] == 0.0 && is_about(counts[0], 0.5), "{counts:?}");
    }

    #[test]
    fn stuck_replicas_go_to_the_back_only_when_they_are_a_minority() {
        // Busier than the stuck ones, but answering: without the rule never chosen over them.
        let answers = [Some(NOW), Some(NOW)];
        let (mut driver, fleet) = with_in_flight(&[10, 20, 20]);
        (driver.answers[1], driver.answers[2]) = (answers, answers);
        let counts = chosen(&mut driver, &fleet);
        assert_eq!(counts[0], 0.0, "one of three is a minority: {counts:?}");
        let (mut driver, fleet) = with_in_flight(&[10, 10, 20, 20]);
        (driver.answers[2], driver.answers[3]) = (answers, answers);
        let counts = chosen(&mut driver, &fleet);
        // Half of four is none: only the pair (2, 3), one in six, avoids both.
        assert!(is_about(counts[0] + counts[1], 5.0 / 6.0), "{counts:?}");
    }

    #[test]
    fn the_newest_is_sent_back_three_times_in_four() {
        let (mut driver, mut fleet) = with_in_flight(&[5, 5, 0]);
        fleet.replica_mut(ReplicaId::new(2)).joined = Some(Instant::from_millis(60_000));
        let counts = chosen(&mut driver, &fleet);
        // In the first two places two times in three, left there one time in four, then idle: wins.
        assert!(is_about(counts[2], 2.0 / 3.0 / 4.0), "{counts:?}");
        fleet.replica_mut(ReplicaId::new(2)).joined = Some(Instant::from_millis(30_000));
        let counts = chosen(&mut driver, &fleet);
        assert!(is_about(counts[2], 2.0 / 3.0), "up for more than a minute: {counts:?}");
    }
}
