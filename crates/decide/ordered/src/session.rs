//! What a reader may see, and whom it may ask for it.
//!
//! **Eventual**: any live duplicate, past writes that wait. **Read my own writes**: a duplicate
//! that has applied all this session has written *or seen*, so reads never go backwards either;
//! when none has, the read queues behind the writes on the ordered connection, where it sees all of
//! them.
//! **Strong**: always the ordered connection. One sequencer gives all accesses of a service their
//! place, a write is sent to all live duplicates in the same moment, and whoever is dropped is not
//! asked again before it has caught up, so every read sees every write that was acknowledged before
//! it began. That is so *while there is one sequencer*. One that was replaced while it was stopped
//! does not know it when it wakes, and a duplicate its successor has not reached yet still answers
//! it with what was. So where a majority acknowledges writes, a majority must answer a strong read
//! before its reader is told: whoever leads has fenced off a majority before its first write, the
//! two majorities share a duplicate, and that one answers its former sequencer no more. It also
//! keeps a reader from seeing a write that only one duplicate has, and that a successor which does
//! not reach that one will never know of. Whoever holds a lease needs one
//! answer only (`leased.rs`). Two sequencers of the other levels are kept apart by a lease or not
//! at all.
//!
//! **Source**: Zoolander, section 3.1 and Fig. 4. The paper compares versions at the client and
//! accepts a read only if its version *exceeds* the last write's, which refuses an unchanged value;
//! it must be "at least".

use super::{Acknowledge, Members, Refused, Sequence, ServerSet};

evenkeel_core::named! {
    /// What a read must see.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Consistency {
        /// Some earlier value.
        Eventual = "eventual",
        /// At least what this session wrote, and what it has seen before.
        #[default]
        ReadMyOwnWrites = "read-my-own-writes",
        /// Every write that was acknowledged to anybody before the read began (linearizable).
        Strong = "strong",
    }
}

/// The two connections to one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionKind {
    /// Writes in their order, and what must come after them.
    Ordered,
    /// Reads that may overtake writes.
    Free,
}

/// Who may answer a read; which of them do the dispatcher says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Eligible {
    /// Which connection.
    pub connection: ConnectionKind,
    /// Any of these gives a valid answer: never empty.
    pub from: ServerSet,
    /// How many must have answered before the reader is told: [`Acknowledge::One`], or a majority
    /// of the duplicates that count. All give the same answer, in the same order.
    pub needs: Acknowledge,
}

/// What one client has written and seen: the number it can carry to another connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Session {
    seen: Sequence,
}

impl Session {
    /// The last write it must see.
    pub const fn seen(self) -> Sequence {
        self.seen
    }

    /// It wrote, was answered from a server that may have had this write, or was handed the number
    /// by another connection.
    #[inline]
    pub fn saw(&mut self, sequence: Sequence) {
        self.seen = self.seen.max(sequence);
    }
}

impl Members {
    /// Who may answer a read of `partition` now, and on which connection: those that count, are
    /// live and owe no more than they may; past writes that wait, if some of them have what the
    /// session must see.
    ///
    /// # Errors
    /// When nobody could answer, or fewer than a strong read needs where a majority acknowledges.
    #[inline]
    pub fn eligible(
        &self,
        partition: usize,
        consistency: Consistency,
        session: Session,
    ) -> Result<Eligible, Refused> {
        let voters = self.voters(partition);
        let needs = match (consistency, self.acknowledge()) {
            (Consistency::Strong, Acknowledge::Majority) => Acknowledge::Majority,
            _ => Acknowledge::One,
        };
        let needed = needs.live_min(voters.len());
        let live = self.live(partition).and(voters);
        if live.is_empty() {
            return Err(Refused::NobodyLive { configured: voters.len() });
        }
        if live.len() < needed {
            return Err(Refused::TooFew { live: live.len(), needed });
        }
        let able: ServerSet = live.iter().filter(|&server| !self.is_full(server)).collect();
        if able.len() < needed {
            return Err(Refused::Busy { owed_max: self.owed_max() });
        }
        let has_seen =
            |server: &usize| self.is_settled(*server) && self.applied(*server) >= session.seen;
        let is_settled = |server: &usize| self.is_settled(*server);
        let overtaking: ServerSet = match consistency {
            Consistency::Eventual => able.iter().filter(is_settled).collect(),
            Consistency::ReadMyOwnWrites => able.iter().filter(has_seen).collect(),
            Consistency::Strong => ServerSet::EMPTY,
        };
        let (connection, from) = match overtaking.is_empty() {
            true => (ConnectionKind::Ordered, able),
            false => (ConnectionKind::Free, overtaking),
        };
        Ok(Eligible { connection, from, needs })
    }

    /// Whom a read asks that needs a majority: `copies_max` of those eligible, a majority at least,
    /// those that owe the fewest answers; the lowest number where equal. No policy chooses here:
    /// it would say whose answer comes first, and several are waited for.
    pub fn quorum(&self, partition: usize, eligible: &Eligible, copies_max: usize) -> ServerSet {
        let needed = eligible.needs.live_min(self.voters(partition).len());
        let (mut rest, mut chosen) = (eligible.from, ServerSet::EMPTY);
        while chosen.len() < copies_max.max(needed) {
            let least = rest.iter().min_by_key(|&server| self.owed(server));
            let Some(least) = least else { break };
            rest.remove(least);
            chosen.insert(least);
        }
        chosen
    }
}
