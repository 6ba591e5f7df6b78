//! Tier 3 with runners-up, several round trips and limits for voters, against all layouts there
//! are; and what is told of who gains.

use super::{Case, all_sets, near};
use crate::explain::{Wait, Waits};
use crate::history::Past;
use crate::model::{Counts, Layout, Operation, Route};
use crate::replicas::{DomainLimits, Placed, Question, Site};
use crate::tier3::{Unplaced, rank};
use evenkeel_core::rng::Rng;

/// A random question with its limits.
struct Asking {
    case: Case,
    question: Question,
    domains: Vec<usize>,
    voters_max: usize,
}

impl Asking {
    fn random(rng: &mut Rng, is_limited: bool) -> Self {
        let case = Case::random(rng);
        let replicas = 1 + rng.below(case.sites.min(4));
        let voters = 1 + rng.below(replicas);
        let route = [Route::Nearest, Route::BestPath][rng.below(2)];
        let mut question = Question::new(replicas, voters, route);
        let domains: Vec<usize> = (0..case.sites).map(|_| rng.below(3)).collect();
        let mut voters_max = usize::MAX;
        if is_limited {
            voters_max = 1 + rng.below(2);
            let replicas_max = Some(2 + rng.below(3));
            question.domains =
                Some(DomainLimits { of: domains.clone(), voters_min: rng.below(3), replicas_max });
        }
        if rng.below(3) == 0 {
            question.sites = vec![Site::Free; case.sites];
            question.sites[rng.below(case.sites)] = [Site::Fixed, Site::Forbidden][rng.below(2)];
        }
        Self { case, question, domains, voters_max }
    }

    fn keeps_limits(&self, layout: &Layout) -> bool {
        let rule = |site: usize| self.question.sites.get(site).copied().unwrap_or_default();
        let is_fixed = |site: usize| rule(site) == Site::Fixed;
        let here = |sites: &[usize], domain: usize| {
            sites.iter().filter(|site| self.domains[**site] == domain).count()
        };
        let Some(limits) = &self.question.domains else {
            return (0..self.case.sites).all(|site| !is_fixed(site) || layout.has_replica(site))
                && layout.replicas().iter().all(|site| rule(*site) != Site::Forbidden);
        };
        let spread = (0..3).filter(|domain| here(layout.voters(), *domain) > 0).count();
        (0..self.case.sites).all(|site| !is_fixed(site) || layout.has_replica(site))
            && layout.replicas().iter().all(|site| rule(*site) != Site::Forbidden)
            && spread >= limits.voters_min
            && (0..3).all(|domain| {
                here(layout.voters(), domain) <= self.voters_max
                    && here(layout.replicas(), domain) <= limits.replicas_max.unwrap_or(usize::MAX)
            })
    }

    /// The least mean of every leader that there is, the best first.
    fn brute_force(&self) -> Vec<(f64, usize)> {
        let Question { replicas, voters, route, .. } = self.question;
        let sites: Vec<usize> = (0..self.case.sites).collect();
        let mut best: Vec<(f64, usize)> = Vec::new();
        for leader in 0..self.case.sites {
            let mut least = f64::INFINITY;
            for set in all_sets(&sites, replicas) {
                for votes in all_sets(&set, voters) {
                    let layout = Layout::new(leader, votes, set.clone());
                    if let Some(layout) = layout.ok().filter(|layout| self.keeps_limits(layout)) {
                        let (votes, set) = (layout.voters(), layout.replicas());
                        let mean = self.case.model.mean_ms(leader, votes, set, route).unwrap();
                        least = least.min(mean);
                    }
                }
            }
            if least.is_finite() {
                best.push((least, leader));
            }
        }
        best.sort_by(|one, other| one.0.total_cmp(&other.0));
        best
    }
}

/// Checks what is true of every answer; returns how many are the best of their turn.
fn check(asking: &Asking, past: &Past<'_>, ranked: &[Placed], all: &[(f64, usize)]) -> usize {
    let mut best = 0;
    let mut led = Vec::new();
    assert!(ranked.len() <= all.len().min(3));
    for placed in ranked {
        let leader = placed.layout.leader();
        assert!(asking.keeps_limits(&placed.layout), "{:?}", placed.layout);
        assert_eq!(placed.layout.voters().len(), asking.question.voters);
        assert!(!led.contains(&leader), "each has another leader");
        let mean = past.mean_ms(&placed.layout, asking.question.route);
        assert!(near(mean * past.operations(), placed.score_ms));
        let least = all.iter().find(|(_, one)| !led.contains(one)).unwrap().0;
        let (came, bound) = (mean, placed.lower_bound_ms / past.operations());
        assert!(came >= least * (1.0 - 1e-9) - 1e-12, "{came} {least}");
        assert!(bound <= least * (1.0 + 1e-9) + 1e-12, "{bound} {least}");
        let is_best = came <= least * (1.0 + 1e-9) + 1e-12;
        assert!(is_best || !placed.proven);
        best += usize::from(is_best);
        led.push(leader);
    }
    best
}

#[test]
fn runners_up_are_the_best_with_other_leaders_as_all_layouts_say() {
    let mut rng = Rng::seeded(31);
    let mut answers = 0;
    for _ in 0..400 {
        let asking = Asking::random(&mut rng, false);
        let Some(past) = asking.case.history.past(0) else { continue };
        if past.parts().len() > 1 {
            continue;
        }
        let Ok(ranked) = rank(&past, &asking.question, None, 3) else {
            assert!(asking.brute_force().is_empty());
            continue;
        };
        let all = asking.brute_force();
        assert_eq!(ranked.len(), all.len().min(3));
        assert_eq!(check(&asking, &past, &ranked, &all), ranked.len());
        assert!(ranked.iter().all(|placed| placed.proven));
        answers += ranked.len();
    }
    assert!(answers > 300, "{answers}");
}

#[test]
fn with_several_round_trips_and_limits_bounds_hold_and_most_answers_are_the_best() {
    let mut rng = Rng::seeded(32);
    let (mut answers, mut best, mut refused) = (0, 0, 0);
    for _ in 0..600 {
        let is_limited = rng.below(3) > 0;
        let asking = Asking::random(&mut rng, is_limited);
        let Some(past) = asking.case.history.past(0) else { continue };
        let all = asking.brute_force();
        let most = Some(asking.voters_max).filter(|_| is_limited);
        match rank(&past, &asking.question, most, 3) {
            Ok(ranked) => {
                assert!(!ranked.is_empty());
                best += check(&asking, &past, &ranked[..1], &all);
                answers += 1;
            }
            Err(Unplaced::NotFound { .. }) if !all.is_empty() => refused += 1,
            Err(error) => assert!(all.is_empty(), "{error}: {all:?}"),
        }
    }
    println!("{answers} answers, {best} best, {refused} not found");
    assert!(answers > 300, "{answers}");
    assert!(best * 100 >= answers * 97, "{best} of {answers}");
    assert!(refused * 100 <= answers, "{refused} of {answers}");
}

#[test]
fn waits_of_clients_and_operations_add_up_to_the_means() {
    let mut rng = Rng::seeded(33);
    for _ in 0..200 {
        let case = Case::random(&mut rng);
        let Some(past) = case.history.past(0) else { continue };
        let mut any = || {
            let sites = 1 + rng.below(case.sites);
            let replicas = case.some_sites(&mut rng, sites);
            Layout::new(replicas[0], vec![replicas[0]], replicas).unwrap()
        };
        let (before, after) = (any(), any());
        let waits = Waits::between(&past, &before, &after, Route::Nearest);
        let mean = |layout: &Layout| past.mean_ms(layout, Route::Nearest) * past.operations();
        let saved = mean(&before) - mean(&after);
        let by_client: f64 = waits.clients.iter().map(Wait::saved_ms).sum();
        let by_operation: f64 = waits.operations.iter().map(Wait::saved_ms).sum();
        let scale = mean(&before) + mean(&after) + 1.0;
        assert!((by_client - saved).abs() < 1e-9 * scale);
        assert!((by_operation - saved).abs() < 1e-9 * scale);
        assert!(waits.clients.is_sorted_by(|a, b| a.saved_ms() >= b.saved_ms()));
        let counts: Counts = past.counts();
        for wait in &waits.operations {
            assert!(near(wait.operations, counts.total_of(wait.of)));
        }
        assert!(waits.operations.len() <= Operation::ALL.len());
    }
}
