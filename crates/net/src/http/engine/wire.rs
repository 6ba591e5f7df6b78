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
use tokio::net::TcpStream;

/// Below this many bytes a head and its body are copied together, above it `writev` is used.
const JOIN_BYTES_MAX: usize = 4096;

/// One TCP connection, without delay for small messages.
pub(super) struct Wire {
    stream: TokioIo<TcpStream>,
    joined: Vec<u8>,
}

impl Wire {
    /// Takes the stream over and turns Nagle's algorithm off.
    pub(super) fn new(stream: TcpStream) -> io::Result<Wire> {
        stream.set_nodelay(true)?;
        Ok(Wire { stream: TokioIo::new(stream), joined: Vec::new() })
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl Write for Wire {
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

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // a TCP stream keeps nothing back in user space
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
