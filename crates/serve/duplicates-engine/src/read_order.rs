//! A read must not see what its own client wrote *behind* it.
//!
//! Reads travel on a connection of their own, past writes that wait (`ConnectionKind::Free`): that
//! is what makes them quick. But then a client that sends `GET k` and `INCR k` without waiting
//! between them may be told the value after the increment, which no Redis would tell it. So a write
//! waits, with all that its client sent behind it, until the client's reads of the same keys are
//! answered. Writes of other keys do not wait, and reads on the ordered connection need no help.
//!
//! **Strong reads** go to a majority, on ordered connections. Whoever holds a lease in etcd sends
//! them past writes that wait as well, to one duplicate (`strong.rs`), by this rule: *an answer
//! shows everything that anybody was told before the read began, and nothing that a majority does
//! not have*; and the lease is valid when it comes. So a value that one strong read has seen the
//! next one sees too, also under a successor. A client that sends two of one key without waiting is
//! told them in their order: the second waits for the first. Those of different keys that are sent
//! without waiting overlap, as if they were of two clients.

use std::collections::VecDeque;

use evenkeel_ordered::Consistency;
use xxhash_rust::xxh3::xxh3_64;

use super::Inner;
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::commands::{self, Class, Command, Keys, Local, Whole};
use evenkeel_stores::resp::databases;

/// The reads of one client that may overtake its writes: where their answers go, and of which keys
/// they are. Two keys with one hash make a write wait in vain, no more; so do keys of one name in
/// several databases.
#[derive(Debug, Default)]
pub(super) struct ReadOrder(VecDeque<(u64, u64)>);

/// In place of the hash of a key: any key may be read. One of that hash makes writes wait in vain.
const ANY: u64 = 0;

impl ReadOrder {
    /// A read was sent whose answer goes to `slot`; those before `first` are answered.
    #[inline]
    pub(super) fn sent(&mut self, slot: u64, key: &[u8], first: u64) {
        self.note(slot, xxh3_64(key), first);
    }

    #[inline]
    fn note(&mut self, slot: u64, hash: u64, first: u64) {
        while self.0.front().is_some_and(|&(before, _)| before < first) {
            self.0.pop_front();
        }
        self.0.push_back((slot, hash));
    }

    /// The last of them that reads this key and is not answered.
    fn last_of(&self, key: &[u8], is_waiting: impl Fn(u64) -> bool) -> Option<u64> {
        let hash = xxh3_64(key);
        let of_key = self.0.iter().rev().filter(|(_, other)| [hash, ANY].contains(other));
        of_key.map(|&(slot, _)| slot).find(|&slot| is_waiting(slot))
    }

    /// The last of all that is not answered.
    fn last(&self, is_waiting: impl Fn(u64) -> bool) -> Option<u64> {
        self.0.iter().rev().map(|&(slot, _)| slot).find(|&slot| is_waiting(slot))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Inner {
    /// A client's read was sent that may overtake its writes; its slot is the client's last.
    #[inline]
    pub(super) fn note_read_order(
        &mut self,
        id: ClientId,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) {
        let Some(client) = self.client(id) else { return };
        let (first, last) = client.slots();
        if command.keys == Keys::Script {
            return client.read_order.note(last, ANY, first);
        }
        for index in commands::keys(command, parsed.arguments()).into_iter().flatten() {
            client.read_order.sent(last, parsed.argument(index), first);
        }
    }

    /// Has a command that writes wait until its client's reads of the same keys are answered;
    /// whether it has to.
    pub(super) fn holds_behind_reads(
        &mut self,
        id: ClientId,
        command: &Command,
        class: Class,
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let has_lease = self.has_lease();
        let Some(client) = self.client(id).filter(|client| !client.read_order.is_empty()) else {
            return false;
        };
        let is_strong = has_lease && client.consistency == Consistency::Strong;
        let last_of = |key: &[u8]| client.read_order.last_of(key, |slot| client.is_waiting(slot));
        let last = match (class, &client.transaction) {
            // What a script reads is not known.
            (
                Class::Whole(
                    Whole::Flush | Whole::Libraries { changes: true } | Whole::Sort { .. },
                )
                | Class::Effects,
                None,
            ) => client.read_order.last(|slot| client.is_waiting(slot)),
            (Class::Local(Local::Exec), Some(it)) if it.empties || it.is_effect => {
                client.read_order.last(|slot| client.is_waiting(slot))
            }
            (Class::Local(Local::Exec), Some(transaction)) => {
                let keys = transaction.keys.iter().map(|place| databases::key(place));
                keys.filter_map(last_of).max()
            }
            (Class::Read, None) if !is_strong => None,
            (Class::Read | Class::Write(_) | Class::Rewritten(..) | Class::Waits(_), None) => {
                let keys = commands::keys(command, parsed.arguments()).into_iter().flatten();
                keys.filter_map(|index| last_of(parsed.argument(index))).max()
            }
            _ => None,
        };
        if let Some(slot) = last {
            self.hold_behind(id, slot);
        }
        last.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_for_the_last_read_of_its_key_that_is_not_answered() {
        let mut reads = ReadOrder::default();
        for (slot, key) in [(7, b"a"), (8, b"b"), (9, b"a")] {
            reads.sent(slot, key, 7);
        }
        assert_eq!(reads.last_of(b"a", |_| true), Some(9));
        assert_eq!(reads.last_of(b"a", |slot| slot != 9), Some(7), "answered out of turn");
        assert_eq!(reads.last_of(b"b", |slot| slot > 8), None);
        assert_eq!(reads.last_of(b"c", |_| true), None);
        assert_eq!(reads.last(|slot| slot < 9), Some(8));
        reads.note(10, ANY, 7);
        assert_eq!(reads.last_of(b"c", |_| true), Some(10), "a script may have read it");
    }

    #[test]
    fn what_is_answered_costs_no_memory() {
        let mut reads = ReadOrder::default();
        (0..1_000_u64).for_each(|slot| reads.sent(slot, b"k", slot.saturating_sub(3)));
        assert_eq!(reads.0.len(), 4);
    }
}
