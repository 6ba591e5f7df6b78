//! One connection as those see it who pass on what happens in the cluster.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;

use evenkeel_runtime::accept::{Link, Order};

/// Events that may wait for a client; one that has more takes nothing, and is closed.
const EVENTS_MAX: usize = 1_024;

/// What a worker and one of its connections tell each other of the schema.
#[derive(Debug)]
pub(super) struct Subscriber {
    link: Rc<Link>,
    /// Whether the client has asked for changes of the schema.
    wants_schema: Cell<bool>,
    events: RefCell<VecDeque<Bytes>>,
}

impl Subscriber {
    pub(super) fn new(link: Rc<Link>) -> Self {
        Self { link, wants_schema: Cell::new(false), events: RefCell::default() }
    }

    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    pub(super) fn wants_schema(&self) -> bool {
        self.wants_schema.get()
    }

    pub(super) fn want_schema(&self) {
        self.wants_schema.set(true);
    }

    /// Hands over the body of an event.
    pub(super) fn push(&self, event: &Bytes) {
        if !self.wants_schema.get() {
            return;
        }
        if self.events.borrow().len() >= EVENTS_MAX {
            return self.link.tell(Order::Close); // rather than to leave one out in silence
        }
        self.events.borrow_mut().push_back(event.clone());
        self.link.wake();
    }

    /// Events were lost on the way here: a client that waits for them is to begin anew, when what
    /// it has asked is answered.
    pub(super) fn miss(&self) {
        if self.wants_schema.get() {
            self.link.tell(Order::Drain);
        }
    }

    pub(super) fn take_event(&self) -> Option<Bytes> {
        self.events.borrow_mut().pop_front()
    }
}
