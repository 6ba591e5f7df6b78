//! Why a flag's value is refused: what clap shows behind the flag's name.

use std::fmt;

/// Why a flag's value is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlagError {
    /// The value, where the message repeats it: clap shows it too.
    came: Option<String>,
    /// What would do.
    expected: String,
}

impl FlagError {
    /// The message says only what would do.
    pub(crate) fn expected(expected: impl Into<String>) -> Self {
        Self { came: None, expected: expected.into() }
    }

    /// The message says what came, and what would do.
    pub(crate) fn came(came: &str, expected: impl Into<String>) -> Self {
        Self { came: Some(came.to_owned()), expected: expected.into() }
    }
}

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.came {
            Some(came) => write!(f, "got {came}, expected {}", self.expected),
            None => write!(f, "expected {}", self.expected),
        }
    }
}

impl std::error::Error for FlagError {}
