//! Stores whose keys lie on a ring of tokens: which replicas hold a key, and where its requests may
//! go.
//!
//! | module | decides |
//! |---|---|
//! | [`murmur`] | key → token, as Cassandra's default partitioner |
//! | [`replication`] | what a keyspace's replication options mean |
//! | [`replicas`] | token → replicas, in Cassandra's order, for each replication |
//! | [`layout`] | the groups of one data centre's dispatcher, and a request's group |
//! | [`mod@travel`] | which requests may have their coordinator in another data centre |
//!
//! The slow loops make these tables when the cluster changes; a request searches them without an
//! allocation.

mod consistency;
pub mod layout;
pub mod murmur;
pub mod replicas;
pub mod replication;
mod token;
pub mod travel;

pub use consistency::Consistency;
pub use layout::{Layout, LayoutInputs};
pub use replicas::{Node, ReplicaSets, Ring};
pub use replication::{Replication, ReplicationError};
pub use token::Token;
pub use travel::{Asked, Presence, Stays, may_fail_over, travel};
