//! A call and its attempts: the words the dispatcher and its drivers speak.

use arrayvec::ArrayVec;

use crate::fleet::{Feedback, GroupId, ReplicaId};
use crate::request::servers::ServerSet;
use crate::time::{Deadline, Instant};

/// Attempts one call may make in its whole life: first copy, retries and hedges together.
pub const ATTEMPTS_MAX: usize = 8;

/// The number of an attempt that is a mirror: it is none of the call's own.
pub(crate) const MIRROR: u8 = u8::MAX;

/// The driver's name for a call, unique among its open calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CallId(pub u64);

/// Some of the replicas of a dispatcher, by slot: those of a service of duplicates are its servers.
pub type ReplicaSet = ServerSet;

/// What the dispatcher must know of a request to decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The replicas any of which can answer it.
    pub group: GroupId,
    /// Whether it may be sent a second time.
    pub replay: Replay,
    /// The replicas of the group that may answer it; `None` = the whole group. Whoever is not among
    /// them is never asked, also when nobody else is left: its answer would be wrong.
    pub among: Option<ReplicaSet>,
    /// Who else is asked when nobody of the group is up who was not asked before, as it may be
    /// sent again. With a fallback, attempts of which nothing was sent are no retries: as many
    /// follow as there are replicas, at most [`ATTEMPTS_MAX`] in all.
    pub fallback: Option<GroupId>,
    /// Copies that leave at once, each to another replica: at least 1. As many leave as there are
    /// trusted replicas, at most [`ATTEMPTS_MAX`].
    pub copies: u8,
    /// Whether a hedge may follow, where it may be sent twice: a plan may say that copies cost more
    /// than they save. Rescues and moves are not asked.
    pub may_hedge: bool,
}

impl Request {
    /// A request that any replica of the group can answer, sent once.
    #[inline]
    pub const fn new(group: GroupId, replay: Replay) -> Self {
        Self { group, replay, among: None, fallback: None, copies: 1, may_hedge: true }
    }
}

/// Whether a request may be sent again, on failure (retry) or in haste (hedge).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replay {
    /// Only when certainly nothing of it reached a replica (a connection that was refused).
    IfUnsent,
    /// When an earlier copy has failed, but not in haste: the request is idempotent, and two of it
    /// at once would hinder each other (a read that takes a round of Paxos).
    AfterFailure,
    /// Whenever it helps: the request is idempotent and its body is still at hand.
    Always,
}

impl Replay {
    /// Whether it may be sent again after this.
    #[inline]
    pub const fn is_allowed_after(self, failure: Failure) -> bool {
        match self {
            Self::IfUnsent => matches!(failure, Failure::Unsent),
            Self::AfterFailure | Self::Always => true,
        }
    }

    /// Whether it may be sent again while an earlier copy is on its way.
    #[inline]
    pub const fn is_allowed_in_haste(self) -> bool {
        matches!(self, Self::Always)
    }
}

/// Why an attempt was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The first copy, or one of those that left together with it.
    First,
    /// Sent because an earlier attempt failed.
    Retry,
    /// Sent because an earlier attempt takes long.
    Hedge,
    /// Sent because an earlier attempt must wait for a slot of its replica; that one is given up.
    Moved,
    /// Sent because the application asked for a copy at this replica (read repair, a write to all).
    Mirror,
}

impl Kind {
    /// Whether it is no further copy, but the one that a call waits for.
    pub(crate) const fn is_alone(self) -> bool {
        matches!(self, Self::First | Self::Moved)
    }
}

/// One copy of a request on its way to one replica.
///
/// A token: it is made by [`Step::Send`], learnt from once and finished once. It cannot be copied,
/// so it cannot be learnt from twice; the dispatcher's in-flight count tells if one is lost.
#[derive(Debug)]
#[must_use = "an attempt that is not finished stays in flight for ever"]
pub struct Attempt {
    pub(crate) call: CallId,
    pub(crate) replica: ReplicaId,
    /// Of the slot, when it was sent.
    pub(crate) generation: u32,
    pub(crate) kind: Kind,
    pub(crate) copy: u8,
    pub(crate) sent_at: Instant,
    /// When the first copy of its call was sent.
    pub(crate) first_sent_at: Instant,
    /// First copies in flight when it was sent, itself included if it is one.
    pub(crate) firsts: u32,
    pub(crate) learnt: Learnt,
    pub(crate) origin: Origin,
    /// Whether the policy that is tried out decided.
    pub(crate) is_explored: bool,
    /// The answer's length in bits, for the record.
    pub(crate) size: u8,
}

/// The request that a copy is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) call: CallId,
    pub(crate) number: u64,
    pub(crate) opened_at: Instant,
    pub(crate) group: GroupId,
}

/// What was learnt of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Learnt {
    Nothing,
    /// It was answered; its outcome is counted when the body ends.
    Reply {
        latency_us: u64,
    },
    /// It failed or was cancelled, and that is counted.
    NoReply,
}

impl Attempt {
    /// The call it serves.
    pub const fn call(&self) -> CallId {
        self.call
    }

    /// The replica it goes to.
    #[inline]
    pub const fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// Why it was sent.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Which attempt of its call it is, from 0: the number [`Step::Cancel`] and
    /// [`Step::Answered`] speak of. 255 for a mirror, which neither ever speaks of.
    #[inline]
    pub const fn copy(&self) -> usize {
        self.copy as usize
    }

    /// When it was sent.
    #[inline]
    pub const fn sent_at(&self) -> Instant {
        self.sent_at
    }

    /// Whether its outcome was learnt.
    pub const fn is_learnt(&self) -> bool {
        !matches!(self.learnt, Learnt::Nothing)
    }
}

/// How the body of an answer ended. Only [`Outcome::Replied`] has one; of other attempts it says
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyEnd {
    /// All of it came and was passed on.
    Complete,
    /// The replica broke off in the middle.
    UpstreamBroke,
    /// The replica did not go on within the time limit.
    TimedOut,
    /// The client left, or nobody wanted the answer: that says nothing of the replica.
    ClientGone,
}

impl BodyEnd {
    /// Whether the replica did not send what its head promised.
    #[inline]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::UpstreamBroke | Self::TimedOut)
    }
}

/// What became of an attempt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Outcome {
    /// The replica answered, perhaps with a report about itself.
    Replied(Option<Feedback>),
    /// It failed.
    Failed(Failure),
    /// The driver gave it up, because another copy won or the caller left.
    Cancelled,
}

/// How an attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Nothing of it reached the replica: connection refused, or no connection in time.
    Unsent,
    /// The connection broke after something was sent.
    Broken,
    /// No answer within the attempt's time limit.
    TimedOut,
    /// The replica answered that it cannot serve now (HTTP 502, 503, 504). Another may, so this is
    /// retried like a broken connection; the caller is given that answer when nobody had another.
    Unavailable,
    /// The replica answered with an error of its own (HTTP 500). The caller is given that answer
    /// when no other copy brings a better one; the replica's record is given the failure.
    ErrorReply,
}

/// Why a call ended without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The group has no replica that may be used.
    NoReplica,
    /// Too many calls of the group are held already.
    BacklogFull,
    /// Every permitted attempt failed; this was the last failure.
    Failed(Failure),
}

/// What to do next for a call.
#[derive(Debug)]
pub enum Step {
    /// Send this copy of the request.
    Send(Attempt),
    /// Give up the attempt with this number (see [`Attempt::copy`]); it lost.
    Cancel(usize),
    /// Nothing, until an attempt settles, the call is resumed, or the deadline passes.
    Wait {
        /// When to step again at the latest.
        until: Option<Deadline>,
    },
    /// The attempt with this number answered; hand its answer to the caller. It may have answered
    /// a while ago: an error reply (see [`Failure::ErrorReply`]) is kept until no copy that could
    /// do better is left.
    Answered(usize),
    /// There will be no answer.
    Refused(Refusal),
}

/// What learning an outcome means for the call; hand it to [`Call::settle`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a call whose attempt is learnt from but not settled waits for ever"]
pub struct Settled {
    pub(crate) call: CallId,
    pub(crate) copy: u8,
    pub(crate) end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Answered,
    AnsweredWithError,
    Unavailable,
    Failed(Failure),
    Cancelled,
}

impl End {
    /// What an outcome means for the call, whatever it means for the replica.
    pub(crate) const fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Replied(_) => Self::Answered,
            Outcome::Failed(Failure::ErrorReply) => Self::AnsweredWithError,
            Outcome::Failed(Failure::Unavailable) => Self::Unavailable,
            Outcome::Failed(failure) => Self::Failed(*failure),
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyState {
    Flying,
    /// The driver was told to give it up.
    Cancelling,
    Over,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyRecord {
    pub(crate) replica: ReplicaId,
    pub(crate) kind: Kind,
    pub(crate) state: CopyState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// A copy must be sent: the first, or a retry.
    Choosing(Kind),
    /// Copies are on their way.
    Flying,
    /// The copy with this number answered.
    Answered(u8),
    Refused(Refusal),
}

/// Whether a call has waited for answers to the policy's questions before its first copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Listening {
    NotYet,
    Until(Instant),
    Over,
}

/// When the replicas that a call waits for are asked whether they live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ping {
    Never,
    Due(Instant),
    /// They were asked at the first of these times, and should have answered by the second.
    Asked(Instant, Instant),
}

impl Ping {
    #[inline]
    pub(crate) const fn due(self) -> Option<Instant> {
        match self {
            Self::Never => None,
            Self::Due(at) | Self::Asked(_, at) => Some(at),
        }
    }
}

/// What a call's replica said of the attempt it has: that it must wait for a slot.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) enum Queued {
    #[default]
    No,
    /// Its answer is to be expected after so long.
    Told { copy: u8, wait_ms: f64 },
    /// Another one has left in its place, and it is to be given up.
    Moved { copy: u8 },
}

/// The life of one request, from open to close. About 150 bytes, no allocation.
#[derive(Debug)]
#[must_use = "close it with Dispatcher::close, or its place in the backlog stays taken"]
pub struct Call {
    pub(crate) id: CallId,
    /// Its number at its dispatcher, which no other call has.
    pub(crate) number: u64,
    pub(crate) request: Request,
    pub(crate) opened_at: Instant,
    /// When its first copy was sent.
    pub(crate) first_sent_at: Instant,
    pub(crate) phase: Phase,
    pub(crate) copies: ArrayVec<CopyRecord, ATTEMPTS_MAX>,
    pub(crate) flying: u8,
    /// Copies that are still to leave at once with the first.
    pub(crate) at_once: u8,
    pub(crate) retries: u8,
    pub(crate) hedges: u8,
    pub(crate) held: bool,
    pub(crate) listening: Listening,
    pub(crate) hedge_due: Option<Instant>,
    /// When another replica is asked beside those that were asked and say nothing.
    pub(crate) rescue_due: Option<Instant>,
    /// When its replica is asked whether it lives.
    pub(crate) ping: Ping,
    pub(crate) queued: Queued,
    /// Whether the driver says that they do.
    pub(crate) is_doubted: bool,
    /// Whether the budget forbade that once.
    pub(crate) is_denied: bool,
    pub(crate) last_failure: Option<Failure>,
    /// The copy that was answered with an error first, while others were still on their way.
    pub(crate) error_reply: Option<u8>,
    /// The copy that was last answered with "unavailable".
    pub(crate) unavailable: Option<u8>,
}

impl Call {
    pub(crate) fn new(now: Instant, (id, number): (CallId, u64), request: Request) -> Self {
        assert!(request.copies > 0, "a request without a copy is never answered");
        let candidates = request.among.map_or(ATTEMPTS_MAX, ReplicaSet::len);
        let at_once = usize::from(request.copies).min(candidates).saturating_sub(1) as u8;
        Self {
            id,
            number,
            request,
            opened_at: now,
            first_sent_at: now,
            phase: Phase::Choosing(Kind::First),
            copies: ArrayVec::new(),
            flying: 0,
            at_once,
            retries: 0,
            hedges: 0,
            held: false,
            listening: Listening::NotYet,
            hedge_due: None,
            rescue_due: None,
            ping: Ping::Never,
            queued: Queued::No,
            is_doubted: false,
            is_denied: false,
            last_failure: None,
            error_reply: None,
            unavailable: None,
        }
    }

    /// The driver's name for this call.
    pub const fn id(&self) -> CallId {
        self.id
    }

    #[inline]
    pub(crate) const fn origin(&self) -> Origin {
        let Self { id, number, opened_at, .. } = *self;
        Origin { call: id, number, opened_at, group: self.request.group }
    }

    /// When it was opened.
    pub const fn opened_at(&self) -> Instant {
        self.opened_at
    }

    /// Gives it other replicas to choose among from now on: the client lost a connection, or found
    /// one. Those that were tried stay tried.
    ///
    /// # Panics
    /// When the call is held: it has its place in the backlog of its group.
    pub fn regroup(&mut self, group: GroupId) {
        assert!(!self.held, "a held call waits for its group");
        self.request.group = group;
    }

    /// Who may answer has changed since it was opened: only these may be asked from now on. Those
    /// that were tried stay tried.
    #[inline]
    pub const fn limit(&mut self, among: ReplicaSet) {
        self.request.among = Some(among);
    }

    /// Those that may answer and were not asked; `None` where anybody of the group may.
    #[inline]
    pub(crate) fn unasked(&self) -> Option<ReplicaSet> {
        let mut unasked = self.request.among?;
        self.copies.iter().for_each(|copy| unasked.remove(copy.replica.index()));
        Some(unasked)
    }

    /// The replica that was asked is silent: another one is to be asked beside it now, as a retry
    /// before the failure, if one is left; then call `step` again.
    pub const fn doubt(&mut self, now: Instant) {
        (self.rescue_due, self.is_doubted) = (Some(now), true);
    }

    /// Takes over what became of one of its attempts; then call `step` again. A mirror's outcome
    /// changes nothing.
    ///
    /// # Panics
    /// When the outcome is another call's, or this attempt was settled before.
    pub fn settle(&mut self, settled: Settled) {
        assert_eq!(settled.call, self.id, "the outcome of another call");
        if settled.copy == MIRROR {
            return;
        }
        let copy = &mut self.copies[usize::from(settled.copy)];
        assert_ne!(copy.state, CopyState::Over, "an attempt settles once");
        copy.state = CopyState::Over;
        self.flying -= 1;
        if matches!(self.phase, Phase::Answered(_) | Phase::Refused(_)) {
            return;
        }
        match settled.end {
            End::Answered => self.phase = Phase::Answered(settled.copy),
            End::AnsweredWithError => self.error_reply = self.error_reply.or(Some(settled.copy)),
            End::Unavailable => {
                self.unavailable = Some(settled.copy);
                self.last_failure = Some(Failure::Unavailable);
            }
            End::Failed(failure) => self.last_failure = Some(failure),
            // Its replica may have seen it, whatever became of the attempts before.
            End::Cancelled => self.last_failure = Some(Failure::Broken),
        }
        if let (Phase::Flying, 0, Some(copy)) = (self.phase, self.flying, self.error_reply) {
            self.phase = Phase::Answered(copy);
        }
    }

    /// Ends the call without a good answer: with the last "unavailable", if a replica said so.
    pub(crate) fn give_up(&mut self, refusal: Refusal) -> Step {
        let (phase, step) = match self.unavailable {
            Some(copy) => (Phase::Answered(copy), Step::Answered(usize::from(copy))),
            None => (Phase::Refused(refusal), Step::Refused(refusal)),
        };
        self.phase = phase;
        step
    }

    /// The driver waits no longer: the call took too long altogether, which is what its client is
    /// told. Attempts still on their way are cancelled as those that lost.
    pub fn expire(&mut self) {
        self.phase = Phase::Refused(Refusal::Failed(Failure::TimedOut));
    }

    /// The next attempt that lost and was not yet told so.
    pub(crate) fn next_loser(&mut self) -> Option<usize> {
        if self.flying == 0 {
            return None;
        }
        let flying = |copy: &CopyRecord| copy.state == CopyState::Flying;
        let number = self.copies.iter().position(flying)?;
        self.copies[number].state = CopyState::Cancelling;
        Some(number)
    }
}
