//! What one worker's front counts.

use std::cell::Cell;

use crate::cluster_state::ClusterState;

/// What one worker's front has counted since it began, for whoever shows it.
#[derive(Debug, Default)]
pub struct FrontCounts {
    /// Clients that are connected.
    pub(crate) connections: Cell<usize>,
    /// Clients that were taken.
    pub(crate) accepted: Cell<u64>,
    /// Requests of all kinds that were read.
    pub(crate) requests: Cell<u64>,
    /// Of them: questions about the cluster that were answered here.
    pub(crate) answered_here: Cell<u64>,
    /// Executions of a prepared statement that nobody here knew.
    pub(crate) unprepared: Cell<u64>,
    /// Connections closed because what came was not the protocol.
    pub(crate) protocol_errors: Cell<u64>,
    /// Connections closed because the client took too long: to begin, to read, or to say anything.
    pub(crate) timeouts: Cell<u64>,
    /// Changes of the schema that were passed on.
    pub(crate) events: Cell<u64>,
}

impl FrontCounts {
    /// Adds these counts to those of other listeners.
    pub(crate) fn add_to(&self, state: &mut ClusterState) {
        state.clients += self.connections.get();
        state.accepted += self.accepted.get();
        state.requests += self.requests.get();
        state.answered_here += self.answered_here.get();
        state.unprepared += self.unprepared.get();
        state.protocol_errors += self.protocol_errors.get();
        state.timeouts += self.timeouts.get();
        state.events += self.events.get();
    }
}

/// One more.
pub(super) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
