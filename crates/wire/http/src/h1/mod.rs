//! HTTP/1.1 by bytes: the engine `native`, both halves.
//!
//! | file | what |
//! |---|---|
//! | `server.rs` | one connection of a client: a request, its answer, and again |
//! | `client_io.rs` | what is read and written there, shared with the request's body |
//! | `client.rs` | one connection to a replica: a request, its response, and again |
//! | `request_head.rs`, `response_head.rs` | heads from bytes and as bytes |
//! | `framing.rs` | what heads say of bodies and of the connection |
//! | `decoder.rs` | a body from bytes |
//! | `inbox.rs` | what was read; an idle connection holds no buffer |
//! | `outbox.rs` | what is to be written: heads and pieces of bodies, joined or as slices |
//! | `date.rs` | the line `date` |
//! | `promises.rs` | what parsers promise of any bytes, for tests and `fuzz/` |
//!
//! hyper is the reference: what one accepts or refuses the other must too (`tests/` runs on both).
//! Nothing here has a task, a channel or a waker of its own: whoever waits for an answer polls the
//! connection, and the socket wakes that task.

pub(super) mod client;
pub(super) mod client_io;
mod date;
mod decoder;
mod framing;
mod inbox;
mod outbox;
#[cfg(any(test, feature = "testing"))]
pub mod promises;
mod request_head;
mod response_head;
pub(super) mod server;
