//! Percentiles against Monte Carlo simulation, in code of its own.

use std::sync::Arc;

use super::{Matrix, all_sets, median, shared};
use crate::domains::{Diversity, Domains, VoterRule};
use crate::history::{History, Interval};
use crate::model::{BadInput, Counts, Layout, Matrix as Which, RoundTrips, Route};
use crate::tail::{self, Tails};
use evenkeel_core::distribution::{Distribution, Empirical, Grid};
use evenkeel_core::rng::Rng;
use evenkeel_core::time::Duration;
use evenkeel_core::units::Probability;

/// A round trip is one of these, each as likely, in whole milliseconds.
type Pair = Vec<u64>;

/// A world of round trips.
struct World {
    from_clients: Vec<Vec<Pair>>,
    between: Vec<Vec<Pair>>,
    counts: Vec<[f64; 5]>,
}

impl World {
    /// So many sites and clients; round trips have a long tail.
    fn random(rng: &mut Rng, sites: usize, clients: usize) -> Self {
        let pair = |rng: &mut Rng| -> Pair {
            let base = 5 + rng.below(60) as u64;
            (0..20).map(|_| base + (rng.exponential() * 8.0).powf(1.4) as u64).collect()
        };
        let mut rows = |rows: usize| -> Vec<Vec<Pair>> {
            (0..rows).map(|_| (0..sites).map(|_| pair(rng)).collect()).collect()
        };
        let (from_clients, mut between) = (rows(clients), rows(sites));
        (0..sites).for_each(|site| between[site][site] = vec![0]);
        let counts = (0..clients).map(|_| [(); 5].map(|()| rng.below(4) as f64)).collect();
        Self { from_clients, between, counts }
    }

    fn tails(&self) -> Tails {
        let grids = |rows: &Vec<Vec<Pair>>| -> Vec<Vec<Grid>> {
            rows.iter().map(|row| row.iter().map(grid).collect()).collect()
        };
        Tails::new(grids(&self.from_clients), grids(&self.between)).unwrap()
    }

    fn trips(&self) -> Arc<RoundTrips> {
        let means = |rows: &Vec<Vec<Pair>>| -> Matrix {
            rows.iter().map(|row| row.iter().map(mean).collect()).collect()
        };
        shared(&(means(&self.from_clients), means(&self.between)))
    }

    fn history(&self) -> History {
        let mut history = History::default();
        let counts = Counts::new(self.counts.clone()).unwrap();
        history.push(Interval::new(counts, self.trips()).unwrap()).unwrap();
        history.adopt_tails(Arc::new(self.tails())).unwrap();
        history
    }

    /// One latency of one random operation, in milliseconds.
    fn draw(&self, rng: &mut Rng, layout: &Layout, route: Route) -> u64 {
        let total: f64 = self.counts.iter().flatten().sum();
        let mut at = rng.unit() * total;
        let mut drawn = (0, 0);
        'found: for (client, counts) in self.counts.iter().enumerate() {
            for (operation, count) in counts.iter().enumerate() {
                if at < *count {
                    drawn = (client, operation);
                    break 'found;
                }
                at -= count;
            }
        }
        let (client, operation) = drawn;
        let one = |rng: &mut Rng, pair: &Pair| pair[rng.below(pair.len())];
        let leader = layout.leader();
        let far = |by: usize| mean(&self.from_clients[client][by]);
        let over = |by: usize| far(by) + mean(&self.between[by][leader]);
        let shortest = |way: &dyn Fn(usize) -> f64| {
            let replicas = layout.replicas().iter().copied();
            replicas.min_by(|a, b| way(*a).partial_cmp(&way(*b)).unwrap()).unwrap()
        };
        let nearest = shortest(&far);
        match operation {
            0 => one(rng, &self.from_clients[client][nearest]),
            1 => {
                let by = if route == Route::Nearest { nearest } else { shortest(&over) };
                one(rng, &self.from_clients[client][by]) + one(rng, &self.between[by][leader])
            }
            2 => one(rng, &self.from_clients[client][leader]),
            _ => {
                let mut latency = one(rng, &self.from_clients[client][leader]);
                for _ in 3..=operation {
                    latency += self.draw_quorum(rng, leader, layout.voters());
                }
                latency
            }
        }
    }

    fn draw_quorum(&self, rng: &mut Rng, leader: usize, voters: &[usize]) -> u64 {
        let answers = voters.iter().map(|voter| {
            let pair = &self.between[leader][*voter];
            pair[rng.below(pair.len())] as f64
        });
        median(answers) as u64
    }
}

fn mean(pair: &Pair) -> f64 {
    pair.iter().sum::<u64>() as f64 / pair.len() as f64
}

fn grid(pair: &Pair) -> Grid {
    let samples = pair.iter().map(|ms| Duration::from_millis(*ms)).collect();
    let end = Duration::from_millis(*pair.iter().max().unwrap());
    Grid::of(&Empirical::from_samples(samples).unwrap(), Duration::from_millis(1), end).unwrap()
}

/// The largest difference of a distribution to samples drawn from it.
fn difference(reported: &Grid, samples: usize, mut draw: impl FnMut() -> u64) -> f64 {
    let mut seen = vec![0_u64; 4_000];
    (0..samples).for_each(|_| seen[draw() as usize] += 1);
    let (mut below, mut largest) = (0, 0.0_f64);
    for (ms, seen) in seen.iter().enumerate() {
        below += seen;
        let expected = reported.cdf(Duration::from_millis(ms as u64)).value();
        largest = largest.max((below as f64 / samples as f64 - expected).abs());
    }
    largest
}

fn compare(samples: usize, worlds: u64, most: f64) {
    for seed in 0..worlds {
        let mut rng = Rng::seeded(100 + seed);
        let world = World::random(&mut rng, 6, 4);
        let (tails, trips) = (world.tails(), world.trips());
        let counts = Counts::new(world.counts.clone()).unwrap();
        for (voters, route) in
            [(vec![1, 2, 4], Route::Nearest), (vec![0, 1, 2, 5], Route::BestPath)]
        {
            let leader = voters[1];
            let quorum = tails.quorum(leader, &voters);
            let off = difference(&quorum, samples, || world.draw_quorum(&mut rng, leader, &voters));
            assert!(off < most, "quorum {voters:?}: {off}");
            let layout = Layout::new(leader, voters, (0..6).collect()).unwrap();
            let latency = tails.latency(&counts, &trips, &layout, route).unwrap();
            let off = difference(&latency, samples, || world.draw(&mut rng, &layout, route));
            assert!(off < most, "{layout:?}: {off}");
        }
    }
}

#[test]
fn quorums_and_databases_have_the_distribution_of_100_000_drawn_operations() {
    // Dvoretzky-Kiefer-Wolfowitz: above 0.8 % with probability 2 exp(-2 n 0.008^2) = 6e-6.
    compare(100_000, 1, 8e-3);
}

#[test]
#[ignore = "30 s in a release build: cargo test --release -p evenkeel-core placement -- --ignored"]
fn quorums_and_databases_have_the_distribution_of_10_million_drawn_operations() {
    compare(10_000_000, 2, 1e-3);
}

#[test]
fn a_quorum_of_three_is_the_formula_of_the_paper() {
    let world = World::random(&mut Rng::seeded(7), 3, 1);
    let (v, w) = (grid(&world.between[0][1]), grid(&world.between[0][2]));
    let quorum = world.tails().quorum(0, &[0, 1, 2]);
    for ms in 0..400 {
        let at = Duration::from_millis(ms);
        let (v, w) = (v.cdf(at).value(), w.cdf(at).value());
        assert!((quorum.cdf(at).value() - (v + w - v * w)).abs() < 1e-12);
    }
}

#[test]
fn without_variance_a_percentile_is_that_of_the_weighted_latencies() {
    let mut rng = Rng::seeded(8);
    for _ in 0..50 {
        let mut world = World::random(&mut rng, 5, 4);
        let rows = world.from_clients.iter_mut().chain(&mut world.between);
        rows.flatten().for_each(|pair| pair.truncate(1));
        let layout = Layout::new(2, vec![0, 2, 3], vec![0, 1, 2, 3]).unwrap();
        let history = world.history();
        let Some(past) = history.past(0) else { continue };
        // Latency and count of every client and operation, by the scoring of means.
        let mut all = Vec::new();
        for client in 0..4 {
            for operation in 0..5 {
                let count = world.counts[client][operation];
                let mut one = vec![[0.0; 5]; 4];
                one[client][operation] = 1.0;
                let one = Counts::new(one).unwrap();
                let trips = world.trips();
                let score = crate::score::Score::of(&one, &trips, &layout, Route::Nearest);
                all.push((score.total_ms(), count));
            }
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = all.iter().map(|(_, count)| count).sum();
        // No sum of whole counts reaches one of these exactly.
        for p in [0.1003, 0.5004, 0.7706, 0.9901] {
            let mut below = 0.0;
            let reached = |(_, count): &&(f64, f64)| {
                below += count / total;
                below >= p && *count > 0.0
            };
            let expected = all.iter().find(reached).unwrap().0;
            let p = Probability::new(p).unwrap();
            let reported = tail::percentile_ms(&past, &layout, Route::Nearest, p).unwrap();
            assert!((reported - expected).abs() < 1e-6, "{reported}, {expected} expected");
        }
    }
}

#[test]
fn the_tiers_by_a_percentile_equal_brute_force() {
    let mut rng = Rng::seeded(9);
    for _ in 0..15 {
        let world = World::random(&mut rng, 5, 3);
        let history = world.history();
        let past = history.past(0).unwrap();
        let replicas: Vec<usize> = (0..5).collect();
        let domains = Domains::new(vec![0, 0, 1, 1, 2]);
        let diversity = Diversity { domains_min: 2, per_domain_max: 2 };
        let rule = VoterRule { count: 3, domains: &domains, diversity };
        let p = Probability::new(0.5 + 0.49 * rng.unit()).unwrap();
        let cost = |leader: usize, voters: &[usize]| {
            let layout = Layout::new(leader, voters.to_vec(), replicas.clone()).unwrap();
            tail::percentile_ms(&past, &layout, Route::Nearest, p).unwrap()
        };
        let ranked = tail::rank_voters(&past, &replicas, &rule, Route::Nearest, &[], p);
        let ranked = ranked.unwrap().unwrap();
        for option in &ranked {
            let leader = option.layout.leader();
            let sets = all_sets(&replicas, 3);
            let admissible = sets.iter().filter(|set| set.contains(&leader) && rule.admits(set));
            let least = admissible.map(|set| cost(leader, set)).fold(f64::INFINITY, f64::min);
            assert_eq!(option.latency_ms, least);
            assert_eq!(cost(leader, option.layout.voters()), least);
        }
        assert!(ranked.is_sorted_by(|a, b| a.latency_ms <= b.latency_ms));
        let today = &ranked[4].layout;
        let tier_1 = tail::rank_leaders(&past, today, Route::Nearest, p).unwrap();
        for option in &tier_1 {
            assert_eq!(option.latency_ms, cost(option.layout.leader(), today.voters()));
        }
        assert_eq!(tier_1.len(), 3);
    }
}

#[test]
fn a_steadier_replica_may_be_the_better_voter_for_the_tail() {
    // From site 0, site 1 takes 10 ms or, one time in five, 100; site 2 always takes 30.
    let unsteady: Pair = vec![10, 10, 10, 10, 100];
    let (steady, none): (Pair, Pair) = (vec![30], vec![0]);
    let world = World {
        from_clients: vec![vec![none.clone(), vec![500], vec![500]]],
        between: vec![
            vec![none.clone(), unsteady.clone(), steady.clone()],
            vec![unsteady, none.clone(), steady.clone()],
            vec![steady.clone(), steady, none],
        ],
        counts: vec![[0.0, 0.0, 0.0, 1.0, 0.0]],
    };
    let history = world.history();
    let past = history.past(0).unwrap();
    let domains = Domains::each_its_own(3);
    let rule = VoterRule { count: 2, domains: &domains, diversity: Diversity::ANY };
    let best = |p| {
        let p = Probability::new(p).unwrap();
        let ranked = tail::rank_voters(&past, &[0, 1, 2], &rule, Route::Nearest, &[], p);
        let best = ranked.unwrap().unwrap().swap_remove(0);
        (best.layout.voters().to_vec(), best.latency_ms)
    };
    assert_eq!(best(0.5), (vec![0, 1], 10.0));
    assert_eq!(best(0.9), (vec![0, 2], 30.0));
}

#[test]
fn many_replicas_are_searched_by_swaps_that_never_make_it_worse() {
    let world = World::random(&mut Rng::seeded(10), 14, 2);
    let history = world.history();
    let past = history.past(0).unwrap();
    let replicas: Vec<usize> = (0..14).collect();
    let domains = Domains::new((0..14).map(|site| site % 5).collect());
    let diversity = Diversity { domains_min: 5, per_domain_max: 2 };
    let rule = VoterRule { count: 7, domains: &domains, diversity };
    let p = Probability::new(0.9).unwrap();
    let ranked = tail::rank_voters(&past, &replicas, &rule, Route::Nearest, &[], p);
    for option in ranked.unwrap().unwrap() {
        let leader = option.layout.leader();
        let row = past.newest().trips().from_site(leader);
        let nearest = rule.nearest(row, leader, &replicas, &[]);
        let nearest = Layout::new(leader, nearest, replicas.clone()).unwrap();
        let start = tail::percentile_ms(&past, &nearest, Route::Nearest, p).unwrap();
        assert!(option.latency_ms <= start && rule.admits(option.layout.voters()));
    }
}

#[test]
fn distributions_that_do_not_fit_are_named() {
    let one = |ms| grid(&vec![ms]);
    let refused = Tails::new(vec![vec![one(1)]], vec![vec![one(0), one(1)], vec![one(1), one(0)]]);
    let ragged = BadInput::Ragged { matrix: Which::FromClients, row: 0, came: 1, expected: 2 };
    assert_eq!(refused.unwrap_err(), ragged);
    let latency = Empirical::from_samples(vec![Duration::from_millis(4)]).unwrap();
    let two = Grid::of(&latency, Duration::from_millis(2), Duration::from_millis(4)).unwrap();
    let refused = Tails::new(vec![vec![two]], vec![vec![one(0)]]).unwrap_err();
    assert_eq!(refused, BadInput::Step { matrix: Which::FromClients, row: 0, column: 0 });
    let world = World::random(&mut Rng::seeded(1), 3, 2);
    let other = World::random(&mut Rng::seeded(1), 3, 1);
    let refused = world.history().adopt_tails(Arc::new(other.tails())).unwrap_err();
    assert_eq!(refused, BadInput::Clients { came: 1, expected: 2 });
}

#[test]
fn nothing_is_below_the_bound_of_a_percentile_and_ties_go_to_the_lesser_mean() {
    let mut rng = Rng::seeded(12);
    let mut reached = 0;
    for _ in 0..20 {
        let world = World::random(&mut rng, 6, 3);
        let history = world.history();
        let past = history.past(0).unwrap();
        let replicas: Vec<usize> = (0..6).collect();
        let domains = Domains::each_its_own(6);
        let rule = VoterRule { count: 3, domains: &domains, diversity: Diversity::ANY };
        let p = Probability::new(0.5 + 0.49 * rng.unit()).unwrap();
        let ranked = tail::rank_voters(&past, &replicas, &rule, Route::Nearest, &[], p);
        let ranked = ranked.unwrap().unwrap();
        assert!(tail::tries_all(&past, 6, 3));
        let bound = tail::bound_ms(&past, &replicas, 3, Route::Nearest, p).unwrap();
        assert!(bound <= ranked[0].latency_ms, "{bound} {}", ranked[0].latency_ms);
        reached += usize::from(bound > 0.8 * ranked[0].latency_ms);
        for pair in ranked.windows(2).filter(|pair| pair[0].latency_ms == pair[1].latency_ms) {
            let mean = |k: usize| past.mean_ms(&pair[k].layout, Route::Nearest);
            assert!(mean(0) <= mean(1));
        }
    }
    assert!(reached > 10, "a bound that is far below says little: {reached} of 20");
}

#[test]
fn constant_round_trips_are_their_own_percentiles() {
    let trips = RoundTrips::new(&[vec![10.2, 30.0]], &[vec![0.0, 20.0], vec![20.0, 0.0]]).unwrap();
    let tails = Tails::constant(&trips, Duration::from_millis(1)).unwrap();
    let counts = Counts::new(vec![[8.0, 0.0, 0.0, 2.0, 0.0]]).unwrap();
    let layout = Layout::new(0, vec![0, 1], vec![0, 1]).unwrap();
    let latency = tails.latency(&counts, &trips, &layout, Route::Nearest).unwrap();
    let at = |p| latency.quantile(Probability::new(p).unwrap());
    // Reads take 10.2 ms, rounded up; writes 10.2 ms and the 20 ms to the other voter.
    assert_eq!((at(0.8), at(0.81)), (Duration::from_millis(11), Duration::from_millis(31)));
}
