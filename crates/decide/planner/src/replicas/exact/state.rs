//! What the nodes of one leader's tree share.

use super::super::super::model::majority;
use super::super::demands::Demands;
use super::super::problem::{Found, Problem};
use super::Search;
use super::lists::{Lists, Wishes};

/// What all nodes under one leader share.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) leader: usize,
    pub(super) demands: Demands,
    /// Allowed sites by their distance from the leader, itself among them.
    pub(super) by_distance: Vec<usize>,
    /// Votes beside the leader's that a quorum needs at most.
    pub(super) votes_max: usize,
    pub(super) wishes: Wishes,
    /// Room for the lists of one node.
    pub(super) lists: Lists,
}

impl<'a> Tree<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, leader: usize) -> Self {
        let demands = problem.demands(leader);
        let wishes = Wishes::new(problem, &demands, leader);
        let row = problem.trips.from_site(leader);
        let mut by_distance = problem.allowed.clone();
        by_distance.sort_by(|a, b| row[*a].total_cmp(&row[*b]));
        let votes_max = majority(problem.question.voters);
        Self { problem, leader, demands, by_distance, votes_max, wishes, lists: Lists::default() }
    }

    /// Offers the set of open sites as an answer, if it keeps the limits.
    pub(super) fn offer(&self, search: &mut Search, mut replicas: Vec<usize>) {
        replicas.sort_unstable();
        if self.problem.violation(&replicas) == 0 {
            let value = self.problem.value(self.leader, &self.demands, &replicas);
            search.offer(Found { value, leader: self.leader, replicas });
        }
    }
}
