//! Why a process cannot lead.

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// What keeps a process from leading, and waiting does not change.
#[derive(Debug, thiserror::Error)]
pub(super) enum LeadershipError {
    /// A URL or a certificate that cannot be used.
    #[error("{0}")]
    Settings(#[source] Box<dyn Error + Send + Sync>),
    /// The password's file cannot be read.
    #[error("{}: {error}", .path.display())]
    Password {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// etcd refuses.
    #[error("{place}: {error}")]
    Refused {
        place: String,
        #[source]
        error: Box<dyn Error + Send + Sync>,
    },
    /// Another one leads, and this one is not to stand by.
    #[error("{holder} leads by the lease in {place}; standby = true waits for its end")]
    Taken { place: String, holder: String },
}
