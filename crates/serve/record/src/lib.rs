//! `[record]`: what became of each copy of each request, in files of a day that `evenkeel replay`
//! reads.
//!
//! Dispatchers tell of copies ([`evenkeel_core::request::copies`]), whatever their protocol. Each
//! has a lane of its own, which one thread empties ([`writer`]); a request never waits for it.
//! Agents tell of
//! what came to them in the same way. Rows have numbers and durations only: what nobody told cannot
//! be written down.

pub mod config;
pub mod counts;
mod day;
mod lane;
pub mod like;
pub mod recorder;
pub mod writer;

pub use config::RecordConfig;
pub use evenkeel_records::manifest::{BY_AGENT, BY_RUN};
pub use lane::Stream;
pub use recorder::Recorder;
