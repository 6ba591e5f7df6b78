//! The rule for voters in several failure domains is exact, and the paper's is not.

use super::{all_sets, median};
use crate::domains::{Diversity, Domains, TooFew, VoterRule};
use evenkeel_core::rng::Rng;

/// Section 4: keep the nearest replica of each domain, take the k-th nearest of these.
fn papers_quorum_ms(row: &[f64], domains: &Domains, replicas: &[usize], k: usize) -> Option<f64> {
    let mut nearest: Vec<f64> = domains
        .among(replicas)
        .iter()
        .map(|(domain, _)| {
            let here = replicas.iter().filter(|site| domains.of(**site) == *domain);
            here.map(|site| row[*site]).fold(f64::INFINITY, f64::min)
        })
        .collect();
    nearest.sort_by(f64::total_cmp);
    nearest.get(k - 1).copied()
}

#[test]
fn the_nearest_voters_by_the_rule_are_componentwise_the_nearest_of_all_admissible_sets() {
    let mut rng = Rng::seeded(5);
    let (mut solved, mut papers_longer) = (0, 0);
    for _ in 0..10_000 {
        let sites = 1 + rng.below(8);
        let replicas: Vec<usize> = (0..sites).collect();
        let domains = Domains::new((0..sites).map(|_| rng.below(4)).collect());
        let diversity = Diversity { domains_min: rng.below(5), per_domain_max: 1 + rng.below(3) };
        let rule = VoterRule { count: 1 + rng.below(sites), domains: &domains, diversity };
        let leader = rng.below(sites);
        let mut row: Vec<f64> = (0..sites).map(|_| 1.0 + rng.below(9) as f64).collect();
        row[leader] = 0.0;
        let sorted = |voters: &[usize]| {
            let mut trips_ms: Vec<f64> = voters.iter().map(|voter| row[*voter]).collect();
            trips_ms.sort_by(f64::total_cmp);
            trips_ms
        };
        let admissible: Vec<Vec<usize>> = all_sets(&replicas, rule.count)
            .into_iter()
            .filter(|set| set.contains(&leader) && rule.admits(set))
            .collect();
        if rule.check(&replicas).is_err() {
            assert!(admissible.is_empty());
            continue;
        }
        solved += 1;
        let nearest = rule.nearest(&row, leader, &replicas, &[]);
        assert!(admissible.contains(&nearest), "{nearest:?} does not obey {rule:?}");
        let trips_ms = sorted(&nearest);
        for other in &admissible {
            assert!(trips_ms.iter().zip(sorted(other)).all(|(trip_ms, other)| *trip_ms <= other));
        }
        // Keeping others costs no quorum latency.
        let mut keep = replicas.clone();
        rng.shuffle(&mut keep);
        keep.truncate(rule.count);
        let kept = rule.nearest(&row, leader, &replicas, &keep);
        let quorum = |voters: &[usize]| median(voters.iter().map(|voter| row[*voter]));
        assert!(admissible.contains(&kept));
        assert_eq!(quorum(&kept), quorum(&nearest));
        // The paper's: right where every voter needs a domain of its own, never shorter than exact.
        let papers = papers_quorum_ms(&row, &domains, &replicas, rule.count / 2 + 1);
        if diversity.domains_min == rule.count {
            assert_eq!(papers, Some(quorum(&nearest)));
        } else if papers.is_none_or(|papers| papers > quorum(&nearest)) {
            papers_longer += 1;
        }
    }
    assert!(solved > 3_000 && papers_longer > 500, "{solved} solved, {papers_longer} longer");
}

#[test]
fn a_quorum_may_share_a_domain_while_the_other_voters_are_elsewhere() {
    // Five voters in three domains: the nearest three are in domain 0.
    let domains = Domains::new(vec![0, 0, 0, 1, 2, 2]);
    let diversity = Diversity { domains_min: 3, per_domain_max: 3 };
    let rule = VoterRule { count: 5, domains: &domains, diversity };
    let row = [0.0, 1.0, 2.0, 50.0, 60.0, 70.0];
    let replicas = [0, 1, 2, 3, 4, 5];
    assert_eq!(rule.nearest(&row, 0, &replicas, &[]), [0, 1, 2, 3, 4]);
    assert_eq!(papers_quorum_ms(&row, &domains, &replicas, 3), Some(60.0));
    // With at most two in a domain the third of the quorum is 50 ms away.
    let rule = VoterRule { diversity: Diversity { per_domain_max: 2, ..diversity }, ..rule };
    assert_eq!(rule.nearest(&row, 0, &replicas, &[]), [0, 1, 3, 4, 5]);
}

#[test]
fn todays_level_counts_domains_and_the_fullest_of_them() {
    let domains = Domains::new(vec![7, 7, 3, 3, 5]);
    let level = domains.level(&[0, 1, 2, 4]);
    assert_eq!(level, Diversity { domains_min: 3, per_domain_max: 2 });
    assert!(domains.level(&[1, 2, 3, 4]).meets(level));
    assert!(!domains.level(&[0, 1, 2, 3]).meets(level));
    assert_eq!(domains.among(&[4, 2, 3]), [(3, 2), (5, 1)]);
}

#[test]
fn too_few_domains_are_named() {
    let domains = Domains::new(vec![1, 1, 1, 4]);
    let replicas = [0, 1, 2, 3];
    let rule = |count, domains_min, per_domain_max| VoterRule {
        count,
        domains: &domains,
        diversity: Diversity { domains_min, per_domain_max },
    };
    let refused = rule(3, 3, 3).check(&replicas).unwrap_err();
    assert_eq!(refused, TooFew::Domains { domains_min: 3, domains: vec![1, 4] });
    assert!(refused.to_string().contains("[1, 4]"), "{refused}");
    let refused = rule(3, 2, 1).check(&replicas).unwrap_err();
    assert_eq!(refused, TooFew::Replicas { voters: 3, seats: 2, domains: vec![1, 4] });
    let refused = rule(2, 3, 1).check(&replicas).unwrap_err();
    assert_eq!(refused, TooFew::VotersForDomains { voters: 2, domains_min: 3 });
    assert_eq!(rule(0, 0, 1).check(&replicas), Err(TooFew::NoVoters));
    assert_eq!(rule(3, 2, 2).check(&replicas), Ok(()));
}
