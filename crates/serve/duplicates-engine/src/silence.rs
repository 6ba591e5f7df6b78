//! A duplicate that owes an answer and says nothing: slow, or dead?
//!
//! What it owes first on its two connections is what it may be busy with. Another that has answered
//! the same tells how long that takes; what only this one owes is asked of another beside it. And
//! it is probed on a connection of its own (`member.rs`, `probe`).

use std::time::Duration;

use evenkeel_ordered::{Dropped, ServerSet};

use super::Inner;
use super::types::Owed;

impl Inner {
    /// Bytes were taken by a duplicate, or came, that are no whole answer.
    pub fn heard_from(&mut self, server: usize) {
        self.read_clock();
        self.members.heard(self.now, server);
    }

    /// Drops those that stand still; those that say nothing since the last look.
    pub(super) fn look_at_silence(&mut self) -> ServerSet {
        let silent = self.members.silent(self.now);
        let doubted = silent.without(self.silent);
        self.silent = silent;
        for server in doubted.iter() {
            tracing::warn!(server, "a duplicate says nothing: it is slow, or stands still");
            self.ask_beside(server);
            self.scan_elsewhere(server);
        }
        let overdue = self.members.overdue(self.now, |server| self.others_took(server));
        for server in overdue.iter() {
            self.drop_server(server, Dropped::Silent);
        }
        doubted
    }

    /// How long another duplicate took for what this one owes first; `None` where nobody has
    /// answered it.
    fn others_took(&self, server: usize) -> Option<Duration> {
        if self.executes(server) {
            return None; // its answers may wait here
        }
        let state = &self.servers[server];
        let mut longest = Duration::ZERO;
        for owed in [&state.ordered, &state.free].into_iter().filter_map(|it| it.owed.front()) {
            let took = match owed {
                Owed::Access { call } | Owed::Group { call, .. } => self.calls[*call].first_took,
                Owed::Read { attempt } => self.read_took(attempt),
                // They are quick.
                Owed::Draw { .. }
                | Owed::LastId { .. }
                | Owed::Inquiry { .. }
                | Owed::Mark { .. }
                | Owed::Signature
                | Owed::Chosen
                | Owed::Asked { .. }
                | Owed::Expiring { .. }
                | Owed::Check { .. }
                | Owed::Page { .. }
                | Owed::Scan { .. } => Some(Duration::ZERO),
                // Writes of the past, keys as long as they are, and what nobody else does.
                Owed::Effect { .. }
                | Owed::Replayed { .. }
                | Owed::Moved { .. }
                | Owed::Dump { .. }
                | Owed::Expiry { .. }
                | Owed::Functions { .. }
                | Owed::Given { .. } => None,
            };
            longest = longest.max(took?);
        }
        Some(longest)
    }
}
