//! Adaptive replica selection for Rust applications that speak to Cassandra with the `scylla` crate
//! and want no proxy.
//!
//! `AdaptivePolicy` (feature `driver`) is a `LoadBalancingPolicy`: the driver says which nodes hold
//! a key, and Evenkeel's dispatcher, the one of the proxy and the simulator, chooses among them by
//! C3 or any other policy of its registry. It is a `SpeculativeExecutionPolicy` as well: the same
//! dispatcher says when a request that takes long is given a copy.
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
//! **When a copy leaves.** The driver asks how many copies a request may have and after how long,
//! once, before it sends anything; then it sets timers, and when one rings it takes the next target
//! off the plan. So the delay is that of the hedge when the request begins, and the budget and the
//! gate are asked when the copy is due, as in the proxy: for one that must not leave there is no
//! target. Retries come for targets by the same door. A failure told just before tells them apart.
//!
//! **What that misses.** A caller that leaves (a timeout, a dropped future) is not told of. It is
//! noticed when another request takes the place in memory; until then, and for requests never heard
//! of again, an age is the bound. A copy that lost is noticed when the other succeeds, and core
//! goes on counting it, less and less, until its node answers something: a node that is stuck must
//! not look idle because nobody waits for it any more. A retry on the same node is not seen until
//! it ends, and a copy that comes due meanwhile is taken for a retry: each failure buys at most one
//! target beyond the budget. Later pages go to the node of the first without asking for a target,
//! so a copy of those looks like a request of its own: no budget bounds it, only the gate.
//! **Without reports** of the nodes (this is a client alone), latency stands for service time.

pub mod chooser;
#[cfg(feature = "driver")]
mod policy;

pub use evenkeel_core::request::redundancy::{HedgeConfig, HedgeStats, ObjectiveConfig};
pub use evenkeel_core::request::select::{Policy, PolicyError};
pub use evenkeel_core::units::Probability;
#[cfg(feature = "driver")]
pub use policy::{AdaptivePolicy, AdaptivePolicyBuilder};

#[cfg(all(doctest, feature = "driver"))]
#[doc = include_str!("../README.md")]
struct Readme;
