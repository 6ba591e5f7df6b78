//! A duplicate that somebody else empties (`FLUSHALL`, `FLUSHDB`) is known before its next answer.
//!
//! One duplicate answers a read, or does a script for all. Emptied, it would answer that there is
//! no key, and nothing compares that with the others before the client has it. A Redis tells the
//! connections that track keys of it, in the same bytes as its answers: whatever was done behind
//! the emptying comes behind that word (`invalidate` of nothing). From then on answers of this
//! connection are held, and it is asked for the epoch. One that has it was emptied by a client of
//! ours, which signs it in the same transaction (`flush.rs`); one that has none is quarantined, and
//! who waited for the held answers asks another.
//!
//! **When it misleads.** A database other than 0 that somebody else empties (`FLUSHDB`) is told as
//! well, but the epoch is in database 0: that is found by comparing keys. Who does not let us track
//! keys (`CLIENT TRACKING` is refused) says nothing: then the epoch that every round of `checks.rs`
//! asks for tells, up to a second later.

use evenkeel_ordered::{ConnectionKind, Dropped, ServerSet, refillable};

use super::Inner;
use super::types::Owed;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::reply::{elements, payload};
use evenkeel_stores::store::keys::EPOCH;

/// Whether what a duplicate says beside its answers is that all keys of a database have gone.
pub(super) fn is_emptying(push: &[u8]) -> bool {
    let mut parts = elements(push);
    let is_invalidate = parts.next().and_then(payload) == Some(b"invalidate");
    is_invalidate && parts.next().is_some_and(|keys| keys.first() == Some(&b'_'))
}

impl Inner {
    /// A duplicate was emptied by somebody: nothing that it answers from now on is believed, until
    /// it has said that it is still signed.
    pub(super) fn doubt(&mut self, server: usize, kind: ConnectionKind) {
        let state = self.servers[server].connection(kind);
        let is_asked = std::mem::replace(&mut state.is_doubted, true);
        if is_asked && !std::mem::take(&mut state.is_signed) {
            return; // the question comes behind this as well
        }
        self.ask_for_signature(server, kind);
    }

    fn ask_for_signature(&mut self, server: usize, kind: ConnectionKind) {
        self.ask_in((server, kind, 0), Owed::Signature, |out| {
            encode::command(out, &[b"GET", EPOCH]);
        });
        self.schedule();
    }

    /// Once in a while: who was busy with a script when it was asked is asked again.
    pub(super) fn doubt_again(&mut self) {
        for server in 0..self.servers.len() {
            for kind in [ConnectionKind::Ordered, ConnectionKind::Free] {
                let state = self.servers[server].connection(kind);
                let is_asked = || state.owed.iter().any(|it| matches!(it, Owed::Signature));
                if state.is_open && state.is_doubted && !state.is_signed && !is_asked() {
                    self.ask_for_signature(server, kind);
                }
            }
        }
    }

    /// A duplicate has said whether it is still signed: what it answered meanwhile is, if so.
    ///
    /// # Errors
    /// As [`Inner::answered`].
    pub(super) fn signature_answered(
        &mut self,
        server: usize,
        (connection, kind): (u64, ConnectionKind),
        reply: &[u8],
    ) -> Result<(), Option<Dropped>> {
        self.members.answered(self.now, server, None);
        let is_emptied = match reply {
            [b'-', b'B', b'U', b'S', b'Y', ..] => return Ok(()), // it is asked again
            [b'-', ..] => return Err(Some(Dropped::Failed)),     // loading: who knows what
            reply => payload(reply).is_none(),
        };
        if is_emptied && self.is_refillable(server) {
            self.counts.found(self.members.partition(server));
            self.quarantine(server, "it was emptied by somebody else");
            return Err(None);
        }
        if let Some(state) = self.connection(server, connection, kind) {
            state.is_signed = true;
        }
        self.believe_held(server, connection, kind)
    }

    /// What is held of one that is signed is its answer, one after the other, as long as they may
    /// be told.
    ///
    /// # Errors
    /// As [`Inner::answered`].
    pub fn believe_held(
        &mut self,
        server: usize,
        connection: u64,
        kind: ConnectionKind,
    ) -> Result<(), Option<Dropped>> {
        while !self.holds_answers(server, kind)
            && let Some(state) = self.connection(server, connection, kind)
            && state.is_signed
        {
            let Some((owed, reply)) = state.held.pop_front() else {
                (state.is_doubted, state.is_signed) = (false, false);
                break;
            };
            self.believe(server, (connection, kind), owed, &reply)?;
        }
        Ok(())
    }

    /// Whether there is something to fill it from.
    fn is_refillable(&self, server: usize) -> bool {
        let live = self.members.live(self.members.partition(server));
        let emptied = ServerSet::only(server);
        refillable(live, emptied, self.history.is_whole()).contains(server)
            || !live.contains(server)
    }
}

#[cfg(test)]
mod tests;
