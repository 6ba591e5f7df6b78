//! Frames as they pass by: `h2` counts none of them for us.
//!
//! Only heads of frames are looked at; what is wrong with them is for `h2` to say.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use evenkeel_runtime::stream::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const GO_AWAY: u8 = 7;

const END_STREAM: u8 = 1;
const HEAD_BYTES: usize = 9;
/// With the last stream of a GOAWAY.
const LONG_HEAD_BYTES: usize = HEAD_BYTES + 4;

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// Bytes after the head.
    pub(crate) length: u32,
    /// The last stream that is served; of GOAWAY.
    pub(crate) last_stream: u32,
}

impl Frame {
    /// Whether it carries nothing and ends nothing.
    pub(crate) fn is_empty_data(self) -> bool {
        self.kind == DATA && self.length == 0 && self.flags & END_STREAM == 0
    }
}

/// Finds frames in the bytes of one direction, however they are cut.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Bytes that belong to no head.
    skip: usize,
    head: [u8; LONG_HEAD_BYTES],
    head_length: usize,
}

impl Frames {
    /// After so many bytes that are no frame.
    pub(crate) fn after(bytes: usize) -> Self {
        Self { skip: bytes, ..Self::default() }
    }

    /// Tells of each frame that begins in these bytes.
    pub(crate) fn pass(&mut self, mut bytes: &[u8], mut found: impl FnMut(Frame)) {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            if bytes.is_empty() {
                return;
            }
            let taken = (self.wanted() - self.head_length).min(bytes.len());
            let end = self.head_length + taken;
            self.head[self.head_length..end].copy_from_slice(&bytes[..taken]);
            self.head_length = end;
            bytes = &bytes[taken..];
            if self.head_length == self.wanted() {
                found(self.frame());
                self.skip = HEAD_BYTES + self.length() as usize - self.head_length;
                self.head_length = 0;
            }
        }
    }

    /// The length of the present head, as far as it is known.
    fn wanted(&self) -> usize {
        let is_long = self.head_length >= HEAD_BYTES && self.head[3] == GO_AWAY;
        // A shorter GOAWAY is an error, which `h2` sees.
        if is_long && self.length() >= 4 { LONG_HEAD_BYTES } else { HEAD_BYTES }
    }

    fn length(&self) -> u32 {
        u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]])
    }

    fn frame(&self) -> Frame {
        let [_, _, _, kind, flags, _, _, _, _, last @ ..] = self.head;
        let last_stream = match self.head_length {
            LONG_HEAD_BYTES => u32::from_be_bytes(last) & (u32::MAX >> 1),
            _ => 0,
        };
        Frame { kind, flags, length: self.length(), last_stream }
    }
}

/// Is told of what passes over a connection.
pub(crate) trait Watch {
    /// Frames begin in what was read.
    fn read(&mut self, bytes: &[u8]);

    /// Whether to read on; if not, the connection's task is woken, and is to end it.
    fn may_read(&self) -> bool {
        true
    }

    /// Whether the peer takes nothing of what there is to write.
    fn write_blocked(&mut self, _is_blocked: bool) {}

    /// Ends our side.
    fn poll_leave(
        &mut self,
        stream: Pin<&mut Stream>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        stream.poll_shutdown(context)
    }
}

/// A stream that is watched.
pub(crate) struct Watched<W> {
    stream: Stream,
    /// What was read before it was known to be HTTP/2.
    before: Vec<u8>,
    watch: W,
}

impl<W: Watch + Unpin> Watched<W> {
    pub(crate) fn new(stream: Stream, before: Vec<u8>, watch: W) -> Self {
        Self { stream, before, watch }
    }

    fn note<T>(&mut self, result: Poll<T>) -> Poll<T> {
        self.watch.write_blocked(result.is_pending());
        result
    }
}

impl<W: Watch + Unpin> AsyncRead for Watched<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.watch.may_read() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let filled = buffer.filled().len();
        if self.before.is_empty() {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        } else {
            let length = self.before.len().min(buffer.remaining());
            buffer.put_slice(&self.before[..length]);
            self.before.drain(..length);
            if self.before.is_empty() {
                self.before = Vec::new();
            }
        }
        self.watch.read(&buffer.filled()[filled..]);
        Poll::Ready(Ok(()))
    }
}

impl<W: Watch + Unpin> AsyncWrite for Watched<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.note(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, watch, .. } = &mut *self;
        watch.poll_leave(Pin::new(stream), context)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(frames: &[(u8, u8, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        for (kind, flags, payload) in frames {
            bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
            bytes.extend_from_slice(&[*kind, *flags, 0, 0, 0, 1]);
            bytes.extend_from_slice(payload);
        }
        bytes
    }

    use super::super::PREFACE;

    proptest! {
        #[test]
        fn frames_are_found_wherever_the_bytes_are_cut(
            frames in prop::collection::vec(
                (0_u8..11, any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..20),
            cut in 1_usize..50,
        ) {
            let bytes = written(&frames);
            let mut found = Vec::new();
            let mut parser = Frames::after(PREFACE.len());
            bytes.chunks(cut).for_each(|piece| parser.pass(piece, |frame| found.push(frame)));
            prop_assert_eq!(found.len(), frames.len());
            for (found, (kind, flags, payload)) in found.iter().zip(&frames) {
                prop_assert_eq!((found.kind, found.flags), (*kind, *flags));
                prop_assert_eq!(found.length as usize, payload.len());
                if *kind == GO_AWAY && payload.len() >= 4 {
                    let last = u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]);
                    prop_assert_eq!(found.last_stream, last & 0x7FFF_FFFF);
                }
            }
        }
    }
}
