//! Loop 1, every request: which replica, when, how many copies.
//!
//! Read [`dispatcher`] first: it is the life of a call from top to bottom. [`select`] says *who*,
//! [`redundancy`] says *how many and when*, [`safeguards`] keeps traffic from replicas that fail or
//! have just come, [`backlog`] keeps held calls in order, [`copies`] is what is told of each copy.
//! [`partition`] says which duplicates hold a key (how their writes keep one order is
//! `evenkeel-ordered`); [`ring`] is the same for stores with an order of their own (Cassandra).

pub mod backlog;
pub mod call;
pub mod copies;
pub mod decision;
pub mod dispatcher;
pub mod partition;
pub mod redundancy;
pub mod ring;
pub mod safeguards;
pub mod select;
pub mod servers;
pub mod siblings;

pub use call::{
    Attempt, BodyEnd, Call, CallId, Failure, Kind, Outcome, Refusal, Replay, ReplicaSet, Request,
    Settled, Step,
};
pub use dispatcher::{Dispatcher, DispatcherConfig, Probe};
