//! Why the log could not do what was asked.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::segment::VERSION;

/// What is wrong with a log.
#[derive(Debug)]
pub enum LogError {
    /// The settings contradict themselves.
    Settings(String),
    /// Another process, or another place in this one, writes this log.
    Locked {
        /// Where the log is.
        directory: PathBuf,
        /// Who has it, as far as is known.
        holder: String,
    },
    /// The operating system refused.
    System {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// A segment is not what was written.
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
    Version {
        /// The segment.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The records asked for have been removed.
    Gone {
        /// What should have been read: the records after this sequence number.
        asked: u64,
        /// The first sequence number that is still there.
        first: u64,
    },
    /// A command is longer than a record may be.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The longest, in bytes.
        bytes_max: usize,
    },
    /// The log became too long while a state was recorded: its beginning has been removed.
    StateGone {
        /// The whole log, in bytes, at most.
        bytes_max: u64,
    },
    /// An earlier write, sync or removal failed. What was not confirmed then may be in the log or
    /// not, so nothing more is taken: the log has to be opened again.
    Refuses(String),
}

impl LogError {
    pub(super) fn system(path: &Path, doing: &'static str, error: io::Error) -> Self {
        Self::System { path: path.to_owned(), doing, error }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(words) => write!(formatter, "the log's settings: {words}"),
            Self::Locked { directory, holder } => write!(
                formatter,
                "the log {} is locked by {holder}: two processes must not write one log (is \
                 another one running with this directory?)",
                directory.display()
            ),
            Self::System { path, doing, error } => {
                write!(formatter, "{}: cannot {doing}: {error}", path.display())?;
                match error.kind() {
                    io::ErrorKind::StorageFull => write!(formatter, " (make room on the disk)"),
                    io::ErrorKind::PermissionDenied => {
                        write!(formatter, " (does the process own the directory?)")
                    }
                    _ => Ok(()),
                }
            }
            Self::Damaged { path, offset, found, expected, cause } => write!(
                formatter,
                "{} at byte {offset}: {found}, expected {expected} ({cause})",
                path.display()
            ),
            Self::Version { path, found } => write!(
                formatter,
                "{}: its format has version {found}, this program reads version {VERSION} (was it \
                 written by a newer program?)",
                path.display()
            ),
            Self::Gone { asked, first } => write!(
                formatter,
                "the log begins with sequence number {first}: what follows {asked} has been \
                 removed (who is that far behind has to be copied)"
            ),
            Self::TooLong { bytes, bytes_max } => write!(
                formatter,
                "a command of {bytes} bytes came, a record holds at most {bytes_max}"
            ),
            Self::StateGone { bytes_max } => write!(
                formatter,
                "a state of everything has lost its beginning before its end was there: \
                 log_bytes_max, {bytes_max} bytes, is less than the data and what was written \
                 meanwhile (three times the data is enough)"
            ),
            Self::Refuses(why) => {
                write!(formatter, "the log takes nothing more since it failed: {why}")
            }
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { error, .. } => Some(error),
            _ => None,
        }
    }
}
