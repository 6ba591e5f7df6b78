//! A question made ready: who may be where, what every leader waits for, what a set is worth.

use super::super::model::{Counts, Layout, Operation, RoundTrips};
use super::super::score::Score;
use super::demands::Demands;
use super::question::{DomainLimits, NoPlacement, Placed, Question, Site};
use super::quorum;

/// Two values of which one is not above the other by more than this part are equal: sums of a
/// thousand products, in whatever order, agree far closer.
pub(super) const TOLERANCE: f64 = 1e-10;

/// A sound question with its numbers.
#[derive(Debug)]
pub(super) struct Problem<'a> {
    pub(super) counts: &'a Counts,
    pub(super) trips: &'a RoundTrips,
    pub(super) question: &'a Question,
    /// Sites that may have a replica, rising.
    pub(super) allowed: Vec<usize>,
    /// Sites that must, rising.
    pub(super) fixed: Vec<usize>,
    /// Quorum round trips of all transactions.
    pub(super) quorums: f64,
    /// By leader, in milliseconds × operations: the way to it of all that goes there.
    to_leader: Vec<f64>,
    /// By leader, in milliseconds × operations: no set is below; infinite where nobody may lead.
    floors: Vec<f64>,
}

/// A set of replicas with the best leader for it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Found {
    /// In milliseconds × operations.
    pub(super) value: f64,
    pub(super) leader: usize,
    /// Rising.
    pub(super) replicas: Vec<usize>,
}

impl Found {
    /// The one of less value, or of lower sites.
    pub(super) fn better(self, other: Self) -> Self {
        if other.is_better(&self) { other } else { self }
    }

    pub(super) fn is_better(&self, other: &Self) -> bool {
        let ways = self.value.total_cmp(&other.value);
        let ways = ways.then_with(|| self.replicas.cmp(&other.replicas));
        ways.then_with(|| self.leader.cmp(&other.leader)).is_lt()
    }
}

impl<'a> Problem<'a> {
    pub(super) fn new(
        counts: &'a Counts,
        trips: &'a RoundTrips,
        question: &'a Question,
    ) -> Result<Self, NoPlacement> {
        let sites = trips.sites();
        check_length("clients of the counts", counts.clients(), trips.clients())?;
        if !question.sites.is_empty() {
            check_length("sites that are free, fixed or forbidden", question.sites.len(), sites)?;
        }
        let rule = |site: usize| question.sites.get(site).copied().unwrap_or_default();
        let allowed: Vec<usize> = (0..sites).filter(|&s| rule(s) != Site::Forbidden).collect();
        let fixed: Vec<usize> = (0..sites).filter(|&s| rule(s) == Site::Fixed).collect();
        if question.voters == 0 {
            return Err(NoPlacement::NoVoters);
        }
        let (least, most) = (question.voters.max(fixed.len()), allowed.len());
        if !(least..=most).contains(&question.replicas) {
            return Err(NoPlacement::Replicas { came: question.replicas, least, most });
        }
        if let Some(domains) = &question.domains {
            check_length("failure domains", domains.of.len(), sites)?;
            check_domains(domains, question, &allowed, &fixed)?;
        }
        let quorums =
            |operation: &Operation| f64::from(operation.quorums()) * counts.total_of(*operation);
        let quorums = Operation::ALL.iter().map(quorums).sum();
        let to_leader = (0..sites).map(|leader| to_leader(counts, trips, leader)).collect();
        let floors = vec![f64::INFINITY; sites];
        let mut problem =
            Self { counts, trips, question, allowed, fixed, quorums, to_leader, floors };
        let mut demands = Demands::default();
        for place in 0..problem.allowed.len() {
            let leader = problem.allowed[place];
            problem.lead(&mut demands, leader);
            problem.floors[leader] = problem.least_of(leader, &demands);
        }
        Ok(problem)
    }

    pub(super) fn sites(&self) -> usize {
        self.trips.sites()
    }

    /// Milliseconds × operations that do not depend on where replicas are.
    pub(super) fn to_leader(&self, leader: usize) -> f64 {
        self.to_leader[leader]
    }

    /// Who goes where under a leader.
    pub(super) fn demands(&self, leader: usize) -> Demands {
        let mut demands = Demands::default();
        self.lead(&mut demands, leader);
        demands
    }

    /// Makes demands those under another leader.
    pub(super) fn lead(&self, demands: &mut Demands, leader: usize) {
        demands.lead(self.counts, self.trips, self.question.route, leader);
    }

    /// How far a set is from keeping the limits of domains, in replicas to move; 0 when it does.
    pub(super) fn violation(&self, replicas: &[usize]) -> usize {
        let Some(domains) = &self.question.domains else { return 0 };
        let mut ids: Vec<usize> = replicas.iter().map(|&site| domains.of[site]).collect();
        ids.sort_unstable();
        let groups = ids.chunk_by(|a, b| a == b);
        let limit = self.question.replicas_max_in_domain();
        let excess: usize = groups.clone().map(|group| group.len().saturating_sub(limit)).sum();
        excess + domains.voters_min.saturating_sub(groups.count())
    }

    /// The value of a leader that may be wherever it is best, as if every other limit were none.
    pub(super) fn floor(&self) -> f64 {
        self.floors.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// No set with this leader is below.
    pub(super) fn floor_of(&self, leader: usize) -> f64 {
        self.floors[leader]
    }

    /// Whether no set with this leader is below a value, by more than rounding.
    pub(super) fn is_above(&self, leader: usize, value: f64) -> bool {
        self.floors[leader] > value + TOLERANCE * value
    }

    fn least_of(&self, leader: usize, demands: &Demands) -> f64 {
        let radius = self.radius_ms(leader, &self.allowed).unwrap_or(f64::INFINITY);
        self.to_leader(leader) + self.waits(radius) + demands.floor(&self.allowed)
    }

    /// The shortest radius within which a leader finds its quorum ([`quorum::radius_ms`]).
    pub(super) fn radius_ms(&self, leader: usize, replicas: &[usize]) -> Option<f64> {
        quorum::radius_ms(self.question, self.trips, leader, replicas)
    }

    /// What all transactions wait for quorums within this radius.
    pub(super) fn waits(&self, radius_ms: f64) -> f64 {
        if self.quorums > 0.0 { self.quorums * radius_ms } else { 0.0 }
    }

    /// The value of a set under a leader of it, infinite when no voters of theirs will do.
    pub(super) fn value(&self, leader: usize, demands: &Demands, replicas: &[usize]) -> f64 {
        match self.radius_ms(leader, replicas) {
            None => f64::INFINITY,
            Some(ms) => self.to_leader(leader) + self.waits(ms) + demands.total(replicas),
        }
    }

    /// A set with its best leader (tier 2, algorithm 2).
    pub(super) fn led(&self, mut replicas: Vec<usize>) -> Found {
        replicas.sort_unstable();
        let mut demands = Demands::default();
        let mut best = (f64::INFINITY, replicas[0]);
        for &leader in &replicas {
            self.lead(&mut demands, leader);
            let value = self.value(leader, &demands, &replicas);
            if value < best.0 {
                best = (value, leader);
            }
        }
        Found { value: best.0, leader: best.1, replicas }
    }

    /// The answer in words that others understand.
    pub(super) fn placed(&self, found: &Found, lower_bound_ms: f64, nodes: u64) -> Placed {
        let voters = quorum::voters(self.question, self.trips, found.leader, &found.replicas);
        let layout = Layout::new(found.leader, voters, found.replicas.clone())
            .expect("voters are chosen among replicas, the leader first");
        let score = Score::of(self.counts, self.trips, &layout, self.question.route);
        let score_ms = score.total_ms();
        let proven = lower_bound_ms >= score_ms - TOLERANCE * score_ms;
        let lower_bound_ms = if proven { score_ms } else { lower_bound_ms };
        Placed { layout, score_ms, lower_bound_ms, proven, nodes }
    }
}

fn check_length(what: &'static str, came: usize, expected: usize) -> Result<(), NoPlacement> {
    if came == expected { Ok(()) } else { Err(NoPlacement::Length { what, came, expected }) }
}

/// Whether some set keeps the limits.
fn check_domains(
    domains: &DomainLimits,
    question: &Question,
    allowed: &[usize],
    fixed: &[usize],
) -> Result<(), NoPlacement> {
    let ids = |sites: &[usize]| {
        let mut ids: Vec<usize> = sites.iter().map(|&site| domains.of[site]).collect();
        ids.sort_unstable();
        ids
    };
    let (all, held) = (ids(allowed), ids(fixed));
    let distinct = |ids: &[usize]| ids.chunk_by(|a, b| a == b).count();
    let new = (distinct(&all) - distinct(&held)).min(question.replicas - held.len());
    let possible = (distinct(&held) + new).min(question.voters);
    if possible < domains.voters_min {
        return Err(NoPlacement::TooFewDomains { wanted: domains.voters_min, possible });
    }
    let Some(limit) = domains.replicas_max else { return Ok(()) };
    let capped = |ids: &[usize]| {
        ids.chunk_by(|a, b| a == b).map(|group| group.len().min(limit)).sum::<usize>()
    };
    let possible = capped(&all);
    if possible < question.replicas || capped(&held) < held.len() {
        let possible = possible.min(if capped(&held) < held.len() { 0 } else { possible });
        let wanted = question.replicas;
        return Err(NoPlacement::DomainsFull { replicas_max: limit, possible, wanted });
    }
    Ok(())
}

fn to_leader(counts: &Counts, trips: &RoundTrips, leader: usize) -> f64 {
    let led = [Operation::StrongRead, Operation::SingleGroup, Operation::MultiGroup];
    let one = |(client, counts): (usize, &[f64; Operation::ALL.len()])| {
        let operations: f64 = led.iter().map(|&operation| counts[operation as usize]).sum();
        operations * trips.from_client(client)[leader]
    };
    counts.iter().enumerate().map(one).sum()
}
