//! `WAIT numreplicas timeout`: until so many duplicates have the connection's last write.
//!
//! One duplicate stands for the master, so that the count is as with one Redis and its replicas. A
//! duplicate that is dropped counts again when it has come back with that write. The connection
//! takes no further command meanwhile; within a transaction nothing is waited for.

use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_ordered::Sequence;

use super::Inner;
use super::gather::Gather;
use super::types::{ClientId, Form, ParsedCommand};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::reply::Shape;

/// A client that waits.
#[derive(Debug)]
pub(super) struct Wait {
    client: ClientId,
    slot: u64,
    needed: usize,
    writes: Vec<(usize, Sequence)>,
    /// `None` = for ever.
    until: Option<Instant>,
}

impl Inner {
    pub(super) fn wait_for(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let Some(needed) = Self::number_of(parsed, 1) else {
            return self.refuse(id, "ERR value is not an integer or out of range");
        };
        let Some(timeout_ms) = Self::number_of(parsed, 2) else {
            return self.refuse(id, "ERR timeout is not an integer or out of range");
        };
        let Ok(timeout_ms) = u64::try_from(timeout_ms) else {
            return self.refuse(id, "ERR timeout is negative");
        };
        let Some(client) = self.client(id) else { return };
        let (writes, is_captured) = (client.last_writes.clone(), client.captured.is_some());
        let have = self.having(&writes);
        let needed = usize::try_from(needed).unwrap_or(0);
        if have >= needed || is_captured {
            return self.reply_now(id, |out, _| encode::integer(out, have as i64));
        }
        let slot = self.slot(id);
        let far = Duration::from_secs(365 * 86_400);
        let timeout = Duration::from_millis(timeout_ms).min(far);
        let until = (timeout_ms > 0).then(|| self.now + timeout);
        self.wait_list.push(Wait { client: id, slot, needed, writes, until });
        self.hold_behind(id, slot);
        if let Some(client) = self.client(id) {
            client.is_idle = true; // its end is looked for
        }
    }

    /// A client's write has this place; that of a part of a command is the whole's.
    pub(super) fn note_last_write(&mut self, id: ClientId, partition: usize, at: Sequence) {
        let whole = self.client(id).and_then(|client| client.part());
        let whole = whole.and_then(|(gather, _)| self.gathers.get(gather)).map(Gather::client);
        let Some(client) = self.client(whole.unwrap_or(id)) else { return };
        match client.last_writes.iter_mut().find(|(known, _)| *known == partition) {
            Some((_, last)) => *last = at,
            None => client.last_writes.push((partition, at)),
        }
    }

    /// Duplicates less one that have these writes: the fewest of any partition.
    fn having(&self, writes: &[(usize, Sequence)]) -> usize {
        let of = |&(partition, sequence): &(usize, Sequence)| {
            let live = self.members.live(partition);
            let has_it = |server: &usize| self.members.applied(*server) >= sequence;
            live.iter().filter(has_it).count().saturating_sub(1)
        };
        writes.iter().map(of).min().unwrap_or_else(|| of(&(0, Sequence(0))))
    }

    /// Tells those that need not wait any longer.
    pub(super) fn look_at_wait_list(&mut self) {
        if self.wait_list.is_empty() {
            return;
        }
        for wait in std::mem::take(&mut self.wait_list) {
            let have = self.having(&wait.writes);
            let is_over = wait.until.is_some_and(|until| self.now >= until);
            if self.client(wait.client).is_none() {
                continue;
            }
            if have < wait.needed && !is_over {
                self.wait_list.push(wait);
                continue;
            }
            if let Some(client) = self.client(wait.client) {
                client.is_idle = false;
            }
            let mut answer = Vec::new();
            encode::integer(&mut answer, have as i64);
            self.reply(wait.client, wait.slot, &answer, &Form::One(Shape::Plain));
        }
    }
}
