//! A shard goes from one partition to another while it is read and written.
//!
//! **Two streams.** What the target gets is writes of *its own* stream: each has a place in the one
//! order of the service, is logged for the target's partition, and goes to all of its live
//! duplicates. So a duplicate of the target that dies and returns replays a move like anything
//! else, and a move needs no recovery of its own: what is in no map never happened.
//!
//! | phase | the target gets | a client is told when | ends when |
//! |---|---|---|---|
//! | [`Clearing`](Phase::Clearing) | removals of what an earlier move left there | the source has it | nothing is left |
//! | [`Copying`](Phase::Copying) | keys, and the writes that come after each of them ([`Copying`]) | the source has it | every key has come |
//! | [`Mirroring`](Phase::Mirroring) | every write | the source has it | the target has all that came before |
//! | [`Both`](Phase::Both) | every write | *both* have it | the target has all that came before this phase, and the map with the new owner is durable |
//! | [`Forgetting`](Phase::Forgetting) | every write; it is the owner | it has it; the source is not asked | the source has no key of the shard any more |
//!
//! **Why both.** The map is stored somewhere else, which takes time and may be known only later. In
//! that time either partition may turn out to be the owner, so each must have all that was
//! acknowledged. Nothing stops meanwhile: reads see the source until the map is known to be
//! durable, the target from then on. Before `Both`, a target that stumbles costs clients nothing.
//!
//! **Source**: Zoolander (ICAC 2013), section 3, names the move and does not say how. Two owners
//! until one is agreed upon is joint consensus (Ongaro and Ousterhout 2014, section 6), here with a
//! durable map in place of a log entry.

use super::{Copying, Hash, Members, Sequence, Treatment};

evenkeel_core::named! {
    /// How far a move has come.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Phase {
        /// What an earlier move left at the target is removed.
        Clearing = "clearing",
        /// Keys are copied.
        Copying = "copying",
        /// The target gets every write and catches up.
        Mirroring = "mirroring",
        /// Writes wait for both partitions; the map may be stored.
        Both = "handing over",
        /// The target is the owner; the source removes its keys.
        Forgetting = "forgetting",
    }
}

/// One move of a shard.
#[derive(Clone, Debug)]
pub struct Moving {
    shard: usize,
    from: usize,
    to: usize,
    phase: Phase,
    copying: Copying,
    /// All keys of the source have been seen.
    is_enumerated: bool,
    /// The last write when the phase began.
    since: Sequence,
    copied: usize,
}

impl Moving {
    /// A move that begins with clearing the target.
    ///
    /// # Panics
    /// When source and target are the same.
    pub fn begin(shard: usize, from: usize, to: usize) -> Self {
        assert_ne!(from, to, "a shard moves to another partition");
        Self {
            shard,
            from,
            to,
            phase: Phase::Clearing,
            copying: Copying::new(),
            is_enumerated: false,
            since: Sequence(0),
            copied: 0,
        }
    }

    /// The shard.
    pub const fn shard(&self) -> usize {
        self.shard
    }

    /// The partition it comes from.
    pub const fn from(&self) -> usize {
        self.from
    }

    /// The partition it goes to.
    pub const fn to(&self) -> usize {
        self.to
    }

    /// How far it has come.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// Keys that were copied.
    pub fn copied(&self) -> usize {
        self.copied + self.copying.copied()
    }

    /// Keys that were asked for and have not come, and the bytes of writes that wait for them.
    pub fn on_their_way(&self) -> (usize, usize) {
        (self.copying.on_their_way(), self.copying.held_bytes())
    }

    /// The target holds nothing of the shard. From now on the source may be enumerated: all that
    /// was written to it before must be there to be seen.
    ///
    /// # Panics
    /// When it was not being cleared.
    pub fn cleared(&mut self) {
        assert_eq!(self.phase, Phase::Clearing, "it is cleared once");
        self.phase = Phase::Copying;
    }

    /// The source was seen to have this key: true when it is to be asked for.
    pub fn seen(&mut self, key: Hash) -> bool {
        self.phase == Phase::Copying && self.copying.seen(key)
    }

    /// A write of the shard was sent to the source: what the target gets of it. `None`: nothing,
    /// and nobody is to be asked.
    pub fn write(&mut self, keys: &[Hash], command: &[u8]) -> Option<Treatment> {
        match self.phase {
            Phase::Clearing | Phase::Forgetting => None,
            Phase::Copying => Some(self.copying.write(keys, command)),
            // Also keys that were never seen: neither has them.
            Phase::Mirroring | Phase::Both => Some(Treatment::Send),
        }
    }

    /// The source has answered with a key; as [`Copying::arrived`].
    ///
    /// # Panics
    /// When it was not asked for.
    pub fn arrived(&mut self, key: Hash) -> Option<Vec<Box<[u8]>>> {
        self.copying.arrived(key)
    }

    /// The source has no key that was not seen.
    pub const fn enumerated(&mut self) {
        self.is_enumerated = true;
    }

    /// Goes on as far as it may: call it when something has come. True when the phase is another.
    ///
    /// `last` is the last write there is.
    pub fn advance(&mut self, members: &Members, last: Sequence) -> bool {
        let next = match self.phase {
            Phase::Copying if self.is_enumerated && self.copying.on_their_way() == 0 => {
                self.copied = self.copying.copied();
                self.copying = Copying::new(); // its memory
                Phase::Mirroring
            }
            Phase::Mirroring if members.has_applied(self.to, self.since) => Phase::Both,
            _ => return false,
        };
        (self.phase, self.since) = (next, last);
        true
    }

    /// Whether a write is acknowledged only when the target has it too.
    pub fn needs_both(&self) -> bool {
        self.phase == Phase::Both
    }

    /// Whether the map with the new owner may be stored: what was acknowledged before both were
    /// needed is at the target too.
    pub fn may_hand_over(&self, members: &Members) -> bool {
        self.phase == Phase::Both && members.has_applied(self.to, self.since)
    }

    /// The map with the new owner is durable and in use from now on.
    ///
    /// # Panics
    /// When not both partitions had everything.
    pub fn handed_over(&mut self, members: &mut Members) {
        assert_eq!(self.phase, Phase::Both, "both have everything");
        members.unsettle(self.to);
        self.phase = Phase::Forgetting;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Acknowledge, MembersConfig};
    use super::*;
    use evenkeel_core::time::Instant;

    fn members() -> Members {
        let config =
            MembersConfig { acknowledge: Acknowledge::Majority, ..MembersConfig::default() };
        let mut members = Members::new(config, &[0, 1, 1]);
        (0..3).for_each(|server| members.reached(server, Sequence(0)));
        (0..3).for_each(|server| members.caught_up(server, Sequence(0)));
        members
    }

    #[test]
    fn a_move_goes_through_its_phases_and_no_further_than_the_target_has_come() {
        let (mut members, mut moving) = (members(), Moving::begin(5, 0, 1));
        assert_eq!(moving.write(&[1], b"x"), None, "what is there is copied later");
        assert!(!moving.seen(1), "not before the target is empty");
        moving.cleared();
        assert!(moving.seen(1));
        assert_eq!(moving.write(&[1], b"held"), Some(Treatment::Hold));
        assert_eq!(moving.write(&[2], b"new"), Some(Treatment::Ask));
        moving.enumerated();
        assert!(!moving.advance(&members, Sequence(2)), "keys are on their way");
        assert_eq!(moving.arrived(1).unwrap().len(), 1);
        assert_eq!(moving.arrived(2).unwrap().len(), 0);
        (1..3).for_each(|server| members.sent(Instant::ZERO, server, Some(Sequence(4))));
        assert!(moving.advance(&members, Sequence(4)));
        assert_eq!((moving.phase(), moving.copied()), (Phase::Mirroring, 2));
        assert_eq!(moving.write(&[3], b"never seen"), Some(Treatment::Send));
        members.answered(Instant::ZERO, 1, Some(Sequence(4)));
        assert!(!moving.advance(&members, Sequence(5)), "one of two has it");
        members.answered(Instant::ZERO, 2, Some(Sequence(4)));
        assert!(!moving.needs_both());
        (1..3).for_each(|server| members.sent(Instant::ZERO, server, Some(Sequence(6))));
        assert!(moving.advance(&members, Sequence(6)) && moving.needs_both());
        assert!(!moving.may_hand_over(&members), "6 was acknowledged by the source alone");
        (1..3).for_each(|server| members.answered(Instant::ZERO, server, Some(Sequence(6))));
        assert!(moving.may_hand_over(&members));
        (1..3).for_each(|server| members.sent(Instant::ZERO, server, Some(Sequence(8))));
        moving.handed_over(&mut members);
        assert!(!members.is_settled(1), "8 may be what a session has written");
        assert_eq!(moving.write(&[1], b"x"), None, "the target is the owner");
    }

    #[test]
    fn nothing_is_handed_over_to_a_partition_that_is_away() {
        let (mut members, mut moving) = (members(), Moving::begin(5, 0, 1));
        moving.cleared();
        moving.enumerated();
        assert!(moving.advance(&members, Sequence(0)));
        members.drop_server(2);
        assert!(!moving.advance(&members, Sequence(0)));
        assert!(!moving.may_hand_over(&members));
    }
}
