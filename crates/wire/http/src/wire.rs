//! A TCP stream as hyper wants it, with small messages joined into one plain write.
//!
//! hyper offers a head and its body as two slices. `writev` with two short slices costs the
//! kernel more than copying a few hundred bytes costs us, while copying a large body costs more
//! than `writev`; so the choice is made by size, per write.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Below this many bytes a head and its body are copied together, above it `writev` is used.
const JOIN_BYTES_MAX: usize = 4096;

/// One connection.
pub(super) struct Wire<S> {
    stream: TokioIo<S>,
    joined: Vec<u8>,
}

impl<S> Wire<S> {
    /// Takes the stream over; a socket should have Nagle's algorithm off.
    pub(super) fn new(stream: S) -> Wire<S> {
        Wire { stream: TokioIo::new(stream), joined: Vec::new() }
    }
}

impl<S> Wire<S> {
    /// What is below, once everything is written.
    pub(super) fn into_stream(self) -> S {
        self.stream.into_inner()
    }
}

impl<S: Unpin> Wire<S> {
    /// What is below.
    pub(super) fn stream(&mut self) -> Pin<&mut S> {
        Pin::new(self.stream.inner_mut())
    }
}

impl<S: AsyncRead + Unpin> Read for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> Write for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = slices {
            return Pin::new(&mut self.stream).poll_write(cx, only);
        }
        if slices.iter().map(|slice| slice.len()).sum::<usize>() > JOIN_BYTES_MAX {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        }
        let Wire { stream, joined } = &mut *self;
        joined.clear();
        slices.iter().for_each(|slice| joined.extend_from_slice(slice));
        Pin::new(stream).poll_write(cx, joined)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
