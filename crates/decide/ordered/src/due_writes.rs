//! Which writes may be done again by a duplicate that comes back, without finding a key expired
//! that was there when the others did them.
//!
//! A duplicate that lacks writes gets them from the log, later than the others. If a key has
//! expired meanwhile, `INCR` makes a new one of it, without a deadline, where the others have none.
//! So each write of a key that has a deadline, or may have one, is *due* at it. What overwrites or
//! removes the key is never due, nor what is followed by the deadline once more
//! ([`super::Deadlines::restated`]).
//!
//! **Signal**: of each run of writes the first such deadline. Once it is past for the writes that a
//! duplicate lacks, it is filled from another one instead. **Why not each key?** A log holds
//! millions of writes; a run that is due for one key costs a copy, never a wrong value. **When it
//! misleads**: a key that was removed after the write no longer matters, and is still counted.

use std::collections::VecDeque;

use super::Sequence;

/// Runs that are told apart at most: 16 KiB.
const RUNS_MAX: usize = 1 << 10;
/// Writes of a run at first. When there are too many runs, two become one.
const WRITES_OF_RUN: u64 = 64;

/// From `first` up to the next run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    first: Sequence,
    /// The first deadline that one of its writes must not come behind, in ms since 1970.
    due: i64,
}

/// The deadlines of writes, run by run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DueWrites {
    runs: VecDeque<Run>,
    writes_of_run: u64,
}

impl Default for DueWrites {
    /// Of earlier writes nothing is known.
    fn default() -> Self {
        let runs = VecDeque::from([Run { first: Sequence(0), due: i64::MIN }]);
        Self { runs, writes_of_run: WRITES_OF_RUN }
    }
}

impl DueWrites {
    /// A write has this number, and is due at this time, in ms since 1970; `None`: never.
    pub fn note(&mut self, sequence: Sequence, due_unix_ms: Option<i64>) {
        let due = due_unix_ms.unwrap_or(i64::MAX);
        if sequence <= Sequence(1) {
            self.runs.clear(); // there is nothing before it
        }
        match self.runs.back_mut() {
            Some(run) if run.due != i64::MIN && sequence.0 < run.first.0 + self.writes_of_run => {
                run.due = run.due.min(due);
            }
            _ => self.runs.push_back(Run { first: sequence, due }),
        }
        if self.runs.len() > RUNS_MAX {
            self.join();
        }
    }

    fn join(&mut self) {
        let mut runs = std::mem::take(&mut self.runs).into_iter();
        while let Some(run) = runs.next() {
            let next = runs.next();
            let due = next.map_or(run.due, |next| next.due.min(run.due));
            self.runs.push_back(Run { due, ..run });
        }
        self.writes_of_run *= 2;
    }

    /// Whether all writes after this one, up to the `last`, may still be done by who lacks them,
    /// where keys expire until this time.
    pub fn can_follow(&self, after: Sequence, last: Sequence, until_unix_ms: i64) -> bool {
        let mut end = last.next(); // the first write behind the run
        for run in self.runs.iter().rev() {
            if end <= after.next() {
                break; // it has all of this run, and of those before
            }
            if run.due <= until_unix_ms {
                return false;
            }
            end = run.first;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_may_be_done_again_until_the_first_deadline_of_those_that_are_lacked() {
        let mut writes = DueWrites::default();
        for n in 1..=1_000_u64 {
            let due = (n == 500).then_some(10_000);
            writes.note(Sequence(n), due);
        }
        let can = |after, until| writes.can_follow(Sequence(after), Sequence(1_000), until);
        assert!(can(0, 9_999) && !can(0, 10_000));
        assert!(!can(499, 10_000), "it lacks that write");
        assert!(can(500 + WRITES_OF_RUN, 10_000), "it has it");
        assert!(can(1_000, i64::MAX), "it lacks nothing");
    }

    #[test]
    fn of_writes_before_the_front_began_nothing_is_known() {
        let mut writes = DueWrites::default();
        assert!(!writes.can_follow(Sequence(49), Sequence(50), 0));
        assert!(writes.can_follow(Sequence(50), Sequence(50), 0), "it lacks nothing");
        writes.note(Sequence(51), None);
        assert!(!writes.can_follow(Sequence(49), Sequence(51), 0));
        assert!(writes.can_follow(Sequence(50), Sequence(51), 0));
    }

    #[test]
    fn there_are_few_runs_and_none_is_forgotten() {
        let mut writes = DueWrites::default();
        for n in 1..=1_000_000_u64 {
            writes.note(Sequence(n), Some(i64::try_from(n).unwrap()));
        }
        assert!(writes.runs.len() <= RUNS_MAX);
        assert_eq!(writes.runs[0], Run { first: Sequence(1), due: 1 });
        let span = writes.writes_of_run;
        for after in [0, 1, 77, 500_000, 999_999 - span] {
            // The first that it lacks is due at `after + 1`, and may be counted with earlier ones.
            let due = i64::try_from(after).unwrap() + 1;
            let can = |until| writes.can_follow(Sequence(after), Sequence(1_000_000), until);
            assert!(!can(due) && can(due - 1 - i64::try_from(span).unwrap()), "{after}");
        }
    }
}
