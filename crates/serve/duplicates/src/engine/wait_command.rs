//! `WAIT numreplicas timeout`: until so many duplicates have the connection's last write.
//!
//! One duplicate stands for the master, so that the count is as with one Redis and its replicas. A
//! duplicate that is dropped counts again when it has come back with that write. The connection
//! takes no further command meanwhile; within a transaction nothing is waited for.

use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_ordered::Sequence;

use super::Inner;
use super::types::{ClientId, Form, ParsedCommand};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::reply::Shape;

/// A client that waits.
#[derive(Debug)]
pub(super) struct Wait {
    client: ClientId,
    slot: u64,
    needed: usize,
    write: Option<(usize, Sequence)>,
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
        let (write, is_captured) = (client.last_write, client.captured.is_some());
        let have = self.having(write);
        let needed = usize::try_from(needed).unwrap_or(0);
        if have >= needed || is_captured {
            return self.reply_now(id, |out, _| encode::integer(out, have as i64));
        }
        let slot = self.slot(id);
        let far = Duration::from_secs(365 * 86_400);
        let timeout = Duration::from_millis(timeout_ms).min(far);
        let until = (timeout_ms > 0).then(|| self.now + timeout);
        self.wait_list.push(Wait { client: id, slot, needed, write, until });
        self.hold_behind(id, slot);
    }

    /// Duplicates less one that have a write.
    fn having(&self, write: Option<(usize, Sequence)>) -> usize {
        let (partition, sequence) = write.unwrap_or((0, Sequence(0)));
        let live = self.members.live(partition);
        let has_it = |server: &usize| self.members.applied(*server) >= sequence;
        live.iter().filter(has_it).count().saturating_sub(1)
    }

    /// Tells those that need not wait any longer.
    pub(super) fn look_at_wait_list(&mut self) {
        if self.wait_list.is_empty() {
            return;
        }
        for wait in std::mem::take(&mut self.wait_list) {
            let have = self.having(wait.write);
            let is_over = wait.until.is_some_and(|until| self.now >= until);
            if self.client(wait.client).is_none() {
                continue;
            }
            if have < wait.needed && !is_over {
                self.wait_list.push(wait);
                continue;
            }
            let mut answer = Vec::new();
            encode::integer(&mut answer, have as i64);
            self.reply(wait.client, wait.slot, &answer, &Form::One(Shape::Plain));
        }
    }
}
