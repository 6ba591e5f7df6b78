//! Worlds whose truth is known: how often an answer is right, and how often a right one is refused.
//!
//! The truth is the same world, with the same requests and the same weather, under the other
//! policy. What other coin flips of its dispatchers change is the floor below which nobody can be
//! right.

use std::fmt::Write as _;

use evenkeel_settings::{Node, Problems};
use evenkeel_sim::Scenario;
use evenkeel_sim::world::{RecordConfig, record, windows};
use evenkeel_twin::Twin;
use evenkeel_twin::rows::{Day, percentile};
use evenkeel_twin::slots::SLOTS_MAX;
use evenkeel_twin::speeds::Speeds;
use evenkeel_twin::works::{Seen, Works};

use crate::answer::{Answer, Setup, WHOLE_MAX, predict, tests};
use crate::day::described;
use crate::observed::Observed;
use crate::world::Change;

/// The percentiles that are asked for, and how far off an answer may be.
const BARS: [(f64, f64); 2] = [(0.99, 0.10), (0.999, 0.15)];
/// The policy that slices have.
pub(crate) const EXPLORED: &str = "two-choices";
/// Share of the day in windows that explore.
pub(crate) const EXPLORED_SHARE: f64 = 0.05;
/// Share of requests that go to two replicas.
pub(crate) const PAIRS: f64 = 0.005;
const COINS: [u64; 2] = [1, 2];

/// A world of the study.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Its name.
    pub name: &'static str,
    /// What it has in place of the mixed world's.
    text: &'static str,
    /// The policy that it is recorded under.
    recorded: &'static str,
    /// Clients that are recorded.
    clients: usize,
    /// Whether a wrong answer must be refused.
    is_trap: bool,
    /// Whether the rebuilt world is thrown away for one that draws recorded latencies.
    is_resampled: bool,
}

const fn world(name: &'static str, text: &'static str) -> World {
    World {
        name,
        text,
        recorded: "least-outstanding",
        clients: usize::MAX,
        is_trap: false,
        is_resampled: false,
    }
}

const BASE: &str = "\
[run]
policies = ['c3']
hedge = { quantile = 0.95, budget = '5%' }
[network]
one_way = '100us'
jitter = '20us'
[workload]
cancel = true
";

const DEMO: &str = "\
[cluster]
servers = 5
concurrency = 4
service_mean = '6ms'
replication_factor = 5
[fluctuation]
interval = '500ms'
range = 2
[workload]
clients = 1
utilisation = 0.4
[[faults]]
at = '0s'
every = '3s'
pause = 'each'
for = '50ms'
for_max = '200ms'
[[faults]]
at = '0s'
slow = 4
factor = 4
";

/// Log-normal work with a logarithm of variance 1, half of it the request's own.
const MIXED: &str = "\
[cluster]
servers = 5
concurrency = 4
service_mean = '6ms'
replication_factor = 5
service_cv = 1.3108
work_shared = 0.5
";

/// Nothing of the cluster's: its replicas share their cores.
const SHARING: &str = "\
replicas = [4, 4, 4, 4, 4]
[work]
optional = '6ms'
mandatory = '6ms'
cv = 1.3108
";

/// The weather and the load of all but the demo's.
const DAY: &str = "\
[fluctuation]
interval = '5s'
range = 2
[workload]
clients = 1
utilisation = 0.6
[[faults]]
at = '0s'
every = '10s'
pause = 'each'
for = '50ms'
for_max = '200ms'
";

/// The eight worlds of the study, and the first one rebuilt as badly as can be without showing in
/// the recorded policy.
pub const WORLDS: [World; 9] = [
    world("demo", DEMO),
    world("mixed", ""),
    world("heavy", "cluster.service_cv=2.913 cluster.work_shared=1.0"),
    world("shared", "cluster.racks=1 faults.0.pause='each rack'"),
    World { is_trap: true, ..world("sharing", SHARING) },
    World { clients: 3, is_trap: true, ..world("unseen", "workload.clients=5") },
    world("hot", "workload.utilisation=0.8"),
    World { recorded: "least-outstanding+hedge", ..world("hedged", "") },
    World { is_resampled: true, is_trap: true, ..world("resampled", DEMO) },
];

/// The policies that are asked about.
pub const QUESTIONS: [&str; 4] = ["two-choices", "c3", "least-outstanding+hedge", "c3+hedge"];

impl World {
    /// The world as a scenario with so many requests.
    ///
    /// # Errors
    /// When its text is wrong.
    pub fn scenario(&self, requests: u64) -> Result<Scenario, Problems> {
        let (text, sets) = self.spelled(requests)?;
        read(&text, self.name, &sets)
    }

    /// Its text, and what is set in it for so many requests.
    ///
    /// # Errors
    /// When its text is wrong.
    pub fn spelled(&self, requests: u64) -> Result<(String, Vec<String>), Problems> {
        let is_whole = self.text.contains('\n');
        let cluster = if is_whole { self.text } else { MIXED };
        let is_demo = self.text == DEMO;
        let day = if is_demo { "" } else { DAY };
        let text = merged(BASE, &[cluster, day].concat());
        let mut sets = vec![format!("workload.requests={requests}")];
        let words = if is_whole { "" } else { self.text };
        sets.extend(spoken(words).into_iter().map(|(key, value)| format!("{key}={value}")));
        if !is_demo {
            let rate = read(&text, self.name, &sets)?.rate();
            let step_s = requests as f64 / rate / 24.0;
            let rates: Vec<f64> = (0..24).map(hour).collect();
            sets.push(format!("workload.arrivals={{rates={rates:?},step='{step_s:.3}s'}}"));
        }
        Ok((text, sets))
    }
}

fn read(text: &str, name: &str, sets: &[String]) -> Result<Scenario, Problems> {
    let mut node = Node::parse(text, name)?;
    for set in sets {
        node.set(set)?;
    }
    Scenario::read(&node)
}

/// Thirty percent more by day, and less by night.
fn hour(hour: u32) -> f64 {
    1.0 + 0.3 * (f64::from(hour) * core::f64::consts::TAU / 24.0).sin()
}

/// A table that both have is written once.
fn merged(base: &str, text: &str) -> String {
    let rest = base.replace("[workload]\ncancel = true\n", "");
    text.replace("[workload]\n", "[workload]\ncancel = true\n") + &rest
}

/// `key=value` pairs; a value in quotes may have spaces.
fn spoken(sets: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut rest = sets;
    while let Some((key, after)) = rest.trim_start().split_once('=') {
        let end = match after.strip_prefix('\'') {
            Some(quoted) => quoted.find('\'').map(|place| place + 2),
            None => after.find(' '),
        };
        let (value, left) = after.split_at(end.unwrap_or(after.len()));
        pairs.push((key.to_owned(), value.to_owned()));
        rest = left;
    }
    pairs
}

/// One question about one world.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The world's name.
    pub world: &'static str,
    /// Whether a wrong answer there must be refused.
    pub is_trap: bool,
    /// The seed.
    pub seed: u64,
    /// The policy.
    pub policy: String,
    /// Why there is no answer.
    pub refusal: Option<String>,
    /// By percentile: the logarithm of predicted over true, the floor, whether the interval holds
    /// the truth, and half its width.
    pub errors: Vec<(f64, f64, bool, f64)>,
}

impl Outcome {
    /// Whether the answer is within its bars, or within what coins decide.
    pub fn is_right(&self) -> bool {
        let within = |((off, floor, ..), (_, bar)): (&(f64, f64, bool, f64), &(f64, f64))| {
            off.exp_m1().abs() <= *bar || off.abs() <= *floor
        };
        !self.errors.is_empty() && self.errors.iter().zip(&BARS).all(within)
    }
}

/// The world of who takes latencies for service times that nothing shares: no queues, no pauses.
fn resampled(twin: Twin) -> Twin {
    let ways_ns = 2.0 * (twin.network.one_way_ns + twin.network.jitter_ns);
    let log = |latency_ns: u64| (latency_ns as f64 - ways_ns).max(1_000.0).ln();
    let logs: Vec<f64> = twin.requests.iter().map(|one| log(one.latency_ns)).collect();
    let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
    let seen = logs.iter().map(|log| Seen { log: log - mean, is_cut: false });
    let works = Works::new(seen);
    let replicas = twin.pauses.len();
    let speeds =
        Speeds { from_ns: 0, width_ns: u64::MAX, logs: vec![vec![mean]; replicas], noise: 0.0 };
    let mut requests = twin.requests;
    for (request, log) in requests.iter_mut().zip(logs) {
        request.score = works.score(log - mean) as f32;
    }
    let pauses = vec![Vec::new(); replicas];
    Twin { requests, works, speeds, pauses, slots: SLOTS_MAX, ..twin }
}

/// Asks all questions about a world at a seed; says what it does on the way.
///
/// # Errors
/// When the world's text is wrong.
pub fn ask(world: &World, requests: u64, seed: u64) -> Result<(Vec<Outcome>, String), Problems> {
    let scenario = world.scenario(requests)?;
    let length_s = requests as f64 / scenario.rate();
    let explore = Some((EXPLORED.to_owned(), windows(length_s, EXPLORED_SHARE, seed)));
    let config = RecordConfig { clients: world.clients, explore, pairs: PAIRS, coins: 0 };
    let day = record(&scenario, world.recorded, seed, config);
    let twin = match Twin::rebuild(&day, seed) {
        Ok(twin) => twin,
        Err(error) => return Ok((Vec::new(), error.to_string())),
    };
    drop(day);
    let twin = if world.is_resampled { resampled(twin) } else { twin };
    let observed = Observed::new(&twin, None);
    let setup = Setup {
        like: &scenario,
        recorded: world.recorded,
        explored: Some(EXPLORED),
        pairs: PAIRS,
        whole_max: WHOLE_MAX,
    };
    let tested = tests(&twin, &setup, &observed);
    let mut outcomes = Vec::new();
    for policy in QUESTIONS {
        let policy = match world.recorded == policy {
            true => "least-outstanding",
            false => policy,
        };
        let change = Change::policy(policy);
        let answer = predict(&twin, &setup, &observed, &change, &BARS.map(|(share, _)| share));
        let sure = answer.as_ref().map_err(|refusal| *refusal);
        let sure = sure.and_then(|answer| answer.is_sure(&twin, &change));
        let refusal = tested.map(|_| ()).and(sure).err();
        outcomes.push(Outcome {
            world: world.name,
            is_trap: world.is_trap,
            seed,
            policy: policy.to_owned(),
            refusal: refusal.map(|refusal| refusal.to_string()),
            errors: answer
                .map_or_else(|_| vec![], |it| errors(world, &scenario, policy, seed, &it)),
        });
    }
    let mut notes = described(&twin);
    if let Ok([backtest, slice]) = tested {
        let _ = write!(
            notes,
            "; backtest {:+.1} % (noise {:.1}), slices {:+.1} % (noise {:.1})",
            100.0 * backtest.off,
            100.0 * backtest.noise,
            100.0 * slice.off,
            100.0 * slice.noise,
        );
    }
    Ok((outcomes, notes))
}

fn errors(
    world: &World,
    scenario: &Scenario,
    policy: &str,
    seed: u64,
    answer: &Answer,
) -> Vec<(f64, f64, bool, f64)> {
    let truth = |coins| {
        let config = RecordConfig { clients: world.clients, coins, ..RecordConfig::default() };
        record(scenario, policy, seed, config)
    };
    let logs = |day: &Day| -> Vec<f64> {
        let latencies = day.latencies(0);
        let log = |share| (percentile(&latencies, share).unwrap_or(1).max(1) as f64).ln();
        answer.percentiles.iter().map(|one| log(one.share)).collect()
    };
    let true_logs = logs(&truth(0));
    let flips: Vec<Vec<f64>> = COINS.iter().map(|coins| logs(&truth(*coins))).collect();
    let error = |(place, log): (usize, &f64)| {
        let predicted = &answer.percentiles[place];
        let floor = flips.iter().map(|flip| (flip[place] - log).abs()).fold(0.0, f64::max);
        let [low, high] = predicted.interval_ns;
        let width = (high / low).ln() / 2.0;
        (predicted.value_ns.ln() - log, floor, (low..=high).contains(&log.exp()), width)
    };
    true_logs.iter().enumerate().map(error).collect()
}

/// What all outcomes together say, beside the bars.
pub fn summary(outcomes: &[Outcome]) -> String {
    let given: Vec<&Outcome> = outcomes.iter().filter(|one| one.refusal.is_none()).collect();
    let mut text = String::new();
    for (place, (share, _)) in BARS.iter().enumerate() {
        let mut offs: Vec<f64> = given
            .iter()
            .filter_map(|one| one.errors.get(place))
            .map(|(off, ..)| off.exp_m1().abs())
            .collect();
        offs.sort_by(f64::total_cmp);
        let median = offs.get(offs.len() / 2).copied().unwrap_or(f64::NAN);
        let bar = if place == 0 { 5 } else { 10 };
        let percent = 100.0 * share;
        let _ = writeln!(text, "median error of p{percent}: {:.1} % (bar {bar} %)", 100.0 * median);
    }
    let ratio = |part: usize, all: usize| 100.0 * part as f64 / all.max(1) as f64;
    let right = given.iter().filter(|one| one.is_right()).count();
    let _ = writeln!(
        text,
        "answers given that are right: {right} of {} = {:.0} % (bar 90 %)",
        given.len(),
        ratio(right, given.len())
    );
    let good: Vec<_> = outcomes.iter().filter(|one| !one.is_trap && one.is_right()).collect();
    let refused = good.iter().filter(|one| one.refusal.is_some()).count();
    let _ = writeln!(
        text,
        "good ones refused: {refused} of {} = {:.0} % (bar 25 %)",
        good.len(),
        ratio(refused, good.len())
    );
    let traps: Vec<_> = outcomes.iter().filter(|one| one.is_trap).collect();
    let safe = traps.iter().filter(|one| one.refusal.is_some() || one.is_right()).count();
    let _ = writeln!(text, "traps refused or right: {safe} of {} (bar all)", traps.len());
    let held: Vec<bool> = given.iter().flat_map(|one| &one.errors).map(|error| error.2).collect();
    let inside = held.iter().filter(|is_held| **is_held).count();
    let _ = writeln!(
        text,
        "90 % intervals that hold the truth: {inside} of {} = {:.0} % (bar 85 to 95 %)",
        held.len(),
        ratio(inside, held.len())
    );
    text
}
