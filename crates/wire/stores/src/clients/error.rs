//! What a conversation with another system ends with when it does not succeed.

/// Why something could not be done: one sentence for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    /// What came, what was expected, where, and the likely cause.
    pub message: String,
    /// Whether the same may succeed a little later.
    pub may_pass: bool,
}

impl RemoteError {
    /// What will not go away by waiting.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: false }
    }

    /// What may be gone a little later.
    pub fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: true }
    }
}
