//! The layer under real axum servers on loopback.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod conformance;
mod endings;
mod headers;
mod loopback;
mod stories;
