//! Drivers under a client that has timers and retries of its own.

use super::Dispatcher;
use crate::request::call::{Attempt, Call, End, Kind, Learnt, Outcome, Settled};
use crate::request::decision::HedgeFate;
use crate::request::select::Choice;
use crate::time::{Duration, Instant};

/// For drivers under a client that has timers and retries of its own: it asks for the next replica
/// of a call and is not told when. Attempts are learnt from as ever; `step` is for the first alone.
impl Dispatcher {
    /// After how long a call would be given its next copy if that many were sent; `None` while no
    /// copy is foreseen, or while so many calls are late that none may leave.
    pub fn copy_due(&mut self, copies_sent: usize) -> Option<Duration> {
        let is_gated = self.redundancy.stats().is_some_and(|stats| stats.is_gated);
        if is_gated { None } else { self.redundancy.copy_due(copies_sent) }
    }

    /// The copy of a call that was foreseen when the one before was sent; whoever calls this says
    /// that it is due. `None` when budget, gate or policy keep it back: then it will never leave.
    pub fn copy(&mut self, now: Instant, call: &mut Call) -> Option<Attempt> {
        call.hedge_due.take()?;
        let fate = if !self.find_further(now, call) {
            HedgeFate::NoReplica
        } else if !self.redundancy.permits_copy(now) {
            self.hedge_denial()
        } else if let Some(replica) = self.choose_found(now, call) {
            return Some(self.send(now, call, replica, Kind::Hedge));
        } else {
            HedgeFate::HeldBack
        };
        self.window.hedges_denied += 1;
        self.note_hedge_fate(fate, None);
        None
    }

    /// One more attempt of a call because one failed: the client has its own mind about how often.
    /// `None` when no replica is left, the policy would hold it back, or the call made as many as
    /// it can ([`ATTEMPTS_MAX`](crate::request::call::ATTEMPTS_MAX)).
    pub fn retry(&mut self, now: Instant, call: &mut Call) -> Option<Attempt> {
        if call.copies.is_full() {
            return None;
        }
        match self.choose(now, call) {
            Choice::Send(replica) => Some(self.send(now, call, replica, Kind::Retry)),
            Choice::Hold { .. } | Choice::Refuse => None,
        }
    }

    /// Learns nothing of an attempt: it was never sent after all, or nobody told when it ended, so
    /// that its age does not say how long answers take.
    ///
    /// # Panics
    /// When this attempt was learnt from before.
    pub fn forget(&mut self, now: Instant, attempt: &mut Attempt) -> Settled {
        assert!(!attempt.is_learnt(), "what was learnt from is not forgotten");
        attempt.learnt = Learnt::NoReply;
        if self.is_current(attempt) {
            self.window.replicas[attempt.replica.index()].cancelled += 1;
            self.fleet.replica_mut(attempt.replica).silence.given_up();
            self.selector.on_outcome(now, attempt, &Outcome::Cancelled, &self.fleet);
        }
        self.note_copy(now, attempt, &Outcome::Cancelled);
        Settled { call: attempt.call, copy: attempt.copy, end: End::Cancelled }
    }
}
