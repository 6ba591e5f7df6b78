//! What the time that an attempt took says.

use crate::request::call::{Attempt, Failure, Kind, Outcome};
use crate::request::redundancy::Lasted;
use crate::time::Instant;

/// Whether an answer would have taken longer than the attempt lasted: it was cancelled or timed
/// out.
pub(super) const fn is_censored(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Cancelled | Outcome::Failed(Failure::TimedOut))
}

/// Whether the time an attempt took says how long answers take. What is censored took at least this
/// long: leaving it out would teach that answers are faster than they are. Other failures end
/// early, and counting them would teach the same.
pub(super) fn tells_latency(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Replied(_)) || is_censored(outcome)
}

/// What the hedge is told of an attempt.
#[inline]
pub(super) fn lasted<'a>(now: Instant, attempt: &Attempt, outcome: &'a Outcome) -> Lasted<'a> {
    // One that moved lasts since it was sent first.
    let is_moved = attempt.kind == Kind::Moved;
    let sent_at = if is_moved { attempt.first_sent_at } else { attempt.sent_at };
    Lasted {
        kind: if is_moved { Kind::First } else { attempt.kind },
        latency: now.since(sent_at),
        is_answered: matches!(outcome, Outcome::Replied(_)),
        behind: sent_at.since(attempt.first_sent_at),
        in_flight: attempt.firsts,
        report: if let Outcome::Replied(report) = outcome { report.as_ref() } else { None },
    }
}
