//! One connection's entry: it says its phase, the sweep and the drain tell it what to do.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

/// What a connection is doing, by which its time is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is learnt who the client is, or TLS is being agreed on.
    Handshake,
    /// Nothing has come from the client yet, or not all that must come before its first request.
    New,
    /// In the middle of a request's head.
    Reading,
    /// A request is being handled or answered; its time is for whoever handles it to limit.
    Serving,
    /// Between requests.
    Idle,
    /// The last answer is written; the client still sends.
    Leaving,
}

/// What a connection is told. It only becomes more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Serve.
    Serve,
    /// Serve, and tell the client to come back on another connection, if the protocol can.
    LastRequest,
    /// Answer what has been asked, take nothing further, and end.
    Drain,
    /// It is cut off: whoever serves it is dropped.
    Close,
}

/// What accepting and one connection tell each other. All on one thread.
#[derive(Debug)]
pub struct Link {
    ticks: Rc<Cell<u32>>,
    phase: Cell<Phase>,
    /// The tick in which its time began.
    since: Cell<u32>,
    /// The tick since which the client takes nothing of what there is to write.
    blocked_since: Cell<Option<u32>>,
    order: Cell<Order>,
    born: Instant,
    /// Whether it is old: the client is to come back on another connection.
    is_old: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Link {
    pub(super) fn new(ticks: Rc<Cell<u32>>, phase: Phase, order: Order) -> Self {
        let (phase, since) = (Cell::new(phase), Cell::new(ticks.get()));
        let (order, waker) = (Cell::new(order), RefCell::default());
        let (born, is_old, blocked_since) = (Instant::now(), Cell::new(false), Cell::new(None));
        Self { ticks, phase, since, blocked_since, order, born, is_old, waker }
    }

    /// The phase it said last.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Says its phase; the time of that begins now. Only a new client's time runs on, from when
    /// it was accepted until its first request is there.
    pub fn enter(&self, phase: Phase) {
        let came_from = self.phase.replace(phase);
        let runs_on = [(Phase::Handshake, Phase::New), (Phase::New, Phase::Reading)];
        if !runs_on.contains(&(came_from, phase)) {
            self.since.set(self.ticks.get());
        }
    }

    /// Says whether the client takes nothing of what there is to write. Say `false` with every
    /// byte that it took.
    pub fn write_blocked(&self, is_blocked: bool) {
        if !is_blocked {
            self.blocked_since.set(None);
        } else if self.blocked_since.get().is_none() {
            self.blocked_since.set(Some(self.ticks.get()));
        }
    }

    /// The order in force. Whoever serves the connection is polled when it changes.
    pub fn order(&self) -> Order {
        self.order.get()
    }

    /// Whether the client may go on asking here. Else it is told with the next answer to come back
    /// on another connection, if the protocol can; what it asks meanwhile is answered.
    pub fn takes_more(&self) -> bool {
        self.order.get() == Order::Serve && !self.is_old.get()
    }

    /// It is old: from now on it takes no more. Whoever serves the connection is polled.
    pub(super) fn retire(&self) {
        self.is_old.set(true);
        self.wake();
    }

    pub(super) fn born(&self) -> Instant {
        self.born
    }

    /// Waits for an order at least this urgent.
    pub async fn ordered(&self, order: Order) {
        std::future::poll_fn(|_| match self.order.get() >= order {
            true => Poll::Ready(()),
            false => Poll::Pending, // the connection's task is woken by every order
        })
        .await;
    }

    /// Gives an order, unless a more urgent one is in force.
    pub fn tell(&self, order: Order) {
        self.order.set(self.order.get().max(order));
        self.wake();
    }

    /// Lets whoever serves the connection be polled.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The order in force. A task has one waker for life, so the first one is kept.
    pub(super) fn listen(&self, context: &Context<'_>) -> Order {
        if self.waker.borrow().is_none() {
            *self.waker.borrow_mut() = Some(context.waker().clone());
        }
        self.order.get()
    }

    /// Ticks since its phase began.
    pub(super) fn age(&self) -> u32 {
        self.ticks.get().wrapping_sub(self.since.get())
    }

    /// Ticks since the client takes nothing.
    pub(super) fn blocked_age(&self) -> Option<u32> {
        self.blocked_since.get().map(|since| self.ticks.get().wrapping_sub(since))
    }

    /// Its time begins anew: ticks have become longer or shorter.
    pub(super) fn renew(&self) {
        self.since.set(self.ticks.get());
        self.blocked_since.set(self.blocked_since.get().map(|_| self.ticks.get()));
    }
}
