//! Duplicates: partitions × duplicates of a store behind one RESP frontend.
//!
//! Every write goes to all duplicates of its partition in one order, every read to as many as the
//! policy says, and the first valid answer wins, so that a duplicate that stumbles is not waited
//! for. The decisions are core's ([`evenkeel_ordered`]); here are sockets and files.
//!
//! **The life of a write** (files of [`evenkeel_duplicates_engine`], but for the first and the
//! last but one): `frontend.rs` finds the command in a client's bytes; `access.rs` makes it the
//! same for everybody, gives it its place, appends it to the log and to the connections of the live
//! duplicates; `flush` of `lib.rs` commits the log and lets the connections go; `connection.rs`
//! reads an answer and `answers.rs` gives it to the client when enough have come.
//!
//! **The life of a read**: `access.rs` asks core who may answer it; `reading.rs` asks the
//! dispatcher who of them does, and gives the client the first answer.
//!
//! An application in Rust that runs the service itself has `client.rs`: sessions without a socket.
//!
//! `member.rs` keeps one duplicate: it reaches it, fences off whoever wrote before
//! ([`evenkeel_store_link`]), and brings it up to date from the log or from another duplicate. Who
//! may write at all, where several processes stand by, says [`evenkeel_leadership`].
//! [`evenkeel_manager`] samples accesses and advises; the engine's `manage.rs` does what it
//! says, where it may.
//!
//! `control.rs` takes requests to move shards and to add or remove duplicates, `mover.rs` carries
//! them out, [`evenkeel_leadership::layout`] keeps what came of them.
//!
//! | room | what it is |
//! |---|---|
//! | [`Service`] | from its start to its end; `turns.rs` waits and leads, `takeover.rs` says what it begins with |
//! | [`evenkeel_duplicates_config`] | `[duplicates.NAME]`: read and checked; what is asked to be changed |
//! | `frontend`, [`client`] | clients: on sockets, and in this process |
//! | [`evenkeel_duplicates_engine`] | sessions, calls and connections; nothing in it waits |
//! | [`evenkeel_store_link`] | one duplicate: reached, asked, checked, compared, fenced off |
//! | `member`, `members`, `connection` | a duplicate: filled, sent to |
//! | `aside` | duplicates are asked past a script that runs |
//! | `nodes` | the processes of a service, and the doors of this one |
//! | `router` | plain clients of a service of several groups |
//! | `groups` | one of several groups of partitions, turn after turn |
//! | `follow` | what a duplicate has done, by its replication stream |
//! | [`evenkeel_wal`] | every write in its order, until all duplicates have it |
//! | `control`, `mover` | changes of which partition holds what |
//! | [`evenkeel_leadership`] | who may write, where processes take turns; which partition holds what |
//! | [`evenkeel_manager`] | samples accesses and advises |
//! | [`state`], [`metrics`], [`admin`] | for people and programs |
//!
//! **Source**: Zoolander (ICAC 2013), section 3.

pub mod admin;

mod aside;
mod backlog;
pub mod client;
mod connection;
mod control;
mod follow;
mod frontend;
mod groups;
mod key_events;
mod measured;
mod member;
mod members;
pub mod metrics;
mod mover;
mod nodes;
mod router;
mod service;
mod takeover;
mod turns;

pub use control::Control;
pub use evenkeel_duplicates_config::{
    self as config, DuplicatesConfig, RedisAccess, Target, changes, rejected,
};
pub use evenkeel_duplicates_state::{self as state, DuplicatesState};
pub use evenkeel_leadership::EtcdSettings;
pub use evenkeel_manager::{ManagerSettings, NightSettings};
pub use service::Service;
