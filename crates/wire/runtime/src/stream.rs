//! A stream to a client or a server, whatever carries it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// A stream to a client or a server.
#[derive(Debug)]
pub enum Stream {
    /// A socket, without delay for small messages.
    Plain(TcpStream),
    /// A socket of this machine, by a path.
    Unix(UnixStream),
    /// Encrypted, over one of the others. It knows the peer's certificate and what was agreed.
    Tls(Box<TlsStream<Stream>>),
    /// A pipe within the process.
    Memory(DuplexStream),
}

impl Stream {
    /// What was agreed on in TLS (ALPN), if anything was.
    pub fn alpn(&self) -> Option<&[u8]> {
        let Self::Tls(stream) = self else { return None };
        stream.get_ref().1.alpn_protocol()
    }

    /// The socket, where nothing is between it and whoever writes.
    pub const fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Unix(_) | Self::Tls(_) | Self::Memory(_) => None,
        }
    }

    /// Whether it is encrypted.
    pub const fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether the peer has shown a certificate, which was then checked.
    pub fn is_certified(&self) -> bool {
        let Self::Tls(stream) = self else { return false };
        let (_, session) = stream.get_ref();
        session.peer_certificates().is_some()
    }
}

macro_rules! on_each {
    ($self:ident, $stream:ident => $poll:expr) => {
        match $self.get_mut() {
            Stream::Plain(stream) => {
                let $stream = Pin::new(stream);
                $poll
            }
            Stream::Unix(stream) => {
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
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_each!(self, stream => stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_each!(self, stream => stream.poll_write(context, bytes))
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_each!(self, stream => stream.poll_write_vectored(context, slices))
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            Self::Memory(stream) => stream.is_write_vectored(),
        }
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(self, stream => stream.poll_flush(context))
    }

    #[inline]
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_each!(self, stream => stream.poll_shutdown(context))
    }
}
