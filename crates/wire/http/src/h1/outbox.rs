//! What is to be written on a connection.
//!
//! `writev` with two short slices costs the kernel more than copying a few hundred bytes costs us,
//! while copying a large body costs more than `writev`; so the choice is made by size, per write.
//!
//! **A head waits for one turn of the others**: so a worker first reads what has come on all
//! connections, and then writes to all. Whoever it writes to is awake for the next write then. To
//! write at once after each read costs the kernel more than the second poll costs us: it wakes a
//! process that has gone to sleep between two writes. (To let the first head leave at once was
//! tried: it spares a connection that is alone two polls, and costs more CPU under load.)

use std::cell::RefCell;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use evenkeel_runtime::pipe::Pipe;
use evenkeel_runtime::stream::Stream;
use http::HeaderMap;
use http_body::Frame;
use tokio::io::AsyncWrite as _;

use super::decoder::BadBody;
use super::framing::Framing;
use crate::fields::write_line;
use crate::piece::Piece;

/// Up to this many bytes are copied together; more are written as slices.
const JOIN_BYTES_MAX: usize = 4096;
/// The longest memory that is kept for the next head.
const SPARE_BYTES_MAX: usize = 16 << 10;
/// Heads that may wait for their turn together without memory of their own being made.
const SPARES_MAX: usize = 64;

thread_local! {
    /// Memory for heads, passed from one connection of a thread to the next.
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

fn keep_spare(mut memory: Vec<u8>) {
    memory.clear();
    SPARES.with_borrow_mut(|spares| {
        if memory.capacity() <= SPARE_BYTES_MAX && spares.len() < SPARES_MAX {
            spares.push(memory);
        }
    });
}

/// What is to be written, in this order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Heads, sizes of chunks, short bodies.
    joined: Vec<u8>,
    piece: Bytes,
    after: &'static [u8],
    /// A piece instead of those.
    pipe: Option<Pipe>,
    /// Bytes of `joined` that were written.
    written: usize,
    must_flush: bool,
    turn: Turn,
    /// Whether anything was written since that was asked last.
    has_moved: bool,
}

/// Whether the others have had their turn since a head was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// No head is to be written.
    #[default]
    None,
    Owed,
    /// What is there is written before anybody looks for more, which may be an error.
    Had,
}

impl Outbox {
    /// Memory to write a head to.
    pub(super) fn memory() -> Vec<u8> {
        SPARES.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Takes a head.
    ///
    /// # Panics
    /// When something else is to be written before.
    pub(super) fn head(&mut self, head: Vec<u8>) {
        assert!(self.is_empty(), "a head is written by itself");
        self.joined = head;
        self.turn = Turn::Owed;
    }

    /// Ready when the others of this thread have had their turn; only then write.
    pub(super) fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.turn != Turn::Owed {
            return Poll::Ready(());
        }
        self.turn = Turn::Had;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn joined(&mut self) -> &mut Vec<u8> {
        if self.joined.is_empty() {
            self.joined = Self::memory();
        }
        &mut self.joined
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.has_no_bytes() && self.pipe.is_none()
    }

    const fn has_no_bytes(&self) -> bool {
        self.joined.is_empty() && self.piece.is_empty() && self.after.is_empty()
    }

    pub(super) const fn is_flushed(&self) -> bool {
        !self.must_flush
    }

    /// Whether anything was written since this was asked last.
    pub(super) fn has_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// Whether there is more than what may leave together with the next piece.
    pub(super) const fn is_under_way(&self) -> bool {
        let is_head_due = matches!(self.turn, Turn::Had);
        let is_piece_due = !self.piece.is_empty() || !self.after.is_empty() || self.pipe.is_some();
        is_head_due || self.written > 0 || is_piece_due
    }

    /// Takes what a body has next, or that it is over: whether that is all of it. Of a piece it is
    /// known whether another one follows.
    pub(super) fn take(
        &mut self,
        next: Option<Piece>,
        is_last: bool,
        framing: &mut Framing,
    ) -> Result<bool, WrongLength> {
        let next = match next {
            Some(Piece::Pipe(pipe)) => {
                self.pipe(pipe, framing)?;
                return Ok(*framing == Framing::Length(0));
            }
            Some(Piece::Frame(frame)) => Some(frame),
            None => None,
        };
        match next.map(Frame::into_data) {
            Some(Ok(data)) => {
                self.data(data, framing)?;
                Ok(is_last && *framing == Framing::Length(0))
            }
            end => {
                let trailers = end.and_then(|end| end.err()?.into_trailers().ok());
                match self.end(framing, trailers.as_ref()) {
                    true => Ok(true),
                    false => Err(WrongLength::TooLittle(BadBody::Incomplete)),
                }
            }
        }
    }

    /// Takes a piece of a body that this process does not see.
    fn pipe(&mut self, pipe: Pipe, framing: &mut Framing) -> Result<(), WrongLength> {
        assert!(self.piece.is_empty() && self.pipe.is_none(), "one piece at a time");
        let Framing::Length(left) = framing else { unreachable!("chunks are written here") };
        *left = left.checked_sub(pipe.len() as u64).ok_or(WrongLength::TooMuch)?;
        self.pipe = Some(pipe);
        Ok(())
    }

    /// Takes a piece of a body; nothing but a head may be to be written before.
    fn data(&mut self, piece: Bytes, framing: &mut Framing) -> Result<(), WrongLength> {
        assert!(self.piece.is_empty() && self.after.is_empty(), "one piece at a time");
        match framing {
            Framing::Length(left) => {
                *left = left.checked_sub(piece.len() as u64).ok_or(WrongLength::TooMuch)?;
            }
            Framing::UntilClose => {}
            Framing::Chunked { .. } if piece.is_empty() => return Ok(()), // it would be the end
            Framing::Chunked { .. } => {
                write!(self.joined(), "{:X}\r\n", piece.len()).expect("memory can be written");
                self.after = b"\r\n";
            }
        }
        if self.joined.len() + piece.len() + self.after.len() <= JOIN_BYTES_MAX {
            let after = std::mem::take(&mut self.after);
            self.joined().extend_from_slice(&piece);
            self.joined.extend_from_slice(after);
        } else {
            self.piece = piece;
        }
        Ok(())
    }

    /// Ends a body, with what may follow it. Whether it has as much as it was to have.
    fn end(&mut self, framing: &Framing, trailers: Option<&HeaderMap>) -> bool {
        let announced = match framing {
            Framing::Chunked { trailers } => trailers,
            Framing::Length(left) => return *left == 0,
            Framing::UntilClose => return true,
        };
        assert!(self.piece.is_empty() && self.after.is_empty(), "the pieces come before");
        self.joined().extend_from_slice(b"0\r\n");
        for (name, value) in trailers.into_iter().flatten() {
            if announced.contains(name) {
                write_line(&mut self.joined, name.as_str().as_bytes(), value.as_bytes());
            }
        }
        self.joined.extend_from_slice(b"\r\n");
        true
    }

    /// Writes all that is there.
    pub(super) fn poll_write(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        while !self.has_no_bytes() {
            let joined = &self.joined[self.written..];
            let count = if self.piece.is_empty() && self.after.is_empty() {
                ready!(stream.as_mut().poll_write(cx, joined))?
            } else {
                let slices = [joined, &self.piece[..], self.after].map(IoSlice::new);
                ready!(stream.as_mut().poll_write_vectored(cx, &slices))?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            (self.must_flush, self.has_moved) = (true, true);
            self.wrote(count);
        }
        while let Some(pipe) = &mut self.pipe {
            let socket = stream.tcp().expect("a pipe is taken for a socket");
            ready!(pipe.poll_drain(socket, cx))?;
            self.has_moved = true;
            self.pipe.take_if(|pipe| pipe.is_empty());
        }
        if self.must_flush {
            ready!(stream.poll_flush(cx))?;
            self.must_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn wrote(&mut self, count: usize) {
        let of_joined = count.min(self.joined.len() - self.written);
        self.written += of_joined;
        let of_piece = (count - of_joined).min(self.piece.len());
        bytes::Buf::advance(&mut self.piece, of_piece);
        self.after = &self.after[count - of_joined - of_piece..];
        if self.written == self.joined.len() && self.written > 0 {
            (self.written, self.turn) = (0, Turn::None);
            keep_spare(std::mem::take(&mut self.joined));
        }
    }
}

/// A body is not as long as it was to be.
#[derive(Debug, thiserror::Error)]
pub(super) enum WrongLength {
    #[error("the body has more bytes than its length says")]
    TooMuch,
    #[error(transparent)]
    TooLittle(BadBody),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_head_waits_for_one_turn_and_leaves_before_anybody_looks_for_more() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let cx = &mut Context::from_waker(&waker);
        let (near, _far) = tokio::io::duplex(64);
        let mut stream = Stream::Memory(near);
        let mut outbox = Outbox::default();
        for round in 1..=2 {
            let mut framing = Framing::Length(6);
            outbox.head(b"head\r\n".to_vec());
            assert!(!outbox.is_under_way(), "a piece of the body may leave with it");
            outbox.data(Bytes::from_static(b"bo"), &mut framing).unwrap();
            assert!(outbox.poll_turn(cx).is_pending());
            assert_eq!(wakes.0.load(Ordering::Relaxed), round, "its turn comes by itself");
            assert!(outbox.is_under_way());
            assert!(outbox.poll_turn(cx).is_ready());
            assert!(outbox.poll_write(&mut stream, cx).is_ready());
            outbox.data(Bytes::from_static(b"dy"), &mut framing).unwrap();
            assert!(!outbox.is_under_way(), "short pieces are joined");
            outbox.data(Bytes::from_static(b".."), &mut framing).unwrap();
            assert!(outbox.poll_turn(cx).is_ready(), "only heads wait");
            assert!(outbox.poll_write(&mut stream, cx).is_ready());
            assert!(outbox.is_empty());
        }
    }
}
