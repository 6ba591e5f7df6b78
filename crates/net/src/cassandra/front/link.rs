//! What a worker and one of its connections tell each other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Waker};

use bytes::Bytes;

/// Events that may wait for a client; one that has more takes nothing, and is closed.
const EVENTS_MAX: usize = 1_024;

/// What a worker tells a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Order {
    /// Serve.
    Serve,
    /// Answer what is in flight, take nothing further.
    Drain,
    /// Close now.
    Close,
}

/// What a worker and one of its connections tell each other.
#[derive(Debug)]
pub(super) struct Link {
    order: Cell<Order>,
    /// Whether everything is said that there is to say; the client may not have heard it yet.
    is_done: Cell<bool>,
    /// Whether the client has asked for changes of the schema.
    wants_schema: Cell<bool>,
    events: RefCell<VecDeque<Bytes>>,
    waker: RefCell<Option<Waker>>,
}

impl Link {
    pub(super) fn new() -> Self {
        let order = Cell::new(Order::Serve);
        let (is_done, wants_schema) = (Cell::new(false), Cell::new(false));
        Self { order, is_done, wants_schema, events: RefCell::default(), waker: RefCell::default() }
    }

    pub(super) fn order(&self) -> Order {
        self.order.get()
    }

    pub(super) fn done(&self) {
        self.is_done.set(true);
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done.get()
    }

    pub(super) fn tell(&self, order: Order) {
        self.order.set(self.order.get().max(order));
        self.wake();
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
            return self.tell(Order::Close); // rather than to leave one out in silence
        }
        self.events.borrow_mut().push_back(event.clone());
        self.wake();
    }

    /// Events were lost on the way here: a client that waits for them is to begin anew, when what
    /// it has asked is answered.
    pub(super) fn miss(&self) {
        if self.wants_schema.get() {
            self.tell(Order::Drain);
        }
    }

    pub(super) fn take_event(&self) -> Option<Bytes> {
        self.events.borrow_mut().pop_front()
    }

    /// Who is woken by what is told.
    pub(super) fn listen(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}
