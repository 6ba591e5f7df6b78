//! Further copies of a call that has one on its way: those that leave together with the first,
//! hedges, and rescues.
//!
//! **A rescue** is a retry before the failure. Its call has attempts only at replicas that are
//! silent ([`crate::silence`]), or at one that is put to the test: another replica is asked beside
//! them. Nothing is cancelled for it. What waits there may still be answered, by a replica that was
//! only paused, and as long as it waits it is the cheapest way to learn that this replica is back.
//! **When it misleads**: where all stand still together (a database behind them does) a second copy
//! helps nobody and is more load. So nobody is asked who says nothing either, and the budget of
//! retries bounds the rest.

use super::Dispatcher;
use crate::fleet::ReplicaId;
use crate::request::call::{Attempt, Call, CopyState, Kind, Ping, Step};
use crate::request::safeguards::untried;
use crate::request::select::Choice;
use crate::time::{Deadline, Duration, Instant, Why};

use super::Narrowed;

/// A rescue that is not possible is tried again after so long, at the earliest.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

impl Dispatcher {
    /// Sends the next of the copies that leave together with the first; none where a policy would
    /// hold it back or nobody who is trusted is left: the first is on its way.
    pub(super) fn send_at_once(&mut self, now: Instant, call: &mut Call) -> Step {
        let replica = self.next_of_all(now, call, call.at_once).or_else(|| {
            let found = self.find_further(now, call);
            found.then(|| self.choose_found(now, call)).flatten()
        });
        if let Some(replica) = replica {
            call.at_once -= 1;
            return Step::Send(self.send(now, call, replica, Kind::First));
        }
        call.at_once = 0;
        if let (None, Some(last)) = (call.rescue_due, call.copies.last()) {
            // It was left open, as further copies were to follow.
            call.rescue_due = self.rescue_due(now, call, last.replica, None);
        }
        self.further_or_wait(now, call)
    }

    /// The next replica where all that may answer get one of so many copies now, and nobody is to
    /// be left out: whom the policy would be given first, without writing them all down.
    #[inline]
    pub(super) fn next_of_all(&self, now: Instant, call: &Call, copies: u8) -> Option<ReplicaId> {
        let left = call.unasked().filter(|left| left.len() <= usize::from(copies))?;
        let is_plain = self.backlog.is_empty()
            && !call.copies.is_full()
            && self.config.safeguards.nothing_to_examine(now, &self.fleet)
            && !self.selector.holds();
        let mut group = self.fleet.group(call.request.group).iter().copied();
        is_plain.then(|| group.find(|id| left.contains(id.index()))).flatten()
    }

    /// Sends a further copy if one is due.
    pub(super) fn further_or_wait(&mut self, now: Instant, call: &mut Call) -> Step {
        if call.hedge_due.is_some_and(|due| now >= due)
            && let Some(copy) = self.copy(now, call)
        {
            return Step::Send(copy);
        }
        if call.ping.due().is_some_and(|due| now >= due) && self.ping(now, call) {
            call.doubt(now);
            if let Some(copy) = self.rescue(now, call) {
                return Step::Send(copy);
            }
            // Nobody else can be asked now: then it is asked again whether it lives.
            (call.is_doubted, call.ping) = (false, Ping::Due(now + AGAIN_AFTER));
        }
        if call.rescue_due.is_some_and(|due| now >= due)
            && let Some(copy) = self.rescue(now, call)
        {
            return Step::Send(copy);
        }
        let deadline = |at: Option<Instant>, why| at.map(|at| Deadline { at, why });
        let hedge = deadline(call.hedge_due, Why::Hedge);
        let ping = deadline(call.ping.due(), Why::Probes);
        let rescue = deadline(call.rescue_due, Why::Silence);
        Step::Wait { until: Deadline::earlier(Deadline::earlier(hedge, ping), rescue) }
    }

    /// Asks another replica beside those that say nothing.
    #[cold]
    fn rescue(&mut self, now: Instant, call: &mut Call) -> Option<Attempt> {
        if call.retries >= self.config.retries_max {
            (call.rescue_due, call.is_doubted) = (None, false);
            return None;
        }
        let least = self.config.safeguards.silence_min;
        self.config.safeguards.listen(now, &mut self.fleet);
        let again = now + least.max(AGAIN_AFTER); // if it is not possible now
        if !call.is_doubted {
            let flying = call.copies.iter().filter(|copy| copy.state == CopyState::Flying);
            let due = flying.map(|copy| self.falls_silent_at(now, copy.replica)).max();
            if let Some(due) = due.filter(|&due| due > now) {
                // Something was heard; or nothing is known yet of how long replies take.
                call.rescue_due = Some(if due == Instant::FAR { again } else { due });
                return None;
            }
        }
        call.rescue_due = Some(again);
        if !self.find_further(now, call) {
            return None;
        }
        let fleet = &self.fleet;
        self.room.retain(|&id| !fleet.replica(id).silence.is_quiet(now, least));
        if self.room.is_empty() {
            return None;
        }
        if !self.config.retry_budget.withdraw() {
            let was_denied = core::mem::replace(&mut call.is_denied, true);
            self.window.retries_denied += u64::from(!was_denied);
            self.note_retry_denied();
            return None;
        }
        let replica = self.choose_found(now, call)?;
        (call.retries, call.is_doubted) = (call.retries + 1, false);
        self.window.rescues += 1;
        Some(self.send(now, call, replica, Kind::Retry))
    }

    /// When a replica is silent, or has had its time on trial, unless it says something before.
    fn falls_silent_at(&self, now: Instant, replica: ReplicaId) -> Instant {
        let safeguards = &self.config.safeguards;
        let facts = self.fleet.replica(replica);
        let known = facts.silence.due(safeguards.silence_min);
        let on_trial = safeguards.patience(now, facts).map(|_| now);
        known.or(on_trial).unwrap_or(Instant::FAR)
    }

    /// Notes that a replica that may not answer gets a request, and how long it is waited for
    /// before another one is asked beside it: whoever is put to the test, the request is not.
    #[inline]
    pub(super) fn put_to_test(&mut self, now: Instant, replica: ReplicaId) -> Option<Duration> {
        let safeguards = &self.config.safeguards;
        if safeguards.nothing_to_examine(now, &self.fleet) {
            return None;
        }
        let facts = self.fleet.replica_mut(replica);
        let patience = safeguards.patience(now, facts)?;
        facts.silence.try_it(now, safeguards.ejection_base, safeguards.ejection_max);
        Some(patience)
    }

    /// When another replica is asked beside the one that was sent a copy last.
    #[inline]
    pub(super) fn rescue_due(
        &self,
        now: Instant,
        call: &Call,
        replica: ReplicaId,
        patience: Option<Duration>,
    ) -> Option<Instant> {
        let may_be_sent = call.request.replay.is_allowed_in_haste();
        if !may_be_sent || call.retries >= self.config.retries_max {
            return None;
        }
        let least = self.config.safeguards.silence_min;
        let silent_at = || {
            let due = self.fleet.replica(replica).silence.due(least);
            (least > Duration::ZERO).then(|| due.unwrap_or(now + least))
        };
        patience.map(|patience| now + patience).or_else(silent_at)
    }

    /// Finds who may be sent a further copy of a call that has one on its way; false if nobody.
    pub(super) fn find_further(&mut self, now: Instant, call: &Call) -> bool {
        let group = call.request.group;
        // A copy must not take the token that a call held since earlier waits for.
        let others_wait = !self.backlog.is_empty() && !self.backlog.is_turn(group, call.id);
        if others_wait || call.copies.is_full() {
            return false;
        }
        let from = (&self.fleet, &call.request);
        let (safeguards, room) = (&self.config.safeguards, &mut self.room);
        if call.request.among.is_some() && safeguards.nothing_to_examine(now, &self.fleet) {
            room.clear();
            room.extend(untried(from, &call.copies));
        } else {
            safeguards.trusted(now, from, &call.copies, &mut self.rng, room);
        }
        !room.is_empty()
    }

    /// The replica for a further copy, of those that were found; `None` where the policy would hold
    /// it back.
    pub(super) fn choose_found(&mut self, now: Instant, call: &Call) -> Option<ReplicaId> {
        match self.choose_among(now, call.request.group, Narrowed::Room, call.at_once) {
            Choice::Send(replica) => Some(replica),
            Choice::Hold { .. } | Choice::Refuse => None,
        }
    }
}
