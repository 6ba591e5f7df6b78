//! Where clients come from: a bound address, a pipe within the process, or both.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::task::{Context, Poll, ready};

use tokio::io::{DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Peer, inherited};
use crate::stream::Stream;

/// Connections the kernel keeps waiting while a worker is busy or full.
const BACKLOG: i32 = 4096;

/// Bytes that wait in each direction of a pipe.
const PIPE_BYTES: usize = 64 << 10;

/// A bound address that accepts no one yet. Can be sent to the thread that serves it.
#[derive(Debug)]
pub struct Listener {
    socket: Option<std::net::TcpListener>,
    memory: Option<UnboundedReceiver<io::Result<DuplexStream>>>,
    /// Whether its clients are among those that the limit of open files leaves places for.
    counts: bool,
}

/// Connects to a [`Listener`] of the same process, without a socket; from any thread.
#[derive(Debug, Clone)]
pub struct Dialer(UnboundedSender<io::Result<DuplexStream>>);

/// Who else may listen on an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody, ever.
    Alone,
    /// Nobody before; from now on those that ask for [`Sharing::Shared`], such as the other workers
    /// of this process. When two processes claim an address at once, one fails.
    Claimed,
    /// Everybody of the same user who claimed it or shares it.
    Shared,
}

impl Listener {
    /// Binds the address; other listeners, in this process or another, may share it.
    ///
    /// # Errors
    /// As [`Listener::bind_as`].
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Self::bind_as(address, Sharing::Shared)
    }

    /// Binds the address, shared so; or uses the socket of this address that the process has
    /// [inherited](super::inherited).
    ///
    /// # Errors
    /// As the operating system says, with the address and a likely cause.
    pub fn bind_as(address: SocketAddr, sharing: Sharing) -> io::Result<Self> {
        let bound = inherited::find(address).unwrap_or_else(|| bind(address, sharing));
        bound.map(|socket| Self { counts: true, ..Self::from(socket) }).map_err(|error| {
            let hint = match (error.kind(), sharing) {
                (io::ErrorKind::AddrInUse, Sharing::Alone) => {
                    ": another process listens there, expected a free address"
                }
                (io::ErrorKind::AddrInUse, Sharing::Claimed) => {
                    ": another process listens there, expected a free address; to replace that \
                     process without a gap, start this one with `evenkeel run --take-over` and \
                     stop the other one then"
                }
                (io::ErrorKind::AddrInUse, Sharing::Shared) => {
                    " (is another server running there?)"
                }
                (io::ErrorKind::PermissionDenied, _) => " (ports below 1024 need a privilege)",
                (io::ErrorKind::AddrNotAvailable, _) => " (no interface of this host has it)",
                _ => "",
            };
            io::Error::new(error.kind(), format!("cannot listen on {address}: {error}{hint}"))
        })
    }

    /// The same listener, whose clients do not count towards
    /// [`limit_clients`](super::limit_clients) and do not wait for it: for administration.
    #[must_use]
    pub fn outside_limits(self) -> Self {
        Self { counts: false, ..self }
    }

    /// A listener that only clients of this process reach.
    pub fn memory() -> (Self, Dialer) {
        Self { socket: None, memory: None, counts: false }.with_memory()
    }

    /// The same listener, which clients of this process reach without a socket too.
    pub fn with_memory(self) -> (Self, Dialer) {
        let (sender, receiver) = unbounded_channel();
        (Self { memory: Some(receiver), ..self }, Dialer(sender))
    }

    /// The address bound, with the port the system chose if the port asked for was 0.
    ///
    /// # Errors
    /// As the operating system says, and when it is reached within the process only.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotFound)?;
        socket.local_addr()
    }

    /// Another listener on the same socket: clients go to whichever accepts first. Clients within
    /// the process stay with this one.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn try_clone(&self) -> io::Result<Self> {
        let socket = self.socket.as_ref().map(std::net::TcpListener::try_clone).transpose()?;
        Ok(Self { socket, memory: None, counts: self.counts })
    }

    /// Registers with this thread's runtime.
    pub(super) fn open(self) -> io::Result<Source> {
        let socket = self.socket.map(|socket| {
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket)
        });
        Ok(Source { socket: socket.transpose()?, memory: self.memory, counts: self.counts })
    }
}

impl From<std::net::TcpListener> for Listener {
    fn from(socket: std::net::TcpListener) -> Self {
        Self { socket: Some(socket), memory: None, counts: false }
    }
}

impl Dialer {
    /// Connects. The client is served when its turn comes, as one with a socket.
    ///
    /// # Errors
    /// When the listener is gone.
    pub fn connect(&self) -> io::Result<DuplexStream> {
        let (ours, theirs) = duplex(PIPE_BYTES);
        self.0.send(Ok(theirs)).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(ours)
    }

    /// Lets the next accept fail.
    #[cfg(test)]
    pub(super) fn fail(&self, error: io::Error) {
        self.0.send(Err(error)).expect("somebody listens");
    }
}

fn bind(address: SocketAddr, sharing: Sharing) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(address),
        socket2::Type::STREAM.nonblocking().cloexec(),
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(sharing == Sharing::Shared)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    if sharing == Sharing::Claimed {
        // The kernel asks for it whenever another socket is bound, not only when this one was.
        // Until here nobody else could listen, so no two processes can believe that they were
        // first.
        socket.set_reuse_port(true)?;
    }
    Ok(socket.into())
}

/// A listener that accepts.
#[derive(Debug)]
pub(super) struct Source {
    socket: Option<TcpListener>,
    memory: Option<UnboundedReceiver<io::Result<DuplexStream>>>,
    counts: bool,
}

impl Source {
    /// Whether its clients are among those that the limit of open files leaves places for.
    pub(super) const fn counts(&self) -> bool {
        self.counts
    }

    /// Whether clients within the process come in beside a socket.
    pub(super) const fn is_shared_with_process(&self) -> bool {
        self.socket.is_some() && self.memory.is_some()
    }

    pub(super) async fn next(&mut self) -> io::Result<(Stream, Peer)> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(Stream, Peer)>> {
        if let Some(memory) = &mut self.memory {
            match memory.poll_recv(context) {
                Poll::Ready(Some(stream)) => return Poll::Ready(stream.map(of_memory)),
                Poll::Ready(None) => self.memory = None, // nobody can connect any more
                Poll::Pending => {}
            }
        }
        let Some(socket) = &self.socket else { return Poll::Pending };
        loop {
            let (stream, address) = ready!(socket.poll_accept(context))?;
            if let Some(client) = of_socket(stream, address) {
                return Poll::Ready(Ok(client));
            }
        }
    }

    /// Ends it; returns the clients that are connected already and wait.
    pub(super) fn into_waiting(self) -> io::Result<Vec<(Stream, Peer)>> {
        let mut waiting = Vec::new();
        if let Some(mut memory) = self.memory {
            memory.close();
            while let Ok(stream) = memory.try_recv() {
                waiting.extend(stream.ok().map(of_memory));
            }
        }
        let Some(socket) = self.socket else { return Ok(waiting) };
        let socket = socket.into_std()?; // asks the kernel, not tokio's memory of events
        while let Ok((stream, address)) = socket.accept() {
            stream.set_nonblocking(true)?;
            waiting.extend(of_socket(TcpStream::from_std(stream)?, address));
        }
        Ok(waiting)
    }
}

/// `None` when the client has gone already.
fn of_socket(stream: TcpStream, address: SocketAddr) -> Option<(Stream, Peer)> {
    stream.set_nodelay(true).ok()?;
    let local = stream.local_addr().ok()?;
    Some((Stream::Plain(stream), Peer { address, local }))
}

fn of_memory(stream: DuplexStream) -> (Stream, Peer) {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    (Stream::Memory(stream), Peer { address: nowhere, local: nowhere })
}
