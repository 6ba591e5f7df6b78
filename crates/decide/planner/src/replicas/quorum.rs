//! How far a leader looks for its quorum, and who votes.
//!
//! A leader with a set of replicas may choose the voters. Without failure domains the nearest are
//! best. With them a set of voters commits within radius `t` when a majority of them, the leader
//! counted, is within `t`; the others are free to be wherever a domain is missing. So within a
//! radius the question is only whether enough new domains can be covered, which counting answers:
//! `need` voters come from the ball and cover as many new domains as the ball has, the rest cover
//! what is left.

use super::super::model::{RoundTrips, majority};
use super::question::Question;

/// What a leader needs within a radius.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Need {
    /// Voters beside the leader within the radius.
    pub(super) votes: usize,
    /// Domains beside the leader's own within the radius.
    pub(super) domains: usize,
}

impl Need {
    /// With the leader's own vote within the radius or not (its disk may be slower than a
    /// neighbour); none when there are not enough voters beside it.
    pub(super) fn new(question: &Question, is_leader_inside: bool) -> Option<Self> {
        let others = question.voters - 1;
        let votes = majority(question.voters) - usize::from(is_leader_inside);
        let elsewhere = others.checked_sub(votes)?;
        Some(Self { votes, domains: question.new_domains().saturating_sub(elsewhere) })
    }
}

/// The shortest radius, in milliseconds, within which a leader finds its quorum among replicas
/// that keep the limits; none when no voters of theirs can.
pub(super) fn radius_ms(
    question: &Question,
    trips: &RoundTrips,
    leader: usize,
    replicas: &[usize],
) -> Option<f64> {
    let row = trips.from_site(leader);
    let mut others: Vec<usize> = replicas.to_vec();
    others.sort_unstable_by(|a, b| row[*a].total_cmp(&row[*b]));
    let mut seen = Seen::new(question, leader);
    let mut votes = 0;
    let mut is_leader_inside = false;
    for site in others {
        if site == leader {
            is_leader_inside = true;
        } else {
            votes += 1;
            seen.add(question, site);
        }
        let need = Need::new(question, is_leader_inside);
        if need.is_some_and(|need| votes >= need.votes && seen.new_ones() >= need.domains) {
            return Some(row[site]);
        }
    }
    None
}

/// Who should vote: of those that commit within the shortest radius the nearest, ties to the lowest
/// site.
pub(super) fn voters(
    question: &Question,
    trips: &RoundTrips,
    leader: usize,
    replicas: &[usize],
) -> Vec<usize> {
    let row = trips.from_site(leader);
    let radius = radius_ms(question, trips, leader, replicas).unwrap_or(f64::INFINITY);
    let mut others: Vec<usize> = replicas.iter().copied().filter(|&site| site != leader).collect();
    others.sort_by(|a, b| row[*a].total_cmp(&row[*b]));
    let mut chosen = vec![leader];
    for (place, &site) in others.iter().enumerate() {
        if chosen.len() == question.voters {
            break;
        }
        chosen.push(site);
        if !can_complete(question, row, &chosen, &others[place + 1..], radius) {
            chosen.pop();
        }
    }
    chosen
}

/// Whether voters chosen so far can be made a full set with some of the rest; `row` is how far
/// their leader is from every site.
fn can_complete(
    question: &Question,
    row: &[f64],
    chosen: &[usize],
    rest: &[usize],
    radius: f64,
) -> bool {
    let leader = chosen[0];
    let is_inside = |site: &&usize| row[**site] <= radius;
    let Some(need) = Need::new(question, row[leader] <= radius) else { return false };
    let slots = question.voters - chosen.len();
    let votes = chosen[1..].iter().filter(is_inside).count();
    let missing = need.votes.saturating_sub(votes);
    let Some(elsewhere) = slots.checked_sub(missing) else { return false };
    if rest.len() < slots || rest.iter().filter(is_inside).count() < missing {
        return false;
    }
    let mut seen = Seen::new(question, leader);
    chosen[1..].iter().for_each(|&site| seen.add(question, site));
    let has = seen.new_ones();
    rest.iter().filter(is_inside).for_each(|&site| seen.add(question, site));
    let inside = seen.new_ones() - has;
    rest.iter().for_each(|&site| seen.add(question, site));
    let all = seen.new_ones() - has;
    let from_inside = missing.min(inside);
    has + from_inside + elsewhere.min(all - from_inside) >= question.new_domains()
}

/// Domains met so far, the leader's first.
#[derive(Clone, Debug)]
pub(super) struct Seen(Vec<usize>);

impl Seen {
    pub(super) fn new(question: &Question, leader: usize) -> Self {
        Self(question.domain(leader).into_iter().collect())
    }

    pub(super) fn add(&mut self, question: &Question, site: usize) {
        let new = question.domain(site).filter(|domain| !self.0.contains(domain));
        self.0.extend(new);
    }

    /// Beside the leader's.
    pub(super) fn new_ones(&self) -> usize {
        self.0.len().saturating_sub(1)
    }
}
