//! Cassandra's native protocol: as bytes, as statements, and spoken to nodes.
//!
//! Only [`client`] opens sockets and reads a clock; the rest is bytes in, bytes out. What comes
//! from a peer is checked before it is believed: lengths before they are allocated, checksums
//! before bodies, and every error says what came and what was expected.
//!
//! [`codec`] cuts a connection's bytes into [`Envelope`]s and joins them again. What passes through
//! is forwarded with its body as it came, a slice of what was read; [`request`] and [`response`]
//! look into bodies without copying them. Source: `native_protocol_v4.spec` and
//! `native_protocol_v5.spec` of Cassandra 5.0.

pub mod client;
pub mod codec;
mod envelope;
mod error;
pub mod key;
pub mod payload;
mod read;
pub mod request;
pub mod response;
pub mod rows;
pub mod statement;
pub mod types;
pub mod value;
pub mod write;

pub use envelope::{Envelope, Flags, Opcode, Version};
pub use error::{ErrorCode, Fault, Malformed, Problem, WireError};
pub use evenkeel_core::request::ring::Consistency;
pub use read::{Inet, Reader, Value};
