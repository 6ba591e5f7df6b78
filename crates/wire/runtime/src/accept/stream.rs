//! A client's stream, whatever carries it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::link::{Link, Phase};

/// Reads of a leaving client's bytes before other clients have their turn.
const DISCARDS_MAX: usize = 16;

/// A client's stream.
#[derive(Debug)]
pub enum Stream {
    /// A socket, without delay for small messages.
    Plain(TcpStream),
    /// Encrypted, over one of the others. It knows the client's certificate and what was agreed.
    Tls(Box<TlsStream<Stream>>),
    /// A pipe within the process.
    Memory(DuplexStream),
}

macro_rules! on_each {
    ($self:ident, $stream:ident => $poll:expr) => {
        match $self.get_mut() {
            Stream::Plain(stream) => {
                let $stream = Pin::new(stream);
                $poll
            }
            Stream::Tls(stream) => {
                let $stream = Pin::new(&mut **stream);
                $poll
            }
            Stream::Memory(stream) => {
                let $stream = Pin::new(stream);
                $poll
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_each!(self, stream => stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_each!(self, stream => stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_each!(self, stream => stream.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::Memory(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(self, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(self, stream => stream.poll_shutdown(context))
    }
}

/// How long a client is listened to after the last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linger {
    /// Only if it is sending just then.
    WhileSending,
    /// Until it has closed its side too.
    UntilClosed,
}

/// Ends our side of the connection, then throws away what the client still sends.
///
/// Closing a socket with unread bytes makes the kernel send a reset, which may destroy the last
/// answer before the client has read it. So what comes is read until the client ends, or until
/// its time in [`Phase::Leaving`] is up.
pub fn poll_leave<S: AsyncRead + AsyncWrite>(
    mut stream: Pin<&mut S>,
    link: &Link,
    linger: Linger,
    context: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if link.phase() != Phase::Leaving {
        ready!(stream.as_mut().poll_shutdown(context))?;
        if linger == Linger::UntilClosed {
            link.enter(Phase::Leaving);
        }
    }
    let mut scratch = [0; 4096];
    for _ in 0..DISCARDS_MAX {
        let mut buffer = ReadBuf::new(&mut scratch);
        match stream.as_mut().poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                if link.phase() != Phase::Leaving {
                    link.enter(Phase::Leaving);
                }
            }
            Poll::Pending if link.phase() == Phase::Leaving => return Poll::Pending,
            _ => return Poll::Ready(Ok(())),
        }
    }
    context.waker().wake_by_ref(); // let others have their turn
    Poll::Pending
}
