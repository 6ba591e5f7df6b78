//! Every decision of Evenkeel, deterministic: this crate has no clock, no sockets, no threads and
//! no async; time is an argument and randomness is seeded. The simulator and the network run the
//! same lines.
//!
//! | room | decides |
//! |---|---|
//! | [`request`] | loop 1, every request: which replica, when, how many copies |
//! | [`dimmer`] | loop 2, every few seconds: how much optional content |
//! | [`discovery`] | what to believe of those who tell where replicas are |
//! | [`fleet`] | nothing: the one table of facts about replicas |
//! | [`report`] | nothing: what a replica knows of itself and tells |
//! | [`plan`], [`window`] | nothing: the arrows between the loops, down and up |
//! | [`distribution`] | the vocabulary: latency distributions, recorded, computed, compared |
//! | [`time`], [`rng`], [`units`] | the words: instants, seeded randomness, numbers with units |
//! | [`named!`] | the words for people: enums whose variants have names |
//!
//! The order of writes to duplicates is `evenkeel-ordered`, loop 2 between data centres
//! `evenkeel-geo`, loop 3 `evenkeel-planner`.

pub mod dimmer;
pub mod discovery;
pub mod distribution;
pub mod fleet;
mod named;
pub mod plan;
pub mod report;
pub mod request;
pub mod rng;
mod silence;
pub mod time;
pub mod turns;
pub mod units;
pub mod window;

pub use fleet::{Feedback, Fleet, GroupId, Health, Replica, ReplicaId};
pub use rng::Rng;
pub use time::{Deadline, Duration, Instant, Why};
