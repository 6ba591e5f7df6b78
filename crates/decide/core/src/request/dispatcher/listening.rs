//! For drivers that can go to another dispatcher's replicas: when these here have fallen silent.

use super::Dispatcher;
use crate::fleet::ReplicaId;
use crate::request::call::{Call, CopyState};
use crate::time::Instant;

impl Dispatcher {
    /// Whether a replica may be given requests as far as its silence goes, and until when that
    /// stands if it says nothing. One that is silent and owes nothing is good for one on trial.
    pub fn hears(&mut self, now: Instant, replica: ReplicaId) -> (bool, Instant) {
        self.config.safeguards.listen(now, &mut self.fleet);
        self.config.safeguards.hears(now, self.fleet.replica(replica))
    }

    /// When everybody who works on a call will have been silent for too long, or was, if nobody
    /// says anything before; `None` where one of them never replied yet, or nobody works on it.
    pub fn silent_at(&mut self, now: Instant, call: &Call) -> Option<Instant> {
        self.config.safeguards.listen(now, &mut self.fleet);
        let least = self.config.safeguards.silence_min;
        let flying = call.copies.iter().filter(|copy| copy.state == CopyState::Flying);
        let due = flying.map(|copy| self.fleet.replica(copy.replica).silence.due(least));
        let last = due.reduce(|one, other| Some(one?.max(other?)));
        last.flatten().filter(|_| !least.is_zero())
    }
}
