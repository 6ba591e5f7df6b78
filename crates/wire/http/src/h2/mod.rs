//! HTTP/2 by the crate `h2`: clients that speak it, and replicas.
//!
//! Every stream is a request of its own: on the side of clients each has its own handler
//! (`server.rs`), on the side of replicas each has a place on one of a few connections
//! (`sessions.rs`, `call.rs`). What is passed between the sides has the form of HTTP/1.1
//! ([`head`](crate::head)); `heads.rs` turns it into that of a stream. `inflow.rs` and
//! `outflow.rs` are the bodies, with the flow control of streams as their back pressure.
//!
//! The windows of a stream and of its connection differ: a reader that takes nothing of one stream
//! must not stop the others.

pub(crate) mod call;
pub(crate) mod flood;
pub(crate) mod frames;
pub(crate) mod heads;
pub(crate) mod inflow;
pub(crate) mod outflow;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod sessions;
mod wakes;

/// What may be on its way in one stream, in bytes.
const STREAM_WINDOW: u32 = 64 * 1024;

/// What may be on its way in all streams of a connection, in bytes.
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// What of a stream may wait to be written, in bytes.
const SEND_BUFFER: usize = 64 * 1024;

/// What a client sends first: a server that was told of no protocol knows HTTP/2 by it.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
