//! What a conversation with another system ends with when it does not succeed.

/// Why something could not be done: one sentence for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    /// What came, what was expected, where, and the likely cause.
    pub message: String,
    /// Whether the same may succeed a little later, or when another member is asked: nobody who
    /// speaks for the store has said no.
    pub may_pass: bool,
}

impl RemoteError {
    /// What will not go away by waiting: the store said no, or what we were told is wrong.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: false }
    }

    /// What may be gone a little later, or is so at one member only.
    pub fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: true }
    }
}
