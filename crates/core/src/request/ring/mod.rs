//! Stores whose keys lie on a ring of tokens: which replicas hold a key, and where its requests may
//! go.

mod consistency;

pub use consistency::Consistency;
