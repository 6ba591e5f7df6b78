//! Evenkeel on the network: the decisions of `evenkeel-core` around real sockets.
//!
//! tokio, hyper and the clock live in this crate and nowhere else. [`http`] holds the life of a
//! request; [`process`] starts the threads that run it; [`board`] is where they meet the slow
//! loops; [`replica`] is the agent beside an application.

mod admin;
pub mod board;
mod calls;
pub mod cassandra;
pub mod clock;
pub mod config;
pub mod distance;
pub mod duplicates;
pub mod embedded;
pub mod envoy;
mod exposition;
mod health;
pub mod http;
pub mod load;
pub mod nginx;
mod pem;
pub mod placement;
pub mod process;
pub mod profile;
pub mod redirect;
pub mod replica;
pub mod resp;
pub mod split;
pub mod timer;
mod worker;
