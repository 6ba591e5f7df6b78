//! When each copy came to its replica and left it, by the clock of the day.

use crate::order::sort;
use crate::rows::{Day, End, Why};

/// A copy at a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// Its row's place in the day.
    pub row: usize,
    /// When it came, ns from the start of the day.
    pub at_ns: u64,
    /// When it left.
    pub left_ns: u64,
    /// Whether it was given up or broke off: its service would have taken longer.
    pub is_cut: bool,
    /// Whether content was left out.
    pub is_lean: bool,
    /// Whether it was its request's first copy.
    pub is_first: bool,
}

/// What lies between client and replicas.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Network {
    /// The shortest time of a message, ns.
    pub one_way_ns: f64,
    /// The mean of what comes on top, ns.
    pub jitter_ns: f64,
}

/// The visits of each replica, in the order in which they were served.
///
/// Where agents tell how long a copy was with them, the rest of its latency is the network's, half
/// of it each way. Without agents the network counts as service until slots are known.
pub fn visits(day: &Day) -> (Vec<Vec<Visit>>, Network) {
    let network = network(day);
    let mean_ns = (network.one_way_ns + network.jitter_ns) as u64;
    let count = day.rows.iter().map(|row| usize::from(row.replica) + 1).max().unwrap_or(0);
    let mut visits = vec![Vec::new(); count];
    let has_agents = day.rows.iter().any(|row| row.served.is_some());
    for (number, (row, sent_ns)) in day.rows.iter().zip(day.sent_ns()).enumerate() {
        let is_cut = row.end != End::Answered;
        let (at_ns, there_ns) = match row.served {
            Some(served) => {
                let there_ns = served.wait_ns.saturating_add(served.service_ns);
                let away_ns = row.latency_ns.saturating_sub(there_ns) / 2;
                let way_ns = if is_cut { mean_ns } else { away_ns };
                (sent_ns.saturating_add(way_ns), there_ns)
            }
            // It never reached its agent, or nobody knows what became of it there.
            None if has_agents || row.end == End::Failed => continue,
            None => (sent_ns, row.latency_ns),
        };
        let left_ns = at_ns.saturating_add(there_ns);
        let is_lean = row.served.is_some_and(|served| !served.is_full);
        let is_first = row.why == Why::First;
        let visit = Visit { row: number, at_ns, left_ns, is_cut, is_lean, is_first };
        visits[usize::from(row.replica)].push(visit);
    }
    // In the order in which they were served, where agents tell: messages overtake each other.
    let waited_ns = |visit: &Visit| day.rows[visit.row].served.map_or(0, |it| it.wait_ns);
    for visits in &mut visits {
        let starts: Vec<u64> =
            visits.iter().map(|visit| visit.at_ns.saturating_add(waited_ns(visit))).collect();
        if !starts.is_sorted() {
            let mut order: Vec<usize> = (0..visits.len()).collect();
            sort(&mut order, |number| starts[*number]);
            *visits = order.into_iter().map(|number| visits[number]).collect();
        }
    }
    (visits, network)
}

fn network(day: &Day) -> Network {
    let away = day.rows.iter().filter(|row| row.end == End::Answered).filter_map(|row| {
        let served = row.served?;
        let there_ns = served.wait_ns.saturating_add(served.service_ns);
        Some(row.latency_ns.saturating_sub(there_ns))
    });
    let (mut least, mut sum, mut count) = (u64::MAX, 0.0, 0.0);
    for away_ns in away {
        least = least.min(away_ns);
        sum += away_ns as f64;
        count += 1.0;
    }
    if count == 0.0 {
        return Network::default();
    }
    let one_way_ns = least as f64 / 2.0;
    Network { one_way_ns, jitter_ns: sum / count / 2.0 - one_way_ns }
}
