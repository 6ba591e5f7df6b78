//! What was read of a connection and not used yet.
//!
//! All connections of a thread read heads into the same memory, and only what came is copied out of
//! it: so an idle connection has no buffer, and one that waits for an answer has none either. Of a
//! long piece of a body the memory itself is passed on instead of a copy. It comes back when the
//! piece was written, and is still in the processor's cache at the next read.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use evenkeel_runtime::stream::Stream;
use tokio::io::{AsyncRead as _, ReadBuf};

/// What is read at once of a body: it comes in few pieces then. Each costs two system calls.
const PIECE_BYTES_MAX: usize = 128 << 10;
/// What is read at once of heads. A client may send many, which wait here.
const HEADS_BYTES_MAX: usize = 16 << 10;
/// What is read at once where a long body may follow a head, which is not to come here but by a
/// pipe. If it does not follow, the rest is another two system calls.
const BEGINNING_BYTES_MAX: usize = 4 << 10;
/// What fills one part of so many of the memory it was read into keeps it; less is copied.
const KEPT_PART: usize = 4;
/// Memories for bodies that a thread keeps for its next reads.
const SPARES_MAX: usize = 8;

/// Reads of a head that is not whole before other tasks have their turn.
pub(super) const FILLS_MAX: usize = 32;

type Memory = Box<[u8]>;

thread_local! {
    static HEADS: RefCell<Memory> = RefCell::new(vec![0; HEADS_BYTES_MAX].into());
    /// For bodies.
    static SPARES: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
}

fn memory() -> Memory {
    let spare = SPARES.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| vec![0; PIECE_BYTES_MAX].into())
}

fn keep_spare(memory: Memory) {
    // A piece may outlive what its thread keeps; its memory then just ends.
    let _ = SPARES.try_with(|spares| {
        let spares = &mut spares.borrow_mut();
        if spares.len() < SPARES_MAX {
            spares.push(memory);
        }
    });
}

/// What was read, in the memory it was read into.
struct Filled {
    memory: Memory,
    length: usize,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        &self.memory[..self.length]
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        keep_spare(std::mem::take(&mut self.memory));
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    Heads,
    /// The head before a body that is likely to be long.
    Beginning,
    Body,
}

/// What was read and not used yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Bytes,
    /// How much of it was searched for the end of a head already.
    searched: usize,
}

impl From<Bytes> for Inbox {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, ..Self::default() }
    }
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What is there, as one piece of memory that heads may be slices of.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether it is worth a look for the end of a head: what comes byte by byte is not read from
    /// its beginning each time. True at the first look, then if there is a new empty line.
    pub(super) fn may_end_a_head(&mut self) -> bool {
        let searched = std::mem::replace(&mut self.searched, self.bytes.len());
        let new = &self.bytes[searched.saturating_sub(3)..];
        let ends = |line: &[u8]| new.windows(line.len()).any(|window| window == line);
        searched == 0 || ends(b"\n\r\n") || ends(b"\n\n")
    }

    /// Takes the first so many bytes.
    ///
    /// # Panics
    /// When there are not as many.
    pub(super) fn take(&mut self, count: usize) -> Bytes {
        self.searched = 0;
        match count == self.bytes.len() {
            true => std::mem::take(&mut self.bytes), // it must not hold on to what was taken
            false => self.bytes.split_to(count),
        }
    }

    /// Reads what is there: the number of bytes, 0 at the end of the stream.
    pub(super) fn poll_fill(
        &mut self,
        stream: &mut Stream,
        reads: Reads,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        match reads {
            Reads::Heads => self.poll_heads(stream, HEADS_BYTES_MAX, cx),
            Reads::Beginning => self.poll_heads(stream, BEGINNING_BYTES_MAX, cx),
            Reads::Body => self.poll_body(stream, cx),
        }
    }

    fn poll_heads(
        &mut self,
        stream: &mut Stream,
        bytes_max: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        HEADS.with_borrow_mut(|memory| {
            let mut buffer = ReadBuf::new(&mut memory[..bytes_max]);
            ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
            self.append(buffer.filled());
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }

    fn poll_body(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut memory = memory();
        let mut buffer = ReadBuf::new(&mut memory);
        let read = Pin::new(stream).poll_read(cx, &mut buffer);
        let length = buffer.filled().len();
        if length >= PIECE_BYTES_MAX / KEPT_PART && self.bytes.is_empty() {
            self.bytes = Bytes::from_owner(Filled { memory, length });
        } else {
            self.append(&memory[..length]);
            keep_spare(memory);
        }
        ready!(read)?;
        Poll::Ready(Ok(length))
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.bytes.is_empty() {
            self.bytes = Bytes::copy_from_slice(bytes);
            return;
        }
        let before = std::mem::take(&mut self.bytes).try_into_mut();
        let mut all = before.unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        all.extend_from_slice(bytes);
        self.bytes = all.freeze();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWrite as _;

    use super::*;

    /// After which pieces of what comes a look is worth it.
    fn looks(pieces: &[&str]) -> Vec<bool> {
        let mut inbox = Inbox::default();
        let mut look = |piece: &&str| {
            inbox.append(piece.as_bytes());
            inbox.may_end_a_head()
        };
        pieces.iter().map(&mut look).collect()
    }

    #[test]
    fn a_head_is_looked_for_where_an_empty_line_is_new_and_at_first() {
        assert_eq!(
            looks(&["G", "E", "T", " / HTTP/1.1\r", "\n", "a: b"]),
            [true, false, false, false, false, false]
        );
        assert_eq!(looks(&["a: b", "\r", "\n", "\r", "\n"]), [true, false, false, false, true]);
        assert_eq!(looks(&["a: b\n", "\n"]), [true, true]);
        assert_eq!(looks(&["a: b\n", "\r", "x"]), [true, false, false]);
        assert_eq!(looks(&["a: b\r\n\r", "\nGET"]), [true, true]);
    }

    #[test]
    fn what_was_appended_is_there_whoever_holds_parts_of_it() {
        let mut inbox = Inbox::default();
        inbox.append(b"hello");
        let held = inbox.bytes().slice(1..3);
        inbox.append(b" world");
        assert_eq!((&inbox.take(5)[..], &held[..]), (&b"hello"[..], &b"el"[..]));
        inbox.append(b"!");
        assert_eq!(&inbox.take(7)[..], b" world!");
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_long_piece_keeps_its_memory_which_comes_back_and_a_short_one_is_copied() {
        let spares = || SPARES.with_borrow(Vec::len);
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let (near, far) = tokio::io::duplex(PIECE_BYTES_MAX * 2);
        let (mut near, mut far) = (Stream::Memory(near), Stream::Memory(far));
        let sent: Vec<u8> = (0..PIECE_BYTES_MAX + 1000).map(|it| (it % 251) as u8).collect();
        let mut inbox = Inbox::default();
        let mut came = Vec::new();
        for length in [PIECE_BYTES_MAX, 1000] {
            let piece = &sent[came.len()..came.len() + length];
            let mut far = Pin::new(&mut far);
            assert_eq!(far.as_mut().poll_write(cx, piece).map(Result::unwrap), Poll::Ready(length));
            let read = inbox.poll_fill(&mut near, Reads::Body, cx).map(Result::unwrap);
            assert_eq!(read, Poll::Ready(length));
            let piece = inbox.take(length);
            assert_eq!(spares(), usize::from(length < PIECE_BYTES_MAX / KEPT_PART));
            came.extend_from_slice(&piece);
            drop(piece);
            assert_eq!(spares(), 1);
        }
        assert!(came == sent, "the same bytes in the same order");
        assert!(inbox.poll_fill(&mut near, Reads::Body, cx).is_pending() && spares() == 1);
    }
}
