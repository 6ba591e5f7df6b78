//! Cassandra's native protocol: clients on one side, nodes on the other.

pub mod agent;
pub mod cluster;
pub mod feedback;
pub mod node;
mod poll;
