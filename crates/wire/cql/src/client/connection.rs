//! One connection that requests share, and the task that reads and writes it.
//!
//! Whoever asks puts the request into the table of streams and wakes the task; the task runs when
//! everybody who was ready has run, and writes all of their requests at once. An answer's body is
//! a slice of what was read.
//!
//! **What was sent** is known to the byte: every request remembers the number of its first byte
//! (in v5: of its segment), and the connection how many of its bytes the socket has taken. When it
//! ends, a request whose first byte is not among them has not been seen by anybody.
//!
//! **A silent node** is told from an idle one by asking it (`OPTIONS`, which a node answers without
//! any thread but the connection's): after [`NodeLimits::heartbeat`] without a byte from it, be
//! requests in flight or not, and it has [`NodeLimits::silence_max`] for any byte at all. A slow
//! request does not break a connection; a node that is paused for longer does.

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::{Envelope, Flags, Opcode};
use bytes::Bytes;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::error::{End, SendError, SendErrorKind};
use super::ledger::Ledger;
use super::streams::{Arrived, Found, GivenUp, Outgoing, Streams};
use super::wire::Wire;

/// The stream of heartbeats; no request has it.
const HEARTBEAT: i16 = i16::MAX;
/// What is encoded before some of it must be written: bodies wait uncopied.
const OUTPUT_BYTES: usize = 64 << 10;

/// Who hands out a connection's room: its pool.
pub(super) trait Owner: fmt::Debug {
    /// The connection may have room again.
    fn freed(self: Rc<Self>);

    /// The connection has ended; nothing is on it any more.
    fn ended(self: Rc<Self>, link: &Rc<Link>);
}

/// A connection as those see it who use it.
#[derive(Debug)]
pub(super) struct Link {
    ledger: Rc<Ledger>,
    owner: Weak<dyn Owner>,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    streams: Streams,
    /// Bytes that the socket has taken.
    written: u64,
    driver: Option<Waker>,
    end: Option<End>,
    is_retired: bool,
    /// The task has ended and settled what it counted.
    is_over: bool,
    used_at: Instant,
}

impl Link {
    /// Starts the task of a connection that can be used.
    pub(super) fn start(ledger: &Rc<Ledger>, owner: Weak<dyn Owner>, wire: Wire) -> Rc<Self> {
        let state = State {
            streams: Streams::default(),
            written: 0,
            driver: None,
            end: None,
            is_retired: false,
            is_over: false,
            used_at: Instant::now(),
        };
        let (ledger, state) = (Rc::clone(ledger), RefCell::new(state));
        let link = Rc::new(Self { ledger, owner, state });
        tokio::task::spawn_local(drive(Rc::clone(&link), wire));
        link
    }

    /// Further requests that it takes.
    pub(super) fn room(&self) -> usize {
        let state = self.state.borrow();
        if state.end.is_some() || state.is_retired {
            return 0;
        }
        self.ledger.streams_max().saturating_sub(state.streams.taken())
    }

    /// Whether it can be closed without anybody noticing.
    pub(super) fn is_unused(&self) -> bool {
        self.state.borrow().streams.taken() == 0
    }

    /// When a request was last put on it.
    pub(super) fn used_at(&self) -> Instant {
        self.state.borrow().used_at
    }

    /// Takes a request, which leaves when the task runs next.
    ///
    /// # Panics
    /// Without [`room`](Self::room).
    pub(super) fn submit(self: &Rc<Self>, request: Outgoing) -> Awaiting {
        assert!(self.room() > 0, "a connection is asked for room first");
        let mut state = self.state.borrow_mut();
        let stream = state.streams.take(request);
        state.used_at = Instant::now();
        state.wake();
        self.ledger.began();
        Awaiting { link: Rc::clone(self), stream: Some(stream) }
    }

    /// Ends now; what is in flight fails.
    pub(super) fn close(&self, why: &str) {
        self.end(&mut self.state.borrow_mut(), || End::new(SendErrorKind::Reset, why));
    }

    /// From here on no byte is written. The first reason holds.
    fn end(&self, state: &mut State, why: impl FnOnce() -> End) {
        if state.end.is_none() {
            state.end = Some(why());
            self.ledger.closed();
            if let Some(driver) = &state.driver {
                driver.wake_by_ref();
            }
        }
    }

    /// A retired connection on which nobody waits is of no use.
    fn end_if_spent(&self, state: &mut State) {
        if state.is_retired && state.streams.taken() == state.streams.orphans() {
            self.end(state, || End::new(SendErrorKind::Reset, "the connection was replaced"));
        }
    }

    fn give_up(&self, stream: i16) {
        let mut state = self.state.borrow_mut();
        let is_orphan = state.streams.give_up(stream) == GivenUp::Orphaned;
        if is_orphan && !state.is_over {
            self.ledger.orphaned();
            if state.streams.orphans() >= self.ledger.limits().orphans_max && !state.is_retired {
                state.is_retired = true;
                self.ledger.count(|counts| counts.retired += 1);
            }
        }
        self.end_if_spent(&mut state);
        drop(state);
        self.freed();
    }

    fn deliver(&self, answer: Envelope) -> Result<(), End> {
        let answer = self.ledger.take_report(answer)?;
        let mut state = self.state.borrow_mut();
        let orphans = state.streams.orphans();
        let (stream, opcode) = (answer.envelope.stream, answer.envelope.opcode);
        match state.streams.deliver(answer) {
            Ok(Some(waker)) => waker.wake(),
            Ok(None) => {}
            Err(_) => {
                let why = format!("{opcode} on stream {stream}, where nothing was asked");
                return Err(End::new(SendErrorKind::Protocol, why));
            }
        }
        if state.streams.orphans() < orphans {
            self.ledger.adopted(1);
            drop(state);
            self.freed();
        }
        Ok(())
    }

    /// A stream may be free.
    fn freed(&self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.freed();
        }
    }

    fn ended(self: &Rc<Self>, end: End) {
        let mut state = self.state.borrow_mut();
        self.end(&mut state, || end);
        state.is_over = true;
        self.ledger.adopted(state.streams.orphans());
        state.streams.wake_all();
        drop(state);
        if let Some(owner) = self.owner.upgrade() {
            owner.ended(self);
        }
    }
}

impl State {
    fn wake(&self) {
        if let Some(driver) = &self.driver {
            driver.wake_by_ref();
        }
    }
}

/// Waits for one answer. Dropped, it gives the request up: one that has not left never will.
#[derive(Debug)]
pub(super) struct Awaiting {
    link: Rc<Link>,
    stream: Option<i16>,
}

impl Future for Awaiting {
    type Output = Result<Arrived, SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let stream = self.stream.expect("a future that was ready is not polled again");
        let mut state = self.link.state.borrow_mut();
        if let Found::Answer(answer) = state.streams.fetch(stream, context.waker()) {
            self.link.end_if_spent(&mut state);
            drop(state);
            self.link.ledger.finished();
            self.link.freed();
            self.stream = None;
            return Poll::Ready(Ok(answer));
        }
        let Some(end) = state.end.clone() else { return Poll::Pending };
        let was_sent = state.streams.was_sent(stream, state.written);
        drop(state);
        let error = end.at(self.link.ledger.address());
        Poll::Ready(Err(if was_sent { error.sent() } else { error }))
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        if let Some(stream) = self.stream {
            self.link.ledger.finished();
            self.link.give_up(stream);
        }
    }
}

/// Reads and writes until the connection ends, and tells everybody.
async fn drive(link: Rc<Link>, wire: Wire) {
    let limits = link.ledger.limits();
    let eighth = limits.heartbeat.min(limits.silence_max).min(limits.idle) / 8;
    let mut look = tokio::time::interval(eighth.max(Duration::from_millis(1)));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let heard_at = Instant::now();
    let mut driver = Driver { link, wire, encoded: 0, look, heard_at, asked_at: None };
    let ended = std::future::poll_fn(|context| driver.poll(context)).await;
    if ended.kind != SendErrorKind::Reset || !driver.link.is_unused() {
        let address = driver.link.ledger.address();
        tracing::debug!(%address, why = &*ended.why, "a connection to a node ended");
    }
    driver.link.ended(ended);
}

struct Driver {
    link: Rc<Link>,
    wire: Wire,
    /// Bytes that were given to the wire.
    encoded: u64,
    look: Interval,
    /// When the last byte came from the node.
    heard_at: Instant,
    /// When it was asked for one.
    asked_at: Option<Instant>,
}

impl Driver {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        match self.turn(context) {
            Ok(()) => Poll::Pending,
            Err(end) => Poll::Ready(end),
        }
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Result<(), End> {
        while self.look.poll_tick(context).is_ready() {
            self.look_around()?;
        }
        loop {
            {
                let mut state = self.link.state.borrow_mut();
                if let Some(end) = &state.end {
                    return Err(end.clone());
                }
                if !state.driver.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    state.driver = Some(context.waker().clone());
                }
            }
            self.write(context)?;
            match self.wire.poll_read(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(came) => came?,
            }
            self.heard_at = Instant::now();
            self.asked_at = None;
            while let Some(answer) = self.wire.decode()? {
                if answer.stream != HEARTBEAT && answer.opcode != Opcode::Event {
                    self.link.deliver(answer)?;
                }
            }
        }
    }

    /// Writes what was asked since, as far as the socket takes it.
    fn write(&mut self, context: &mut Context<'_>) -> Result<(), End> {
        loop {
            self.encode();
            if self.wire.is_written() {
                return self.wire.poll_flush(context);
            }
            match self.wire.poll_write(context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(count) => self.link.state.borrow_mut().written += count? as u64,
            }
        }
    }

    fn encode(&mut self) {
        let mut state = self.link.state.borrow_mut();
        while self.wire.unwritten() < OUTPUT_BYTES && state.streams.is_queued() {
            while let Some(body_bytes) = state.streams.first_body_bytes()
                && self.wire.has_room_for(body_bytes)
                && let Some((stream, request)) = state.streams.next(self.encoded)
            {
                self.wire.add(stream, request);
            }
            self.encoded += self.wire.encode();
        }
    }

    /// Asks a node that says nothing, gives up one that does not answer, and ends what is idle.
    fn look_around(&mut self) -> Result<(), End> {
        let now = Instant::now();
        let limits = self.link.ledger.limits();
        let is_unused = self.link.is_unused();
        if is_unused && now - self.link.used_at() >= limits.idle {
            return Err(End::new(SendErrorKind::Reset, "the connection was not used any more"));
        }
        match self.asked_at {
            Some(asked_at) if now - asked_at >= limits.silence_max => {
                let silent = now - self.heard_at;
                let why = format!("not a byte for {silent:.1?}, not even to a heartbeat");
                Err(End::new(SendErrorKind::Silent, why))
            }
            None if now - self.heard_at >= limits.heartbeat => {
                self.asked_at = Some(now);
                self.link.ledger.count(|counts| counts.heartbeats += 1);
                let (flags, body) = (Flags::NONE, Bytes::new());
                self.wire.add(HEARTBEAT, Outgoing { opcode: Opcode::Options, flags, body });
                self.encoded += self.wire.encode();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
