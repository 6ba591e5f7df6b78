//! Requests of a plan that miss the objective, by data centre, in parts per million of a quantum.

use evenkeel_geo::{ALL_PPM, Answer, Problem};

/// Of a data centre that serves all that arrives there.
pub(super) fn violations_if_local(problem: &Problem, site: usize) -> u64 {
    let demand = problem.demand()[site];
    u64::from(demand) * u64::from(problem.violation_ppm(site, site, demand))
}

/// Of the requests that arrive at a data centre, shed ones included.
pub(super) fn violations(problem: &Problem, answer: &Answer, site: usize) -> u64 {
    let at = |(to, &quanta): (usize, &u32)| {
        u64::from(quanta) * u64::from(problem.violation_ppm(site, to, answer.loads[to]))
    };
    let served: u64 = answer.rates[site].iter().enumerate().map(at).sum();
    served + u64::from(ALL_PPM) * u64::from(answer.shed[site])
}

/// Violations as a share of what is demanded, in quanta.
pub(super) fn share(violations: u64, demand: u32) -> f64 {
    if demand == 0 { 0.0 } else { violations as f64 / f64::from(ALL_PPM) / f64::from(demand) }
}

/// The same in text.
pub(super) fn percent(violations: u64, demand: u32) -> String {
    format!("{:.3} %", 100.0 * share(violations, demand))
}
