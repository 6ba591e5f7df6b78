//! Evenkeel on the network: the decisions of `evenkeel-core` around real sockets.
//!
//! tokio, hyper and the clock live in this crate and nowhere else. [`http`] holds the life of a
//! request.

pub mod clock;
pub mod config;
pub mod http;
pub mod replica;
pub mod timer;
