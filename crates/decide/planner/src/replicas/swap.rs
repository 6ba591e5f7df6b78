//! Descent by exchanging one site at a time, the leader's included.
//!
//! The value of all exchanges under one leader takes one pass over demands for each site that may
//! come in: with the nearest and second nearest replica of every demand, what the newcomer changes
//! is known at once, and what leaves is missed only by those that were with it (Whitaker's fast
//! interchange).

use super::demands::Demands;
use super::problem::{Found, Problem, TOLERANCE};

/// Exchanges until nothing is gained: a set that keeps the limits and that no exchange betters.
pub(super) fn descend(problem: &Problem<'_>, found: Found) -> Found {
    let mut best = mend(problem, found);
    while let Some(better) = best_exchange(problem, &best) {
        best = better;
    }
    best
}

/// Makes a set keep the limits of domains by the exchanges that cost least, each of which repairs
/// one replica; a set that keeps them stays as it is.
pub(super) fn mend(problem: &Problem<'_>, found: Found) -> Found {
    let mut found = found;
    while problem.violation(&found.replicas) > 0 {
        let violation = problem.violation(&found.replicas);
        let mut best: Option<Found> = None;
        for_each_exchange(problem, &found.replicas, |replicas| {
            if problem.violation(&replicas) < violation {
                let one = problem.led(replicas);
                best = Some(match best.take() {
                    None => one,
                    Some(best) => best.better(one),
                });
            }
        });
        found = best.expect("a question that no set answers is refused before");
    }
    if found.value.is_infinite() { problem.led(found.replicas) } else { found }
}

fn for_each_exchange(problem: &Problem<'_>, replicas: &[usize], mut act: impl FnMut(Vec<usize>)) {
    for &out in replicas.iter().filter(|out| !problem.fixed.contains(out)) {
        for &site in problem.allowed.iter().filter(|site| !replicas.contains(site)) {
            act(exchanged(replicas, out, site));
        }
    }
}

fn exchanged(replicas: &[usize], out: usize, site: usize) -> Vec<usize> {
    let kept = replicas.iter().copied().filter(|&replica| replica != out);
    let mut with: Vec<usize> = kept.chain([site]).collect();
    with.sort_unstable();
    with
}

/// The best exchange, under any leader of the new set, when it gains anything.
fn best_exchange(problem: &Problem<'_>, now: &Found) -> Option<Found> {
    let mut demands = Demands::default();
    let mut best: Option<Found> = None;
    let enough = now.value - TOLERANCE * now.value;
    for &leader in &problem.allowed {
        if problem.is_above(leader, now.value) {
            continue; // no set of this leader is a gain
        }
        problem.lead(&mut demands, leader);
        let nearest = Nearest::of(&demands, &now.replicas);
        let is_member = now.replicas.contains(&leader);
        let mut try_one = |site: usize| {
            let totals = nearest.with(&demands, site, &now.replicas);
            for (place, &out) in now.replicas.iter().enumerate() {
                let total = problem.to_leader(leader) + totals[place];
                let is_worth = total < best.as_ref().map_or(enough, |best| best.value);
                if out == leader || problem.fixed.contains(&out) || !is_worth {
                    continue;
                }
                let replicas = exchanged(&now.replicas, out, site);
                let Some(radius) = problem.radius_ms(leader, &replicas) else { continue };
                let value = total + problem.waits(radius);
                let found = Found { value, leader, replicas };
                let is_better = best.as_ref().is_none_or(|best| found.is_better(best));
                if value < enough && is_better && problem.violation(&found.replicas) == 0 {
                    best = Some(found);
                }
            }
        };
        if is_member {
            let others = problem.allowed.iter().filter(|site| !now.replicas.contains(site));
            others.for_each(|&site| try_one(site));
        } else {
            try_one(leader);
        }
    }
    best
}

/// For every demand the place among replicas of the one it goes to and of the next.
struct Nearest(Vec<[usize; 2]>);

impl Nearest {
    fn of(demands: &Demands, replicas: &[usize]) -> Self {
        let one = |demand: usize| {
            let prefer = demands.prefer(demand);
            let mut two = [usize::MAX; 2];
            for (place, &site) in replicas.iter().enumerate() {
                let is_before =
                    |other: usize| other == usize::MAX || prefer[site] < prefer[replicas[other]];
                if is_before(two[0]) {
                    two = [place, two[0]];
                } else if is_before(two[1]) {
                    two[1] = place;
                }
            }
            two
        };
        Self((0..demands.count()).map(one).collect())
    }

    /// The cost of all demands when a site comes in, by the place of what leaves.
    fn with(&self, demands: &Demands, site: usize, replicas: &[usize]) -> Vec<f64> {
        let mut kept = 0.0;
        let mut left = vec![0.0; replicas.len()];
        for (demand, &[first, second]) in self.0.iter().enumerate() {
            let (prefer, cost) = (demands.prefer(demand), demands.cost(demand));
            let goes = |to: usize| (prefer[site], site) < (prefer[replicas[to]], replicas[to]);
            if goes(first) {
                kept += cost[site];
                continue;
            }
            let here = cost[replicas[first]];
            kept += here;
            let is_newcomer = second == usize::MAX || goes(second);
            let next = if is_newcomer { cost[site] } else { cost[replicas[second]] };
            left[first] += next - here;
        }
        left.iter_mut().for_each(|left| *left += kept);
        left
    }
}
