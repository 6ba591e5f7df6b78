//! What is known of a client's connection beside its commands: for `CLIENT LIST`, and which answers
//! it wants (`CLIENT REPLY`).

use std::collections::BTreeSet;

use evenkeel_core::Instant;

/// What is known of a connection beside its commands.
#[derive(Debug)]
pub(super) struct About {
    pub(super) since: Instant,
    pub(super) said_at: Instant,
    pub(super) command: &'static str,
    /// Of its last command.
    pub(super) bytes: usize,
    pub(super) address: String,
    pub(super) local: String,
    pub(super) lib_name: String,
    pub(super) lib_version: String,
    pub(super) replies: Replies,
    /// Slots whose answers it does not want.
    muted: BTreeSet<u64>,
}

/// `CLIENT REPLY`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replies {
    On,
    Off,
    SkipNext,
}

impl About {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            since: now,
            said_at: now,
            command: "NULL",
            bytes: 0,
            address: String::new(),
            local: String::new(),
            lib_name: String::new(),
            lib_version: String::new(),
            replies: Replies::On,
            muted: BTreeSet::new(),
        }
    }

    pub(super) const fn said(&mut self, command: &'static str, bytes: usize, now: Instant) {
        (self.command, self.bytes, self.said_at) = (command, bytes, now);
    }

    /// Whether the next answer is not wanted; it is no answer but a message, and sent.
    pub(super) fn passes_over(&mut self) -> bool {
        let is_off = self.replies != Replies::On;
        if self.replies == Replies::SkipNext {
            self.replies = Replies::On;
        }
        is_off
    }

    /// The answer that goes to this slot is the next one.
    #[inline]
    pub(super) fn mute(&mut self, slot: u64) {
        if self.replies != Replies::On {
            self.muted.insert(slot);
            if self.replies == Replies::SkipNext {
                self.replies = Replies::On;
            }
        }
    }

    /// The slot was given away in vain.
    pub(super) fn take_back(&mut self, slot: u64) {
        if self.muted.remove(&slot) && self.replies == Replies::On {
            self.replies = Replies::SkipNext;
        }
    }

    /// Whether nobody wants the answer of this slot, which is asked once.
    #[inline]
    pub(super) fn is_mute(&mut self, slot: u64) -> bool {
        !self.muted.is_empty() && self.muted.remove(&slot)
    }

    /// What `RESET` makes of it.
    pub(super) fn reset(&mut self) {
        self.replies = Replies::On;
    }
}
