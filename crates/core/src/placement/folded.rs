//! A past under one replica set, with all added up that does not depend on leader and voters.
//!
//! Equation 1 falls apart: weak reads and the first half of bounded reads depend on replicas alone;
//! bounded reads of all clients with the same nearest replica take the same way to the leader, so
//! they are counted where they start; strong reads and transactions take the way from client to
//! leader; the quorum latency of the leader is paid once for each quorum that is waited for. What
//! is left for each leader is a product of its column of round trips with counts, and for each
//! voter set its quorum latency.

use super::history::{Part, Past};
use super::model::{Operation, RoundTrips, Route};
use super::score::quorum_ms;

/// Sums of one past under one replica set and route.
pub(super) struct Folded<'a> {
    pub(super) replicas: &'a [usize],
    /// By replica as the leader: all but quorums, in milliseconds × operations.
    to_leader_ms: Vec<f64>,
    /// How many quorums are waited for, under which round trips; only where there are any.
    pub(super) quorums: Vec<(f64, &'a RoundTrips)>,
    operations: f64,
}

impl<'a> Folded<'a> {
    /// Adds up a past under these replicas, of which there is at least one, in rising order.
    pub(super) fn of(past: &'a Past<'_>, replicas: &'a [usize], route: Route) -> Self {
        let mut to_leader_ms = vec![0.0; replicas.len()];
        let mut quorums = Vec::new();
        for part in past.parts() {
            add(&mut to_leader_ms, part, replicas, route);
            let single = part.counts.total_of(Operation::SingleGroup);
            let waits = 2.0f64.mul_add(part.counts.total_of(Operation::MultiGroup), single);
            if waits > 0.0 {
                quorums.push((waits, part.trips));
            }
        }
        Self { replicas, to_leader_ms, quorums, operations: past.operations() }
    }

    /// The mean latency with this leader and these voters, in milliseconds.
    pub(super) fn mean_ms(&self, leader: usize, voters: &[usize]) -> f64 {
        let place = self.replicas.binary_search(&leader).expect("the leader is a replica");
        (self.to_leader_ms[place] + self.wait_ms(leader, voters)) / self.operations
    }

    /// How long all quorums take together, in milliseconds × operations.
    pub(super) fn wait_ms(&self, leader: usize, voters: &[usize]) -> f64 {
        let wait = |(waits, trips): &(f64, &RoundTrips)| waits * quorum_ms(trips, leader, voters);
        self.quorums.iter().map(wait).sum()
    }
}

/// Adds what the operations of one part take but for quorums, by replica as the leader.
fn add(to_leader_ms: &mut [f64], part: &Part<'_>, replicas: &[usize], route: Route) {
    let trips = part.trips;
    let mut near_ms = 0.0; // to the nearest replica, for those that go there
    let mut bounded_from = vec![0.0; replicas.len()]; // bounded reads by nearest replica
    for (client, &[weak, bounded, strong, single, multi]) in part.counts.iter().enumerate() {
        let row = trips.from_client(client);
        let at_leader = strong + single + multi;
        for (sum, leader) in to_leader_ms.iter_mut().zip(replicas) {
            *sum += at_leader * row[*leader];
        }
        let (nearest, way_ms) = nearest(row, replicas);
        near_ms += weak * way_ms;
        match route {
            Route::Nearest => {
                near_ms += bounded * way_ms;
                bounded_from[nearest] += bounded;
            }
            Route::BestPath if bounded > 0.0 => {
                for (sum, leader) in to_leader_ms.iter_mut().zip(replicas) {
                    let over = |by: &usize| row[*by] + trips.from_site(*by)[*leader];
                    *sum += bounded * replicas.iter().map(over).fold(f64::INFINITY, f64::min);
                }
            }
            Route::BestPath => {}
        }
    }
    for (from, bounded) in replicas.iter().zip(bounded_from) {
        let row = trips.from_site(*from);
        for (sum, leader) in to_leader_ms.iter_mut().zip(replicas) {
            *sum += bounded * row[*leader];
        }
    }
    to_leader_ms.iter_mut().for_each(|sum| *sum += near_ms);
}

/// The place of the nearest replica and the way there; of those equally near the lowest number.
fn nearest(row: &[f64], replicas: &[usize]) -> (usize, f64) {
    let mut best = (0, f64::INFINITY);
    for (place, replica) in replicas.iter().enumerate() {
        if row[*replica] < best.1 {
            best = (place, row[*replica]);
        }
    }
    best
}
