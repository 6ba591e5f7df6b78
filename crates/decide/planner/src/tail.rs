//! Percentiles instead of means (section 3.1, which sketches them).
//!
//! Round trips are distributions on equal steps ([`Grid`], usually of 1 ms), taken as independent.
//! What an operation takes is the convolution of its ways. A quorum takes as long as the fastest
//! majority of the voters' answers, the leader's own among them: the k-th fastest, by the
//! Poisson-binomial recursion (the paper adds and subtracts over subsets, which is the same number
//! at exponential cost). A transaction across groups waits for two quorums, one after the other.
//!
//! **A database's percentile** is that of the mixture over clients and operations, each weighed by
//! its count: the latency that this share of all operations keep. It is no sum and no mean of the
//! percentiles of its parts.
//!
//! **Cost.** Convolution is linear: operations that share a way are mixed first, so a leader takes
//! one convolution for each replica (bounded reads), and a voter set two more, whatever the number
//! of clients.
//!
//! **Which voters.** The nearest by their means need not be the best for a percentile, since a
//! steadier one may be farther. All sets are tried if there are at most [`SETS_MAX`] for a leader;
//! otherwise the nearest are improved by swapping one voter at a time.
//!
//! **When it misleads.** Slow moments of one link make all its round trips slow together; what is
//! independent here then is not, and true tails are longer. Clients route by means, as they do
//! without this.

pub use super::distributions::Tails;

use super::domains::{TooFew, VoterRule};
use super::history::Past;
use super::leader::Ranked;
use super::model::{Counts, Layout, Operation, RoundTrips, Route, majority};
use super::voters::subsets;
use evenkeel_core::distribution::{Distribution, Grid};
use evenkeel_core::units::{Probability, Weight};

/// How many voter sets of one leader are tried before swaps take over.
pub const SETS_MAX: usize = 1_000;

impl Tails {
    /// What operations take under a layout: the mixture of all clients and kinds. Clients choose
    /// replicas by these means. None without operations.
    pub fn latency(
        &self,
        counts: &Counts,
        trips: &RoundTrips,
        layout: &Layout,
        route: Route,
    ) -> Option<Grid> {
        let mixed = Mixed { tails: self, counts, trips, replicas: layout.replicas(), route };
        mixed.led_by(layout.leader()).with(layout.voters())
    }
}

/// The percentile `p` of what the operations of a past take under a layout, in milliseconds; none
/// without distributions. Longer than any latency on the grids if more operations than `1 - p` are.
pub fn percentile_ms(
    past: &Past<'_>,
    layout: &Layout,
    route: Route,
    p: Probability,
) -> Option<f64> {
    let counts = past.counts();
    let latency = past.tails()?.latency(&counts, past.newest().trips(), layout, route);
    Some(at(&latency.expect("a past has operations"), p))
}

/// Tier 1 by a percentile: every voter as the leader, the best first; none without distributions.
/// Percentiles fall on steps, so equal ones are frequent: ties go to the lesser mean.
pub fn rank_leaders(
    past: &Past<'_>,
    layout: &Layout,
    route: Route,
    p: Probability,
) -> Option<Vec<Ranked>> {
    let (tails, counts, trips) = (past.tails()?, past.counts(), past.newest().trips());
    let mixed = Mixed { tails, counts: &counts, trips, replicas: layout.replicas(), route };
    let option = |leader: &usize| Ranked {
        layout: layout.led_by(*leader).expect("a voter may lead"),
        latency_ms: mixed.led_by(*leader).percentile_ms(layout.voters(), p),
    };
    Some(sorted(past, route, layout.voters().iter().map(option)))
}

/// Tier 2 by a percentile: every replica as the leader, each with the best voters found for it, the
/// best first; `None` without distributions. Arguments as of [`voters::rank`](super::voters::rank).
///
/// # Errors
/// When no voter set of these replicas obeys the rule.
pub fn rank_voters(
    past: &Past<'_>,
    replicas: &[usize],
    rule: &VoterRule<'_>,
    route: Route,
    keep: &[usize],
    p: Probability,
) -> Result<Option<Vec<Ranked>>, TooFew> {
    rule.check(replicas)?;
    let Some(tails) = past.tails() else {
        return Ok(None);
    };
    let (counts, trips) = (past.counts(), past.newest().trips());
    let mixed = Mixed { tails, counts: &counts, trips, replicas, route };
    let option = |leader: &usize| {
        let row = trips.from_site(*leader);
        let start = rule.nearest(row, *leader, replicas, keep);
        let (latency_ms, voters) = mixed.led_by(*leader).best_voters(start, rule, p);
        let layout = Layout::new(*leader, voters, replicas.to_vec()).expect("replicas vote");
        Ranked { layout, latency_ms }
    };
    Ok(Some(sorted(past, route, replicas.iter().map(option))))
}

/// Whether [`rank_voters`] looks at every voter set, so that its first is the optimum.
pub fn tries_all(past: &Past<'_>, replicas: usize, voters: usize) -> bool {
    let writes = [Operation::SingleGroup, Operation::MultiGroup];
    let counts = past.counts();
    sets(replicas.saturating_sub(1), voters.saturating_sub(1)) <= SETS_MAX
        || writes.iter().all(|write| counts.total_of(*write) == 0.0)
}

/// A percentile, in milliseconds, that no leader and no so many voters among these replicas are
/// below: each leader with a quorum of the fastest of all replicas, whoever votes. None without
/// distributions.
pub fn bound_ms(
    past: &Past<'_>,
    replicas: &[usize],
    voters: usize,
    route: Route,
    p: Probability,
) -> Option<f64> {
    let (tails, counts, trips) = (past.tails()?, past.counts(), past.newest().trips());
    let mixed = Mixed { tails, counts: &counts, trips, replicas, route };
    let least = |leader: &usize| {
        let quorum = tails.quorum_of(*leader, replicas, majority(voters));
        let latency = mixed.led_by(*leader).with_quorum(|| quorum);
        at(&latency.expect("a past has operations"), p)
    };
    Some(replicas.iter().map(least).fold(f64::INFINITY, f64::min))
}

/// The best first; of equal percentiles the one of the lesser mean.
pub(super) fn sorted(
    past: &Past<'_>,
    route: Route,
    options: impl Iterator<Item = Ranked>,
) -> Vec<Ranked> {
    let with_mean = |option: Ranked| (past.mean_ms(&option.layout, route), option);
    let mut all: Vec<(f64, Ranked)> = options.map(with_mean).collect();
    all.sort_by(|(one_ms, one), (other_ms, other)| {
        let by_tail = one.latency_ms.total_cmp(&other.latency_ms);
        let by_mean = by_tail.then(one_ms.total_cmp(other_ms));
        by_mean.then(one.layout.leader().cmp(&other.layout.leader()))
    });
    all.into_iter().map(|(_, option)| option).collect()
}

/// A percentile in milliseconds.
fn at(latency: &Grid, p: Probability) -> f64 {
    latency.quantile(p).as_secs_f64() * 1e3
}

/// Operations on their ways to one replica set.
struct Mixed<'a> {
    tails: &'a Tails,
    counts: &'a Counts,
    trips: &'a RoundTrips,
    replicas: &'a [usize],
    route: Route,
}

/// The same with a leader: what is left to say is who votes.
struct Led<'a> {
    mixed: &'a Mixed<'a>,
    leader: usize,
    /// Reads, complete.
    reads: Parts,
    /// Transactions on their way to the leader, by the number of quorums they wait for there.
    writes: [Option<(f64, Grid)>; 2],
}

/// Latencies, and how many operations take each.
type Parts = Vec<(f64, Grid)>;

impl<'a> Mixed<'a> {
    fn led_by(&'a self, leader: usize) -> Led<'a> {
        let mut reads = Parts::new();
        reads.extend(self.mix(Operation::WeakRead, |client| self.nearest(client)));
        reads.extend(self.mix(Operation::StrongRead, |_| leader));
        for (place, replica) in self.replicas.iter().enumerate() {
            let over_it = |client: usize| (self.over(client, leader) == place).then_some(*replica);
            if let Some((count, way)) = self.mix_some(Operation::BoundedRead, over_it) {
                let on = self.tails.from_site(*replica, leader);
                reads.push((count, way.convolve(on).expect("steps are equal")));
            }
        }
        let writes = [Operation::SingleGroup, Operation::MultiGroup];
        let writes = writes.map(|operation| self.mix(operation, |_| leader));
        Led { mixed: self, leader, reads, writes }
    }

    /// How long the ways of one kind of operation are, with how many there are; none without.
    fn mix(&self, of: Operation, to: impl Fn(usize) -> usize) -> Option<(f64, Grid)> {
        self.mix_some(of, |client| Some(to(client)))
    }

    /// The same for the clients that go anywhere.
    fn mix_some(&self, of: Operation, to: impl Fn(usize) -> Option<usize>) -> Option<(f64, Grid)> {
        let mut ways = Vec::new();
        for (client, counts) in self.counts.iter().enumerate() {
            let count = counts[of as usize];
            if let (Ok(weight), Some(site)) = (Weight::new(count), to(client)) {
                ways.push((weight, self.tails.from_client(client, site)));
            }
        }
        let count = ways.iter().map(|(weight, _)| weight.value()).sum();
        let way = Grid::mix(&ways).ok()?; // fails without ways only: steps are equal
        Some((count, way))
    }

    /// The site of the replica nearest to a client.
    fn nearest(&self, client: usize) -> usize {
        let row = self.trips.from_client(client);
        self.replicas[shortest(self.replicas.iter().map(|replica| row[*replica]))]
    }

    /// The place of the replica over which a client's bounded reads go to the leader.
    fn over(&self, client: usize, leader: usize) -> usize {
        let row = self.trips.from_client(client);
        shortest(self.replicas.iter().map(|replica| match self.route {
            Route::Nearest => row[*replica],
            Route::BestPath => row[*replica] + self.trips.from_site(*replica)[leader],
        }))
    }
}

/// The place of the shortest way, of equals the first.
fn shortest(ways: impl Iterator<Item = f64>) -> usize {
    let best = ways.enumerate().min_by(|one, other| one.1.total_cmp(&other.1));
    best.map_or(0, |(place, _)| place)
}

impl Led<'_> {
    /// What operations take with these voters; none without operations.
    fn with(&self, voters: &[usize]) -> Option<Grid> {
        self.with_quorum(|| self.mixed.tails.quorum(self.leader, voters))
    }

    /// The same with a quorum that takes so long.
    fn with_quorum(&self, quorum: impl FnOnce() -> Grid) -> Option<Grid> {
        let mut writes = Parts::new();
        if self.writes.iter().any(Option::is_some) {
            let quorum = quorum();
            let after = |way: &Grid| quorum.convolve(way).expect("steps are equal");
            let [single, multi] = &self.writes;
            writes.extend(single.as_ref().map(|(count, way)| (*count, after(way))));
            writes.extend(multi.as_ref().map(|(count, way)| (*count, after(&after(way)))));
        }
        let all = self.reads.iter().chain(&writes);
        let all: Vec<(Weight, &Grid)> =
            all.filter_map(|(count, way)| Some((Weight::new(*count).ok()?, way))).collect();
        Grid::mix(&all).ok()
    }

    fn percentile_ms(&self, voters: &[usize], p: Probability) -> f64 {
        at(&self.with(voters).expect("a past has operations"), p)
    }

    /// The best voters found, and the percentile with them.
    fn best_voters(
        &self,
        start: Vec<usize>,
        rule: &VoterRule<'_>,
        p: Probability,
    ) -> (f64, Vec<usize>) {
        let mut best = (self.percentile_ms(&start, p), start);
        if self.writes.iter().all(Option::is_none) {
            return best; // nobody waits for voters
        }
        let replicas = self.mixed.replicas;
        let others: Vec<usize> =
            replicas.iter().copied().filter(|site| *site != self.leader).collect();
        let consider = |best: &mut (f64, Vec<usize>), voters: Vec<usize>| {
            if rule.admits(&voters) {
                let latency_ms = self.percentile_ms(&voters, p);
                if latency_ms < best.0 {
                    *best = (latency_ms, voters);
                }
            }
        };
        if sets(others.len(), rule.count - 1) <= SETS_MAX {
            subsets(&others, rule.count - 1, &mut |others| {
                let mut voters = [&[self.leader], others].concat();
                voters.sort_unstable();
                consider(&mut best, voters);
            });
            return best;
        }
        loop {
            let before = best.clone();
            for out in before.1.iter().filter(|voter| **voter != self.leader) {
                for into in others.iter().filter(|other| !before.1.contains(other)) {
                    let swap = |voter: &usize| if voter == out { *into } else { *voter };
                    let mut voters: Vec<usize> = before.1.iter().map(swap).collect();
                    voters.sort_unstable();
                    consider(&mut best, voters);
                }
            }
            if best.0 >= before.0 {
                return best; // every round is faster than the one before: this comes
            }
        }
    }
}

/// How many sets of `k` there are of `n`, at most `usize::MAX`.
fn sets(n: usize, k: usize) -> usize {
    (0..k.min(n - k.min(n))).fold(1_usize, |sets, i| sets.saturating_mul(n - i) / (i + 1))
}
