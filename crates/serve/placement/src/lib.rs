//! Placement on the network: what core decides about leader, voters and replicas, done to real
//! stores.
//!
//! | part | what it is |
//! |---|---|
//! | [`config`] | `[placement]`: read and checked |
//! | [`Service`] | every interval: look, count, decide, move |
//! | [`state`] [`metrics`] | how databases stand, for people and programs |
//! | `collect`, `collected` | where operations are counted: Prometheus, or a file; what came |
//! | `appended` | what is new in a file that somebody appends to |
//! | `store` | the stores that can be moved, as one |
//! | `ways` | round trips as the mesh of `[redirect]` measures them |
//! | `words` | why, as a sentence |
//! | `journal` | the last moves, from the audit log |
//! | [`act`] | a move, one safe step at a time |

pub mod config;

pub mod act;
mod appended;
mod collect;
mod collected;
mod journal;
pub mod metrics;
mod service;
pub mod state;
mod store;
mod ways;
mod words;

pub use service::Service;
pub use state::PlacementState;
pub use ways::{RoundTripSource, SitePaths};
