//! Evenkeel on the network: the decisions of `evenkeel-core` around real sockets.
//!
//! tokio, hyper and the clock live in this crate and nowhere else.

pub mod http;
pub mod timer;
