//! Tier 2: who of the replicas votes and leads (section 4, algorithms 1 and 2).
//!
//! For every replica as the leader, its nearest voters ([`VoterRule::nearest`]) have the fastest
//! quorum, and nothing else depends on who votes: replicas stay, so reads do.
//!
//! **Several round trips.** The paper takes the quorum latency of every interval from its own
//! nearest replicas, as if voters had changed with each. Here one voter set is scored on all
//! intervals. Where their round trips differ, the nearest voters of one need not be the best for
//! all: the least wait that is possible is compared with that of a good set, and only if it is less
//! the sets are searched, by branch and bound of at most `SETS_MAX` sets.

use super::domains::{TooFew, VoterRule};
use super::folded::Folded;
use super::history::Past;
use super::leader::{self, Ranked};
use super::model::{Layout, RoundTrips, Route, majority};
use super::score::quorum_ms;

/// How many sets a search looks at before it takes the best so far: more than the 924 of 12 others
/// and 6 seats, so that only wider questions can be cut short.
const SETS_MAX: usize = 20_000;

/// Every replica as the leader, each with the voters that are best for it, the best first:
/// algorithm 2. Where it makes no difference, voters in `keep` (those of today) stay. Replicas come
/// in rising order.
///
/// # Errors
/// When no voter set of these replicas obeys the rule.
///
/// # Panics
/// When a replica is at none of the sites of the past or of the rule's domains.
pub fn rank(
    past: &Past<'_>,
    replicas: &[usize],
    rule: &VoterRule<'_>,
    route: Route,
    keep: &[usize],
) -> Result<Vec<Ranked>, TooFew> {
    assert!(replicas.is_sorted(), "replicas come in rising order");
    rule.check(replicas)?;
    let folded = Folded::of(past, replicas, route);
    let newest = past.newest().trips();
    let mut ranked: Vec<Ranked> = replicas
        .iter()
        .map(|&leader| {
            let voters = match folded.quorums[..] {
                [] => rule.nearest(newest.from_site(leader), leader, replicas, keep),
                [(_, trips)] => rule.nearest(trips.from_site(leader), leader, replicas, keep),
                _ => fastest_of_several(&folded, rule, leader, keep),
            };
            let latency_ms = folded.mean_ms(leader, &voters);
            let layout = Layout::new(leader, voters, replicas.to_vec()).expect("replicas vote");
            Ranked { layout, latency_ms }
        })
        .collect();
    Ranked::sort(&mut ranked);
    Ok(ranked)
}

/// The best leader and voters by trying all sets: algorithm 1, for comparison. The work grows as
/// the number of sets.
///
/// # Errors
/// When no voter set of these replicas obeys the rule.
pub fn brute_force(
    past: &Past<'_>,
    replicas: &[usize],
    rule: &VoterRule<'_>,
    route: Route,
) -> Result<Ranked, TooFew> {
    rule.check(replicas)?;
    let mut best: Option<Ranked> = None;
    subsets(replicas, rule.count, &mut |voters| {
        if rule.admits(voters) {
            let any = Layout::new(voters[0], voters.to_vec(), replicas.to_vec());
            let ranked = leader::rank(past, &any.expect("replicas vote"), route);
            let better = best.as_ref().is_none_or(|best| ranked[0].latency_ms < best.latency_ms);
            if better {
                best = ranked.into_iter().next();
            }
        }
    });
    Ok(best.expect("the rule was checked: some set obeys it"))
}

/// Shows all sets of so many of these, in lexicographic order.
pub(super) fn subsets(of: &[usize], count: usize, visit: &mut dyn FnMut(&[usize])) {
    fn extend(
        chosen: &mut Vec<usize>,
        of: &[usize],
        count: usize,
        visit: &mut dyn FnMut(&[usize]),
    ) {
        if count == 0 {
            return visit(chosen);
        }
        for (place, one) in of.iter().enumerate().take((of.len() + 1).saturating_sub(count)) {
            chosen.push(*one);
            extend(chosen, &of[place + 1..], count - 1, visit);
            chosen.pop();
        }
    }
    extend(&mut Vec::with_capacity(count), of, count, visit);
}

/// The voters of a leader that wait least under round trips that differ.
fn fastest_of_several(
    folded: &Folded<'_>,
    rule: &VoterRule<'_>,
    leader: usize,
    keep: &[usize],
) -> Vec<usize> {
    let wait = |voters: &[usize]| folded.wait_ms(leader, voters);
    let mut mean = vec![0.0; rule.domains.sites()];
    for (waits, trips) in &folded.quorums {
        let row = trips.from_site(leader);
        folded.replicas.iter().for_each(|site| mean[*site] += waits * row[*site]);
    }
    let start = rule.nearest(&mean, leader, folded.replicas, keep);
    // No set is faster than the nearest of each round trips are, each for its own.
    let least = |(waits, trips): &(f64, &RoundTrips)| {
        let row = trips.from_site(leader);
        let any_ms = nearest_quorum_ms(row, leader, folded.replicas, rule.count);
        let start_ms = quorum_ms(trips, leader, &start);
        if start_ms <= any_ms {
            return waits * start_ms; // as fast as without the rule: spare the search for its best
        }
        waits * quorum_ms(trips, leader, &rule.nearest(row, leader, folded.replicas, &[]))
    };
    let bound_ms: f64 = folded.quorums.iter().map(least).sum();
    let start_ms = wait(&start);
    if start_ms <= bound_ms * (1.0 + ROUNDING) {
        return start;
    }
    let mut others: Vec<usize> =
        folded.replicas.iter().copied().filter(|site| *site != leader).collect();
    others.sort_by(|one, other| mean[*one].total_cmp(&mean[*other]));
    let mut search = Search {
        folded,
        rule,
        others: &others,
        chosen: vec![leader],
        best: (start_ms, start),
        sets_left: SETS_MAX,
    };
    search.descend(0);
    let mut voters = search.best.1;
    voters.sort_unstable();
    voters
}

/// How long a leader's quorum takes if any of the replicas may vote.
fn nearest_quorum_ms(row: &[f64], leader: usize, replicas: &[usize], voters: usize) -> f64 {
    let mut ways: Vec<f64> =
        replicas.iter().filter(|site| **site != leader).map(|site| row[*site]).collect();
    ways.sort_unstable_by(f64::total_cmp);
    ways.truncate(voters - 1);
    ways.push(row[leader]);
    *ways.select_nth_unstable_by(majority(voters) - 1, f64::total_cmp).1
}

/// Waits that differ by less than this share are the same, added up in another order.
const ROUNDING: f64 = 1e-12;

/// Branch and bound over voter sets of one leader.
struct Search<'a> {
    folded: &'a Folded<'a>,
    rule: &'a VoterRule<'a>,
    /// Replicas but for the leader, the nearest on average first.
    others: &'a [usize],
    /// The leader first.
    chosen: Vec<usize>,
    best: (f64, Vec<usize>),
    sets_left: usize,
}

impl Search<'_> {
    /// Completes the chosen with others from this one on.
    fn descend(&mut self, from: usize) {
        let missing = self.rule.count - self.chosen.len();
        if missing == 0 {
            self.sets_left = self.sets_left.saturating_sub(1);
            let wait_ms = self.folded.wait_ms(self.chosen[0], &self.chosen);
            if wait_ms < self.best.0 && self.rule.admits(&self.chosen) {
                self.best = (wait_ms, self.chosen.clone());
            }
            return;
        }
        if self.others.len() - from < missing
            || self.sets_left == 0
            || self.bound_ms(from, missing) >= self.best.0 * (1.0 - ROUNDING)
        {
            return;
        }
        self.chosen.push(self.others[from]);
        self.descend(from + 1);
        self.chosen.pop();
        self.descend(from + 1);
    }

    /// What the chosen and the fastest others from this one on wait at least, each round trips with
    /// others of their own.
    fn bound_ms(&self, from: usize, missing: usize) -> f64 {
        let leader = self.chosen[0];
        let (mut ways, mut rest) = (Vec::new(), Vec::new());
        let mut bound_ms = 0.0;
        for (waits, trips) in &self.folded.quorums {
            let row = trips.from_site(leader);
            rest.clear();
            rest.extend(self.others[from..].iter().map(|other| row[*other]));
            rest.sort_unstable_by(f64::total_cmp);
            ways.clear();
            ways.extend(self.chosen.iter().map(|voter| row[*voter]));
            ways.extend(&rest[..missing]);
            let place = majority(self.rule.count) - 1;
            bound_ms += waits * *ways.select_nth_unstable_by(place, f64::total_cmp).1;
        }
        bound_ms
    }
}
