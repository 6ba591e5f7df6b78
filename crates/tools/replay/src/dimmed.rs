//! Worlds that dim and whose truth is known: what another setpoint would have done.
//!
//! The truth is the same world, with the same requests and the same weather, under the other
//! setpoint.

use std::fmt::Write as _;

use evenkeel_settings::{Node, Problems};
use evenkeel_sim::Scenario;
use evenkeel_sim::world::{RecordConfig, record, windows};
use evenkeel_twin::Twin;
use evenkeel_twin::rows::percentile;

use crate::answer::{Setup, WHOLE_MAX, predict, tests};
use crate::bars::{EXPLORED, EXPLORED_SHARE, PAIRS};
use crate::observed::Observed;
use crate::world::Change;

/// How far off the share served in full may be, and p95 as a share.
const BARS: (f64, f64) = (0.05, 0.10);
const P95: f64 = 0.95;
const RECORDED: &str = "least-outstanding";

/// Worlds by their names, and what they have in place of the first one's.
pub const WORLDS: [(&str, &[&str]); 4] = [
    ("steps", &[]),
    ("even", &["workload.phases=[]", "workload.utilisation=1.1"]),
    ("uneven", &["fluctuation.interval='4s'", "fluctuation.range=2", "work.cv_mandatory=1.6"]),
    ("two slots", &["replicas=[{cores=2,workers=2},{cores=2,workers=2},{cores=2,workers=2}]"]),
];

/// Setpoints that are asked about, as multiples of the recorded one.
const FACTORS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
const SETPOINT_MS: f64 = 80.0;

const BASE: &str = "\
replicas = [
    { cores = 4, workers = 4 },
    { cores = 4, workers = 4 },
    { cores = 4, workers = 4 },
    { cores = 4, workers = 4, speed = 0.7 },
]
[run]
policies = ['c3']
[work]
optional = '12ms'
mandatory = '3ms'
cv = 0.8
[dimmer]
setpoint = '80ms'
[network]
one_way = '100us'
jitter = '20us'
[workload]
clients = 1
cancel = true
utilisation = 1.0
[[workload.phases]]
at = '0s'
rate_factor = 0.7
[[workload.phases]]
at = '30s'
rate_factor = 1.4
[[workload.phases]]
at = '60s'
rate_factor = 0.9
[[workload.phases]]
at = '90s'
rate_factor = 1.2
[[faults]]
at = '0s'
every = '10s'
pause = 'each'
for = '50ms'
for_max = '200ms'
";

/// One setpoint of one world at one seed.
#[derive(Clone, Debug)]
pub struct Dimmed {
    /// The world and the seed.
    pub world: String,
    /// The setpoint, ms.
    pub setpoint_ms: f64,
    /// Why there is no answer.
    pub refusal: Option<String>,
    /// Share served in full: predicted, true, recorded.
    pub full: [f64; 3],
    /// The 95th percentile: predicted, true, recorded, ms.
    pub p95_ms: [f64; 3],
}

impl Dimmed {
    /// Whether both are within their bars.
    pub fn is_right(&self) -> bool {
        let [predicted, truth, _] = self.p95_ms;
        (self.full[0] - self.full[1]).abs() <= BARS.0 && (predicted / truth - 1.0).abs() <= BARS.1
    }

    /// On one line, for people.
    pub fn told(&self) -> String {
        let Self { world, setpoint_ms, refusal, full, p95_ms } = self;
        let [full, truly, recorded] = full.map(|share| 100.0 * share);
        let off = 100.0 * (p95_ms[0] / p95_ms[1] - 1.0);
        let end = match (refusal, self.is_right()) {
            (Some(refusal), _) => format!("refused: {refusal}"),
            (None, true) => "right".to_owned(),
            (None, false) => "WRONG".to_owned(),
        };
        format!(
            "{world}: {setpoint_ms:.0} ms: full {full:.1} % (truly {truly:.1}, recorded \
             {recorded:.1}), p95 {:.1} ms ({off:+.1} %, recorded {:.1}): {end}",
            p95_ms[0], p95_ms[2],
        )
    }
}

fn scenario(sets: &[&str], requests: u64, setpoint_ms: f64) -> Result<Scenario, Problems> {
    let mut node = Node::parse(BASE, "dimmed world")?;
    let own =
        [format!("workload.requests={requests}"), format!("dimmer.setpoint='{setpoint_ms:.3}ms'")];
    for set in sets.iter().copied().chain(own.iter().map(String::as_str)) {
        node.set(set)?;
    }
    Scenario::read(&node)
}

/// Asks about all setpoints of a world at a seed; says what it found on the way.
///
/// # Errors
/// When the world's text is wrong.
pub fn ask(
    (name, sets): (&str, &[&str]),
    requests: u64,
    seed: u64,
) -> Result<(Vec<Dimmed>, String), Problems> {
    let like = scenario(sets, requests, SETPOINT_MS)?;
    let explored = windows(requests as f64 / like.rate(), EXPLORED_SHARE, seed);
    let explore = Some((EXPLORED.to_owned(), explored));
    let config = RecordConfig { explore, pairs: PAIRS, ..RecordConfig::default() };
    let day = record(&like, RECORDED, seed, config);
    let twin = match Twin::rebuild(&day, seed) {
        Ok(twin) => twin,
        Err(error) => return Ok((Vec::new(), error.to_string())),
    };
    drop(day);
    let observed = Observed::new(&twin, None);
    let setup = Setup {
        like: &like,
        recorded: RECORDED,
        explored: Some(EXPLORED),
        pairs: PAIRS,
        whole_max: WHOLE_MAX,
    };
    let tested = tests(&twin, &setup, &observed);
    let mut all = Vec::new();
    for factor in FACTORS {
        let setpoint_ms = SETPOINT_MS * factor;
        let other = scenario(sets, requests, setpoint_ms)?;
        let day = record(&other, RECORDED, seed, RecordConfig::default());
        let (full, known) = day.full();
        let ms = |ns: Option<u64>| ns.map_or(f64::NAN, |ns| ns as f64 * 1e-6);
        let change = Change::policy(RECORDED);
        let asked = Setup { like: &other, ..setup.clone() };
        let answer = predict(&twin, &asked, &observed, &change, &[P95]);
        let sure = answer.as_ref().map_err(|refusal| *refusal);
        let sure = sure.and_then(|answer| answer.is_sure(&twin, &change));
        let value = answer.as_ref().ok();
        let predicted_ns = value.and_then(|answer| answer.percentiles.first());
        all.push(Dimmed {
            world: format!("{name} seed {seed}"),
            setpoint_ms,
            refusal: tested.and(sure).err().map(|refusal| refusal.to_string()),
            full: [
                value.and_then(|answer| answer.full).unwrap_or(1.0),
                full as f64 / known.max(1) as f64,
                twin.content.as_ref().map_or(1.0, |content| content.full),
            ],
            p95_ms: [
                predicted_ns.map_or(f64::NAN, |one| one.value_ns * 1e-6),
                ms(percentile(&day.latencies(0), P95)),
                ms(percentile(&observed.latencies[0], P95)),
            ],
        });
    }
    let mut notes = crate::day::described(&twin);
    if let Ok([backtest, slice]) = tested {
        let (backtest, slice) = (100.0 * backtest.off, 100.0 * slice.off);
        let _ = write!(notes, "; backtest {backtest:+.1} %, slices {slice:+.1} %");
    }
    Ok((all, notes))
}

/// What all together say, beside the bars.
pub fn summary(all: &[Dimmed]) -> String {
    let given: Vec<&Dimmed> = all.iter().filter(|one| one.refusal.is_none()).collect();
    let right = given.iter().filter(|one| one.is_right()).count();
    let most = |off: fn(&Dimmed) -> f64| given.iter().map(|one| off(one)).fold(0.0, f64::max);
    let full = most(|one| (one.full[0] - one.full[1]).abs());
    let p95 = most(|one| (one.p95_ms[0] / one.p95_ms[1] - 1.0).abs());
    format!(
        "setpoints: {}, refused {}, right {right} of {} (bars: full within 5 points, at most \
         {:.1} here; p95 within 10 %, at most {:.1} % here)\n",
        all.len(),
        all.len() - given.len(),
        given.len(),
        100.0 * full,
        100.0 * p95,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_world_is_a_scenario_with_a_dimmer() {
        for (name, sets) in WORLDS {
            let scenario = scenario(sets, 1_000, 50.0);
            let scenario = scenario.unwrap_or_else(|problems| panic!("{name}: {problems}"));
            assert_eq!(scenario.dimmer.map(|dimmer| dimmer.setpoint.as_millis()), Some(50));
        }
    }
}
