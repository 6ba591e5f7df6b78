//! Tier 1: who of the voters leads (section 3).
//!
//! The mean of equation 2 for every voter, and the least of them. What does not depend on who leads
//! is added up once for each interval (`Folded`), so a candidate costs as much as a look at its
//! row of round trips: `O(replicas · clients)` for all candidates of an interval.

use super::folded::Folded;
use super::history::Past;
use super::model::{Layout, Route};

/// A layout and the latency that the operations of the past would have had under it.
#[derive(Clone, PartialEq, Debug)]
pub struct Ranked {
    /// Leader, voters, replicas.
    pub layout: Layout,
    /// Mean or percentile, as was asked for, in milliseconds.
    pub latency_ms: f64,
}

impl Ranked {
    /// Sorts by latency; ties go to the leader with the lowest number.
    pub fn sort(ranked: &mut [Self]) {
        ranked.sort_by(|one, other| {
            let by_latency = one.latency_ms.total_cmp(&other.latency_ms);
            by_latency.then(one.layout.leader().cmp(&other.layout.leader()))
        });
    }
}

/// Every voter as the leader, the best first: equation 2. Voters and replicas stay.
///
/// # Panics
/// When a replica of the layout is at none of the sites of the past.
pub fn rank(past: &Past<'_>, layout: &Layout, route: Route) -> Vec<Ranked> {
    rank_folded(&Folded::of(past, layout.replicas(), route), layout)
}

/// The same, from the sums of that past and the replicas of the layout.
pub(super) fn rank_folded(folded: &Folded<'_>, layout: &Layout) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> = layout
        .voters()
        .iter()
        .map(|leader| Ranked {
            latency_ms: folded.mean_ms(*leader, layout.voters()),
            layout: layout.led_by(*leader).expect("a voter may lead"),
        })
        .collect();
    Ranked::sort(&mut ranked);
    ranked
}
