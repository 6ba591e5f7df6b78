//! Two policies, of which one decides and both learn: in some windows the policy of the upstream
//! makes room for one that is tried out ([`Windows`]).
//!
//! Both hear of every copy, so neither begins anew when its turn comes. **When it misleads**: at
//! the start of a window the queues are still those that the other one made; a window is longer
//! than that lasts. A policy that asks replicas for their state hears answers only to its own
//! questions.

use crate::fleet::{Feedback, Fleet, ReplicaId};
use crate::request::call::{Attempt, Kind, Outcome};
use crate::request::copies::Windows;
use crate::request::decision::Candidate;
use crate::request::select::random::Random;
use crate::request::select::{Asked, Candidates, Choice, Selector, Told, same_kind};
use crate::rng::Rng;
use crate::time::Instant;

/// A policy, and another one in its place in some windows.
#[derive(Debug)]
pub struct Exploring {
    usual: Box<dyn Selector>,
    other: Box<dyn Selector>,
    windows: Windows,
    is_other: bool,
    /// When the window ends.
    until: Instant,
}

impl Exploring {
    /// The usual policy, and the other one in these windows.
    pub fn new(usual: Box<dyn Selector>, other: Box<dyn Selector>, windows: Windows) -> Self {
        Self { usual, other, windows, is_other: false, until: Instant::ZERO }
    }

    /// The usual policy of one that explores, or the policy itself; another one is left.
    pub(crate) fn take_usual(from: &mut Box<dyn Selector>) -> Box<dyn Selector> {
        match same_kind::<Self>(&mut **from) {
            Some(exploring) => core::mem::replace(&mut exploring.usual, Box::new(Random)),
            None => core::mem::replace(from, Box::new(Random)),
        }
    }

    /// Puts another usual policy in place, which takes over what the one before has learnt.
    pub(crate) fn change_usual(
        now: Instant,
        of: &mut Box<dyn Selector>,
        mut next: Box<dyn Selector>,
    ) {
        let usual = match same_kind::<Self>(&mut **of) {
            Some(exploring) => &mut exploring.usual,
            None => of,
        };
        next.inherit(now, &mut **usual);
        *usual = next;
    }

    #[inline]
    fn look(&mut self, now: Instant) {
        if now >= self.until {
            (self.is_other, self.until) = self.windows.look(now);
        }
    }

    fn one(&self) -> &dyn Selector {
        if self.is_other { &*self.other } else { &*self.usual }
    }

    fn one_mut(&mut self) -> &mut dyn Selector {
        if self.is_other { &mut *self.other } else { &mut *self.usual }
    }

    fn both(&mut self) -> [&mut Box<dyn Selector>; 2] {
        [&mut self.usual, &mut self.other]
    }
}

impl Selector for Exploring {
    fn name(&self) -> &'static str {
        self.one().name()
    }

    fn is_exploring(&self) -> Option<bool> {
        Some(self.is_other)
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        self.look(now);
        self.one_mut().select(now, candidates, rng)
    }

    fn holds(&self) -> bool {
        self.one().holds()
    }

    fn cost(&self, now: Instant, fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        self.one().cost(now, fleet, replica)
    }

    fn moves(&self) -> bool {
        self.one().moves()
    }

    fn quickest(&self, now: Instant, from: Candidates<'_>) -> Option<(ReplicaId, f64)> {
        self.one().quickest(now, from)
    }

    fn rate(&self, now: Instant, fleet: &Fleet, candidates: &mut [Candidate]) {
        self.one().rate(now, fleet, candidates);
    }

    fn rate_chosen_among(&self, now: Instant, fleet: &Fleet, candidates: &mut [Candidate]) {
        self.one().rate_chosen_among(now, fleet, candidates);
    }

    fn on_send(&mut self, now: Instant, replica: ReplicaId, kind: Kind, fleet: &Fleet) {
        self.look(now);
        self.both().into_iter().for_each(|one| one.on_send(now, replica, kind, fleet));
    }

    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, fleet: &Fleet) {
        self.both().into_iter().for_each(|one| one.on_outcome(now, of, outcome, fleet));
    }

    fn on_siblings(&mut self, now: Instant, replica: ReplicaId, told: &Told) {
        self.both().into_iter().for_each(|one| one.on_siblings(now, replica, told));
    }

    fn on_membership(&mut self, now: Instant, fleet: &Fleet) {
        self.both().into_iter().for_each(|one| one.on_membership(now, fleet));
    }

    fn on_reassigned(&mut self, now: Instant, replica: ReplicaId, fleet: &Fleet) {
        self.both().into_iter().for_each(|one| one.on_reassigned(now, replica, fleet));
    }

    fn asks(&self) -> bool {
        self.usual.asks() || self.other.asks()
    }

    fn ask(
        &mut self,
        now: Instant,
        candidates: Candidates<'_>,
        rng: &mut Rng,
        whom: &mut Asked,
    ) -> Option<Instant> {
        self.look(now);
        self.one_mut().ask(now, candidates, rng, whom)
    }

    fn next_probe(&mut self) -> Option<ReplicaId> {
        self.one_mut().next_probe()
    }

    fn on_probe(&mut self, now: Instant, replica: ReplicaId, answer: Option<&Feedback>) {
        self.both().into_iter().for_each(|one| one.on_probe(now, replica, answer));
    }
}
