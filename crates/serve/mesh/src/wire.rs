//! Frames over a connection: reading as many as came, writing one, and counting bytes.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

use super::frame::{FOLLOWER_FRAME_BYTES_MAX, FRAME_BYTES_MAX, Frame, Nonsense, decode_up_to};
use super::hub::{Traffic, add};

/// How long a peer may refuse to take a frame.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a peer may say nothing: many probes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long connections outlive the certificates they were taken with: peers renew theirs one by
/// one meanwhile.
pub(super) const RENEWED_WITHIN: Duration = Duration::from_secs(30);

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The other end closed it, or the network did.
    Broken,
    /// The other end said nothing for too long, or took nothing.
    Silent,
    /// The other end sent what makes no sense.
    Nonsense(Nonsense),
    /// Certificates have changed: it is made anew.
    Renewed,
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl From<Nonsense> for Ended {
    fn from(nonsense: Nonsense) -> Self {
        Self::Nonsense(nonsense)
    }
}

/// The result of what goes on until the connection ends.
#[derive(Debug)]
pub(super) enum Never {}

/// What came and was not read yet: two of the longest frames at most.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    read: usize,
    longest: usize,
}

impl Inbox {
    /// Of a conversation between sites.
    pub(super) const fn of_peers() -> Self {
        Self { bytes: Vec::new(), read: 0, longest: FRAME_BYTES_MAX }
    }

    /// Of a conversation between the processes of one site.
    pub(super) const fn of_followers() -> Self {
        Self { bytes: Vec::new(), read: 0, longest: FOLLOWER_FRAME_BYTES_MAX }
    }

    /// The next whole frame, if it is there.
    pub(super) fn next(&mut self) -> Result<Option<Frame<'_>>, Nonsense> {
        let decoded = decode_up_to(&self.bytes[self.read..], self.longest)?;
        let Some((frame, length)) = decoded else { return Ok(None) };
        self.read += length;
        Ok(Some(frame))
    }

    /// Waits for more bytes, within the time that a peer may say nothing.
    pub(super) async fn fill(&mut self, from: &mut (impl AsyncRead + Unpin)) -> Result<(), Ended> {
        self.bytes.drain(..self.read);
        self.read = 0;
        let room = 2 * self.longest - self.bytes.len();
        self.bytes.reserve_exact(room);
        let mut from = from.take(room as u64);
        let reading = from.read_buf(&mut self.bytes);
        match tokio::time::timeout(IDLE_TIMEOUT, reading).await {
            Err(_) => Err(Ended::Silent),
            Ok(Ok(0)) => Err(Ended::Broken),
            Ok(read) => Ok(read.map(drop)?),
        }
    }
}

/// Writes bytes as one TLS record.
pub(super) async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Ended> {
    let writing = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
        Err(_) => Err(Ended::Silent),
        Ok(written) => Ok(written?),
    }
}

/// A connection whose bytes are counted.
#[derive(Debug)]
pub(super) struct Metered {
    stream: TcpStream,
    traffic: Rc<Traffic>,
}

impl Metered {
    pub(super) fn new(stream: TcpStream, traffic: &Rc<Traffic>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, traffic: Rc::clone(traffic) })
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        add(&self.traffic.received, (buffer.filled().len() - before) as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        add(&self.traffic.sent, written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
