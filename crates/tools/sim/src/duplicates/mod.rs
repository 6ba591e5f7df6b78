//! Partitions of duplicated stores in virtual time: every access goes to all duplicates of its
//! partition and the first answer counts (Zoolander, ICAC'13).
//!
//! | file | what it is |
//! |---|---|
//! | [`law`] | how long accesses take: laws through the quantiles that the paper gives |
//! | [`layout`] | which shards are in which partition, and how many duplicates that has |
//! | [`deployment`] | everything that is simulated, as values |
//! | [`input`] | the same as a scenario file |
//! | [`world`] | what happens, event by event |
//! | `server` | one duplicate: a queue, one access in service, pauses |
//! | `notes` | what is written down while it happens |
//! | [`report`] | what a run showed, beside what the models of core predict |
//!
//! **Why not the models' own recursion?** So that they can be wrong. A queue is a queue here, a
//! copy leaves when the multicast has sent it, a pause stops whoever is being served, a cancelled
//! copy is skipped when its turn comes, and nothing of `core/src/placement/duplicates` is used but
//! to predict.
//!
//! **When it misleads.** A server takes one access at a time; stores take many, as far as their
//! disk and locks let them. Keys are as evenly wanted as [`Deployment`] says: all alike.

pub mod deployment;
pub mod input;
pub mod law;
pub mod layout;
mod notes;
pub mod report;
mod server;
#[cfg(test)]
mod tests;
pub mod world;

pub use deployment::{Deployment, Pauses};
pub use input::DuplicatesScenario;
pub use report::DuplicatesReport;
