//! Where clients come from: a bound address, a pipe within the process, or both.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use evenkeel_settings::address::ListenAddress;
use tokio::io::{DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::gate::Gate;
use super::socket::{Sharing, Socket};
use super::{Peer, inherited};
use crate::stream::Stream;

/// The address of clients of this machine that have none: of the loopback, as they are trusted.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Bytes that wait in each direction of a pipe.
const PIPE_BYTES: usize = 64 << 10;

/// A bound address that accepts no one yet. Can be sent to the thread that serves it.
#[derive(Debug)]
pub struct Listener {
    /// Several where another process had opened them.
    sockets: Vec<Arc<Socket>>,
    memory: Option<UnboundedReceiver<io::Result<DuplexStream>>>,
    /// Whether its clients are among those that the limit of open files leaves places for.
    counts: bool,
    gate: Option<Gate>,
}

/// Connects to a [`Listener`] of the same process, without a socket; from any thread.
#[derive(Debug, Clone)]
pub struct Dialer(UnboundedSender<io::Result<DuplexStream>>);

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
        let mut one = Self::bind_all(&address.into(), sharing, 1)?;
        Ok(one.pop().expect("as many as were asked for"))
    }

    /// Binds the address once for each of `count` threads; the first bind settles the port, and
    /// whether another process has it.
    ///
    /// # Errors
    /// As [`Listener::bind_as`].
    pub fn bind_all(
        address: &ListenAddress,
        sharing: Sharing,
        count: usize,
    ) -> io::Result<Vec<Self>> {
        let mut sockets = inherited::find(address);
        if sockets.is_empty() {
            let is_ours = |to: &SocketAddr| to.port() != 0 && inherited::has_port(to.port());
            let sharing = match (sharing, address.inet()) {
                // `0.0.0.0` where the process before has `127.0.0.1`.
                (Sharing::Claimed, Some(to)) if is_ours(&to) => Sharing::Shared,
                _ => sharing,
            };
            let first = bind(address, sharing)?;
            if let ListenAddress::Inet(settled) = first.address()? {
                let more = (1..count).map(|_| bind(&settled.into(), Sharing::Shared));
                sockets = more.collect::<io::Result<_>>()?;
            }
            sockets.insert(0, first);
        }
        let of = |number: usize| -> Vec<Arc<Socket>> {
            match sockets.len() >= count {
                true => sockets.iter().skip(number).step_by(count).cloned().collect(),
                false => vec![Arc::clone(&sockets[number % sockets.len()])],
            }
        };
        let listeners = (0..count).map(|number| Self { counts: true, ..Self::of(of(number)) });
        Ok(listeners.collect())
    }

    const fn of(sockets: Vec<Arc<Socket>>) -> Self {
        Self { sockets, memory: None, counts: false, gate: None }
    }

    /// The same listener, that accepts nobody until the gate is open.
    #[must_use]
    pub fn behind(self, gate: Option<&Gate>) -> Self {
        Self { gate: gate.cloned(), ..self }
    }

    /// The same listener, whose clients do not count towards
    /// [`limit_clients`](super::limit_clients) and do not wait for it: for administration.
    #[must_use]
    pub fn outside_limits(self) -> Self {
        Self { counts: false, ..self }
    }

    /// A listener that only clients of this process reach.
    pub fn memory() -> (Self, Dialer) {
        Self::of(Vec::new()).with_memory()
    }

    /// The same listener, which clients of this process reach without a socket too.
    pub fn with_memory(self) -> (Self, Dialer) {
        let (sender, receiver) = unbounded_channel();
        (Self { memory: Some(receiver), ..self }, Dialer(sender))
    }

    /// The port bound, which the system chose if the one asked for was 0.
    ///
    /// # Errors
    /// As the operating system says, and when it has none: it is a file, or reached within the
    /// process only.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let address = self.place()?.inet();
        address.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Where it listens.
    ///
    /// # Errors
    /// As the operating system says, and when it is reached within the process only.
    pub fn place(&self) -> io::Result<ListenAddress> {
        self.sockets.first().ok_or(io::ErrorKind::NotFound)?.address()
    }

    /// Another listener on the same socket: clients go to whichever accepts first. Clients within
    /// the process stay with this one.
    #[must_use]
    pub fn again(&self) -> Self {
        let (sockets, gate) = (self.sockets.clone(), self.gate.clone());
        Self { sockets, memory: None, counts: self.counts, gate }
    }

    /// Registers with this thread's runtime.
    pub(super) fn open(self) -> io::Result<Source> {
        let Self { sockets, memory, counts, gate } = self;
        let sockets = sockets.into_iter().map(Accepting::open).collect::<io::Result<_>>()?;
        Ok(Source { sockets, next: 0, memory, counts, gate })
    }
}

impl From<std::net::TcpListener> for Listener {
    fn from(socket: std::net::TcpListener) -> Self {
        Self::of(vec![Arc::new(Socket::Inet(socket))])
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

fn bind(address: &ListenAddress, sharing: Sharing) -> io::Result<Arc<Socket>> {
    Socket::bind(address, sharing).map_err(|error| {
        let is_path = address.inet().is_none();
        let hint = match (error.kind(), sharing) {
            _ if is_path && error.kind() == io::ErrorKind::NotFound => " (is the folder there?)",
            _ if is_path => "",
            (io::ErrorKind::AddrInUse, Sharing::Alone) => {
                ": another process listens there, expected a free address"
            }
            (io::ErrorKind::AddrInUse, Sharing::Claimed) => {
                ": another process listens there, expected a free address; to replace that \
                 process without a gap, start this one with `evenkeel run --take-over` and the \
                 same file"
            }
            (io::ErrorKind::AddrInUse, Sharing::Shared) => " (is another server running there?)",
            (io::ErrorKind::PermissionDenied, _) => " (ports below 1024 need a privilege)",
            (io::ErrorKind::AddrNotAvailable, _) => " (no interface of this host has it)",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}{hint}"))
    })
}

/// A listener that accepts.
#[derive(Debug)]
pub(super) struct Source {
    sockets: Vec<Accepting>,
    /// The socket that is asked first.
    next: usize,
    memory: Option<UnboundedReceiver<io::Result<DuplexStream>>>,
    counts: bool,
    gate: Option<Gate>,
}

/// A socket that is registered with this thread's runtime. The other one is known to whoever hands
/// over all of them.
#[derive(Debug)]
struct Accepting(OnThread, Arc<Socket>);

#[derive(Debug)]
enum OnThread {
    Inet(TcpListener),
    Unix(UnixListener),
}

impl Accepting {
    fn open(socket: Arc<Socket>) -> io::Result<Self> {
        let here = match &*socket {
            Socket::Inet(socket) => {
                socket.set_nonblocking(true)?;
                OnThread::Inet(TcpListener::from_std(socket.try_clone()?)?)
            }
            Socket::Unix(socket, _) => {
                socket.set_nonblocking(true)?;
                OnThread::Unix(UnixListener::from_std(socket.try_clone()?)?)
            }
        };
        Ok(Self(here, socket))
    }

    fn poll_next(&self, context: &mut Context<'_>) -> Poll<io::Result<(Stream, Peer)>> {
        match &self.0 {
            OnThread::Inet(socket) => loop {
                let (stream, address) = ready!(socket.poll_accept(context))?;
                if let Some(client) = of_socket(stream, address) {
                    return Poll::Ready(Ok(client));
                }
            },
            OnThread::Unix(socket) => {
                let (stream, _) = ready!(socket.poll_accept(context))?;
                Poll::Ready(Ok(of_unix(stream)))
            }
        }
    }

    /// Ends it; returns the clients that wait, asked of the kernel, not of tokio's memory of
    /// events.
    ///
    /// The kernel resets whoever comes between the last look and the end, so nothing is done there.
    fn into_waiting(self) -> Vec<(Stream, Peer)> {
        let Self(here, socket) = self;
        drop(here);
        let mut waiting = Vec::new();
        while let Ok(client) = accept_now(&socket) {
            waiting.extend(client);
        }
        drop(socket);
        waiting
    }
}

/// A client that waits; `None` when it has gone already.
fn accept_now(socket: &Socket) -> io::Result<Option<(Stream, Peer)>> {
    match socket {
        Socket::Inet(socket) => {
            let (stream, address) = socket.accept()?;
            stream.set_nonblocking(true)?;
            Ok(of_socket(TcpStream::from_std(stream)?, address))
        }
        Socket::Unix(socket, _) => {
            let (stream, _) = socket.accept()?;
            stream.set_nonblocking(true)?;
            Ok(Some(of_unix(UnixStream::from_std(stream)?)))
        }
    }
}

impl Source {
    /// Whether its clients are among those that the limit of open files leaves places for.
    pub(super) const fn counts(&self) -> bool {
        self.counts
    }

    /// Whether clients within the process come in beside a socket.
    pub(super) const fn is_shared_with_process(&self) -> bool {
        !self.sockets.is_empty() && self.memory.is_some()
    }

    /// Waits until it may accept.
    pub(super) async fn opened(&self) {
        if let Some(gate) = &self.gate {
            gate.opened().await;
        }
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
        for _ in 0..self.sockets.len() {
            self.next = (self.next + 1) % self.sockets.len();
            if let Poll::Ready(client) = self.sockets[self.next].poll_next(context) {
                return Poll::Ready(client);
            }
        }
        Poll::Pending
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
        for socket in self.sockets {
            waiting.extend(socket.into_waiting());
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
    (Stream::Memory(stream), Peer { address: NOWHERE, local: NOWHERE })
}

fn of_unix(stream: UnixStream) -> (Stream, Peer) {
    (Stream::Unix(stream), Peer { address: NOWHERE, local: NOWHERE })
}
