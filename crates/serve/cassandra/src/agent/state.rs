//! What both directions of one connection through an agent know of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use evenkeel_cql::Version;
use evenkeel_cql::codec::{Compression, Limits};
use tokio::sync::Notify;

use super::census::{Census, Residents};

/// What is agreed on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreed {
    pub(super) version: Version,
    pub(super) compression: Option<Compression>,
    /// Whether the client asked for reports.
    pub(super) wants_reports: bool,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Envelopes before `STARTUP`.
    Beginning,
    /// `STARTUP` went to the node: the client waits for its answer.
    Starting(Agreed),
    /// It was answered well.
    Started(Agreed),
    /// It is not understood: bytes pass, and that is all.
    Blind,
}

/// What both directions share.
pub(super) struct Session {
    pub(super) phase: Cell<Phase>,
    /// The phase has changed.
    pub(super) changed: Notify,
    pub(super) residents: RefCell<Residents>,
    /// An answer is on its way to the client.
    pub(super) is_writing: Cell<bool>,
    pub(super) limits: Limits,
}

impl Session {
    pub(super) fn new(census: &Rc<Census>, frame_bytes_max: usize) -> Self {
        Self {
            phase: Cell::new(Phase::Beginning),
            changed: Notify::new(),
            residents: RefCell::new(Residents::new(census)),
            is_writing: Cell::new(false),
            limits: Limits { envelope_bytes_max: frame_bytes_max },
        }
    }

    /// Whether the client waits for nothing, as far as its bytes are understood.
    pub(super) fn is_idle(&self) -> bool {
        let is_beginning = self.phase.get() == Phase::Beginning;
        let is_started = matches!(self.phase.get(), Phase::Started(_));
        is_beginning || is_started && self.residents.borrow().is_empty() && !self.is_writing.get()
    }

    pub(super) fn become_phase(&self, phase: Phase) {
        self.phase.set(phase);
        self.changed.notify_one();
    }

    /// From here on bytes pass that nobody looks at.
    pub(super) fn go_blind(&self) {
        if self.phase.get() != Phase::Blind {
            self.residents.borrow_mut().clear();
            self.become_phase(Phase::Blind);
        }
    }
}
