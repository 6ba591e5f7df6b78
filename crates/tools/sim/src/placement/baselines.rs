//! What the paper compares the optimised leader with (section 6.1): what administrators do.

use evenkeel_planner::model::{Counts, Operation, RoundTrips};
use evenkeel_planner::score::quorum_ms;

/// *closest-to-writes*: the voter nearest to the client with most transactions; none without any.
/// In the paper clients and replicas share clusters; it chooses once, by the first interval.
pub(super) fn closest_to_writes(
    counts: &Counts,
    trips: &RoundTrips,
    voters: &[usize],
) -> Option<usize> {
    let writes = |client: usize| {
        let of = counts.of(client);
        of[Operation::SingleGroup as usize] + of[Operation::MultiGroup as usize]
    };
    let busiest = (0..counts.clients()).max_by(|a, b| writes(*a).total_cmp(&writes(*b)))?;
    let row = trips.from_client(busiest);
    let near = |a: &usize, b: &usize| row[*a].total_cmp(&row[*b]);
    if writes(busiest) > 0.0 { voters.iter().copied().min_by(near) } else { None }
}

/// *smallest-quorum*: the voter with the least quorum latency; none if nobody votes.
pub(super) fn smallest_quorum(trips: &RoundTrips, voters: &[usize]) -> Option<usize> {
    let wait = |leader: &usize| quorum_ms(trips, *leader, voters);
    voters.iter().copied().min_by(|a, b| wait(a).total_cmp(&wait(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baselines_choose_as_administrators_do() {
        // Most operations are reads at site 0; most transactions start at site 2.
        let between = [vec![0.0, 10.0, 40.0], vec![10.0, 0.0, 20.0], vec![40.0, 20.0, 0.0]];
        let trips = RoundTrips::new(&between, &between).unwrap();
        let counts = vec![[90.0, 0.0, 9.0, 2.0, 0.0], [0.0; 5], [0.0, 0.0, 0.0, 2.0, 1.0]];
        let counts = Counts::new(counts).unwrap();
        assert_eq!(closest_to_writes(&counts, &trips, &[0, 1, 2]), Some(2));
        assert_eq!(closest_to_writes(&counts, &trips, &[0, 1]), Some(1), "site 1 is nearest to 2");
        assert_eq!(closest_to_writes(&Counts::none(3), &trips, &[0, 1]), None);
        // Quorums of three: 10 ms from 0 and 1 (tie: the lower), 20 ms from 2.
        assert_eq!(smallest_quorum(&trips, &[0, 1, 2]), Some(0));
        assert_eq!(smallest_quorum(&trips, &[]), None);
    }
}
