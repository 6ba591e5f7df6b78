//! Clients of Cassandra: accepted, understood, answered.
//!
//! [`serve`] has them [accepted](evenkeel_runtime::accept), `connection` is the loop around one of
//! them, and what a message means is decided in `session`, which has no socket. A request becomes
//! a task of its own; answers go out as they come, those that come together in one write
//! (and in v5 in one segment). A connection holds a bounded number of requests and bytes in flight:
//! with more, nothing further is read, so that the client waits in its own socket.
//!
//! Where requests go is for the [`Backend`] to say.

mod accept;
mod agreement;
mod backend;
mod connection;
mod counts;
mod refusal;
mod settings;
mod subscriber;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use accept::serve;
pub(crate) use backend::{Asked, Backend, Conversation, Request};
pub use counts::FrontCounts;
pub(crate) use refusal::Refusal;
pub(crate) use settings::Own;
pub use settings::{FrontSettings, IDLE};
