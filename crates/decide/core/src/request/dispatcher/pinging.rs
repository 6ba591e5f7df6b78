//! Whether a replica that takes long still lives: it is asked, and one that does not answer in time
//! is not waited for.
//!
//! **Signal**: the age of a request beside the 80th percentile of latency; then the answer to one
//! question. **Why not a second copy at once**: one request in five is that old, and nearly all of
//! them are answered in time; a question costs far less than the request. So a replica that stands
//! still (a collection, a stopped process, a lost packet) is noticed within a few milliseconds
//! instead of the time after which a hedge leaves or silence is suspected, and hardly any work is
//! done twice. **When it misleads**: an agent may live while its application stands still; hedge
//! and silence remain for that. **Cold start**: nobody is asked before anybody answered a question.
//! **Source**: adaptive selection study, sections 0.5 and 3.

use super::Dispatcher;
use crate::fleet::{Probing, ReplicaId};
use crate::request::call::{Call, CopyState, Ping};
use crate::time::{Duration, Instant};

/// The percentile after which a request is old.
const OLD: f64 = 0.8;
/// What one latency moves the percentile, as a share of it.
const STEP: f64 = 0.05;
/// An answer to a question holds for this share of the request's age: what has taken long takes
/// longer.
const AGAIN_AFTER: u32 = 2;

/// The latency that a share of [`OLD`] of requests do not exceed, moved a little by each of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OldAge {
    ns: f64,
}

impl OldAge {
    #[inline]
    pub(super) fn add(&mut self, latency_ns: u64) {
        let latency_ns = latency_ns as f64;
        if self.ns == 0.0 {
            self.ns = latency_ns;
            return;
        }
        let step = STEP * self.ns;
        self.ns += if latency_ns > self.ns { step * OLD } else { -step * (1.0 - OLD) };
    }

    #[inline]
    fn known(self) -> Option<Duration> {
        (self.ns > 0.0).then(|| Duration::from_nanos(self.ns as u64))
    }
}

impl Dispatcher {
    /// When the replica that a copy leaves for now is asked, if it takes long.
    #[inline]
    pub(super) fn ping_due(&self, now: Instant, call: &Call) -> Ping {
        let may_be_sent = call.request.replay.is_allowed_in_haste();
        if !self.asks || !may_be_sent || call.retries >= self.config.retries_max {
            return Ping::Never;
        }
        self.old_age.known().map_or(Ping::Never, |old| Ping::Due(now + old))
    }

    /// Asks whom a call waits for, or looks whether any of them said anything since: true when
    /// nobody did, so that another replica is to be asked beside them.
    #[cold]
    pub(super) fn ping(&mut self, now: Instant, call: &mut Call) -> bool {
        let was = core::mem::replace(&mut call.ping, Ping::Never);
        let Some(patience) = self.patience_with_all(call) else { return false };
        let flying = call.copies.iter().filter(|copy| copy.state == CopyState::Flying);
        let mut owing = flying.map(|copy| copy.replica);
        let age = now.since(call.first_sent_at);
        call.ping = match was {
            // Whoever has been sent a copy since was asked for, too: that begins anew.
            Ping::Asked(at, _) if owing.all(|id| self.fleet.replica(id).received_at() < at) => {
                return true;
            }
            Ping::Asked(..) => Ping::Due(now + age / AGAIN_AFTER),
            Ping::Never | Ping::Due(_) => {
                let idle = |id: &ReplicaId| self.fleet.replica(*id).probing == Probing::Idle;
                owing.filter(idle).for_each(|id| self.questions.put(id));
                Ping::Asked(now, now + patience)
            }
        };
        false
    }

    /// How long one waits for the answers of all whom a call waits for; `None` where one of them
    /// cannot be asked, so that its silence would tell nothing.
    fn patience_with_all(&self, call: &Call) -> Option<Duration> {
        let flying = call.copies.iter().filter(|copy| copy.state == CopyState::Flying);
        let ids = flying.map(|copy| copy.replica);
        ids.map(|id| self.fleet.patience(id).filter(|_| self.fleet.may_be_asked(id)))
            .try_fold(None, |longest, one| Some(longest.max(Some(one?))))
            .flatten()
    }
}
