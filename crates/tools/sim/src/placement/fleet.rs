//! Databases of a made-up company, with the workloads that the paper describes.
//!
//! No public trace has sites of clients and types of operations, so these are made: clients of 48
//! regions by part of the world, uneven as log-normal weights are; the five types of operations in
//! six mixes; day and night by the sun of each region; sudden spikes in one region. Counts are
//! Poisson. Layouts are what a careful administrator would have set up by hand.

use std::f64::consts::TAU;

use evenkeel_core::Rng;
use evenkeel_planner::model::{Counts, Layout, Operation};

use super::geography::{Continent, Geography};

/// Operations as weights: weak, bounded, strong, single-group, multi-group.
pub type Mix = [f64; Operation::ALL.len()];

/// The mixes that the paper speaks of (figures 3, 7, 9), by name.
pub const MIXES: [(&str, Mix); 6] = [
    ("weak", [0.98, 0.0, 0.0, 0.01, 0.01]),
    ("bounded", [0.05, 0.90, 0.01, 0.02, 0.02]),
    ("strong", [0.0, 0.01, 0.98, 0.005, 0.005]),
    ("weak-strong", [0.60, 0.01, 0.38, 0.01, 0.0]),
    ("strong-multi", [0.0, 0.01, 0.57, 0.0, 0.42]),
    ("writes", [0.20, 0.10, 0.10, 0.50, 0.10]),
];

/// What databases are made.
#[derive(Clone, PartialEq, Debug)]
pub struct FleetSpec {
    /// How many.
    pub databases: usize,
    /// Intervals of half an hour each.
    pub intervals: usize,
    /// Sudden spikes of a database in a day, on average: one region has 5 to 20 times its
    /// operations for half an hour to two hours.
    pub spikes_per_day: f64,
    /// The mixes; each database has one of them.
    pub mixes: Vec<Mix>,
    /// Where clients are, and replicas may be.
    pub continents: Vec<Continent>,
    /// Replicas of each database, 3 to 16.
    pub replicas: usize,
    /// Of these, how many vote.
    pub voters: usize,
    /// How much a client's mix is its own: Dirichlet with `mix / spread`.
    pub spread: f64,
    /// Standard deviation of the logarithm of a client's weight.
    pub sigma: f64,
    /// Share of databases whose administrator set a leader.
    pub preferred_share: f64,
    /// Whether any of the replicas vote; else those of one part of the world do.
    pub voters_anywhere: bool,
}

impl Default for FleetSpec {
    fn default() -> Self {
        Self {
            databases: 200,
            intervals: INTERVALS_PER_DAY,
            spikes_per_day: 1.0,
            mixes: MIXES.map(|(_, mix)| mix).to_vec(),
            continents: Continent::ALL.to_vec(),
            replicas: 7,
            voters: 3,
            spread: 0.05,
            sigma: 1.6,
            preferred_share: 0.25,
            voters_anywhere: false,
        }
    }
}

/// Half hours.
pub const INTERVALS_PER_DAY: usize = 48;
/// The hour at which a region is busiest, by its sun.
const BUSIEST_H: f64 = 14.0;

/// One database.
#[derive(Clone, Debug)]
pub struct Database {
    /// What its clients do, on average.
    pub mix: Mix,
    /// Where it was put by hand.
    pub layout: Layout,
    /// Whether its administrator chose the leader; else any voter leads.
    pub is_preferred: bool,
    /// What its clients did, by interval.
    pub intervals: Vec<Counts>,
}

/// A client of a database before chance has its say.
struct Client {
    /// Operations of a half hour, on average over a day, by type.
    mean: Mix,
    /// How much more at noon.
    swing: f64,
    ahead_h: f64,
}

/// One sudden spike.
struct Spike {
    client: usize,
    from: usize,
    until: usize,
    times: f64,
}

impl FleetSpec {
    /// Makes the databases; equal seeds make equal ones.
    pub fn make(&self, geography: &Geography, seed: u64) -> Vec<Database> {
        (0..self.databases)
            .map(|index| {
                let mut rng = Rng::stream(seed, &format!("database {index}"));
                self.database(geography, &mut rng)
            })
            .collect()
    }

    fn database(&self, geography: &Geography, rng: &mut Rng) -> Database {
        let mix = self.mixes[rng.below(self.mixes.len())];
        let clients = self.clients(geography, mix, rng);
        let layout = self.by_hand(geography, &clients, rng);
        let is_preferred = rng.unit() < self.preferred_share;
        let spikes = self.spikes(&clients, rng);
        let intervals =
            (0..self.intervals).map(|interval| counts(&clients, &spikes, interval, rng)).collect();
        Database { mix, layout, is_preferred, intervals }
    }

    fn clients(&self, geography: &Geography, mix: Mix, rng: &mut Rng) -> Vec<Client> {
        // Busy databases have thousands of times the operations of quiet ones.
        let total = 1e4 * (1.5 * rng.normal()).exp();
        let parts = Continent::ALL.map(|part| {
            let weight = part.weight() * (0.8 * rng.normal()).exp();
            if self.continents.contains(&part) { weight } else { 0.0 }
        });
        let mut client = |place: usize| {
            let region = &geography.regions[place];
            let weight = parts[region.continent as usize] * (self.sigma * rng.normal()).exp();
            let own = dirichlet(mix.map(|share| share / self.spread), rng);
            let swing = 0.3 + 0.3 * rng.unit();
            (weight, own, swing, region.ahead_h)
        };
        let drawn: Vec<_> = (0..geography.len()).map(&mut client).collect();
        let sum: f64 = drawn.iter().map(|(weight, ..)| weight).sum();
        let scaled = |(weight, own, swing, ahead_h): (f64, Mix, f64, f64)| Client {
            mean: own.map(|share| share * total * weight / sum),
            swing,
            ahead_h,
        };
        drawn.into_iter().map(scaled).collect()
    }

    /// Voters in the part of the world with most operations, the other replicas where most of the
    /// rest is, the leader with the busiest of the voters.
    fn by_hand(&self, geography: &Geography, clients: &[Client], rng: &mut Rng) -> Layout {
        // An administrator knows about how busy regions are, not exactly.
        let guess: Vec<f64> = clients
            .iter()
            .map(|client| client.mean.iter().sum::<f64>() * (0.5 * rng.normal()).exp())
            .collect();
        let part = |place: usize| geography.regions[place].continent;
        let of_part = |wanted: Continent| -> f64 {
            (0..guess.len()).filter(|place| part(*place) == wanted).map(|at| guess[at]).sum()
        };
        let home = Continent::ALL.into_iter().max_by(|a, b| of_part(*a).total_cmp(&of_part(*b)));
        let mut places: Vec<usize> = (0..guess.len()).collect();
        places.sort_by(|a, b| guess[*b].total_cmp(&guess[*a]));
        let at_home = places.iter().copied().filter(|place| Some(part(*place)) == home);
        let mut chosen: Vec<usize> = at_home.take(self.voters).collect();
        for place in places {
            if chosen.len() < self.replicas && !chosen.contains(&place) {
                chosen.push(place);
            }
        }
        let mut voters = chosen[..self.voters].to_vec();
        if self.voters_anywhere {
            let mut any = chosen.clone();
            rng.shuffle(&mut any);
            voters = any[..self.voters].to_vec();
            voters.sort_by(|a, b| guess[*b].total_cmp(&guess[*a]));
        }
        Layout::new(voters[0], voters, chosen).expect("distinct sites, and voters are replicas")
    }

    fn spikes(&self, clients: &[Client], rng: &mut Rng) -> Vec<Spike> {
        let days = self.intervals as f64 / INTERVALS_PER_DAY as f64;
        let many = rng.poisson(self.spikes_per_day * days);
        let mut spike = |_| {
            let from = rng.below(self.intervals);
            Spike {
                client: rng.below(clients.len()),
                from,
                until: from + 1 + rng.below(4),
                times: 5.0 + 15.0 * rng.unit(),
            }
        };
        (0..many).map(&mut spike).collect()
    }
}

fn counts(clients: &[Client], spikes: &[Spike], interval: usize, rng: &mut Rng) -> Counts {
    let utc_h = (interval as f64 + 0.5) * 24.0 / INTERVALS_PER_DAY as f64;
    let of = |(place, client): (usize, &Client)| {
        let turned = (utc_h + client.ahead_h - BUSIEST_H) / 24.0;
        let sun = client.swing.mul_add((TAU * turned).cos(), 1.0);
        let spiking =
            |spike: &&Spike| spike.client == place && (spike.from..spike.until).contains(&interval);
        let spiked = spikes.iter().filter(spiking).map(|spike| spike.times).fold(1.0, f64::max);
        client.mean.map(|mean| rng.poisson(mean * sun * spiked) as f64)
    };
    Counts::new(clients.iter().enumerate().map(of).collect()).expect("counts are counts")
}

/// Shares that add up to one, drawn around these weights.
fn dirichlet(weights: Mix, rng: &mut Rng) -> Mix {
    let drawn = weights.map(|weight| if weight > 0.0 { gamma(weight, rng) } else { 0.0 });
    let sum: f64 = drawn.iter().sum();
    // Far below one, all may be drawn as nothing.
    if sum > 0.0 { drawn.map(|part| part / sum) } else { weights }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn small(change: impl FnOnce(&mut FleetSpec)) -> Vec<Database> {
        let mut spec = FleetSpec { databases: 24, ..FleetSpec::default() };
        change(&mut spec);
        spec.make(Geography::azure(), 7)
    }

    #[test]
    fn equal_seeds_make_equal_databases() {
        let (first, second) = (small(|_| {}), small(|_| {}));
        for (first, second) in first.iter().zip(&second) {
            assert_eq!(first.layout, second.layout);
            assert_eq!(first.intervals, second.intervals);
        }
    }

    #[test]
    fn databases_do_what_their_mix_says() {
        for (name, mix) in &MIXES {
            let databases = small(|spec| spec.mixes = vec![*mix]);
            let all = |operation: Operation| -> f64 {
                let counts = databases.iter().flat_map(|database| &database.intervals);
                counts.map(|counts| counts.total_of(operation)).sum()
            };
            let sum: f64 = Operation::ALL.into_iter().map(all).sum();
            for operation in Operation::ALL {
                let share = all(operation) / sum;
                let reported = mix[operation as usize];
                assert!((share - reported).abs() < 0.08, "{name}, {}: {share}", operation.name());
            }
        }
    }

    #[test]
    fn a_gamma_has_its_mean_and_variance() {
        let mut rng = Rng::seeded(5);
        for shape in [0.2, 1.0, 7.5] {
            let drawn: Vec<f64> = (0..40_000).map(|_| gamma(shape, &mut rng)).collect();
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            let square = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
            let variance = square / drawn.len() as f64;
            assert!((mean / shape - 1.0).abs() < 0.05, "{shape}: {mean}");
            assert!((variance / shape - 1.0).abs() < 0.1, "{shape}: {variance}");
        }
    }

    #[test]
    fn the_east_is_busier_than_the_west_in_its_own_day() {
        let databases = small(|spec| {
            spec.spikes_per_day = 0.0;
            spec.sigma = 0.5;
        });
        let geography = Geography::azure();
        let ratio = |interval: usize| {
            let of = |continent: Continent| -> f64 {
                let places = (0..geography.len())
                    .filter(|place| geography.regions[*place].continent == continent);
                let each = |place: usize| {
                    let counts = databases.iter().map(move |of| of.intervals[interval].of(place));
                    counts.flatten().sum::<f64>()
                };
                places.map(each).sum()
            };
            of(Continent::NorthAmericaEast) / of(Continent::NorthAmericaWest)
        };
        // Noon in the east is 17 h, in the west 20 h of Greenwich; midnight 5 h and 8 h.
        assert!(ratio(30) > 1.1 * ratio(2), "{} {}", ratio(30), ratio(2));
    }
}
