//! Writes to duplicates: one order, acknowledged when enough have answered, never lost.
//!
//! A *service* is partitions of duplicates; a *server* is one duplicate. Every write of a service
//! has a [`Sequence`], is logged, then sent to every live server of its partition on one ordered
//! connection. From that one rule follows the rest:
//!
//! - **Equal duplicates**: all apply the same writes in the same order.
//! - **A watermark instead of versions**: what a server has applied is a single number, so no value
//!   carries a version and stores stay as they are.
//! - **Reads that see one's own writes**: a read on the ordered connection sees exactly what was
//!   sent before it; one that overtakes needs a server whose watermark has passed the session's.
//! - **Coming back**: a server that was away needs the log after its watermark, or, where the log
//!   does not reach back, a copy of every key ([`Copying`]).
//!
//! **Source**: Zoolander (ICAC 2013), sections 3.1 and 3.2. It drops a failed duplicate and never
//! says how one returns, accepts a write once *one* duplicate has it, and rejects a read whose
//! version equals the last write's (it must be "at least", not "exceeds"); here the log, the level
//! and the watermark answer these.
//!
//! | file | decides |
//! |---|---|
//! | `position.rs` | which history a server has lived through, what it needs to come back |
//! | `copies.rs` | when enough copies are answered |
//! | `members.rs` | who is live, who is dropped and when |
//! | `session.rs` | which servers a read may ask, on which connection |
//! | `leased.rs` | the same of strong reads while a lease is held |
//! | `copying.rs` | which writes a server gets while its keys are still being copied |
//! | `clocks.rs` | how far the clocks of duplicates are from the front's |
//! | `deadlines.rs` | when a key has expired, for all duplicates at one place |
//! | `due_writes.rs` | which writes a duplicate that comes back may still do, as keys expire |
//! | `divergence.rs` | who differs from the others, and when keys are compared |
//! | `moving.rs` | what another partition gets of a shard that moves there, and when it owns it |
//! | `watches.rs` | whether a key was written since it was watched |
//! | `tracking.rs` | what clients may keep of what they read, and who is told that it changed |
//! | `waiters.rs` | whose turn it is when a key is filled that commands wait for |

mod clocks;
mod copies;
mod copying;
mod deadlines;
mod divergence;
mod due_writes;
mod leased;
mod members;
mod moving;
mod position;
mod session;
mod tracking;
mod waiters;
mod watches;

pub use clocks::{APART_MAX_MS, Clocks};
pub use copies::{Acknowledge, Copies};
pub use copying::{Copying, Hash, Key, Treatment};
pub use deadlines::{Answered, Deadlines, Judgement, deadline_key};
pub use divergence::{
    Agreement, KEYS_AT_ONCE, Pace, Statement, Verdict, agree, compare, refillable,
};
pub use due_writes::DueWrites;
pub use evenkeel_core::request::servers::{SERVERS_MAX, ServerSet};
pub use leased::Leased;
pub use members::{Dropped, Members, MembersConfig, Refused, ReplicaState};
pub use moving::{Moving, Phase};
pub use position::{Epoch, History, Position, Rejoin, Sequence, Stretch};
pub use session::{ConnectionKind, Consistency, Eligible, Session};
pub use tracking::{
    Invalid, Look, TRACKED_KEYS_MAX, TrackedRead, Tracker, Tracking, TrackingOptions,
};
pub use waiters::{Waiters, Wanted};
pub use watches::{CLOCKS_APART_MS, Watched, Watches};
