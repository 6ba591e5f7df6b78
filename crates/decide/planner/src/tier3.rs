//! Tier 3 over a whole past: round trips that change between intervals, limits for voters alone,
//! and the best under other leaders.
//!
//! [`place`] answers one question exactly: one matrix of round trips, and
//! limits of failure domains that count every replica. Here the rest is brought to that form.
//!
//! **Several round trips.** Each interval's clients become clients of their own, with their own way
//! to every site: nothing is lost. Between sites there is one matrix in a question, so the search
//! takes the mean, and a second search takes the shortest way of each pair: no layout is below
//! that, which makes it the bound. What was found is scored on what was measured, its leader and
//! voters are chosen anew for all intervals (tier 2, exact), and if the bound is not reached, one
//! site after the other is exchanged while that gains. Where only the ways of clients differ, the
//! mean is the shortest, and the answer as well proven as ever.
//!
//! **Voters per domain.** A limit for voters leaves learners free. The search runs without it (its
//! bound is one for the question with it) and, if voters then crowd, again with the limit for all
//! replicas, which is stricter; the better of both is improved by exchanges as above.
//!
//! **Runners-up** are what tiers 1 and 2 rank: the best with another leader. A client that reads
//! nothing but at the leader, and for whom those who led already are out of reach, asks for that
//! without touching the search: every runner-up is as well proven as the first.

use super::domains::{Diversity, Domains, TooFew, VoterRule};
use super::history::{Part, Past};
use super::model::{Counts, Layout, Operation, RoundTrips};
use super::replicas::{NoPlacement, Placed, Question, Site, place};
use super::voters;

/// How many exchanged sets are looked at for an answer that is not proven.
const EXCHANGES_MAX: usize = 5_000;
/// Two values of which one is not above the other by more than this part are equal.
const TOLERANCE: f64 = 1e-10;
/// Intervals with a smaller part of all operations are left out of the search, not of the score.
const PART_MIN: f64 = 1e-12;

/// The best layouts for the operations of a past, each with another leader, at most `count`: the
/// best first. A domain has at most `voters_max` voters, if that is limited.
///
/// # Errors
/// When the question and its numbers do not belong together, or no set keeps its limits.
pub fn rank(
    past: &Past<'_>,
    question: &Question,
    voters_max: Option<usize>,
    count: usize,
) -> Result<Vec<Placed>, Unplaced> {
    let mut ranking = Ranking::new(past, question, voters_max)?;
    let mut ranked = Vec::new();
    while ranked.len() < count {
        let Some(next) = ranking.next()? else { break };
        ranked.push(next);
    }
    sort(&mut ranked);
    Ok(ranked)
}

/// Sorts what a [`Ranking`] gave. What is not proven may come before what is better: then the
/// lowest bound is that of all.
pub fn sort(ranked: &mut [Placed]) {
    if ranked.is_sorted_by(|one, other| one.score_ms <= other.score_ms) {
        return;
    }
    let bounds = ranked.iter().map(|placed| placed.lower_bound_ms);
    let bound = bounds.fold(f64::INFINITY, f64::min);
    ranked.sort_by(|one, other| one.score_ms.total_cmp(&other.score_ms));
    for placed in ranked {
        (placed.lower_bound_ms, placed.proven) = (bound, false);
    }
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Unplaced {
    /// The question has none.
    #[error(transparent)]
    Question(#[from] NoPlacement),
    /// No voter set is allowed.
    #[error("{0}")]
    Voters(TooFew),
    /// No set was found whose voters are spread far enough.
    #[error(
        "at most {voters_max} voters in a failure domain were asked for, no such set was found \
         (too many fixed sites in one domain?)"
    )]
    NotFound {
        /// Voters in one failure domain at most.
        voters_max: usize,
    },
}

/// All intervals as one: every client as often as there are round trips.
struct Merged {
    counts: Vec<[f64; Operation::ALL.len()]>,
    from_clients: Vec<Vec<f64>>,
    between: Vec<Vec<f64>>,
    /// The shortest way of every pair, where that differs.
    shortest: Option<Vec<Vec<f64>>>,
}

impl Merged {
    fn of(past: &Past<'_>) -> Self {
        let sites = past.newest().trips().sites();
        let least = PART_MIN * past.operations();
        let parts: Vec<&Part<'_>> =
            past.parts().iter().filter(|part| part.counts.total() > least).collect();
        let (mut counts, mut from_clients) = (Vec::new(), Vec::new());
        for part in &parts {
            let busy = part.counts.iter().enumerate();
            for (client, of) in busy.filter(|(_, of)| of.iter().any(|count| *count > 0.0)) {
                counts.push(*of);
                from_clients.push(part.trips.from_client(client).to_vec());
            }
        }
        let rows = |part: &Part<'_>| -> Vec<Vec<f64>> {
            (0..sites).map(|site| part.trips.from_site(site).to_vec()).collect()
        };
        let mut between = rows(parts[0]);
        let all: Vec<Vec<Vec<f64>>> = parts.iter().map(|part| rows(part)).collect();
        if all.iter().all(|rows| *rows == between) {
            return Self { counts, from_clients, between, shortest: None };
        }
        let mut shortest = between.clone();
        let weights: Vec<f64> = parts.iter().map(|part| weight(&part.counts)).collect();
        let total: f64 = weights.iter().sum();
        for row in 0..sites {
            for column in 0..sites {
                let ways = || all.iter().map(|rows| rows[row][column]);
                shortest[row][column] = ways().fold(f64::INFINITY, f64::min);
                let mean = ways().zip(&weights).map(|(way, weight)| way * weight).sum::<f64>();
                between[row][column] = if total > 0.0 { mean / total } else { ways().sum() };
            }
        }
        Self { counts, from_clients, between, shortest: Some(shortest) }
    }

    /// The same with these sites out of reach as leaders.
    fn without(&self, led: &[usize], between: &[Vec<f64>]) -> (Counts, RoundTrips) {
        let (mut counts, mut from_clients) = (self.counts.clone(), self.from_clients.clone());
        if !led.is_empty() {
            counts.push([0.0, 0.0, 1.0, 0.0, 0.0]);
            let row = (0..between.len()).map(|site| led.contains(&site));
            from_clients.push(row.map(|led| if led { self.out_of_reach() } else { 0.0 }).collect());
        }
        let counts = Counts::new(counts).expect("they were counts before");
        let trips = RoundTrips::new(&from_clients, between);
        (counts, trips.expect("they were round trips before, and finite sums of them"))
    }

    /// More than all operations could take together.
    fn out_of_reach(&self) -> f64 {
        let rows = self.from_clients.iter().chain(&self.between);
        let longest = rows.flatten().fold(0.0, |longest: f64, way| longest.max(*way));
        1.0 + 4.0 * (1.0 + longest) * self.counts.iter().flatten().sum::<f64>()
    }
}

/// How often ways between sites are gone.
fn weight(counts: &Counts) -> f64 {
    let quorums = |operation: &Operation| f64::from(operation.quorums());
    let waits: f64 = Operation::ALL.iter().map(|of| quorums(of) * counts.total_of(*of)).sum();
    waits + counts.total_of(Operation::BoundedRead)
}

/// A question with all that it is asked of: the best, then the best with another leader, and so on.
pub struct Ranking<'a> {
    past: &'a Past<'a>,
    question: Question,
    domains: Domains,
    diversity: Diversity,
    /// Whether voters are limited apart from replicas.
    is_limited: bool,
    merged: Merged,
    led: Vec<usize>,
}

impl<'a> Ranking<'a> {
    /// Asks about the operations of a past, with at most `voters_max` voters in a failure domain,
    /// if that is limited.
    ///
    /// # Errors
    /// When there are other numbers of domains than of sites, or too few for the voters.
    pub fn new(
        past: &'a Past<'a>,
        question: &Question,
        voters_max: Option<usize>,
    ) -> Result<Self, Unplaced> {
        let sites = past.newest().trips().sites();
        let own = question.domains.as_ref().map(|domains| Domains::new(domains.of.clone()));
        let domains = own.unwrap_or_else(|| Domains::each_its_own(sites));
        domains.check(sites).map_err(NoPlacement::from)?;
        let mut question = question.clone();
        let (count, mut domains_min) = (question.voters, 0);
        let is_limited = voters_max.is_some_and(|most| most < count) && question.domains.is_some();
        let per_domain_max = if is_limited { voters_max.unwrap_or(1).max(1) } else { usize::MAX };
        if let Some(limits) = &mut question.domains {
            // So many per domain need so many domains.
            limits.voters_min = limits.voters_min.max(count.div_ceil(per_domain_max));
            domains_min = limits.voters_min;
        }
        let diversity = Diversity { domains_min, per_domain_max };
        if is_limited {
            let may = |site: &usize| question.sites.get(*site) != Some(&Site::Forbidden);
            let allowed: Vec<usize> = (0..sites).filter(may).collect();
            let rule = VoterRule { count, domains: &domains, diversity };
            rule.check(&allowed).map_err(Unplaced::Voters)?;
        }
        let merged = Merged::of(past);
        Ok(Self { past, question, domains, diversity, is_limited, merged, led: Vec::new() })
    }

    /// Limits the nodes of each further search.
    pub const fn limit_nodes(&mut self, nodes_max: u64) {
        self.question.nodes_max = nodes_max;
    }

    /// The best with none of the leaders before; none if there is none. Its bound is one for all
    /// such layouts.
    ///
    /// # Errors
    /// When the question and its numbers do not belong together, or no set keeps its limits.
    #[expect(clippy::should_implement_trait, reason = "an answer may fail")]
    pub fn next(&mut self) -> Result<Option<Placed>, Unplaced> {
        let next = self.best(&self.led)?;
        self.led.extend(next.as_ref().map(|placed| placed.layout.leader()));
        Ok(next)
    }

    fn rule(&self) -> VoterRule<'_> {
        let (count, diversity) = (self.question.voters, self.diversity);
        VoterRule { count, domains: &self.domains, diversity }
    }

    /// The best that none of these leads; none if they must.
    fn best(&self, led: &[usize]) -> Result<Option<Placed>, Unplaced> {
        let (counts, trips) = self.merged.without(led, &self.merged.between);
        let first = place(&counts, &trips, &self.question)?;
        if led.contains(&first.layout.leader()) {
            return Ok(None);
        }
        let (mut bound, mut nodes) = (first.lower_bound_ms, first.nodes);
        if let Some(shortest) = &self.merged.shortest {
            let (counts, trips) = self.merged.without(led, shortest);
            let below = place(&counts, &trips, &self.question)?;
            (bound, nodes) = (below.lower_bound_ms, nodes + below.nodes);
        } else if !self.is_limited || self.rule().admits_spread(first.layout.voters()) {
            return Ok(Some(self.answer(first.layout, bound, nodes)));
        }
        let mut best = self.set(first.layout.replicas().to_vec(), led);
        if self.is_limited
            && let Some(limits) = &self.question.domains
        {
            let mut strict = self.question.clone();
            let most = self.diversity.per_domain_max;
            let replicas_max = Some(limits.replicas_max.map_or(most, |limit| limit.min(most)));
            strict.domains = Some(super::replicas::DomainLimits { replicas_max, ..limits.clone() });
            if let Ok(placed) = place(&counts, &trips, &strict) {
                nodes += placed.nodes;
                best = best.better(self.set(placed.layout.replicas().to_vec(), led));
            }
        }
        if best.total_ms(self.past) > bound * (1.0 + TOLERANCE) {
            best = self.descend(best, led);
        }
        match best.layout {
            Some((layout, _)) => Ok(Some(self.answer(layout, bound, nodes))),
            None if led.is_empty() => {
                Err(Unplaced::NotFound { voters_max: self.diversity.per_domain_max })
            }
            None => Ok(None),
        }
    }

    fn answer(&self, layout: Layout, bound: f64, nodes: u64) -> Placed {
        let score_ms = self.past.mean_ms(&layout, self.question.route) * self.past.operations();
        let proven = bound >= score_ms - TOLERANCE * score_ms;
        let lower_bound_ms = if proven { score_ms } else { bound };
        Placed { layout, score_ms, lower_bound_ms, proven, nodes }
    }

    /// A set of replicas with the best leader and voters for all intervals (tier 2).
    fn set(&self, mut replicas: Vec<usize>, led: &[usize]) -> Set {
        replicas.sort_unstable();
        let missing = self.missing(&replicas);
        let mut layout = None;
        if missing == 0 {
            let ranked = voters::rank(self.past, &replicas, &self.rule(), self.question.route, &[]);
            let ranked = ranked.unwrap_or_default().into_iter();
            let mut others = ranked.filter(|one| !led.contains(&one.layout.leader()));
            layout = others.next().map(|best| (best.layout, best.latency_ms));
        }
        Set { replicas, missing, layout }
    }

    /// How many voters have no seat, and how many domains are missing.
    fn missing(&self, replicas: &[usize]) -> usize {
        let among = self.domains.among(replicas);
        let Diversity { domains_min, per_domain_max } = self.diversity;
        let seats: usize = among.iter().map(|(_, here)| per_domain_max.min(*here)).sum();
        self.question.voters.saturating_sub(seats) + domains_min.saturating_sub(among.len())
    }

    /// Exchanges one site at a time while that is better.
    fn descend(&self, start: Set, led: &[usize]) -> Set {
        let mut best = start;
        let mut left = EXCHANGES_MAX;
        loop {
            let now = best.clone();
            for (out, into) in self.exchanges(&now.replicas) {
                if left == 0 {
                    return best;
                }
                left -= 1;
                let swap = |site: &usize| if *site == out { into } else { *site };
                let replicas: Vec<usize> = now.replicas.iter().map(swap).collect();
                if self.keeps_replicas_max(&replicas) && self.missing(&replicas) <= best.missing {
                    best = best.better(self.set(replicas, led));
                }
            }
            if best == now {
                return best;
            }
        }
    }

    /// Pairs of a site that may go and one that may come.
    fn exchanges(&self, replicas: &[usize]) -> Vec<(usize, usize)> {
        let is = |site: usize, rule: Site| self.question.sites.get(site) == Some(&rule);
        let may_come = |site: &usize| !replicas.contains(site) && !is(*site, Site::Forbidden);
        let come: Vec<usize> = (0..self.domains.sites()).filter(may_come).collect();
        let go = replicas.iter().filter(|site| !is(**site, Site::Fixed));
        go.flat_map(|out| come.iter().map(|into| (*out, *into))).collect()
    }

    fn keeps_replicas_max(&self, replicas: &[usize]) -> bool {
        let limit = self.question.domains.as_ref().and_then(|domains| domains.replicas_max);
        let limit = limit.unwrap_or(usize::MAX);
        self.domains.among(replicas).iter().all(|(_, here)| *here <= limit)
    }
}

/// A set of replicas.
#[derive(Clone, PartialEq, Debug)]
struct Set {
    replicas: Vec<usize>,
    /// 0 where voters can be spread as asked.
    missing: usize,
    /// The best on it with its mean, where there is one.
    layout: Option<(Layout, f64)>,
}

impl Set {
    /// The one that misses less, or is faster.
    fn better(self, other: Self) -> Self {
        let key = |set: &Self| {
            (set.missing, set.layout.as_ref().map_or(f64::INFINITY, |(_, mean)| *mean))
        };
        let (one, two) = (key(&self), key(&other));
        if two.0.cmp(&one.0).then(two.1.total_cmp(&one.1)).is_lt() { other } else { self }
    }

    fn total_ms(&self, past: &Past<'_>) -> f64 {
        self.layout.as_ref().map_or(f64::INFINITY, |(_, mean)| mean * past.operations())
    }
}
