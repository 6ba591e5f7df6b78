//! Tells of copies whoever records them, and sends the second copies of pairs.

use super::Dispatcher;
use crate::request::call::{Attempt, Call, Kind, MIRROR, Outcome};
use crate::request::copies::{CopyEnd, CopyRecord, CopySink, Recording, Windows, bits};
use crate::request::select::Selector;
use crate::request::select::exploring::Exploring;
use crate::rng::Rng;
use crate::time::Instant;
use crate::units::Probability;

impl Attempt {
    /// Notes how many bytes its answer has, before that is learnt from: for the record.
    #[inline]
    pub const fn note_size(&mut self, bytes: u64) {
        self.size = bits(bytes);
    }
}

impl Dispatcher {
    /// Tells from now on what becomes of each copy, and sends so many of the requests that may be
    /// sent twice to a second replica ([`Dispatcher::pair`]).
    pub fn record(&mut self, sink: Box<dyn CopySink>, pairs: Probability) {
        let rng = Rng::stream(self.config.seed, "pairs");
        self.recording = Some(Box::new(Recording { sink, pairs, rng }));
    }

    /// From now on this policy decides in these windows, in place of the usual one; `None` ends
    /// that. What both have learnt stays.
    pub fn explore(&mut self, now: Instant, other: Option<(Box<dyn Selector>, Windows)>) {
        let usual = Exploring::take_usual(&mut self.selector);
        self.selector = match other {
            Some((other, windows)) => Box::new(Exploring::new(usual, other, windows)),
            None => usual,
        };
        self.selector.on_membership(now, &self.fleet);
        self.asks = self.config.can_ask && self.selector.asks();
    }

    /// Tells it to nobody any more.
    pub fn stop_recording(&mut self) {
        self.recording = None;
    }

    /// The number that an agent is told of a request; `None` where nothing is recorded.
    #[inline]
    pub fn number(&self, call: &Call) -> Option<u64> {
        self.recording.as_ref().map(|recording| recording.sink.number(call.number))
    }

    /// The second copy of a call whose first copy was just sent, if it is to be one of the pairs:
    /// send it, await its answer, learn from it and finish it; it does not answer the call. At
    /// random, of calls that may be hedged, within the budget of the hedge where there is one, and
    /// to a replica that is trusted.
    #[inline]
    pub fn pair(&mut self, now: Instant, call: &Call) -> Option<Attempt> {
        let recording = self.recording.as_mut()?;
        if recording.pairs.value() <= 0.0 || !recording.rng.chance(recording.pairs) {
            return None;
        }
        self.pair_of(now, call)
    }

    #[cold]
    fn pair_of(&mut self, now: Instant, call: &Call) -> Option<Attempt> {
        let may_be_sent = call.request.may_hedge && call.request.replay.is_allowed_in_haste();
        let is_alone = call.copies.len() == 1 && call.request.copies == 1;
        if !may_be_sent || !is_alone || !self.find_further(now, call) {
            return None;
        }
        let replica = {
            let rng = &mut self.recording.as_mut()?.rng;
            self.room[rng.below(self.room.len())]
        };
        let is_granted = self.redundancy.permits_pair(now);
        is_granted.then(|| self.start((now, now), call.origin(), replica, Kind::Mirror, MIRROR))
    }

    /// A copy has its outcome.
    #[inline]
    pub(super) fn note_copy(&mut self, now: Instant, of: &Attempt, outcome: &Outcome) {
        let Some(recording) = &mut self.recording else { return };
        recording.sink.copy_ended(&CopyRecord {
            request: of.origin.number,
            sent_at: of.sent_at,
            after_ns: of.sent_at.nanos_since(of.origin.opened_at),
            latency_ns: now.nanos_since(of.sent_at),
            replica: of.replica,
            group: of.origin.group,
            kind: of.kind,
            is_explored: of.is_explored,
            end: CopyEnd::of(outcome),
            size: of.size,
        });
    }

    /// Whether the policy that is tried out decides now.
    #[inline]
    pub(super) fn is_exploring(&self) -> bool {
        self.recording.is_some() && self.selector.is_exploring() == Some(true)
    }
}
