//! The copies of one access, and when enough of them are answered.

use super::ServerSet;

evenkeel_core::named! {
    /// How many duplicates must have a write before its client is told so.
    ///
    /// Whatever the level, a write is in the log before it is sent, so it survives the death of
    /// every *process*. The level says which *machines* may be lost besides:
    ///
    /// | level | lost together, an acknowledged write survives |
    /// |---|---|
    /// | `One` | any machines but the log's, or all but one duplicate that has it |
    /// | `Majority` | the log's machine and any minority of the duplicates |
    /// | `All` | the log's machine and all duplicates but one of those that were live |
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Acknowledge {
        /// The first answer (the paper's rule).
        One = "one",
        /// More than half of the duplicates that count, live or not.
        #[default]
        Majority = "majority",
        /// Every duplicate that is live; one that is dropped meanwhile no longer counts.
        All = "all",
    }
}

impl Acknowledge {
    /// Answers needed from a partition in which `count` duplicates count before a write may be
    /// accepted at all.
    pub const fn live_min(self, count: usize) -> usize {
        match self {
            Self::One | Self::All => 1,
            Self::Majority => count / 2 + 1,
        }
    }
}

/// Who was sent a copy of one access, and who has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copies {
    owed: ServerSet,
    answered: ServerSet,
}

impl Copies {
    /// Copies that were just sent.
    #[inline]
    pub const fn sent(to: ServerSet) -> Self {
        Self { owed: to, answered: ServerSet::EMPTY }
    }

    /// A server has answered.
    ///
    /// # Panics
    /// When it owed no answer: an answer would be counted twice.
    #[inline]
    pub const fn answer(&mut self, server: usize) {
        assert!(self.owed.contains(server), "an answer nobody waited for");
        self.owed.remove(server);
        self.answered.insert(server);
    }

    /// A server was dropped: its answer will not come.
    #[inline]
    pub const fn lose(&mut self, server: usize) {
        self.owed.remove(server);
    }

    /// Those that still owe an answer.
    #[inline]
    pub const fn owed(self) -> ServerSet {
        self.owed
    }

    /// Those that have answered.
    #[inline]
    pub const fn answered(self) -> ServerSet {
        self.answered
    }

    /// Whether the client may be told, when these are the partition's duplicates that count
    /// ([`voters`](super::Members::voters)).
    #[inline]
    pub const fn is_acknowledged(self, level: Acknowledge, voters: ServerSet) -> bool {
        let answered = self.answered.and(voters);
        match level {
            Acknowledge::One => !answered.is_empty(),
            Acknowledge::Majority => answered.len() > voters.len() / 2,
            Acknowledge::All => !answered.is_empty() && self.owed.and(voters).is_empty(),
        }
    }

    /// Whether the answers still owed cannot reach the level: the client must be told that nobody
    /// knows yet. (The write is in the log and will be applied.)
    #[inline]
    pub const fn is_hopeless(self, level: Acknowledge, voters: ServerSet) -> bool {
        let reachable = self.answered.or(self.owed).and(voters).len();
        match level {
            Acknowledge::One | Acknowledge::All => reachable == 0,
            Acknowledge::Majority => reachable <= voters.len() / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn three() -> Copies {
        Copies::sent([0, 1, 2].into_iter().collect())
    }

    #[test]
    fn levels_count_answers() {
        let mut copies = three();
        copies.answer(1);
        let met = |copies: Copies| {
            [Acknowledge::One, Acknowledge::Majority, Acknowledge::All]
                .map(|level| copies.is_acknowledged(level, (0..3).collect()))
        };
        assert_eq!(met(copies), [true, false, false]);
        copies.answer(0);
        assert_eq!(met(copies), [true, true, false]);
        copies.lose(2);
        assert_eq!(met(copies), [true, true, true]);
    }

    #[test]
    fn half_of_four_is_no_majority() {
        let four: ServerSet = (0..4).collect();
        let mut copies = Copies::sent(four);
        copies.answer(0);
        copies.answer(1);
        assert!(!copies.is_acknowledged(Acknowledge::Majority, four));
        copies.lose(2);
        assert!(!copies.is_hopeless(Acknowledge::Majority, four));
        copies.lose(3);
        assert!(copies.is_hopeless(Acknowledge::Majority, four));
        assert_eq!(Acknowledge::Majority.live_min(4), 3);
    }

    #[test]
    fn a_joining_duplicate_counts_for_nobody() {
        let (one, level) = (ServerSet::only(0), Acknowledge::Majority);
        let mut copies = Copies::sent([0, 1].into_iter().collect());
        copies.answer(1);
        for level in [Acknowledge::One, Acknowledge::Majority, Acknowledge::All] {
            assert!(!copies.is_acknowledged(level, one), "{level:?}");
            assert!(!copies.is_hopeless(level, one), "{level:?}");
        }
        let mut lost = copies;
        lost.lose(0);
        assert!(lost.is_hopeless(level, one), "what only the guest has may be gone");
        copies.answer(0);
        assert!(copies.is_acknowledged(level, one));
        let mut slow = Copies::sent([0, 1].into_iter().collect());
        slow.answer(0);
        assert!(slow.is_acknowledged(Acknowledge::All, one), "nobody waits for a guest");
    }

    proptest! {
        /// Every access ends: once nothing is owed it is either acknowledged or hopeless, and
        /// never both.
        #[test]
        fn every_access_ends(configured in 1_usize..7, fates: [bool; 7], level in 0..3) {
            let level =
                [Acknowledge::One, Acknowledge::Majority, Acknowledge::All][level as usize];
            let voters = (0..configured).collect();
            let mut copies = Copies::sent(voters);
            for (server, answers) in (0..configured).zip(fates) {
                let is_done = copies.is_acknowledged(level, voters);
                assert!(!is_done || !copies.is_hopeless(level, voters));
                if answers { copies.answer(server) } else { copies.lose(server) }
            }
            let is_done = copies.is_acknowledged(level, voters);
            assert_ne!(is_done, copies.is_hopeless(level, voters));
        }
    }
}
