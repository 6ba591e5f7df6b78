//! Days of worlds that nobody chose: does a replay name the best policy?
//!
//! The parameters of each world are drawn from its seed. The day is recorded under the shipped
//! default; a replay says what p99 each of five policies would have had, with hedges and without,
//! and names the best. The truth is the same world under each of them.

use std::fmt::Write as _;

use evenkeel_core::Rng;
use evenkeel_settings::{Node, Problems};
use evenkeel_sim::Scenario;
use evenkeel_sim::world::{RecordConfig, record, windows};
use evenkeel_twin::Twin;
use evenkeel_twin::rows::percentile;
use evenkeel_twin::twin::RebuildError;
use thiserror::Error;

use crate::answer::{Refusal, Setup, WHOLE_MAX, predict, tests};
use crate::bars::{EXPLORED, EXPLORED_SHARE, PAIRS};
use crate::observed::{Observed, TESTED};
use crate::world::Change;

/// What is chosen among, each with hedges and without.
pub const POLICIES: [&str; 5] = ["c3", "least-outstanding", "two-choices", "round-robin", "random"];
/// The shipped default.
const DEFAULT: &str = "c3";
/// The choice may be so much above the best, as a share.
const ABOVE_MAX: f64 = 0.05;

/// What was chosen for a day.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The world's seed.
    pub seed: u64,
    /// What was drawn.
    pub world: String,
    /// What the replay names and its true p99 over the best one's, or why it names nothing.
    pub named: Result<(String, f64), Unnamed>,
    /// The truly best.
    pub best: String,
    /// The true p99 of the shipped default over the best one's.
    pub unchanged: f64,
}

/// Why a replay names nothing.
#[derive(Clone, Debug, Error)]
pub enum Unnamed {
    /// There is no world.
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    /// The rebuilt world is not believed.
    #[error("{0}")]
    Day(Refusal),
    /// One of the candidates has no answer.
    #[error("{0}: {1}")]
    Policy(String, Refusal),
    /// All of them would fill the slots.
    #[error("every candidate would fill the slots in some minute")]
    Full,
}

impl Choice {
    /// Whether it is within 5 % of the best.
    pub fn is_right(&self) -> bool {
        self.named.as_ref().is_ok_and(|(_, ratio)| *ratio <= 1.0 + ABOVE_MAX)
    }

    /// On one line, for people.
    pub fn told(&self) -> String {
        let named = match &self.named {
            Ok((policy, ratio)) => {
                let right = if self.is_right() { "right" } else { "WRONG" };
                format!("names {policy}: {ratio:.3} x the best, {right}")
            }
            Err(refusal) => format!("refused: {refusal}"),
        };
        let Self { seed, world, best, unchanged, .. } = self;
        format!("{seed}: {world}: best {best}, as it was {unchanged:.3} x; {named}")
    }
}

/// The world of a seed, and what was drawn in words.
///
/// # Errors
/// When its text is wrong.
pub fn world(seed: u64, requests: u64) -> Result<(Scenario, String), Problems> {
    let mut rng = Rng::stream(seed, "a world that nobody chose");
    let mut between = |low: f64, high: f64| low * (high / low).powf(rng.unit());
    let (servers, slots) = (between(3.0, 9.0) as u32, between(1.0, 9.0) as u32);
    let (service_us, cv) = (between(1_000.0, 20_000.0) as u64, between(0.5, 2.5));
    let shared = between(1.0, 2.0) - 1.0;
    let (interval_ms, range) = (between(500.0, 20_000.0) as u64, between(1.0, 3.0));
    let load = between(0.3, 0.75);
    let (every_s, pause_ms) = (between(3.0, 40.0), between(20.0, 300.0) as u64);
    let slow = between(1.0, 4.0);
    let mut text = format!(
        "[run]
policies = ['{DEFAULT}']
hedge = {{ quantile = 0.95, budget = '5%' }}
[network]
one_way = '100us'
jitter = '20us'
[cluster]
servers = {servers}
concurrency = {slots}
service_mean = '{service_us}us'
replication_factor = {servers}
service_cv = {cv:.3}
work_shared = {shared:.3}
[fluctuation]
interval = '{interval_ms}ms'
range = {range:.2}
[workload]
cancel = true
clients = 1
requests = {requests}
utilisation = {load:.3}
[[faults]]
at = '0s'
every = '{every_s:.1}s'
pause = 'each'
for = '{pause_ms}ms'
for_max = '{}ms'
",
        2 * pause_ms
    );
    // One world in two has a replica that is slower than the others.
    let has_slow = slow > 2.0;
    if has_slow {
        let _ = write!(text, "[[faults]]\nat = '0s'\nslow = 0\nfactor = {slow:.2}\n");
    }
    let words = format!(
        "{servers} x {slots}, {service_us} us, cv {cv:.1}, shared {shared:.2}, speed x {range:.1} \
         each {interval_ms} ms, load {load:.2}, pauses {pause_ms} ms each {every_s:.0} s{}",
        if has_slow { format!(", one {slow:.1} x slower") } else { String::new() }
    );
    let node = Node::parse(&text, "random world")?;
    Ok((Scenario::read(&node)?, words))
}

/// Records the day of a seed and asks which policy would have been best.
///
/// # Errors
/// When the world's text is wrong.
pub fn choose(seed: u64, requests: u64) -> Result<Choice, Problems> {
    let (scenario, words) = world(seed, requests)?;
    let candidates: Vec<String> =
        POLICIES.iter().flat_map(|name| [(*name).to_owned(), format!("{name}+hedge")]).collect();
    let truth: Vec<f64> =
        candidates.iter().map(|policy| truth_ns(&scenario, policy, seed)).collect();
    let best_ns = truth.iter().copied().fold(f64::INFINITY, f64::min);
    let best = truth.iter().position(|ns| *ns == best_ns).unwrap_or(0);
    let named = named(&scenario, &candidates, seed, requests);
    let named = named.map(|place| (candidates[place].clone(), truth[place] / best_ns));
    // The first candidate is the default.
    let unchanged = truth[0] / best_ns;
    Ok(Choice { seed, world: words, named, best: candidates[best].clone(), unchanged })
}

fn truth_ns(scenario: &Scenario, policy: &str, seed: u64) -> f64 {
    let day = record(scenario, policy, seed, RecordConfig::default());
    percentile(&day.latencies(0), TESTED).map_or(f64::INFINITY, |ns| ns as f64)
}

/// Which of these a replay finds best, or why it has no answer. Those that would fill the slots are
/// left out: their p99 is a matter of coins, and nobody would choose them.
fn named(
    scenario: &Scenario,
    candidates: &[String],
    seed: u64,
    requests: u64,
) -> Result<usize, Unnamed> {
    let explored = windows(requests as f64 / scenario.rate(), EXPLORED_SHARE, seed);
    let explore = Some((EXPLORED.to_owned(), explored));
    let config = RecordConfig { explore, pairs: PAIRS, ..RecordConfig::default() };
    let day = record(scenario, DEFAULT, seed, config);
    let twin = Twin::rebuild(&day, seed)?;
    drop(day);
    let observed = Observed::new(&twin, None);
    let setup = Setup {
        like: scenario,
        recorded: DEFAULT,
        explored: Some(EXPLORED),
        pairs: PAIRS,
        whole_max: WHOLE_MAX,
    };
    tests(&twin, &setup, &observed).map_err(Unnamed::Day)?;
    let mut best: Option<(f64, usize)> = None;
    for (place, policy) in candidates.iter().enumerate() {
        let change = Change::policy(policy);
        let refused = |refusal| Unnamed::Policy(policy.clone(), refusal);
        let answer = predict(&twin, &setup, &observed, &change, &[TESTED]).map_err(refused)?;
        match answer.is_sure(&twin, &change) {
            Err(Refusal::Busy(_)) => continue,
            sure => sure.map_err(refused)?,
        }
        let value_ns = answer.percentiles[0].value_ns;
        if best.is_none_or(|(best_ns, _)| value_ns < best_ns) {
            best = Some((value_ns, place));
        }
    }
    best.map(|(_, place)| place).ok_or(Unnamed::Full)
}

/// What all choices together say, beside the bar.
pub fn summary(choices: &[Choice]) -> String {
    let given = choices.iter().filter(|one| one.named.is_ok()).count();
    let right = choices.iter().filter(|one| one.is_right()).count();
    let mut unchanged: Vec<f64> = choices.iter().map(|one| one.unchanged).collect();
    unchanged.sort_by(f64::total_cmp);
    let already = unchanged.iter().filter(|ratio| **ratio <= 1.0 + ABOVE_MAX).count();
    format!(
        "days: {}, refused {}, named within 5 % of the best: {right} of {given} (bar nine of ten)\n\
         the default itself was within 5 % of the best on {already} of {}; in the middle {:.3} x\n",
        choices.len(),
        choices.len() - given,
        choices.len(),
        unchanged.get(unchanged.len() / 2).copied().unwrap_or(f64::NAN),
    )
}

#[cfg(test)]
mod tests {
    use super::world;

    #[test]
    fn every_seed_has_a_world_and_worlds_differ() {
        let mut words: Vec<String> = (1..=200)
            .map(|seed| world(seed, 1_000).unwrap_or_else(|problems| panic!("{problems}")).1)
            .collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 200);
    }
}
