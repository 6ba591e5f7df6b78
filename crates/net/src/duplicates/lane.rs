//! One connection to one duplicate: what is sent is answered in the same order.
//!
//! Bytes wait in two steps. What the engine appends is *pending* until the log has it
//! ([`LaneState::release`]), then it is *out* and the lane's task writes it. So nothing reaches a
//! duplicate that a restart would not know of.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use evenkeel_core::request::ordered::{Dropped, Hash, Lane, Sequence};
use tokio::io::{AsyncRead, AsyncWrite};

use super::engine::{Engine, Pop};
use super::inbox::Inbox;
use crate::resp::reply::{ReplyScanner, strip_attributes};

/// What an answer will be the answer to.
#[derive(Debug)]
pub(super) enum Owed {
    /// A client's access, plain.
    Access { call: usize },
    /// A client's writes between MULTI and EXEC: `before` answers come first (OK, QUEUED).
    /// `refusal` is the first error among them: EXEC will only say that there was one.
    Group { call: usize, before: u32, is_single: bool, refusal: Option<Box<[u8]>> },
    /// A write of the log; `before` as above.
    Replayed { write: Option<Sequence>, before: u32, refusal: Option<Box<[u8]>> },
    /// A write of ours to the stream of a partition that a shard moves to or from; `before` as
    /// above. Of a key (`is_key`) nothing but success will do.
    Moved { write: Sequence, before: u32, refusal: Option<Box<[u8]>>, is_key: bool },
    /// The members that an SPOP is to take.
    Draw { pop: Box<Pop> },
    /// The watermark was written.
    Mark { watermark: Sequence },
    /// A key for a server that is being filled.
    Dump { copy: Copy },
    /// When that key expires; `dump` is what came for it.
    Expiry { copy: Copy, dump: Option<Box<[u8]>> },
    /// A key (then nothing but OK will do) or a held write was given to a server that is being
    /// filled.
    Given { is_key: bool },
}

impl Owed {
    /// Whether this answer is one of those that come before the last one of a group.
    pub(super) fn is_before_the_last(&mut self, reply: &[u8]) -> bool {
        let (Self::Group { before, refusal, .. }
        | Self::Replayed { before, refusal, .. }
        | Self::Moved { before, refusal, .. }) = self
        else {
            return false;
        };
        if *before == 0 {
            return false;
        }
        *before -= 1; // OK, QUEUED, or why EXEC will be an error
        if reply.first() == Some(&b'-') && refusal.is_none() {
            *refusal = Some(reply.into());
        }
        true
    }

    /// The first error before the last answer of a group.
    pub(super) fn refusal(&self) -> Option<&[u8]> {
        match self {
            Self::Group { refusal, .. }
            | Self::Replayed { refusal, .. }
            | Self::Moved { refusal, .. } => refusal.as_deref(),
            _ => None,
        }
    }
}

/// Whom a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joiner {
    /// A server that is being filled, and its connection then: a later one knows nothing of it.
    Server(usize, u64),
    /// The log, in this pass.
    Log(u64),
    /// The partition that a shard moves to, in the move of this number.
    Move(u64),
}

/// One key on its way from a donor to a joiner.
#[derive(Debug, Clone)]
pub(super) struct Copy {
    pub(super) to: Joiner,
    pub(super) key: Box<[u8]>,
    pub(super) hash: Hash,
}

/// What the engine sees of a lane.
#[derive(Debug, Default)]
pub(super) struct LaneState {
    /// Not yet in the log.
    pub(super) pending: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    pub(super) owed: VecDeque<Owed>,
    waker: Option<Waker>,
    pub(super) is_open: bool,
    /// Answers that have come.
    pub(super) answered: u64,
}

impl LaneState {
    /// The log has what is pending: it may be written.
    pub(super) fn release(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        if self.out.is_empty() {
            std::mem::swap(&mut self.out, &mut self.pending);
        } else {
            self.out.append(&mut self.pending);
        }
        self.wake();
    }

    /// Nothing is sent any more; what was owed is returned.
    pub(super) fn close(&mut self) -> VecDeque<Owed> {
        self.is_open = false;
        self.pending.clear();
        self.out.clear();
        self.written = 0;
        self.wake();
        std::mem::take(&mut self.owed)
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.pending.len() + self.out.len() - self.written
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    fn poll_write(
        &mut self,
        mut stream: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
    ) -> io::Result<()> {
        while self.written < self.out.len() {
            match stream.as_mut().poll_write(context, &self.out[self.written..]) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }
}

/// Drives the connection until it breaks or is dropped by the engine. `Some` says how it broke.
pub(super) async fn drive(
    engine: Rc<Engine>,
    server: usize,
    connection: u64,
    lane: Lane,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Option<Dropped> {
    let (mut inbox, mut scanner) = (Inbox::default(), ReplyScanner::default());
    std::future::poll_fn(move |context| {
        loop {
            let mut inner = engine.borrow();
            let Some(state) = inner.lane(server, connection, lane) else {
                return Poll::Ready(None);
            };
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                state.waker = Some(context.waker().clone());
            }
            if state.poll_write(Pin::new(&mut stream), context).is_err() {
                return Poll::Ready(Some(Dropped::Lost));
            }
            drop(inner);
            match inbox.poll_read(Pin::new(&mut stream), context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Some(Dropped::Lost)),
                Poll::Ready(Ok(_)) => {}
            }
            let mut inner = engine.borrow();
            inner.read_clock();
            loop {
                match scanner.scan(inbox.filled()) {
                    Ok(None) => break,
                    Ok(Some(length)) => {
                        // What it says beside its answer is for nobody who did not ask.
                        let mut reply = &inbox.filled()[scanner.body()];
                        let mut plain = Vec::new();
                        if scanner.has_nested_attributes() {
                            strip_attributes(reply, &mut plain);
                            reply = &plain;
                        }
                        if let Err(why) = inner.answered(server, connection, lane, reply) {
                            return Poll::Ready(why);
                        }
                        inbox.consume(length);
                    }
                    Err(error) => {
                        tracing::warn!(server, %error, "a duplicate does not speak RESP");
                        return Poll::Ready(Some(Dropped::Failed));
                    }
                }
            }
        }
    })
    .await
}
