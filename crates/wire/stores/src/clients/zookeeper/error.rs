//! What is wrong with what a ZooKeeper server sent.

use std::io;

/// Why a message or a text of a ZooKeeper server cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A message ends too early.
    #[error(
        "a message is cut off: {left} bytes are left, {expected} were expected (is it ZooKeeper?)"
    )]
    Short {
        /// Bytes that are left.
        left: usize,
        /// Bytes that were expected.
        expected: usize,
    },
    /// A length below −1.
    #[error("a length of {0}: 0 or more was expected")]
    NegativeLength(i32),
    /// This line of the ensemble's configuration is not understood.
    #[error("\"{0}\" in the ensemble's configuration: server.N=… or version=… was expected")]
    ConfigLine(String),
    /// The ensemble's configuration has more servers than any ensemble.
    #[error("more than {max} servers in the configuration")]
    TooManyServers {
        /// What is accepted.
        max: usize,
    },
    /// The ensemble's configuration has no version.
    #[error("the ensemble's configuration has no version")]
    NoVersion,
    /// The server is in this mode, none of an ensemble's.
    #[error("its mode is {0}")]
    Mode(String),
    /// The server does not serve, and said this.
    #[error("it says \"{0}\"")]
    NotServing(String),
    /// The server does not say which transaction it has applied last.
    #[error("it says no transaction (Zxid)")]
    NoTransaction,
}

impl From<WireError> for io::Error {
    fn from(error: WireError) -> Self {
        Self::other(error)
    }
}
