//! Which writes may be done again by a duplicate that comes back, without finding a key expired
//! that was there when the others did them.
//!
//! A duplicate that lacks writes gets them from the log, later than the others. If a key has
//! expired meanwhile, `INCR` makes a new one of it, without a deadline, where the others have none.
//! So each write of a key that has a deadline, or may have one, is *due* at it. What overwrites or
//! removes the key is never due, nor what is followed by the deadline once more
//! ([`super::Deadlines::restated`]).
//!
//! **Signal**: the deadlines of the writes that a duplicate lacks, of its partition alone. Once one
//! is past it is filled from another duplicate instead. **When it misleads**: a key that was
//! removed after the write no longer matters, and is still counted; of writes before the front
//! began nothing is known, and they are done again as they are.

use std::collections::VecDeque;

use super::Sequence;

/// Due writes that are known one by one: 1 MiB.
const WRITES_MAX: usize = 1 << 16;

/// The deadlines of a partition's writes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DueWrites {
    /// In their order.
    writes: VecDeque<(Sequence, i64)>,
    /// The last of those that are not known one by one any more, and the first of their deadlines.
    earlier: Option<(Sequence, i64)>,
}

impl DueWrites {
    /// A write has this number, higher than all before, and is due at this time, in ms since 1970.
    pub fn note(&mut self, sequence: Sequence, due_unix_ms: i64) {
        self.writes.push_back((sequence, due_unix_ms));
        if self.writes.len() > WRITES_MAX
            && let Some((last, due)) = self.writes.pop_front()
        {
            let first = self.earlier.map_or(due, |(_, first)| first.min(due));
            self.earlier = Some((last, first));
        }
    }

    /// Whether all writes after this one may still be done by who lacks them, where keys expire
    /// until this time.
    pub fn can_follow(&self, after: Sequence, until_unix_ms: i64) -> bool {
        let is_fine = |(sequence, due): (Sequence, i64)| sequence <= after || due > until_unix_ms;
        let newest_first = self.writes.iter().rev().take_while(|(sequence, _)| *sequence > after);
        newest_first.copied().all(is_fine) && self.earlier.is_none_or(is_fine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_may_be_done_again_until_the_first_deadline_of_those_that_are_lacked() {
        let mut writes = DueWrites::default();
        for (sequence, due) in [(3, 90_000), (500, 10_000), (501, 20_000)] {
            writes.note(Sequence(sequence), due);
        }
        let can = |after, until| writes.can_follow(Sequence(after), until);
        assert!(can(0, 9_999) && !can(0, 10_000));
        assert!(!can(499, 10_000), "it lacks that write");
        assert!(can(500, 19_999) && !can(500, 20_000));
        assert!(can(501, i64::MAX) && can(1_000, i64::MAX), "it lacks nothing");
    }

    #[test]
    fn the_newest_are_known_one_by_one_and_none_is_forgotten() {
        let mut writes = DueWrites::default();
        let all = 3 * WRITES_MAX as u64;
        for n in 1..=all {
            // What is early is soon due.
            writes.note(Sequence(n), i64::try_from(n).unwrap());
        }
        assert_eq!(writes.writes.len(), WRITES_MAX);
        let can = |after: u64, until: u64| {
            writes.can_follow(Sequence(after), i64::try_from(until).unwrap())
        };
        for after in [all - 1, all - 10, all - WRITES_MAX as u64] {
            assert!(can(after, after) && !can(after, after + 1), "{after}");
        }
        assert!(!can(all / 2, 1), "one of the earlier ones");
        assert!(can(0, 0) && !can(0, 1));
    }
}
