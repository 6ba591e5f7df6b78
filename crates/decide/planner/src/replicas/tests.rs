//! Every method beside an enumeration that shares no line with them, on random small instances.

use super::super::model::{Counts, Layout, RoundTrips, Route};
use super::super::score::Score;
use super::*;
use evenkeel_core::rng::Rng;

struct Case {
    counts: Counts,
    trips: RoundTrips,
    question: Question,
}

/// Sites and clients on a square of 200 ms, with detours that break the triangle inequality.
fn case(seed: u64, has_domains: bool) -> Case {
    let mut rng = Rng::stream(seed, "placement case");
    let (sites, clients) = (6 + rng.below(4), 4 + rng.below(12));
    let mut point = |_: usize| [200.0 * rng.unit(), 200.0 * rng.unit()];
    let places: Vec<[f64; 2]> = (0..sites).map(&mut point).collect();
    let users: Vec<[f64; 2]> = (0..clients).map(&mut point).collect();
    let mut way = |a: &[f64; 2], b: &[f64; 2]| {
        let straight = (a[0] - b[0]).hypot(a[1] - b[1]);
        // Whole milliseconds, as matrices have them, make ties.
        (straight * (1.0 + rng.unit())).round()
    };
    let from_clients: Vec<Vec<f64>> =
        users.iter().map(|user| places.iter().map(|site| way(user, site)).collect()).collect();
    let mut between: Vec<Vec<f64>> =
        places.iter().map(|from| places.iter().map(|to| way(from, to)).collect()).collect();
    let mut rng = Rng::stream(seed, "placement question");
    for (site, row) in between.iter_mut().enumerate() {
        // A third of the disks is slower than some neighbours.
        row[site] = if rng.below(3) == 0 { 30.0 * rng.unit() } else { 0.0 };
    }
    let mix: Vec<f64> = (0..5).map(|_| if rng.below(3) == 0 { 0.0 } else { rng.unit() }).collect();
    let counts = (0..clients).map(|_| {
        let weight = (1.5 * rng.normal()).exp() * 100.0;
        core::array::from_fn(|operation| (weight * mix[operation] * rng.exponential()).round())
    });
    let counts = Counts::new(counts.collect()).expect("sound");
    let replicas = 2 + rng.below(4);
    let voters = 1 + rng.below(replicas);
    let route = if rng.below(2) == 0 { Route::Nearest } else { Route::BestPath };
    let mut question = Question::new(replicas, voters, route);
    if has_domains {
        let of = (0..sites).map(|site| if site < 4 { site } else { rng.below(4) }).collect();
        let voters_min = 1 + rng.below(voters.min(4));
        let replicas_max = (rng.below(2) == 0).then_some(2);
        question.domains = Some(DomainLimits { of, voters_min, replicas_max });
    }
    let trips = RoundTrips::new(&from_clients, &between).expect("sound");
    Case { counts, trips, question }
}

/// All sets of so many of these.
fn sets(of: &[usize], choose: usize) -> Vec<Vec<usize>> {
    let masks = 0_u32..1 << of.len();
    let chosen = masks.filter(|mask| mask.count_ones() as usize == choose);
    let set = |mask: u32| {
        let is_in = |(place, site): (usize, &usize)| (mask >> place & 1 == 1).then_some(*site);
        of.iter().enumerate().filter_map(is_in).collect()
    };
    chosen.map(set).collect()
}

/// The least score of all layouts: replicas, voters among them, a leader among those.
fn enumerated(case: &Case) -> f64 {
    let rule = |site: usize| case.question.sites.get(site).copied().unwrap_or_default();
    let distinct = |set: &[usize], of: &[usize]| {
        let mut ids: Vec<usize> = set.iter().map(|&site| of[site]).collect();
        ids.sort_unstable();
        let most = ids.chunk_by(|a, b| a == b).map(<[usize]>::len).max();
        (ids.chunk_by(|a, b| a == b).count(), most.unwrap_or(0))
    };
    let mut best = f64::INFINITY;
    let all: Vec<usize> = (0..case.trips.sites()).collect();
    for replicas in sets(&all, case.question.replicas) {
        let has = |site: &usize| replicas.contains(site);
        let fits = |site: &usize| match rule(*site) {
            Site::Free => true,
            Site::Fixed => has(site),
            Site::Forbidden => !has(site),
        };
        let limit = case.question.domains.as_ref();
        let keeps = limit.is_none_or(|domains| {
            distinct(&replicas, &domains.of).1 <= domains.replicas_max.unwrap_or(usize::MAX)
        });
        if !all.iter().all(fits) || !keeps {
            continue;
        }
        for voters in sets(&replicas, case.question.voters) {
            let spread =
                |domains: &DomainLimits| distinct(&voters, &domains.of).0 >= domains.voters_min;
            if !limit.is_none_or(spread) {
                continue;
            }
            for &leader in &voters {
                let layout = Layout::new(leader, voters.clone(), replicas.clone()).expect("sound");
                let score = Score::of(&case.counts, &case.trips, &layout, case.question.route);
                best = best.min(score.total_ms());
            }
        }
    }
    best
}

fn placed(case: &Case, method: Method) -> Placed {
    let question = Question { method, ..case.question.clone() };
    place(&case.counts, &case.trips, &question).expect("there is an answer")
}

fn is_equal(came: f64, expected: f64) -> bool {
    (came - expected).abs() <= 1e-9 * expected.abs()
}

/// Checks that a layout is one that was asked for.
fn check(case: &Case, placed: &Placed) {
    let layout = &placed.layout;
    assert_eq!(layout.replicas().len(), case.question.replicas);
    assert_eq!(layout.voters().len(), case.question.voters);
    let score = Score::of(&case.counts, &case.trips, layout, case.question.route).total_ms();
    assert_eq!(score, placed.score_ms);
    assert!(placed.lower_bound_ms <= placed.score_ms);
    let Some(domains) = &case.question.domains else { return };
    let mut ids: Vec<usize> = layout.voters().iter().map(|&site| domains.of[site]).collect();
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() >= domains.voters_min, "{layout:?} {domains:?}");
    for domain in 0..4 {
        let held = layout.replicas().iter().filter(|&&site| domains.of[site] == domain).count();
        assert!(held <= domains.replicas_max.unwrap_or(usize::MAX));
    }
}

fn compare_all(seeds: core::ops::Range<u64>, has_domains: bool) {
    for seed in seeds {
        let case = case(seed, has_domains);
        let expected = enumerated(&case);
        let question = &case.question;
        if expected.is_infinite() {
            assert!(place(&case.counts, &case.trips, question).is_err(), "{seed} {question:?}");
            continue;
        }
        for method in Method::ALL {
            let answer = placed(&case, method);
            check(&case, &answer);
            let is_exact = matches!(method, Method::Exact | Method::Brute);
            let (score, bound) = (answer.score_ms, answer.lower_bound_ms);
            assert!(score >= expected * (1.0 - 1e-9), "{seed} {method:?} {question:?}");
            assert!(bound <= expected * (1.0 + 1e-9), "{seed} {method:?}: {bound} {expected}");
            if is_exact {
                assert!(answer.proven);
                assert!(is_equal(score, expected), "{seed} {method:?}: {score} {expected}");
            }
        }
    }
}

#[test]
fn exact_and_brute_find_what_enumeration_finds() {
    compare_all(0..160, false);
}

#[test]
fn exact_and_brute_find_what_enumeration_finds_with_failure_domains() {
    compare_all(1_000..1_160, true);
}

#[test]
fn fixed_and_forbidden_sites_are_kept() {
    for seed in 2_000..2_040 {
        let mut case = case(seed, seed % 2 == 0);
        case.question.sites = vec![Site::Free; case.trips.sites()];
        case.question.sites[0] = Site::Forbidden;
        case.question.sites[2] = Site::Fixed;
        let expected = enumerated(&case);
        let answer = place(&case.counts, &case.trips, &case.question);
        match answer {
            Err(_) => assert!(expected.is_infinite(), "{seed}"),
            Ok(answer) => {
                check(&case, &answer);
                assert!(is_equal(answer.score_ms, expected), "{seed}");
                assert!(answer.layout.has_replica(2) && !answer.layout.has_replica(0));
            }
        }
    }
}

#[test]
fn without_nodes_the_bound_is_honest_and_equal_questions_have_equal_answers() {
    for seed in 0..20 {
        let mut case = case(seed, false);
        case.question.nodes_max = 1;
        let answer = placed(&case, Method::Exact);
        assert_eq!(answer, placed(&case, Method::Exact));
        assert!(answer.lower_bound_ms <= enumerated(&case) * (1.0 + 1e-9));
        assert!(answer.nodes <= 1);
    }
}

#[test]
fn replicas_are_worth_less_the_dearer_they_are() {
    let case = case(7, false);
    let question = Question::new(3, 2, Route::BestPath);
    let worth = worth(&case.counts, &case.trips, &question, 1..=5).expect("there are answers");
    let score = |place: usize| worth.by_replicas[place].score_ms;
    assert_eq!(worth.gains_ms().next(), Some(score(0) - score(1)));
    assert_eq!(worth.best_at(f64::MAX), Some(0));
    let places = (0..8).map(|step| worth.best_at(score(0) * f64::from(step) / 16.0));
    let places: Vec<_> = places.collect();
    assert!(places.is_sorted_by(|a, b| a >= b), "{places:?}");
}
