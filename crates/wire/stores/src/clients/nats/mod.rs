//! NATS, through its client protocol.

pub mod session;
pub mod wire;
