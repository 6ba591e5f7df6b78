//! Algorithm 4 of the paper, KQ: replicas first, by k-means over all operations (equation 3), then
//! the leader and voters among them (tier 2).

use super::demands::Demands;
use super::kmeans::{self, Field};
use super::problem::{Found, Problem};
use super::swap;

pub(super) fn find(problem: &Problem<'_>) -> Found {
    let demands = Demands::of_all_operations(problem.counts, problem.trips);
    let heaviest = demands.heaviest(problem.counts, &problem.allowed);
    let field = Field { problem, demands: &demands, heaviest: &heaviest };
    let replicas = kmeans::sites(&field, &problem.fixed, problem.question.replicas);
    swap::mend(problem, problem.led(replicas))
}
