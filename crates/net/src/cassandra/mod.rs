//! Cassandra's native protocol: clients on one side, nodes on the other.

mod events;
mod front;
mod prepared;
mod session;
pub(crate) mod system;
