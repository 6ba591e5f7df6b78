//! The sub-problem at given prices: which sites are worth most, the radius of the quorum included.
//!
//! A free site has a worth: the sum, over demands that pay more than it costs them, of the
//! difference, written as a value of 0 or less. For a radius the leader needs so many more votes
//! inside, so the best set has the best of those inside and then the best of all; a longer radius
//! matters only where it brings a better site inside or needs one vote less. Where there are limits
//! of failure domains a second relaxation forgets the votes and keeps the limits (best sites of
//! domains not yet covered, then the best that are not in full ones); both bound, so the higher of
//! the two does.

use super::super::problem::Problem;
use super::super::quorum::{Need, Seen};
use super::fate::{Fate, with_fate};
use super::state::Tree;

/// The best set at given prices, for one radius.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// Its value: worths and what transactions wait.
    pub(super) value: f64,
    /// Free sites to open.
    pub(super) sites: Vec<usize>,
}

/// The sub-problem of one node, at the latest prices.
#[derive(Debug, Default)]
pub(super) struct Relaxed {
    /// By site; 0 of those that are not free.
    pub(super) worth: Vec<f64>,
    /// The best of each radius that matters.
    pub(super) choices: Vec<Choice>,
    /// Free sites of the most worth, as many as there are slots and one more.
    top: Vec<usize>,
    /// Free sites within the radius, of the most worth, as many as there may be votes.
    inside: Vec<usize>,
}

impl Relaxed {
    pub(super) fn of(sites: usize) -> Self {
        Self { worth: vec![0.0; sites], ..Self::default() }
    }

    /// Solves for the present `worth`; false when no set of free sites will do.
    pub(super) fn solve(&mut self, tree: &Tree<'_>, fates: &[Fate], slots: usize) -> bool {
        self.choices.clear();
        self.rank(fates, slots);
        let by_domain = by_domain(tree.problem, tree.leader, fates, &self.worth, slots);
        if by_domain.as_ref().is_some_and(|choice| choice.value.is_infinite()) {
            return false;
        }
        self.inside.clear();
        let mut votes = 0;
        let mut is_leader_inside = false;
        let mut seen = Seen::new(tree.problem.question, tree.leader);
        for &site in &tree.by_distance {
            if fates[site] == Fate::Closed {
                continue;
            }
            let has_changed = match fates[site] {
                _ if site == tree.leader => {
                    is_leader_inside = true;
                    true
                }
                Fate::Free => self.enter(site, tree.votes_max),
                _ => {
                    votes += 1;
                    true
                }
            };
            seen.add(tree.problem.question, site);
            let Some(need) = Need::new(tree.problem.question, is_leader_inside) else { continue };
            let missing = need.votes.saturating_sub(votes);
            let is_enough = missing <= self.inside.len().min(slots);
            if !is_enough || seen.new_ones() < need.domains {
                continue;
            }
            if has_changed || tree.problem.question.domains.is_some() {
                let waits = tree.problem.waits(tree.problem.trips.from_site(tree.leader)[site]);
                self.choose(missing, slots, waits, by_domain.as_ref());
            }
            if missing == 0 {
                break; // farther only waits longer
            }
        }
        !self.choices.is_empty()
    }

    /// The choice of the least value.
    pub(super) fn best(&self) -> &Choice {
        let least = self.choices.iter().min_by(|a, b| a.value.total_cmp(&b.value));
        least.expect("asked only when there is a choice")
    }

    fn rank(&mut self, fates: &[Fate], slots: usize) {
        let worth = &self.worth;
        let order = |a: &usize, b: &usize| worth[*a].total_cmp(&worth[*b]).then(a.cmp(b));
        self.top.clear();
        self.top.extend(with_fate(fates, Fate::Free));
        if self.top.len() > slots + 1 {
            self.top.select_nth_unstable_by(slots, order);
            self.top.truncate(slots + 1);
        }
        self.top.sort_unstable_by(order);
    }

    /// Takes a site inside the radius; whether it is among the best there.
    fn enter(&mut self, site: usize, votes_max: usize) -> bool {
        let worth = &self.worth;
        let place = self.inside.partition_point(|&other| worth[other] <= worth[site]);
        if place >= votes_max {
            return false;
        }
        self.inside.insert(place, site);
        self.inside.truncate(votes_max);
        true
    }

    /// The best set with so many from inside.
    fn choose(&mut self, missing: usize, slots: usize, waits: f64, by_domain: Option<&Choice>) {
        let mut sites: Vec<usize> = self.inside[..missing].to_vec();
        let rest = self.top.iter().copied().filter(|site| !self.inside[..missing].contains(site));
        sites.extend(rest.take(slots - missing));
        let worth: f64 = sites.iter().map(|&site| self.worth[site]).sum();
        let mut choice = Choice { value: worth + waits, sites };
        if let Some(by_domain) = by_domain
            && by_domain.value > worth
        {
            choice = Choice { value: by_domain.value + waits, sites: by_domain.sites.clone() };
        }
        self.choices.push(choice);
    }

    /// What the value is at least when a free site is opened, or closed, that is not so in the
    /// choices. Exact limits are left out: what is left of the bound still holds.
    pub(super) fn forced(&self, fates: &[Fate], slots: usize) -> Vec<(usize, Fate, f64)> {
        let mut forced = Vec::new();
        let next = self.top.get(slots).map_or(f64::INFINITY, |&site| self.worth[site]);
        for site in with_fate(fates, Fate::Free) {
            let worth = self.worth[site];
            let (mut open, mut closed) = (f64::INFINITY, f64::INFINITY);
            for choice in &self.choices {
                if choice.sites.contains(&site) {
                    open = open.min(choice.value);
                    closed = closed.min(choice.value - worth + self.best_outside(choice, next));
                } else {
                    let worst = choice.sites.iter().map(|&other| self.worth[other]);
                    let worst = worst.fold(f64::NEG_INFINITY, f64::max);
                    open = open.min(choice.value - worst + worth);
                    closed = closed.min(choice.value);
                }
            }
            forced.push((site, Fate::Open, open));
            forced.push((site, Fate::Closed, closed));
        }
        forced
    }

    /// The best worth of a site that a choice leaves out.
    fn best_outside(&self, choice: &Choice, next: f64) -> f64 {
        let outside = self.top.iter().find(|site| !choice.sites.contains(site));
        outside.map_or(next, |&site| self.worth[site])
    }
}

/// The best free sites by the limits of domains alone; none when there are no such limits. Its
/// value is infinite when no free sites keep them.
fn by_domain(
    problem: &Problem<'_>,
    leader: usize,
    fates: &[Fate],
    worth: &[f64],
    slots: usize,
) -> Option<Choice> {
    let domains = problem.question.domains.as_ref()?;
    let limit = problem.question.replicas_max_in_domain();
    let mut held: Vec<usize> = vec![0; domains.of.iter().max().map_or(0, |most| most + 1)];
    let mut seen = Seen::new(problem.question, leader);
    for site in with_fate(fates, Fate::Open) {
        held[domains.of[site]] += 1;
        seen.add(problem.question, site);
    }
    let mut free: Vec<usize> = with_fate(fates, Fate::Free).collect();
    free.sort_by(|a, b| worth[*a].total_cmp(&worth[*b]));
    let mut missing = problem.question.new_domains().saturating_sub(seen.new_ones());
    let mut sites = Vec::new();
    for &site in &free {
        if missing == 0 || sites.len() == slots {
            break;
        }
        if held[domains.of[site]] == 0 {
            held[domains.of[site]] += 1;
            sites.push(site);
            missing -= 1;
        }
    }
    for &site in &free {
        if sites.len() == slots {
            break;
        }
        if held[domains.of[site]] < limit && !sites.contains(&site) {
            held[domains.of[site]] += 1;
            sites.push(site);
        }
    }
    let keeps = missing == 0 && sites.len() == slots;
    let value = if keeps { sites.iter().map(|&site| worth[site]).sum() } else { f64::INFINITY };
    Some(Choice { value, sites })
}
