//! WebSocket: what follows on a connection once the replica has agreed to an upgrade.
//!
//! The replica's half travels to the client's connection as the body of the 101
//! ([`Body::tunnel`](super::body::Body)). Bytes are then passed on as they come, in both
//! directions; each direction ends by itself, and the tunnel when both have ended or none has moved
//! for too long. Nothing is read into the meaning of the bytes.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{
    AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf, copy_bidirectional_with_sizes,
};

use evenkeel_runtime::accept::first;
use evenkeel_runtime::stream::Stream;

/// What is held of each direction: 8 KiB, as most messages are shorter.
const BUFFER_BYTES: usize = 8 << 10;
/// How many times a tunnel is looked at during its idle time.
const LOOKS_PER_IDLE_TIME: u32 = 4;

/// The replica's half of a tunnel. Dropping it closes the connection.
pub(super) struct Tunnel {
    pub(super) stream: Stream,
    /// What the replica has sent behind its 101.
    pub(super) read: Bytes,
    /// How long neither side may send anything.
    pub(super) idle: Duration,
    /// Its place among the connections of the replica.
    pub(super) _place: Box<dyn Any>,
}

impl Tunnel {
    /// Passes bytes on until both sides have ended. `read` was sent by the client already.
    pub(super) async fn run(self, client: Stream, read: Bytes) {
        let Self { mut stream, read: said, idle, _place } = self;
        let moved = Rc::new(Cell::new(0));
        let mut client = Counted { stream: client, moved: Rc::clone(&moved) };
        let passing = async {
            stream.write_all(&read).await?;
            client.write_all(&said).await?;
            client.flush().await?;
            stream.flush().await?;
            copy_bidirectional_with_sizes(&mut client, &mut stream, BUFFER_BYTES, BUFFER_BYTES)
                .await
        };
        let idling = async {
            let (mut before, mut looks) = (u64::MAX, 0);
            while looks < LOOKS_PER_IDLE_TIME {
                looks = if moved.get() == before { looks + 1 } else { 0 };
                before = moved.get();
                tokio::time::sleep((idle / LOOKS_PER_IDLE_TIME).max(Duration::from_millis(1)))
                    .await;
            }
            Err(io::ErrorKind::TimedOut.into())
        };
        if let Err(error) = first(passing, idling).await {
            tracing::debug!(%error, "a tunnel broke");
        }
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").field("idle", &self.idle).finish_non_exhaustive()
    }
}

/// A stream whose bytes are counted.
struct Counted {
    stream: Stream,
    moved: Rc<Cell<u64>>,
}

impl Counted {
    fn note(&self, count: usize) {
        self.moved.set(self.moved.get().wrapping_add(count as u64));
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.note(buffer.filled().len() - before);
        result
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &result {
            self.note(*count);
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
