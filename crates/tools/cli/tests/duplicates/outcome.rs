//! What becomes of what clients ask of a front that may die.

use std::io;

use evenkeel_testkit::redis::Reply;

/// What a client knows of what it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was answered.
    Done(Reply),
    /// It was refused before anything was sent: it must not happen.
    Refused(String),
    /// It was sent and nobody knew then: a front that lives on must apply it.
    Uncertain,
    /// The connection broke: it may happen, now, later or never.
    Unknown,
}

impl Outcome {
    pub(crate) fn of(reply: io::Result<Reply>) -> Self {
        match reply {
            Err(_) => Self::Unknown,
            Ok(Reply::Error(text)) if text.starts_with("UNCERTAIN") => Self::Uncertain,
            Ok(Reply::Error(text)) if text.starts_with("UNAVAILABLE") => Self::Refused(text),
            // A front that was stopped in the middle of a script finds that it has run for long;
            // what it refused to queue aborts a transaction.
            Ok(Reply::Error(text)) if text.starts_with("BUSY ") => Self::Refused(text),
            Ok(Reply::Error(text)) if text.starts_with("EXECABORT ") => Self::Refused(text),
            Ok(reply) => Self::Done(reply),
        }
    }
}
