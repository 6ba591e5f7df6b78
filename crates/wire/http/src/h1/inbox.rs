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

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; SHARED_BYTES].into());
}

/// What was read and not used yet.
#[derive(Debug, Default)]
pub(super) struct Inbox(Bytes);

impl From<Bytes> for Inbox {
    fn from(read: Bytes) -> Self {
        Self(read)
    }
}

impl Inbox {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is there, as one piece of memory that heads may be slices of.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Takes the first so many bytes.
    ///
    /// # Panics
    /// When there are not as many.
    pub(super) fn take(&mut self, count: usize) -> Bytes {
        match count == self.0.len() {
            true => std::mem::take(&mut self.0), // it must not hold on to what was taken
            false => self.0.split_to(count),
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
        if expected >= SHARED_BYTES as u64 {
            // One more than comes: a read that fills its buffer says nothing of what is left, and
            // the next one would be a system call in vain.
            let wanted = usize::try_from(expected).map_or(usize::MAX, |it| it.saturating_add(1));
            let mut piece = BytesMut::with_capacity(wanted.min(PIECE_BYTES_MAX));
            let count = ready!(pin!(stream.read_buf(&mut piece)).poll(cx))?;
            self.append(piece.freeze());
            return Poll::Ready(Ok(count));
        }
        SHARED.with_borrow_mut(|shared| {
            let mut buffer = ReadBuf::new(shared);
            ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
            self.append(Bytes::copy_from_slice(buffer.filled()));
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }

    fn append(&mut self, bytes: Bytes) {
        match self.0.is_empty() {
            true => self.0 = bytes,
            false => self.0 = [&self.0[..], &bytes].concat().into(),
        }
    }
}
