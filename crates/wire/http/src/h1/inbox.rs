//! What was read of a connection and not used yet.
//!
//! Small messages are read into a buffer that all connections of a thread share, and only what came
//! is kept. So an idle connection has no buffer, and one that waits for an answer has none either.

use std::cell::RefCell;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use evenkeel_runtime::stream::Stream;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, ReadBuf};

/// What is read at once: most messages fit.
const SHARED_BYTES: usize = 16 << 10;
/// What is read at once of a long body.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Reads of a head that is not whole before other tasks have their turn.
pub(super) const FILLS_MAX: usize = 32;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; SHARED_BYTES].into());
}

/// What was read and not used yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Bytes,
    /// How much of it was searched for the end of a head already.
    searched: usize,
    /// Whether the last read was a long one: more is likely to be there.
    flows: bool,
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

    /// Reads what is there: the number of bytes, 0 at the end of the stream. So many bytes are
    /// known to come.
    pub(super) fn poll_fill(
        &mut self,
        stream: &mut Stream,
        expected: u64,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if std::mem::take(&mut self.flows) && expected >= SHARED_BYTES as u64 {
            // One more than comes: a read that fills its buffer says nothing of what is left, and
            // the next one would be a system call in vain.
            let wanted = usize::try_from(expected).map_or(usize::MAX, |it| it.saturating_add(1));
            let mut piece = BytesMut::with_capacity(wanted.min(PIECE_BYTES_MAX));
            let count = ready!(pin!(stream.read_buf(&mut piece)).poll(cx))?;
            self.flows = count >= SHARED_BYTES;
            match self.flows && self.bytes.is_empty() {
                true => self.bytes = piece.freeze(),
                false => self.append(&piece), // of a short one the memory is not kept
            }
            return Poll::Ready(Ok(count));
        }
        SHARED.with_borrow_mut(|shared| {
            let mut buffer = ReadBuf::new(shared);
            ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
            self.append(buffer.filled());
            self.flows = buffer.remaining() == 0;
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
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
}
