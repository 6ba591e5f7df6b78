//! What became of each copy of each request, for whoever records it, and what is done for the sake
//! of the record: some requests go to two replicas, and in some windows another policy decides.
//!
//! Told by the dispatcher, which every protocol and the simulator drive: so all of them record the
//! same. It changes no decision but those two. **Why they are needed**: how much of a service time
//! belongs to the request, and how much to the copy, only a second copy tells; and a replay that
//! reproduces the policy of the day may still be wrong about another one, which only a window under
//! another one shows. **Source**: randomised slices as in CausalSim (NSDI '23).

use core::fmt::Debug;

use crate::fleet::{GroupId, ReplicaId};
use crate::request::call::{Kind, Outcome};
use crate::rng::Rng;
use crate::time::{Duration, Instant, nanos};
use crate::units::Probability;

/// The length of a window in which one policy decides.
pub const WINDOW: Duration = Duration::from_secs(60);

crate::named! {
    /// How a copy ended for its client.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum CopyEnd {
        /// With an answer.
        Answered = "answered",
        /// With an error, or with none in time.
        Failed = "failed",
        /// Given up: another copy was faster, or nobody waited any more.
        Cancelled = "cancelled",
    }
}

impl CopyEnd {
    pub(crate) const fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Replied(_) => Self::Answered,
            Outcome::Failed(_) => Self::Failed,
            Outcome::Cancelled => Self::Cancelled,
        }
    }
}

/// One copy of one request, when its outcome is known. Of fixed size, and it says nothing of what
/// was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyRecord {
    /// The number of its request at its dispatcher, from 1 on.
    pub request: u64,
    /// When it was sent.
    pub sent_at: Instant,
    /// How long after the arrival of its request that was, ns.
    pub after_ns: u64,
    /// From then to its outcome, ns.
    pub latency_ns: u64,
    /// Where.
    pub replica: ReplicaId,
    /// The replica group of its request.
    pub group: GroupId,
    /// Why; a [`Kind::Mirror`] is the second of a pair.
    pub kind: Kind,
    /// Whether the policy that is tried out decided.
    pub is_explored: bool,
    /// How it ended.
    pub end: CopyEnd,
    /// The answer's length, as [`bits`] has it.
    pub size: u8,
}

/// How many bits a length in bytes has: 0 to 64. 0: nothing, or unknown.
#[inline]
pub const fn bits(bytes: u64) -> u8 {
    (u64::BITS - bytes.leading_zeros()) as u8
}

/// Who is told of copies.
pub trait CopySink: Debug + Send {
    /// This copy has its outcome.
    fn copy_ended(&mut self, copy: &CopyRecord);

    /// The number that a request of this dispatcher has among those of all: what an agent is told.
    fn number(&self, request: u64) -> u64 {
        request
    }
}

/// One copy as the agent before its replica saw it, when it has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServedRecord {
    /// The number that its request came with ([`CopySink::number`]); 0 for none.
    pub number: u64,
    /// When it came.
    pub arrived_at: Instant,
    /// From then until it was served, ns; if it never was, until it left.
    pub wait_ns: u64,
    /// From then until it left, ns.
    pub service_ns: u64,
    /// Requests that were there when it came.
    pub queue: u32,
    /// Whether nothing of its content was left out.
    pub is_full: bool,
    /// How it ended.
    pub end: CopyEnd,
    /// The answer's length, as [`bits`] has it.
    pub size: u8,
}

/// Who is told of what an agent saw.
pub trait ServedSink: Debug + Send {
    /// This copy has left.
    fn copy_left(&mut self, copy: &ServedRecord);
}

/// Which windows are those of the policy that is tried out.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Windows {
    /// Share of the windows: 0 to 1.
    pub share: Probability,
    /// Equal seeds draw equal windows: all dispatchers of a process change at the same time.
    pub seed: u64,
}

impl Windows {
    /// Whether the policy that is tried out decides now, and until when that stands.
    pub fn look(&self, now: Instant) -> (bool, Instant) {
        let number = now.as_nanos() / nanos(WINDOW);
        let mut rng = Rng::stream(self.seed.wrapping_add(number), "windows");
        (rng.chance(self.share), Instant::from_nanos((number + 1).saturating_mul(nanos(WINDOW))))
    }
}

/// What a dispatcher has for the record.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) sink: Box<dyn CopySink>,
    pub(crate) pairs: Probability,
    pub(crate) rng: Rng,
}
