//! What a replica tells of a request on its way: that it waits there for a slot.
//!
//! Whoever hears it (a socket of datagrams, say) and the request's own task are of one thread. It
//! is told at most once, and may be told when nobody waits any more.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use evenkeel_core::Feedback;

/// A place for the notice of one attempt.
#[derive(Debug)]
pub struct Notice {
    report: Cell<Option<Feedback>>,
    /// Of the task that waits for the attempt.
    waker: RefCell<Waker>,
}

impl Default for Notice {
    fn default() -> Self {
        Self { report: Cell::default(), waker: RefCell::new(Waker::noop().clone()) }
    }
}

impl Notice {
    /// The attempt waits at its replica, which reports this.
    pub fn tell(&self, report: Feedback) {
        self.report.set(Some(report));
        self.waker.borrow().wake_by_ref();
    }

    /// What was told; until then this task is woken when it is.
    pub(super) fn take(&self, waker: &Waker) -> Option<Feedback> {
        self.waker.borrow_mut().clone_from(waker);
        self.report.take()
    }
}
