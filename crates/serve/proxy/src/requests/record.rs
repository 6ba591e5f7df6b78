//! One request in fixed size, without a pointer: its room is used again, and never grows.

use evenkeel_core::Instant;
use evenkeel_core::request::Kind;
use evenkeel_core::request::decision::{Candidate, Cause, Decision, HedgeFate};
use evenkeel_core::time::{Duration, nanos};

/// Candidates of which a record tells.
pub const CANDIDATES_MAX: usize = evenkeel_core::request::decision::CANDIDATES_MAX;
/// Attempts of which a record tells; further ones are only counted.
pub const ATTEMPTS_MAX: usize = 6;
/// Bytes of a request's line and of its id that are kept.
pub const LINE_BYTES: usize = 64;
/// See [`LINE_BYTES`].
pub const ID_BYTES: usize = 48;

/// A replica as records know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The data centre, home being 0.
    pub datacenter: u8,
    /// Its slot there.
    pub slot: u16,
    /// How many had the slot before; the lowest bits.
    pub generation: u16,
}

evenkeel_core::named! {
    /// Why an attempt was sent.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Why {
        /// The first copy, or one that left together with it.
        First = "first",
        /// An attempt before it failed.
        Retry = "retry",
        /// The replica of an attempt before it said nothing.
        Rescue = "rescue",
        /// An attempt before it took long.
        Hedge = "hedge",
        /// The attempt before it had to wait for a slot of its replica, and was given up.
        Moved = "moved",
    }
}

impl Why {
    /// By the dispatcher's word; `is_waiting` where another attempt is on its way.
    pub const fn of(kind: Kind, is_waiting: bool) -> Self {
        match kind {
            Kind::First | Kind::Mirror => Self::First,
            Kind::Hedge => Self::Hedge,
            Kind::Retry if is_waiting => Self::Rescue,
            Kind::Retry => Self::Retry,
            Kind::Moved => Self::Moved,
        }
    }
}

evenkeel_core::named! {
    /// What became of an attempt.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum AttemptEnd {
        /// It was on its way when the request ended.
        Pending = "pending",
        /// It was answered.
        Answered = "answered",
        /// The replica answered with an error of its own (500).
        ErrorReply = "error_reply",
        /// The replica answered that it cannot serve now (502, 503, 504).
        Unavailable = "unavailable",
        /// Nothing of it reached the replica.
        Unsent = "unsent",
        /// The connection broke.
        Broken = "broken",
        /// No answer in time.
        TimedOut = "timed_out",
        /// It was given up: another copy won, or nobody waited any more.
        Lost = "cancelled",
    }
}

/// One attempt. Times are counted from the arrival of the request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Try {
    /// Where.
    pub place: Place,
    /// Why.
    pub why: Why,
    /// What became of it.
    pub end: AttemptEnd,
    /// When it left.
    pub sent_us: u32,
    /// When its head came or it failed; `u32::MAX` where neither.
    pub ended_us: u32,
    /// The policy's cost when it left; NaN where it does not rank.
    pub cost: f32,
}

evenkeel_core::named! {
    /// How a request ended.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum RequestEnd {
        /// All of the answer was passed on.
        Complete = "complete",
        /// The replica broke off in the middle of the answer.
        BodyBroke = "body_broken",
        /// The replica did not go on with the answer.
        BodyTimedOut = "body_timed_out",
        /// The client left, or was at fault.
        ClientGone = "client_gone",
        /// The proxy answered itself, before any replica was chosen.
        Local = "local",
        /// Refused: no replica may be used.
        NoReplica = "no_replica",
        /// Refused: too many requests wait.
        QueueFull = "queue_full",
        /// No replica could be reached.
        Unsent = "unsent",
        /// The last attempt's connection broke.
        Broken = "broken",
        /// No answer in time.
        TimedOut = "timed_out",
        /// The last replica could not serve, or said nothing but an error.
        Unavailable = "unavailable",
    }
}

impl RequestEnd {
    /// Whether the client did not get what it asked for, and it was not its own doing.
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::Complete | Self::ClientGone | Self::Local)
    }
}

/// Why a record is kept among the remarkable ones: bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Remarks(u8);

impl Remarks {
    /// Slower than the learnt p99.
    pub const SLOW: Self = Self(1);
    /// Over the objective.
    pub const OVER_OBJECTIVE: Self = Self(2);
    /// Failed: an error of the replicas, a broken answer, no answer.
    pub const FAILED: Self = Self(4);
    /// Hedged, rescued or sent again.
    pub const HEDGED: Self = Self(8);
    /// It went to another data centre.
    pub const REDIRECTED: Self = Self(16);
    /// Its trace is sampled.
    pub const SAMPLED: Self = Self(32);
    /// Answered without optional content.
    pub const DIMMED: Self = Self(64);
    /// Retried, or asked beside a silent replica.
    pub const RETRIED: Self = Self(128);

    /// All of them, with their names.
    pub const NAMED: [(Self, &'static str); 8] = [
        (Self::SLOW, "slow"),
        (Self::OVER_OBJECTIVE, "over_objective"),
        (Self::FAILED, "failed"),
        (Self::HEDGED, "hedged"),
        (Self::RETRIED, "retried"),
        (Self::REDIRECTED, "redirected"),
        (Self::DIMMED, "dimmed"),
        (Self::SAMPLED, "sampled"),
    ];

    /// Adds one.
    pub const fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether it has any of these.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is nothing remarkable.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The beginning of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: u8,
}

impl<const N: usize> Text<N> {
    /// Nothing.
    pub const EMPTY: Self = Self { bytes: [0; N], length: 0 };

    /// Becomes as much of these parts, one after the other, as there is room for.
    #[inline]
    pub fn set(&mut self, parts: &[&[u8]]) {
        let mut length = 0;
        for part in parts {
            let end = (length + part.len()).min(N);
            self.bytes[length..end].copy_from_slice(&part[..end - length]);
            length = end;
        }
        self.length = length as u8;
    }

    /// What there is of it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The same for people; bytes that are no UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

/// What is kept of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestRecord {
    /// When it came.
    pub began: Instant,
    /// Its upstream, by place.
    pub upstream: u16,
    /// Method and path, or what the protocol has in their place.
    pub line: Text<LINE_BYTES>,
    /// Its request id; empty where the protocol has none.
    pub id: Text<ID_BYTES>,
    /// Its trace; zero where the protocol has none.
    pub trace_id: u128,
    /// The candidates of the first copy, the chosen one first, or of the refusal.
    pub candidates: [Candidate; CANDIDATES_MAX],
    /// How many of them there are.
    pub candidates_told: u8,
    /// The data centre they are in, home being 0.
    pub candidates_at: u8,
    /// The members of the group.
    pub members: u16,
    /// The attempts.
    pub tries: [Try; ATTEMPTS_MAX],
    /// How many attempts there were; more than [`ATTEMPTS_MAX`] are not told of.
    pub attempts: u8,
    /// The attempt whose answer the client was given; 255 for none.
    pub answered_by: u8,
    /// What became of the hedge.
    pub hedge: HedgeFate,
    /// Its delay; `u32::MAX` where none is known.
    pub hedge_delay_us: u32,
    /// Of which quantile, in thousandths; 0 where it is of an objective.
    pub hedge_quantile: u16,
    /// Whether it waited for a sending rate.
    pub was_held: bool,
    /// Whether the retry budget forbade a retry.
    pub is_retry_denied: bool,
    /// Whether the answer said that optional content was left out.
    pub is_reduced: bool,
    /// The dimmer of who answered so, in percent; 255 where it is not known.
    pub dimmer: u8,
    /// HTTP status of the answer; 0 where the protocol has none.
    pub status: u16,
    /// Of the attempt that was answered, the time that it waited for a connection.
    pub connect_us: u32,
    /// When the head of the answer was passed on; `u32::MAX` where none was.
    pub head_us: u32,
    /// When it ended.
    pub total_us: u32,
    /// Bytes of the answer's body, where they were known with its head; `u64::MAX` otherwise.
    pub bytes: u64,
    /// How.
    pub end: RequestEnd,
    /// Why it is remarkable, if it is.
    pub remarks: Remarks,
}

impl RequestRecord {
    const NOBODY: Place = Place { datacenter: 0, slot: 0, generation: 0 };
    const UNSENT: Try = Try {
        place: Self::NOBODY,
        why: Why::First,
        end: AttemptEnd::Pending,
        sent_us: 0,
        ended_us: u32::MAX,
        cost: f32::NAN,
    };

    /// Of a request of an upstream that has just come.
    pub const fn new(began: Instant, upstream: u16) -> Self {
        Self {
            began,
            upstream,
            line: Text::EMPTY,
            id: Text::EMPTY,
            trace_id: 0,
            candidates: [Candidate::NOBODY; CANDIDATES_MAX],
            candidates_told: 0,
            candidates_at: 0,
            members: 0,
            tries: [Self::UNSENT; ATTEMPTS_MAX],
            attempts: 0,
            answered_by: u8::MAX,
            hedge: HedgeFate::None,
            hedge_delay_us: u32::MAX,
            hedge_quantile: 0,
            was_held: false,
            is_retry_denied: false,
            is_reduced: false,
            dimmer: u8::MAX,
            status: 0,
            connect_us: 0,
            head_us: u32::MAX,
            total_us: 0,
            bytes: u64::MAX,
            end: RequestEnd::ClientGone,
            remarks: Remarks(0),
        }
    }

    /// Becomes that of another request that has just come: as [`RequestRecord::new`], but what is
    /// beyond a length stays as it is.
    pub const fn renew(&mut self, began: Instant, upstream: u16) {
        (self.began, self.upstream) = (began, upstream);
        (self.line.length, self.id.length) = (0, 0);
        self.trace_id = 0;
        (self.candidates_told, self.candidates_at, self.members) = (0, 0, 0);
        (self.attempts, self.answered_by) = (0, u8::MAX);
        (self.hedge, self.hedge_delay_us, self.hedge_quantile) = (HedgeFate::None, u32::MAX, 0);
        (self.was_held, self.is_retry_denied, self.is_reduced) = (false, false, false);
        (self.dimmer, self.status) = (u8::MAX, 0);
        (self.head_us, self.total_us, self.bytes) = (u32::MAX, 0, u64::MAX);
        (self.end, self.remarks) = (RequestEnd::ClientGone, Remarks(0));
    }

    /// The candidates that are told of.
    #[inline]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates[..usize::from(self.candidates_told)]
    }

    /// The attempts that are told of.
    #[inline]
    pub fn tries(&self) -> &[Try] {
        &self.tries[..usize::from(self.attempts).min(ATTEMPTS_MAX)]
    }

    /// Where a candidate is.
    pub const fn place(&self, candidate: &Candidate) -> Place {
        let Candidate { slot, generation, .. } = *candidate;
        Place { datacenter: self.candidates_at, slot, generation }
    }

    /// Why the first candidate.
    pub fn cause(&self) -> Cause {
        Cause::of(self.candidates())
    }

    /// Takes over the candidates of a decision in a data centre.
    #[inline]
    pub fn set_candidates(&mut self, datacenter: usize, choice: &Decision) {
        let from = choice.candidates();
        self.candidates[..from.len()].copy_from_slice(from);
        self.candidates_told = from.len() as u8;
        self.candidates_at = datacenter as u8;
        self.members = choice.members;
    }
}

/// In microseconds, at most 71 minutes.
#[inline]
pub fn micros(duration: Duration) -> u32 {
    micros_of(nanos(duration))
}

/// Nanoseconds in microseconds, at most 71 minutes.
#[inline]
pub(super) fn micros_of(nanos: u64) -> u32 {
    (nanos / 1_000).min(u64::from(u32::MAX - 1)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What somebody may read of it.
    fn read(record: &RequestRecord) -> String {
        let RequestRecord { line, id, candidates, tries, .. } =
            RequestRecord::new(Instant::ZERO, 0);
        let arrays_aside = RequestRecord {
            line: if record.line.bytes().is_empty() { line } else { record.line },
            id: if record.id.bytes().is_empty() { id } else { record.id },
            candidates: if record.candidates().is_empty() { candidates } else { record.candidates },
            tries: if record.tries().is_empty() { tries } else { record.tries },
            ..*record
        };
        format!("{arrays_aside:?}")
    }

    #[test]
    fn room_that_is_used_again_tells_nothing_of_the_request_before() {
        let mut record = RequestRecord::new(Instant::from_millis(1), 1);
        let fresh = read(&record);
        record.line.set(&[b"GET ", b"/"]);
        record.id.set(&[b"one"]);
        (record.trace_id, record.members) = (5, 3);
        (record.candidates_told, record.candidates_at, record.attempts) = (2, 1, 2);
        (record.answered_by, record.hedge, record.hedge_delay_us) = (1, HedgeFate::Sent, 7);
        (record.hedge_quantile, record.was_held, record.is_retry_denied) = (950, true, true);
        (record.is_reduced, record.dimmer, record.status, record.head_us) = (true, 50, 200, 8);
        (record.total_us, record.bytes, record.end) = (9, 10, RequestEnd::Complete);
        record.remarks.add(Remarks::SLOW);
        record.renew(Instant::from_millis(1), 1);
        assert_eq!(read(&record), fresh);
    }
}
