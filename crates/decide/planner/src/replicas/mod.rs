//! Tier 3: where replicas should be, who of them votes and who leads (section 5 of the paper).
//!
//! The paper calls exhaustive search out of reach and gives two heuristics. Both are here, and
//! what they miss: a search by swaps that starts from them, and an exact one that proves its answer
//! or says how far it may be from the best. On real matrices the better of the paper's two is 6–8 %
//! above the optimum on average, swaps end within 0.1 % of it.
//!
//! | file | what it is |
//! |---|---|
//! | [`question`] | what is asked, and what is answered |
//! | `problem` | the same made ready: waits by leader, limits, the value of a set |
//! | `demands` | who goes where and what it costs, under one leader |
//! | `quorum` | the radius within which a leader finds its quorum, and who votes |
//! | `kmeans`, `kq`, `qk` | algorithms 3, 4 and 5, corrected |
//! | `swap` | descent by exchanging one site at a time |
//! | `brute` | all sets, for tests and for the few sites where it is quicker than thinking |
//! | `exact` | branch and bound under every leader |
//! | [`mod@worth`] | how many replicas are worth their price |

mod brute;
mod demands;
mod exact;
mod kmeans;
mod kq;
mod problem;
mod qk;
pub mod question;
mod quorum;
mod swap;
pub mod worth;

pub use question::{DomainLimits, Method, NoPlacement, Placed, Question, Site};
pub use worth::{Worth, worth};

use super::model::{Counts, RoundTrips};
use problem::{Found, Problem};

/// Finds where replicas, voters and the leader should be, by the method asked for.
///
/// Equal questions have equal answers: effort is counted in nodes, never timed, and among sets of
/// equal value the one with the lower sites is taken.
///
/// # Errors
/// When the question and its numbers do not belong together, or no set keeps its limits.
pub fn place(
    counts: &Counts,
    trips: &RoundTrips,
    question: &Question,
) -> Result<Placed, NoPlacement> {
    let problem = Problem::new(counts, trips, question)?;
    let floor = problem.floor();
    let heuristic = |found: Found| problem.placed(&found, floor, 0);
    match question.method {
        Method::Kq => Ok(heuristic(kq::find(&problem))),
        Method::Qk => Ok(heuristic(qk::find(&problem))),
        Method::BestOf => Ok(heuristic(best_of(&problem))),
        Method::Swap => Ok(heuristic(by_swaps(&problem))),
        Method::Brute => {
            let found = brute::find(&problem)?;
            Ok(problem.placed(&found, f64::INFINITY, 0))
        }
        Method::Exact => {
            let proof = exact::find(&problem, by_swaps(&problem), question.nodes_max);
            Ok(problem.placed(&proof.found, proof.lower_bound_ms, proof.nodes))
        }
    }
}

/// The better of the paper's two.
fn best_of(problem: &Problem<'_>) -> Found {
    kq::find(problem).better(qk::find(problem))
}

/// Swaps from both of the paper's.
fn by_swaps(problem: &Problem<'_>) -> Found {
    let from = |found: Found| swap::descend(problem, found);
    from(kq::find(problem)).better(from(qk::find(problem)))
}

#[cfg(test)]
mod tests;
