//! The log cannot be written, and is tried again.

use std::time::Duration;

use evenkeel_ordered::{Dropped, Sequence};
use evenkeel_wal::{Log, LogError};

use super::Inner;

/// How often a log that failed is tried again.
const MEND_EVERY: Duration = Duration::from_secs(1);

impl Inner {
    /// The log cannot be written: nothing that was not written may reach a duplicate, so all of
    /// them are dropped. They come back for reads; writes are refused until the log is mended, and
    /// another process may lead.
    pub(super) fn fail(&mut self, error: &LogError) {
        self.history.rewind(Sequence(self.log.discard()));
        self.forget_deadlines();
        if self.failure.is_some() {
            return;
        }
        let failure = format!("the log cannot be written: {error}");
        tracing::error!(service = self.config.name, %failure, "no more writes");
        if let Some(leadership) = &self.leadership {
            leadership.give_up(&failure);
        }
        self.failure = Some(failure);
        self.mend_at = self.now + MEND_EVERY;
        for server in 0..self.servers.len() {
            self.drop_server(server, Dropped::Failed);
        }
    }

    /// Writes to the log again if that can be done by now. A layout that was taken meanwhile it
    /// does not know yet.
    pub(super) fn mend(&mut self) {
        self.mend_at = self.now + MEND_EVERY;
        let version = self.layout.version();
        let layout = |log: &mut Log| log.begin_layout(version).and_then(|()| log.commit());
        let mended = self.log.mend();
        match mended.and_then(|()| if version > 1 { layout(&mut self.log) } else { Ok(()) }) {
            Ok(()) => {
                self.failure = None;
                tracing::info!(service = self.config.name, "the log can be written again");
                if let Some(leadership) = &self.leadership {
                    leadership.regain();
                }
            }
            Err(error) => {
                self.log.discard();
                self.failure = Some(format!("the log cannot be written: {error}"));
            }
        }
    }
}
