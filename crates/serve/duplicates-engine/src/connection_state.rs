//! What the engine sees of a connection: bytes for a duplicate, and the answers it owes.
//!
//! Bytes wait in two steps. What the engine appends is *pending* until the log has it
//! ([`ConnectionState::release`]), then it is *out* and the connection's task writes it. So nothing
//! reaches a duplicate that a restart would not know of.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;

use super::types::Owed;

/// What the engine sees of a connection.
#[derive(Debug, Default)]
pub struct ConnectionState {
    /// Not yet in the log.
    pub(crate) pending: Vec<u8>,
    out: Vec<u8>,
    written: usize,
    pub(crate) owed: VecDeque<Owed>,
    /// What calls were answered whose watermark is not answered yet, where the log is in memory.
    pub(crate) unmarked: VecDeque<(usize, Vec<u8>)>,
    /// It may have been emptied: what has come since is not believed yet.
    pub(crate) is_doubted: bool,
    /// It was not: what is held is told, one after the other.
    pub(crate) is_signed: bool,
    pub(crate) held: VecDeque<(Owed, Vec<u8>)>,
    waker: Option<Waker>,
    pub(crate) is_open: bool,
    /// Answers that have come.
    pub answered: u64,
}

impl ConnectionState {
    /// What is pending will be answered. Nobody answers on a connection that is closed: its server
    /// would owe that for ever.
    ///
    /// # Panics
    /// When it is closed.
    pub(crate) fn owe(&mut self, owed: Owed) {
        assert!(self.is_open, "nothing is sent to who was dropped");
        self.owed.push_back(owed);
    }

    /// What is owed, also where an answer has come that is not believed yet.
    pub(super) fn all_owed(&self) -> impl Iterator<Item = &Owed> {
        self.held.iter().map(|(owed, _)| owed).chain(&self.owed)
    }

    /// What the next answer will be the answer to.
    pub(super) fn next_owed(&mut self) -> Option<&mut Owed> {
        self.held.front_mut().map(|(owed, _)| owed).or(self.owed.front_mut())
    }

    /// Answers that will have come when all are there that are owed now.
    pub fn expected(&self) -> u64 {
        self.answered + (self.held.len() + self.owed.len()) as u64
    }

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

    /// All that would be written now, and what is pending.
    #[cfg(any(test, feature = "world"))]
    pub(super) fn take(&mut self) -> Vec<u8> {
        let out = std::mem::take(&mut self.out);
        [out, std::mem::take(&mut self.pending)].concat()
    }

    /// Nothing is sent any more; what was owed is returned.
    pub(super) fn close(&mut self) -> VecDeque<Owed> {
        self.is_open = false;
        self.pending.clear();
        self.out.clear();
        self.written = 0;
        self.wake();
        let unmarked = std::mem::take(&mut self.unmarked).into_iter();
        let unmarked = unmarked.map(|(call, _)| Owed::Access { call });
        let held = std::mem::take(&mut self.held).into_iter().map(|(owed, _)| owed);
        unmarked.chain(held).chain(std::mem::take(&mut self.owed)).collect()
    }

    /// Bytes that wait to be written.
    pub fn waiting_bytes(&self) -> usize {
        self.pending.len() + self.out.len() - self.written
    }

    /// Whoever drives the connection looks again.
    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Writes what may be written; whoever drives the connection is woken when there is more. True
    /// when some of it was taken and some was not.
    ///
    /// # Errors
    /// When the connection broke.
    pub fn poll_write(
        &mut self,
        mut stream: Pin<&mut impl AsyncWrite>,
        context: &mut Context<'_>,
    ) -> io::Result<bool> {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
        }
        let before = self.written;
        while self.written < self.out.len() {
            match stream.as_mut().poll_write(context, &self.out[self.written..]) {
                Poll::Pending => return Ok(self.written > before),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(false)
    }
}
