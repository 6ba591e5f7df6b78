//! The HTTP engine: sockets, parsing, pooling and bodies, and no decision at all.
//!
//! # The boundary
//!
//! A proxy is written against six things, and none of them mentions hyper, so that a leaner
//! engine can replace this one without touching the proxy:
//!
//! | thing | meaning |
//! |---|---|
//! | [`serve`] | accept clients, hand each request to a handler, drain |
//! | [`Upstream`] | one replica: a pool of kept connections, [`Upstream::send`] is one attempt |
//! | [`Body`] | a message body in either direction; [`Body::on_end`] says how it ended |
//! | [`SendError`] | why an attempt failed, whether anything was sent, who is to blame |
//! | [`Request`], [`Response`] | messages, whose [`Fields`] stay in the bytes in which they came |
//! | [`head`] | what a proxy must change in a message head, and what it must refuse |
//!
//! [`grpc`] is what a proxy must know of gRPC. HTTP/2 is in `h2`, on both sides.
//!
//! # One task per client
//!
//! An upstream connection of HTTP/1.1 has no task of its own. Whoever waits for its answer drives
//! it: the client's task while the head is awaited, the response body while the body streams,
//! nobody while it is idle. That saves two task switches and two wake-ups per request, makes
//! cancellation plain (dropping the attempt closes the connection at once), and costs one rule:
//! an attempt that is not polled makes no progress. An attempt that must outlive its request
//! (to learn how slow a cancelled copy was) is spawned with `tokio::task::spawn_local`.
//!
//! A connection of HTTP/2 is shared by requests, so on the side of replicas it has a task. All
//! streams of a client are in that client's.
//!
//! # System calls
//!
//! A small proxied request costs two reads and two writes, the least a proxy can do: a head and
//! a body that fits with it leave in one write, an idle connection is checked for a pending
//! close without a system call (tokio remembers readiness), and timeouts of the client side
//! are swept once per tick rather than armed per request.

mod answer;
mod body;
mod client;
mod connection;
mod counts;
mod fetch;
mod fields;
pub mod grpc;
mod h1;
mod h2;
pub mod head;
mod hyper_client;
mod lease;
mod listener;
mod message;
mod parting;
mod piece;
mod relay;
mod replica_body;
mod send_error;
mod stall;
mod tunnel;
mod upstream;
mod wire;

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;
/// The same with the other engine.
#[cfg(test)]
#[path = "tests/mod.rs"]
#[expect(clippy::duplicate_mod, reason = "every test says something of both engines")]
mod tests_native;

pub use body::{Body, BodyError, End, Pace, Upload};
pub use client::Client;
pub use counts::{Counted, HttpCounts, Side, http_counts};
pub use fetch::fetch;
pub use fields::{FieldName, FieldValue, Fields, Repeated};
#[cfg(any(test, feature = "testing"))]
pub use h1::promises;
pub use listener::{LiveLimits, serve, serve_within};
pub use message::{Request, Response, request, response};
pub use send_error::{SendError, SendErrorKind};
pub use upstream::{ConnectTime, Outgoing, Upstream};
