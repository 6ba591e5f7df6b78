//! Guards of calls and attempts: an attempt is finished and a call is closed even when the client
//! goes away in the middle, which drops the request's future where it stands.

use std::cell::OnceCell;
use std::rc::Rc;
use std::task::Waker;

use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Kind, Outcome, Refusal, Settled, Step,
};
use evenkeel_core::units::Dimmer;
use evenkeel_core::{Deadline, Feedback, Instant, ReplicaId};

use super::observer::Record;
use super::{Calls, Notice};
use crate::site_router::SiteRouter;

/// A call that is closed when it goes out of scope.
#[derive(Debug)]
pub struct OpenCall {
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

    /// What to do next. Writes down what is decided, where somebody keeps that.
    pub fn step(&mut self, record: &mut Record) -> Next {
        let now = self.calls.read_at.get();
        let call = self.call.as_mut().expect(Self::OPEN);
        let mut dispatcher = self.calls.dispatcher(self.datacenter);
        let step = dispatcher.step(now, call);
        let wants_notice = matches!(step, Step::Send(_)) && dispatcher.wants_notices(call);
        if let Some(decisions) = dispatcher.decisions() {
            record.decided(self.datacenter, decisions);
        }
        drop(dispatcher);
        self.calls.resume_held(self.datacenter); // a step may make the next held call the head
        match step {
            Step::Send(attempt) => {
                let (calls, datacenter) = (Rc::clone(&self.calls), self.datacenter);
                let (attempt, notice) = (Some(attempt), OnceCell::new());
                Next::Send(OpenAttempt { calls, datacenter, attempt, wants_notice, notice })
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

    /// The second copy of a call whose first copy just left, if it is one of the pairs.
    pub(super) fn pair(&mut self) -> Option<OpenAttempt> {
        let (now, call) = (self.calls.read_at.get(), self.call.as_ref().expect(Self::OPEN));
        let pair = self.calls.dispatcher(self.datacenter).pair(now, call)?;
        let (calls, datacenter) = (Rc::clone(&self.calls), self.datacenter);
        let (attempt, notice) = (Some(pair), OnceCell::new());
        Some(OpenAttempt { calls, datacenter, attempt, wants_notice: false, notice })
    }

    /// The number that agents are told of it; `None` where nothing is recorded.
    pub(super) fn number(&self) -> Option<u64> {
        let call = self.call.as_ref().expect(Self::OPEN);
        self.calls.dispatcher(self.datacenter).number(call)
    }

    /// Takes over what learning an attempt's outcome means for the call.
    ///
    /// # Panics
    /// When it is the outcome of another call.
    pub fn settle(&mut self, settled: Settled) {
        self.call.as_mut().expect(Self::OPEN).settle(settled);
    }

    /// Hears that an attempt of it waits for a slot of its replica; then step again.
    pub(super) fn hear_queued(&mut self, attempt: &OpenAttempt, report: &Feedback) {
        let (now, call) = (self.calls.read_at.get(), self.call.as_mut().expect(Self::OPEN));
        let attempt = attempt.attempt.as_ref().expect(OpenAttempt::OPEN);
        self.calls.dispatcher(self.datacenter).hear_queued(now, call, attempt, report);
    }

    /// When everybody who works on it falls silent; see core's `silent_at`.
    pub(super) fn silent_at(&self) -> Option<Instant> {
        let (now, call) = (self.calls.read_at.get(), self.call.as_ref().expect(Self::OPEN));
        self.calls.dispatcher(self.datacenter).silent_at(now, call)
    }

    /// The request took too long altogether.
    pub(super) fn expire(&mut self) {
        self.call.as_mut().expect(Self::OPEN).expire();
    }

    /// The data centre it is for.
    pub(super) const fn datacenter(&self) -> usize {
        self.datacenter
    }

    fn id(&self) -> CallId {
        self.call.as_ref().expect(Self::OPEN).id()
    }

    /// Waits to be resumed, if the call is held: see [`OpenCall::was_resumed`].
    pub fn hold(&self, waker: &Waker) {
        self.calls.held.borrow_mut().insert(self.id(), waker.clone());
    }

    /// True when the call waited and its turn has come.
    pub fn was_resumed(&self) -> bool {
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
pub enum Next {
    /// Send this attempt, then ask again.
    Send(OpenAttempt),
    /// Cancel the attempt with this number, then ask again.
    Cancel(usize),
    /// Nothing to do until an attempt ends, or until then; `None`: no deadline.
    Wait(Option<Deadline>),
    /// The answer of the attempt with this number is the call's.
    Answered(usize),
    /// There is no answer: the client is told why.
    Refused(Refusal),
}

/// An attempt that is finished when it goes out of scope; cancelled, if nobody learnt from it.
#[derive(Debug)]
pub struct OpenAttempt {
    calls: Rc<Calls>,
    /// The data centre it goes to.
    datacenter: usize,
    /// `None` only while being dropped.
    attempt: Option<Attempt>,
    /// Whether its replica is to tell if it must wait for a slot.
    wants_notice: bool,
    /// There where that may be heard.
    notice: OnceCell<Rc<Notice>>,
}

impl OpenAttempt {
    const OPEN: &str = "an attempt is there until it is dropped";

    /// The data centre it goes to.
    pub const fn datacenter(&self) -> usize {
        self.datacenter
    }

    /// The replica it goes to, among those of its data centre.
    pub fn replica(&self) -> ReplicaId {
        self.attempt.as_ref().expect(Self::OPEN).replica()
    }

    /// Why it was sent.
    pub(crate) fn kind(&self) -> Kind {
        self.attempt.as_ref().expect(Self::OPEN).kind()
    }

    /// The calls of its upstream.
    pub(crate) const fn calls(&self) -> &Rc<Calls> {
        &self.calls
    }

    /// Whether its replica is to tell if it must wait for a slot: [`OpenAttempt::notice`].
    pub const fn wants_notice(&self) -> bool {
        self.wants_notice
    }

    /// Where to tell that. Only for a protocol whose replicas give up what waits when it is
    /// cancelled.
    pub fn notice(&self) -> Rc<Notice> {
        Rc::clone(self.notice.get_or_init(Rc::default))
    }

    /// That its replica lets it wait, if that was told and not taken yet.
    pub(super) fn take_notice(&self, waker: &Waker) -> Option<Feedback> {
        self.notice.get().and_then(|notice| notice.take(waker))
    }

    /// Whether its replica has ever told a dimmer.
    pub fn is_to_dimmer(&self) -> bool {
        let dispatcher = self.calls.dispatcher(self.datacenter);
        dispatcher.fleet().replica(self.replica()).dimmer().is_some()
    }

    /// Hears the replica's dimmer; before its answer is learnt.
    pub fn receive_dimmer(&self, dimmer: Dimmer) {
        let now = self.calls.read_at.get();
        let attempt = self.attempt.as_ref().expect(Self::OPEN);
        self.calls.dispatcher(self.datacenter).receive_dimmer(now, attempt, dimmer);
    }

    /// Notes how many bytes its answer has, before that is learnt from.
    pub(super) fn note_size(&mut self, bytes: u64) {
        self.attempt.as_mut().expect(Self::OPEN).note_size(bytes);
    }

    /// Whether its outcome was learnt.
    pub fn is_learnt(&self) -> bool {
        self.attempt.as_ref().expect(Self::OPEN).is_learnt()
    }

    /// Learns the outcome of an attempt whose call is closed.
    pub fn learn_late(&mut self, outcome: &Outcome) {
        let _ = self.learn(outcome); // nobody waits for it
    }

    /// Gives a copy up that lost; hand the answer to [`OpenCall::settle`].
    pub fn give_up(&mut self) -> Settled {
        let now = self.calls.read_at.get();
        let attempt = self.attempt.as_mut().expect(Self::OPEN);
        self.calls.dispatcher(self.datacenter).give_up(now, attempt)
    }

    /// Learns the outcome; hand the answer to [`OpenCall::settle`].
    pub fn learn(&mut self, outcome: &Outcome) -> Settled {
        let now = self.calls.read_at.get();
        let attempt = self.attempt.as_mut().expect(Self::OPEN);
        if matches!(outcome, Outcome::Failed(_)) {
            self.calls.split.iter().for_each(SiteRouter::look_again); // it may be ejected now
        }
        self.calls.dispatcher(self.datacenter).learn(now, attempt, outcome)
    }

    /// Ends it: the body of its answer has come to this end.
    pub(crate) fn finish(mut self, end: BodyEnd) {
        assert!(self.is_learnt(), "an answer's end follows its head");
        self.close(end);
    }

    fn close(&mut self, end: BodyEnd) {
        let Some(attempt) = self.attempt.take() else { return };
        let calls = &self.calls;
        // Given up in mid-air or broken off: whenever that is. Otherwise the time tells nothing.
        let is_news = !attempt.is_learnt() || end.is_failure();
        let now = if is_news { calls.tick() } else { calls.read_at.get() };
        if end.is_failure() {
            calls.split.iter().for_each(SiteRouter::look_again); // it may be ejected for it
        }
        calls.dispatcher(self.datacenter).finish(now, attempt, end);
    }
}

impl Drop for OpenAttempt {
    fn drop(&mut self) {
        self.close(BodyEnd::ClientGone);
    }
}
