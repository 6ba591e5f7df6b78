//! Guards of calls and attempts: an attempt is finished and a call is closed even when the client
//! goes away in the middle, which drops the request's future where it stands.

use std::rc::Rc;
use std::task::Waker;

use evenkeel_core::request::{Attempt, Call, CallId, Outcome, Refusal, Settled, Step};
use evenkeel_core::units::Dimmer;
use evenkeel_core::{Deadline, ReplicaId};

use super::Calls;
use crate::split::Split;

/// A call that is closed when it goes out of scope.
#[derive(Debug)]
pub(crate) struct OpenCall {
    calls: Rc<Calls>,
    /// The data centre it is for.
    datacenter: usize,
    /// `None` only while being dropped.
    call: Option<Call>,
}

impl OpenCall {
    const OPEN: &str = "a call is there until it is dropped";

    pub(super) const fn new(calls: Rc<Calls>, datacenter: usize, call: Call) -> Self {
        Self { calls, datacenter, call: Some(call) }
    }

    /// What to do next.
    pub(crate) fn step(&mut self) -> Next {
        let now = self.calls.read_at.get();
        let call = self.call.as_mut().expect(Self::OPEN);
        let step = self.calls.dispatcher(self.datacenter).step(now, call);
        self.calls.resume_held(self.datacenter); // a step may make the next held call the head
        match step {
            Step::Send(attempt) => {
                let (calls, datacenter) = (Rc::clone(&self.calls), self.datacenter);
                Next::Send(OpenAttempt { calls, datacenter, attempt: Some(attempt) })
            }
            Step::Cancel(copy) => Next::Cancel(copy),
            Step::Wait { until } => {
                if until.is_none() && self.calls.dispatcher(self.datacenter).deadline().is_some() {
                    self.calls.tell_timekeeper(); // it may be earlier than the one it knows
                }
                Next::Wait(until)
            }
            Step::Answered(copy) => Next::Answered(copy),
            Step::Refused(refusal) => Next::Refused(refusal),
        }
    }

    pub(crate) fn settle(&mut self, settled: Settled) {
        self.call.as_mut().expect(Self::OPEN).settle(settled);
    }

    fn id(&self) -> CallId {
        self.call.as_ref().expect(Self::OPEN).id()
    }

    /// Waits to be resumed, if the call is held: see [`OpenCall::was_resumed`].
    pub(crate) fn hold(&self, waker: &Waker) {
        self.calls.held.borrow_mut().insert(self.id(), waker.clone());
    }

    /// True when the call waited and its turn has come.
    pub(crate) fn was_resumed(&self) -> bool {
        !self.calls.held.borrow().contains_key(&self.id())
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        self.calls.held.borrow_mut().remove(&call.id());
        let now = self.calls.read_at.get();
        self.calls.dispatcher(self.datacenter).close(now, call);
        self.calls.resume_held(self.datacenter);
    }
}

/// What [`OpenCall::step`] says: core's `Step`, with the attempt under guard.
#[derive(Debug)]
pub(crate) enum Next {
    Send(OpenAttempt),
    Cancel(usize),
    Wait(Option<Deadline>),
    Answered(usize),
    Refused(Refusal),
}

/// An attempt that is finished when it goes out of scope; cancelled, if nobody learnt from it.
#[derive(Debug)]
pub(crate) struct OpenAttempt {
    calls: Rc<Calls>,
    /// The data centre it goes to.
    datacenter: usize,
    /// `None` only while being dropped.
    attempt: Option<Attempt>,
}

impl OpenAttempt {
    const OPEN: &str = "an attempt is there until it is dropped";

    /// The data centre it goes to.
    pub(crate) const fn datacenter(&self) -> usize {
        self.datacenter
    }

    /// The replica it goes to, among those of its data centre.
    pub(crate) fn replica(&self) -> ReplicaId {
        self.attempt.as_ref().expect(Self::OPEN).replica()
    }

    /// Hears the replica's dimmer; before its answer is learnt.
    pub(crate) fn hear_dimmer(&self, dimmer: Dimmer) {
        let now = self.calls.read_at.get();
        let attempt = self.attempt.as_ref().expect(Self::OPEN);
        self.calls.dispatcher(self.datacenter).hear_dimmer(now, attempt, dimmer);
    }

    /// Whether its outcome was learnt.
    pub(crate) fn is_learnt(&self) -> bool {
        self.attempt.as_ref().expect(Self::OPEN).is_learnt()
    }

    /// Learns the outcome of an attempt whose call is closed.
    pub(crate) fn learn_late(&mut self, outcome: &Outcome) {
        let _ = self.learn(outcome); // nobody waits for it
    }

    /// Gives a copy up that lost; hand the answer to [`OpenCall::settle`].
    pub(crate) fn give_up(&mut self) -> Settled {
        let now = self.calls.read_at.get();
        let attempt = self.attempt.as_mut().expect(Self::OPEN);
        self.calls.dispatcher(self.datacenter).give_up(now, attempt)
    }

    /// Learns the outcome; hand the answer to [`OpenCall::settle`].
    pub(crate) fn learn(&mut self, outcome: &Outcome) -> Settled {
        let now = self.calls.read_at.get();
        let attempt = self.attempt.as_mut().expect(Self::OPEN);
        if matches!(outcome, Outcome::Failed(_)) {
            self.calls.split.iter().for_each(Split::look_again); // it may have been ejected for it
        }
        self.calls.dispatcher(self.datacenter).learn(now, attempt, outcome)
    }
}

impl Drop for OpenAttempt {
    fn drop(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        let calls = &self.calls;
        // Given up in mid-air: whenever that is. Otherwise its end follows its answer.
        let now = if attempt.is_learnt() { calls.read_at.get() } else { calls.tick() };
        calls.dispatcher(self.datacenter).finish(now, attempt);
    }
}
