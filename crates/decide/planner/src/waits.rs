//! How long quorums of one replica set take, under several round trips side by side.
//!
//! Tier 2 asks the same of every leader and interval: the majority-th smallest of a few round
//! trips. Those of all intervals lie beside each other here, so one pass of compare-and-exchange
//! over the voters sorts them all at once and without a branch.

use super::model::{RoundTrips, majority};

/// So many round trips are looked at together.
pub(super) const LANES: usize = 8;

/// One number for each of some round trips.
pub(super) type Lanes = [f64; LANES];

/// Majorities up to this need no allocation.
const FEW: usize = 4;

/// Ways between the replicas of one set, by round trips, and what waits for quorums under each.
/// Replicas go by their place in the set.
pub(super) struct Waits {
    replicas: usize,
    /// How many quorums are waited for, filled up with 0.
    weights: Vec<Lanes>,
    /// From a leader to a replica; those from one leader follow each other.
    trips_ms: Vec<Lanes>,
    used: usize,
}

impl Waits {
    pub(super) const fn new(replicas: usize) -> Self {
        Self { replicas, weights: Vec::new(), trips_ms: Vec::new(), used: 0 }
    }

    /// Takes over the round trips between these replicas, under which so many quorums are waited
    /// for.
    pub(super) fn push(&mut self, weight: f64, trips: &RoundTrips, replicas: &[usize]) {
        let lane = self.used % LANES;
        if lane == 0 {
            self.weights.push([0.0; LANES]);
            self.trips_ms.resize(self.trips_ms.len() + self.replicas * self.replicas, [0.0; LANES]);
        }
        let chunk = self.used / LANES;
        self.weights[chunk][lane] = weight;
        let trips_ms = &mut self.trips_ms[chunk * self.replicas * self.replicas..];
        for (trips_ms, leader) in trips_ms.chunks_exact_mut(self.replicas).zip(replicas) {
            let row = trips.from_site(*leader);
            trips_ms
                .iter_mut()
                .zip(replicas)
                .for_each(|(trip_ms, replica)| trip_ms[lane] = row[*replica]);
        }
        self.used += 1;
    }

    /// By round trips, [`LANES`] at a time: how many quorums are waited for.
    pub(super) fn weights(&self) -> &[Lanes] {
        &self.weights
    }

    /// The round trips of a leader to all replicas under some of the round trips.
    fn trips_ms(&self, chunk: usize, leader: usize) -> &[Lanes] {
        &self.trips_ms[(chunk * self.replicas + leader) * self.replicas..][..self.replicas]
    }

    /// What all waits together would be for one way, in milliseconds × operations.
    pub(super) fn along(&self, leader: usize, replica: usize) -> f64 {
        let chunks = self.weights.iter().enumerate();
        chunks.map(|(chunk, weights)| total(weights, &self.trips_ms(chunk, leader)[replica])).sum()
    }

    /// The quorum latency of these voters under some of the round trips.
    pub(super) fn quorums(
        &self,
        chunk: usize,
        leader: usize,
        voters: impl ExactSizeIterator<Item = usize>,
    ) -> Lanes {
        let trips_ms = self.trips_ms(chunk, leader);
        let count = voters.len();
        if count == 0 {
            return [0.0; LANES]; // nobody votes: nothing to wait for
        }
        least(majority(count), |sorted| {
            voters.for_each(|voter| insert(sorted, trips_ms[voter]));
        })
    }

    /// How long all quorums of these voters take together, in milliseconds × operations.
    pub(super) fn wait_ms(
        &self,
        leader: usize,
        voters: &(impl ExactSizeIterator<Item = usize> + Clone),
    ) -> f64 {
        let chunks = self.weights.iter().enumerate();
        let wait = |(chunk, weights): (usize, &Lanes)| {
            total(weights, &self.quorums(chunk, leader, voters.clone()))
        };
        chunks.map(wait).sum()
    }

    /// The least quorum latency of voters of which these are chosen, the leader first, and so many
    /// are missing, which are any of the rest: under each round trips the nearest.
    pub(super) fn bounds(
        &self,
        chunk: usize,
        chosen: &[usize],
        rest: &[usize],
        missing: usize,
    ) -> Lanes {
        let trips_ms = self.trips_ms(chunk, chosen[0]);
        let place = majority(chosen.len() + missing);
        least(place, |sorted| {
            chosen.iter().for_each(|voter| insert(sorted, trips_ms[*voter]));
            // The place-th of all is at most the place-th of the rest: more of them are no use.
            let _ = least(missing.min(place), |nearest| {
                rest.iter().for_each(|voter| insert(nearest, trips_ms[*voter]));
                nearest.iter().for_each(|trip_ms| insert(sorted, *trip_ms));
            });
        })
    }
}

/// The sum over round trips, in their order.
pub(super) fn total(weights: &Lanes, ms: &Lanes) -> f64 {
    weights.iter().zip(ms).map(|(weight, ms)| weight * ms).sum()
}

/// The last of so many least, which `fill` inserts; zeros when there is none to be.
fn least(count: usize, fill: impl FnOnce(&mut [Lanes])) -> Lanes {
    let mut few = [[f64::INFINITY; LANES]; FEW];
    if count <= FEW {
        fill(&mut few[..count]);
        return count.checked_sub(1).map_or([0.0; LANES], |last| few[last]);
    }
    let mut many = vec![[f64::INFINITY; LANES]; count];
    fill(&mut many);
    many[count - 1]
}

/// Keeps the least in rising order.
fn insert(sorted: &mut [Lanes], mut trip_ms: Lanes) {
    for least in sorted {
        for (least, trip_ms) in least.iter_mut().zip(&mut trip_ms) {
            let is_less = *trip_ms < *least;
            let (near, far) = if is_less { (*trip_ms, *least) } else { (*least, *trip_ms) };
            (*least, *trip_ms) = (near, far);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::quorum_ms;
    use evenkeel_core::rng::Rng;

    #[test]
    fn quorums_side_by_side_are_those_of_each_alone() {
        let mut rng = Rng::seeded(5);
        for _ in 0..300 {
            let (replicas, parts) = (1 + rng.below(12), 1 + rng.below(19));
            let all: Vec<usize> = (0..replicas).collect();
            let mut each = Vec::new();
            let mut waits = Waits::new(replicas);
            for _ in 0..parts {
                let mut row = |_| (0..replicas).map(|_| rng.below(9) as f64).collect::<Vec<_>>();
                let between: Vec<Vec<f64>> = (0..replicas).map(&mut row).collect();
                let trips = RoundTrips::new(&[], &between).expect("sound");
                let weight = rng.below(4) as f64;
                waits.push(weight, &trips, &all);
                each.push((weight, trips));
            }
            let leader = rng.below(replicas);
            let mut voters = all.clone();
            rng.shuffle(&mut voters);
            voters.truncate(rng.below(replicas + 1));
            let one =
                |(weight, trips): &(f64, RoundTrips)| weight * quorum_ms(trips, leader, &voters);
            let expected: f64 = each.iter().map(one).sum();
            assert_eq!(waits.wait_ms(leader, &voters.iter().copied()), expected);
            // A bound takes whoever is nearest under each round trips.
            let rest: Vec<usize> = all.iter().copied().filter(|site| *site != leader).collect();
            let missing = rng.below(replicas);
            for (part, (_, trips)) in each.iter().enumerate() {
                let row = trips.from_site(leader);
                let mut nearest: Vec<f64> = rest.iter().map(|site| row[*site]).collect();
                nearest.sort_by(f64::total_cmp);
                nearest.truncate(missing);
                nearest.push(row[leader]);
                nearest.sort_by(f64::total_cmp);
                let bounds = waits.bounds(part / LANES, &[leader], &rest, missing);
                assert_eq!(bounds[part % LANES], nearest[majority(missing + 1) - 1]);
            }
        }
    }
}
