//! The connections of one dialect, and those who wait for room on them.
//!
//! A request goes to the connection with the most room. When there is none it waits, first come,
//! first served, and a further connection is opened, one at a time. Opening is not part of any
//! request: one that is given up leaves the opening to those who come after.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::Node;
use super::connection::{Awaiting, Link, Owner};
use super::dialect::Dialect;
use super::error::{SendError, SendErrorKind};
use super::handshake;
use super::ledger::Ledger;
use super::streams::{Arrived, Outgoing};

/// The connections of one dialect.
#[derive(Debug)]
pub(super) struct Pool {
    ledger: Rc<Ledger>,
    node: Weak<Node>,
    dialect: Dialect,
    links: RefCell<Vec<Rc<Link>>>,
    waiting: RefCell<VecDeque<Rc<Ticket>>>,
    is_opening: Cell<bool>,
}

impl Pool {
    pub(super) fn new(ledger: &Rc<Ledger>, node: Weak<Node>, dialect: &Dialect) -> Rc<Self> {
        Rc::new(Self {
            ledger: Rc::clone(ledger),
            node,
            dialect: dialect.clone(),
            links: RefCell::default(),
            waiting: RefCell::default(),
            is_opening: Cell::new(false),
        })
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn send(self: &Rc<Self>, request: Outgoing) -> Result<Arrived, SendError> {
        let awaiting = match self.place(request) {
            Ok(awaiting) => awaiting,
            Err(request) => self.queue(request)?.await?,
        };
        awaiting.await
    }

    /// Whether nothing would be lost without it.
    pub(super) fn is_empty(&self) -> bool {
        self.links.borrow().is_empty() && self.waiting.borrow().is_empty() && !self.is_opening.get()
    }

    /// The unused connection that has been so for longest.
    pub(super) fn least_used(&self) -> Option<(Instant, Rc<Link>)> {
        let links = self.links.borrow();
        let unused = links.iter().filter(|link| link.is_unused());
        let least = unused.min_by_key(|link| link.used_at())?;
        Some((least.used_at(), Rc::clone(least)))
    }

    /// Closes all connections.
    pub(super) fn close(&self, why: &str) {
        self.links.borrow().iter().for_each(|link| link.close(why));
    }

    /// Gives room to those who wait.
    fn serve_waiting(self: &Rc<Self>) {
        while !self.waiting.borrow().is_empty() {
            let Some(link) = self.roomiest() else { return self.open_for_waiting() };
            let first = self.waiting.borrow_mut().pop_front();
            if let Some(ticket) = first {
                ticket.place(&link);
            }
        }
    }

    fn place(&self, request: Outgoing) -> Result<Awaiting, Outgoing> {
        if !self.waiting.borrow().is_empty() {
            return Err(request);
        }
        match self.roomiest() {
            Some(link) => Ok(link.submit(request)),
            None => Err(request),
        }
    }

    fn queue(self: &Rc<Self>, request: Outgoing) -> Result<Queueing, SendError> {
        let waiting = self.waiting.borrow().len();
        if waiting >= self.ledger.limits().waiting_max.max(1) {
            return Err(self.busy(&format!("{waiting} requests wait for a stream already")));
        }
        let ticket = Rc::new(Ticket::new(request));
        let queueing = Queueing { pool: Rc::clone(self), ticket: Rc::clone(&ticket) };
        self.waiting.borrow_mut().push_back(ticket);
        self.open_for_waiting();
        Ok(queueing)
    }

    fn busy(&self, why: &str) -> SendError {
        SendError::unsent(SendErrorKind::Busy, self.ledger.address(), why)
    }

    fn roomiest(&self) -> Option<Rc<Link>> {
        let links = self.links.borrow();
        let best = links.iter().max_by_key(|link| link.room())?;
        (best.room() > 0).then(|| Rc::clone(best))
    }

    /// Opens a connection if one may be; without any hope those who wait are told.
    fn open_for_waiting(self: &Rc<Self>) {
        let open = self.links.borrow().len();
        if self.is_opening.get() || open >= self.ledger.limits().connections_max.max(1) {
            return;
        }
        if self.ledger.reserve() || self.node.upgrade().is_some_and(|node| node.make_room()) {
            self.is_opening.set(true);
            tokio::task::spawn_local(Rc::clone(self).open());
        } else if open == 0 {
            let others = self.ledger.connections();
            let why = format!("all {others} connections are used by clients that speak otherwise");
            self.fail_waiting(&self.busy(&why));
        }
    }

    async fn open(self: Rc<Self>) {
        let opened = handshake::open(&self.ledger, &self.dialect).await;
        self.is_opening.set(false);
        match opened {
            Ok(wire) => {
                self.ledger.count(|counts| counts.opened += 1);
                let owner: Rc<dyn Owner> = Rc::clone(&self) as _;
                let link = Link::start(&self.ledger, Rc::downgrade(&owner), wire);
                if self.node.strong_count() == 0 {
                    link.close("nobody uses the node any more");
                }
                self.links.borrow_mut().push(link);
                self.serve_waiting();
            }
            Err(error) => {
                self.ledger.closed();
                self.ledger.count(|counts| counts.failed += 1);
                if self.links.borrow().is_empty() {
                    self.fail_waiting(&error);
                }
                self.leave_if_empty();
            }
        }
    }

    fn fail_waiting(&self, error: &SendError) {
        for ticket in self.waiting.take() {
            ticket.settle(TicketState::Failed(error.clone()));
        }
    }

    fn leave_if_empty(&self) {
        if self.is_empty()
            && let Some(node) = self.node.upgrade()
        {
            node.forget_pool(&self.dialect);
        }
    }
}

impl Owner for Pool {
    fn freed(self: Rc<Self>) {
        self.serve_waiting();
    }

    fn ended(self: Rc<Self>, link: &Rc<Link>) {
        self.links.borrow_mut().retain(|other| !Rc::ptr_eq(other, link));
        self.serve_waiting();
        self.leave_if_empty();
    }
}

/// One request that waits for room.
#[derive(Debug)]
struct Ticket {
    state: RefCell<TicketState>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Debug)]
enum TicketState {
    Waiting(Outgoing),
    Placed(Awaiting),
    Failed(SendError),
    Fetched,
}

impl Ticket {
    fn new(request: Outgoing) -> Self {
        let state = RefCell::new(TicketState::Waiting(request));
        Self { state, waker: RefCell::default() }
    }

    fn place(&self, link: &Rc<Link>) {
        let state = self.state.replace(TicketState::Fetched);
        if let TicketState::Waiting(request) = state {
            self.settle(TicketState::Placed(link.submit(request)));
        }
    }

    fn settle(&self, state: TicketState) {
        self.state.replace(state);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Waits for room.
#[derive(Debug)]
struct Queueing {
    pool: Rc<Pool>,
    ticket: Rc<Ticket>,
}

impl Future for Queueing {
    type Output = Result<Awaiting, SendError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.ticket.state.borrow_mut();
        match std::mem::replace(&mut *state, TicketState::Fetched) {
            TicketState::Placed(awaiting) => Poll::Ready(Ok(awaiting)),
            TicketState::Failed(error) => Poll::Ready(Err(error)),
            waiting => {
                *state = waiting;
                self.ticket.waker.replace(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Queueing {
    fn drop(&mut self) {
        self.pool.waiting.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.ticket));
    }
}
