//! The slow model of one call: all its copies, and the answer its caller must get.

use evenkeel_core::request::{Call, Failure, Kind, Replay, ReplicaSet, Settled};

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Fate {
    Flying,
    Good,
    Unavailable,
    ErrorReply,
    Failed,
    Cancelled,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) slot: usize,
    pub(crate) kind: Kind,
    pub(crate) fate: Fate,
    pub(crate) cancel_asked: bool,
}

pub(crate) struct OpenCall {
    pub(crate) call: Call,
    pub(crate) id: u64,
    pub(crate) group: usize,
    /// The group that it goes to when nobody of its own is up.
    pub(crate) fallback: Option<usize>,
    pub(crate) replay: Replay,
    /// Who may answer.
    pub(crate) among: Option<ReplicaSet>,
    /// Copies that leave at once.
    pub(crate) at_once: u8,
    pub(crate) copies: Vec<Copy>,
    /// The copy whose answer the caller must get, once that is certain.
    pub(crate) answer: Option<usize>,
    pub(crate) first_error: Option<usize>,
    /// The last copy whose replica could not serve: the answer when all else fails.
    pub(crate) unavailable: Option<usize>,
    pub(crate) last_failure: Option<Failure>,
    pub(crate) retries: u8,
}

impl OpenCall {
    pub(crate) fn flying(&self) -> usize {
        self.copies.iter().filter(|copy| copy.fate == Fate::Flying).count()
    }

    /// Whether sending it again is no retry.
    pub(crate) fn is_free(&self) -> bool {
        self.fallback.is_some() && self.last_failure == Some(Failure::Unsent)
    }

    pub(crate) fn settle(
        &mut self,
        settled: Settled,
        copy: usize,
        fate: Fate,
        failure: Option<Failure>,
    ) {
        self.call.settle(settled);
        self.copies[copy].fate = fate;
        if self.answer.is_some() {
            return;
        }
        match fate {
            Fate::Good => self.answer = Some(copy),
            Fate::ErrorReply => self.first_error = self.first_error.or(Some(copy)),
            Fate::Failed => self.last_failure = failure,
            Fate::Unavailable => (self.unavailable, self.last_failure) = (Some(copy), failure),
            Fate::Cancelled => self.last_failure = Some(Failure::Broken), // it may have arrived
            Fate::Flying => {}
        }
        if self.flying() == 0 && self.answer.is_none() {
            self.answer = self.first_error;
        }
    }
}
