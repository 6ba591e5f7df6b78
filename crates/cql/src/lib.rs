//! Cassandra's native protocol as bytes, and what can be told from a statement's text.
//!
//! Nothing here opens a socket or reads a clock: `evenkeel-net` does, and so do the tests.
//! Everything that comes from a peer is checked before it is believed: lengths before they are
//! allocated, checksums before bodies, and every error says what came and what was expected.

pub mod statement;

pub use evenkeel_core::request::ring::Consistency;
