//! What can be wrong with a recorded day.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a day cannot be read or written.
#[derive(Debug, Error)]
pub enum RecordsError {
    /// The system refused.
    #[error("{}: {source} ({doing})", .file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// What was done, and the likely cause.
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Bytes that are no recorded day.
    #[error("{}: got {came}, expected {expected}{}", .file.display(), cause(.hint))]
    Wrong {
        /// The file or directory.
        file: PathBuf,
        /// What came, and where in the file.
        came: String,
        /// What was expected.
        expected: String,
        /// The likely cause; may be empty.
        hint: &'static str,
    },
}

fn cause(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

impl RecordsError {
    pub(crate) fn io(file: &Path, doing: &'static str, source: io::Error) -> Self {
        Self::Io { file: file.to_owned(), doing, source }
    }

    pub(crate) fn wrong(
        file: &Path,
        came: impl Into<String>,
        expected: impl Into<String>,
        hint: &'static str,
    ) -> Self {
        Self::Wrong { file: file.to_owned(), came: came.into(), expected: expected.into(), hint }
    }
}
