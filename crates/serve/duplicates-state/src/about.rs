//! What is known of a client's connection beside its commands: for `CLIENT LIST`, and which answers
//! it wants (`CLIENT REPLY`).

use std::collections::BTreeSet;

use evenkeel_core::Instant;

/// What is known of a connection beside its commands.
#[derive(Debug)]
pub struct About {
    /// It was opened then.
    pub since: Instant,
    /// Its last command came then.
    pub said_at: Instant,
    /// The name of that.
    pub command: &'static str,
    /// Its length.
    pub bytes: usize,
    /// From where it was opened; empty if that is not known.
    pub address: String,
    /// Where it arrived.
    pub local: String,
    /// `CLIENT SETINFO LIB-NAME`
    pub lib_name: String,
    /// `CLIENT SETINFO LIB-VER`
    pub lib_version: String,
    /// Which answers it wants.
    pub replies: Replies,
    /// Slots whose answers it does not want.
    muted: BTreeSet<u64>,
}

/// `CLIENT REPLY`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replies {
    /// All answers are wanted.
    On,
    /// None is.
    Off,
    /// The next one is not.
    SkipNext,
}

impl About {
    /// Of a connection that is opened now.
    pub fn new(now: Instant) -> Self {
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

    /// A command has come.
    pub const fn said(&mut self, command: &'static str, bytes: usize, now: Instant) {
        (self.command, self.bytes, self.said_at) = (command, bytes, now);
    }

    /// Whether the next answer is not wanted; it is no answer but a message, and sent.
    pub fn passes_over(&mut self) -> bool {
        let is_off = self.replies != Replies::On;
        if self.replies == Replies::SkipNext {
            self.replies = Replies::On;
        }
        is_off
    }

    /// The answer that goes to this slot is the next one.
    #[inline]
    pub fn mute(&mut self, slot: u64) {
        if self.replies != Replies::On {
            self.muted.insert(slot);
            if self.replies == Replies::SkipNext {
                self.replies = Replies::On;
            }
        }
    }

    /// The slot was given away in vain.
    pub fn take_back(&mut self, slot: u64) {
        if self.muted.remove(&slot) && self.replies == Replies::On {
            self.replies = Replies::SkipNext;
        }
    }

    /// Whether nobody wants the answer of this slot, which is asked once.
    #[inline]
    pub fn is_mute(&mut self, slot: u64) -> bool {
        !self.muted.is_empty() && self.muted.remove(&slot)
    }

    /// What `RESET` makes of it.
    pub fn reset(&mut self) {
        self.replies = Replies::On;
    }
}
