//! ZooKeeper, through its client protocol.

mod error;
pub(crate) mod jute;
pub mod session;
pub mod wire;

pub use error::WireError;
