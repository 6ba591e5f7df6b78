//! Bytes that have arrived and are not yet understood.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// What is read at once at least.
const READ_BYTES: usize = 16 * 1_024;

/// The largest buffer that is kept for what comes next.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// A buffer that is read into at its end and consumed at its beginning.
///
/// It grows with what has come and is not consumed, never with what a peer announces.
#[derive(Debug, Default)]
pub struct Inbox {
    data: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// What has come and is not consumed.
    pub fn filled(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// The first `count` bytes are done with.
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "only what has come can be consumed");
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.data.len() > KEPT_BYTES_MAX {
                self.data = Vec::new(); // one long message makes no connection large for ever
            }
        }
    }

    /// Reads once. Zero bytes mean that the peer has closed.
    pub fn poll_read(
        &mut self,
        stream: Pin<&mut impl AsyncRead>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut free = ReadBuf::new(&mut self.data[self.end..]);
        ready!(stream.poll_read(context, &mut free))?;
        let count = free.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }

    fn make_room(&mut self) {
        if self.data.len() - self.end >= READ_BYTES {
            return;
        }
        if self.start > 0 && self.start >= self.end - self.start {
            self.data.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.data.len() - self.end < READ_BYTES {
            let wanted = (self.end + READ_BYTES).max(self.data.len() * 2).max(4 * READ_BYTES);
            self.data.resize(wanted, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn what_goes_in_comes_out_in_order_whatever_is_consumed_when() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        let mut source = bytes.as_slice();
        let (mut inbox, mut out, mut step) = (Inbox::default(), Vec::new(), 1);
        let mut context = Context::from_waker(std::task::Waker::noop());
        loop {
            let mut stream = pin!(&mut source);
            let Poll::Ready(came) = inbox.poll_read(stream.as_mut(), &mut context) else {
                panic!("a slice is always ready")
            };
            let is_end = came.unwrap() == 0;
            let taken = if is_end { inbox.filled().len() } else { inbox.filled().len().min(step) };
            out.extend_from_slice(&inbox.filled()[..taken]);
            inbox.consume(taken);
            step = step * 3 % 40_000 + 1;
            if is_end {
                break;
            }
        }
        assert!(out == bytes, "bytes were lost or changed");
        assert!(inbox.data.len() < 700_000, "{}", inbox.data.len());
    }
}
