//! Cassandra's native protocol: clients on one side, nodes on the other.
#![allow(dead_code, unused_imports, reason = "the front waits for the route that it is before")]

pub mod cluster;
mod events;
pub(crate) mod front;
pub mod node;
mod prepared;
mod session;
pub(crate) mod system;
