//! What a reader may see, and whom it may ask for it.
//!
//! **Eventual**: any live duplicate, past writes that wait. **Read my own writes**: a duplicate
//! that has applied all this session has written *or seen*, so reads never go backwards either;
//! when too few have, the read queues behind the writes on the ordered lane, where it sees all of
//! them.
//! **Strong**: always the ordered lane. One sequencer gives all accesses of a service their place,
//! a write is sent to all live duplicates in the same moment, and whoever is dropped is not asked
//! again before it has caught up, so every read sees every write that was acknowledged before it
//! began. That is so *while there is one sequencer*. One that was replaced while it was stopped
//! does not know it when it wakes, and a duplicate its successor has not reached yet still answers
//! it with what was. So where a majority acknowledges writes, a majority must answer a strong read
//! before its reader is told: whoever reigns has fenced off a majority before its first write, the
//! two majorities share a duplicate, and that one answers its former sequencer no more. It also
//! keeps a reader from seeing a write that only one duplicate has, and that a successor which does
//! not reach that one will never know of. Two sequencers of the other levels are kept apart by a
//! lease or not at all.
//!
//! **Source**: Zoolander, section 3.1 and Fig. 4. The paper compares versions at the client and
//! accepts a read only if its version *exceeds* the last write's, which refuses an unchanged value;
//! it must be "at least".

use super::{Acknowledge, Members, Refused, Sequence, ServerSet};

/// What a read must see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Consistency {
    /// Some earlier value.
    Eventual,
    /// At least what this session wrote, and what it has seen before.
    #[default]
    ReadMyOwnWrites,
    /// Every write that was acknowledged to anybody before the read began (linearizable).
    Strong,
}

/// The two connections to one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Writes in their order, and what must come after them.
    Ordered,
    /// Reads that may overtake writes.
    Free,
}

/// Where a read goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Which connection.
    pub lane: Lane,
    /// Whom: all at once, the first valid answer wins.
    pub to: ServerSet,
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
    #[must_use]
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
    /// Where a read of `partition` goes, as at most `copies_max` copies (0 counts as 1); a strong
    /// one as a majority at least, where a majority acknowledges writes.
    ///
    /// # Errors
    /// When nobody could answer, or fewer than such a strong read needs.
    #[inline]
    pub fn reading(
        &self,
        partition: usize,
        consistency: Consistency,
        session: Session,
        copies_max: usize,
    ) -> Result<Reading, Refused> {
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
        let wanted = copies_max.clamp(needed, able.len());
        let has_seen =
            |server: &usize| self.is_settled(*server) && self.applied(*server) >= session.seen;
        let is_settled = |server: &usize| self.is_settled(*server);
        let overtaking: ServerSet = match consistency {
            Consistency::Eventual => able.iter().filter(is_settled).collect(),
            Consistency::ReadMyOwnWrites => able.iter().filter(has_seen).collect(),
            Consistency::Strong => ServerSet::EMPTY,
        };
        let (lane, from) = if overtaking.len() >= wanted {
            (Lane::Free, overtaking)
        } else {
            (Lane::Ordered, able)
        };
        Ok(Reading { lane, to: self.least_owing(from, wanted), needs })
    }

    /// The `count` of them that owe the fewest answers; the lowest number where equal.
    fn least_owing(&self, from: ServerSet, count: usize) -> ServerSet {
        let (mut rest, mut chosen) = (from, ServerSet::EMPTY);
        if from.len() <= count {
            return from;
        }
        for _ in 0..count {
            let least = rest.iter().min_by_key(|&server| self.owed(server));
            let Some(least) = least else { break };
            rest.remove(least);
            chosen.insert(least);
        }
        chosen
    }
}
