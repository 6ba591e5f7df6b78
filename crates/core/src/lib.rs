//! Every decision of Evenkeel, deterministic: this crate has no clock, no sockets, no threads and
//! no async; time is an argument and randomness is seeded. The simulator and the network run the
//! same lines.

pub mod rng;
pub mod time;
pub mod units;

pub use rng::Rng;
pub use time::{Deadline, Duration, Instant, Why};
