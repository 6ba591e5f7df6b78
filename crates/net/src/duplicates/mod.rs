//! Duplicates: partitions × duplicates of a store behind one RESP front.
//!
//! Every write goes to all duplicates of its partition in one order, every read to as many as the
//! policy says, and the first valid answer wins, so that a duplicate that stumbles is not waited
//! for. The decisions are core's ([`evenkeel_core::request::ordered`]); here are sockets and files.
//!
//! **The life of a write**: `front.rs` finds the command in a client's bytes; `engine/access.rs`
//! makes it the same for everybody, gives it its place, appends it to the log and to the lanes of
//! the live duplicates; `engine/mod.rs`, `flush`, commits the log and lets the lanes go; `lane.rs`
//! reads an answer and `engine/answers.rs` gives it to the client when enough have come.
//!
//! An application in Rust that runs the service itself has `client.rs`: sessions without a socket.
//!
//! `member.rs` keeps one duplicate: it reaches it, fences off whoever wrote before (`claim.rs`),
//! and brings it up to date from the log or from another duplicate. `reign/` is who may write at
//! all, where several processes stand by. `manager.rs` samples accesses and advises.
//!
//! `control.rs` takes orders to move shards and to add or remove duplicates, `mover.rs` carries
//! them out, `layout/` keeps what came of them.
//!
//! **Source**: Zoolander (ICAC 2013), section 3.

mod claim;
pub mod client;
mod config;
mod connect;
mod control;
mod counts;
mod engine;
mod fitness;
mod front;
mod inbox;
mod lane;
pub mod layout;
pub mod log;
mod manager;
mod member;
pub(crate) mod metrics;
mod mover;
pub mod orders;
mod reign;
mod service;
pub mod state;
pub mod store;

pub use config::{DuplicatesConfig, Target};
pub(crate) use config::{ENSEMBLE_EXPECTED, ensemble};
pub use control::Control;
pub use manager::ManagerSettings;
pub use reign::EtcdSettings;
pub use service::Service;
pub use state::DuplicatesState;
