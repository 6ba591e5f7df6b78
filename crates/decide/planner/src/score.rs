//! How long operations take under a layout: equation 1 of the paper.
//!
//! | operation | latency |
//! |---|---|
//! | weak read | `rtt(c, near)` |
//! | bounded read | `rtt(c, near) + rtt(near, leader)` |
//! | strong read | `rtt(c, leader)` |
//! | transaction within a group | `rtt(c, leader) + q` |
//! | transaction across groups | `rtt(c, leader) + 2 q`, since leaders are at one site |
//!
//! `near` is the replica nearest to the client, `q` the quorum latency of the leader. What it
//! leaves out: load at the leader and time in queues.

use super::model::{Counts, Layout, Operation, RoundTrips, Route, majority};

/// What operations take together under a layout, by [`Operation::ALL`], in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Score {
    by_operation: [f64; Operation::ALL.len()],
}

impl Score {
    /// Scores a layout, whose sites must be among those of the round trips.
    pub fn of(counts: &Counts, trips: &RoundTrips, layout: &Layout, route: Route) -> Self {
        let leader = layout.leader();
        let quorum_ms = quorum_ms(trips, leader, layout.voters());
        let mut by_operation = [0.0; Operation::ALL.len()];
        for (client, counts) in counts.iter().enumerate() {
            let client_trips = ClientTrips::of(trips, client, layout.replicas(), leader, route);
            for operation in Operation::ALL {
                let place = operation as usize;
                by_operation[place] +=
                    counts[place] * client_trips.latency_ms(operation, quorum_ms);
            }
        }
        Self { by_operation }
    }

    /// Of all operations, in milliseconds × operations. Sums of different counts do not compare:
    /// divide by the count.
    pub fn total_ms(&self) -> f64 {
        self.by_operation.iter().sum()
    }

    /// Of the operations of one kind, in milliseconds × operations.
    #[cfg(test)]
    pub const fn of_ms(&self, operation: Operation) -> f64 {
        self.by_operation[operation as usize]
    }
}

/// The round trips of one client, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClientTrips {
    /// To the nearest replica and back.
    pub near_ms: f64,
    /// To a replica, from there to the leader, and back.
    pub bounded_ms: f64,
    /// To the leader and back.
    pub leader_ms: f64,
}

impl ClientTrips {
    /// The round trips of a client to these replicas, of which there is at least one.
    pub fn of(
        trips: &RoundTrips,
        client: usize,
        replicas: &[usize],
        leader: usize,
        route: Route,
    ) -> Self {
        let from_client = trips.from_client(client);
        let over = |replica: usize| from_client[replica] + trips.from_site(replica)[leader];
        let (mut nearest, mut near_ms) = (leader, f64::INFINITY);
        for &replica in replicas {
            if from_client[replica] < near_ms {
                (nearest, near_ms) = (replica, from_client[replica]);
            }
        }
        let bounded_ms = match route {
            Route::Nearest => over(nearest),
            Route::BestPath => {
                replicas.iter().map(|replica| over(*replica)).fold(f64::INFINITY, f64::min)
            }
        };
        Self { near_ms, bounded_ms, leader_ms: from_client[leader] }
    }

    /// What an operation takes, with this quorum latency.
    pub fn latency_ms(&self, operation: Operation, quorum_ms: f64) -> f64 {
        match operation {
            Operation::WeakRead => self.near_ms,
            Operation::BoundedRead => self.bounded_ms,
            Operation::StrongRead => self.leader_ms,
            Operation::SingleGroup | Operation::MultiGroup => {
                // A fused product is a call where processors may lack it.
                f64::from(operation.quorums()) * quorum_ms + self.leader_ms
            }
        }
    }
}

/// How long the leader waits for a majority of the voters, in milliseconds: the majority-th
/// smallest round trip to a voter, its own among them.
pub fn quorum_ms(trips: &RoundTrips, leader: usize, voters: &[usize]) -> f64 {
    let row = trips.from_site(leader);
    let place = majority(voters.len()) - 1;
    if place >= voters.len() {
        return 0.0; // nobody votes: nothing to wait for
    }
    // Asked for each candidate of each database: few voters need no allocation.
    let (mut few, mut many) = ([0.0; 16], Vec::new());
    let trips_ms: &mut [f64] = if voters.len() <= few.len() {
        &mut few[..voters.len()]
    } else {
        many.resize(voters.len(), 0.0);
        &mut many
    };
    trips_ms.iter_mut().zip(voters).for_each(|(trip_ms, voter)| *trip_ms = row[*voter]);
    *trips_ms.select_nth_unstable_by(place, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> RoundTrips {
        let between = [vec![0.0, 10.0, 30.0], vec![10.0, 0.0, 25.0], vec![30.0, 25.0, 0.0]];
        RoundTrips::new(&[vec![1.0, 8.0, 40.0], vec![35.0, 20.0, 2.0]], &between)
            .expect("the numbers are sound")
    }

    #[test]
    fn every_operation_takes_its_way() {
        let layout = Layout::new(1, vec![0, 1, 2], vec![0, 1, 2]).expect("sound");
        let counts = Counts::new(vec![[1.0, 10.0, 100.0, 1e3, 1e4], [1.0, 0.0, 0.0, 0.0, 0.0]]);
        let score = Score::of(&counts.expect("sound"), &three(), &layout, Route::Nearest);
        assert_eq!(score.of_ms(Operation::WeakRead), 1.0 + 2.0);
        assert_eq!(score.of_ms(Operation::BoundedRead), 10.0 * (1.0 + 10.0));
        assert_eq!(score.of_ms(Operation::StrongRead), 100.0 * 8.0);
        assert_eq!(score.of_ms(Operation::SingleGroup), 1e3 * (8.0 + 10.0));
        assert_eq!(score.of_ms(Operation::MultiGroup), 1e4 * (8.0 + 2.0 * 10.0));
    }

    #[test]
    fn the_best_path_may_lead_over_another_replica_than_the_nearest() {
        let layout = Layout::new(1, vec![0, 1, 2], vec![0, 1, 2]).expect("sound");
        let client_trips = |route| ClientTrips::of(&three(), 0, layout.replicas(), 1, route);
        assert_eq!(client_trips(Route::Nearest).bounded_ms, 11.0);
        assert_eq!(client_trips(Route::BestPath).bounded_ms, 8.0);
    }

    #[test]
    fn a_quorum_counts_the_leader_and_needs_more_than_half() {
        let trips = three();
        assert_eq!(quorum_ms(&trips, 0, &[0]), 0.0);
        assert_eq!(quorum_ms(&trips, 0, &[0, 1]), 10.0);
        assert_eq!(quorum_ms(&trips, 0, &[0, 1, 2]), 10.0);
        assert_eq!(quorum_ms(&trips, 2, &[0, 1, 2]), 25.0);
    }
}
