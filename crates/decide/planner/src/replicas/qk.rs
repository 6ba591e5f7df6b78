//! Algorithm 5 of the paper, QK: for every leader the sites of its quorum first, then the rest by
//! k-means with equation 1, and the best leader of all.
//!
//! It fixes a majority of replicas near the leader, also where few transactions would notice: good
//! for many transactions, wasteful for many reads.

use super::super::model::majority;
use super::demands::Demands;
use super::kmeans::{self, Field};
use super::problem::{Found, Problem};
use super::swap;

pub(super) fn find(problem: &Problem<'_>) -> Found {
    let heaviest = Demands::of_all_operations(problem.counts, problem.trips);
    let heaviest = heaviest.heaviest(problem.counts, &problem.allowed);
    let mut demands = Demands::default();
    let mut best: Option<Found> = None;
    for &leader in &problem.allowed {
        let centroids = centroids(problem, leader);
        if centroids.len() > problem.question.replicas {
            continue; // fixed sites leave no room for this leader's quorum
        }
        if best.as_ref().is_some_and(|best| problem.is_above(leader, best.value)) {
            continue; // no set of this leader is better
        }
        problem.lead(&mut demands, leader);
        let field = Field { problem, demands: &demands, heaviest: &heaviest };
        let replicas = kmeans::sites(&field, &centroids, problem.question.replicas);
        let value = problem.value(leader, &demands, &replicas);
        let found = Found { value, leader, replicas };
        best = Some(match best {
            None => found,
            Some(best) => best.better(found),
        });
    }
    match best {
        Some(best) => swap::mend(problem, best),
        None => super::kq::find(problem),
    }
}

/// The leader, its quorum and the sites that are fixed anyway.
fn centroids(problem: &Problem<'_>, leader: usize) -> Vec<usize> {
    let row = problem.trips.from_site(leader);
    let mut near: Vec<usize> = problem.allowed.clone();
    near.sort_by(|a, b| (*a != leader).cmp(&(*b != leader)).then(row[*a].total_cmp(&row[*b])));
    near.truncate(majority(problem.question.voters));
    let fixed = problem.fixed.iter().copied().filter(|site| !near.contains(site));
    let fixed: Vec<usize> = fixed.collect();
    near.extend(fixed);
    near
}
