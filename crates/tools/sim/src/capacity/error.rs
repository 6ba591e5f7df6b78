//! Why a capacity cannot be simulated.

use std::fmt;

/// Why numbers are nothing to simulate.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: got {came}, expected {expected}")]
pub struct InputError {
    /// Which of them.
    pub key: &'static str,
    /// What came there.
    pub came: String,
    /// What was expected.
    pub expected: String,
}

impl InputError {
    pub(super) fn new(
        key: &'static str,
        came: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        Self { key, came: came.to_string(), expected: expected.to_string() }
    }
}
