//! The `RESULT` in an answer, or why there is none.

use bytes::Bytes;

use super::ask::Answer;
use crate::{Envelope, ErrorCode, Malformed, Opcode, Version, payload, response};

/// Why an answer has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The node answered with an `ERROR`.
    #[error("the node answered: {code} ({:#06x}): {message}", .code.number())]
    Refused {
        /// What kind of error.
        code: ErrorCode,
        /// The node's own words.
        message: String,
    },
    /// The body is not what the opcode says.
    #[error("the {opcode} cannot be read: {error}")]
    Malformed {
        /// What came.
        opcode: Opcode,
        /// What is wrong with it.
        #[source]
        error: Malformed,
    },
    /// The answer is neither a `RESULT` nor an `ERROR`.
    #[error("{0} came, expected RESULT or ERROR")]
    Unexpected(Opcode),
    /// The `RESULT` is of another kind than the request's.
    #[error("a RESULT of another kind came, expected {expected}")]
    OtherResult {
        /// The expected kind, such as `rows`.
        expected: &'static str,
    },
}

impl Answer {
    /// The message of a `RESULT`, without tracing, custom payload and warnings.
    ///
    /// # Errors
    /// When it is an `ERROR`, or cannot be read.
    pub fn result(&self, version: Version) -> Result<Bytes, AnswerError> {
        let Self { opcode, flags, body, .. } = self;
        let malformed = |error| AnswerError::Malformed { opcode: *opcode, error };
        let envelope =
            Envelope { flags: *flags, ..Envelope::new(version, 0, *opcode, body.clone()) };
        let message = payload::message(&envelope).map_err(malformed)?;
        match *opcode {
            Opcode::Result => Ok(message),
            Opcode::Error => {
                let error = response::Error::read(&message, version).map_err(malformed)?;
                Err(AnswerError::Refused { code: error.code, message: error.message.to_owned() })
            }
            other => Err(AnswerError::Unexpected(other)),
        }
    }
}

impl From<Malformed> for AnswerError {
    /// What was read as a `RESULT` is none.
    fn from(error: Malformed) -> Self {
        Self::Malformed { opcode: Opcode::Result, error }
    }
}
