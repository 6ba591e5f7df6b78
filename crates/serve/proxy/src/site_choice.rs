//! One request's way between data centres: where it goes, where it goes next when it is not served
//! there, and what is counted of it at the end.
//!
//! Above the calls, which know who can be reached, and the split, which knows the plan.

use std::rc::Rc;

use evenkeel_core::Instant;
use evenkeel_core::request::{BodyEnd, Failure, Refusal};
use evenkeel_geo::epoch::{SiteId, SiteSet};
use evenkeel_geo::split::patience::{Sent, Waits};

use crate::calls::Calls;
use crate::site_router::{Destination, SiteRouter};
use crate::site_setup::Constraints;
use evenkeel_geo::demand::SiteTally;

/// A request of our own users on its way, from its arrival to the last byte of its answer.
#[derive(Debug)]
pub struct SiteChoice {
    calls: Rc<Calls>,
    to: SiteId,
    arrived_at: Instant,
    /// Whether it was at another site before it came home.
    has_returned: bool,
    /// The sites it may be sent to when home cannot serve it: once, and not when it was there
    /// already.
    failover: SiteSet,
    /// Whether it waits at another site for as long as that takes.
    waits_on: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// No answer yet.
    Waiting,
    /// The head of its answer has come, or a refusal: was that late, or an error?
    Answered { has_missed: bool },
    /// It is counted, or will never be.
    Over,
}

impl SiteChoice {
    const SPLIT: &str = "only a route that splits its requests begins journeys";

    /// Chooses the data centre for a request of our own users and counts it, where requests are
    /// split.
    pub fn depart(calls: &Rc<Calls>, constraints: Constraints) -> Option<Self> {
        let split = calls.split()?;
        let now = calls.tick();
        calls.look_up_usable(split, now);
        let Destination { to, failover } = split.choose(now, constraints);
        let calls = Rc::clone(calls);
        let (has_returned, waits_on, state) = (false, false, State::Waiting);
        Some(Self { calls, to, arrived_at: now, has_returned, failover, waits_on, state })
    }

    /// Whether it goes to another site.
    pub fn is_away(&self) -> bool {
        self.to != self.split().home()
    }

    /// The data centre it goes to, among those of the upstream.
    pub(crate) fn datacenter(&self) -> usize {
        self.split().datacenter(self.to).expect("a site without a place is never usable")
    }

    /// Goes elsewhere with what home could not serve, or comes home with what another site did not:
    /// after a refusal there or (`None`) an answer of "unavailable". False when it can do neither.
    pub(crate) fn begin_again(&mut self, refusal: Option<Refusal>) -> bool {
        assert_eq!(self.state, State::Waiting, "what is answered does not begin again");
        if self.is_lost(refusal) { self.failover(refusal) } else { self.turn_back(refusal) }
    }

    /// Comes back home from a site that did not serve it, after a refusal there or (`None`) an
    /// answer of "unavailable". False when it is at home.
    fn turn_back(&mut self, refusal: Option<Refusal>) -> bool {
        let split = self.calls.split().expect(Self::SPLIT);
        if self.to == split.home() {
            return false;
        }
        split.note_return(refusal);
        self.go_home();
        true
    }

    fn go_home(&mut self) {
        let split = self.calls.split().expect(Self::SPLIT);
        split.note_fallback(self.to);
        self.to = split.home();
        (self.has_returned, self.failover) = (true, SiteSet::EMPTY);
    }

    /// Until when a request that may be sent again waits for an answer from another site.
    /// `silent_at` is when all who work on it there fall silent.
    pub(crate) fn waits(&mut self, silent_at: Option<Instant>) -> Waits {
        let split = self.calls.split().expect(Self::SPLIT);
        let now = self.calls.read_at();
        self.calls.look_up_usable(split, now);
        let mut sent = Sent { to: self.to, arrived_at: self.arrived_at, waits_on: self.waits_on };
        let waits = split.waits(now, &mut sent, silent_at);
        self.waits_on = sent.waits_on;
        waits
    }

    /// Comes home from a site that did not answer.
    pub(crate) fn leave(&mut self) {
        assert_eq!(self.state, State::Waiting, "what is answered does not begin again");
        let split = self.calls.split().expect(Self::SPLIT);
        split.look_again(); // others need not go there first
        split.note_leave();
        self.go_home();
    }

    /// Whether home could not serve it, after a refusal there or (`None`) an answer of
    /// "unavailable", and it may go elsewhere.
    fn is_lost(&self, refusal: Option<Refusal>) -> bool {
        let split = self.split();
        if self.to != split.home() || self.failover.is_empty() {
            return false;
        }
        self.calls.look_up_usable(split, self.calls.read_at());
        let is_out_of_reach = refusal.is_some_and(|refusal| {
            matches!(refusal, Refusal::NoReplica | Refusal::Failed(Failure::Unsent))
        });
        is_out_of_reach || !split.is_home_usable()
    }

    /// Goes to another site in place of home. False when there is none that has room.
    fn failover(&mut self, refusal: Option<Refusal>) -> bool {
        let split = self.calls.split().expect(Self::SPLIT);
        let failover = std::mem::replace(&mut self.failover, SiteSet::EMPTY);
        let Some(to) = split.failover(self.calls.read_at(), failover) else { return false };
        split.note_return(refusal);
        self.to = to;
        true
    }

    /// The head of its answer has come, or a refusal. That is when its latency is measured.
    pub(crate) fn answer(&mut self, has_failed: bool) {
        assert_eq!(self.state, State::Waiting, "a request is answered once");
        let latency = self.calls.read_at().since(self.arrived_at);
        let split = self.split();
        let is_late = latency > split.setup().objective;
        split.record_latency(self.to, latency);
        if !has_failed && !self.has_returned {
            split.note_reply(self.to, latency);
        }
        self.state = State::Answered { has_missed: is_late || has_failed };
    }

    /// Ends with the last byte of its answer, and is counted then. An answer that broke off was a
    /// miss; of one that the client left, the head counts.
    pub(crate) fn end(mut self, end: BodyEnd) {
        if let State::Answered { has_missed } = self.state {
            self.count(has_missed || end.is_failure());
        }
        self.state = State::Over;
    }

    fn count(&self, has_missed: bool) {
        let one = SiteTally { ended: 1, missed: has_missed.into() };
        self.split().count(self.to, one, self.has_returned);
    }

    /// Ends because of the client, which says nothing of any site.
    pub(crate) fn forget(mut self) {
        self.state = State::Over;
    }

    fn split(&self) -> &SiteRouter {
        self.calls.split().expect(Self::SPLIT)
    }
}

impl Drop for SiteChoice {
    /// The client has gone before an answer came. When the objective had passed by then, that was
    /// missed; if not, nobody knows.
    fn drop(&mut self) {
        match self.state {
            State::Over => {}
            State::Answered { has_missed } => self.count(has_missed),
            State::Waiting => {
                let waited = self.calls.tick().since(self.arrived_at);
                if waited > self.split().setup().objective {
                    self.count(true);
                }
            }
        }
    }
}
