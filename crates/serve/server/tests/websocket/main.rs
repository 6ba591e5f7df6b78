//! WebSocket through the proxy, with each engine of HTTP/1.1.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod hyper;
#[path = "hyper.rs"]
#[expect(clippy::duplicate_mod, reason = "every test says something of both engines")]
mod native;
