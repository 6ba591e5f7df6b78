//! `CLIENT PAUSE` and `UNPAUSE`: clients' commands are kept back until a time.
//!
//! A command is kept back before it is taken: its client is held, its bytes stay where they came
//! in, and it is looked at again when the pause is over. So nothing of it is done, logged or
//! promised, and who leaves meanwhile has asked for nothing. From the reply to `CLIENT PAUSE` on no
//! write of a client gets a place in the order of writes, except for those that have begun: a
//! script that runs, an `SPOP` that has drawn. Who has paused sees at least what was written
//! before.
//!
//! Pauses add up as with Redis: what is kept back is the most that was asked for, and it ends at
//! the last of the times. A pause belongs to the process that leads; it ends when another may lead,
//! and a process that ends refuses what it keeps back.
//!
//! **A lease that is not renewed in time** keeps back writes and strong reads in the same way: most
//! of the time it is renewed a moment later, or another process leads and this one ends. Then the
//! connection ends without an answer, as when a Redis dies: libraries try that again, and an error
//! they do not. After [the patience](evenkeel_leadership::Leadership::patience) clients are told.
//! Clients of Redis Cluster are told at once, since they try again at another address.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_ordered::Consistency;

use super::Inner;
use super::types::{ClientId, ParsedCommand};
use evenkeel_stores::resp::commands::{Class, Command, Wait};
use evenkeel_stores::resp::pause::{self, Kept};

/// A longer pause lasts so long.
const LASTS_MAX: Duration = Duration::from_secs(365 * 86_400);

/// How soon a lease that was late is looked at again.
const LEASE_LOOK: Duration = Duration::from_millis(50);

const ENDS: &str = "UNAVAILABLE clients are paused, and this process ends: nothing was done";

/// What is kept back, and whose.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Until when.
    now: Option<(Kept, Instant)>,
    gap: Option<Gap>,
    held: BTreeSet<ClientId>,
}

/// A time in which this process does not lead, and may again.
#[derive(Debug)]
struct Gap {
    since: Instant,
    /// When the lease is looked at again; never once clients have waited long enough.
    look: Option<Instant>,
}

impl Pause {
    pub(super) fn deadline(&self) -> Option<Instant> {
        let until = self.now.map(|(_, until)| until);
        until.into_iter().chain(self.gap.as_ref().and_then(|gap| gap.look)).min()
    }

    /// Clients that are held.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether commands are kept back at this time because a client asked for it.
    pub(super) fn is_kept(&self, now: Instant) -> bool {
        self.now.is_some_and(|(_, until)| until > now)
    }

    /// Whether writes of clients get no place now.
    pub(super) const fn keeps_writes(&self) -> bool {
        self.now.is_some() || self.gap.is_some()
    }
}

impl Inner {
    /// `CLIENT PAUSE milliseconds [WRITE|ALL]`
    pub(super) fn pause(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let (kept, lasts) = match pause::parse(parsed.arguments()) {
            Ok(asked) => asked,
            Err(refusal) => return self.refuse(id, refusal.0),
        };
        self.end_pause_if_over();
        let asked = (kept, self.now + lasts.min(LASTS_MAX));
        let (kept, until) = match self.pause.now {
            Some((before, at)) => (before.max(asked.0), at.max(asked.1)),
            None => asked,
        };
        self.pause.now = Some((kept, until));
        self.reads.arm(until);
        let last = self.history.last().sequence;
        if let Some(client) = self.client(id) {
            client.session.saw(last);
        }
        let (service, ms) = (&self.config.name, until.since(self.now).as_millis());
        tracing::info!(service, ?kept, ms, "clients are paused");
        self.ok(id);
        self.end_pause_if_over();
    }

    /// `CLIENT UNPAUSE`, and what else ends a pause.
    pub(super) fn end_pause(&mut self) {
        if self.pause.now.take().is_some() {
            self.release_kept();
        }
    }

    /// Looks at what was kept back again.
    fn release_kept(&mut self) {
        for id in std::mem::take(&mut self.pause.held) {
            if let Some(client) = self.client(id) {
                client.is_idle = false;
            }
            self.release(id);
        }
        self.schedule(); // pops that were to be repeated
    }

    /// Whether clients wait for this process to lead again.
    pub(super) fn awaits_lease(&mut self) -> bool {
        let patience = if self.leads() { None } else { self.lease_patience() };
        let Some(patience) = patience else {
            if self.pause.gap.take().is_some() {
                self.release_kept(); // whoever sees it first
            }
            return false;
        };
        let now = self.now;
        let gap = self.pause.gap.get_or_insert(Gap { since: now, look: None });
        gap.look = (now.since(gap.since) < patience).then(|| now + LEASE_LOOK);
        let look = gap.look;
        look.into_iter().for_each(|at| self.reads.arm(at));
        look.is_some()
    }

    /// Whether this is for who leads, and waits until it is known who does.
    fn waits_for_lease(
        &mut self,
        id: ClientId,
        (command, class): (&Command, Class),
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let Some(client) = self.client(id).filter(|it| it.is_known() && !it.is_of_cluster) else {
            return false;
        };
        if client.is_leaving {
            return false;
        }
        let is_read = matches!(class, Class::Read | Class::Whole(_));
        let is_strong = client.consistency() == Consistency::Strong && is_read
            || class == Class::Waits(Wait::Stream);
        // Also reads of a transaction are for who leads.
        let transaction = client.transaction.as_ref();
        let transaction = transaction.map(|it| it.writes || it.empties || it.count > 0);
        let is_read = is_strong && transaction.is_none();
        let keeps = pause::keeps(Kept::Writes, (command, class), parsed.arguments(), transaction);
        (is_read || keeps) && self.awaits_lease()
    }

    fn keep_back(&mut self, id: ClientId) {
        if let Some(client) = self.client(id) {
            client.is_idle = true; // its end is looked for
        }
        self.pause.held.insert(id);
        self.hold(id);
    }

    /// The time may have come; or another process may lead, which knows of no pause.
    pub(super) fn end_pause_if_over(&mut self) {
        if self.pause.gap.is_some() && !self.awaits_lease() {
            self.release_kept();
        }
        let is_over = self.pause.now.is_some_and(|(_, until)| until <= self.now);
        if is_over || self.pause.now.is_some() && !self.leads() {
            self.end_pause();
        }
    }

    /// Keeps a command back while clients are paused, or a lease is late: `Some` = it is not to be
    /// taken now, and whether it was answered.
    pub(super) fn keeps_back(
        &mut self,
        id: ClientId,
        command: (&Command, Class),
        parsed: ParsedCommand<'_>,
    ) -> Option<bool> {
        if self.waits_for_lease(id, command, parsed) {
            self.keep_back(id);
            return Some(false);
        }
        let (kept, until) = self.pause.now?;
        let is_over = until <= self.now;
        let client = self.client(id).filter(|client| client.is_known() && !is_over)?;
        let transaction = client.transaction.as_ref().map(|it| it.writes || it.empties);
        if !pause::keeps(kept, command, parsed.arguments(), transaction) {
            return None;
        }
        if client.is_leaving {
            self.refuse(id, ENDS);
            return Some(true);
        }
        self.keep_back(id);
        Some(false)
    }

    /// This process ends: what a client's commands would wait for does not come.
    pub fn leave_pause(&mut self, id: ClientId) {
        let is_held = self.pause.held.remove(&id);
        let is_late = is_held && self.pause.gap.is_some();
        let Some(client) = self.client(id) else { return };
        client.is_leaving = true;
        client.is_ending |= is_late; // nothing was done
        if is_held {
            client.is_idle = false;
            self.release(id);
        }
    }

    /// A client has gone.
    pub(super) fn forget_paused(&mut self, id: ClientId) {
        self.pause.held.remove(&id);
    }
}

#[cfg(test)]
mod tests;
