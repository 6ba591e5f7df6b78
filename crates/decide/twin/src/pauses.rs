//! Pauses: gaps in which nobody left a replica, although those in service would have.
//!
//! A gap is a pause when everybody in service survives it with a probability below 10^-5, by the
//! law of works and the speed of the moment. Somebody would have left a while after the last
//! departure, and nobody leaves at once after a pause: the pause is the gap without these two.

use std::collections::VecDeque;

use crate::order::sort;
use crate::visits::Visit;
use crate::works::Works;

/// `-ln 10^-5`.
const UNLIKELY: f64 = 11.5;

/// Of up to so many in service it is known when they show nothing.
const HARMLESS: usize = 64;

/// Everything on a replica stood still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pause {
    /// From, ns.
    pub from_ns: u64,
    /// To, ns.
    pub to_ns: u64,
}

/// When the services of a replica began and ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Times {
    /// Of each, from when until when, ns, and whether content was left out.
    began: Vec<(u64, u64, bool)>,
    /// When those ended that were not given up, in order, ns.
    left: Vec<u64>,
}

impl Times {
    /// Those of these visits, and when they began.
    pub fn new(visits: &[Visit], starts: &[Option<u64>]) -> Self {
        let all =
            || visits.iter().zip(starts).filter_map(|(visit, start)| Some((visit, (*start)?)));
        let began = all().map(|(visit, start)| (start, visit.left_ns, visit.is_lean)).collect();
        let ended = all().filter(|(visit, _)| !visit.is_cut);
        let mut left: Vec<u64> = ended.map(|(visit, _)| visit.left_ns).collect();
        sort(&mut left, |left_ns| *left_ns);
        Self { began, left }
    }
}

/// The pauses of a replica; `mean` is that of the works, and `scale_ns` the service time of a work
/// of 1 at a moment; without content it is less, by `lighter` as a logarithm.
pub fn find(
    times: &Times,
    works: &Works,
    (mean, lighter): (f64, f64),
    scale_ns: impl Fn(u64) -> f64,
) -> Vec<Pause> {
    let Times { began, left } = times;
    let is_some_lean = began.iter().any(|(.., is_lean)| *is_lean);
    let shift_max = if is_some_lean { lighter.max(0.0).exp() } else { 1.0 };
    let mut pauses = Vec::new();
    let (mut next, mut present) = (0, VecDeque::new());
    // So many in service, each for at most this multiple of the speed, show nothing.
    let harmless: Vec<f64> =
        (0..HARMLESS).map(|count| works.at_hazard(UNLIKELY / count as f64).exp()).collect();
    for pair in left.windows(2) {
        let (from_ns, to_ns) = (pair[0], pair[1]);
        while let Some(one) = began.get(next).filter(|(start, ..)| *start < to_ns) {
            present.push_back(*one);
            next += 1;
        }
        present.retain(|(_, left_ns, _)| *left_ns > from_ns);
        let scale = scale_ns(from_ns);
        if (to_ns - from_ns) as f64 * 4.0 < scale {
            continue;
        }
        let age_ns = |one: &(u64, u64, bool)| to_ns.min(one.1).saturating_sub(one.0);
        let age_ns = present.iter().map(age_ns).max().unwrap_or(0) as f64 * shift_max;
        if harmless.get(present.len()).is_some_and(|least| age_ns < scale * least) {
            continue;
        }
        let hazard = |(start, left_ns, is_lean): &(u64, u64, bool)| {
            let shift = if *is_lean { lighter } else { 0.0 };
            let log = |ns: u64| (ns.max(1) as f64 / scale).ln() + shift;
            let until = works.hazard(log(to_ns.min(*left_ns).saturating_sub(*start)));
            match from_ns.checked_sub(*start) {
                Some(age_ns) if age_ns > 0 => (until - works.hazard(log(age_ns))).max(0.0),
                _ => until,
            }
        };
        if present.iter().map(hazard).sum::<f64>() > UNLIKELY {
            let old = present.iter().filter(|(start, ..)| *start <= from_ns).count();
            pauses.push(within(from_ns, to_ns, scale * mean, old, present.len()));
        }
    }
    pauses
}

/// The gap without the time in which somebody would have left before the pause, and after it.
fn within(from_ns: u64, to_ns: u64, service_ns: f64, before: usize, after: usize) -> Pause {
    let gap_ns = to_ns - from_ns;
    let edge_ns = |count: usize| ((service_ns / count.max(1) as f64) as u64).min(gap_ns / 4);
    Pause { from_ns: from_ns + edge_ns(before), to_ns: to_ns - edge_ns(after) }
}

/// How long a replica stood still in a time, ns.
pub fn overlap_ns(pauses: &[Pause], from_ns: u64, to_ns: u64) -> u64 {
    let first = pauses.partition_point(|pause| pause.to_ns <= from_ns);
    let within = pauses[first..].iter().take_while(|pause| pause.from_ns < to_ns);
    within.map(|pause| pause.to_ns.min(to_ns) - pause.from_ns.max(from_ns)).sum()
}

/// The share of pauses in which all other replicas stood still too.
pub fn shared(replicas: &[Vec<Pause>]) -> f64 {
    let all = replicas.iter().map(Vec::len).sum::<usize>();
    let is_shared =
        |one: &Pause| replicas.iter().all(|other| overlap_ns(other, one.from_ns, one.to_ns) > 0);
    let shared = replicas.iter().flatten().filter(|one| is_shared(one)).count();
    if all == 0 || replicas.len() < 2 { 0.0 } else { shared as f64 / all as f64 }
}
