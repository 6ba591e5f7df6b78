//! What was asked and answered, and whether it may have been so.
//!
//! **Linearizability** is checked by `todc-utils` (Wing and Gong 1993, with Lowe's cache), per key,
//! as a register whose values are all different. A write whose outcome nobody knows is pending to
//! the end of the history: it may have happened at any time after its call, or not at all. Two
//! equivalences keep that cheap. One that no read returned may be left out (put it last). One that
//! a read returned has happened before the earliest such answer.

use std::collections::{BTreeMap, BTreeSet};

use todc_utils::specifications::register::{RegisterOperation, RegisterSpecification};
use todc_utils::{Action, History, WGLChecker};

/// One access of one key; times are of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) key: u64,
    pub(crate) what: What,
    pub(crate) called: u64,
    /// `None`: nobody knows whether it happened.
    pub(crate) answered: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// Zero: there is no such key.
    Read(u64),
    /// Never zero, never the same twice.
    Write(u64),
}

/// Whether each key could have been one register.
pub(crate) fn linearizable(accesses: &[Access]) -> Result<(), String> {
    let mut keys: BTreeMap<u64, Vec<Access>> = BTreeMap::new();
    for access in accesses {
        keys.entry(access.key).or_default().push(*access);
    }
    for (key, accesses) in keys {
        // What is wrong by itself is found at once; the search for an order may take for ever.
        if let Some(read) = from_nowhere(&accesses) {
            return Err(format!("key {key}: {read:?} returned what was not written"));
        }
        let bounded = bound(&accesses);
        if !is_linearizable(&bounded) {
            let mut sorted = accesses;
            sorted.sort_by_key(|access| access.called);
            let suspects = suspects(&sorted);
            return Err(format!("key {key} is not linearizable; {suspects}"));
        }
    }
    Ok(())
}

fn from_nowhere(accesses: &[Access]) -> Option<&Access> {
    let written: BTreeSet<u64> = accesses
        .iter()
        .filter_map(|access| if let What::Write(value) = access.what { Some(value) } else { None })
        .collect();
    accesses.iter().find(|access| {
        matches!(access.what, What::Read(value) if value != 0 && !written.contains(&value))
    })
}

/// Pending writes are left out or get the latest answer that they may have; see above.
fn bound(accesses: &[Access]) -> Vec<Access> {
    let first_seen = |value| {
        let seen = accesses.iter().filter(|access| access.what == What::Read(value));
        seen.filter_map(|access| access.answered).min()
    };
    let bounded = accesses.iter().filter_map(|access| match (access.what, access.answered) {
        (_, Some(_)) => Some(*access),
        (What::Read(_), None) => None,
        (What::Write(value), None) => {
            first_seen(value).map(|seen| Access { answered: Some(seen), ..*access })
        }
    });
    bounded.collect()
}

/// The history as it is, pending writes answered at its end.
fn is_linearizable(accesses: &[Access]) -> bool {
    let end = accesses.iter().map(|it| it.called.max(it.answered.unwrap_or(0))).max().unwrap_or(0);
    let mut events = Vec::new();
    for (process, access) in accesses.iter().enumerate() {
        let operation = match access.what {
            What::Read(value) => RegisterOperation::Read(Some(value)),
            What::Write(value) => RegisterOperation::Write(value),
        };
        // In the same instant calls come first: whoever may overlap does.
        events.push((access.called, 0, process, Action::Call(operation)));
        let answered = access.answered.unwrap_or(end + 1);
        events.push((answered.max(access.called), 1, process, Action::Response(operation)));
    }
    events.sort_by_key(|&(at, order, process, _)| (at, order, process));
    let actions: Vec<_> = events.into_iter().map(|(_, _, process, it)| (process, it)).collect();
    actions.is_empty()
        || WGLChecker::<RegisterSpecification<u64>>::is_linearizable(History::from_actions(actions))
}

/// Reads that are wrong by themselves, for people: of values never written, or overwritten before.
fn suspects(accesses: &[Access]) -> String {
    let mut found = Vec::new();
    for read in accesses {
        let (What::Read(value), Some(_)) = (read.what, read.answered) else { continue };
        let write = accesses.iter().find(|access| access.what == What::Write(value));
        if value != 0 && write.is_none() {
            found.push(format!("{read:?} returned what was not written"));
            continue;
        }
        let written = write.map_or(Some(0), |write| write.answered);
        let Some(written) = written else { continue };
        let later = accesses.iter().find(|access| {
            matches!(access.what, What::Write(other) if other != value)
                && access.called > written
                && access.answered.is_some_and(|answered| answered < read.called)
        });
        if let Some(later) = later {
            found.push(format!("{read:?} is stale: {write:?}, then {later:?}"));
        }
    }
    let count = found.len();
    found.truncate(4);
    format!("{count} suspects:\n{}", found.join("\n"))
}

/// What sessions do, in the order in which each did it. Of one key the values rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Acknowledged.
    Wrote {
        session: usize,
        key: u64,
        value: u64,
    },
    Read {
        session: usize,
        key: u64,
        value: u64,
    },
    /// Another session was given the token of this one.
    Carried {
        from: usize,
        to: usize,
    },
}

/// Whether every session saw what it wrote, what it was handed, and what it had seen before.
pub(crate) fn sessions_hold(events: &[Event]) -> Result<(), String> {
    let mut floors: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    for event in events {
        match *event {
            Event::Wrote { session, key, value } => {
                let floor = floors.entry((session, key)).or_default();
                *floor = value.max(*floor);
            }
            Event::Read { session, key, value } => {
                let floor = floors.entry((session, key)).or_default();
                if value < *floor {
                    return Err(format!("{event:?}, which had seen or written {floor}"));
                }
                *floor = value;
            }
            Event::Carried { from, to } => {
                let known: Vec<(u64, u64)> = floors
                    .range((from, 0)..=(from, u64::MAX))
                    .map(|(at, &it)| (at.1, it))
                    .collect();
                for (key, value) in known {
                    let floor = floors.entry((to, key)).or_default();
                    *floor = value.max(*floor);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    const fn access(what: What, called: u64, answered: u64) -> Access {
        Access { key: 0, what, called, answered: Some(answered) }
    }

    const fn pending(value: u64, called: u64) -> Access {
        Access { key: 0, what: Write(value), called, answered: None }
    }

    use What::{Read, Write};

    #[test]
    fn what_one_register_may_do_is_accepted() {
        let good: [&[Access]; 6] = [
            &[access(Write(1), 0, 1), access(Read(1), 2, 3)],
            // Overlapping: before or after.
            &[access(Write(1), 0, 9), access(Read(0), 1, 2), access(Read(1), 3, 4)],
            // A pending write that never happened, one that did, one that did late.
            &[pending(1, 0), access(Read(0), 5, 6)],
            &[pending(1, 0), access(Read(1), 5, 6)],
            &[pending(1, 0), access(Write(2), 1, 2), access(Read(2), 3, 4), access(Read(1), 5, 6)],
            // Two writers, readers agree.
            &[
                access(Write(1), 0, 5),
                access(Write(2), 0, 5),
                access(Read(2), 6, 7),
                access(Read(2), 8, 9),
            ],
        ];
        for history in good {
            assert_eq!(linearizable(history), Ok(()), "{history:?}");
        }
    }

    #[test]
    fn what_no_register_does_is_refused() {
        let bad: [&[Access]; 8] = [
            // Stale: an acknowledged write is not seen.
            &[access(Write(1), 0, 1), access(Read(0), 2, 3)],
            &[access(Write(1), 0, 1), access(Write(2), 2, 3), access(Read(1), 4, 5)],
            // Back and forth.
            &[access(Write(1), 0, 9), access(Read(1), 1, 2), access(Read(0), 3, 4)],
            &[
                access(Write(1), 0, 5),
                access(Write(2), 0, 5),
                access(Read(1), 6, 7),
                access(Read(2), 8, 9),
            ],
            // Out of nowhere, before its call, of a refused write.
            &[access(Read(7), 0, 1)],
            &[access(Read(1), 0, 1), access(Write(1), 2, 3)],
            // A pending write happens once, not twice.
            &[
                pending(1, 0),
                access(Read(1), 1, 2),
                access(Write(2), 3, 4),
                access(Read(2), 5, 6),
                access(Read(1), 7, 8),
            ],
            // A pending write cannot be seen before its call.
            &[access(Read(1), 0, 1), pending(1, 2)],
        ];
        for history in bad {
            assert!(linearizable(history).is_err(), "{history:?}");
        }
    }

    /// Both equivalences of the module's head, against pending writes kept to the end.
    #[test]
    fn bounded_pending_writes_decide_as_unbounded_ones() {
        let mut random = Random(1);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..4_000 {
            let mut accesses = Vec::new();
            for value in 1..=6 {
                let called = random.below(12) as u64;
                let answered = called + random.below(6) as u64;
                accesses.push(match random.below(4) {
                    0 => pending(value, called),
                    1 => access(Write(value), called, answered),
                    _ => access(Read(random.below(5) as u64), called, answered),
                });
            }
            let expected = is_linearizable(&accesses);
            assert_eq!(linearizable(&accesses).is_ok(), expected, "{accesses:?}");
            if expected { good += 1 } else { bad += 1 }
        }
        assert!(good > 100 && bad > 100, "{good} good, {bad} bad: the comparison is empty");
    }

    #[test]
    fn sessions_that_forget_are_refused() {
        let wrote = |session, value| Event::Wrote { session, key: 1, value };
        let read = |session, value| Event::Read { session, key: 1, value };
        let carried = Event::Carried { from: 1, to: 2 };
        let good: [&[Event]; 4] = [
            &[wrote(1, 5), read(1, 5), read(1, 7)],
            &[wrote(1, 5), read(2, 0), read(2, 5)],
            &[wrote(1, 5), carried, read(2, 5)],
            &[read(2, 9), wrote(1, 5), carried, read(2, 9)],
        ];
        for events in good {
            assert_eq!(sessions_hold(events), Ok(()), "{events:?}");
        }
        let bad: [&[Event]; 4] = [
            &[wrote(1, 5), read(1, 4)],
            &[wrote(1, 5), read(2, 5), read(2, 4)],
            &[wrote(1, 5), carried, read(2, 4)],
            &[read(1, 5), carried, read(2, 0)],
        ];
        for events in bad {
            assert!(sessions_hold(events).is_err(), "{events:?}");
        }
    }

    #[test]
    fn states_that_differ_are_refused() {
        use super::super::world::equal;
        use evenkeel_testkit::redis::{Reply, State};
        let state = |value: i64, expires: i64| {
            State::from([("a".to_owned(), (Reply::Integer(value), Reply::Integer(expires)))])
        };
        assert_eq!(equal(&[state(1, -1), state(1, -1)]), Ok(()));
        let bad = [
            [state(1, -1), state(2, -1)],
            [state(1, -1), state(1, 99)],
            [state(1, -1), State::new()],
        ];
        for states in bad {
            assert!(equal(&states).is_err(), "{states:?}");
        }
    }
}
