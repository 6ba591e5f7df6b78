//! A past under one replica set, with all added up that does not depend on leader and voters.
//!
//! Equation 1 falls apart: weak reads and the first half of bounded reads depend on replicas alone;
//! bounded reads of all clients with the same nearest replica take the same way to the leader, so
//! they are counted where they start; strong reads and transactions take the way from client to
//! leader; the quorum latency of the leader is paid once for each quorum that is waited for. What
//! is left for each leader is a product of its column of round trips with counts, and for each
//! voter set its quorum latency.

use super::history::{History, Part, Past};
use super::model::{Layout, Operation, RoundTrips, Route};
use super::waits::Waits;

/// Sums of one past under one replica set and route.
pub(super) struct Folded<'a> {
    pub(super) replicas: &'a [usize],
    /// By replica as the leader: all but quorums, in milliseconds × operations.
    to_leader_ms: Vec<f64>,
    /// Round trips under which quorums are waited for.
    pub(super) trips: Vec<&'a RoundTrips>,
    /// How many under each of these.
    pub(super) waits: Waits,
    operations: f64,
}

impl<'a> Folded<'a> {
    /// Adds up a past under these replicas, of which there is at least one, in rising order.
    pub(super) fn of(past: &Past<'a>, replicas: &'a [usize], route: Route) -> Self {
        let mut sums = Sums::new(replicas);
        let mut trips = Vec::new();
        let mut waits = Waits::new(replicas.len());
        for part in past.parts() {
            sums.add(part, route);
            let weight = part.counts.quorums();
            if weight > 0.0 {
                trips.push(part.trips);
                waits.push(weight, part.trips, replicas);
            }
        }
        let operations = past.operations();
        Self { replicas, to_leader_ms: sums.to_leader_ms, trips, waits, operations }
    }

    /// The mean latency with this leader and these voters, in milliseconds.
    pub(super) fn mean_ms(&self, leader: usize, voters: &[usize]) -> f64 {
        let place = self.place(leader);
        let voters = voters.iter().map(|voter| self.place(*voter));
        let wait_ms = self.waits.wait_ms(place, &voters);
        (self.to_leader_ms[place] + wait_ms) / self.operations
    }

    /// The place of a replica among them.
    pub(super) fn place(&self, replica: usize) -> usize {
        self.replicas.binary_search(&replica).expect("leaders and voters are replicas")
    }
}

/// The intervals of a history, each alone, under one replica set; added up when they are asked for.
pub(super) struct Alone<'a> {
    history: &'a History,
    replicas: &'a [usize],
    route: Route,
    folded: Vec<(usize, Option<Folded<'a>>)>,
}

impl<'a> Alone<'a> {
    pub(super) const fn new(history: &'a History, replicas: &'a [usize], route: Route) -> Self {
        Self { history, replicas, route, folded: Vec::new() }
    }

    /// The mean latency under a layout in the interval of so many intervals ago, in milliseconds;
    /// none if it has no operation.
    pub(super) fn mean_ms(&mut self, layout: &Layout, ago: usize) -> Option<f64> {
        if layout.replicas() != self.replicas {
            return Some(self.history.alone(ago)?.mean_ms(layout, self.route));
        }
        let known = self.folded.iter().position(|(of, _)| *of == ago);
        let place = known.unwrap_or_else(|| {
            let alone = self.history.alone(ago);
            let folded = alone.map(|past| Folded::of(&past, self.replicas, self.route));
            self.folded.push((ago, folded));
            self.folded.len() - 1
        });
        let folded = self.folded[place].1.as_ref()?;
        Some(folded.mean_ms(layout.leader(), layout.voters()))
    }
}

/// Leaders that are looked at together where every replica is tried as a stop on the way to each.
const LANES: usize = 4;

/// What is added up over parts, and room to do so.
struct Sums<'a> {
    replicas: &'a [usize],
    to_leader_ms: Vec<f64>,
    /// From one client to every replica.
    row: Vec<f64>,
    /// Bounded reads by nearest replica.
    bounded_from: Vec<f64>,
    /// Some leaders after the other: from every replica to these.
    over: Vec<[f64; LANES]>,
}

impl<'a> Sums<'a> {
    fn new(replicas: &'a [usize]) -> Self {
        let none = || vec![0.0; replicas.len()];
        let over = Vec::new();
        Self { replicas, to_leader_ms: none(), row: none(), bounded_from: none(), over }
    }

    /// Adds what the operations of one part take but for quorums, by replica as the leader.
    fn add(&mut self, part: &Part<'_>, route: Route) {
        let trips = part.trips;
        let mut near_ms = 0.0; // to the nearest replica, for those that go there
        self.bounded_from.fill(0.0);
        if route == Route::BestPath {
            self.stop_over(trips);
        }
        for (client, &[weak, bounded, strong, single, multi]) in part.counts.iter().enumerate() {
            let trips_ms = trips.from_client(client);
            self.row
                .iter_mut()
                .zip(self.replicas)
                .for_each(|(trip_ms, site)| *trip_ms = trips_ms[*site]);
            let at_leader = strong + single + multi;
            for (sum, trip_ms) in self.to_leader_ms.iter_mut().zip(&self.row) {
                *sum += at_leader * trip_ms;
            }
            let (nearest, way_ms) = nearest(&self.row);
            near_ms += weak * way_ms;
            match route {
                Route::Nearest => {
                    near_ms += bounded * way_ms;
                    self.bounded_from[nearest] += bounded;
                }
                Route::BestPath if bounded > 0.0 => self.add_shortest(bounded),
                Route::BestPath => {}
            }
        }
        if route == Route::Nearest {
            for (from, bounded) in self.replicas.iter().zip(&self.bounded_from) {
                let row = trips.from_site(*from);
                for (sum, leader) in self.to_leader_ms.iter_mut().zip(self.replicas) {
                    *sum += bounded * row[*leader];
                }
            }
        }
        self.to_leader_ms.iter_mut().for_each(|sum| *sum += near_ms);
    }

    /// Lays out the round trips from every replica to every leader.
    fn stop_over(&mut self, trips: &RoundTrips) {
        self.over.clear();
        for leaders in self.replicas.chunks(LANES) {
            for by in self.replicas {
                let row = trips.from_site(*by);
                let mut over = [f64::INFINITY; LANES];
                over.iter_mut().zip(leaders).for_each(|(over, leader)| *over = row[*leader]);
                self.over.push(over);
            }
        }
    }

    /// Adds so many bounded reads of the client of the present row, each by its shortest way.
    fn add_shortest(&mut self, bounded: f64) {
        let leaders = self.to_leader_ms.chunks_mut(LANES);
        for (sums, over) in leaders.zip(self.over.chunks_exact(self.replicas.len())) {
            let mut shortest = [f64::INFINITY; LANES];
            for (trip_ms, over) in self.row.iter().zip(over) {
                for (shortest, over) in shortest.iter_mut().zip(over) {
                    let ms = trip_ms + over;
                    *shortest = if ms < *shortest { ms } else { *shortest };
                }
            }
            for (sum, ms) in sums.iter_mut().zip(shortest) {
                *sum += bounded * ms;
            }
        }
    }
}

/// The place of the nearest replica and the way there; of those equally near the lowest number.
fn nearest(row: &[f64]) -> (usize, f64) {
    let mut best = (0, f64::INFINITY);
    for (place, &trip_ms) in row.iter().enumerate() {
        // Both chosen without a branch: which is nearest is as good as random.
        let is_nearer = trip_ms < best.1;
        best.0 = if is_nearer { place } else { best.0 };
        best.1 = if is_nearer { trip_ms } else { best.1 };
    }
    best
}

impl super::model::Counts {
    /// How many quorums all operations wait for.
    fn quorums(&self) -> f64 {
        let totals = self.totals();
        let of = |operation: Operation| totals[operation as usize];
        2.0 * of(Operation::MultiGroup) + of(Operation::SingleGroup)
    }
}
