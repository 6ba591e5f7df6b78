//! Strong reads that one duplicate answers, while a lease keeps every other sequencer away.
//!
//! A majority must answer a strong read because a successor may have written meanwhile, and because
//! it may never know of a write that only one duplicate has (`session.rs`). Whoever holds a lease
//! *when the answer is there* knows that no successor had written when the duplicate answered. Then
//! two rules are left, and one duplicate is enough:
//!
//! 1. **Not too old.** Who answers has applied everything that anybody was told before the read
//!    began: acknowledged writes, and what strong reads have shown ([`Leased::told`]). Also what
//!    its own client wrote before it, acknowledged or not.
//! 2. **Nothing that may be undone.** An answer that may show a write waits until a majority has
//!    that write ([`Members::has_applied`]): a successor begins from the furthest of a majority, so
//!    it has it too. Otherwise a reader sees what its successor's readers do not.
//!
//! **Signal** of the second: the last write of the read's key that its duplicate was sent, by the
//! hash of the key in one of 16 Ki places. **When it misleads**: keys of one place wait for each
//! other's writes, in vain. A read of several keys counts as one of all. **Cold start**: nobody
//! knows of what keys the writes of earlier terms are, so until a majority has all of them every
//! answer may show them.
//!
//! **Clocks.** The lease must not seem valid for longer than it is. A machine whose clock stands
//! still while others go on (a virtual machine that is paused with its clock) breaks that.
//!
//! **Source**: Gray and Cheriton, *Leases* (SOSP 1989); Ongaro, *Consensus: Bridging Theory and
//! Practice*, section 6.4.1, reads by a leader's lease. There the leader itself has the state; here
//! a duplicate has, which may lag.

use super::{Acknowledge, ConnectionKind, Consistency, Eligible, Members};
use super::{Refused, Sequence, ServerSet, Session};

const PLACES: usize = 1 << 14;

/// What clients were told, and when keys were written last.
#[derive(Clone, Debug, Default)]
pub struct Leased {
    /// By partition: the last write that somebody may have been told of.
    told: Vec<Sequence>,
    /// The last write of each place; empty before the first write.
    places: Vec<Sequence>,
    /// The last write that may have changed any key.
    of_all: Sequence,
}

impl Leased {
    /// A term begins behind the writes of earlier ones.
    pub fn new(last: Sequence) -> Self {
        Self { of_all: last, ..Self::default() }
    }

    /// A client is told of this write, or may see it.
    pub fn told(&mut self, partition: usize, sequence: Sequence) {
        if self.told.len() <= partition {
            self.told.resize(partition + 1, Sequence::default());
        }
        self.told[partition] = self.told[partition].max(sequence);
    }

    /// A key is written by the write of this number; without a hash any key may be.
    pub fn wrote(&mut self, hash: Option<u64>, sequence: Sequence) {
        let Some(hash) = hash else {
            self.of_all = sequence;
            return;
        };
        self.places.resize(PLACES, Sequence::default());
        self.places[(hash % PLACES as u64) as usize] = sequence;
    }

    /// The last write that the answer of a duplicate may show which was sent the writes up to
    /// `sent`: of the key with this hash, or of any.
    pub fn shows(&self, hash: Option<u64>, sent: Sequence) -> Sequence {
        let place = |hash: u64| self.places.get((hash % PLACES as u64) as usize);
        let last = hash.map(|hash| place(hash).copied().unwrap_or_default().max(self.of_all));
        last.map_or(sent, |last| last.min(sent))
    }

    /// Who may answer a strong read alone, and on which connection: past the writes that wait,
    /// where somebody has all that the read must see.
    ///
    /// # Errors
    /// As [`Members::eligible`]: without a majority nobody could say what may be shown.
    pub fn eligible(
        &self,
        members: &Members,
        partition: usize,
        session: Session,
    ) -> Result<Eligible, Refused> {
        let able = members.eligible(partition, Consistency::Strong, session)?.from;
        let told = self.told.get(partition).copied().unwrap_or_default();
        let least = told.max(session.seen());
        // Numbers are of the service: who was sent less has missed nothing.
        let has_seen = |&server: &usize| {
            let applied = members.applied(server);
            members.is_settled(server) && applied >= least.min(members.sent_to(server))
        };
        let overtaking: ServerSet = able.iter().filter(has_seen).collect();
        let (connection, from) = match overtaking.is_empty() {
            true => (ConnectionKind::Ordered, able),
            false => (ConnectionKind::Free, overtaking),
        };
        Ok(Eligible { connection, from, needs: Acknowledge::One })
    }
}
