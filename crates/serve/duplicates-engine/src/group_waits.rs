//! `XREADGROUP … BLOCK`: a consumer waits until there is something for it.
//!
//! It waits as others do (`waiting.rs`), but a try is no write: one duplicate does it, and the
//! others get what it did (`effects.rs`). So tries are noted, and begun between two turns, when
//! nobody is ahead of the log in their partition: one after the other. What is added to a stream is
//! for one consumer of each group, the one that came first; if it finds something, the next one is
//! tried, since `COUNT` may have left some.
//!
//! **Who leaves** before its try is begun gets nothing. While it is under way nobody can: what is
//! delivered then is pending for that consumer, as at Redis when a connection breaks in front of
//! the reply. A try that is lost with who did it is done by another; one that nobody can do ends
//! the wait with an error, and delivered nothing.

use xxhash_rust::xxh3::xxh3_64;

use super::Inner;
use super::effects::Request;
use super::types::Form;
use evenkeel_stores::resp::commands::{Command, Wait};
use evenkeel_stores::resp::request::Arguments;
use evenkeel_stores::resp::{databases, waiting};

/// What is waited for, and for whom: consumers of different groups take nothing from one another.
pub(super) type Kind = (Wait, u64);

/// In Redis's words, of a group that is gone since its consumer waits.
const GROUP_GONE: &[u8] =
    b"-NOGROUP the consumer group this client was blocked on no longer exists\r\n";
/// The same where its stream is gone, or its key has another type by now.
const STREAM_GONE: &[u8] = b"-UNBLOCKED the stream key no longer exists\r\n";

/// Of a command that waits.
pub(super) fn kind_of(wait: Wait, command: &Command, arguments: Arguments<'_>) -> Kind {
    (wait, waiting::group(command, arguments).map_or(0, xxh3_64))
}

/// What a consumer is told that waited, instead of what its try was answered.
pub(super) fn why_gone(answer: &[u8], is_stream_gone: bool) -> Option<&'static [u8]> {
    match answer {
        _ if answer.starts_with(b"-WRONGTYPE") => Some(STREAM_GONE),
        _ if !answer.starts_with(b"-NOGROUP") => None,
        _ if is_stream_gone => Some(STREAM_GONE),
        _ => Some(GROUP_GONE),
    }
}

impl Inner {
    /// A consumer is to be tried, once nobody is ahead.
    pub(super) fn note_group_try(&mut self, order: u64) {
        self.waiting.groups.push_back(order);
        self.schedule();
    }

    /// Tries those that are noted and can be. Between two turns.
    pub(super) fn try_groups(&mut self) {
        for order in std::mem::take(&mut self.waiting.groups) {
            if !self.try_group(order) {
                self.waiting.groups.push_back(order);
            }
        }
    }

    /// Begins a try; false when it cannot be yet.
    fn try_group(&mut self, order: u64) -> bool {
        let Some(waiter) = self.waiting.commands.get(&order) else { return true };
        let (id, command, database) = (waiter.client, waiter.command, waiter.database);
        let (is_first, end) = (waiter.is_first, waiter.end);
        if let Some(end) = end {
            self.waiting.order.failed(order); // what it was to find is for the next one
            self.end_waiting(order, end);
            return true;
        }
        let waiting::Try { text, keys } = waiting::attempt(command, &waiter.text, None);
        let shard = match self.place_of_try(&keys, false) {
            Ok(shard) => shard,
            Err(reply) => {
                self.refuse(id, &reply.to_string());
                self.end_group_try(order);
                return true;
            }
        };
        let partition = self.map.partition(shard);
        let is_kept_out = self.effects.is_wanted_by_all() || self.pause.keeps_writes();
        if self.effects.is_busy(partition) || is_kept_out {
            return false;
        }
        // Who waits already goes on waiting while too few are live, or a shard moves.
        let can_wait = !is_first && self.leads();
        if can_wait && (self.refuses_effects(partition).is_some() || !self.has_executor(partition))
        {
            return false;
        }
        if let Some(client) = self.client(id) {
            client.is_idle = false;
        }
        let (mut commands, form) = (Vec::new(), Form::One(command.shape));
        databases::write_within(&mut commands, database, |out| out.extend_from_slice(&text));
        self.run_effects(Request {
            client: id,
            shard,
            commands,
            count: databases::count_within(database),
            form,
            home: None,
            waiter: Some(order),
            published: Vec::new(),
        });
        true
    }

    /// A try was not done, and its client was told why.
    pub(super) fn end_group_try(&mut self, order: u64) {
        self.waiting.order.failed(order);
        self.stop_waiting(order);
    }

    /// There may be more for others who wait at one of these places as that one did.
    pub(super) fn pass_on_group(&mut self, places: &[Box<[u8]>], kind: Kind) {
        for place in places {
            for order in self.waiting.order.fill(place, Some(kind), 1) {
                self.note_group_try(order);
            }
        }
    }
}

#[cfg(test)]
mod tests;
