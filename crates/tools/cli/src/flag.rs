//! Why a flag's value is refused: what clap shows behind the flag's name.

/// Why a flag's value is refused; the last is what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlagError {
    /// clap shows the value itself.
    #[error("expected {0}")]
    Expected(String),
    /// The message repeats the value.
    #[error("got {0}, expected {1}")]
    Came(String, String),
}

impl FlagError {
    pub(crate) fn came(came: &str, expected: impl Into<String>) -> Self {
        Self::Came(came.to_owned(), expected.into())
    }
}
