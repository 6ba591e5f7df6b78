//! Why the log could not do what was asked.

use std::io;
use std::path::{Path, PathBuf};

use super::segment::VERSION;

/// What is wrong with a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The settings contradict themselves.
    #[error("the log's settings: {0}")]
    Settings(String),
    /// Another process, or another place in this one, writes this log.
    #[error(
        "the log {} is locked by {holder}: two processes must not write one log (is another one \
         running with this directory?)",
        .directory.display()
    )]
    Locked {
        /// Where the log is.
        directory: PathBuf,
        /// Who has it, as far as is known.
        holder: String,
    },
    /// The operating system refused.
    #[error("{}: cannot {doing}: {error}{}", .path.display(), advice(.error))]
    System {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What it said.
        #[source]
        error: io::Error,
    },
    /// A segment is not what was written.
    #[error("{} at byte {offset}: {found}, expected {expected} ({cause})", .path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What is there.
        found: String,
        /// What should be there.
        expected: String,
        /// What usually does this.
        cause: &'static str,
    },
    /// A segment is of a version of the format that this program does not know.
    #[error(
        "{}: its format has version {found}, this program reads version {VERSION} (was it written \
         by a newer program?)",
        .path.display()
    )]
    Version {
        /// The segment.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The records asked for have been removed.
    #[error(
        "the log begins with sequence number {first}: what follows {asked} has been removed (who \
         is that far behind has to be copied)"
    )]
    Gone {
        /// What should have been read: the records after this sequence number.
        asked: u64,
        /// The first sequence number that is still there.
        first: u64,
    },
    /// A command is longer than a record may be.
    #[error("a command of {bytes} bytes came, a record holds at most {bytes_max}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The longest, in bytes.
        bytes_max: usize,
    },
    /// The log became too long while a state was recorded: its beginning has been removed.
    #[error(
        "a state of everything has lost its beginning before its end was there: log_bytes_max, \
         {bytes_max} bytes, is less than the data and what was written meanwhile (three times the \
         data is enough)"
    )]
    StateGone {
        /// The whole log, in bytes, at most.
        bytes_max: u64,
    },
    /// An earlier write, sync or removal failed. What was not confirmed then may be in the log or
    /// not, so nothing more is taken before the log is mended or opened again.
    #[error("the log takes nothing more since it failed: {0}")]
    Refuses(String),
}

impl LogError {
    pub(super) fn system(path: &Path, doing: &'static str, error: io::Error) -> Self {
        Self::System { path: path.to_owned(), doing, error }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => " (make room on the disk)",
        io::ErrorKind::PermissionDenied => " (does the process own the directory?)",
        _ => "",
    }
}
