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
use super::leader::Ranked;
use super::model::{Layout, RoundTrips, Route};
use super::score::quorum_ms;
use super::waits::{LANES, Lanes, total};

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
    rank_folded(&Folded::of(past, replicas, route), past.newest().trips(), rule, keep)
}

/// The same, from the sums of that past and its newest round trips.
pub(super) fn rank_folded(
    folded: &Folded<'_>,
    newest: &RoundTrips,
    rule: &VoterRule<'_>,
    keep: &[usize],
) -> Result<Vec<Ranked>, TooFew> {
    let replicas = folded.replicas;
    rule.check(replicas)?;
    let mut trips_ms = vec![0.0; rule.domains.sites()];
    let mut ranked: Vec<Ranked> = replicas
        .iter()
        .map(|&leader| {
            let voters = match folded.trips[..] {
                [] => rule.nearest(newest.from_site(leader), leader, replicas, keep),
                [trips] => rule.nearest(trips.from_site(leader), leader, replicas, keep),
                _ => fastest_of_several(folded, rule, leader, keep, &mut trips_ms),
            };
            let latency_ms = folded.mean_ms(leader, &voters);
            let layout = Layout::rising(leader, voters, replicas.to_vec());
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
#[cfg(test)]
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
            let ranked = super::leader::rank(past, &any.expect("replicas vote"), route);
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

/// The voters of a leader that wait least under round trips that differ; `ways` is room for a
/// number for every site.
fn fastest_of_several(
    folded: &Folded<'_>,
    rule: &VoterRule<'_>,
    leader: usize,
    keep: &[usize],
    trips_ms: &mut [f64],
) -> Vec<usize> {
    let (waits, replicas) = (&folded.waits, folded.replicas);
    let place = folded.place(leader);
    replicas.iter().enumerate().for_each(|(to, site)| trips_ms[*site] = waits.along(place, to));
    let start = rule.nearest(trips_ms, leader, replicas, keep);
    let mut others: Vec<usize> = (0..replicas.len()).filter(|other| *other != place).collect();
    let bound_ms = least_wait_ms(folded, rule, &start, leader, &others);
    let start_ms = waits.wait_ms(place, &start.iter().map(|voter| folded.place(*voter)));
    if start_ms <= bound_ms * (1.0 + ROUNDING) {
        return start;
    }
    let trip_ms = |other: &usize| trips_ms[replicas[*other]];
    others.sort_by(|one, other| trip_ms(one).total_cmp(&trip_ms(other)));
    let mut search = Search {
        folded,
        rule,
        others: &others,
        chosen: vec![place],
        best: (start_ms, start),
        sets_left: SETS_MAX,
    };
    search.descend(0);
    let mut voters = search.best.1;
    voters.sort_unstable();
    voters
}

/// What no voters of a leader wait less than: under each round trips those that are nearest then.
/// Voters that are good for all (`start`) say where the rule need not be asked.
fn least_wait_ms(
    folded: &Folded<'_>,
    rule: &VoterRule<'_>,
    start: &[usize],
    leader: usize,
    others: &[usize],
) -> f64 {
    let place = folded.place(leader);
    let mut least_ms = 0.0;
    for (chunk, weights) in folded.waits.weights().iter().enumerate() {
        let any_ms = folded.waits.bounds(chunk, &[place], others, rule.count - 1);
        let voters = start.iter().map(|voter| folded.place(*voter));
        let mut ms = folded.waits.quorums(chunk, place, voters);
        for (lane, ms) in ms.iter_mut().enumerate() {
            // As fast as without the rule: spare the search for its best.
            if *ms > any_ms[lane] {
                let trips = folded.trips[chunk * LANES + lane];
                let nearest = rule.nearest(trips.from_site(leader), leader, folded.replicas, &[]);
                *ms = quorum_ms(trips, leader, &nearest);
            }
        }
        least_ms += total(weights, &ms);
    }
    least_ms
}

/// Waits that differ by less than this share are the same, added up in another order.
const ROUNDING: f64 = 1e-12;

/// Branch and bound over voter sets of one leader. Replicas go by their place.
struct Search<'a> {
    folded: &'a Folded<'a>,
    rule: &'a VoterRule<'a>,
    /// Replicas but for the leader, the nearest on average first.
    others: &'a [usize],
    /// The leader first.
    chosen: Vec<usize>,
    /// What the best voters wait, and who they are, as sites.
    best: (f64, Vec<usize>),
    sets_left: usize,
}

impl Search<'_> {
    /// Completes the chosen with others from this one on.
    fn descend(&mut self, from: usize) {
        let missing = self.rule.count - self.chosen.len();
        if missing == 0 {
            self.sets_left = self.sets_left.saturating_sub(1);
            let wait_ms = self.folded.waits.wait_ms(self.chosen[0], &self.chosen.iter().copied());
            if wait_ms < self.best.0 {
                let voters = self.chosen.iter().map(|place| self.folded.replicas[*place]);
                let voters: Vec<usize> = voters.collect();
                if self.rule.admits(&voters) {
                    self.best = (wait_ms, voters);
                }
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
        let waits = &self.folded.waits;
        let bound = |(chunk, weights): (usize, &Lanes)| {
            total(weights, &waits.bounds(chunk, &self.chosen, &self.others[from..], missing))
        };
        waits.weights().iter().enumerate().map(bound).sum()
    }
}
