//! CPU to proven replicas (tier 3, method exact), by kind of workload, sites and replicas.
//!
//! `cargo bench -p evenkeel-core --bench placement_replicas [-- FAMILIES MIXES REPLICAS
//! SEEDS ROUTES MATRIX]` asks for the families (`48x48,100x213,213x213`: sites × clients), mixes
//! (all unless said), numbers of replicas (`5,7,9`) of which 3 vote, so many seeds (5) and routes
//! (`nearest`), and prints a line for each: median and worst CPU time of this thread, each the
//! least of two runs where they are short, nodes of the worst, how many are unproven and the widest
//! gap.
//!
//! Clients weigh as log-normal numbers of sigma 1.6 do, and each has a mix of its own: Dirichlet
//! around the family's. `MATRIX` is a CSV file of round trips with names in the first row and
//! column; else PlanetLab's and, for 48 sites, Azure's beside the project; and where those are not
//! there, places on a sphere with detours.
//!
//! The bars, route nearest: 1 s for 48 sites and at most 9 replicas, 2 s for 100 × 213, 5 s for
//! 213 × 213.

use evenkeel_core::Rng;
use evenkeel_planner::model::{Counts, RoundTrips, Route};
use evenkeel_planner::replicas::{Placed, Question, place};
use rustix::time::{ClockId, clock_gettime};

type Matrix = Vec<Vec<f64>>;
type Mix = [f64; 5];

const MIXES: [(&str, Mix); 5] = [
    ("readheavy", [0.60, 0.20, 0.15, 0.04, 0.01]),
    ("bounded90", [0.03, 0.90, 0.02, 0.04, 0.01]),
    ("weak98", [0.98, 0.0, 0.0, 0.01, 0.01]),
    ("mixed", [0.30, 0.30, 0.20, 0.15, 0.05]),
    ("writes60", [0.20, 0.10, 0.10, 0.50, 0.10]),
];
const FAMILIES: &str = "48x48,100x213,213x213";
/// A second run only where the first was shorter, in seconds.
const SHORT_S: f64 = 1.0;

/// An answer and the seconds of CPU it took.
struct Run {
    placed: Placed,
    cpu_s: f64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let word = |place: usize, default: &str| words.get(place).map_or(default, |it| it).to_owned();
    let all = MIXES.map(|(name, _)| name).join(",");
    let seeds: u64 = word(3, "5").parse().expect("how many seeds");
    for family in word(0, FAMILIES).split(',') {
        let (sites, clients) = family.split_once('x').expect("sites x clients");
        let sites: usize = sites.parse().expect("how many sites");
        let clients: usize = clients.parse().expect("how many clients");
        let matrix = matrix(sites.max(clients), &word(5, ""));
        for mix in word(1, &all).split(',') {
            for route in word(4, "nearest").split(',') {
                for replicas in word(2, "5,7,9").split(',') {
                    let replicas = replicas.parse().expect("how many replicas");
                    let ask = |seed| run(&matrix, mix, [sites, clients, replicas], route, seed);
                    let runs: Vec<Run> = (1..=seeds).map(ask).collect();
                    println!("{family:<8} {mix:<10} {route:<8} |R| {replicas} {}", line(&runs));
                }
            }
        }
    }
}

fn run(
    matrix: &Matrix,
    mix: &str,
    [sites, clients, replicas]: [usize; 3],
    route: &str,
    seed: u64,
) -> Run {
    let known = MIXES.iter().find(|(name, _)| *name == mix);
    let (_, mix) = known.unwrap_or_else(|| panic!("mix: got `{mix}`, expected some of {MIXES:?}"));
    let route = match route {
        "nearest" => Route::Nearest,
        "bestpath" => Route::BestPath,
        other => panic!("route: got `{other}`, expected nearest or bestpath"),
    };
    let mut rng = Rng::stream(seed, "placement instance");
    let (sites, clients) = (some(&mut rng, matrix, sites), some(&mut rng, matrix, clients));
    let rows = |from: &[usize], to: &[usize]| -> Matrix {
        from.iter().map(|from| to.iter().map(|to| matrix[*from][*to]).collect()).collect()
    };
    let mut between = rows(&sites, &sites);
    (0..sites.len()).for_each(|site| between[site][site] = 0.0);
    let trips = RoundTrips::new(&rows(&clients, &sites), &between).expect("the matrix is sound");
    let counts = clients.iter().map(|_| counts(&mut rng, mix)).collect();
    let counts = Counts::new(counts).expect("counts are whole numbers");
    let question = Question::new(replicas, 3, route);
    let once = || {
        let before = cpu_s();
        let placed = place(&counts, &trips, &question).expect("there are enough sites");
        Run { placed, cpu_s: cpu_s() - before }
    };
    let first = once();
    if first.cpu_s >= SHORT_S {
        return first;
    }
    let second = once();
    Run { cpu_s: first.cpu_s.min(second.cpu_s), ..second }
}

/// So many places of a matrix, rising.
fn some(rng: &mut Rng, matrix: &Matrix, count: usize) -> Vec<usize> {
    let mut some: Vec<usize> = (0..matrix.len()).collect();
    rng.shuffle(&mut some);
    some.truncate(count);
    some.sort_unstable();
    some
}

/// Operations of one client.
fn counts(rng: &mut Rng, mix: &Mix) -> Mix {
    let weight = (1.6 * rng.normal()).exp() * 2_000.0;
    let own = mix.map(|share| if share > 0.0 { gamma(share / 0.05, rng) } else { 0.0 });
    let sum: f64 = own.iter().sum();
    own.map(|part| (weight * part / sum.max(f64::MIN_POSITIVE)).round())
}

/// Gamma with this shape and scale 1 (Marsaglia and Tsang 2000).
fn gamma(shape: f64, rng: &mut Rng) -> f64 {
    if shape < 1.0 {
        return gamma(shape + 1.0, rng) * rng.unit().powf(1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = rng.normal();
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && rng.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Round trips between at least so many places, in milliseconds.
fn matrix(places: usize, path: &str) -> Matrix {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/data/rtt");
    let own = if places <= 48 { "azure_p50.csv" } else { "planetlab_median18.csv" };
    let path = if path.is_empty() { format!("{folder}/{own}") } else { path.to_owned() };
    match std::fs::read_to_string(&path) {
        Ok(text) => text.lines().skip(1).map(numbers).collect(),
        Err(error) => {
            println!("{path}: {error}; places on a sphere instead");
            made_up(places)
        }
    }
}

/// A line of a matrix after its name.
fn numbers(line: &str) -> Vec<f64> {
    let number = |cell: &str| cell.parse().expect("milliseconds");
    line.split(',').skip(1).map(number).collect()
}

/// Places all over a sphere; the way between two takes up to 200 ms and a detour.
fn made_up(places: usize) -> Matrix {
    let mut rng = Rng::seeded(5);
    let mut point = |_| {
        let at = [(); 3].map(|()| rng.normal());
        let length = at.iter().map(|x| x * x).sum::<f64>().sqrt();
        at.map(|x| x / length)
    };
    let at: Vec<[f64; 3]> = (0..places).map(&mut point).collect();
    let mut rng = Rng::seeded(6);
    let mut way = |a: &[f64; 3], b: &[f64; 3]| {
        let cosine: f64 = a.iter().zip(b).map(|(x, y)| x * y).sum();
        cosine.clamp(-1.0, 1.0).acos() / core::f64::consts::PI * 200.0 * (1.0 + rng.unit())
    };
    at.iter().map(|a| at.iter().map(|b| way(a, b)).collect()).collect()
}

/// Seconds of processor time that this thread used.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn line(runs: &[Run]) -> String {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by(|&a, &b| runs[a].cpu_s.total_cmp(&runs[b].cpu_s));
    let (median, worst) = (order[order.len() / 2], order[order.len() - 1]);
    let unproven = runs.iter().filter(|run| !run.placed.proven).count();
    let gap = runs.iter().map(|run| run.placed.gap()).fold(0.0, f64::max);
    format!(
        "median {:>7.3} s, worst {:>7.3} s (seed {}, {} nodes), unproven {unproven}, gap {:.2} %",
        runs[median].cpu_s,
        runs[worst].cpu_s,
        worst + 1,
        runs[worst].placed.nodes,
        gap * 100.0
    )
}
