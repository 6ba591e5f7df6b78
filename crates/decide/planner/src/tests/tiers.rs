//! Tiers 1 and 2 equal brute force on 10 000 random problems: both routes, even voter numbers,
//! ties.

use super::{Case, all_sets, near, some_of};
use crate::domains::{Diversity, Domains, VoterRule};
use crate::model::{Layout, Route};
use crate::{leader, voters};
use evenkeel_core::rng::Rng;

const CASES: usize = 10_000;

fn route(rng: &mut Rng) -> Route {
    if rng.below(2) == 0 { Route::Nearest } else { Route::BestPath }
}

#[test]
fn tier_1_ranks_every_voter_as_brute_force_does() {
    let mut rng = Rng::seeded(1);
    let mut solved = 0;
    while solved < CASES {
        let case = Case::random(&mut rng);
        let count = 1 + rng.below(case.sites);
        let replicas = case.some_sites(&mut rng, count);
        let voting = 1 + rng.below(count);
        let voters = some_of(&mut rng, &replicas, voting);
        let route = route(&mut rng);
        let today = Layout::new(voters[0], voters.clone(), replicas.clone()).unwrap();
        let mean_ms = |leader| case.model.mean_ms(leader, &voters, &replicas, route);
        let Some(past) = case.history.past(0) else {
            assert_eq!(mean_ms(voters[0]), None);
            continue;
        };
        let ranked = leader::rank(&past, &today, route);
        solved += 1;
        assert_eq!(ranked.len(), voters.len());
        assert!(ranked.is_sorted_by(|a, b| a.latency_ms <= b.latency_ms));
        let least = voters.iter().filter_map(|voter| mean_ms(*voter)).fold(f64::INFINITY, f64::min);
        assert!(near(ranked[0].latency_ms, least));
        for option in &ranked {
            let expected = mean_ms(option.layout.leader()).unwrap();
            assert!(near(option.latency_ms, expected), "{option:?}, {expected} expected");
            assert!(near(past.mean_ms(&option.layout, route), expected));
        }
    }
}

#[test]
fn tier_2_finds_the_best_voters_of_every_leader_as_brute_force_does() {
    let mut rng = Rng::seeded(2);
    let (mut solved, mut differing) = (0, 0);
    while solved < CASES {
        let case = Case::random(&mut rng);
        let count = 1 + rng.below(case.sites);
        let replicas = case.some_sites(&mut rng, count);
        let domains = Domains::new((0..case.sites).map(|_| rng.below(4)).collect());
        let diversity = Diversity { domains_min: rng.below(3), per_domain_max: 1 + rng.below(4) };
        let rule = VoterRule { count: 1 + rng.below(count), domains: &domains, diversity };
        let voting = rng.below(count + 1);
        let keep = some_of(&mut rng, &replicas, voting);
        let route = route(&mut rng);
        let Some(past) = case.history.past(0) else { continue };
        let sets: Vec<Vec<usize>> =
            all_sets(&replicas, rule.count).into_iter().filter(|set| rule.admits(set)).collect();
        let Ok(ranked) = voters::rank(&past, &replicas, &rule, route, &keep) else {
            assert!(sets.is_empty(), "{sets:?} obey {rule:?}");
            continue;
        };
        solved += 1;
        differing += usize::from(past.parts().len() > 1);
        assert_eq!(ranked.len(), replicas.len());
        for option in &ranked {
            let leader = option.layout.leader();
            let with =
                |voters: &[usize]| case.model.mean_ms(leader, voters, &replicas, route).unwrap();
            let sets = sets.iter().filter(|set| set.contains(&leader));
            let least = sets.map(|set| with(set)).fold(f64::INFINITY, f64::min);
            assert!(near(option.latency_ms, least), "{option:?}, {least} expected");
            assert!(near(with(option.layout.voters()), least));
            assert!(rule.admits(option.layout.voters()));
        }
        let brute = voters::brute_force(&past, &replicas, &rule, route).unwrap();
        assert!(near(brute.latency_ms, ranked[0].latency_ms));
    }
    assert!(differing > CASES / 4, "{differing} with several round trips");
}

#[test]
fn replicas_far_from_clients_may_lead_only_in_tier_2() {
    // Figure 7 (a): strong reads alone, and the replica beside the clients does not vote.
    use super::{Matrix, shared};
    use crate::history::{History, Interval};
    use crate::model::Counts;
    let between: Matrix = vec![vec![0.0, 9.0, 50.0], vec![9.0, 0.0, 60.0], vec![50.0, 60.0, 0.0]];
    let trips = shared(&(vec![vec![50.0, 60.0, 1.0]], between));
    let mut history = History::default();
    let counts = Counts::new(vec![[0.0, 0.0, 98.0, 0.0, 2.0]]).unwrap();
    history.push(Interval::new(counts, trips).unwrap()).unwrap();
    let past = history.past(0).unwrap();
    let today = Layout::new(0, vec![0, 1], vec![0, 1, 2]).unwrap();
    let tier_1 = leader::rank(&past, &today, Route::Nearest);
    assert_eq!(tier_1[0].layout.leader(), 0);
    assert!(near(tier_1[0].latency_ms, 50.0 + 0.02 * 18.0));
    let domains = Domains::each_its_own(3);
    let rule = VoterRule::as_today(&domains, today.voters());
    let tier_2 =
        voters::rank(&past, today.replicas(), &rule, Route::Nearest, today.voters()).unwrap();
    assert_eq!(tier_2[0].layout, Layout::new(2, vec![0, 2], vec![0, 1, 2]).unwrap());
    assert!(near(tier_2[0].latency_ms, 1.0 + 0.02 * 100.0));
}

#[test]
fn ties_go_to_the_lowest_number_and_voters_that_make_no_difference_stay() {
    use super::shared;
    use crate::history::{History, Interval};
    use crate::model::Counts;
    // Nobody is nearer to anything: five sites, all 7 ms from each other and from the client.
    let between = (0..5).map(|a| (0..5).map(|b| if a == b { 0.0 } else { 7.0 }).collect());
    let trips = shared(&(vec![vec![7.0; 5]], between.collect()));
    let mut history = History::default();
    let counts = Counts::new(vec![[1.0; 5]]).unwrap();
    history.push(Interval::new(counts, trips).unwrap()).unwrap();
    let past = history.past(0).unwrap();
    let domains = Domains::each_its_own(5);
    let rule = VoterRule { count: 3, domains: &domains, diversity: Diversity::ANY };
    let ranked = voters::rank(&past, &[0, 1, 2, 3, 4], &rule, Route::Nearest, &[2, 3, 4]).unwrap();
    let found: Vec<(usize, &[usize])> =
        ranked.iter().map(|option| (option.layout.leader(), option.layout.voters())).collect();
    assert_eq!(
        found,
        [(0, &[0, 2, 3][..]), (1, &[1, 2, 3]), (2, &[2, 3, 4]), (3, &[2, 3, 4]), (4, &[2, 3, 4]),]
    );
}
