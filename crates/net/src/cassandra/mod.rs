//! Cassandra's native protocol: clients on one side, nodes on the other.

pub mod cluster;
pub mod node;
