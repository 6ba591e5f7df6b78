//! Every set of sites with every leader of it.

use super::demands::Demands;
use super::problem::{Found, Problem};
use super::question::{Method, NoPlacement};

pub(super) fn find(problem: &Problem<'_>) -> Result<Found, NoPlacement> {
    let free: Vec<usize> =
        problem.allowed.iter().copied().filter(|site| !problem.fixed.contains(site)).collect();
    let choose = problem.question.replicas - problem.fixed.len();
    if sets(free.len(), choose).is_none_or(|sets| sets > Method::SETS_MAX) {
        let (replicas, sites) = (choose, free.len());
        return Err(NoPlacement::TooManySets { replicas, sites });
    }
    let demands: Vec<Demands> =
        (0..problem.sites()).map(|leader| problem.demands(leader)).collect();
    let mut best: Option<Found> = None;
    let mut places: Vec<usize> = (0..choose).collect();
    loop {
        let mut replicas: Vec<usize> = places.iter().map(|&place| free[place]).collect();
        replicas.extend(&problem.fixed);
        replicas.sort_unstable();
        if problem.violation(&replicas) == 0 {
            for &leader in &replicas {
                let value = problem.value(leader, &demands[leader], &replicas);
                if best.as_ref().is_none_or(|best| value < best.value) {
                    best = Some(Found { value, leader, replicas: replicas.clone() });
                }
            }
        }
        if !advance(&mut places, free.len()) {
            return Ok(best.expect("a question that no set answers is refused before"));
        }
    }
}

/// The next combination in rising order; false after the last.
fn advance(places: &mut [usize], of: usize) -> bool {
    let count = places.len();
    let Some(place) = (0..count).rev().find(|&place| places[place] < of - count + place) else {
        return false;
    };
    places[place] += 1;
    for next in place + 1..count {
        places[next] = places[next - 1] + 1;
    }
    true
}

/// How many combinations there are, none beyond the largest number.
fn sets(of: usize, choose: usize) -> Option<u64> {
    let choose = choose.min(of - choose);
    (0..choose).try_fold(1_u64, |sets, place| {
        Some(sets.checked_mul((of - place) as u64)? / (place as u64 + 1))
    })
}
