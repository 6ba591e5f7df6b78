//! Requests that must wait at their replica, and need not at another.
//!
//! **Signal**: a replica whose slots are all taken says so at once ("queued"), with the report of
//! that moment: it is half a round trip old, and exact. **Why move, not copy**: of a tied copy that
//! is cancelled when the other one starts, the cancel comes too late wherever queues are shorter
//! than the way, so both are worked on: 6 to 8 % extra work at a round trip of 10 ms. A request
//! that is given up where it waits while it leaves for elsewhere costs that only where its slot
//! became free within a round trip, and the saving must be larger than that. **When it misleads**:
//! the report of the other replica is older, and what all clients flee from and run to is the same;
//! so the saving must also be a service time, and budget and [`MOVES_MAX`] bound the rest, also
//! where a replica says that all must wait. **Cold start**: nobody moves to whom nothing is known
//! of. **Source**: adaptive selection study, section 3 (there with tied copies).

use super::{Dispatcher, Narrowed};
use crate::fleet::{Feedback, ReplicaId};
use crate::request::call::{Attempt, Call, CopyState, Kind, Queued, Step};
use crate::request::redundancy::Budget;
use crate::request::select::Candidates;
use crate::time::{Instant, millis};

/// Moves of one call.
const MOVES_MAX: usize = 2;
/// Round trips that a move takes: the notice's way, the request's, and as long again until one
/// knows whether the first replica has really given it up.
const WAY: f64 = 1.5;

/// The budget of moves: a tenth of the calls.
pub(super) fn budget() -> Budget {
    Budget::share(0.1, 10.0)
}

impl Dispatcher {
    /// Whether the replicas of a call are to tell if it must wait for a slot: where it could move.
    #[inline]
    pub fn wants_notices(&self, call: &Call) -> bool {
        self.selector.moves() && call.request.replay.is_allowed_in_haste()
    }

    /// Hears that an attempt of a call waits for a slot of its replica, and what that has to do;
    /// then call `step` again. For drivers whose replicas give up what waits when it is cancelled.
    pub fn hear_queued(&mut self, now: Instant, call: &mut Call, of: &Attempt, report: &Feedback) {
        assert_eq!(of.call, call.id, "the notice of another call");
        if of.is_learnt() || of.kind == Kind::Mirror || !self.is_current(of) {
            return;
        }
        self.fleet.note_answer(now, of.replica, Some(report));
        self.selector.on_probe(now, of.replica, Some(report));
        if call.flying == 1 && self.wants_notices(call) {
            call.queued = Queued::Told { copy: of.copy, wait_ms: wait_ms(report) };
        }
    }

    /// Moves a call that waits at its replica, if that pays, or takes back what has moved.
    #[cold]
    pub(super) fn move_or_wait(&mut self, now: Instant, call: &mut Call) -> Step {
        match core::mem::take(&mut call.queued) {
            Queued::Told { copy, wait_ms } => {
                if let Some(to) = self.place_to_move_to(now, call, copy, wait_ms) {
                    call.queued = Queued::Moved { copy };
                    return Step::Send(self.send(now, call, to, Kind::Moved));
                }
            }
            Queued::Moved { copy } => {
                let record = &mut call.copies[usize::from(copy)];
                if record.state == CopyState::Flying {
                    record.state = CopyState::Cancelling;
                    self.moved = Some((call.id, copy));
                    return Step::Cancel(copy.into());
                }
            }
            Queued::No => {}
        }
        self.further_or_wait(now, call)
    }

    fn place_to_move_to(
        &mut self,
        now: Instant,
        call: &Call,
        copy: u8,
        wait_ms: f64,
    ) -> Option<ReplicaId> {
        let record = &call.copies[usize::from(copy)];
        let moves = call.copies.iter().filter(|copy| copy.kind == Kind::Moved).count();
        if record.state != CopyState::Flying || moves >= MOVES_MAX || !self.find_further(now, call)
        {
            return None;
        }
        let group = call.request.group;
        let ids = Narrowed::Room.ids(&self.fleet, group, &self.room);
        let candidates = Candidates { fleet: &self.fleet, group, ids };
        let (to, takes_ms) = self.selector.quickest(now, candidates)?;
        let way_ms = WAY * millis(self.fleet.round_trip(record.replica)?);
        (takes_ms + way_ms < wait_ms && self.moves.withdraw()).then_some(to)
    }
}

/// How long a request takes, from this report on, that its replica has put at the end of its queue
/// and counts.
fn wait_ms(report: &Feedback) -> f64 {
    let slots = f64::from(report.concurrency.unwrap_or(1).max(1));
    let load = f64::from(report.queue_length) + f64::from(report.in_service);
    report.service_time.map_or(0.0, millis) * (1.0 + (load - slots).max(0.0) / slots)
}
