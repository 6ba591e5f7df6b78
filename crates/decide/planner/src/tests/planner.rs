//! One decision: goal, numbers, reasons, and what it refuses.

use std::sync::Arc;

use super::{near, shared};
use crate::domains::{Diversity, Domains, TooFew};
use crate::history::{History, Interval};
use crate::model::{BadInput, Counts, Layout, Operation, RoundTrips};
use crate::planner::{Config, Objective, Planner, Tier, Undecided};
use crate::steady::{Because, MoveCost, Steady, Verdict, Why};
use crate::tail::Tails;
use evenkeel_core::time::Duration;
use evenkeel_core::units::Probability;

/// Five sites on a line, a client at each; domains of two and three.
const AT: [f64; 5] = [0.0, 10.0, 30.0, 60.0, 100.0];

fn line() -> Arc<RoundTrips> {
    let rows: Vec<Vec<f64>> =
        AT.iter().map(|a| AT.iter().map(|b| (a - b).abs()).collect()).collect();
    shared(&(rows.clone(), rows))
}

fn history(intervals: &[[f64; 5]]) -> History {
    let (mut history, trips) = (History::default(), line());
    for writes in intervals {
        let counts = writes.map(|count| [count, 0.0, 0.0, count, 0.0]).to_vec();
        let interval = Interval::new(Counts::new(counts).unwrap(), trips.clone());
        history.push(interval.unwrap()).unwrap();
    }
    history
}

fn at_once() -> Steady {
    let cost = MoveCost { leader: 0.0, voter: 0.0, replica: 0.0 };
    Steady { intervals: 1, cost, ..Steady::default() }
}

fn layout(leader: usize, voters: &[usize], replicas: &[usize]) -> Layout {
    Layout::new(leader, voters.to_vec(), replicas.to_vec()).unwrap()
}

fn all(leader: usize, voters: &[usize]) -> Layout {
    layout(leader, voters, &[0, 1, 2, 3, 4])
}

#[test]
fn tier_2_moves_leader_and_voters_to_where_the_writes_are() {
    let history = history(&[[0.0, 0.0, 0.0, 0.0, 1e4]]);
    let config = Config { tier: Tier::Voters, steady: at_once(), ..Config::default() };
    let decision = Planner::new(config).decide(&history, &all(1, &[0, 1, 2])).unwrap();
    // Today: a weak read takes 0, a write 90 + 10. At site 4: 0 and 40, the voter at 3.
    assert!(near(decision.today_ms.unwrap(), 50.0));
    assert!(near(decision.goal_ms.unwrap(), 20.0));
    assert_eq!(decision.goal.leader(), 4);
    assert!(decision.goal.has_voter(3));
    let Verdict::Move { to, because, gain_share, saves_ms_per_s, .. } = decision.verdict else {
        panic!("60 % are worth a move");
    };
    assert_eq!((to, because), (decision.goal, Because::Faster));
    assert!(near(gain_share, 0.6));
    assert!(near(saves_ms_per_s, 30.0 * 2e4 / 1800.0));
    assert_eq!(decision.ranked.len(), 5, "every replica as the leader; led by 1 the voters stay");
}

#[test]
fn a_leader_that_nobody_moves_stays_and_votes_go_where_it_is() {
    let history = history(&[[0.0, 0.0, 0.0, 0.0, 1e4]]);
    let config = Config { tier: Tier::Voters, steady: at_once(), ..Config::default() };
    let planner = Planner::new(Config { leader_stays: true, explain_intervals: 1, ..config });
    // A write takes 90 + 50 with the votes of 3 and 4, and 90 + 10 with that of 0; a read takes 0.
    let decision = planner.decide(&history, &all(1, &[1, 3, 4])).unwrap();
    assert!(near(decision.today_ms.unwrap(), 70.0) && near(decision.goal_ms.unwrap(), 50.0));
    assert!(matches!(decision.verdict, Verdict::Move { .. }), "{:?}", decision.verdict);
    assert!(decision.goal.leader() == 1 && decision.goal.has_voter(0), "{:?}", decision.goal);
    let shown = decision.explanation.rows.iter().flat_map(|row| &row.best);
    let mut looked_at = decision.ranked.iter().map(|option| &option.layout);
    assert!(looked_at.all(|layout| layout.leader() == 1));
    assert!(shown.map(|option| &option.layout).all(|layout| layout.leader() == 1));
}

#[test]
fn todays_diversity_is_kept() {
    let history = history(&[[0.0, 0.0, 0.0, 0.0, 1e4]]);
    let domains = Some(Domains::new(vec![0, 0, 0, 1, 1]));
    let config = Config { tier: Tier::Voters, steady: at_once(), domains, ..Config::default() };
    let narrow = Planner::new(config.clone());
    // Two domains today: a voter beside the leader, one in the other domain.
    let decision = narrow.decide(&history, &all(1, &[0, 1, 3])).unwrap();
    assert_eq!(decision.goal, all(4, &[1, 3, 4]), "1 and 3 stay: 0 would make no quorum faster");
    // One more domain than there is.
    let diversity = Some(Diversity { domains_min: 3, per_domain_max: 3 });
    let wide = Planner::new(Config { diversity, ..config });
    let refused = wide.decide(&history, &all(1, &[0, 1, 3])).unwrap_err();
    let named = TooFew::Domains { domains_min: 3, domains: vec![0, 1] };
    assert_eq!(refused, Undecided::TooFew(named));
}

#[test]
fn voters_that_are_spread_too_little_move_though_it_costs_latency() {
    let history = history(&[[1e4, 0.0, 0.0, 0.0, 0.0]]);
    let config = Config {
        tier: Tier::Voters,
        steady: Steady::default(),
        domains: Some(Domains::new(vec![0, 0, 0, 1, 1])),
        diversity: Some(Diversity { domains_min: 2, per_domain_max: 1 }),
        ..Config::default()
    };
    let decision = Planner::new(config).decide(&history, &all(0, &[0, 1])).unwrap();
    let Verdict::Move { to, because, gain_share, .. } = decision.verdict else {
        panic!("two voters in one domain are not allowed");
    };
    assert_eq!((to, because), (all(0, &[0, 3]), Because::Spread));
    assert!(near(gain_share, 1.0 - 60.0 / 10.0));
}

#[test]
fn candidates_of_tier_3_compete_if_they_are_spread_enough() {
    let history = history(&[[0.0, 0.0, 0.0, 0.0, 1e4]]);
    let domains = Some(Domains::new(vec![0, 0, 1, 2, 2]));
    let planner = Planner::new(Config { domains, steady: at_once(), ..Config::default() });
    let today = layout(0, &[0, 2], &[0, 1, 2]);
    let crowded = layout(4, &[3, 4], &[3, 4]);
    let spread = layout(4, &[2, 4], &[2, 4]);
    let candidates = [crowded.clone(), spread.clone()];
    let decision = planner.decide_among(&history, &today, &candidates).unwrap();
    assert_eq!((decision.refused, decision.goal), (vec![crowded], spread));
    let unknown = layout(7, &[7], &[7]);
    let refused = planner.decide_among(&history, &today, &[unknown]).unwrap_err();
    assert_eq!(refused, Undecided::Input(BadInput::UnknownSite { site: 7, sites: 5 }));
}

#[test]
fn the_explanation_lists_the_best_three_of_every_interval_and_what_changed() {
    let mut writes = vec![[9e3, 1e3, 0.0, 0.0, 0.0]; 3];
    writes.push([1e3, 1e3, 0.0, 0.0, 8e3]);
    let history = history(&writes);
    let config = Config { explain_intervals: 8, ..Config::default() };
    let today = all(0, &[0, 1, 4]);
    let decision = Planner::new(config).decide(&history, &today).unwrap();
    let explanation = decision.explanation;
    assert_eq!(explanation.rows.iter().map(|row| row.ago).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for row in &explanation.rows {
        let past = history.past(row.ago).unwrap();
        let mean = |layout| past.mean_ms(layout, decision_route());
        assert_eq!(row.best.len(), 3);
        assert_eq!(row.best[0].overhead, 0.0);
        for shown in row.best.iter().chain([&row.today]) {
            assert!(near(shown.latency_ms, mean(&shown.layout)));
            assert!(near(shown.overhead, shown.latency_ms / row.best[0].latency_ms - 1.0));
        }
        assert!(row.best.is_sorted_by(|a, b| a.overhead <= b.overhead));
        assert_eq!(row.today.layout, today);
    }
    // Since the oldest interval: the client at site 4 from nothing to most of what is new.
    assert_eq!(explanation.since, 3);
    let all = 1e4 * 1.875;
    assert_eq!(explanation.clients[0].of, 0);
    assert!(near(explanation.clients[0].now, (1e3 + 0.875 * 9e3) / all));
    assert_eq!((explanation.clients[1].of, explanation.clients[1].before), (4, 0.0));
    assert!(near(explanation.clients[1].now, 8e3 / all));
    let weak = explanation.operations[0];
    assert_eq!((weak.of, weak.before, weak.now), (Operation::WeakRead, 0.5, 0.5));
}

fn decision_route() -> crate::model::Route {
    Config::default().route
}

#[test]
fn without_operations_everything_stays() {
    let planner = Planner::new(Config::default());
    let today = all(1, &[0, 1, 2]);
    for history in [History::default(), history(&[[0.0; 5]])] {
        let decision = planner.decide(&history, &today).unwrap();
        assert_eq!(decision.verdict, Verdict::Stay { why: Why::NoOperations });
        assert_eq!((decision.goal, decision.today_ms), (today.clone(), None));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let history = history(&[[1.0; 5]]);
    let refused =
        |config: Config, today: &Layout| Planner::new(config).decide(&history, today).unwrap_err();
    let far = layout(9, &[9], &[9]);
    let unknown = BadInput::UnknownSite { site: 9, sites: 5 };
    assert_eq!(refused(Config::default(), &far), Undecided::Input(unknown));
    let today = all(1, &[0, 1, 2]);
    let domains = Some(Domains::each_its_own(4));
    let sites = BadInput::Sites { came: 4, expected: 5 };
    let config = Config { domains, ..Config::default() };
    assert_eq!(refused(config, &today), Undecided::Input(sites));
    let objective = Objective::Percentile(Probability::new(0.99).unwrap());
    for tier in [Tier::Leader, Tier::Voters] {
        let config = Config { objective, tier, ..Config::default() };
        assert_eq!(refused(config, &today), Undecided::NoTails);
    }
}

#[test]
fn of_equal_percentiles_the_lesser_mean_leads() {
    // Strong reads take 10.6, 10.9 or 10.3 ms, all of them 11 ms in whole steps.
    let sites = vec![vec![0.0; 3]; 3];
    let trips = Arc::new(RoundTrips::new(&[vec![10.6, 10.9, 10.3]], &sites).unwrap());
    let tails = Tails::constant(&trips, Duration::from_millis(1)).unwrap();
    let mut history = History::default();
    let counts = Counts::new(vec![[0.0, 0.0, 1e4, 0.0, 0.0]]).unwrap();
    history.push(Interval::new(counts, trips).unwrap()).unwrap();
    history.adopt_tails(Arc::new(tails)).unwrap();
    let objective = Objective::Percentile(Probability::new(0.99).unwrap());
    for tier in [Tier::Leader, Tier::Voters] {
        let planner = Planner::new(Config { objective, tier, ..Config::default() });
        let candidate = layout(2, &[2], &[2]);
        let today = layout(0, &[0, 1, 2], &[0, 1, 2]);
        let decision = planner.decide_among(&history, &today, &[candidate]).unwrap();
        let ranked = decision.ranked.iter().map(|one| (one.layout.leader(), one.latency_ms));
        let leaders: Vec<usize> = ranked.clone().map(|(leader, _)| leader).collect();
        assert!(ranked.clone().all(|(_, ms)| near(ms, 11.0)), "{:?}", decision.ranked);
        assert_eq!(leaders, [2, 2, 0, 1], "10.3, 10.3, 10.6 and 10.9 ms");
    }
}

#[test]
fn a_candidate_of_more_or_fewer_voters_is_spread_as_far_as_today_if_it_fits() {
    let domains = Some(Domains::new(vec![0, 0, 1, 1, 2]));
    let planner = Planner::new(Config { domains: domains.clone(), ..Config::default() });
    let today = all(0, &[0, 2, 4]);
    let of = |voters: usize| {
        let Diversity { domains_min, per_domain_max } = planner.diversity_of(&today, voters);
        (domains_min, per_domain_max)
    };
    // Three domains: four voters cannot each have one of their own, two cannot be in three.
    assert_eq!([2, 3, 4, 5].map(of), [(2, 1), (3, 1), (3, 2), (3, 2)]);
    // Of four sites in one domain and one in the other, four voters must share three.
    let uneven = Some(Domains::new(vec![0, 0, 0, 0, 1]));
    let planner_of = |domains| Planner::new(Config { domains, ..Config::default() });
    let four = planner_of(uneven).diversity_of(&all(0, &[0, 4]), 4);
    assert_eq!((four.domains_min, four.per_domain_max), (2, 3));
    let diversity = Some(Diversity { domains_min: 3, per_domain_max: 1 });
    let strict = Planner::new(Config { domains, diversity, ..Config::default() });
    assert_eq!(Some(strict.diversity_of(&today, 5)), diversity, "what is configured holds");
    // And such a candidate is taken.
    let history = history(&[[0.0, 0.0, 0.0, 0.0, 1e4]]);
    let more = [all(4, &[0, 2, 3, 4])];
    let refused =
        |planner: &Planner| planner.decide_among(&history, &today, &more).unwrap().refused;
    assert_eq!(refused(&planner), []);
    assert_eq!(refused(&strict), more);
}
