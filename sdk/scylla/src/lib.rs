//! Adaptive replica selection for Rust applications that speak to Cassandra with the `scylla` crate
//! and want no proxy.
//!
//! `AdaptivePolicy` (feature `driver`) is a `LoadBalancingPolicy`: the driver says which nodes hold
//! a key, and Evenkeel's dispatcher, the one of the proxy and the simulator, chooses among them by
//! C3 or any other policy of its registry.
//!
//! | room | does |
//! |---|---|
//! | `chooser` | what is in flight where, and whom to ask: core's dispatcher, told what a driver tells |
//! | `policy` | the driver's trait around it (feature `driver`) |
//!
//! **What is in flight.** The driver's trait has no word for "sent": `pick` and `fallback` make a
//! plan. But the plan is walked lazily, one target right before each send, so a target counts as in
//! flight from the moment it is taken off the plan until the driver tells of its end. Requests are
//! told apart by where their routing information lies, which is one place for as long as a request
//! lives.
//!
//! **What that misses.** A caller that leaves (a timeout, a dropped future, a speculative copy that
//! lost) is not told of. It is noticed when another copy of the request succeeds or another request
//! takes the place in memory; until then, and for requests never heard of again, an age is the
//! bound. What was given up goes on counting until its node answers something sent later, or for a
//! second: a node that is stuck must not look idle because nobody waits for it any more. A retry on
//! the same node is not seen until it ends, and a target whose connection was lost a moment before
//! the send counts until the request ends. **Without reports** of the nodes (this is a client
//! alone), latency stands for service time.

pub mod chooser;
#[cfg(feature = "driver")]
mod policy;

pub use evenkeel_core::request::select::{Policy, PolicyError};
#[cfg(feature = "driver")]
pub use policy::{AdaptivePolicy, AdaptivePolicyBuilder};

#[cfg(all(doctest, feature = "driver"))]
#[doc = include_str!("../README.md")]
struct Readme;
