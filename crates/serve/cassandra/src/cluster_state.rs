//! How a Cassandra cluster stands with the workers of a process.

use std::sync::{Mutex, PoisonError};

use evenkeel_core::request::ring::Stays;

use evenkeel_cql::client::{FeedbackSource, NodeCounts};

/// How a Cassandra cluster stands with one worker, or with all of them: counts since they began.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// Requests that no other site might serve, by the first reason ([`Stays::ALL`]).
    pub stayed: [u64; Stays::ALL.len()],
    /// Clients that are connected.
    pub clients: usize,
    /// Clients that were taken.
    pub accepted: u64,
    /// Their requests of all kinds.
    pub requests: u64,
    /// Of these, questions about the cluster that were answered here.
    pub answered_here: u64,
    /// Executions of statements that nobody here knew: their drivers prepared them again.
    pub unprepared: u64,
    /// Clients whose bytes were not the protocol.
    pub protocol_errors: u64,
    /// Clients that took too long: to begin, to read, or to say anything.
    pub timeouts: u64,
    /// Changes of the schema that clients were told of.
    pub events: u64,
    /// The nodes at home, by slot.
    pub nodes: Vec<NodeState>,
}

/// How one node stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeState {
    /// Requests that were given up and that the node has not answered yet.
    pub orphans: usize,
    /// Where its reports come from.
    pub source: FeedbackSource,
    /// What was counted.
    pub counts: NodeCounts,
}

impl ClusterState {
    /// Adds what another worker counted.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.stayed.iter_mut().zip(other.stayed) {
            *sum += count;
        }
        self.clients += other.clients;
        self.accepted += other.accepted;
        self.requests += other.requests;
        self.answered_here += other.answered_here;
        self.unprepared += other.unprepared;
        self.protocol_errors += other.protocol_errors;
        self.timeouts += other.timeouts;
        self.events += other.events;
        if self.nodes.len() < other.nodes.len() {
            self.nodes.resize(other.nodes.len(), NodeState::default());
        }
        for (sum, node) in self.nodes.iter_mut().zip(&other.nodes) {
            sum.merge(node);
        }
    }
}

impl NodeState {
    fn merge(&mut self, other: &Self) {
        self.orphans += other.orphans;
        if self.source == FeedbackSource::None {
            self.source = other.source;
        }
        let (sum, counts) = (&mut self.counts, &other.counts);
        sum.opened += counts.opened;
        sum.failed += counts.failed;
        sum.retired += counts.retired;
        sum.heartbeats += counts.heartbeats;
        sum.prepared_again += counts.prepared_again;
        sum.reports += counts.reports;
        sum.reports_refused += counts.reports_refused;
    }
}

/// How a cluster stands with each worker of the process.
#[derive(Debug, Default)]
pub struct ClusterStates(Mutex<Vec<ClusterState>>);

impl ClusterStates {
    /// Takes over what one worker says of itself.
    pub fn note(&self, worker: usize, state: ClusterState) {
        // A worker that panicked left whole numbers behind: they are still worth showing.
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if states.len() <= worker {
            states.resize_with(worker + 1, ClusterState::default);
        }
        states[worker] = state;
    }

    /// How it stands with all of them.
    pub fn total(&self) -> ClusterState {
        let mut sum = ClusterState::default();
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.iter().for_each(|state| sum.merge(state));
        sum
    }
}
