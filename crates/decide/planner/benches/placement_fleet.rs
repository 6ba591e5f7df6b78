//! How long decisions of placement take: 200 and 10 000 databases, 48 intervals each, tiers 1 and
//! 2, and leaders of 10 000 databases spread over sites.
//!
//! `cargo bench -p evenkeel-core --bench placement_fleet [-- ROUTES DATABASES]` prints seconds of
//! this one thread, by route (`nearest,bestpath`) and number of databases (`200,10000`), and takes
//! a few minutes. The acceptance is 1 s and 60 s.

#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot go on should say where it stopped"
)]

use std::sync::Arc;

use evenkeel_core::Rng;
use evenkeel_planner::capacity::{Choice, Demand, assign};
use evenkeel_planner::domains::{Domains, VoterRule};
use evenkeel_planner::history::{History, Interval};
use evenkeel_planner::model::{Counts, Layout, RoundTrips, Route};
use evenkeel_planner::planner::{Config, Planner, Tier};
use evenkeel_planner::{leader, voters};
use rustix::time::{ClockId, clock_gettime};

type Matrix = Vec<Vec<f64>>;

const SITES: usize = 50;
const CLIENTS: usize = 50;
const INTERVALS: usize = 48;

/// Seconds of processor time that this thread used.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn shared((from_clients, between): &(Matrix, Matrix)) -> Arc<RoundTrips> {
    Arc::new(RoundTrips::new(from_clients, between).unwrap())
}

/// So many sites, in rising order.
fn some_sites(rng: &mut Rng, count: usize) -> Vec<usize> {
    let mut some: Vec<usize> = (0..SITES).collect();
    rng.shuffle(&mut some);
    some.truncate(count);
    some.sort_unstable();
    some
}

fn trips(rng: &mut Rng) -> Arc<RoundTrips> {
    let at: Vec<(f64, f64)> = (0..SITES).map(|_| (rng.unit(), rng.unit())).collect();
    let way = |a: &(f64, f64), b: &(f64, f64)| (a.0 - b.0).hypot(a.1 - b.1) * 200.0;
    let mut noisy = || -> Matrix {
        let row =
            |a, rng: &mut Rng| at.iter().map(|b| way(a, b) * (1.0 + 0.3 * rng.unit())).collect();
        at.iter().map(|a| row(a, rng)).collect()
    };
    shared(&(noisy(), noisy()))
}

/// The same round trips, measured anew: 2 % noise.
fn again(trips: &RoundTrips, rng: &mut Rng) -> Arc<RoundTrips> {
    let mut noisy = |row: &[f64]| -> Vec<f64> {
        row.iter().map(|way| way * (1.0 + 0.02 * rng.normal()).max(0.5)).collect()
    };
    let from_clients: Matrix = (0..CLIENTS).map(|i| noisy(trips.from_client(i))).collect();
    let between: Matrix = (0..SITES).map(|i| noisy(trips.from_site(i))).collect();
    shared(&(from_clients, between))
}

fn counts(rng: &mut Rng) -> Counts {
    let of = |rng: &mut Rng| [(); 5].map(|()| (1e3 * rng.exponential()).floor());
    Counts::new((0..CLIENTS).map(|_| of(rng)).collect()).unwrap()
}

/// Takes so many databases through all intervals, and returns the seconds of processor time.
fn run(databases: usize, trips: &[Arc<RoundTrips>], decide: &dyn Fn(&History, &Layout)) -> f64 {
    let mut rng = Rng::seeded(1);
    let pool: Vec<Counts> = (0..500).map(|_| counts(&mut rng)).collect();
    let before = cpu_s();
    for _ in 0..databases {
        let mut history = History::new(2.0, 8).unwrap();
        let replicas = some_sites(&mut rng, 9);
        let layout = Layout::new(replicas[0], replicas[..5].to_vec(), replicas).unwrap();
        for interval in 0..INTERVALS {
            let counts = pool[rng.below(pool.len())].clone();
            let trips = trips[interval % trips.len()].clone();
            history.push(Interval::new(counts, trips).unwrap()).unwrap();
            decide(&history, &layout);
        }
    }
    cpu_s() - before
}

fn leaders_of_a_fleet_are_spread_in_seconds() {
    let mut rng = Rng::seeded(3);
    let demands: Vec<Demand> = (0..10_000)
        .map(|_| {
            let sites = some_sites(&mut rng, 9);
            // Squared, leaders crowd at the first sites.
            let cost =
                |site: usize, rng: &mut Rng| (site * site) as f64 / 100.0 + 50.0 * rng.unit();
            let options =
                sites.into_iter().map(|site| Choice { site, cost: cost(site, &mut rng) }).collect();
            Demand { load: 10.0 * rng.exponential(), options }
        })
        .collect();
    let total: f64 = demands.iter().map(|demand| demand.load).sum();
    for room in [2.0, 1.25, 1.05] {
        let before = cpu_s();
        let reported = assign(&demands, &[room * total / SITES as f64; SITES]).unwrap();
        let gap = reported.cost / reported.bound - 1.0;
        println!(
            "10 000 leaders, capacity {room} times the need: {:.2} s, {} sites above it, at most \
             {:.3} % above the optimum",
            cpu_s() - before,
            reported.over.len(),
            gap * 100.0
        );
    }
}

fn fleets_are_decided_in_seconds(routes: &str, databases: &str) {
    let mut rng = Rng::seeded(7);
    let same = vec![trips(&mut rng)];
    let new: Vec<Arc<RoundTrips>> = (0..INTERVALS).map(|_| again(&same[0], &mut rng)).collect();
    let domains = Domains::new((0..SITES).map(|site| site / 5).collect());
    for route in routes.split(',') {
        let route = match route {
            "nearest" => Route::Nearest,
            "bestpath" => Route::BestPath,
            other => panic!("route: got `{other}`, expected nearest or bestpath"),
        };
        let rank = |history: &History, layout: &Layout| {
            let past = history.past(0).unwrap();
            let rule = VoterRule::as_today(&domains, layout.voters());
            let (replicas, keep) = (layout.replicas(), layout.voters());
            let tier_1 = leader::rank(&past, layout, route);
            let tier_2 = voters::rank(&past, replicas, &rule, route, keep).unwrap();
            assert!(tier_2[0].latency_ms <= tier_1[0].latency_ms * (1.0 + 1e-9));
        };
        let domains = Some(domains.clone());
        let planner =
            Planner::new(Config { tier: Tier::Voters, route, domains, ..Config::default() });
        let decide = |history: &History, layout: &Layout| {
            planner.decide(history, layout).unwrap();
        };
        for (trips, named) in [(&same, "one matrix"), (&new, "a matrix for each interval")] {
            for databases in databases.split(',') {
                let databases = databases.parse().expect("how many databases");
                let ranked_s = run(databases, trips, &rank);
                let decided_s = run(databases, trips, &decide);
                println!(
                    "{route:?}, {databases} databases x {INTERVALS} intervals, {named}: tiers 1 \
                     and 2 {ranked_s:.2} s, whole decisions {decided_s:.2} s"
                );
            }
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let word = |place: usize, default: &str| words.get(place).map_or(default, |it| it).to_owned();
    fleets_are_decided_in_seconds(&word(0, "nearest,bestpath"), &word(1, "200,10000"));
    leaders_of_a_fleet_are_spread_in_seconds();
}
